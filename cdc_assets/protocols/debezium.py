"""Debezium's events of MySQL and MariaDB, as JSON (`debezium-mysql-change-event-values`): raw records -> change events.

A record's value is an envelope (`before`, `after`, `source`, `op`, `ts_ms`), alone (`schemas.enable=false`) or as the
`payload` beside its `schema`; so is the key. In addition to the topics of tables, a connector writes topics of schema
changes, transaction markers, notifications of its snapshots, and heartbeats. A record's fields decide which of them it is,
never the name of its topic. TiCDC's Debezium output has the same form, with `commit_ts` in `source` and watermarks (`op` m).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.config import Feed
from cdc_assets.ddl.actions import Column as TableColumn
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.lakehouse.change_events import PARTIAL_SNAPSHOT, Kind, Op
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.mysql_types.debezium import (
    DECIMAL,
    UNSTATED,
    DescribedColumn,
    Field,
    default_field,
    described_tables,
    layout,
    mysql_text,
    plain_number,
)
from cdc_assets.mysql_types.types import MySQLType, parse_type, parsed
from cdc_assets.protocols.base import Envelope, Protocol, Watermarks, WireColumn
from cdc_assets.protocols.events import complete_events, name_too_long, record_bytes, source_details
from cdc_assets.protocols.messages import ANY, BIGINT, INT, JSON, TEXT, FieldType, field_names, has_fields, read
from cdc_assets.protocols.numbers import exact_numbers

if TYPE_CHECKING:
    from cdc_assets.type_checks.observations import Rules

_PAYLOAD: Mapping[str, FieldType] = MappingProxyType(
    {
        "op": ANY, "before": JSON, "after": JSON,
        "source": {
            "connector": TEXT, "ts_ms": BIGINT, "snapshot": ANY, "db": TEXT, "table": TEXT, "server_id": BIGINT, "gtid": ANY,
            "file": TEXT, "pos": BIGINT, "row": INT, "commit_ts": BIGINT,
            "version": ANY, "name": ANY, "thread": ANY, "query": ANY,
        },
        "ts_ms": BIGINT, "databaseName": TEXT, "ddl": TEXT, "tableChanges": JSON, "status": ANY, "id": ANY,
        "data_collections": JSON, "transaction": {"id": ANY, "total_order": BIGINT},
        "aggregate_type": ANY, "type": ANY, "additional_data": ANY, "timestamp": ANY,
    }
)  # fmt: skip
# The fields of `before` and `after` in the schema stay JSON texts, which are parsed once for all rows that have the same.
_SCHEMA: FieldType = {"fields": [{"field": TEXT, "fields": JSON}]}
_MESSAGE: Mapping[str, FieldType] = MappingProxyType({"schema": _SCHEMA, "payload": dict(_PAYLOAD), **_PAYLOAD})
_KEY: Mapping[str, FieldType] = MappingProxyType({"payload": ANY})
# "database"."table", with quotes in a name doubled; a RENAME has the old and the new name, separated by a comma.
_NAME = r'"(?:[^"]|"")*"\."(?:[^"]|"")*"'
_TABLE_ID = rf"^{_NAME}(?:,{_NAME})?$"

# The fields that are read of a table's description, with their types as `schema_of_variant` writes the common type of all
# descriptions in a message.
_DESCRIBED = {
    "id": "STRING", "table": "OBJECT", "columns": "ARRAY<(?:OBJECT|VOID)", "primaryKeyColumnNames": "ARRAY<(?:STRING|VOID)",
    "name": "STRING", "typeName": "STRING", "jdbcType": "BIGINT", "length": "BIGINT", "scale": "BIGINT",
    "enumValues": "ARRAY<(?:STRING|VOID)", "optional": "BOOLEAN", "generated": "BOOLEAN",
}  # fmt: skip
_OTHERWISE = "|".join(rf"\b{name}: (?!VOID|{kind})" for name, kind in _DESCRIBED.items())
_DESCRIPTIONS = f"^ARRAY<(?:VOID|OBJECT<(?!.*(?:{_OTHERWISE})))"
# The first character of the fields that have JSON texts.
_BEGIN = {"e.before": "{", "e.after": "{", "e.tableChanges": "[", "e.data_collections": "["}

_OPS = {"c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.SNAPSHOT}
_TRUNCATE, _MARK = "t", "m"
_TICDC = "TiCDC"
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


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

    def envelope(self, feed: Feed) -> Envelope:  # noqa: ARG002
        """Return how messages are wrapped: not at all."""
        return Envelope()

    def watermarks(self, feed: Feed) -> Watermarks:  # noqa: ARG002
        """Return that the feed may have watermarks: only TiCDC's output has them."""
        return Watermarks.IF_SHOWN

    @property
    def signatures(self) -> Mapping[str, Column]:
        """Debezium's rows and schema changes have a source, a time, and an operation or a statement."""
        return {f"protocol: {self.name}": has_fields("source", "ts_ms") & (has_fields("op") | has_fields("ddl"))}

    def decode(self, raw: DataFrame, feed: Feed) -> DataFrame:  # noqa: ARG002
        """Decode records, one event each."""
        return decode(raw)

    def columns(self, layout_text: str) -> Sequence[WireColumn]:
        """Return the fields of the row's schema, or columns with assumed types if messages have no schema."""
        return [WireColumn(f.name, f, is_guessed=f.semantic == UNSTATED) for f in layout(layout_text)]

    def resolve(self, column: WireColumn, declared: str | None, override: str | None) -> MySQLType | None:
        """Return the type by the feeds file or the table's schema, if the field may stand for it; else the field's own."""
        declared_type = parsed(override or declared)
        field = _field(column, declared_type)
        return _UNKNOWN_TYPE if field.semantic == UNSTATED else field.resolve(declared_type)

    def text(self, value: Column, column: WireColumn, mysql_type: MySQLType | None) -> Column:
        """Return a value's text as MySQL prints it.

        Only the JSON type of a decimal shows the settings that it was written under: a number (the converter's
        `decimal.format=NUMERIC`, `decimal.handling.mode=double`), a text of bytes, or, without a schema, a text of digits.
        """
        if column.is_guessed and mysql_type == _UNKNOWN_TYPE:
            return value
        field = _field(column, mysql_type)
        text = mysql_text(value, field, mysql_type)
        if field.semantic != DECIMAL:
            return text
        number = mysql_text(value, Field(field.name, "double", "double"), mysql_type)
        unquoted = F.col("after").rlike(rf'[{{,]"\Q{json.dumps(field.name, ensure_ascii=False)[1:-1]}\E":-?[0-9]')
        # Base64 has no point, so a text with a point is a number that `exact_numbers` has made into a text.
        digits = F.when(value.rlike("^-?[0-9]") & unquoted, number).when(value.contains("."), plain_number(value))
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

    def type_rules(self, feed: Feed) -> "Rules":  # noqa: ARG002
        """Return the rules for the semantic types of columns."""
        from cdc_assets.type_checks import connect_types  # noqa: PLC0415 -- pandera, which only checks need, is slow to import

        return connect_types.rules()


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
        if by_statement:
            return replace(by_statement, type=text, nullable=described.nullable)
        return TableColumn(described.name, text, nullable=described.nullable, generated=described.generated)

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


