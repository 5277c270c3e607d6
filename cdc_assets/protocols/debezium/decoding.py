"""Decoding of Debezium's records: raw records -> change events.

`read_json` here, or `avro.read_records`, reads keys and values; `decode` makes events of both.
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.lakehouse.change_events import PARTIAL_SNAPSHOT, Kind, Op
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.protocols.debezium.semantics import DECIMAL
from cdc_assets.protocols.events import complete_events, look_up, name_too_long, record_bytes, source_details
from cdc_assets.protocols.messages import FieldType, field_names, read
from cdc_assets.protocols.numbers import exact_numbers

# The fields of a message.
PAYLOAD: Mapping[str, FieldType] = {
    "op": "any", "before": "json", "after": "json",
    "source": {
        "connector": "text", "ts_ms": "bigint", "snapshot": "any", "db": "text", "table": "text",
        "server_id": "bigint", "gtid": "any", "file": "text", "pos": "bigint", "row": "int", "commit_ts": "bigint",
        "version": "any", "name": "any", "thread": "any", "query": "any",
    },
    "ts_ms": "bigint", "databaseName": "text", "ddl": "text", "tableChanges": "json", "status": "any", "id": "any",
    "data_collections": "json", "transaction": {"id": "any", "total_order": "bigint"},
    "aggregate_type": "any", "type": "any", "additional_data": "any", "timestamp": "any", "position": "any",
}  # fmt: skip
# The messages without a row and without a statement: the fields that identify each, and the other fields that it may have.
# A row without its envelope (transformation ExtractNewRecordState) may have some of them as columns, such as `id` and
# `status`, but has others, too.
OTHER_MESSAGES: Mapping[Kind, tuple[frozenset[str], frozenset[str]]] = {
    Kind.TRANSACTION: (frozenset({"status", "id"}), frozenset({"event_count", "data_collections", "ts_ms"})),
    Kind.NOTIFICATION: (frozenset({"aggregate_type", "type"}), frozenset({"id", "additional_data", "timestamp"})),
    Kind.HEARTBEAT: (frozenset({"ts_ms"}), frozenset()),
}
# The fields of `before` and `after` in the schema stay JSON texts, which are parsed once for all rows that have the same.
_SCHEMA: FieldType = {"fields": [{"field": "text", "fields": "json"}]}
_MESSAGE: Mapping[str, FieldType] = {"schema": _SCHEMA, "payload": PAYLOAD, **PAYLOAD}
_KEY: Mapping[str, FieldType] = {"payload": "any"}
# "database"."table", with quotes in a name doubled; a RENAME has the old and the new name, separated by a comma.
_NAME = r'"(?:[^"]|"")*"\."(?:[^"]|"")*"'
_TABLE_ID = rf"^{_NAME}(?:,{_NAME})?$"

# The fields that are read of the tables' descriptions.
_DESCRIBED_COLUMN: FieldType = {
    "name": "text", "typeName": "text", "jdbcType": "bigint", "length": "bigint", "scale": "bigint",
    "enumValues": ["text"], "optional": "boolean", "generated": "boolean",
}  # fmt: skip
_DESCRIPTIONS: Mapping[str, FieldType] = {
    "changes": [{"id": "text", "table": {"columns": [_DESCRIBED_COLUMN], "primaryKeyColumnNames": ["text"]}}]
}
# The first character of the fields that have JSON texts.
_BEGIN = {"e.before": "{", "e.after": "{", "e.tableChanges": "[", "e.data_collections": "["}

_OPS = {"c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.SNAPSHOT}
_TRUNCATE, _MARK = "t", "m"
_TICDC = "TiCDC"
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


def read_json(raw: DataFrame) -> DataFrame:
    """Read keys and values in JSON. In: rows of `raw_records`. Out: as of `avro.read_records`; `schema_note` is NULL."""
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
        # Rows and statements state a source, so only the names in other messages are read, which are few.
        F.when(
            ~value.contains('"source":{'), field_names(_payload(value, F.get_json_object(value, "$.payload")))
        ).alias("names"),
    )
    bare = F.struct(*[F.col(f"v.m.{name}").alias(name) for name in PAYLOAD])
    messages = parsed.withColumn("e", F.coalesce("v.m.payload", bare))
    # Only the keys of rows are used.
    keyed = messages.withColumn("k", F.when(_op().isNotNull(), read(F.col("key"), _KEY)))
    key_names = field_names(_payload(F.col("key_text"), F.col("k.m.payload")))
    is_bad_key = F.col("key").isNotNull() & (F.col("k.wrong").isNotNull() | key_names.isNull())
    has_other_fields = F.exists("v.m.schema.fields", lambda f: ~F.coalesce(f["fields"].startswith("["), f.isNotNull()))
    image = F.filter("v.m.schema.fields", lambda f: f["field"].isin("after", "before") & f["fields"].startswith("["))
    return keyed.select(
        *["topic", "partition", "offset", "batch", "record_timestamp", "headers", "length", "size", "e"],
        F.coalesce(
            "v.wrong",
            F.when(has_other_fields, str(Reason.WRONG_TYPE)),
            F.when(_lacks_envelope(F.col("names")), str(Reason.UNKNOWN_TYPE)),
        ).alias("value_reason"),
        F.get(image, F.lit(0))["fields"].alias("row_fields"),
        key_names.alias("key_names"),
        F.when(is_bad_key, str(Reason.BAD_KEY)).alias("key_reason"),
        F.lit(None).cast("string").alias("schema_note"),
    )


def decode(messages: DataFrame) -> DataFrame:
    """Decode records whose keys and values are read. In: as out of `avro.read_records`. Out: rows of `change_events`.

    This function is long because it has the expression of each column that Debezium fills.
    """
    described = messages.withColumn("kind", _kind()).withColumn("described", _descriptions())
    checked = described.withColumn("reason", _reason())
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
        # An empty array if the record has no key.
        "key_columns": F.when(row, F.coalesce("key_names", F.array().cast("array<string>"))),
        "key_changed_to": F.when(row, _header(_NEW_KEY)),
        "key_changed_from": F.when(row, _header(_OLD_KEY)),
        "before": F.when(op.isin(str(Op.UPDATE), str(Op.DELETE)), F.col("e.before")),
        "after": F.when(op != str(Op.DELETE), F.col("e.after")),
        "layout": F.when(row, F.coalesce("row_fields", F.to_json(field_names(F.coalesce("e.after", "e.before"))))),
        "detail": F.when(op == str(Op.SNAPSHOT), F.col("e.source.snapshot"))
        .when((op == str(Op.INSERT)) & _asks_for_some_rows(), F.lit(PARTIAL_SNAPSHOT))
        .when(F.col("kind") == str(Kind.NOTIFICATION), _notification())
        .when(~fine, F.col("schema_note")),
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
        "sent_ms": F.col("e.ts_ms"),
        "source_details": source_details(
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


def _lacks_envelope(names: Column) -> Column:
    """Return whether a message that is neither a row nor a statement has fields that no message of a connector has.

    BOOLEAN; NULL without a message. In: ARRAY<STRING>, the names of its fields.
    """
    fields = [F.array(*map(F.lit, sorted(needed | others))) for needed, others in OTHER_MESSAGES.values()]
    has_no_others = [F.size(F.array_except(names, each)) == 0 for each in fields]
    return F.coalesce("e.op", "e.ddl", "e.source.connector").isNull() & ~reduce(or_, has_no_others)


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
        # The topic of the schema history repeats the statements for the connector itself, with another time and order.
        .when(F.col("e.ddl").isNotNull() & F.col("e.position").isNotNull(), str(Kind.STATEMENT))
        .when(F.col("e.ddl").isNotNull(), F.when(snapshot & ~described, str(Kind.STATEMENT)).otherwise(str(Kind.DDL)))
        .when(F.col("e.aggregate_type").isNotNull() & F.col("e.type").isNotNull(), str(Kind.NOTIFICATION))
        .when(F.col("e.status").isNotNull() & F.col("e.id").isNotNull(), str(Kind.TRANSACTION))
        .when(F.col("e.ts_ms").isNotNull() & F.col("e.source").isNull(), str(Kind.HEARTBEAT))
    )


def _op() -> Column:
    return look_up(_OPS, F.col("e.op"))


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


def _header_text(name: str) -> Column:
    return F.get(F.filter("headers", lambda h: h["key"] == name), F.lit(0))["value"].cast("string")


def _header(name: str) -> Column:
    text = _header_text(name)
    return _payload(text, F.get_json_object(text, "$.payload"))


def _bad_header(name: str) -> Column:
    """Return whether a header that should have a key has no JSON object. BOOLEAN, never NULL."""
    text = _header_text(name)
    return text.isNotNull() & (~F.is_valid_utf8(text) | field_names(text).isNull())


def _other_json() -> Column:
    """Return whether a field that must be a JSON object or list has another JSON type. BOOLEAN, never NULL."""
    return reduce(or_, (F.coalesce(~F.col(name).startswith(begin), F.lit(False)) for name, begin in _BEGIN.items()))


def _descriptions() -> Column:
    """Return the descriptions of tables in a schema change, as `read` returns them; NULL without `tableChanges`."""
    text = F.concat(F.lit('{"changes":'), F.col("e.tableChanges"), F.lit("}"))
    return F.when(F.col("kind") == str(Kind.DDL), read(text.cast("binary"), _DESCRIPTIONS))


def _is_described(change: Column) -> Column:
    """Return whether a description has its table's name, and each column's name and type. BOOLEAN, never NULL."""
    table = change["table"]  # NULL if the table was dropped
    columns = F.forall(table["columns"], lambda c: c["name"].isNotNull() & c["typeName"].isNotNull())
    return F.coalesce(change["id"].rlike(_TABLE_ID) & (table.isNull() | columns), F.lit(False))


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
    return (
        F.when(kind == str(Kind.TOMBSTONE), F.lit(None))
        .when(F.col("length") == 0, str(Reason.EMPTY_VALUE))
        .when(F.col("value_reason").isNotNull(), F.col("value_reason"))
        .when(_other_json() | F.col("described.wrong").isNotNull(), str(Reason.WRONG_TYPE))
        .when(kind.isNull(), str(Reason.UNKNOWN_TYPE))
        .when(F.exists("described.m.changes", lambda change: ~_is_described(change)), str(Reason.MISSING_FIELD))
        .when(~kind.isin(str(Kind.ROW), str(Kind.DDL), str(Kind.WATERMARK)), F.lit(None))
        .when(position.isNull(), str(Reason.MISSING_FIELD))
        .when((position < 0) | name_too_long(source["db"], F.when(row, source["table"])), str(Reason.WRONG_TYPE))
        .when((row | (F.col("e.op") == _TRUNCATE)) & ~F.coalesce(named, F.lit(False)), str(Reason.MISSING_FIELD))
        .when(row & (lacking | ~placed), str(Reason.MISSING_FIELD))
        .when(row & too_many, str(Reason.IMAGES_DISAGREE))
        .when(row & F.col("key_reason").isNotNull(), F.col("key_reason"))
        .when(row & (_bad_header(_NEW_KEY) | _bad_header(_OLD_KEY)), str(Reason.BAD_KEY))
    )
