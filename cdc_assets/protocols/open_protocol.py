"""TiCDC Open Protocol (`ticdc-open-protocol`): raw records -> change events.

A record has one or more events. Its key is the protocol's version and then, for each event, a length and the event's key;
its value is, for each event, a length and the event's value: the N-th value belongs to the N-th key. The version and the
lengths are 8 bytes each, big-endian. An event's `t` states its kind: a row, a DDL statement, or a resolved event, which is
the watermark.
"""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.config import Feed
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.lakehouse import schema
from cdc_assets.lakehouse.change_events import Kind, Op
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.mysql_types.open_protocol import DDL_TYPES, GEOMETRY, ColumnFlag, flags_text, type_text
from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.protocols.base import Envelope, Protocol, Watermarks, WireColumn
from cdc_assets.protocols.events import complete_events, name_too_long, record_bytes
from cdc_assets.protocols.keys import dumped_value
from cdc_assets.protocols.messages import ANY, BIGINT, BOOLEAN, INT, TEXT, FieldType, columns_field, overlay, read
from cdc_assets.protocols.payload import LENGTH_BYTES, LZ4_MAGIC, resolve_claim_checks

if TYPE_CHECKING:
    from cdc_assets.type_checks.observations import Rules

VERSION = 1
# Limits the work that one hostile record can cause; TiCDC's max-batch-size is 16 by default.
_MOST_EVENTS = 1 << 16

_EVENT_KEY: Mapping[str, FieldType] = MappingProxyType(
    {"ts": BIGINT, "scm": TEXT, "tbl": TEXT, "t": INT, "ohk": BOOLEAN, "ccl": TEXT}
)
_HANDLE, _PRIMARY, _UNIQUE = int(ColumnFlag.HANDLE_KEY), int(ColumnFlag.PRIMARY_KEY), int(ColumnFlag.UNIQUE_KEY)
# The key columns are those of the handle key, else of the primary key, else of a unique key without NULL.
_KEYS = [(_HANDLE, _HANDLE), (_PRIMARY, _PRIMARY), (_UNIQUE | int(ColumnFlag.NULLABLE), _UNIQUE)]
_IMAGE = columns_field(_KEYS, unsupported=GEOMETRY)
# Values keep their JSON type, which the type checks read, and all their digits.
_EVENT_VALUE: Mapping[str, FieldType] = MappingProxyType({"u": _IMAGE, "p": _IMAGE, "d": _IMAGE, "q": TEXT, "t": ANY})
_ROW, _DDL, _RESOLVED = 1, 2, 3
_LONG_TEXTS = frozenset({"tinytext", "text", "mediumtext", "longtext"})


# The key has the protocol's version before the first event's length.
_ENVELOPE = Envelope(key=2 * LENGTH_BYTES, value=LENGTH_BYTES, claim=("key", "$.ccl"))


class OpenProtocol(Protocol):
    """TiCDC's Open Protocol."""

    name = "open-protocol"
    dialect = "open-protocol"
    codes_called = "type code"
    events_a_record = 16  # the default of TiCDC's max-batch-size
    # Without this setting Spark generates one method for all steps of decoding, which is longer than the JVM compiles. It
    # makes other protocols no faster.
    settings = MappingProxyType({"spark.sql.codegen.hugeMethodLimit": "8000"})

    def envelope(self, feed: Feed) -> Envelope:  # noqa: ARG002
        """Return how messages are wrapped: each event has a length before its key and its value."""
        return _ENVELOPE

    def watermarks(self, feed: Feed) -> Watermarks:  # noqa: ARG002
        """Return that the feed has watermarks: the resolved events."""
        return Watermarks.ALWAYS

    @property
    def signatures(self) -> Mapping[str, Column]:
        """Open Protocol has a key that begins with the protocol's version in eight bytes."""
        return {f"protocol: {self.name}": F.col("key").startswith(F.lit(VERSION.to_bytes(LENGTH_BYTES)))}

    def decode(self, raw: DataFrame, feed: Feed) -> DataFrame:
        """Decode records of one or more events.

        A record whose lengths do not fit together becomes one event of kind `undecodable`, with the byte position in
        `detail`. An event that cannot be decoded becomes one such event; the other events of its record are decoded.
        """
        events = _events(raw)
        if feed.claim_check:
            events = resolve_claim_checks(
                events, _ENVELOPE, feed.claim_check, ["topic", "partition", "offset", "index"]
            )
        return decode(events)

    def columns(self, layout: str) -> Sequence[WireColumn]:
        """Return the columns of a layout `{column: {"t": code, "f": flags}}`, without those of type NULL."""
        types = {name: type_text(c["t"], c["f"]) for name, c in json.loads(layout).items()}
        return [WireColumn(name, text) for name, text in types.items() if text is not None]

    def column_flags(self, layout: str) -> dict[str, str]:
        """Return column -> the names of its flags, such as `generated, multiple key`."""
        return {name: flags for name, c in json.loads(layout).items() if (flags := flags_text(c["f"]))}

    def sent_key_columns(self, schema: TableSchema) -> list[str]:
        """Return the key's columns sorted by name, because the columns of an event have no order."""
        return sorted(schema.key_columns)

    def dumped_key(self, value: Column, mysql_type: MySQLType) -> Column | None:
        """Return a dumped value in the form of messages; None for bytes and long texts, which messages escape."""
        return None if mysql_type.base in _LONG_TEXTS else dumped_value(value, mysql_type, None)

    def type_rules(self, feed: Feed) -> "Rules":  # noqa: ARG002
        """Return the rules for type codes, flags and values."""
        from cdc_assets.type_checks import open_codes  # noqa: PLC0415 -- pandera, which only checks need, is slow to import

        return open_codes.rules()


_PLACE = ["topic", "partition", "offset", "batch", "record_timestamp", "size"]


def _events(raw: DataFrame) -> DataFrame:
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
    """Decode events. In: as `_events` returns them. Out: rows of `change_events`."""
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
    return F.call_function("cdc_frames", key, value, F.lit(VERSION), F.lit(_MOST_EVENTS), F.lit(returns.json()))


def _ddl_type() -> Column:
    names = F.create_map(*[F.lit(each) for code, name in DDL_TYPES.items() for each in (str(code), name)])
    return F.coalesce(F.try_element_at(names, F.col("v.m.t")), F.col("v.m.t"))


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
        .when(F.col("k.m.ohk"), str(Reason.HANDLE_KEY_ONLY))
        .when(empty, str(Reason.EMPTY_VALUE))
        .when(F.col("value").startswith(F.lit(LZ4_MAGIC)), str(Reason.BAD_COMPRESSION))
        .when(F.col("v.wrong").isNotNull(), F.col("v.wrong"))
        .when(t == _DDL, F.when(F.coalesce(F.length(message["q"]), F.lit(0)) == 0, str(Reason.MISSING_FIELD)))
        .when(row & both, str(Reason.WRONG_TYPE))
        .when(~filled, str(Reason.MISSING_FIELD))
        .when(~image["complete"], str(Reason.MISSING_FIELD))
        .when(~image["supported"], str(Reason.UNSUPPORTED_TYPE))
    )
