"""Rows of which it is not known whether a statement that ended all rows of their table ended them, too.

Without watermarks and binlog positions only clocks order a statement and the rows of other partitions (Canal: whole
seconds). A row at the statement's time counts as later if its message was sent later, else as earlier. Where the sender's
clock does not tell, or contradicts the source's clock, a check reports the rows.
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.history.evolution import Close, Step
from cdc_assets.history.statements import is_in_partition
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.version_rows import CLOSED, PART
from cdc_assets.history.versions import DDL
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.table import Staged

# Rows that no clock orders against a statement: `statement` and `commit_ts` of the statement; `rows`, how many they are;
# topic, partition, offset and `row_commit_ts` of the first of them.
UnorderedRows = dict[str, Any]
_PLACE = ["commit_ts", "topic", "partition", "offset"]


def list_unordered_rows(
    session: SparkSession, plan: TablePlan, changes: DataFrame, staged: Staged
) -> list[UnorderedRows]:
    """Return the statements of a commit that end all rows, each with the rows that may have come before or after it.

    Runs one query for each such statement, and none if binlog positions or watermarks order the table's rows.

    Args:
        session: a Spark session.
        plan: the commit.
        changes: the changes of the commit: commit_ts, topic, partition, offset, op, sent_ms.
        staged: the rows that the commit writes.
    """
    endings = [
        (step, op.reason)
        for step in plan.steps
        if step.spot.place is None and step.spot.topic != LOAD_TOPIC
        for op in step.ops
        if isinstance(op, Close) and op.reason != DDL
    ]
    if plan.has_exact_order or not endings:
        return []
    closed = plan.table.read_staged(session, staged.in_partition(**{PART: CLOSED}))
    return [rows for step, reason in endings if (rows := _find_rows(step, reason, changes, closed))]


def _find_rows(step: Step, reason: str, changes: DataFrame, closed: DataFrame) -> UnorderedRows | None:
    """Return the rows of other partitions that the clocks do not order against a statement; None: there are none."""
    spot, sent_ms = step.spot, F.lit(step.spot.sent_ms).cast("bigint")
    is_undecided = (F.col("commit_ts") == spot.commit_ts) & F.coalesce(F.col("sent_ms") == sent_ms, F.lit(True))
    is_contradicted = (F.col("commit_ts") > spot.commit_ts) & (F.col("sent_ms") < sent_ms)
    new = changes.where((F.col("op") != str(Op.DELETE)) & (is_undecided | F.coalesce(is_contradicted, F.lit(False))))
    # A version does not have the time at which its row was sent.
    earlier = closed.where((F.col("_cdc_from_ts") == spot.commit_ts) & (F.col("_cdc_closed_by") == reason))
    rows = new.select(*_PLACE).unionAll(earlier.select("_cdc_from_ts", "_cdc_topic", "_cdc_partition", "_cdc_offset"))
    place = F.min(F.struct(*_PLACE)).alias("first")
    result = rows.where(~is_in_partition(spot)).agg(F.count("*").alias("rows"), place).collect()[0]
    if not result["rows"]:
        return None
    first: dict[str, Any] = result["first"].asDict()
    about = {"statement": step.ddl.text, "rows": result["rows"], "row_commit_ts": first["commit_ts"]}
    return first | about | {"commit_ts": spot.commit_ts}
