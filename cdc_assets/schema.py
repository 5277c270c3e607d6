"""Table schemas as text, without a Spark session: `StructType.fromDDL` needs one, and modules are imported before it."""

import re
from collections.abc import Iterator

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_TYPES: dict[str, DataType] = {
    "BIGINT": LongType(),
    "BINARY": BinaryType(),
    "BOOLEAN": BooleanType(),
    "INT": IntegerType(),
    "STRING": StringType(),
    "TIMESTAMP": TimestampType(),
}


def schema(text: str) -> StructType:
    """Read `name TYPE, name TYPE, ...`: the types of our own tables, and ARRAY<...> and STRUCT<name: TYPE, ...> of them."""
    tokens = iter([*re.findall(r"\w+|[<>,:]", text), ">"])
    return _struct(tokens)


def _struct(tokens: Iterator[str]) -> StructType:
    """The fields up to the closing `>`."""
    fields = []
    separator = ","
    while separator == ",":
        name, kind = next(tokens), next(tokens)
        found = _type(next(tokens) if kind == ":" else kind, tokens)
        fields.append(StructField(name, found))
        separator = next(tokens)
    return StructType(fields)


def _type(kind: str, tokens: Iterator[str]) -> DataType:
    if kind not in {"ARRAY", "STRUCT"}:
        return _TYPES[kind]
    next(tokens)  # <
    if kind == "STRUCT":
        return _struct(tokens)
    element = _type(next(tokens), tokens)
    next(tokens)  # >
    return ArrayType(element)
