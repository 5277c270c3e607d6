"""TiCDC Open Protocol (`ticdc-open-protocol`): raw records -> change events.

A record holds one event or many. Its key is the protocol's version and then, for each event, a length and the event's key;
its value is, for each event, a length and the event's value: the N-th value belongs to the N-th key. The version and the
lengths are 8 bytes each, big-endian. An event's `t` says what it is: a row, a DDL statement, or a resolved event, which is
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
from cdc_assets.mysql_types.open_protocol import DDL_TYPES, GEOMETRY, Flag, flags_text, type_text
from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.protocols.base import Envelope, Protocol, Watermarks, WireColumn
from cdc_assets.protocols.events import completed, name_too_long, record_bytes
from cdc_assets.protocols.keys import dumped_value
from cdc_assets.protocols.messages import ANY, BIGINT, BOOLEAN, INT, TEXT, Wanted, columns_of, overlay, read
from cdc_assets.protocols.payload import LENGTH_BYTES, LZ4_MAGIC, claim

if TYPE_CHECKING:
    from cdc_assets.type_checks.observations import Rules

VERSION = 1
# A bound for the work that one hostile record can make; TiCDC's max-batch-size is 16 by default.
_MOST_EVENTS = 1 << 16

_EVENT_KEY: Mapping[str, Wanted] = MappingProxyType(
    {"ts": BIGINT, "scm": TEXT, "tbl": TEXT, "t": INT, "ohk": BOOLEAN, "ccl": TEXT}
)
# Values keep their JSON type, which the type checks look at, and all their digits.
_HANDLE, _PRIMARY, _UNIQUE = int(Flag.HANDLE_KEY), int(Flag.PRIMARY_KEY), int(Flag.UNIQUE_KEY)
# The key: the columns of the handle key, else of the primary key, else of a unique key without NULL.
_KEYS = [(_HANDLE, _HANDLE), (_PRIMARY, _PRIMARY), (_UNIQUE | int(Flag.NULLABLE), _UNIQUE)]
_IMAGE = columns_of(_KEYS, unsupported=GEOMETRY)
_EVENT_VALUE: Mapping[str, Wanted] = MappingProxyType({"u": _IMAGE, "p": _IMAGE, "d": _IMAGE, "q": TEXT, "t": ANY})
_ROW, _DDL, _RESOLVED = 1, 2, 3
_LONG_TEXTS = frozenset({"tinytext", "text", "mediumtext", "longtext"})


# The key begins with the protocol's version.
_ENVELOPE = Envelope(key=2 * LENGTH_BYTES, value=LENGTH_BYTES, claim=("key", "$.ccl"))


class OpenProtocol(Protocol):
    """TiCDC's Open Protocol."""

    name = "open-protocol"
    dialect = "open-protocol"
    codes_called = "type code"
    events_a_record = 16  # TiCDC's max-batch-size by default
    # Of all that becomes of an event Spark makes one method, longer than the JVM compiles, unless it is told not to.
    # (Measured: 24 us an event without this, 19 with it; other protocols take as long or longer.)
    settings = MappingProxyType({"spark.sql.codegen.hugeMethodLimit": "8000"})

    def envelope(self, feed: Feed) -> Envelope:  # noqa: ARG002
        """How its messages are wrapped."""
        return _ENVELOPE

    def watermarks(self, feed: Feed) -> Watermarks:  # noqa: ARG002
        """Resolved events."""
        return Watermarks.ALWAYS

    @property
    def looks(self) -> Mapping[str, Column]:
        """Return how its records look: a key that begins with the protocol's version as eight bytes."""
        return {f"protocol: {self.name}": F.col("key").startswith(F.lit(VERSION.to_bytes(LENGTH_BYTES)))}

    def decode(self, raw: DataFrame, feed: Feed) -> DataFrame:
        """Decode records of one event or many.

        A record whose frames do not fit together becomes one event of kind `undecodable`, with the byte position in
        `detail`; an event that cannot be decoded becomes one such event, and its neighbours in the record stay as they are.
        """
        events = _events(raw)
        if feed.claim_check:
            events = claim(events, _ENVELOPE, feed.claim_check, ["topic", "partition", "offset", "index"])
        return decode(events)

    def columns(self, layout: str) -> Sequence[WireColumn]:
        """The columns of a layout, `{column: {"t": code, "f": flags}}`; one that is always NULL has no type."""
        told = {name: type_text(c["t"], c["f"]) for name, c in json.loads(layout).items()}
        return [WireColumn(name, text) for name, text in told.items() if text is not None]

    def column_flags(self, layout: str) -> dict[str, str]:
        """Return the names of each column's flags, such as `generated, multiple key`."""
        return {name: flags for name, c in json.loads(layout).items() if (flags := flags_text(c["f"]))}

    def sent_key_columns(self, schema: TableSchema) -> list[str]:
        """By name: the columns of an event are in no order."""
        return sorted(schema.key_columns)

    def dumped_key(self, value: Column, mysql_type: MySQLType) -> Column | None:
        """Bytes and long texts are escaped in ways of their own."""
        return None if mysql_type.base in _LONG_TEXTS else dumped_value(value, mysql_type, None)

    def type_rules(self, feed: Feed) -> "Rules":  # noqa: ARG002
        """Codes, flags and values as the document's tables have them."""
        from cdc_assets.type_checks import open_codes  # noqa: PLC0415 -- pandera, which only checks need, is slow to import

        return open_codes.rules()


