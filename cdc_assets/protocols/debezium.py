"""Debezium's events of MySQL and MariaDB (`debezium-mysql-change-event-values`): raw records -> change events.

A record's value is an envelope (`before`, `after`, `source`, `op`, `ts_ms`), in JSON alone (`schemas.enable=false`) or as
the `payload` beside its `schema`, in Avro a datum (`debezium_avro`); the key likewise. Beside the tables' topics a connector
writes one of schema changes, one of transaction markers, one of notifications of its snapshots, and heartbeats; which of
them a record is, its fields tell, never its topic's name. TiCDC's own Debezium output has the same form, with a `commit_ts`
in `source` and watermarks (`op` m).
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
from cdc_assets.lakehouse.change_events import PARTIAL_WANTED, Kind, Op
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.mysql_types.debezium import (
    DECIMAL,
    UNTOLD,
    Described,
    Field,
    default_field,
    described_tables,
    layout,
    mysql_text,
    plain_number,
)
from cdc_assets.mysql_types.types import MySQLType, parse_type, parsed
from cdc_assets.protocols import debezium_avro
from cdc_assets.protocols.base import NO_ANSWERS, Answers, Envelope, Protocol, Watermarks, WireColumn
from cdc_assets.protocols.events import completed, name_too_long, record_bytes, source_details
from cdc_assets.protocols.messages import ANY, BIGINT, INT, JSON, TEXT, Wanted, has_fields, names_of, read
from cdc_assets.protocols.numbers import exact_numbers
from cdc_assets.sources.schema_registry import id_kind

if TYPE_CHECKING:
    from cdc_assets.type_checks.observations import Rules

_PAYLOAD: Mapping[str, Wanted] = MappingProxyType(
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
# Of the schema the fields of `before` and `after` are kept, each as one text: parsed when the table is known, once for
# all rows that have the same.
_SCHEMA: Wanted = {"fields": [{"field": TEXT, "fields": JSON}]}
_MESSAGE: Mapping[str, Wanted] = MappingProxyType({"schema": _SCHEMA, "payload": dict(_PAYLOAD), **_PAYLOAD})
_KEY: Mapping[str, Wanted] = MappingProxyType({"payload": ANY})
# "database"."table", in which a quote is doubled; of a RENAME the old and the new name, with a comma between.
_NAME = r'"(?:[^"]|"")*"\."(?:[^"]|"")*"'
_TABLE_ID = rf"^{_NAME}(?:,{_NAME})?$"

# What is read of a table's description, as `schema_of_variant` writes the types of all of a message's together.
_DESCRIBED = {
    "id": "STRING", "table": "OBJECT", "columns": "ARRAY<(?:OBJECT|VOID)", "primaryKeyColumnNames": "ARRAY<(?:STRING|VOID)",
    "name": "STRING", "typeName": "STRING", "jdbcType": "BIGINT", "length": "BIGINT", "scale": "BIGINT",
    "enumValues": "ARRAY<(?:STRING|VOID)", "optional": "BOOLEAN", "generated": "BOOLEAN",
}  # fmt: skip
_OTHERWISE = "|".join(rf"\b{name}: (?!VOID|{kind})" for name, kind in _DESCRIBED.items())
_DESCRIPTIONS = f"^ARRAY<(?:VOID|OBJECT<(?!.*(?:{_OTHERWISE})))"
# Of each field that has a text of JSON, how the text begins.
_BEGIN = {"e.before": "{", "e.after": "{", "e.tableChanges": "[", "e.data_collections": "["}

_OPS = {"c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.SNAPSHOT}
_TRUNCATE, _MARK = "t", "m"
_TICDC = "TiCDC"
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


# The text of a value whose type nobody tells is all that is known of it.
_ANY = parse_type("longtext")


class Debezium(Protocol):
    """The connectors for MySQL and MariaDB, and TiCDC's output of the same form."""

    name = "debezium"
    dialect = "debezium"
    codes_called = "semantic type"
    # Runs before the first watermark, which tells that TiCDC wrote the stream, have kept such pairs apart.
    joins_pairs = False
    carries_schemas = True
    marks_transactions = True
    takes_snapshots = True

    def __init__(self, answers: Answers = NO_ANSWERS) -> None:
        self._answers = answers

    def envelope(self, feed: Feed) -> Envelope:
        """How its messages are wrapped: in Avro any byte may be the first, and nothing is compressed."""
        return Envelope(plain=(b"",)) if feed.encoding == "avro" else Envelope()

    def schema_ids(self, feed: Feed) -> tuple[Column, ...]:
        """In Avro those of the value and the key."""
        if feed.schema_registry is None:
            return ()
        own_kind = id_kind(feed.schema_registry)
        return tuple(debezium_avro.schema_id(part, own_kind) for part in ("value", "key"))

    def with_answers(self, answers: Answers) -> "Debezium":
        """The protocol whose records name these schemas."""
        return Debezium(answers)

    def watermarks(self, feed: Feed) -> Watermarks:  # noqa: ARG002
        """Only TiCDC's output has any."""
        return Watermarks.IF_SHOWN

    @property
    def looks(self) -> Mapping[str, Column]:
        """Return how its records look.

        In JSON rows and schema changes have a source, and the connector's time or the statement; in Avro a value begins with
        a schema's id in Confluent's format.
        """
        in_json = has_fields("source", "ts_ms") & (has_fields("op") | has_fields("ddl"))
        return {
            f"protocol: {self.name}, encoding: json": in_json,
            f"protocol: {self.name}, encoding: avro": debezium_avro.begins_with_id(F.col("value")),
        }

    def decode(self, raw: DataFrame, feed: Feed) -> DataFrame:
        """Decode records, one event each."""
        if feed.schema_registry is None:
            return decode(read_json(raw))
        return decode(debezium_avro.read_records(raw, self._answers, id_kind(feed.schema_registry), _PAYLOAD))

    def columns(self, layout_text: str) -> Sequence[WireColumn]:
        """The fields of the row's schema, or the columns' names where there is none."""
        return [WireColumn(f.name, f, guessed=f.semantic == UNTOLD) for f in layout(layout_text)]

    def resolve(self, column: WireColumn, declared: str | None, override: str | None) -> MySQLType | None:
        """What the feeds file or the schema changes say, where the field may stand for that; else what the field says."""
        known = parsed(override or declared)
        field = _field(column, known)
        return _ANY if field.semantic == UNTOLD else field.resolve(known)

    def text(self, value: Column, column: WireColumn, mysql_type: MySQLType | None) -> Column:
        """A value as MySQL prints it.

        Of a decimal only its JSON type tells which settings it came under: a number (the converter's
        `decimal.format=NUMERIC`, `decimal.handling.mode=double`), or a text of bytes, or without a schema of digits.
        """
        if column.guessed and mysql_type == _ANY:
            return value
        field = _field(column, mysql_type)
        text = mysql_text(value, field, mysql_type)
        if field.semantic != DECIMAL:
            return text
        number = mysql_text(value, Field(field.name, "double", "double"), mysql_type)
        unquoted = F.col("after").rlike(rf'[{{,]"\Q{json.dumps(field.name, ensure_ascii=False)[1:-1]}\E":-?[0-9]')
        # In base64 there is no point: with one it is a number that `exact_numbers` has kept as a text.
        digits = F.when(value.rlike("^-?[0-9]") & unquoted, number).when(value.contains("."), plain_number(value))
        return digits.otherwise(text)

    def normal_key(self, key: Column, layout_column: Column) -> Column:
        """The fractions of TIMESTAMPs in one form: 3.5 pads those of the binlog, and not those of a snapshot."""
        padded = r'("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:(\.[0-9]*[1-9])0+|\.0+)Z"'
        # names alone: no schema
        may_be = layout_column.contains("ZonedTimestamp") | layout_column.startswith('["')
        return F.when(key.contains('Z"') & may_be, F.regexp_replace(key, padded, '$1$2Z"')).otherwise(key)

    def schemas_after(
        self, statement: Mapping[str, Any], told: Mapping[tuple[str, str], TableSchema]
    ) -> dict[tuple[str, str], TableSchema]:
        """The tables of `tableChanges`; a dropped one is not among them."""
        described = described_tables(statement["table_schemas"] or "[]")
        return {name: _described_table(name, *shape, told.get(name)) for name, shape in described.items()}

    def type_rules(self, feed: Feed) -> "Rules":  # noqa: ARG002
        """Semantic types that may stand for the column's type."""
        from cdc_assets.type_checks import connect_types  # noqa: PLC0415 -- pandera, which only checks need, is slow to import

        return connect_types.rules()


