"""Debezium's events of MySQL and MariaDB (`debezium-mysql-change-event-values`): raw records -> change events.

A record's value is an envelope (`before`, `after`, `source`, `op`, `ts_ms`): in JSON alone (`schemas.enable=false`) or as
the `payload` beside its `schema`, in Avro a datum whose schema a registry has; so is the key. In addition to the topics of
tables, a connector writes topics of schema changes, transaction markers, notifications of its snapshots, and heartbeats. A
record's fields decide which of them it is, never the name of its topic. TiCDC's Debezium output has the same form, with
`commit_ts` in `source` and watermarks (`op` m).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.ddl.actions import Column as TableColumn
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.mysql_types.types import MySQLType, parse_type, parsed
from cdc_assets.protocols.base import (
    NO_SCHEMAS,
    Envelope,
    Protocol,
    SchemaTexts,
    UnprovenSetting,
    Watermarks,
    WireColumn,
)
from cdc_assets.protocols.debezium import avro, semantics
from cdc_assets.protocols.debezium.decoding import PAYLOAD, decode, read_json
from cdc_assets.protocols.debezium.schema_records import DescribedColumn, described_tables
from cdc_assets.protocols.debezium.semantics import Field, assumed_field, layout, stands_for
from cdc_assets.protocols.debezium.texts import mysql_text, plain_number
from cdc_assets.protocols.debezium.unproven import find_unproven_settings
from cdc_assets.protocols.messages import has_fields
from cdc_assets.sources.schema_registry import default_id_kind
from cdc_assets.type_checks.row_images import Observation

if TYPE_CHECKING:
    from cdc_assets.type_checks.rules import Rules

# The type of a column whose type neither messages nor statements state: its values stay texts.
_UNKNOWN_TYPE = parse_type("longtext")


class Debezium(Protocol):
    """Debezium's connectors for MySQL and MariaDB, and TiCDC's output in the same form."""

    name = "debezium"
    dialect = "debezium"
    codes_called = "semantic type"
    # Only the first watermark shows that TiCDC wrote the stream, and the runs before it did not join pairs.
    joins_pairs = False
    carries_schemas = True
    marks_transactions = True
    takes_snapshots = True
    assumes_settings = True

    def __init__(self, settings: Mapping[str, str] = MappingProxyType({}), schemas: SchemaTexts = NO_SCHEMAS) -> None:
        """Make the protocol.

        Args:
            settings: the connector's settings that the feeds file gives, by the connector's names.
            schemas: the schemas in the registry, by the ids that records name.
        """
        self._settings = settings
        self._schemas = schemas

    def for_feed(self, feed: Feed) -> "Debezium":
        """Return the protocol for the messages of the feed's connector."""
        return Debezium(feed.connector_settings.by_name)

    def envelope(self, feed: Feed) -> Envelope:
        """Return how messages are wrapped: not at all. In Avro any byte may be the first, and no value is compressed."""
        return Envelope(plain=(b"",)) if feed.encoding == "avro" else Envelope()

    def schema_ids(self, feed: Feed) -> tuple[Column, ...]:
        """Return the schema ids of the value and of the key, in Avro."""
        if feed.schema_registry is None:
            return ()
        kind = default_id_kind(feed.schema_registry)
        return tuple(avro.schema_id(part, kind) for part in ("value", "key"))

    def with_schemas(self, schemas: SchemaTexts) -> "Debezium":
        """Return the protocol for records that name these schemas."""
        return Debezium(self._settings, schemas)

    def watermarks(self, feed: Feed) -> Watermarks:  # noqa: ARG002
        """Return that the feed may have watermarks: only TiCDC's output has them."""
        return Watermarks.IF_SHOWN

    @property
    def signatures(self) -> Mapping[str, Column]:
        """In JSON, rows and schema changes have a source, a time, and an operation or a statement.

        In Avro, a value begins with a schema id in Confluent's wire format.
        """
        is_json = has_fields("source", "ts_ms") & (has_fields("op") | has_fields("ddl"))
        return {
            f"protocol: {self.name}, encoding: json": is_json,
            f"protocol: {self.name}, encoding: avro": avro.begins_with_id(F.col("value")),
        }

    def decode(self, raw: DataFrame, feed: Feed) -> DataFrame:
        """Decode records, one event each."""
        if feed.schema_registry is None:
            return decode(read_json(raw))
        return decode(avro.read_records(raw, self._schemas, default_id_kind(feed.schema_registry), PAYLOAD))

    def columns(self, layout_text: str) -> Sequence[WireColumn]:
        """Return the fields of the row's schema, or columns with assumed types if messages have no schema."""
        return [WireColumn(f.name, f, is_guessed=f.semantic == semantics.UNSTATED) for f in layout(layout_text)]

    def resolve(self, column: WireColumn, declared: str | None, override: str | None) -> MySQLType | None:
        """Return the type by the feeds file or the table's schema, if the field may stand for it; else the field's own."""
        declared_type = parsed(override or declared)
        if column.is_guessed:
            return declared_type or _UNKNOWN_TYPE
        field: Field = column.wire_type
        return field.resolve(declared_type)

    def text(self, value: Column, column: WireColumn, mysql_type: MySQLType | None) -> Column:
        """Return a value's text as MySQL prints it.

        Only the JSON type of a decimal shows the settings that it was written under: a number (the converter's
        `decimal.format=NUMERIC`, `decimal.handling.mode=double`), a text of bytes, or, without a schema, a text of digits.
        """
        if column.is_guessed and mysql_type == _UNKNOWN_TYPE:
            return value
        field = assumed_field(column.wire_type, mysql_type, self._settings)
        text = mysql_text(value, field, mysql_type)
        if column.is_guessed and mysql_type is not None and stands_for(mysql_type) == "bigint unsigned":
            # bigint.unsigned.handling.mode=precise. The base64 of a number that is not negative begins with a letter.
            precise = mysql_text(value, Field(field.name, semantics.DECIMAL, "bytes"), mysql_type)
            return F.when(value.rlike("^-?[0-9]"), text).otherwise(precise)
        if field.semantic not in {semantics.DECIMAL, semantics.UNSTATED_DECIMAL}:
            return text
        number = mysql_text(value, Field(field.name, "double", "double"), mysql_type)
        # Both images of a message are written under the same settings, and the value may be NULL in one of them.
        number_pattern = rf'[{{,]"\Q{json.dumps(field.name, ensure_ascii=False)[1:-1]}\E":-?[0-9]'
        unquoted = F.col("after").rlike(number_pattern) | F.col("before").rlike(number_pattern)
        # Base64 has neither a point nor a minus sign. A text with a point may be a number that `exact_numbers` has made
        # into a text.
        digits = F.when(value.rlike("^-?[0-9]") & unquoted, number).when(value.rlike("[.-]"), plain_number(value))
        return digits.otherwise(text)

    def normalize_key(self, key: Column, layout_column: Column) -> Column:
        """Return a key with the fractions of TIMESTAMPs without zeros: Debezium 3.5 pads those of the binlog only."""
        padded = r'("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:(\.[0-9]*[1-9])0+|\.0+)Z"'
        # A layout that begins with a name is of messages without a schema.
        may_be_timestamp = layout_column.contains("ZonedTimestamp") | layout_column.startswith('["')
        return F.when(key.contains('Z"') & may_be_timestamp, F.regexp_replace(key, padded, '$1$2Z"')).otherwise(key)

    def schemas_after(
        self, statement: Mapping[str, Any], from_statement: Mapping[tuple[str, str], TableSchema]
    ) -> dict[tuple[str, str], TableSchema]:
        """Return the schemas of the tables in `tableChanges`, without dropped tables."""
        described = described_tables(statement["table_schemas"] or "[]")
        return {name: _described_table(name, *shape, from_statement.get(name)) for name, shape in described.items()}

    def changes_key_text(self, mysql_type: MySQLType) -> bool:
        """Return whether it is BIGINT UNSIGNED, which `bigint.unsigned.handling.mode` makes bytes, or negative numbers."""
        return mysql_type.base == "bigint" and mysql_type.unsigned

    def find_unproven_settings(self, observations: Iterable[Observation]) -> list[UnprovenSetting]:
        """Return the settings that neither messages, nor the feeds file, nor other values state."""
        return find_unproven_settings(observations, self._settings)

    def type_rules(self, feed: Feed) -> "Rules":  # noqa: ARG002
        """Return the rules for the semantic types of columns."""
        from cdc_assets.protocols.debezium.type_rules import DebeziumRules  # noqa: PLC0415 -- importing pandera is slow

        return DebeziumRules(self._settings)


