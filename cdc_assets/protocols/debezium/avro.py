"""Debezium's records in Avro, with a schema registry: keys and values -> the columns that JSON records have too.

A key or a value is one Avro datum of a schema that the registry has under an id. The id precedes the datum: a byte 0 and
four bytes (Confluent's wire format) or eight (Apicurio's). Or it is in one of Apicurio's headers, and only the datum is in
the key or value. No registry has a schema of id 0, so four zeros after the byte 0 are the upper half of eight bytes.
"""

import json
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_assets.expressions import compute_once, first_true
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.lakehouse.registry_schemas import IdKind, SchemaId
from cdc_assets.lakehouse.schema import BOOLEAN, STRING, array, struct
from cdc_assets.protocols.avro_datum import has_invalid_text, is_complete, parse_datum
from cdc_assets.protocols.base import SchemaTexts
from cdc_assets.protocols.debezium.connect_schemas import ConnectSchema, SchemaError, parse_connect_schema
from cdc_assets.protocols.debezium.decoding import OTHER_MESSAGES
from cdc_assets.protocols.events import record_bytes
from cdc_assets.protocols.messages import FieldType, spark_type_of

_MAGIC = b"\x00"
_SHORT, _LONG = 4, 8  # bytes of an id
_LONG_BEGINS = bytes(1 + _SHORT)
# The fields by which rows and statements differ from the other messages.
_MESSAGES = ({"op", "source"}, {"ddl", "source"})
# Type of a field -> the Connect types that Debezium has for it.
_CONNECT_TYPES = {
    "text": ("string",),
    "json": ("struct", "array", "map"),
    "int": ("int8", "int16", "int32"),
    "bigint": ("int8", "int16", "int32", "int64"),
}


class _RegistrySchema(NamedTuple):
    """A schema that records name: parsed, or the reason why none of these records can be read, and the problem."""

    parsed: ConnectSchema | None = None
    reason: Reason | None = None
    problem: str = ""


def begins_with_id(value: Column) -> Column:
    """Return whether a BINARY value begins with a schema id in Confluent's wire format. BOOLEAN."""
    return value.startswith(F.lit(_MAGIC)) & ~value.startswith(F.lit(_LONG_BEGINS))


def schema_id(part: str, default_kind: IdKind) -> Column:
    """Return the id of the schema of a record's key or value: STRUCT<kind STRING, number BIGINT>; NULL without an id.

    Args:
        part: `key` or `value`, a BINARY column; another column is `headers`.
        default_kind: the kind of the ids for which the record states no kind.
    """
    in_header = [(kind, _number(_header(part, kind))) for kind in (IdKind.GLOBAL, IdKind.CONTENT)]
    cases = [*in_header, (default_kind, _prefixed_number(part))]
    return first_true(*[(number.isNotNull(), _id(kind, number)) for kind, number in cases])


def read_records(
    raw: DataFrame, schemas: SchemaTexts, default_kind: IdKind, payload: Mapping[str, FieldType]
) -> DataFrame:
    """Read keys and values of records, each by its schema.

    In: rows of `raw_records`. Out: their topic, partition, offset, batch, headers, and

    - record_timestamp TIMESTAMP, length INT (of the value), size INT;
    - e STRUCT, the message, with the fields of `payload`; value_reason STRING, why the value cannot be read, else NULL;
    - row_fields STRING, the fields of the row's schema as Connect's JSON converter writes them; NULL without a schema;
    - key_names ARRAY<STRING>, the columns of the key; NULL without a key;
    - key_reason STRING, why the key cannot be read, else NULL;
    - schema_note STRING, the ids of the record's schemas, for people.
    """
    values = {schema: _usable_schema(text, payload) for schema, text in schemas.items()}
    keys = {schema: _usable_schema(text, None) for schema, text in schemas.items()}
    parsed_values = {schema: each.parsed for schema, each in values.items() if each.parsed}
    parsed_keys = {schema: each.parsed for schema, each in keys.items() if each.parsed}
    records = raw.select(
        *["topic", "partition", "offset", "batch", "key", "headers"],
        F.col("timestamp").alias("record_timestamp"),
        F.length("value").alias("length"),
        record_bytes(F.col("value")).alias("size"),
        schema_id("value", default_kind).alias("value_id"),
        schema_id("key", default_kind).alias("key_id"),
        _datum("value").alias("value_datum"),
        _datum("key").alias("key_datum"),
    )
    messages = {schema: _message(each, payload) for schema, each in parsed_values.items()}
    complete_keys = {
        schema: is_complete(parse_datum(F.col("key_datum"), each.avro)) for schema, each in parsed_keys.items()
    }
    message_type = struct(is_complete=BOOLEAN, is_utf8=BOOLEAN, e=spark_type_of(payload))
    key_names = {schema: F.array(*map(F.lit, each.fields)) for schema, each in parsed_keys.items()}
    row_fields = {schema: F.lit(_row_fields(each)) for schema, each in parsed_values.items()}
    read = records.withColumns(
        {"v": _by_id("value_id", messages, message_type), "is_complete_key": _by_id("key_id", complete_keys, BOOLEAN)}
    )
    return read.select(
        *["topic", "partition", "offset", "batch", "record_timestamp", "headers", "length", "size"],
        # Nothing of an unreadable value is kept: it may be of another record, and not UTF-8, on which other readers fail.
        F.when(F.col("v.is_complete") & F.col("v.is_utf8"), F.col("v.e")).alias("e"),
        F.when(F.col("length") > 0, F.coalesce(_reason("value_id", values), _value_damage())).alias("value_reason"),
        _by_id("value_id", row_fields, STRING).alias("row_fields"),
        _by_id("key_id", key_names, array(STRING)).alias("key_names"),
        F.when(F.col("key").isNotNull(), F.coalesce(_reason("key_id", keys), _key_damage())).alias("key_reason"),
        F.concat_ws(", ", _note("value", values), _note("key", keys)).alias("schema_note"),
    )