def _field(column: WireColumn, declared_type: MySQLType | None) -> Field:
    """Return the field that the message states for a column; without one, that of a connector with default settings."""
    field = column.wire_type
    if not isinstance(field, Field):
        raise TypeError(f"{field!r} is not a field of a Debezium message")
    return default_field(column.name, declared_type) if field.semantic == UNSTATED else field


def decode(raw: DataFrame) -> DataFrame:
    """Decode the records. In: rows of `raw_records`. Out: rows of `change_events`."""
    key, value = F.col("key").cast("string"), F.col("value").cast("string")
    parsed = raw.select(
        "topic",
        "partition",
        "offset",
        "batch",
        F.col("timestamp").alias("record_timestamp"),
        "key",
        "headers",
        key.alias("key_text"),
        # A message with its schema is many times as long as its row, so later steps have its length only.
        F.length("value").alias("length"),
        record_bytes(F.col("value")).alias("size"),
        read(exact_numbers(value, _may_have_decimals(value)).cast("binary"), _MESSAGE).alias("v"),
    )
    bare = F.struct(*[F.col(f"v.m.{name}").alias(name) for name in _PAYLOAD])
    events = parsed.withColumn("e", F.coalesce("v.m.payload", bare)).withColumn("kind", _kind())
    # Only the keys of rows are used.
    keyed = events.withColumn("k", F.when(F.col("kind") == str(Kind.ROW), read(F.col("key"), _KEY)))
    checked = keyed.withColumn("reason", _reason())
    fine = F.col("reason").isNull()
    kind = F.when(fine, F.col("kind")).otherwise(str(Kind.UNDECODABLE))
    row, ddl = fine & (F.col("kind") == str(Kind.ROW)), fine & (F.col("kind") == str(Kind.DDL))
    placed, marker = row | ddl, fine & (F.col("kind") == str(Kind.TRANSACTION))
    op = F.when(row, _op())
    milliseconds = _milliseconds()
    decoded = {
        "index": F.lit(0),
        "record_bytes": F.col("size"),
        "kind": kind,
        "op": op,
        "database": F.when(placed, F.coalesce(F.nullif("e.source.db", F.lit("")), "e.databaseName")),
        "table": F.when(placed, F.nullif("e.source.table", F.lit(""))),
        "commit_ts": F.coalesce("e.source.commit_ts", tso.from_milliseconds(milliseconds)),
        "source_ms": milliseconds,
        "key_columns": F.when(row, _key_columns()),
        "key_changed_to": F.when(row, _header(_NEW_KEY)),
        "key_changed_from": F.when(row, _header(_OLD_KEY)),
        "before": F.when(op.isin(str(Op.UPDATE), str(Op.DELETE)), F.col("e.before")),
        "after": F.when(op != str(Op.DELETE), F.col("e.after")),
        "layout": F.when(row, _layout()),
        "detail": F.when(op == str(Op.SNAPSHOT), F.col("e.source.snapshot"))
        .when((op == str(Op.INSERT)) & _asks_for_some_rows(), F.lit(PARTIAL_SNAPSHOT))
        .when(F.col("kind") == str(Kind.NOTIFICATION), _notification()),
        "table_schemas": F.when(ddl & F.col("e.tableChanges").startswith("["), F.col("e.tableChanges")),
        "ddl_type": F.when(ddl & (F.col("e.op") == _TRUNCATE), F.lit("TRUNCATE")),
        "ddl_statement": F.when(ddl, _statement()),
        "source": F.when(
            placed & ~_from_ticdc(),
            F.struct(
                F.col("e.source.server_id").alias("server_id"),
                F.col("e.source.file").alias("file"),
                F.col("e.source.pos").alias("position"),
                F.col("e.source.row").alias("row"),
                F.col("e.source.gtid").alias("gtid"),
            ),
        ),
        "source_details": source_details(
            sent_ms=F.col("e.ts_ms").cast("string"),
            source_version=F.col("e.source.version"),
            source_name=F.col("e.source.name"),
            thread=F.col("e.source.thread"),
            query=F.col("e.source.query"),
        ),
        "transaction": F.when(
            marker | (row & F.col("e.transaction.id").isNotNull()),
            F.struct(
                F.when(marker, F.col("e.id")).otherwise(F.col("e.transaction.id")).alias("id"),
                F.col("e.transaction.total_order").alias("total_order"),
                F.when(F.col("e.status") == "END", F.col("e.data_collections")).alias("collections"),
            ),
        ),
    }
    place = ["topic", "partition", "offset", "batch", "record_timestamp", "reason"]
    return complete_events(checked.select(*place, *[value.alias(name) for name, value in decoded.items()]))


