"""Debezium's records in Avro behind a schema registry: keys and values -> the columns that its records in JSON make.

A key or a value is one Avro datum of a schema that the registry has under an id. The id stands before the datum: a byte 0
and four bytes (Confluent's format) or eight (Apicurio's); or in a header, and the datum is alone (Apicurio's, too). Neither
registry gives the id 0, so four zeros after the byte 0 are the upper half of eight bytes.
"""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from cdc_assets.expressions import first_true, once
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.lakehouse.registry_schemas import IdKind, SchemaId
from cdc_assets.lakehouse.schema import BOOLEAN, STRING, array, struct
from cdc_assets.protocols.base import Answers
from cdc_assets.protocols.connect_schemas import ConnectSchema, SchemaError, parse_connect_schema
from cdc_assets.protocols.events import record_bytes
from cdc_assets.protocols.messages import ANY, BIGINT, INT, JSON, TEXT, Wanted, kind_of

_MAGIC = b"\x00"
_SHORT, _LONG = 4, 8  # bytes of an id
_LONG_BEGINS = bytes(1 + _SHORT)
# Alone, a reader stops at the end of the datum, whatever follows; and what was cut may still be whole. With these bytes put
# behind it, and read as a part of it, neither passes.
_END = b"\x00end\xff\x16\x80\x01"
# Fields that tell each kind of message that a connector writes from the others; a heartbeat has one field only.
_MESSAGES = ({"op", "source"}, {"ddl", "source"}, {"status", "id"}, {"aggregate_type", "type"})
_HEARTBEAT = {"ts_ms"}
# Connect's types of what a field is read as.
_CONNECT_TYPES = {
    TEXT: ("string",),
    JSON: ("struct", "array", "map"),
    INT: ("int8", "int16", "int32"),
    BIGINT: ("int8", "int16", "int32", "int64"),
}


class _Judged(NamedTuple):
    """A schema that a record names: itself, or why no record of it can be read."""

    schema: ConnectSchema | None = None
    reason: Reason | None = None
    problem: str = ""


def begins_with_id(value: Column) -> Column:
    """Whether a BINARY value begins as in Confluent's format. BOOLEAN."""
    return value.startswith(F.lit(_MAGIC)) & ~value.startswith(F.lit(_LONG_BEGINS))


def schema_id(part: str, own_kind: IdKind) -> Column:
    """Return the id of the schema of a record's `key` or `value`: STRUCT(kind, number); NULL where it names none.

    Args:
        part: the column, BINARY; beside it `headers`.
        own_kind: what ids number that do not say so.
    """
    cases = [
        (_number(header).isNotNull(), _id(kind, _number(header)))
        for kind, header in ((kind, _header(part, kind)) for kind in (IdKind.GLOBAL, IdKind.CONTENT))
    ]
    return first_true(*cases, (_framed_number(part).isNotNull(), _id(own_kind, _framed_number(part))))


def read_records(raw: DataFrame, answers: Answers, own_kind: IdKind, payload: Mapping[str, Wanted]) -> DataFrame:
    """Read keys and values of records, each by its schema.

    In: records of `raw_records`. Out: their topic, partition, offset, batch, headers, and
        record_timestamp TIMESTAMP, length INT (of the value), size INT;
        e STRUCT, the message, with the fields of `payload`; wrong STRING, the reason where there is none;
        fields STRING, the columns of the row as Connect's JSON has them; key_names ARRAY<STRING>, the columns of the key;
        key_wrong STRING, the reason where the key cannot be read; note STRING, the schemas' ids.
    """
    values = {each: _judged(answers[each], payload) for each in answers}
    keys = {each: _judged(answers[each], None) for each in answers}
    named = raw.select(
        *["topic", "partition", "offset", "batch", "key", "headers"],
        F.col("timestamp").alias("record_timestamp"),
        F.length("value").alias("length"),
        record_bytes(F.col("value")).alias("size"),
        schema_id("value", own_kind).alias("value_id"),
        schema_id("key", own_kind).alias("key_id"),
        _datum("value").alias("value_datum"),
        _datum("key").alias("key_datum"),
    )
    message = struct(is_whole=BOOLEAN, is_text=BOOLEAN, e=kind_of(payload))
    messages = {each: _message(s.schema, payload) for each, s in values.items() if s.schema}
    whole_keys = {each: _is_whole_key(s.schema) for each, s in keys.items() if s.schema}
    key_names = {each: F.array(*map(F.lit, s.schema.fields)) for each, s in keys.items() if s.schema}
    layouts = {each: F.lit(_layout(s.schema)) for each, s in values.items() if s.schema}
    read = named.withColumns(
        {"v": _by_id("value_id", messages, message), "key_is_whole": _by_id("key_id", whole_keys, BOOLEAN)}
    )
    broken = F.when(~F.coalesce("v.is_whole", F.lit(False)), str(Reason.MALFORMED_AVRO)).when(
        ~F.col("v.is_text"), str(Reason.INVALID_UTF8)
    )
    unread = F.when(~F.coalesce("key_is_whole", F.lit(False)), str(Reason.BAD_KEY))
    return read.select(
        *["topic", "partition", "offset", "batch", "record_timestamp", "key", "headers", "length", "size"],
        # Of what is wrong nothing is kept: it may be of another record, and a text that is no UTF-8 breaks other readers.
        F.when(F.col("v.is_whole") & F.col("v.is_text"), F.col("v.e")).alias("e"),
        F.when(F.col("length") > 0, F.coalesce(_reason("value_id", values), broken)).alias("wrong"),
        _by_id("value_id", layouts, STRING).alias("fields"),
        _by_id("key_id", key_names, array(STRING)).alias("key_names"),
        F.when(F.col("key").isNotNull(), F.coalesce(_reason("key_id", keys), unread)).alias("key_wrong"),
        F.concat_ws(", ", _note("value", values), _note("key", keys)).alias("note"),
    )