def _id(kind: IdKind, number: Column) -> Column:
    return F.struct(F.lit(str(kind)).alias("kind"), number.alias("number"))


def _header(part: str, kind: IdKind) -> Column:
    """Return the bytes of Apicurio's header with the schema id of the key or the value; NULL without the header."""
    return F.get(F.filter("headers", lambda h: h["key"] == kind.header(part)), F.lit(0))["value"]


def _number(data: Column) -> Column:
    """Return the number of eight bytes, the highest byte first. BIGINT; NULL if there are not eight."""
    return F.when(F.length(data) == _LONG, F.conv(F.hex(data), 16, 10).try_cast("bigint"))


def _prefixed_number(part: str) -> Column:
    """Return the id that precedes the datum. BIGINT; NULL if none does."""
    prefixed = F.when(F.col(part).startswith(F.lit(_MAGIC)), F.col(part))
    short, long = (F.substr(prefixed, F.lit(2), F.lit(size)) for size in (_SHORT, _LONG))
    number = F.when(F.length(short) == _SHORT, F.conv(F.hex(short), 16, 10).cast("bigint"))
    return F.when(number > 0, number).otherwise(_number(long))


def _datum(part: str) -> Column:
    """Return the Avro datum of the key or the value, without the id that precedes it. BINARY."""
    in_header = [_number(_header(part, kind)).isNotNull() for kind in (IdKind.GLOBAL, IdKind.CONTENT)]
    is_long = F.substr(part, F.lit(1), F.lit(1 + _SHORT)) == F.lit(_LONG_BEGINS)
    size = F.when(reduce(or_, in_header), F.lit(0)).when(is_long, F.lit(1 + _LONG)).otherwise(F.lit(1 + _SHORT))
    return F.substr(part, size + 1)


def _by_id(column: str, values: Mapping[SchemaId, Column], value_type: DataType) -> Column:
    """Return the value of the schema whose id is in `column`, as `value_type`; NULL if `values` has no such id."""
    cases = [
        ((F.col(f"{column}.number") == schema.number) & (F.col(f"{column}.kind") == str(schema.kind)), value)
        for schema, value in values.items()
    ]
    return (first_true(*cases) if cases else F.lit(None)).cast(value_type)


def _usable_schema(text: str | None, payload: Mapping[str, FieldType] | None) -> _RegistrySchema:
    """Parse the text of a schema and check that messages with the fields of `payload`, or without it keys, may have it."""
    if text is None:
        return _RegistrySchema(reason=Reason.UNKNOWN_SCHEMA)
    try:
        parsed = parse_connect_schema(text)
        _check_record(parsed, is_key=payload is None)
        _check_types(parsed, payload or {}, "")
    except SchemaError as error:
        return _RegistrySchema(reason=Reason.UNUSABLE_SCHEMA, problem=f", which {error}")
    return _RegistrySchema(parsed)


def _reason(column: str, schemas: Mapping[SchemaId, _RegistrySchema]) -> Column:
    """Return why no record of the schema whose id is in `column` can be read, else NULL. STRING."""
    reasons = {schema: F.lit(str(each.reason)) for schema, each in schemas.items() if each.reason}
    return _by_id(column, reasons, STRING)


