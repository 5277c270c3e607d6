"""Canal-JSON in all its dialects (`ticdc-canal-json`, and Canal's flat message): raw records -> change events.

Which event a message is, by the specification's section on parsing: `isDdl` true is a DDL event; else `type`
TIDB_WATERMARK is a WATERMARK event; else it is a DML event. Canal's QUERY messages that are no DDL hold the text of a DML
statement. What else differs between the dialects is told from the message: whether it has `_tidb`, whether `old` holds all
columns or the changed ones, how many rows `data` holds.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.protocols.events import SCHEMA, TSO_LOGICAL_BITS, Kind, Op, name_too_long
from cdc_assets.protocols.messages import parse, unparsed, why_unparsed
from cdc_assets.protocols.payload import LZ4_MAGIC, claim
from cdc_assets.quarantine import Reason
from cdc_assets.schema import conform

# One parse of the whole message. Objects under STRING come out as their own JSON text.
_MESSAGE = (
    "STRUCT<database: STRING, `table`: STRING, pkNames: ARRAY<STRING>, isDdl: BOOLEAN, type: STRING, es: BIGINT, "
    "sql: STRING, sqlType: STRING, mysqlType: STRING, data: ARRAY<STRING>, old: ARRAY<STRING>, "
    "_tidb: STRUCT<commitTs: BIGINT, watermarkTs: BIGINT, onlyHandleKey: BOOLEAN, claimCheckLocation: STRING>>"
)

_OPS = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}


def decode(raw: DataFrame, feed: Feed) -> DataFrame:
    """Decode records of `raw_records` into rows of `events.SCHEMA`; every record gives at least one.

    In: topic, partition, offset, batch, timestamp, value BINARY. A record that cannot be decoded becomes one event of
    kind `undecodable` with its `reason`. UPDATE and DELETE have the row as it was in `before`: DELETE's is in the
    message's `data`; UPDATE's is `old` laid over `data`, as `old` may hold all columns or only the changed ones.
    """
    if feed.claim_check:
        raw = claim(raw, feed.protocol, feed.claim_check, ["topic", "partition", "offset"])
    text = F.col("value").cast("string")
    message = raw.select(
        "topic",
        "partition",
        "offset",
        "batch",
        F.col("timestamp").alias("record_timestamp"),
        "value",
        parse(text, _MESSAGE).alias("parsed"),
    )
    judged = message.withColumn("reason", _reason(text, extended=feed.tidb_extension))
    events = judged.select(
        "*", F.posexplode_outer(F.when(F.col("reason").isNull(), F.col("parsed.m.data"))).alias("index", "data")
    )
    undecodable, ddl, watermark, statement = F.col("reason").isNotNull(), _is_ddl(), _is_watermark(), _is_statement()
    kind = (
        F.when(undecodable, str(Kind.UNDECODABLE))
        .when(ddl, str(Kind.DDL))
        .when(watermark, str(Kind.WATERMARK))
        .when(statement, str(Kind.STATEMENT))
        .otherwise(str(Kind.ROW))
    )
    row = ~undecodable & ~ddl & ~watermark & ~statement
    op = F.when(row, _op())
    old = F.try_element_at("parsed.m.old", F.col("index") + 1)
    decoded = {
        "index": F.coalesce(F.col("index"), F.lit(0)),
        "kind": kind,
        "op": op,
        "database": F.when(~watermark, F.col("parsed.m.database")),
        "table": F.when(~watermark, F.nullif(F.col("parsed.m.table"), F.lit(""))),
        "commit_ts": _position(),
        "source_ms": F.col("parsed.m.es"),
        "key_columns": F.when(row, F.coalesce("parsed.m.pkNames", F.array().cast("array<string>"))),
        "before": F.when(op == str(Op.DELETE), F.col("data")).when(op == str(Op.UPDATE), _overlay(F.col("data"), old)),
        "after": F.when(op.isin(str(Op.INSERT), str(Op.UPDATE)), F.col("data")),
        "mysql_types": F.when(row, F.col("parsed.m.mysqlType")),
        "jdbc_types": F.when(row, F.col("parsed.m.sqlType")),
        "ddl_type": F.when(~undecodable & ddl, F.col("parsed.m.type")),
        "ddl_statement": F.when(~undecodable & (ddl | statement), F.col("parsed.m.sql")),
    }
    return conform(events, SCHEMA, decoded)


def _is_ddl() -> Column:
    return F.coalesce(F.col("parsed.m.isDdl"), F.lit(False))


def _is_watermark() -> Column:
    return F.coalesce(F.col("parsed.m.type") == "TIDB_WATERMARK", F.lit(False))


def _is_statement() -> Column:
    return ~_is_ddl() & F.coalesce(F.col("parsed.m.type") == "QUERY", F.lit(False))


def _position() -> Column:
    """The commit_ts, or what a watermark says; without the TiDB extension the source's milliseconds as a TSO."""
    commit_ts = F.coalesce(F.col("parsed.m._tidb.commitTs"), F.shiftleft("parsed.m.es", TSO_LOGICAL_BITS))
    return F.when(_is_watermark(), F.col("parsed.m._tidb.watermarkTs")).otherwise(commit_ts)


