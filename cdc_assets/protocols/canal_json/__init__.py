"""Canal-JSON in all its dialects (`ticdc-canal-json`, and Canal's flat message): raw records -> change events.

By the specification's section on parsing, a message with `isDdl` true is a DDL event, one of `type` TIDB_WATERMARK is a
watermark, and any other is a DML event. Canal's QUERY messages that are not DDL have the text of a DML statement, but Canal
before 1.1.5 sends some DDL statements so, too: the text decides. Its messages about the source itself, such as the end of an
XA transaction, have no row. The message itself shows how else the dialects differ: whether it has `_tidb`, whether `old` has
all columns or the changed ones, how many rows `data` has.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.protocols.base import DeniedSetting, Envelope, Protocol, Watermarks, WireColumn
from cdc_assets.protocols.canal_json.decoding import decode
from cdc_assets.protocols.keys import dumped_value
from cdc_assets.protocols.messages import has_fields
from cdc_assets.protocols.payload import resolve_claim_checks

if TYPE_CHECKING:
    from cdc_assets.type_checks.rules import Rules

_WITHOUT_EXTENSION = DeniedSetting(
    "tidb_extension: true",
    "TiCDC's extension (_tidb, and watermarks)",
    "nothing waits for a watermark, and changes of one row in several partitions may be applied in the wrong order",
)
_ENVELOPE = Envelope(claim=("value", "$._tidb.claimCheckLocation"))


class CanalJson(Protocol):
    """Canal-JSON, with and without TiCDC's extension, and official Canal's flat messages."""

    name = "canal-json"
    dialect = "canal-json"
    codes_called = "JDBC type"

    def envelope(self, feed: Feed) -> Envelope:  # noqa: ARG002
        """Return how messages are wrapped: not at all."""
        return _ENVELOPE

    def watermarks(self, feed: Feed) -> Watermarks:
        """Return whether the feed has watermarks: only TiCDC's extension has them."""
        return Watermarks.ALWAYS if feed.tidb_extension else Watermarks.NEVER

    def denied_setting(self, feed: Feed) -> DeniedSetting | None:
        """Return the setting under which `_tidb` is used, if the feed does not have it."""
        return None if feed.tidb_extension else _WITHOUT_EXTENSION

    @property
    def signatures(self) -> Mapping[str, Column]:
        """Canal-JSON is JSON with the fields that every message has."""
        return {f"protocol: {self.name}": has_fields("isDdl", "mysqlType", "es")}

    def decode(self, raw: DataFrame, feed: Feed) -> DataFrame:
        """Decode records; a message of Canal may have several rows.

        `before` is the complete row before an UPDATE or DELETE. A DELETE has it in `data`. For an UPDATE it is `data` with
        the values of `old`, which may have all columns or only the changed ones.
        """
        if feed.claim_check:
            raw = resolve_claim_checks(raw, _ENVELOPE, feed.claim_check, ["topic", "partition", "offset"])
        return decode(raw, extended=feed.tidb_extension)

    def layout_of(self, sample: Mapping[str, Any]) -> str:
        """Return `[[column, type], ...]` in the order of the JDBC codes, which is the table's; `mysqlType` has no order.

        A column that has a code and no type has null as its type.
        """
        types, order = json.loads(sample["layout"])["types"], json.loads(sample["jdbc_types"] or "{}")
        return json.dumps([[name, types.get(name)] for name in [*order, *(n for n in types if n not in order)]])

    def columns(self, layout: str) -> Sequence[WireColumn]:
        """Return the columns of a layout that `layout_of` wrote."""
        return [WireColumn(name, text) for name, text in json.loads(layout)]

    def sent_key_columns(self, schema: TableSchema) -> list[str]:
        """Return the key's columns: a primary key in the table's order, as in `pkNames`, any other key in the schema's."""
        primary = {name.lower() for name in schema.primary_key}
        return [c.name for c in schema.columns if c.name.lower() in primary] or list(schema.key_columns)

    def dumped_key(self, value: Column, mysql_type: MySQLType) -> Column | None:
        """Return a dumped value in the form of messages, which write bytes as Latin-1 characters."""
        return dumped_value(value, mysql_type, lambda data: F.decode(data, "ISO-8859-1"))

    def type_rules(self, feed: Feed) -> "Rules":
        """Return the rules for types and JDBC codes: TiCDC's, and without the extension Canal's too."""
        from cdc_assets.protocols.canal_json.type_rules import CanalJsonRules  # noqa: PLC0415 -- importing pandera is slow

        return CanalJsonRules(frozenset({"spec"}) if feed.tidb_extension else frozenset({"spec", "canal"}))
