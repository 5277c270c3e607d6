"""Steps that all decoders share: derived columns of events, watermarks that cannot be right, limits of names."""

from collections.abc import Mapping
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.lakehouse.change_events import CHANGE_EVENTS, SOURCE_DETAILS, Kind, Op
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.lakehouse.schema import conform
from cdc_assets.protocols.keys import key_values

_LONGEST_NAME = 64
# Readers other than Spark have no calendar beyond these times, and Kafka accepts any milliseconds from a producer.
_FIRST_TIME, _LAST_TIME = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999"
_NO_TIME = -1  # milliseconds; Kafka's own value for a record without a time


def complete_events(decoded: DataFrame) -> DataFrame:
    """Return decoded events in the schema of `change_events`, with key, key_before and layout_id.

    In: columns of `change_events` that a decoder fills; `key_columns`, `op`, `before` and `after` give the keys, `layout`
    the layout_id.
    """
    time = F.col("record_timestamp")
    in_calendar = time.between(F.lit(_FIRST_TIME).cast("timestamp"), F.lit(_LAST_TIME).cast("timestamp"))
    derived = {
        "record_timestamp": F.when(time.isNull() | in_calendar, time).otherwise(F.timestamp_millis(F.lit(_NO_TIME)))
    }
    if "layout" in decoded.columns and "layout_id" not in decoded.columns:
        derived["layout_id"] = F.when(F.col("layout").isNotNull(), F.xxhash64("layout"))
    if "key_columns" not in decoded.columns:
        return conform(decoded.withColumns(derived), CHANGE_EVENTS.columns)
    # A second step, so that `key_before` is compared with the computed key and Spark does not compute that again.
    key, key_before = _keys()
    keyed = decoded.withColumns(derived | {"key": key}).withColumn("key_before", key_before)
    return conform(keyed, CHANGE_EVENTS.columns)


def reject_watermarks_ahead(events: DataFrame, lead: timedelta) -> DataFrame:
    """Return the events with watermarks marked undecodable that are further ahead of their record's Kafka time than `lead`.

    Watermarks of records without a Kafka time stay. In and out: rows of `change_events`.
    """
    record_ms = F.unix_millis("record_timestamp")
    is_ahead = tso.to_milliseconds(F.col("commit_ts")) - record_ms > lead // timedelta(milliseconds=1)
    rejected = (F.col("kind") == str(Kind.WATERMARK)) & (record_ms > 0) & is_ahead
    watermark_time, record_time = (
        F.date_format(t, "yyyy-MM-dd HH:mm:ss")
        for t in (tso.to_timestamp(F.col("commit_ts")), F.col("record_timestamp"))
    )
    detail = F.concat(F.lit("the watermark is of "), watermark_time, F.lit(", its record of "), record_time)
    return events.withColumns(
        {
            "kind": F.when(rejected, str(Kind.UNDECODABLE)).otherwise(F.col("kind")),
            "reason": F.when(rejected, str(Reason.WATERMARK_AHEAD)).otherwise(F.col("reason")),
            "detail": F.when(rejected, detail).otherwise(F.col("detail")),
        }
    )


def _keys() -> tuple[Column, Column]:
    """Return the key, if the message names its columns, and the key before the event, if the event changed it."""
    named, updated = F.size("key_columns") > 0, F.col("op") == str(Op.UPDATE)
    key = F.when(named, key_values(F.coalesce("after", "before"), F.col("key_columns")))
    before = F.when(named & updated, key_values(F.col("before"), F.col("key_columns")))
    return key, F.nullif(before, F.col("key"))


def source_details(**fields: Column) -> Column:
    """Return what a message states about itself and its source, as `SOURCE_DETAILS`; NULL if it states nothing.

    A field whose value is not of its type is NULL: nothing depends on it, so it must stop neither the record nor the run.

    Args:
        fields: some fields of `SOURCE_DETAILS`, each a STRING.
    """
    typed = {f.name: fields.get(f.name, F.lit(None)).try_cast(f.dataType) for f in SOURCE_DETAILS}
    details = F.struct(*[value.alias(name) for name, value in typed.items()])
    return F.when(F.coalesce(*[fields[name] for name in fields]).isNotNull(), details)


def look_up(values: Mapping[str, str], key: Column) -> Column:
    """Return the value of a key, STRING; NULL for a key that `values` lacks."""
    return F.try_element_at(F.create_map(*[F.lit(str(each)) for pair in values.items() for each in pair]), key)


def record_bytes(value: Column, index: Column | None = None) -> Column:
    """Return the size of a record on its first event, else NULL; without `index` the record has one event."""
    size = F.coalesce(F.length(value), F.lit(0))
    return size if index is None else F.when(index == 0, size)


def name_too_long(database: Column, table: Column) -> Column:
    """Return whether a name is longer than MySQL and TiDB permit. BOOLEAN, never NULL."""
    return F.coalesce((F.length(database) > _LONGEST_NAME) | (F.length(table) > _LONGEST_NAME), F.lit(False))
