"""Avro datums, each read as a whole or not at all."""

import json
from functools import partial
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from cdc_assets.lakehouse.schema import STRING, array

# Avro's reader ignores bytes after the datum, and a datum that was cut may still be readable. These bytes are appended to
# the datum and read as its last field, so that both are noticed.
_END = b"\x00end\xff\x16\x80\x01"
_END_TYPE = {"type": "fixed", "name": "End", "size": len(_END)}


def parse_datum(datum: Column, schema: Any) -> Column:  # noqa: ANN401 -- JSON
    """Return a BINARY datum as a STRUCT with the field `message`; NULL if Avro cannot read the datum.

    `is_complete` says whether the datum ends where its schema does.

    Args:
        datum: the datum, without header or schema id.
        schema: its Avro schema, as JSON values.
    """
    fields = [{"name": "message", "type": schema}, {"name": "end", "type": _END_TYPE}]
    closed = json.dumps({"type": "record", "name": "Closed", "fields": fields})
    return from_avro(F.concat(datum, F.lit(_END)), closed, {"mode": "PERMISSIVE"})


def is_complete(parsed: Column) -> Column:
    """Return whether a result of `parse_datum` is of a whole datum and of nothing after it. BOOLEAN, never NULL."""
    return F.coalesce(parsed["end"] == F.lit(_END), F.lit(False))


def has_invalid_text(value: Column, value_type: DataType, *, by_position: bool = False) -> Column:
    """Return whether a text in a value is not UTF-8. BOOLEAN, never NULL.

    Args:
        value: the value.
        value_type: its type. Fields that the type lacks are not looked at.
        by_position: whether the value's fields have the names `f0`, `f1` and so on, and not those of the type.
    """
    has_invalid = F.exists(_texts(value, value_type, by_position=by_position), lambda text: ~F.is_valid_utf8(text))
    return F.coalesce(F.when(value.isNotNull(), has_invalid), F.lit(False))


def _texts(value: Column, value_type: DataType, *, by_position: bool) -> Column:
    """Return all texts in a value. ARRAY<STRING>."""
    nothing = F.array().cast(array(STRING))
    texts_of = partial(_texts, by_position=by_position)
    if isinstance(value_type, StringType):
        return F.array(value)
    if isinstance(value_type, StructType):
        names = (f"f{n}" if by_position else field.name for n, field in enumerate(value_type))
        return F.concat(
            nothing, *[texts_of(value[name], f.dataType) for name, f in zip(names, value_type, strict=True)]
        )
    if isinstance(value_type, MapType):
        keys = F.coalesce(F.map_keys(value), nothing)
        return F.concat(keys, texts_of(F.map_values(value), ArrayType(value_type.valueType)))
    if isinstance(value_type, ArrayType):
        element = value_type.elementType
        return F.coalesce(F.flatten(F.transform(value, lambda each: texts_of(each, element))), nothing)
    return nothing