def _described_table(
    name: tuple[str, str],
    columns: list[DescribedColumn],
    primary_key: tuple[str, ...],
    from_statement: TableSchema | None,
) -> TableSchema:
    """Return a table's schema by its description, with defaults and unique keys, which it lacks, by the statement."""
    by_name = {c.name: c for c in from_statement.columns} if from_statement else {}

    def column(described: DescribedColumn) -> TableColumn:
        by_statement = by_name.get(described.name)
        text = _type_text(described, by_statement.type if by_statement else None)
        nullable = described.optional is not False
        if by_statement:
            return replace(by_statement, type=text, nullable=nullable)
        generated = described.generated is True
        return TableColumn(described.name, text, nullable=nullable, generated=generated)

    described_columns = tuple(column(c) for c in columns)
    return replace(from_statement or TableSchema(*name, ()), columns=described_columns, primary_key=primary_key)


def _type_text(described: DescribedColumn, by_statement: str | None) -> str:
    """Return the text of a described type, with labels of enum and set by the statement: Debezium 1.9.5 has none."""
    if described.type is None:
        return described.type_name
    if by_statement is not None and described.type.base in {"enum", "set"} and described.type.labels is None:
        statement_type = parsed(by_statement)
        has_same_base = statement_type is not None and statement_type.base == described.type.base
        return by_statement if has_same_base else str(described.type)
    return str(described.type)
