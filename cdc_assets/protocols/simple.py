"""TiCDC Simple Protocol (`ticdc-simple-protocol`): raw records -> change events. One message a record, one event a message.

A row says which version of its table's schema it was written under, and nothing of the columns' types and keys: those are
in the schemas that DDL and BOOTSTRAP messages carry, which `table_schemas` keeps.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.protocols.events import SCHEMA, TSO_LOGICAL_BITS, Kind, Op, name_too_long
from cdc_assets.protocols.messages import parse, unparsed, why_unparsed
from cdc_assets.protocols.payload import LZ4_MAGIC, claim
from cdc_assets.quarantine import Reason
from cdc_assets.schema import conform

VERSION = 1

_COLUMN = (
    "STRUCT<name: STRING, dataType: STRUCT<mysqlType: STRING, charset: STRING, collate: STRING, length: BIGINT, "
    "decimal: INT, elements: ARRAY<STRING>, unsigned: BOOLEAN, zerofill: BOOLEAN>, nullable: BOOLEAN, default: STRING>"
)
_INDEX = "STRUCT<name: STRING, unique: BOOLEAN, primary: BOOLEAN, nullable: BOOLEAN, columns: ARRAY<STRING>>"
_TABLE = (
    "STRUCT<schema: STRING, `table`: STRING, tableID: BIGINT, version: BIGINT, "
    f"columns: ARRAY<{_COLUMN}>, indexes: ARRAY<{_INDEX}>>"
)
# One parse of the whole message. Row images, objects under STRING, come out as their own JSON text.
_MESSAGE = (
    "STRUCT<version: INT, type: STRING, sql: STRING, commitTs: BIGINT, "
    f"tableSchema: {_TABLE}, preTableSchema: {_TABLE}, database: STRING, `table`: STRING, tableID: BIGINT, "
    "schemaVersion: BIGINT, claimCheckLocation: STRING, handleKeyOnly: BOOLEAN, data: STRING, old: STRING>"
)

_OPS = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
_DDL_TYPES = ["CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "TRUNCATE", "ALTER", "QUERY"]


def decode(raw: DataFrame, feed: Feed) -> DataFrame:
    """Decode records of `raw_records` into rows of `events.SCHEMA`, one for each record.

    In: topic, partition, offset, batch, timestamp, value BINARY. A record that cannot be decoded becomes one event of
    kind `undecodable` with its `reason`. Rows have `schema_version` and `table_id`; ddl and bootstrap events have
    `table_schemas`, and of the first of them `schema_version` and `table_id`. A bootstrap has no position (its commitTs
    means nothing), a ddl without a schema no table.
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
    judged = message.withColumn("reason", _reason(text)).withColumn("m", F.col("parsed.m"))
    fine, kind = F.col("reason").isNull(), _kind(F.col("m.type"))
    row = fine & (kind == str(Kind.ROW))
    ddl, bootstrap = fine & (kind == str(Kind.DDL)), fine & (kind == str(Kind.BOOTSTRAP))
    carried = F.array_compact(F.array("m.tableSchema", "m.preTableSchema"))
    named = F.coalesce("m.tableSchema", "m.preTableSchema")
    decoded = {
        "index": F.lit(0),
        "kind": F.when(fine, kind).otherwise(str(Kind.UNDECODABLE)),
        "op": F.when(row, _op()),
        "database": F.when(row, F.col("m.database")).otherwise(named["schema"]),
        "table": F.when(row, F.col("m.table")).otherwise(named["table"]),
        "commit_ts": F.when(~bootstrap, F.col("m.commitTs")),
        "source_ms": F.when(~bootstrap, F.shiftright("m.commitTs", TSO_LOGICAL_BITS)),
        "before": F.when(row, F.col("m.old")),
        "after": F.when(row, F.col("m.data")),
        "ddl_type": F.when(ddl, F.col("m.type")),
        "ddl_statement": F.when(ddl, F.col("m.sql")),
        "schema_version": F.when(row, F.col("m.schemaVersion")).otherwise(named["version"]),
        "table_id": F.when(row, F.col("m.tableID")).otherwise(named["tableID"]),
        "table_schemas": F.when((ddl | bootstrap) & named.isNotNull(), F.to_json(carried)),
    }
    return conform(judged, SCHEMA, decoded)


