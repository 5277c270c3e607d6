"""Decoding of Canal-JSON: raw records -> change events."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.lakehouse.change_events import CONTRADICTS_SETTINGS, Kind, Op
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.protocols.events import complete_events, look_up, name_too_long, record_bytes, source_details
from cdc_assets.protocols.messages import FieldType, overlay, read
from cdc_assets.protocols.payload import LZ4_MAGIC

_MESSAGE: Mapping[str, FieldType] = {
    "database": "text", "table": "text", "pkNames": ["text"], "isDdl": "boolean", "type": "any", "es": "bigint",
    "sql": "text", "id": "any", "ts": "any",
    "sqlType": "ints", "mysqlType": "texts", "data": ["json"], "old": ["json"],
    "_tidb": {
        "commitTs": "bigint", "watermarkTs": "bigint", "onlyHandleKey": "boolean", "claimCheckLocation": "text",
    },
}  # fmt: skip

_OPS = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
# Event types of Canal that name no table and carry no row: ends of XA transactions, GTIDs, heartbeats of the source.
_CONTROL_TYPES = ("XACOMMIT", "XAROLLBACK", "GTID", "MHEARTBEAT")
# Types with which older versions of Canal send DDL statements as `isDdl` false. Before 1.1.5 it sends those that its parser
# cannot read, and CREATE and DROP DATABASE, as QUERY, like the texts of DML statements.
_UNFLAGGED_DDL_TYPES = ("QUERY", "CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")
# What may be before a statement: comments, marks of executable comments, and MariaDB's SET STATEMENT ... FOR.
_BEFORE = r"(?is)\A(?>\s++|/\*M?!\d*+|/\*.*?\*/|(?:#|--\s)[^\n]*+|SET\s++STATEMENT\s.*?\sFOR\s)*+"
# A text that begins with the first word of a DDL statement.
_BEGINS_AS_DDL = _BEFORE + r"(?:CREATE|ALTER|DROP|RENAME|TRUNCATE)\b"
# CREATE TABLE ... SELECT as it stands beside its rows, like the text of a DML statement (MariaDB's Annotate_rows, MySQL's
# Rows_query). The binlog has a CREATE TABLE with the columns before it.
_CREATES_FROM_QUERY = _BEFORE + r"CREATE\b.*?\bTABLE\b.*\bSELECT\b"


def decode(raw: DataFrame, *, extended: bool) -> DataFrame:
    """Decode the messages; `extended` if the feed's messages have `_tidb`."""
    message = raw.select(
        *_PLACE, F.col("timestamp").alias("record_timestamp"), "value", read(F.col("value"), _MESSAGE).alias("parsed")
    )
    kinds = message.withColumn("kind", _kind())
    rows = kinds.withColumn("reason", _reason(extended=extended)).select("*", _rows())
    # Without the setting no event waits for a watermark, so a feed whose messages have watermarks must be reported.
    denied = F.lit(not extended) & F.col("reason").isNull() & F.col("parsed.m._tidb").isNotNull()
    detail = F.when(denied, F.lit(CONTRADICTS_SETTINGS)).alias("detail")
    return complete_events(rows.select(*_PLACE, "record_timestamp", "reason", *_decoded(), detail))


_PLACE = ["topic", "partition", "offset", "batch"]


def _rows() -> Column:
    """Return the rows of a message with their index."""
    data = F.when(F.col("reason").isNull(), F.col("parsed.m.data"))
    return F.posexplode_outer(data).alias("index", "data")


def _decoded() -> list[Column]:
    fine = F.col("reason").isNull()
    row, ddl = (fine & (F.col("kind") == str(each)) for each in (Kind.ROW, Kind.DDL))
    has_statement = fine & F.col("kind").isin(str(Kind.DDL), str(Kind.STATEMENT), str(Kind.CONTROL))
    # Messages of these kinds are of no table.
    named = ~F.coalesce(F.col("kind").isin(str(Kind.WATERMARK), str(Kind.CONTROL)), F.lit(False))
    op = F.when(row, look_up(_OPS, F.col("parsed.m.type")))
    index = F.coalesce(F.col("index"), F.lit(0))
    key_columns = F.coalesce("parsed.m.pkNames", F.array().cast("array<string>"))
    # `old` of an UPDATE may have all columns or only the changed ones. Where it lacks rows, these are the first of `data`.
    old_row = F.get("parsed.m.old", index - F.size("parsed.m.data") + F.size("parsed.m.old"))
    row_before = F.coalesce(overlay(old_row, F.col("data")), F.col("data"))
    decoded = {
        "index": index,
        "record_bytes": record_bytes(F.col("value"), index),
        "kind": F.when(fine, F.col("kind")).otherwise(str(Kind.UNDECODABLE)),
        "op": op,
        "database": F.when(named, F.col("parsed.m.database")),
        "table": F.when(named, F.nullif(F.col("parsed.m.table"), F.lit(""))),
        "commit_ts": _position(),
        "source_ms": F.col("parsed.m.es"),
        "sent_ms": F.col("parsed.m.ts").try_cast("bigint"),
        "source_details": source_details(message_id=F.col("parsed.m.id")),
        "key_columns": F.when(row, key_columns),
        "before": F.when(op == str(Op.DELETE), F.col("data")).when(op == str(Op.UPDATE), row_before),
        "after": F.when(op.isin(str(Op.INSERT), str(Op.UPDATE)), F.col("data")),
        "layout": F.when(row, layout_text(key_columns, F.col("parsed.m.mysqlType"))),
        "jdbc_types": F.when(row, F.col("parsed.m.sqlType")),
        "ddl_type": F.when(ddl, F.col("parsed.m.type")),
        "ddl_statement": F.when(has_statement, F.col("parsed.m.sql")),
    }
    return [value.alias(name) for name, value in decoded.items()]


