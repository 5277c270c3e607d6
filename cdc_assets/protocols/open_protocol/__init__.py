"""TiCDC Open Protocol (`ticdc-open-protocol`): raw records -> change events.

A record has one or more events. Its key is the protocol's version and then, for each event, a length and the event's key;
its value is, for each event, a length and the event's value: the N-th value belongs to the N-th key. The version and the
lengths are 8 bytes each, big-endian. An event's `t` states its kind: a row, a DDL statement, or a resolved event, which is
the watermark.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.mysql_types.descriptors import TYPES, Family
from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets.protocols.base import Envelope, Protocol, Watermarks, WireColumn
from cdc_assets.protocols.keys import dumped_value
from cdc_assets.protocols.open_protocol.codes import flags_text, type_text
from cdc_assets.protocols.open_protocol.decoding import VERSION, decode, split_events
from cdc_assets.protocols.payload import LENGTH_BYTES, resolve_claim_checks

if TYPE_CHECKING:
    from cdc_assets.type_checks.rules import Rules

# The type whose values come as they are, and the one whose values come in base64.
_FORMS = {Family.TEXT: ("varchar", "longtext"), Family.BINARY: ("varbinary", "longblob")}
_LONG_TEXTS = frozenset({"tinytext", "text", "mediumtext", "longtext"})
# The key has the protocol's version before the first event's length.
_ENVELOPE = Envelope(key=2 * LENGTH_BYTES, value=LENGTH_BYTES, claim=("key", "$.ccl"))


class OpenProtocol(Protocol):
    """TiCDC's Open Protocol."""

    name = "open-protocol"
    dialect = "open-protocol"
    codes_called = "type code"
    events_a_record = 16  # the default of TiCDC's max-batch-size
    distinguishes_inserts = False  # with `output-old-value=false` an UPDATE looks like an INSERT
    # Without this setting Spark generates one method for all steps of decoding, which is longer than the JVM compiles. It
    # makes other protocols no faster.
    settings: ClassVar[Mapping[str, str]] = {"spark.sql.codegen.hugeMethodLimit": "8000"}

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
        events = split_events(raw)
        if feed.claim_check:
            events = resolve_claim_checks(
                events, _ENVELOPE, feed.claim_check, ["topic", "partition", "offset", "index"]
            )
        return decode(events)

    def columns(self, layout: str) -> Sequence[WireColumn]:
        """Return the columns of a layout `{column: {"t": code, "f": flags}}`, without those of type NULL."""
        types = {name: type_text(c["t"], c["f"]) for name, c in json.loads(layout).items()}
        return [WireColumn(name, text) for name, text in types.items() if text is not None]

    def resolve(self, column: WireColumn, declared: str | None, override: str | None) -> MySQLType | None:
        """Return the MySQL type of a column; None if MySQL has no such type.

        Values under the type codes of TEXT and BLOB come in base64, whatever type the feeds file gives. Such a type is a
        TEXT or BLOB under these codes, and otherwise a VARCHAR or VARBINARY, for which histories have the same type.
        """
        mysql_type = super().resolve(column, declared, override)
        if not override or mysql_type is None or TYPES[mysql_type.base].family not in _FORMS:
            return mysql_type
        sent = parsed(column.wire_type)
        is_encoded = sent is not None and TYPES[sent.base].capacity is not None
        if is_encoded == (TYPES[mysql_type.base].capacity is not None):
            return mysql_type
        return MySQLType(_FORMS[TYPES[mysql_type.base].family][is_encoded])

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
        from cdc_assets.protocols.open_protocol.type_rules import OpenProtocolRules  # noqa: PLC0415 -- importing pandera is slow

        return OpenProtocolRules()