def _may_have_decimals(value: Column) -> Column:
    """Return whether DECIMALs may be numbers (`decimal.format=NUMERIC`): without a schema any number may be a DECIMAL."""
    return value.contains(DECIMAL) | ~value.contains('"schema":{')


def _from_ticdc() -> Column:
    return F.coalesce(F.col("e.source.connector") == _TICDC, F.lit(False))


def _kind() -> Column:
    """Return the kind of event of a record, by its fields; NULL if a connector writes no such record."""
    op, snapshot = F.col("e.op"), F.coalesce("e.source.snapshot", F.lit("false")) != "false"
    # The DROP and CREATE statements of a snapshot change no table: only the description of a table is used.
    described = F.coalesce(F.get_json_object("e.tableChanges", "$[0].table"), F.lit("null")) != "null"
    return (
        F.when(F.col("length").isNull(), str(Kind.TOMBSTONE))
        .when(_op().isNotNull(), str(Kind.ROW))
        .when(op == _TRUNCATE, str(Kind.DDL))
        .when(op == _MARK, F.when(_from_ticdc(), str(Kind.WATERMARK)).otherwise(str(Kind.MESSAGE)))
        .when(op.isNotNull(), F.lit(None))
        .when(F.col("e.ddl").isNotNull(), F.when(snapshot & ~described, str(Kind.STATEMENT)).otherwise(str(Kind.DDL)))
        .when(F.col("e.aggregate_type").isNotNull() & F.col("e.type").isNotNull(), str(Kind.NOTIFICATION))
        .when(F.col("e.status").isNotNull() & F.col("e.id").isNotNull(), str(Kind.TRANSACTION))
        .when(F.col("e.ts_ms").isNotNull() & F.col("e.source").isNull(), str(Kind.HEARTBEAT))
    )


