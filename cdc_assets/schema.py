"""Spark schemas as Python values: readable without a running session, which `StructType.fromDDL` needs."""

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