def _id(kind: IdKind, number: Column) -> Column:
    return F.struct(F.lit(str(kind)).alias("kind"), number.alias("number"))


def _header(part: str, kind: IdKind) -> Column:
    """Return the bytes of Apicurio's header that has the id of a key or value; NULL: there is none."""
    return F.get(F.filter("headers", lambda h: h["key"] == f"apicurio.{part}.{kind}"), F.lit(0))["value"]


def _number(data: Column) -> Column:
    """Return the number, BIGINT, that eight bytes are, the highest first; NULL where there are not eight."""
    return F.when(F.length(data) == _LONG, F.conv(F.hex(data), 16, 10).try_cast("bigint"))


def _framed_number(part: str) -> Column:
    """Return the id that stands before the datum, BIGINT; NULL: none does."""
    framed = F.when(F.col(part).startswith(F.lit(_MAGIC)), F.col(part))
    short, long = (F.substr(framed, F.lit(2), F.lit(size)) for size in (_SHORT, _LONG))
    number = F.when(F.length(short) == _SHORT, F.conv(F.hex(short), 16, 10).cast("bigint"))
    return F.when(number > 0, number).otherwise(_number(long))


def _datum(part: str) -> Column:
    """Return the Avro datum of a key or value, BINARY, without the id before it."""
    in_header = [_number(_header(part, kind)).isNotNull() for kind in (IdKind.GLOBAL, IdKind.CONTENT)]
    is_long = F.substr(part, F.lit(1), F.lit(1 + _SHORT)) == F.lit(_LONG_BEGINS)
    size = F.when(reduce(or_, in_header), F.lit(0)).when(is_long, F.lit(1 + _LONG)).otherwise(F.lit(1 + _SHORT))
    return F.substr(part, size + 1)


def _by_id(column: str, values: Mapping[SchemaId, Column], kind: DataType) -> Column:
    """Return the value, of the type `kind`, beside the id that `column` has, else NULL."""
    cases = [
        ((F.col(f"{column}.number") == each.number) & (F.col(f"{column}.kind") == str(each.kind)), value)
        for each, value in values.items()
    ]
    return (first_true(*cases) if cases else F.lit(None)).cast(kind)


def _judged(answer: str | None, payload: Mapping[str, Wanted] | None) -> _Judged:
    """Judge a schema of values, whose messages have the fields of `payload`, or, without it, one of keys."""
    if answer is None:
        return _Judged(reason=Reason.UNKNOWN_SCHEMA)
    try:
        schema = parse_connect_schema(answer)
        _check_kind(schema, is_key=payload is None)
        _check_types(schema, payload or {}, "")
    except SchemaError as error:
        return _Judged(reason=Reason.UNUSABLE_SCHEMA, problem=f", which {error}")
    return _Judged(schema)


def _reason(column: str, judged: Mapping[SchemaId, _Judged]) -> Column:
    """Return why no record of the schema that `column` names can be read, else NULL. STRING."""
    return _by_id(column, {each: F.lit(str(s.reason)) for each, s in judged.items() if s.reason}, STRING)


def _note(part: str, judged: Mapping[SchemaId, _Judged]) -> Column:
    """Return the id of a part's schema for people, with what is wrong with it. STRING; NULL where it names none."""
    problems = {each: F.lit(s.problem) for each, s in judged.items() if s.problem}
    number = F.col(f"{part}_id.number").cast("string")
    return F.concat(
        F.lit(f"the {part}'s schema id is "), number, F.coalesce(_by_id(f"{part}_id", problems, STRING), F.lit(""))
    )


