"""The rows of a history table, as one commit stages them."""

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets import tso
from cdc_assets.history.columns import SourceColumn
from cdc_assets.lakehouse.history import COPY
from cdc_assets.lakehouse.schema import quoted

# The column that partitions staged files by what the commit does to a version, and its values.
PART, OPENED, CLOSED, UNTOUCHED = "_part", "opened", "closed", "untouched"


def to_table_rows(
    versions: DataFrame, shape: StructType, columns: Iterable[SourceColumn], more: Iterable[str] = (), *, all_open: bool
) -> DataFrame:
    """Return versions as rows of the history table.

    Args:
        versions: the frame of `build_versions`.
        shape: the columns of the history table.
        columns: those of them that come from the source.
        more: columns of `versions` to keep as well.
        all_open: whether to keep open versions that stay as they are.

    Returns:
        The columns of the history table, `more`, and `_part` STRING: what the commit does to the version.
    """
    milliseconds = "timestamp_millis(shiftright({ts}, {bits}))"
    ours = {
        "_cdc_key": "key",
        "_cdc_from_ts": "commit_ts",
        "_cdc_to_ts": "to_ts",
        "_cdc_valid_from": milliseconds.format(ts="commit_ts", bits=tso.TSO_LOGICAL_BITS),
        "_cdc_valid_to": milliseconds.format(ts="to_ts", bits=tso.TSO_LOGICAL_BITS),
        "_cdc_is_current": "to_ts IS NULL",
        "_cdc_op": "op",
        "_cdc_closed_by": "closed_by",
        "_cdc_topic": "topic",
        "_cdc_partition": "partition",
        "_cdc_offset": "offset",
        COPY.name: "nullif(copy, 0)",
    }
    own = {c.column for c in columns}

    def value(name: str) -> str:
        return ours.get(name) or f"{'row' if name in own else 'rest'}.{quoted(name)}"

    part = f"CASE WHEN NOT was_open THEN '{OPENED}' WHEN to_ts IS NULL THEN '{UNTOUCHED}' ELSE '{CLOSED}' END AS {PART}"
    kept = versions if all_open else versions.where(~F.col("was_open") | F.col("to_ts").isNotNull())
    return kept.selectExpr(*[f"{value(f.name)} AS {quoted(f.name)}" for f in shape], part, *more)