_PLACE = ["topic", "partition", "offset", "batch", "record_timestamp", "size"]


def _events(raw: DataFrame) -> DataFrame:
    """Cut records into their events. Out: `_PLACE`, error STRING, index INT, key BINARY, value BINARY."""
    framed = raw.select(
        *_PLACE[:4],
        F.col("timestamp").alias("record_timestamp"),
        record_bytes(F.col("value")).alias("size"),
        _frames(F.col("key"), F.col("value")).alias("framed"),
    )
    cut = framed.select(*_PLACE, "framed.error", F.posexplode_outer("framed.events").alias("index", "event"))
    return cut.select(*_PLACE, "error", F.coalesce("index", F.lit(0)).alias("index"), "event.key", "event.value")


def decode(events: DataFrame) -> DataFrame:
    """Decode events. In: `_events`."""
    parsed = events.select(
        *_PLACE,
        "error",
        "index",
        "value",
        read(F.col("key"), _EVENT_KEY).alias("k"),
        read(F.col("value"), _EVENT_VALUE).alias("v"),
    )
    # An UPDATE may have the old values of the changed columns only.
    whole = overlay(F.col("v.m.p.text"), F.col("v.m.u.text"))
    judged = parsed.withColumns({"reason": _reason(), "whole": whole})
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
        "before": F.when(row & deleted, F.col("v.m.d.text")).when(row & updated, F.col("whole")),
        "after": F.when(row & ~deleted, F.col("v.m.u.text")),
        "layout": F.when(row, F.coalesce("v.m.u.layout", "v.m.d.layout")),
        "ddl_type": F.when(ddl, _ddl_type()),
        "ddl_statement": F.when(ddl, F.col("v.m.q")),
        "detail": F.col("error"),
    }
    place = [*_PLACE[:-1], "index", "reason"]
    return completed(judged.select(*place, *[value.alias(name) for name, value in decoded.items()]))


def _frames(key: Column, value: Column) -> Column:
    """Cut a record into its events.

    In: BINARY, BINARY; a null value stands for values of length 0. Out: STRUCT of events ARRAY<STRUCT<key BINARY, value
    BINARY>> and error STRING: which byte does not fit; no event counts then.
    """
    event = schema.struct(key=schema.BINARY, value=schema.BINARY)
    returns = schema.struct(events=schema.array(event), error=schema.STRING)
    return F.call_function(
        "cdc_open_protocol_events", key, value, F.lit(VERSION), F.lit(_MOST_EVENTS), F.lit(returns.json())
    )


def _ddl_type() -> Column:
    names = F.create_map(*[F.lit(each) for code, name in DDL_TYPES.items() for each in (str(code), name)])
    return F.coalesce(F.try_element_at(names, F.col("v.m.t")), F.col("v.m.t"))


def _reason() -> Column:
    """Why an event cannot be decoded; null when it can."""
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
