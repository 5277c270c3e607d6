"""Spark schemas as Python values: readable without a running session, which `StructType.fromDDL` needs."""

from pyspark.sql import DataFrame
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


def conform(frame: DataFrame, schema: StructType) -> DataFrame:
    """Bring a frame into a schema: its columns by name, in the schema's order and types; one that it lacks is NULL."""
    return frame.to(schema)
