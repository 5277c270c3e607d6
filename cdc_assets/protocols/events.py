"""What the decoders share: what follows for every event from what a decoder gives, and the limits of names."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.expressions import built_once
from cdc_assets.protocols.keys import key_values
from cdc_assets.tables.change_events import CHANGE_EVENTS, Op
from cdc_assets.tables.schema import conform

_LONGEST_NAME = 64


def completed(decoded: DataFrame) -> DataFrame:
    """Bring decoded events into the table's schema, with the keys and hashes that follow from what a decoder gives."""
    frame = decoded
    if "layout" in decoded.columns and "layout_id" not in decoded.columns:
        frame = frame.withColumn("layout_id", F.when(F.col("layout").isNotNull(), F.xxhash64("layout")))
    if "key_columns" in decoded.columns:
        key, before = _keys()
        frame = frame.withColumn("key", key).withColumn("key_before", before)
    return conform(frame, CHANGE_EVENTS.columns)


@built_once
def _keys() -> tuple[Column, Column]:
    """The key, where the message names its columns, and the one before, where that was another."""
    named, updated = F.size("key_columns") > 0, F.col("op") == str(Op.UPDATE)
    key = F.when(named, key_values(F.coalesce("after", "before"), F.col("key_columns")))
    before = F.when(named & updated, key_values(F.col("before"), F.col("key_columns")))
    return key, F.nullif(before, F.col("key"))


def record_bytes(value: Column, index: Column | None = None) -> Column:
    """The size of a record, on its first event."""
    size = F.coalesce(F.length(value), F.lit(0))
    return size if index is None else F.when(index == 0, size)


def name_too_long(database: Column, table: Column) -> Column:
    """Whether a name is longer than any of MySQL and TiDB, and maybe too long for a file system. BOOLEAN, never NULL."""
    return F.coalesce((F.length(database) > _LONGEST_NAME) | (F.length(table) > _LONGEST_NAME), F.lit(False))
