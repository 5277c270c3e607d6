"""Texts that are to be one JSON object each: parsed in one go, and whole."""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from types import MappingProxyType

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from cdc_assets.lakehouse import schema

# What the fields of a message are to be, or NULL: these; of an array its elements, as [TEXT]; of an object its fields.
TEXT = "text"
ANY = "any"  # a text, or the JSON text of what else it is
JSON = "json"  # the JSON text of what it is, which is no text
TEXTS = "texts"  # the JSON text of an object of texts, in the order of its names
INTS = "ints"  # the JSON text of an object of INTs
INT = "int"
BIGINT = "bigint"
BOOLEAN = "boolean"
_OTHERS: Mapping[str, DataType] = MappingProxyType({INT: schema.INT, BIGINT: schema.BIGINT, BOOLEAN: schema.BOOLEAN})
# Of an object of columns, `columns_of`.
_EACH = "*"
_COLUMNS = schema.struct(
    text=schema.STRING,
    valued=schema.BOOLEAN,
    complete=schema.BOOLEAN,
    supported=schema.BOOLEAN,
    layout=schema.STRING,
    key_columns=schema.array(schema.STRING),
)

Wanted = str | list["Wanted"] | Mapping[str, "Wanted"]


def read(value: Column, message: Mapping[str, Wanted]) -> Column:
    """A BINARY value read as one JSON object with these fields.

    Out: STRUCT of `m`, the message (of TEXTS and INTS a value that is neither an object nor a text as it came), and `wrong`
    STRING, the reason where there is none: it is no UTF-8, or no JSON, or one of the fields is of another type. JSON texts
    are without blanks, and else as they came.
    """
    returns = schema.struct(m=kind_of(message), wrong=schema.STRING)
    return F.call_function("cdc_json_message", value, F.lit(json.dumps(dict(message))), F.lit(returns.json()))


def has_fields(*names: str) -> Column:
    """Return whether the record's `value` BINARY seems to be a JSON object with fields of these names. BOOLEAN.

    It looks for the names anywhere in the text: enough to tell protocols apart, too little to decode by.
    """
    named = [F.contains(F.col("value"), F.lit(f'"{name}"'.encode())) for name in names]
    return reduce(and_, named, F.col("value").startswith(F.lit(b"{")))


def read_row(image: Column, columns: Sequence[str]) -> Column:
    """A row, the text of a JSON object that was read before, as a STRUCT of these columns, whatever their names.

    Each is a STRING: a text, or the JSON text of what else it is.
    """
    returns = StructType([StructField(name, schema.STRING) for name in columns])
    return F.call_function("cdc_json_row", image, F.lit(json.dumps(columns)), F.lit(returns.json()))


def columns_of(keys: Sequence[tuple[int, int]], unsupported: int) -> "Wanted":
    """An object of columns as Open Protocol has them: of each its value `v`, its type's code `t`, flags `f`, and `h`.

    Read as STRUCT of text STRING, the JSON text of an object of the values; valued BOOLEAN, whether each has one; complete
    BOOLEAN, whether each has a value and a code; and of complete ones supported BOOLEAN, whether none has the code
    `unsupported`, layout STRING, `{column: {"t": code, "f": flags}}`, and key_columns ARRAY<STRING>, in order.

    Args:
        keys: the key are the columns that have, of the first flags of a pair, just the second, by the first pair for which
            there are any; else those with `h`.
        unsupported: a code.
    """
    return {_EACH: json.dumps({"keys": keys, "unsupported": unsupported})}


def kind_of(wanted: Wanted) -> DataType:
    """The type in Spark of what is read."""
    if isinstance(wanted, str):
        return _OTHERS.get(wanted, schema.STRING)
    if isinstance(wanted, list):
        return ArrayType(kind_of(wanted[0]))
    if _EACH in wanted:
        return _COLUMNS
    return schema.struct(**{name: kind_of(each) for name, each in wanted.items()})


def names_of(text: Column) -> Column:
    """The names of a JSON object's fields, in order; NULL where the STRING is none. Out: ARRAY<STRING>."""
    return F.call_function("cdc_json_names", text)


def overlay(over: Column, under: Column) -> Column:
    """One JSON object laid over another: the fields of the first, and what the second has beside them. STRINGs."""
    return F.call_function("cdc_json_overlay", over, under)
