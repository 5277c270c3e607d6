"""Spark schemas as Python values: readable without a running session, which `StructType.fromDDL` needs."""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
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

STRING, BINARY, BOOLEAN = StringType(), BinaryType(), BooleanType()
INT, BIGINT, TIMESTAMP = IntegerType(), LongType(), TimestampType()


def column(name: str, data_type: DataType, meaning: str) -> StructField:
    """Return a nullable column; its meaning becomes Delta's comment and the description that Dagster shows."""
    return StructField(name, data_type, metadata={"comment": meaning})


def struct(**fields: DataType) -> StructType:
    """Return a STRUCT of nullable fields, in the given order."""
    return StructType([StructField(name, data_type) for name, data_type in fields.items()])


def array(element: DataType) -> ArrayType:
    """Return an ARRAY of nullable elements."""
    return ArrayType(element)


def quoted(name: str) -> str:
    """Return a name as an identifier of Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def conform(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return a frame in a schema: its columns by name, in the schema's order and types; a column that it lacks is NULL."""
    types = {f.name: f.dataType for f in frame.schema}

    def expression(target: StructField) -> str:
        kind, name = target.dataType.simpleString(), quoted(target.name)
        if target.name not in types:
            return f"CAST(NULL AS {kind}) AS {name}"
        return name if types[target.name].simpleString() == kind else f"CAST({name} AS {kind}) AS {name}"

    return frame.selectExpr(*map(expression, schema))


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain strings and bytes in place of views, which not every consumer of Arrow reads."""
    return pa.schema([f.with_type(_without_view(f.type)) for f in schema])


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_without_view(f.type)) for f in kind])
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def literal(text: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    # Spark replaces `${...}` in a statement before it parses it.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def set_properties(path: str, properties: Mapping[str, str]) -> str:
    """Return the SQL statement that sets properties of the Delta table at `path`."""
    assignments = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
    return f"ALTER TABLE delta.{quoted(path)} SET TBLPROPERTIES ({assignments})"


def frame_of(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: StructType) -> DataFrame:
    """Return a small number of Python rows as a frame; a column that a row lacks is NULL.

    The rows are one literal in the plan, because `createDataFrame` is slow: measured in docs/speed.md.
    """
    text = json.dumps(list(rows), default=_in_json)
    return spark.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(text), ArrayType(schema))))


def _in_json(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is no plain value")