def _op() -> Column:
    table = F.create_map(*[F.lit(str(each)) for pair in _OPS.items() for each in pair])
    return F.try_element_at(table, F.col("e.op"))


def _milliseconds() -> Column:
    """Return the time of the change in the source, else when the connector read it; of a notification its own time."""
    notification_ms = F.when(F.col("e.aggregate_type").isNotNull(), F.col("e.timestamp").try_cast("bigint"))
    return F.coalesce(F.nullif("e.source.ts_ms", F.lit(0)), F.col("e.ts_ms"), notification_ms)


def _notification() -> Column:
    """Return the content of a notification, a JSON object; NULL for those of single chunks, which are many."""
    fields = [F.col(f"e.{name}").alias(name) for name in ("id", "aggregate_type", "type", "additional_data")]
    return F.when(F.col("e.type") != "IN_PROGRESS", F.to_json(F.struct(*fields)))


def _asks_for_some_rows() -> Column:
    """Return whether a row of the connector's signal table asks for a snapshot of some rows. BOOLEAN, NULL without a row.

    A snapshot by a surrogate key is one too: it leaves out the rows whose surrogate key is NULL.
    """
    row = F.col("e.after")
    return row.contains("execute-snapshot") & (row.contains("additional-condition") | row.contains("surrogate-key"))


def _statement() -> Column:
    names = [
        F.concat(F.lit("`"), F.replace(f"e.source.{part}", F.lit("`"), F.lit("``")), F.lit("`"))
        for part in ("db", "table")
    ]
    # A table may be truncated twice within a second. The binlog position in the text makes these two different statements.
    place = F.concat(F.lit(" /* "), "e.source.file", F.lit(":"), F.col("e.source.pos").cast("string"), F.lit(" */"))
    truncate = F.concat(F.lit("TRUNCATE TABLE "), F.concat_ws(".", *names), F.coalesce(place, F.lit("")))
    return F.when(F.col("e.op") == _TRUNCATE, truncate).otherwise(F.col("e.ddl"))


def _payload(text: Column, parsed_payload: Column) -> Column:
    """Return a key without its schema. A key column may be named `payload` too, but its value is not an object."""
    return F.when(parsed_payload.startswith("{"), parsed_payload).otherwise(text)


def _key_columns() -> Column:
    """Return the columns of the record's key, in the key's order; an empty array without a key."""
    return F.coalesce(_key_names(), F.array().cast("array<string>"))


def _key_names() -> Column:
    """Return the names of the key's columns, ARRAY<STRING>; NULL without a key, or if the key is not a JSON object."""
    return field_names(_payload(F.col("key_text"), F.col("k.m.payload")))


def _header_text(name: str) -> Column:
    return F.get(F.filter("headers", lambda h: h["key"] == name), F.lit(0))["value"].cast("string")


def _header(name: str) -> Column:
    text = _header_text(name)
    return _payload(text, F.get_json_object(text, "$.payload"))


def _bad_header(name: str) -> Column:
    """Return whether a header that should have a key has no JSON object. BOOLEAN, never NULL."""
    text = _header_text(name)
    return text.isNotNull() & (~F.is_valid_utf8(text) | field_names(text).isNull())