def _op() -> Column:
    table = F.create_map(*[F.lit(str(each)) for pair in _OPS.items() for each in pair])
    return F.try_element_at(table, F.col("parsed.m.type"))


def _reason(text: Column, *, extended: bool) -> Column:
    """Why a message cannot be decoded; null when it can. `extended`: the feed's messages have `_tidb`."""
    position = F.when(F.col("parsed.m._tidb.commitTs").isNotNull() | F.lit(not extended), _position())
    position = F.when(_is_watermark(), _position()).otherwise(position)
    named = (F.length("parsed.m.database") > 0) & (F.length("parsed.m.table") > 0)
    typed = F.col("parsed.m.mysqlType").startswith("{") & F.col("parsed.m.sqlType").startswith("{")
    aligned = (F.size("parsed.m.old") == F.size("parsed.m.data")) & _objects("parsed.m.old")
    complete = named & (F.size("parsed.m.data") > 0) & _objects("parsed.m.data") & typed
    complete &= (F.col("parsed.m.type") != "UPDATE") | aligned
    return (
        F.when(F.col("value").isNull(), str(Reason.NULL_VALUE))
        .when(F.length("value") == 0, str(Reason.EMPTY_VALUE))
        .when(F.col("value").startswith(F.lit(LZ4_MAGIC)), str(Reason.BAD_COMPRESSION))
        .when(~F.is_valid_utf8(text), str(Reason.INVALID_UTF8))
        .when(unparsed("parsed"), why_unparsed(text))
        .when(~_is_ddl() & ~_is_watermark() & ~_is_statement() & _op().isNull(), str(Reason.UNKNOWN_TYPE))
        .when(F.col("parsed.m._tidb").isNull() & F.lit(extended), str(Reason.MISSING_TIDB_EXTENSION))
        .when(F.col("parsed.m._tidb.claimCheckLocation").isNotNull(), str(Reason.CLAIM_CHECK))
        .when(F.col("parsed.m._tidb.onlyHandleKey"), str(Reason.HANDLE_KEY_ONLY))
        .when(position.isNull(), str(Reason.MISSING_FIELD))
        .when(
            (position < 0) | name_too_long(F.col("parsed.m.database"), F.col("parsed.m.table")), str(Reason.WRONG_TYPE)
        )
        .when(_is_watermark() | _is_statement(), F.lit(None))
        .when(_is_ddl(), F.when(F.coalesce(F.length("parsed.m.sql"), F.lit(0)) == 0, str(Reason.MISSING_FIELD)))
        .when(~F.coalesce(complete, F.lit(False)), str(Reason.MISSING_FIELD))
    )


def _objects(rows: str) -> Column:
    """Whether every element of an ARRAY<STRING> column is the text of an object."""
    return F.forall(rows, lambda row: F.coalesce(row.startswith("{"), F.lit(False)))


def _overlay(data: Column, old: Column) -> Column:
    """The full row before an update: `old` where it has the column, else `data`."""
    keys, old_keys = F.json_object_keys(data), F.json_object_keys(old)
    row, changed = F.from_json(data, "MAP<STRING, STRING>"), F.from_json(old, "MAP<STRING, STRING>")
    kept = F.map_filter(row, lambda column, _: ~F.array_contains(old_keys, column))
    whole = F.to_json(F.map_concat(changed, kept), {"ignoreNullFields": "false"})
    return F.when(F.size(keys) == F.size(old_keys), old).otherwise(whole)