def _parsed(datum: str, schema: ConnectSchema) -> Column:
    """Read a datum. STRUCT of `message` and `end`, which is `_END` where the datum was whole."""
    end = {"type": "fixed", "name": "End", "size": len(_END)}
    fields = [{"name": "message", "type": schema.avro}, {"name": "end", "type": end}]
    closed = json.dumps({"type": "record", "name": "Closed", "fields": fields})
    return from_avro(F.concat(F.col(datum), F.lit(_END)), closed, {"mode": "PERMISSIVE"})


def _is_whole(parsed: Column) -> Column:
    return F.coalesce(parsed["end"] == F.lit(_END), F.lit(False))


def _is_whole_key(schema: ConnectSchema) -> Column:
    return _is_whole(_parsed("key_datum", schema))


def _message(schema: ConnectSchema, payload: Mapping[str, Wanted]) -> Column:
    """Return the message of a datum: STRUCT of `is_whole` and `is_text` BOOLEAN, and `e` STRUCT."""

    def use(parsed: Column) -> Column:
        message = parsed["message"]
        invalid = F.exists(_texts(message, schema.type), lambda text: ~F.is_valid_utf8(text))
        return F.struct(
            _is_whole(parsed).alias("is_whole"),
            (~F.coalesce(invalid, F.lit(False))).alias("is_text"),
            _object(message, schema, payload).alias("e"),
        )

    # Within one expression: as a column of its own, what was parsed would be copied value by value into Spark's format for
    # rows.
    return once(_parsed("value_datum", schema), use)


def _object(value: Column, schema: ConnectSchema, wanted: Mapping[str, Wanted]) -> Column:
    """Return an object with the wanted fields, STRUCT; what the schema lacks is NULL."""
    fields = []
    for name, each in wanted.items():
        found = schema.fields.get(name)
        text = F.lit(None) if found is None else _value(value[f"f{found[0]}"], found[1], each)
        fields.append(text.cast(kind_of(each)).alias(name))
    return F.when(value.isNotNull(), F.struct(*fields))


def _value(value: Column, schema: ConnectSchema, wanted: Wanted) -> Column:
    if isinstance(wanted, Mapping):
        return _object(value, schema, wanted)
    if wanted in {ANY, JSON} and isinstance(schema.type, ArrayType | MapType | StructType):
        return F.to_json(value.cast(schema.type), {"ignoreNullFields": "false"})
    return value


def _check_kind(schema: ConnectSchema, *, is_key: bool) -> None:
    """Check that the schema is one of keys, or of messages that a connector writes.

    Raises:
        SchemaError: it is not.
    """
    names = schema.fields.keys()
    if not names:
        raise SchemaError("is of no record")
    if not is_key and names != _HEARTBEAT and not any(each <= names for each in _MESSAGES):
        raise SchemaError("is of no message of Debezium's")


def _check_types(schema: ConnectSchema, wanted: Mapping[str, Wanted], within: str) -> None:
    """Check the types of the fields that are read.

    Raises:
        SchemaError: one has another type than Debezium gives it.
    """
    for name, each in wanted.items():
        if name not in schema.fields:
            continue
        part, path = schema.fields[name][1], f"{within}{name}"
        if not _fits(part, each):
            raise SchemaError(f"has the type {part.json['type']} for {path}, which Debezium does not give it")
        if isinstance(each, Mapping):
            _check_types(part, each, f"{path}.")


def _fits(schema: ConnectSchema, wanted: Wanted) -> bool:
    """Return whether values of a schema can be read as what is wanted."""
    kind = schema.json["type"]
    if isinstance(wanted, Mapping):
        return bool(schema.fields)
    return bool(wanted == ANY or kind in _CONNECT_TYPES[str(wanted)])


def _layout(schema: ConnectSchema) -> str | None:
    """Return the columns of the row that messages of a schema have; None: they have no row."""
    images: Sequence[ConnectSchema] = [schema.fields[name][1] for name in ("before", "after") if name in schema.fields]
    listed = next((each.json["fields"] for each in images if each.fields), None)
    return None if listed is None else json.dumps(listed, ensure_ascii=False, separators=(",", ":"))


def _texts(value: Column, kind: DataType) -> Column:
    """Return all texts of a value whose fields are named by their positions. ARRAY<STRING>."""
    nothing = F.array().cast(array(STRING))
    if isinstance(kind, StringType):
        return F.array(value)
    if isinstance(kind, StructType):
        return F.concat(nothing, *[_texts(value[f"f{n}"], each.dataType) for n, each in enumerate(kind)])
    if isinstance(kind, MapType):
        keys = F.coalesce(F.map_keys(value), nothing)
        return F.concat(keys, _texts(F.map_values(value), ArrayType(kind.valueType)))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.coalesce(F.flatten(F.transform(value, lambda each: _texts(each, element))), nothing)
    return nothing
