"""Rows of which it is not known whether a statement that ended all rows of their table ended them, too.

Without watermarks and binlog positions only clocks order a statement and the rows of other partitions (Canal: whole
seconds). A row at the statement's time counts as later if its message was sent later, else as earlier. Where the sender's
clock does not tell, or contradicts the source's clock, a check reports the rows.
"""

from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from cdc_assets.history.contradictions import ROW_PLACE, count_rows
from cdc_assets.history.eras import is_unordered
from cdc_assets.history.evolution import Close, Step
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.version_rows import CLOSED, PART
from cdc_assets.history.versions import DDL
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.table import Staged

# Rows that no clock orders against a statement: `statement` and `commit_ts` of the statement; `rows`, how many they are;
# topic, partition, offset and `row_commit_ts` of the first of them.
UnorderedRows = dict[str, Any]


def list_unordered_rows(
    session: SparkSession, plan: TablePlan, changes: DataFrame, staged: Staged
) -> list[UnorderedRows]:
    """Return the statements of a commit that end all rows, each with the rows that may have come before or after it.

    Runs one query if there are such statements, and none if binlog positions or watermarks order the table's rows.

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
    new = changes.where(F.col("op") != str(Op.DELETE)).select(*ROW_PLACE, "sent_ms")
    # A version does not have the time at which its row was sent.
    earlier = closed.selectExpr(
        *("_cdc_from_ts AS commit_ts", "_cdc_topic AS topic", "_cdc_partition AS partition", "_cdc_offset AS offset"),
        "_cdc_closed_by AS closed_by",
    )
    rows = new.unionByName(earlier, allowMissingColumns=True)
    is_ended = [F.coalesce(F.col("closed_by") == reason, F.lit(True)) & is_unordered(s.spot) for s, reason in endings]
    counts = count_rows(rows, is_ended)
    return [_describe_rows(s, count, first) for (s, _), (count, first) in zip(endings, counts, strict=True) if count]


def _describe_rows(step: Step, count: int, first: Row) -> UnorderedRows:
    about = {"statement": step.ddl.text, "commit_ts": step.spot.commit_ts, "rows": count}
    return first.asDict() | about | {"row_commit_ts": first["commit_ts"]}
