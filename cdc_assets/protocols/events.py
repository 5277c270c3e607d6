"""What the decoders share: what follows for every event from what a decoder gives, and the limits of names."""

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.lakehouse.change_events import CHANGE_EVENTS, SOURCE_DETAILS, Kind, Op
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.lakehouse.schema import conform
from cdc_assets.protocols.keys import key_values

_LONGEST_NAME = 64
# What readers other than Spark have a calendar for; Kafka takes any number of milliseconds from a producer.
_FIRST_TIME, _LAST_TIME = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999"
_NO_TIME = -1  # milliseconds: Kafka's own word for it


def completed(decoded: DataFrame) -> DataFrame:
    """Bring decoded events into the table's schema, with the keys and hashes that follow from what a decoder gives."""
    told = F.col("record_timestamp")
    known = told.between(F.lit(_FIRST_TIME).cast("timestamp"), F.lit(_LAST_TIME).cast("timestamp"))
    more = {"record_timestamp": F.when(told.isNull() | known, told).otherwise(F.timestamp_millis(F.lit(_NO_TIME)))}
    if "layout" in decoded.columns and "layout_id" not in decoded.columns:
        more["layout_id"] = F.when(F.col("layout").isNotNull(), F.xxhash64("layout"))
    if "key_columns" not in decoded.columns:
        return conform(decoded.withColumns(more), CHANGE_EVENTS.columns)
    # The key before is compared with the key, which is not to be computed again for that.
    key, before = _keys()
    return conform(decoded.withColumns(more | {"key": key}).withColumn("key_before", before), CHANGE_EVENTS.columns)


def believed(events: DataFrame, lead: timedelta) -> DataFrame:
    """Make watermarks undecodable that are further ahead of their record's Kafka time than `lead`, where that is known.

    In and out: rows of `change_events`.
    """
    known = F.unix_millis("record_timestamp")
    ahead = tso.to_milliseconds(F.col("commit_ts")) - known > lead // timedelta(milliseconds=1)
    absurd = (F.col("kind") == str(Kind.WATERMARK)) & (known > 0) & ahead
    times = (
        F.date_format(t, "yyyy-MM-dd HH:mm:ss")
        for t in (tso.to_timestamp(F.col("commit_ts")), F.col("record_timestamp"))
    )
    told = F.concat(F.lit("the watermark is of "), next(times), F.lit(", its record of "), next(times))
    return events.withColumns(
        {
            "kind": F.when(absurd, str(Kind.UNDECODABLE)).otherwise(F.col("kind")),
            "reason": F.when(absurd, str(Reason.WATERMARK_AHEAD)).otherwise(F.col("reason")),
            "detail": F.when(absurd, told).otherwise(F.col("detail")),
        }
    )


def _keys() -> tuple[Column, Column]:
    """The key, where the message names its columns, and the one before, where that was another."""
    named, updated = F.size("key_columns") > 0, F.col("op") == str(Op.UPDATE)
    key = F.when(named, key_values(F.coalesce("after", "before"), F.col("key_columns")))
    before = F.when(named & updated, key_values(F.col("before"), F.col("key_columns")))
    return key, F.nullif(before, F.col("key"))


def source_details(**fields: Column) -> Column:
    """Return what a message says of itself and its source, NULL where it says nothing: `SOURCE_DETAILS`.

    A field that is no value of its type is NULL: nothing depends on it, so it must stop neither the record nor the run.

    Args:
        fields: some fields of `SOURCE_DETAILS`, each a STRING.
    """
    typed = {f.name: fields.get(f.name, F.lit(None)).try_cast(f.dataType) for f in SOURCE_DETAILS}
    details = F.struct(*[value.alias(name) for name, value in typed.items()])
    return F.when(F.coalesce(*[fields[name] for name in fields]).isNotNull(), details)


def record_bytes(value: Column, index: Column | None = None) -> Column:
    """The size of a record, on its first event."""
    size = F.coalesce(F.length(value), F.lit(0))
    return size if index is None else F.when(index == 0, size)


def name_too_long(database: Column, table: Column) -> Column:
    """Whether a name is longer than any of MySQL and TiDB, and maybe too long for a file system. BOOLEAN, never NULL."""
    return F.coalesce((F.length(database) > _LONGEST_NAME) | (F.length(table) > _LONGEST_NAME), F.lit(False))