def layout_text(key_columns: Column, mysql_type: Column) -> Column:
    """Return the layout of a message, `{"key": [names], "types": {column: type}}`, with the columns sorted by name.

    Sorted, so that equal layouts have equal texts: TiCDC writes the columns of `mysqlType` in another order each time.
    """
    return F.concat(F.lit('{"key":'), F.to_json(key_columns), F.lit(',"types":'), mysql_type, F.lit("}"))


def _kind() -> Column:
    """Return the kind of event of a message; NULL for a type that the protocol does not have."""
    message_type = F.col("parsed.m.type")
    sql = F.col("parsed.m.sql")
    is_beside_rows = (message_type == "QUERY") & sql.rlike(_CREATES_FROM_QUERY)
    is_unflagged_ddl = message_type.isin(*_UNFLAGGED_DDL_TYPES) & sql.rlike(_BEGINS_AS_DDL) & ~is_beside_rows
    return (
        F.when(F.col("parsed.m.isDdl") & (message_type == "TIDB_WATERMARK"), F.lit(None))
        .when(F.col("parsed.m.isDdl") | is_unflagged_ddl, str(Kind.DDL))
        .when(message_type == "TIDB_WATERMARK", str(Kind.WATERMARK))
        .when(message_type == "QUERY", str(Kind.STATEMENT))
        .when(message_type.isin(*_CONTROL_TYPES), str(Kind.CONTROL))
        .when(message_type.isin(*_OPS), str(Kind.ROW))
    )


def _position() -> Column:
    """Return the commit_ts or the watermark; without the TiDB extension the source's milliseconds as a TSO."""
    commit_ts = F.coalesce(F.col("parsed.m._tidb.commitTs"), tso.from_milliseconds(F.col("parsed.m.es")))
    return F.when(F.col("kind") == str(Kind.WATERMARK), F.col("parsed.m._tidb.watermarkTs")).otherwise(commit_ts)


def _reason(*, extended: bool) -> Column:
    """Return why a message cannot be decoded, else NULL; `extended` if the feed's messages have `_tidb`."""
    kind, position = F.col("kind"), _position()
    is_control, is_ddl = kind == str(Kind.CONTROL), kind == str(Kind.DDL)
    lacks_position = F.lit(extended) & (kind != str(Kind.WATERMARK)) & F.col("parsed.m._tidb.commitTs").isNull()
    named = (F.length("parsed.m.database") > 0) & (F.length("parsed.m.table") > 0)
    typed = F.col("parsed.m.mysqlType").startswith(_FILLED) & F.col("parsed.m.sqlType").startswith(_FILLED)
    # A row has at least one column, but an UPDATE may have changed none. Canal before 1.1.7 leaves a row out of `old` if the
    # message has no column that changed in this row or in one before it, as behind a filter of columns.
    old_count, row_count = F.size("parsed.m.old"), F.size("parsed.m.data")
    has_all_rows = (old_count == row_count) if extended else (old_count <= row_count)
    aligned = F.coalesce(has_all_rows & _objects("parsed.m.old", "{"), F.lit(not extended))
    complete = named & (F.size("parsed.m.data") > 0) & _objects("parsed.m.data", _FILLED) & typed
    complete &= (F.col("parsed.m.type") != "UPDATE") | aligned
    return (
        F.when(F.col("value").isNull(), str(Reason.NULL_VALUE))
        .when(F.length("value") == 0, str(Reason.EMPTY_VALUE))
        .when(F.col("value").startswith(F.lit(LZ4_MAGIC)), str(Reason.BAD_COMPRESSION))
        .when(F.col("parsed.wrong").isNotNull(), F.col("parsed.wrong"))
        .when(F.exists("parsed.m.pkNames", lambda name: name.isNull()), str(Reason.WRONG_TYPE))
        .when(is_control & F.lit(not extended), F.lit(None))
        .when(kind.isNull() | is_control, str(Reason.UNKNOWN_TYPE))
        .when(F.col("parsed.m._tidb").isNull() & F.lit(extended), str(Reason.MISSING_TIDB_EXTENSION))
        .when(F.col("parsed.m._tidb.claimCheckLocation").isNotNull(), str(Reason.CLAIM_CHECK))
        .when(F.col("parsed.m._tidb.onlyHandleKey") & (F.col("parsed.m.type") != "DELETE"), str(Reason.HANDLE_KEY_ONLY))
        .when(lacks_position | position.isNull(), str(Reason.MISSING_FIELD))
        .when(
            (position < 0) | name_too_long(F.col("parsed.m.database"), F.col("parsed.m.table")), str(Reason.WRONG_TYPE)
        )
        .when(kind.isin(str(Kind.WATERMARK), str(Kind.STATEMENT)), F.lit(None))
        .when(is_ddl, F.when(F.coalesce(F.length("parsed.m.sql"), F.lit(0)) == 0, str(Reason.MISSING_FIELD)))
        .when(~F.coalesce(complete, F.lit(False)), str(Reason.MISSING_FIELD))
    )


# The text of an object that is not empty begins with this.
_FILLED = '{"'


def _objects(rows: str, beginning: str) -> Column:
    """Return whether every element of the ARRAY<STRING> column `rows` begins with `beginning`, as an object's text does."""
    return F.forall(rows, lambda row: F.coalesce(row.startswith(beginning), F.lit(False)))