def _described_table(
    name: tuple[str, str], columns: list[Described], primary_key: tuple[str, ...], told: TableSchema | None
) -> TableSchema:
    """A table as Debezium describes it. Defaults and keys, which it does not tell, are those of the statements."""
    stated = {c.name: c for c in told.columns} if told else {}

    def column(described: Described) -> TableColumn:
        known = stated.get(described.name)
        text = _completed(described, known.type if known else None)
        if known:
            return replace(known, type=text, nullable=described.nullable)
        return TableColumn(described.name, text, nullable=described.nullable, generated=described.generated)

    shape = tuple(column(c) for c in columns)
    return replace(told or TableSchema(*name, ()), columns=shape, primary_key=primary_key)


def _completed(described: Described, stated: str | None) -> str:
    """The text of a type, with the labels of enum and set that 1.9.5 does not tell."""
    if described.type is None:
        return described.type_name
    if stated is not None and described.type.base in {"enum", "set"} and described.type.labels is None:
        told = parsed(stated)
        return stated if told and told.base == described.type.base else str(described.type)
    return str(described.type)


def _field(column: WireColumn, known: MySQLType | None) -> Field:
    """What the message says of a column; where it says nothing, what a connector with the default settings would."""
    field = column.said
    if not isinstance(field, Field):
        raise TypeError(f"{field!r} is no field of Debezium's")
    return default_field(column.name, known) if field.semantic == UNTOLD else field