def _value_damage() -> Column:
    """Return why a value of a usable schema cannot be read, else NULL. STRING."""
    is_complete = F.coalesce("v.is_complete", F.lit(False))
    return F.when(~is_complete, str(Reason.MALFORMED_AVRO)).when(~F.col("v.is_utf8"), str(Reason.INVALID_UTF8))


def _key_damage() -> Column:
    """Return why a key of a usable schema cannot be read, else NULL. STRING."""
    return F.when(~F.coalesce("is_complete_key", F.lit(False)), str(Reason.BAD_KEY))


def _note(part: str, schemas: Mapping[SchemaId, _RegistrySchema]) -> Column:
    """Return the schema id of the key or the value, and the problem with the schema, for people. STRING; NULL without id."""
    problems = {schema: F.lit(each.problem) for schema, each in schemas.items() if each.problem}
    number = F.col(f"{part}_id.number").cast("string")
    problem = F.coalesce(_by_id(f"{part}_id", problems, STRING), F.lit(""))
    return F.concat(F.lit(f"the {part}'s schema id is "), number, problem)


def _message(schema: ConnectSchema, payload: Mapping[str, FieldType]) -> Column:
    """Return the message of a datum: STRUCT of `is_complete` and `is_utf8` BOOLEAN, and `e` STRUCT."""

    def use(parsed: Column) -> Column:
        message = parsed["message"]
        return F.struct(
            is_complete(parsed).alias("is_complete"),
            (~has_invalid_text(message, schema.type, by_position=True)).alias("is_utf8"),
            _object(message, schema, payload).alias("e"),
        )

    # One expression: Spark would copy the parsed datum, as a column, value by value into its format for rows.
    return compute_once(parse_datum(F.col("value_datum"), schema.avro), use)


def _object(value: Column, schema: ConnectSchema, field_types: Mapping[str, FieldType]) -> Column:
    """Return an object with these fields, STRUCT; a field that the schema lacks is NULL."""
    fields = []
    for name, field_type in field_types.items():
        position, part = schema.fields.get(name, (0, None))
        text = F.lit(None) if part is None else _value(value[f"f{position}"], part, field_type)
        fields.append(text.cast(spark_type_of(field_type)).alias(name))
    return F.when(value.isNotNull(), F.struct(*fields))


def _value(value: Column, schema: ConnectSchema, field_type: FieldType) -> Column:
    if isinstance(field_type, Mapping):
        return _object(value, schema, field_type)
    if field_type in {"any", "json"} and isinstance(schema.type, ArrayType | MapType | StructType):
        return F.to_json(value.cast(schema.type), {"ignoreNullFields": "false"})
    return value


def _check_record(schema: ConnectSchema, *, is_key: bool) -> None:
    """Check that the schema is of keys, or of messages that a connector writes.

    Raises:
        SchemaError: it is not.
    """
    names = schema.fields.keys()
    if not names:
        raise SchemaError("is not the schema of a record with fields")
    is_other = any(needed <= names <= needed | others for needed, others in OTHER_MESSAGES.values())
    is_message = is_other or any(fields <= names for fields in _MESSAGES)
    if not is_key and not is_message:
        raise SchemaError("is not the schema of a Debezium message")


def _check_types(schema: ConnectSchema, field_types: Mapping[str, FieldType], path: str) -> None:
    """Check the types of the fields that are read; `path` precedes their names in errors.

    Raises:
        SchemaError: a field has another type than Debezium's messages have for it.
    """
    for name, field_type in field_types.items():
        if name not in schema.fields:
            continue
        part = schema.fields[name][1]
        if not _fits(part, field_type):
            raise SchemaError(
                f"has the type {part.json['type']} for {path}{name}, which Debezium's messages do not have"
            )
        if isinstance(field_type, Mapping):
            _check_types(part, field_type, f"{path}{name}.")


def _fits(schema: ConnectSchema, field_type: FieldType) -> bool:
    """Return whether values of a schema can be read as a field of this type."""
    if isinstance(field_type, Mapping):
        return bool(schema.fields)
    return bool(field_type == "any" or schema.json["type"] in _CONNECT_TYPES[str(field_type)])


def _row_fields(schema: ConnectSchema) -> str | None:
    """Return the fields of the row in messages of a schema, JSON; None if these messages have no row."""
    images = [schema.fields[name][1] for name in ("before", "after") if name in schema.fields]
    fields = next((image.json["fields"] for image in images if image.fields), None)
    return None if fields is None else json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
