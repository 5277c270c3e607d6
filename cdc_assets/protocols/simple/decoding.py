"""Decoding of the Simple Protocol, in JSON and Avro: raw records -> change events."""

from collections.abc import Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.expressions import compute_once
from cdc_assets.lakehouse.change_events import CORRUPTED, Kind, Op
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.protocols.avro_datum import has_invalid_text
from cdc_assets.protocols.events import complete_events, look_up, name_too_long, record_bytes
from cdc_assets.protocols.messages import FieldType, read, spark_type_of
from cdc_assets.protocols.payload import LZ4_MAGIC
from cdc_assets.protocols.simple import avro as simple_avro

VERSION = 1
_NAMED_COLUMN: Mapping[str, FieldType] = {
    "name": "text",
    "dataType": {
        "mysqlType": "text", "charset": "any", "collate": "any", "length": "bigint", "decimal": "int",
        "elements": ["text"], "unsigned": "boolean", "zerofill": "boolean",
    },
    "nullable": "boolean",
}  # fmt: skip
_COLUMN: FieldType = {**_NAMED_COLUMN, "default": "any"}
_INDEX: FieldType = {
    "name": "any",
    "unique": "boolean",
    "primary": "boolean",
    "nullable": "boolean",
    "columns": ["text"],
}
_TABLE: Mapping[str, FieldType] = {
    "schema": "text", "table": "text", "tableID": "bigint", "version": "bigint",
    "columns": [_COLUMN], "indexes": [_INDEX],
}  # fmt: skip
_MESSAGE: Mapping[str, FieldType] = {
    "version": "int",
    "type": "any",
    "sql": "text",
    "commitTs": "bigint",
    "buildTs": "any",
    "tableSchema": _TABLE,
    "preTableSchema": _TABLE,
    "database": "text",
    "table": "text",
    "tableID": "bigint",
    "schemaVersion": "bigint",
    "claimCheckLocation": "text",
    "handleKeyOnly": "boolean",
    "checksum": {"corrupted": "boolean"},
    # Row images.
    "data": "json",
    "old": "json",
}

# What must be UTF-8 in Avro, beside row images. A default of BINARY or BIT need not be: TiCDC writes its bytes as a text.
_TEXTS_OF_TABLE: Mapping[str, FieldType] = {**_TABLE, "columns": [_NAMED_COLUMN]}
_TEXTS: Mapping[str, FieldType] = {
    "sql": "text", "database": "text", "table": "text",
    "tableSchema": _TEXTS_OF_TABLE, "preTableSchema": _TEXTS_OF_TABLE,
}  # fmt: skip