def read_json(raw: DataFrame) -> DataFrame:
    """Read keys and values in JSON. In and out: as `debezium_avro.read_records`; there is no `note`."""
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
        # A message with its schema is many times as long as its row: nothing after this step carries it.
        F.length("value").alias("length"),
        record_bytes(F.col("value")).alias("size"),
        read(exact_numbers(value, _may_have_decimals(value)).cast("binary"), _MESSAGE).alias("v"),
    )
    bare = F.struct(*[F.col(f"v.m.{name}").alias(name) for name in _PAYLOAD])
    opened = parsed.withColumn("e", F.coalesce("v.m.payload", bare))
    # Only rows have a key that matters.
    keyed = opened.withColumn("k", F.when(_op().isNotNull(), read(F.col("key"), _KEY)))
    names = names_of(_payload(F.col("key_text"), F.col("k.m.payload")))
    bad_key = F.col("key").isNotNull() & (F.col("k.wrong").isNotNull() | names.isNull())
    image = F.filter("v.m.schema.fields", lambda f: f["field"].isin("after", "before") & f["fields"].startswith("["))
    # A list that is no list of fields.
    no_lists = F.exists("v.m.schema.fields", lambda f: ~F.coalesce(f["fields"].startswith("["), f.isNotNull()))
    wrong = F.coalesce(F.col("v.wrong"), F.when(no_lists, str(Reason.WRONG_TYPE)))
    return keyed.select(
        *["topic", "partition", "offset", "batch", "record_timestamp", "headers", "length", "size", "e"],
        wrong.alias("wrong"),
        F.get(image, F.lit(0))["fields"].alias("fields"),
        names.alias("key_names"),
        F.when(bad_key, str(Reason.BAD_KEY)).alias("key_wrong"),
        F.lit(None).cast("string").alias("note"),
    )