def _kind(message_type: Column) -> Column:
    """What a message is; null for a type that the protocol does not have."""
    return (
        F.when(message_type.isin(*_OPS), str(Kind.ROW))
        .when(message_type == "WATERMARK", str(Kind.WATERMARK))
        .when(message_type == "BOOTSTRAP", str(Kind.BOOTSTRAP))
        .when(message_type.isin(*_DDL_TYPES), str(Kind.DDL))
    )


def _op() -> Column:
    table = F.create_map(*[F.lit(str(each)) for pair in _OPS.items() for each in pair])
    return F.try_element_at(table, F.col("m.type"))


def _reason(text: Column) -> Column:
    """Why a message cannot be decoded; null when it can."""
    m = F.col("parsed.m")
    kind, commit_ts = _kind(m["type"]), m["commitTs"]
    row, ddl, bootstrap = (kind == str(each) for each in (Kind.ROW, Kind.DDL, Kind.BOOTSTRAP))
    database = F.coalesce(m["database"], m["tableSchema"]["schema"])
    table = F.coalesce(m["table"], m["tableSchema"]["table"])
    lacks_statement = ddl & (F.coalesce(F.length(m["sql"]), F.lit(0)) == 0)
    lacks_schema = bootstrap & m["tableSchema"].isNull()
    incomplete = _incomplete(m["tableSchema"]) | _incomplete(m["preTableSchema"])
    return (
        F.when(F.col("value").isNull(), str(Reason.NULL_VALUE))
        .when(F.length("value") == 0, str(Reason.EMPTY_VALUE))
        .when(F.col("value").startswith(F.lit(LZ4_MAGIC)), str(Reason.BAD_COMPRESSION))
        .when(~F.is_valid_utf8(text), str(Reason.INVALID_UTF8))
        .when(unparsed("parsed"), why_unparsed(text))
        .when(m["version"].isNull() | m["type"].isNull(), str(Reason.MISSING_FIELD))
        .when((m["version"] != VERSION) | kind.isNull(), str(Reason.UNKNOWN_TYPE))
        .when(m["claimCheckLocation"].isNotNull(), str(Reason.CLAIM_CHECK))
        .when(m["handleKeyOnly"], str(Reason.HANDLE_KEY_ONLY))
        .when(~bootstrap & commit_ts.isNull(), str(Reason.MISSING_FIELD))
        .when((~bootstrap & (commit_ts < 0)) | name_too_long(database, table), str(Reason.WRONG_TYPE))
        .when(row & ~_whole_row(m), str(Reason.MISSING_FIELD))
        .when(lacks_statement | lacks_schema | incomplete, str(Reason.MISSING_FIELD))
        .when(_ambiguous(m["tableSchema"]) | _ambiguous(m["preTableSchema"]), str(Reason.WRONG_TYPE))
    )


def _whole_row(m: Column) -> Column:
    """Whether a row message names its table and schema, and has the images of its type. BOOLEAN, never NULL."""
    named = (F.length(m["database"]) > 0) & (F.length(m["table"]) > 0)
    numbered = m["tableID"].isNotNull() & m["schemaVersion"].isNotNull()
    after, before = (F.coalesce(m[image].rlike("^[{](?![}])"), F.lit(False)) for image in ("data", "old"))
    images = (after | (m["type"] == "DELETE")) & (before | (m["type"] == "INSERT"))
    return F.coalesce(named & numbered & images, F.lit(False))


def _incomplete(table: Column) -> Column:
    """Whether a table schema that is there lacks what a row needs of it. BOOLEAN, never NULL."""
    named = (F.length(table["schema"]) > 0) & (F.length(table["table"]) > 0)
    numbered = table["tableID"].isNotNull() & table["version"].isNotNull()
    columns = F.forall(table["columns"], lambda c: (F.length(c["name"]) > 0) & c["dataType"]["mysqlType"].isNotNull())
    keys = F.forall(
        F.coalesce(table["indexes"], F.array().cast(f"array<{_INDEX}>")),
        lambda i: F.forall(i["columns"], lambda name: name.isNotNull()),
    )
    whole = named & numbered & (F.size(table["columns"]) > 0) & columns & keys
    return table.isNotNull() & ~F.coalesce(whole, F.lit(False))


def _ambiguous(table: Column) -> Column:
    """Whether two columns of a table schema have one name, which no table can have. BOOLEAN, never NULL."""
    names = F.transform(table["columns"], lambda c: F.lower(c["name"]))
    return F.coalesce(F.size(names) != F.size(F.array_distinct(names)), F.lit(False))
