"""Debezium's events of MySQL and MariaDB, as JSON (`debezium-mysql-change-event-values`): raw records -> change events.

A record's value is an envelope (`before`, `after`, `source`, `op`, `ts_ms`), alone (`schemas.enable=false`) or as the
`payload` beside its `schema`; the key likewise. Beside the tables' topics a connector writes one of schema changes, one of
transaction markers, and heartbeats; which of them a record is, its fields tell, never its topic's name. TiCDC's own
Debezium output has the same form, with a `commit_ts` in `source` and watermarks (`op` m).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.protocols.events import SCHEMA, TSO_LOGICAL_BITS, Kind, Op, name_too_long
from cdc_assets.protocols.messages import parse, unparsed, why_unparsed
from cdc_assets.quarantine import Reason
from cdc_assets.schema import conform

_SOURCE = (
    "STRUCT<connector: STRING, ts_ms: BIGINT, snapshot: STRING, db: STRING, `table`: STRING, server_id: BIGINT, "
    "gtid: STRING, file: STRING, pos: BIGINT, row: INT, commit_ts: BIGINT>"
)
# Objects and arrays under STRING come out as their own JSON text.
_PAYLOAD = {
    "op": "STRING", "before": "STRING", "after": "STRING", "source": _SOURCE, "ts_ms": "BIGINT",
    "databaseName": "STRING", "ddl": "STRING", "tableChanges": "STRING", "status": "STRING", "id": "STRING",
    "data_collections": "STRING", "transaction": "STRUCT<id: STRING, total_order: BIGINT>",
}  # fmt: skip
_FIELDS = ", ".join(f"{name}: {data_type}" for name, data_type in _PAYLOAD.items())
# Of the schema the fields of `before` and `after` are kept, each as one text: parsed when the table is known, once for
# all rows that have the same.
_SCHEMA = "STRUCT<fields: ARRAY<STRUCT<field: STRING, fields: STRING>>>"
_MESSAGE = f"STRUCT<schema: {_SCHEMA}, payload: STRUCT<{_FIELDS}>, {_FIELDS}>"
_KEY = "STRUCT<payload: STRING>"

_OPS = {"c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.SNAPSHOT}
_TRUNCATE, _MARK = "t", "m"
_TICDC = "TiCDC"
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


def decode(raw: DataFrame, feed: Feed) -> DataFrame:  # noqa: ARG001 -- every decoder has the same signature
    """Decode records of `raw_records` into rows of `events.SCHEMA`, one for every record.

    In: topic, partition, offset, batch, timestamp, key BINARY, value BINARY, headers. A record that cannot be decoded
    becomes one event of kind `undecodable` with its `reason`.
    """
    key, value = F.col("key").cast("string"), F.col("value").cast("string")
    parsed = raw.select(
        "topic",
        "partition",
        "offset",
        "batch",
        F.col("timestamp").alias("record_timestamp"),
        "key",
        "value",
        "headers",
        key.alias("key_text"),
        value.alias("value_text"),
        parse(value, _MESSAGE).alias("v"),
    )
    bare = F.struct(*[F.col(f"v.m.{name}").alias(name) for name in _PAYLOAD])
    opened = parsed.withColumn("e", F.coalesce("v.m.payload", bare))
    judged = opened.withColumn("kind", _kind()).withColumn(
        # Only rows have a key that matters.
        "k",
        F.when(F.col("kind") == str(Kind.ROW), parse(F.col("key_text"), _KEY)),
    )
    judged = judged.withColumn("reason", _reason())
    fine = F.col("reason").isNull()
    kind = F.when(fine, F.col("kind")).otherwise(str(Kind.UNDECODABLE))
    row, ddl = fine & (F.col("kind") == str(Kind.ROW)), fine & (F.col("kind") == str(Kind.DDL))
    placed, marker = row | ddl, fine & (F.col("kind") == str(Kind.TRANSACTION))
    op = F.when(row, _op())
    milliseconds = _milliseconds()
    decoded = {
        "index": F.lit(0),
        "kind": kind,
        "op": op,
        "database": F.when(placed, F.coalesce(F.nullif("e.source.db", F.lit("")), "e.databaseName")),
        "table": F.when(placed, F.nullif("e.source.table", F.lit(""))),
        "commit_ts": F.coalesce("e.source.commit_ts", F.shiftleft(milliseconds, TSO_LOGICAL_BITS)),
        "source_ms": milliseconds,
        "key_columns": F.when(row, _key_columns()),
        "key_changed_to": F.when(row, _header(_NEW_KEY)),
        "key_changed_from": F.when(row, _header(_OLD_KEY)),
        "before": F.when(op.isin(str(Op.UPDATE), str(Op.DELETE)), F.col("e.before")),
        "after": F.when(op != str(Op.DELETE), F.col("e.after")),
        "mysql_types": F.when(row, _layout()),
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
        "transaction": F.when(
            marker | (row & F.col("e.transaction.id").isNotNull()),
            F.struct(
                F.when(marker, F.col("e.id")).otherwise(F.col("e.transaction.id")).alias("id"),
                F.col("e.transaction.total_order").alias("total_order"),
                F.when(F.col("e.status") == "END", F.col("e.data_collections")).alias("collections"),
            ),
        ),
    }
    return conform(judged, SCHEMA, decoded)


def _from_ticdc() -> Column:
    return F.coalesce(F.col("e.source.connector") == _TICDC, F.lit(False))


def _kind() -> Column:
    """What a record is, by its fields; null when it is nothing that a connector writes."""
    op, snapshot = F.col("e.op"), F.coalesce("e.source.snapshot", F.lit("false")) != "false"
    # A snapshot's DROP and CREATE statements describe tables that nobody changes: only a table's shape is news.
    described = F.coalesce(F.get_json_object("e.tableChanges", "$[0].table"), F.lit("null")) != "null"
    return (
        F.when(F.col("value").isNull(), str(Kind.TOMBSTONE))
        .when(_op().isNotNull(), str(Kind.ROW))
        .when(op == _TRUNCATE, str(Kind.DDL))
        .when(op == _MARK, F.when(_from_ticdc(), str(Kind.WATERMARK)).otherwise(str(Kind.MESSAGE)))
        .when(op.isNotNull(), F.lit(None))
        .when(F.col("e.ddl").isNotNull(), F.when(snapshot & ~described, str(Kind.STATEMENT)).otherwise(str(Kind.DDL)))
        .when(F.col("e.status").isNotNull() & F.col("e.id").isNotNull(), str(Kind.TRANSACTION))
        .when(F.col("e.ts_ms").isNotNull() & F.col("e.source").isNull(), str(Kind.HEARTBEAT))
    )


def _op() -> Column:
    table = F.create_map(*[F.lit(str(each)) for pair in _OPS.items() for each in pair])
    return F.try_element_at(table, F.col("e.op"))


def _milliseconds() -> Column:
    """When the source changed, or at least when the connector read it."""
    return F.coalesce(F.nullif("e.source.ts_ms", F.lit(0)), F.col("e.ts_ms"))


def _statement() -> Column:
    names = [
        F.concat(F.lit("`"), F.replace(f"e.source.{part}", F.lit("`"), F.lit("``")), F.lit("`"))
        for part in ("db", "table")
    ]
    truncate = F.concat(F.lit("TRUNCATE TABLE "), F.concat_ws(".", *names))
    return F.when(F.col("e.op") == _TRUNCATE, truncate).otherwise(F.col("e.ddl"))


def _payload(text: Column, parsed_payload: Column) -> Column:
    """A key without the schema around it. A key column may be called payload: its value is no object."""
    return F.when(parsed_payload.startswith("{"), parsed_payload).otherwise(text)


def _key_columns() -> Column:
    """The columns of the record's key, in the key's order; none when it has none."""
    names = F.json_object_keys(_payload(F.col("key_text"), F.col("k.m.payload")))
    return F.coalesce(names, F.array().cast("array<string>"))


def _header(name: str) -> Column:
    found = F.get(F.filter("headers", lambda h: h["key"] == name), F.lit(0))["value"].cast("string")
    return _payload(found, F.get_json_object(found, "$.payload"))


def _layout() -> Column:
    """The fields of the row's schema, as they came, or its columns' names."""
    image = F.filter("v.m.schema.fields", lambda f: f["field"].isin("after", "before") & f["fields"].isNotNull())
    names = F.to_json(F.json_object_keys(F.coalesce("e.after", "e.before")))
    return F.coalesce(F.get(image, F.lit(0))["fields"], names)


def _reason() -> Column:
    """Why a record cannot be decoded; null when it can."""
    text, kind, source = F.col("value_text"), F.col("kind"), F.col("e.source")
    row = kind == str(Kind.ROW)
    before, after = (F.coalesce(F.col(f"e.{image}").startswith("{"), F.lit(False)) for image in ("before", "after"))
    op = _op()
    lacking = (op == str(Op.DELETE)) & ~before | (op != str(Op.DELETE)) & ~after
    too_many = (op == str(Op.DELETE)) & after | op.isin(str(Op.INSERT), str(Op.SNAPSHOT)) & before
    named = (F.length(source["db"]) > 0) & (F.length(source["table"]) > 0)
    position = F.coalesce(source["commit_ts"], _milliseconds())
    # TiCDC tells no position.
    placed = _from_ticdc() | (source["file"].isNotNull() & source["pos"].isNotNull())
    return (
        F.when(kind == str(Kind.TOMBSTONE), F.lit(None))
        .when(F.length("value") == 0, str(Reason.EMPTY_VALUE))
        .when(~F.is_valid_utf8(text), str(Reason.INVALID_UTF8))
        .when(unparsed("v"), why_unparsed(text))
        .when(kind.isNull(), str(Reason.UNKNOWN_TYPE))
        .when(~kind.isin(str(Kind.ROW), str(Kind.DDL), str(Kind.WATERMARK)), F.lit(None))
        .when(position.isNull(), str(Reason.MISSING_FIELD))
        .when((position < 0) | name_too_long(source["db"], F.when(row, source["table"])), str(Reason.WRONG_TYPE))
        .when((row | (F.col("e.op") == _TRUNCATE)) & ~F.coalesce(named, F.lit(False)), str(Reason.MISSING_FIELD))
        .when(row & (lacking | ~placed), str(Reason.MISSING_FIELD))
        .when(row & too_many, str(Reason.IMAGES_DISAGREE))
        .when(row & F.col("key").isNotNull() & unparsed("k"), str(Reason.BAD_KEY))
    )