def decode(read_records: DataFrame) -> DataFrame:
    """Decode records whose keys and values are read."""
    judged = read_records.withColumn("kind", _kind())
    judged = judged.withColumn("reason", _reason())
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
        # None where the record has no key.
        "key_columns": F.when(row, F.coalesce("key_names", F.array().cast("array<string>"))),
        "key_changed_to": F.when(row, _header(_NEW_KEY)),
        "key_changed_from": F.when(row, _header(_OLD_KEY)),
        "before": F.when(op.isin(str(Op.UPDATE), str(Op.DELETE)), F.col("e.before")),
        "after": F.when(op != str(Op.DELETE), F.col("e.after")),
        "layout": F.when(row, F.coalesce("fields", F.to_json(names_of(F.coalesce("e.after", "e.before"))))),
        "detail": F.when(op == str(Op.SNAPSHOT), F.col("e.source.snapshot"))
        .when((op == str(Op.INSERT)) & _wants_some_rows(), F.lit(PARTIAL_WANTED))
        .when(F.col("kind") == str(Kind.NOTIFICATION), _notification())
        .when(~fine, F.col("note")),
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
    return completed(judged.select(*place, *[value.alias(name) for name, value in decoded.items()]))


def _may_have_decimals(value: Column) -> Column:
    """Whether numbers may be DECIMALs under `decimal.format=NUMERIC`: where there is no schema, any may."""
    return value.contains(DECIMAL) | ~value.contains('"schema":{')


def _from_ticdc() -> Column:
    return F.coalesce(F.col("e.source.connector") == _TICDC, F.lit(False))


def _kind() -> Column:
    """What a record is, by its fields; null when it is nothing that a connector writes."""
    op, snapshot = F.col("e.op"), F.coalesce("e.source.snapshot", F.lit("false")) != "false"
    # A snapshot's DROP and CREATE statements describe tables that nobody changes: only a table's shape is news.
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
    """When the source changed, or at least when the connector read it; of a notification when the connector made it."""
    told = F.when(F.col("e.aggregate_type").isNotNull(), F.col("e.timestamp").try_cast("bigint"))
    return F.coalesce(F.nullif("e.source.ts_ms", F.lit(0)), F.col("e.ts_ms"), told)


def _notification() -> Column:
    """What a notification says, a JSON object; NULL of the many that each tell of one chunk."""
    told = [F.col(f"e.{name}").alias(name) for name in ("id", "aggregate_type", "type", "additional_data")]
    return F.when(F.col("e.type") != "IN_PROGRESS", F.to_json(F.struct(*told)))


def _wants_some_rows() -> Column:
    """Whether a row of the connector's own table of signals asks for a snapshot of some rows. BOOLEAN, NULL for no row.

    Rows are read in the order of a surrogate key; one that has none there is not read.
    """
    row = F.col("e.after")
    return row.contains("execute-snapshot") & (row.contains("additional-condition") | row.contains("surrogate-key"))


def _statement() -> Column:
    names = [
        F.concat(F.lit("`"), F.replace(f"e.source.{part}", F.lit("`"), F.lit("``")), F.lit("`"))
        for part in ("db", "table")
    ]
    # A table may be emptied twice within a second, and it is the same statement only if it stands at the same place.
    place = F.concat(F.lit(" /* "), "e.source.file", F.lit(":"), F.col("e.source.pos").cast("string"), F.lit(" */"))
    truncate = F.concat(F.lit("TRUNCATE TABLE "), F.concat_ws(".", *names), F.coalesce(place, F.lit("")))
    return F.when(F.col("e.op") == _TRUNCATE, truncate).otherwise(F.col("e.ddl"))


def _payload(text: Column, parsed_payload: Column) -> Column:
    """A key without the schema around it. A key column may be called payload: its value is no object."""
    return F.when(parsed_payload.startswith("{"), parsed_payload).otherwise(text)


def _header_text(name: str) -> Column:
    return F.get(F.filter("headers", lambda h: h["key"] == name), F.lit(0))["value"].cast("string")