_OPS = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
_DDL_TYPES = ["CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "TRUNCATE", "ALTER", "QUERY"]


def decode(raw: DataFrame, *, avro: bool) -> DataFrame:
    """Decode the messages of one encoding. Out: rows of `change_events`."""
    messages = (_read_avro if avro else _read_json)(raw.withColumn("record_timestamp", F.col("timestamp")))
    checked = messages.withColumn("reason", F.coalesce(_unreadable(), F.col("broken"), _wrong()))
    fine, kind = F.col("reason").isNull(), _kind()
    row = fine & (kind == str(Kind.ROW))
    ddl, bootstrap = fine & (kind == str(Kind.DDL)), fine & (kind == str(Kind.BOOTSTRAP))
    schemas = F.array_compact(F.array("tableSchema", "preTableSchema"))
    first_schema = F.coalesce("tableSchema", "preTableSchema")
    decoded = {
        "index": F.lit(0),
        "record_bytes": record_bytes(F.col("value")),
        "kind": F.when(fine, kind).otherwise(str(Kind.UNDECODABLE)),
        "op": F.when(row, look_up(_OPS, F.col("type"))),
        # Names in an undecodable record may not be UTF-8, and readers other than Spark refuse a file with such a text.
        "database": F.when(row, F.col("database")).otherwise(F.make_valid_utf8(first_schema["schema"])),
        "table": F.when(row, F.col("table")).otherwise(F.make_valid_utf8(first_schema["table"])),
        "commit_ts": F.when(~bootstrap, F.col("commitTs")),
        "source_ms": F.when(~bootstrap, tso.to_milliseconds(F.col("commitTs"))),
        "sent_ms": F.col("buildTs").try_cast("bigint"),
        "before": F.when(row, F.col("old")),
        "after": F.when(row, F.col("data")),
        # The column layout of a row is the schema that it names.
        "layout_id": F.when(row, F.xxhash64("database", "table", "tableID", "schemaVersion")),
        "wire_types": F.when(row, F.col("branches")),
        "detail": F.when(row & F.col("checksum.corrupted"), F.lit(CORRUPTED)),
        "ddl_type": F.when(ddl, F.col("type")),
        "ddl_statement": F.when(ddl, F.col("sql")),
        "schema_version": F.when(row, F.col("schemaVersion")).otherwise(first_schema["version"]),
        "table_id": F.when(row, F.col("tableID")).otherwise(first_schema["tableID"]),
        "table_schemas": F.when((ddl | bootstrap) & first_schema.isNotNull(), F.to_json(schemas)),
    }
    place = [c for c in _PLACE if c != "value"]
    return complete_events(checked.select(*place, "reason", *[value.alias(name) for name, value in decoded.items()]))


_PLACE = ["topic", "partition", "offset", "batch", "record_timestamp", "value"]


def _read_json(raw: DataFrame) -> DataFrame:
    """Return the fields of JSON messages. Out: `_PLACE`, `_MESSAGE`, broken STRING (error, else NULL), branches (NULL)."""
    parsed = raw.select(*_PLACE, read(F.col("value"), _MESSAGE).alias("parsed"))
    return parsed.select(*_PLACE, F.col("parsed.wrong").alias("broken"), "parsed.m.*", F.lit(None).alias("branches"))


def _read_avro(raw: DataFrame) -> DataFrame:
    """Return the fields of Avro messages. Out: as `_read_json`."""

    def fields(parsed: Column) -> Column:
        message_fields = simple_avro.fields(parsed)
        typed = [message_fields[name].cast(spark_type_of(kind)).alias(name) for name, kind in _MESSAGE.items()]
        branches = message_fields["branches"].alias("branches")
        return F.struct(*typed, branches, simple_avro.unparsed(parsed).alias("unparsed"))

    # In one expression, because Spark would copy a parsed column value by value into its row format.
    message = raw.select(*_PLACE, compute_once(simple_avro.parse(F.col("value")), fields).alias("m")).select(
        *_PLACE, "m.*"
    )
    wrong_texts = [has_invalid_text(F.col(name), spark_type_of(kind)) for name, kind in _TEXTS.items()]
    wrong_text = reduce(or_, wrong_texts) | simple_avro.has_invalid_image(F.col("value"), ["data", "old"])
    broken = F.when(F.col("unparsed"), str(Reason.MALFORMED_AVRO)).when(wrong_text, str(Reason.INVALID_UTF8))
    return message.withColumn("broken", broken).drop("unparsed")


def _kind() -> Column:
    """Return the kind of event of a message; NULL for a type that the protocol does not have."""
    message_type = F.col("type")
    return (
        F.when(message_type.isin(*_OPS), str(Kind.ROW))
        .when(message_type == "WATERMARK", str(Kind.WATERMARK))
        .when(message_type == "BOOTSTRAP", str(Kind.BOOTSTRAP))
        .when(message_type.isin(*_DDL_TYPES), str(Kind.DDL))
    )


def _unreadable() -> Column:
    """Return why a value is not a message in either encoding, else NULL."""
    return (
        F.when(F.col("value").isNull(), str(Reason.NULL_VALUE))
        .when(F.length("value") == 0, str(Reason.EMPTY_VALUE))
        .when(F.col("value").startswith(F.lit(LZ4_MAGIC)), str(Reason.BAD_COMPRESSION))
    )


def _wrong() -> Column:
    """Return why a message cannot be used, else NULL."""
    kind, commit_ts = _kind(), F.col("commitTs")
    row, ddl, bootstrap = (kind == str(each) for each in (Kind.ROW, Kind.DDL, Kind.BOOTSTRAP))
    database = F.coalesce("database", "tableSchema.schema", "preTableSchema.schema")
    table = F.coalesce("table", "tableSchema.table", "preTableSchema.table")
    lacks_statement = ddl & (F.coalesce(F.length("sql"), F.lit(0)) == 0)
    lacks_schema = bootstrap & F.col("tableSchema").isNull()
    schemas = [F.col(each) for each in ("tableSchema", "preTableSchema")]
    return (
        F.when(F.col("version").isNull() | F.col("type").isNull(), str(Reason.MISSING_FIELD))
        .when((F.col("version") != VERSION) | kind.isNull(), str(Reason.UNKNOWN_TYPE))
        .when(F.col("claimCheckLocation").isNotNull(), str(Reason.CLAIM_CHECK))
        .when(F.col("handleKeyOnly") & (F.col("type") != "DELETE"), str(Reason.HANDLE_KEY_ONLY))
        .when(~bootstrap & commit_ts.isNull(), str(Reason.MISSING_FIELD))
        .when((~bootstrap & (commit_ts < 0)) | name_too_long(database, table), str(Reason.WRONG_TYPE))
        .when(row & ~_is_complete_row(), str(Reason.MISSING_FIELD))
        .when(row & _images_disagree(), str(Reason.IMAGES_DISAGREE))
        .when(lacks_statement | lacks_schema, str(Reason.MISSING_FIELD))
        .when(_incomplete(schemas[0]) | _incomplete(schemas[1]), str(Reason.MISSING_FIELD))
        .when(_ambiguous(schemas[0]) | _ambiguous(schemas[1]), str(Reason.WRONG_TYPE))
    )


def _is_complete_row() -> Column:
    """Return whether a row message names its table and schema, and has the images of its type. BOOLEAN, never NULL."""
    named = (F.length("database") > 0) & (F.length("table") > 0)
    numbered = F.col("tableID").isNotNull() & F.col("schemaVersion").isNotNull()
    after, before = (
        F.coalesce(F.col(image).startswith("{") & (F.col(image) != "{}"), F.lit(False)) for image in ("data", "old")
    )
    images = (after | (F.col("type") == "DELETE")) & (before | (F.col("type") == "INSERT"))
    return F.coalesce(named & numbered & images, F.lit(False))


def _images_disagree() -> Column:
    """Return whether an INSERT has an image before it, or a DELETE an image after it. BOOLEAN, never NULL."""
    has_after, has_before = (F.coalesce(F.col(image) != "null", F.lit(False)) for image in ("data", "old"))
    return F.coalesce(
        ((F.col("type") == "INSERT") & has_before) | ((F.col("type") == "DELETE") & has_after), F.lit(False)
    )


def _incomplete(table: Column) -> Column:
    """Return whether a table schema lacks what rows need. BOOLEAN, never NULL; false without a schema."""
    named = (F.length(table["schema"]) > 0) & (F.length(table["table"]) > 0)
    numbered = table["tableID"].isNotNull() & table["version"].isNotNull()
    labels = F.array().cast("array<string>")
    columns = F.forall(
        table["columns"],
        lambda c: (
            (F.length(c["name"]) > 0)
            & c["dataType"]["mysqlType"].isNotNull()
            & F.forall(F.coalesce(c["dataType"]["elements"], labels), lambda label: label.isNotNull())
        ),
    )
    keys = F.forall(
        F.coalesce(table["indexes"], F.array().cast(spark_type_of([_INDEX]))),
        lambda i: F.forall(i["columns"], lambda name: name.isNotNull()),
    )
    complete = named & numbered & (F.size(table["columns"]) > 0) & columns & keys
    return table.isNotNull() & ~F.coalesce(complete, F.lit(False))


def _ambiguous(table: Column) -> Column:
    """Return whether two columns of a table schema have the same name. BOOLEAN, never NULL."""
    names = F.transform(table["columns"], lambda c: F.lower(c["name"]))
    return F.coalesce(F.size(names) != F.size(F.array_distinct(names)), F.lit(False))
