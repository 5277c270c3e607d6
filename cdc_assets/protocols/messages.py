"""Messages that are one JSON object each: parsed once, completely, by a native function."""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from cdc_assets.lakehouse import schema

# The types of single values, with Spark's types of what is read; every field may also be null. An array is a list with the
# type of its elements, as ["text"]; an object is a mapping of its fields.
_SPARK_TYPES: Mapping[str, DataType] = {
    "text": schema.STRING,
    "any": schema.STRING,  # any JSON value: a text itself, anything else as its JSON text
    "json": schema.STRING,  # any JSON value except a text, as its JSON text
    "texts": schema.STRING,  # an object of texts, as its JSON text, sorted by name
    "ints": schema.STRING,  # an object of INTs, as its JSON text
    "int": schema.INT,
    "bigint": schema.BIGINT,
    "boolean": schema.BOOLEAN,
}
# The field name that marks a `columns_field`.
_EACH = "*"
_COLUMNS = schema.struct(
    text=schema.STRING,
    valued=schema.BOOLEAN,
    complete=schema.BOOLEAN,
    supported=schema.BOOLEAN,
    layout=schema.STRING,
    key_columns=schema.array(schema.STRING),
)

FieldType = str | list["FieldType"] | Mapping[str, "FieldType"]


def read(value: Column, message: Mapping[str, FieldType]) -> Column:
    """Read a BINARY value as one JSON object with these fields.

    Out: STRUCT of `m`, the message, and `wrong` STRING, the reason of the quarantine if the value cannot be read: it is not
    UTF-8, not JSON, or a field has another type. JSON texts have no blanks, and are unchanged otherwise. A field of `texts`
    or `ints` whose value is neither an object nor a text has that value unchanged.
    """
    returns = schema.struct(m=spark_type_of(message), wrong=schema.STRING)
    return F.call_function("cdc_json_message", value, F.lit(json.dumps(message)), F.lit(returns.json()))


def has_fields(*names: str) -> Column:
    """Return whether the record's `value` BINARY seems to be a JSON object with fields of these names. BOOLEAN.

    The names may be anywhere in the text: that is enough to recognise a protocol, not enough to decode a record.
    """
    named = [F.contains(F.col("value"), F.lit(f'"{name}"'.encode())) for name in names]
    return reduce(and_, named, F.col("value").startswith(F.lit(b"{")))


def read_row(image: Column, columns: Sequence[str]) -> Column:
    """Return a row image, the text of a JSON object from `read`, as a STRUCT of these columns, each of type `any`."""
    returns = StructType([StructField(name, schema.STRING) for name in columns])
    return F.call_function("cdc_json_row", image, F.lit(json.dumps(columns)), F.lit(returns.json()))


def columns_field(keys: Sequence[tuple[int, int]], unsupported: int) -> "FieldType":
    """Return the type of a field that is an Open Protocol object of columns.

    Each column is an object of its value `v`, type code `t`, flags `f` and handle key mark `h`. The field is read as STRUCT
    of text STRING (the JSON text of an object of the values), valued BOOLEAN (whether each column has a value) and complete
    BOOLEAN (whether each column has a value and a code); and if it is complete, of supported BOOLEAN (whether no column has
    the code `unsupported`), layout STRING (`{column: {"t": code, "f": flags}}`) and key_columns ARRAY<STRING> (in order).

    Args:
        keys: pairs (mask, flags), tried in order: the key columns are those whose flags under the mask equal `flags`. If no
            pair matches a column, the key columns are those with `h`.
        unsupported: the type code that the protocol does not support.
    """
    return {_EACH: json.dumps({"keys": keys, "unsupported": unsupported})}


def spark_type_of(field_type: FieldType) -> DataType:
    """Return the Spark type of a field that is read."""
    if isinstance(field_type, str):
        return _SPARK_TYPES[field_type]
    if isinstance(field_type, list):
        return ArrayType(spark_type_of(field_type[0]))
    if _EACH in field_type:
        return _COLUMNS
    return schema.struct(**{name: spark_type_of(inner) for name, inner in field_type.items()})


def field_names(text: Column) -> Column:
    """Return the names of a JSON object's fields, in order, as ARRAY<STRING>; NULL if the STRING is not a JSON object."""
    return F.call_function("cdc_json_names", text)


def overlay(over: Column, under: Column) -> Column:
    """Return the JSON object `under` with the fields of `over` replaced or added. In and out: STRING."""
    return F.call_function("cdc_json_overlay", over, under)
