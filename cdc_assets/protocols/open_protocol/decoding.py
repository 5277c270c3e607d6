"""Decoding of the Open Protocol: raw records -> change events."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.lakehouse import schema
from cdc_assets.lakehouse.change_events import Kind, Op
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.protocols.events import complete_events, look_up, name_too_long, record_bytes
from cdc_assets.protocols.messages import FieldType, columns_field, overlay, read
from cdc_assets.protocols.open_protocol.codes import DDL_TYPES, GEOMETRY, ColumnFlag
from cdc_assets.protocols.payload import LZ4_MAGIC

VERSION = 1
# Limits the work that one hostile record can cause; TiCDC's max-batch-size is 16 by default.
_MOST_EVENTS = 1 << 16

_EVENT_KEY: Mapping[str, FieldType] = {
    "ts": "bigint",
    "scm": "text",
    "tbl": "text",
    "t": "int",
    "ohk": "boolean",
    "ccl": "text",
}
_HANDLE, _PRIMARY, _UNIQUE = int(ColumnFlag.HANDLE_KEY), int(ColumnFlag.PRIMARY_KEY), int(ColumnFlag.UNIQUE_KEY)
# The key columns are those of the handle key, else of the primary key, else of a unique key without NULL.
_KEYS = [(_HANDLE, _HANDLE), (_PRIMARY, _PRIMARY), (_UNIQUE | int(ColumnFlag.NULLABLE), _UNIQUE)]
_IMAGE = columns_field(_KEYS, unsupported=GEOMETRY)
# Values keep their JSON type, which the type checks read, and all their digits.
_EVENT_VALUE: Mapping[str, FieldType] = {"u": _IMAGE, "p": _IMAGE, "d": _IMAGE, "q": "text", "t": "any"}
_ROW, _DDL, _RESOLVED = 1, 2, 3
_PLACE = ["topic", "partition", "offset", "batch", "record_timestamp", "size"]


def split_events(raw: DataFrame) -> DataFrame:
    """Split records into their events. Out: `_PLACE`, error STRING, index INT, key BINARY, value BINARY."""
    framed = raw.select(
        *_PLACE[:4],
        F.col("timestamp").alias("record_timestamp"),
        record_bytes(F.col("value")).alias("size"),
        _frames(F.col("key"), F.col("value")).alias("framed"),
    )
    cut = framed.select(*_PLACE, "framed.error", F.posexplode_outer("framed.events").alias("index", "event"))
    return cut.select(*_PLACE, "error", F.coalesce("index", F.lit(0)).alias("index"), "event.key", "event.value")


def decode(events: DataFrame) -> DataFrame:
    """Decode events. In: as `split_events` returns them. Out: rows of `change_events`."""
    parsed = events.select(
        *_PLACE,
        "error",
        "index",
        "value",
        read(F.col("key"), _EVENT_KEY).alias("k"),
        read(F.col("value"), _EVENT_VALUE).alias("v"),
    )
    # `p` of an UPDATE may have all columns or only the changed ones.
    row_before = overlay(F.col("v.m.p.text"), F.col("v.m.u.text"))
    checked = parsed.withColumns({"reason": _reason(), "row_before": row_before})
    fine, t = F.col("reason").isNull(), F.col("k.m.t")
    kind = (
        F.when(~fine, str(Kind.UNDECODABLE))
        .when(t == _DDL, str(Kind.DDL))
        .when(t == _RESOLVED, str(Kind.WATERMARK))
        .otherwise(str(Kind.ROW))
    )
    row, ddl = fine & (t == _ROW), fine & (t == _DDL)
    deleted, updated = F.col("v.m.d").isNotNull(), F.col("v.m.p").isNotNull()
    op = F.when(deleted, str(Op.DELETE)).when(updated, str(Op.UPDATE)).otherwise(str(Op.INSERT))
    decoded = {
        "kind": kind,
        "record_bytes": F.when(F.col("index") == 0, F.col("size")),
        "op": F.when(row, op),
        "database": F.col("k.m.scm"),
        "table": F.nullif(F.col("k.m.tbl"), F.lit("")),
        "commit_ts": F.col("k.m.ts"),
        "source_ms": tso.to_milliseconds(F.col("k.m.ts")),
        "key_columns": F.when(row, F.coalesce("v.m.u.key_columns", "v.m.d.key_columns")),
        "before": F.when(row & deleted, F.col("v.m.d.text")).when(row & updated, F.col("row_before")),
        "after": F.when(row & ~deleted, F.col("v.m.u.text")),
        "layout": F.when(row, F.coalesce("v.m.u.layout", "v.m.d.layout")),
        "ddl_type": F.when(ddl, _ddl_type()),
        "ddl_statement": F.when(ddl, F.col("v.m.q")),
        "detail": F.col("error"),
    }
    place = [*_PLACE[:-1], "index", "reason"]
    return complete_events(checked.select(*place, *[value.alias(name) for name, value in decoded.items()]))


def _frames(key: Column, value: Column) -> Column:
    """Split a record into its events.

    In: BINARY, BINARY; a NULL value stands for event values of length 0. Out: STRUCT of events ARRAY<STRUCT<key BINARY,
    value BINARY>> and error STRING, the byte at which the lengths do not fit; with an error the events are not used.
    """
    event = schema.struct(key=schema.BINARY, value=schema.BINARY)
    returns = schema.struct(events=schema.array(event), error=schema.STRING)
    return F.call_function(
        "cdc_open_protocol_events", key, value, F.lit(VERSION), F.lit(_MOST_EVENTS), F.lit(returns.json())
    )


def _ddl_type() -> Column:
    names = {str(code): name for code, name in DDL_TYPES.items()}
    return F.coalesce(look_up(names, F.col("v.m.t")), F.col("v.m.t"))


def _reason() -> Column:
    """Return why an event cannot be decoded, else NULL."""
    t, message = F.col("k.m.t"), F.col("v.m")
    row = t == _ROW
    named = (F.length("k.m.scm") > 0) & (F.length("k.m.tbl") > 0)
    image = F.coalesce(message["u"], message["d"])
    old = F.coalesce(message["p"]["valued"], F.lit(True))
    filled = F.coalesce(named & (image["text"] != "{}") & old, F.lit(False))
    both = message["d"].isNotNull() & (message["u"].isNotNull() | message["p"].isNotNull())
    empty = F.coalesce(F.length("value"), F.lit(0)) == 0
    return (
        F.when(F.col("error").isNotNull(), str(Reason.BAD_FRAMING))
        .when(F.col("k.wrong").isNotNull(), F.col("k.wrong"))
        .when(t.isNull() | F.col("k.m.ts").isNull(), str(Reason.MISSING_FIELD))
        .when(~t.isin(_ROW, _DDL, _RESOLVED), str(Reason.UNKNOWN_TYPE))
        .when((F.col("k.m.ts") < 0) | name_too_long(F.col("k.m.scm"), F.col("k.m.tbl")), str(Reason.WRONG_TYPE))
        .when(t == _RESOLVED, F.when(~empty, str(Reason.WRONG_TYPE)))
        .when(F.col("k.m.ccl").isNotNull(), str(Reason.CLAIM_CHECK))
        .when(F.col("k.m.ohk") & message["d"].isNull(), str(Reason.HANDLE_KEY_ONLY))
        .when(empty, str(Reason.EMPTY_VALUE))
        .when(F.col("value").startswith(F.lit(LZ4_MAGIC)), str(Reason.BAD_COMPRESSION))
        .when(F.col("v.wrong").isNotNull(), F.col("v.wrong"))
        .when(t == _DDL, F.when(F.coalesce(F.length(message["q"]), F.lit(0)) == 0, str(Reason.MISSING_FIELD)))
        .when(row & both, str(Reason.WRONG_TYPE))
        .when(~filled, str(Reason.MISSING_FIELD))
        .when(~image["complete"], str(Reason.MISSING_FIELD))
        .when(~image["supported"], str(Reason.UNSUPPORTED_TYPE))
    )
