"""Spark schemas as Python values: readable without a running session, which `StructType.fromDDL` needs."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
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


def struct(**fields: DataType) -> StructType:
    """A STRUCT of nullable fields, in the order given."""
    return StructType([StructField(name, data_type) for name, data_type in fields.items()])


def array(element: DataType) -> ArrayType:
    """An ARRAY of nullable elements."""
    return ArrayType(element)


def conform(frame: DataFrame, schema: StructType, given: Mapping[str, Column]) -> DataFrame:
    """Bring a frame into a schema: each column from `given`, else the frame's own, else NULL."""
    have = set(frame.columns)
    return frame.select(
        *[
            given.get(f.name, F.col(f.name) if f.name in have else F.lit(None)).cast(f.dataType).alias(f.name)
            for f in schema
        ]
    )
