"""Spark schemas as Python values: readable without a running session, which `StructType.fromDDL` needs."""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

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
    """A nullable column; what it means becomes Delta's comment, and the description that Dagster shows."""
    return StructField(name, data_type, metadata={"comment": meaning})


def struct(**fields: DataType) -> StructType:
    """A STRUCT of nullable fields, in the order given."""
    return StructType([StructField(name, data_type) for name, data_type in fields.items()])


def array(element: DataType) -> ArrayType:
    """An ARRAY of nullable elements."""
    return ArrayType(element)


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def conform(frame: DataFrame, schema: StructType) -> DataFrame:
    """Bring a frame into a schema: its columns by name, in the schema's order and types; one that it lacks is NULL."""
    have = {f.name: f.dataType for f in frame.schema}

    def column_text(wanted: StructField) -> str:
        kind = wanted.dataType.simpleString()
        if wanted.name not in have:
            return f"CAST(NULL AS {kind}) AS {quoted(wanted.name)}"
        same = have[wanted.name].simpleString() == kind
        name = quoted(wanted.name)
        return name if same else f"CAST({name} AS {kind}) AS {name}"

    return frame.selectExpr(*map(column_text, schema))


def literal(text: str) -> str:
    """A text as a literal of Spark's SQL."""
    # Spark replaces `${...}` in a statement before it parses it.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def set_properties(path: str, properties: Mapping[str, str]) -> str:
    """Return the SQL statement that sets properties of the Delta table at `path`."""
    listed = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
    return f"ALTER TABLE delta.{quoted(path)} SET TBLPROPERTIES ({listed})"


def frame_of(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: StructType) -> DataFrame:
    """A few rows of plain values as a frame; what a row lacks is NULL.

    As one literal in the plan: Spark takes half a second for rows that it gets from Python in its own way.
    """
    text = json.dumps(list(rows), default=_in_json)
    return spark.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(text), ArrayType(schema))))


def _in_json(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is no plain value")
