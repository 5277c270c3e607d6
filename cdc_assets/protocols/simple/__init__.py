"""TiCDC Simple Protocol (`ticdc-simple-protocol`): raw records -> change events. One message a record, one event a message.

A row names the version of its table's schema, and states no types and keys: those are in the schemas that DDL and BOOTSTRAP
messages carry, which `table_schemas` has.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.ddl.actions import Column as TableColumn
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.protocols.base import Envelope, Protocol, Watermarks, WireColumn
from cdc_assets.protocols.keys import dumped_value
from cdc_assets.protocols.messages import has_fields
from cdc_assets.protocols.payload import resolve_claim_checks
from cdc_assets.protocols.simple import avro as simple_avro
from cdc_assets.protocols.simple.decoding import decode
from cdc_assets.protocols.simple.wire_types import type_text

if TYPE_CHECKING:
    from cdc_assets.type_checks.rules import Rules

_ALL_BITS = 64
# TiDB keeps the values of an index on an expression in a virtual column whose name begins like this. Neither statements nor
# rows have it.
_HIDDEN_COLUMN = "_V$_"
_ENVELOPE = Envelope(claim=("value", "$.claimCheckLocation"))
_AVRO_ENVELOPE = Envelope(plain=simple_avro.BEGINNINGS)


class Simple(Protocol):
    """TiCDC's Simple Protocol, in JSON and in Avro."""

    name = "simple"
    dialect = "simple"
    codes_called = "value"
    numbers_schemas = True
    carries_schemas = True

    def envelope(self, feed: Feed) -> Envelope:
        """Return how messages of the feed's encoding are wrapped."""
        return _AVRO_ENVELOPE if feed.encoding == "avro" else _ENVELOPE

    def watermarks(self, feed: Feed) -> Watermarks:  # noqa: ARG002
        """Return that the feed has watermarks: the WATERMARK messages."""
        return Watermarks.ALWAYS

    @property
    def signatures(self) -> Mapping[str, Column]:
        """Simple in JSON has the fields of all messages; in Avro it begins with a branch of the message union."""
        beginnings = [F.col("value").startswith(F.lit(begins)) for begins in simple_avro.BEGINNINGS]
        return {
            f"protocol: {self.name}, encoding: json": has_fields("version", "type", "buildTs"),
            f"protocol: {self.name}, encoding: avro": reduce(or_, beginnings),
        }

    def decode(self, raw: DataFrame, feed: Feed) -> DataFrame:
        """Decode records, one event each.

        Rows have `schema_version` and `table_id`. DDL and bootstrap events have `table_schemas`, and `schema_version` and
        `table_id` of its first schema. A bootstrap has no commit_ts, because its commitTs means nothing; a DDL event without
        a schema has no table. Both encodings give the same row images with values as texts; `wire_types` has the Avro branch
        of each value.
        """
        avro = feed.encoding == "avro"
        if feed.claim_check:
            pointer = simple_avro.claim_check(F.col("value")) if avro else None
            raw = resolve_claim_checks(
                raw, self.envelope(feed), feed.claim_check, ["topic", "partition", "offset"], pointer
            )
        return decode(raw, avro=avro)

    def columns(self, layout: str) -> Sequence[WireColumn]:
        """Return the columns of a table schema `[{"name": .., "type": ..}, ..]`."""
        return [WireColumn(c["name"], c["type"]) for c in json.loads(layout)]

    def schemas_after(
        self,
        statement: Mapping[str, Any],
        from_statement: Mapping[tuple[str, str], TableSchema],  # noqa: ARG002
    ) -> dict[tuple[str, str], TableSchema]:
        """Return the first schema that the message carries; none for a DROP, whose message has the schema before it."""
        schemas = json.loads(statement["table_schemas"] or "[]")
        if not schemas or statement["ddl_type"] == "ERASE":
            return {}
        schema = _table_schema(schemas[0])
        return {(schema.database, schema.table): schema}

    def numbered_schemas(self, table_schemas: str) -> list[tuple[int, int, TableSchema]]:
        """Return all schemas that a message carries."""
        return [(s["tableID"], s["version"], _table_schema(s)) for s in json.loads(table_schemas)]

    def dumped_key(self, value: Column, mysql_type: MySQLType) -> Column | None:
        """Return a dumped value in the form of messages: bytes are base64.

        None for types of 64 bits, which Avro writes in two's complement.
        """
        is_wide = mysql_type.length == _ALL_BITS or len(mysql_type.labels or ()) == _ALL_BITS
        return None if mysql_type.base in ("bit", "set") and is_wide else dumped_value(value, mysql_type, F.base64)

    def type_rules(self, feed: Feed) -> "Rules":  # noqa: ARG002
        """Return the rules for values, by the schema that the row names."""
        from cdc_assets.protocols.simple.type_rules import SimpleRules  # noqa: PLC0415 -- importing pandera is slow

        return SimpleRules()


def _table_schema(message_schema: Mapping[str, Any]) -> TableSchema:
    """Return the schema of a message's TableSchema (`ticdc-simple-protocol`, section "TableSchema definition")."""
    indexes = message_schema.get("indexes") or []
    # The encoder writes an index `primary` for a table without a primary key too, if rows have a unique key.
    primary = next((i["columns"] for i in indexes if i.get("primary")), ())
    unique = [i for i in indexes if i.get("unique") and not i.get("primary")]
    return TableSchema(
        message_schema["schema"],
        message_schema["table"],
        tuple(_table_column(c) for c in message_schema["columns"] if not c["name"].startswith(_HIDDEN_COLUMN)),
        tuple(primary),
        tuple(tuple(i["columns"]) for i in unique),
        tuple(i.get("name", "") for i in unique),
    )


def _table_column(message_column: Mapping[str, Any]) -> TableColumn:
    """Return a column of a message's TableSchema (section "Column definition")."""
    data_type, default = message_column["dataType"], message_column.get("default")
    column = TableColumn(
        message_column["name"],
        type_text(data_type),
        nullable=message_column.get("nullable", True),
        default=default,
        charset=data_type.get("charset"),
        collation=data_type.get("collate"),
    )
    if default is None or data_type["mysqlType"] not in {"date", "datetime", "timestamp"}:
        return column
    if not default[:1].isdigit() or default.startswith("0000"):
        return replace(column, default=None, computed_default=True)  # CURRENT_TIMESTAMP, or the zero date
    # TiDB keeps the default of a TIMESTAMP in UTC, without a zone in its text.
    return replace(column, default=f"{default}Z") if data_type["mysqlType"] == "timestamp" else column