def _layout() -> Column:
    """Return the fields of the row's schema, unchanged; without a schema the names of the row's columns."""
    image = F.filter("v.m.schema.fields", lambda f: f["field"].isin("after", "before") & f["fields"].startswith("["))
    names = F.to_json(field_names(F.coalesce("e.after", "e.before")))
    return F.coalesce(F.get(image, F.lit(0))["fields"], names)


def _other_json() -> Column:
    """Return whether a field that must be a JSON object or list has another JSON type. BOOLEAN, never NULL."""
    others = (F.coalesce(~F.col(name).startswith(begin), F.lit(False)) for name, begin in _BEGIN.items())
    no_lists = F.exists("v.m.schema.fields", lambda f: ~F.coalesce(f["fields"].startswith("["), f.isNotNull()))
    return reduce(or_, others, F.coalesce(no_lists, F.lit(False)))


def _misdescribed() -> Column:
    """Return whether a field in `tableChanges` has another type than prescribed. BOOLEAN, never NULL."""
    types = F.schema_of_variant(F.try_parse_json("e.tableChanges"))
    return ~F.coalesce(types.rlike(_DESCRIPTIONS), F.lit(False))


def _undescribed() -> Column:
    """Return whether a change in `tableChanges` lacks its table's name, or a column's name or type. BOOLEAN.

    NULL without `tableChanges`.
    """
    fields = "ARRAY<STRUCT<id: STRING, table: STRUCT<columns: ARRAY<STRUCT<name: STRING, typeName: STRING>>>>>"

    def is_described(change: Column) -> Column:
        table = change["table"]  # NULL if the table was dropped
        columns = F.forall(table["columns"], lambda c: c["name"].isNotNull() & c["typeName"].isNotNull())
        return F.coalesce(change["id"].rlike(_TABLE_ID) & (table.isNull() | columns), F.lit(False))

    return F.exists(F.from_json("e.tableChanges", fields), lambda change: ~is_described(change))


def _reason() -> Column:
    """Return why a record cannot be decoded, else NULL."""
    kind, source = F.col("kind"), F.col("e.source")
    row = kind == str(Kind.ROW)
    before, after = (F.coalesce(F.col(f"e.{image}").startswith("{"), F.lit(False)) for image in ("before", "after"))
    op = _op()
    lacking = (op == str(Op.DELETE)) & ~before | (op != str(Op.DELETE)) & ~after
    too_many = (op == str(Op.DELETE)) & after | op.isin(str(Op.INSERT), str(Op.SNAPSHOT)) & before
    named = (F.length(source["db"]) > 0) & (F.length(source["table"]) > 0)
    position = F.coalesce(source["commit_ts"], _milliseconds())
    # TiCDC states no binlog position.
    placed = _from_ticdc() | (source["file"].isNotNull() & source["pos"].isNotNull())
    described = (kind == str(Kind.DDL)) & F.col("e.tableChanges").isNotNull()
    return (
        F.when(kind == str(Kind.TOMBSTONE), F.lit(None))
        .when(F.col("length") == 0, str(Reason.EMPTY_VALUE))
        .when(F.col("v.wrong").isNotNull(), F.col("v.wrong"))
        .when(_other_json() | (described & _misdescribed()), str(Reason.WRONG_TYPE))
        .when(kind.isNull(), str(Reason.UNKNOWN_TYPE))
        .when(described & _undescribed(), str(Reason.MISSING_FIELD))
        .when(~kind.isin(str(Kind.ROW), str(Kind.DDL), str(Kind.WATERMARK)), F.lit(None))
        .when(position.isNull(), str(Reason.MISSING_FIELD))
        .when((position < 0) | name_too_long(source["db"], F.when(row, source["table"])), str(Reason.WRONG_TYPE))
        .when((row | (F.col("e.op") == _TRUNCATE)) & ~F.coalesce(named, F.lit(False)), str(Reason.MISSING_FIELD))
        .when(row & (lacking | ~placed), str(Reason.MISSING_FIELD))
        .when(row & too_many, str(Reason.IMAGES_DISAGREE))
        .when(
            row & F.col("key").isNotNull() & (F.col("k.wrong").isNotNull() | _key_names().isNull()), str(Reason.BAD_KEY)
        )
        .when(row & (_bad_header(_NEW_KEY) | _bad_header(_OLD_KEY)), str(Reason.BAD_KEY))
    )