def _header(name: str) -> Column:
    found = _header_text(name)
    return _payload(found, F.get_json_object(found, "$.payload"))


def _bad_header(name: str) -> Column:
    """Whether a header that was to hold a key holds no JSON object. BOOLEAN, never NULL."""
    found = _header_text(name)
    return found.isNotNull() & (~F.is_valid_utf8(found) | names_of(found).isNull())


def _other_json() -> Column:
    """Whether a field holds JSON of another type than objects, or lists. BOOLEAN, never NULL."""
    others = (F.coalesce(~F.col(name).startswith(begin), F.lit(False)) for name, begin in _BEGIN.items())
    return reduce(or_, others)


def _misdescribed() -> Column:
    """Whether something in `tableChanges` is of another type than it is read as. BOOLEAN, never NULL."""
    told = F.schema_of_variant(F.try_parse_json("e.tableChanges"))
    return ~F.coalesce(told.rlike(_DESCRIPTIONS), F.lit(False))


def _undescribed() -> Column:
    """Whether `tableChanges` leaves out of which table, or which columns, it tells. BOOLEAN, NULL where it is not there."""
    named = "ARRAY<STRUCT<id: STRING, table: STRUCT<columns: ARRAY<STRUCT<name: STRING, typeName: STRING>>>>>"

    def told(change: Column) -> Column:
        shape = change["table"]  # of a table that is gone there is none
        columns = F.forall(shape["columns"], lambda c: c["name"].isNotNull() & c["typeName"].isNotNull())
        return F.coalesce(change["id"].rlike(_TABLE_ID) & (shape.isNull() | columns), F.lit(False))

    return F.exists(F.from_json("e.tableChanges", named), lambda change: ~told(change))


def _reason() -> Column:
    """Why a record cannot be decoded; null when it can."""
    kind, source = F.col("kind"), F.col("e.source")
    row = kind == str(Kind.ROW)
    before, after = (F.coalesce(F.col(f"e.{image}").startswith("{"), F.lit(False)) for image in ("before", "after"))
    op = _op()
    lacking = (op == str(Op.DELETE)) & ~before | (op != str(Op.DELETE)) & ~after
    too_many = (op == str(Op.DELETE)) & after | op.isin(str(Op.INSERT), str(Op.SNAPSHOT)) & before
    named = (F.length(source["db"]) > 0) & (F.length(source["table"]) > 0)
    position = F.coalesce(source["commit_ts"], _milliseconds())
    # TiCDC tells no position.
    placed = _from_ticdc() | (source["file"].isNotNull() & source["pos"].isNotNull())
    described = (kind == str(Kind.DDL)) & F.col("e.tableChanges").isNotNull()
    return (
        F.when(kind == str(Kind.TOMBSTONE), F.lit(None))
        .when(F.col("length") == 0, str(Reason.EMPTY_VALUE))
        .when(F.col("wrong").isNotNull(), F.col("wrong"))
        .when(_other_json() | (described & _misdescribed()), str(Reason.WRONG_TYPE))
        .when(kind.isNull(), str(Reason.UNKNOWN_TYPE))
        .when(described & _undescribed(), str(Reason.MISSING_FIELD))
        .when(~kind.isin(str(Kind.ROW), str(Kind.DDL), str(Kind.WATERMARK)), F.lit(None))
        .when(position.isNull(), str(Reason.MISSING_FIELD))
        .when((position < 0) | name_too_long(source["db"], F.when(row, source["table"])), str(Reason.WRONG_TYPE))
        .when((row | (F.col("e.op") == _TRUNCATE)) & ~F.coalesce(named, F.lit(False)), str(Reason.MISSING_FIELD))
        .when(row & (lacking | ~placed), str(Reason.MISSING_FIELD))
        .when(row & too_many, str(Reason.IMAGES_DISAGREE))
        .when(row & F.col("key_wrong").isNotNull(), F.col("key_wrong"))
        .when(row & (_bad_header(_NEW_KEY) | _bad_header(_OLD_KEY)), str(Reason.BAD_KEY))
    )
