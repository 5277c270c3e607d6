"""The key of a row, out of its image."""

from collections.abc import Callable
from functools import reduce
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.mysql_types.reference import TYPES, Family
from cdc_assets.mysql_types.types import MySQLType

# What TiCDC's messages have in the words of MySQL itself. Not so FLOAT and JSON, of which the texts may differ; of a
# TIMESTAMP it depends on the zone.
_PRINTED = (Family.DECIMAL, Family.BIT, Family.TEXT, Family.DATE, Family.DATETIME, Family.TIME, Family.YEAR)


def key_of(image: Column, key_columns: Column) -> Column:
    """The key's values out of a row image, as the text of a JSON array; of a table without a key the whole row.

    In: STRING (JSON object), ARRAY<STRING>. Out: STRING; null where there is no image.
    """
    return F.when(F.size(key_columns) > 0, key_values(image, key_columns)).otherwise(whole_row(image))


def key_values(image: Column, key_columns: Column) -> Column:
    """The key's values out of a row image, as the text of a JSON array. In and out: as `key_of`."""
    return F.call_function("cdc_json_key", image, key_columns)


def whole_row(image: Column) -> Column:
    """The row itself without its NULLs, the text of a JSON object. In and out: as `key_of`.

    In an order of its own: the columns of an image that was put together stand in another order than the message's.
    """
    row = F.from_json(image, "MAP<STRING, STRING>")
    entries = F.filter(F.map_entries(row), lambda entry: entry["value"].isNotNull())
    return F.when(image.isNotNull(), F.to_json(F.map_from_entries(F.array_sort(entries))))


def dumped_value(value: Column, mysql_type: MySQLType, of_bytes: Callable[[Column], Column] | None) -> Column | None:
    """A dumped value of a key as TiCDC's messages have it; `of_bytes`: how they have bytes. As `Protocol.dumped_key`."""
    family, labels = TYPES[mysql_type.base].family, mysql_type.labels or ()
    if family in _PRINTED:
        return value
    if family is Family.INTEGER:
        return F.regexp_replace(value, "^0+(?=[0-9])", "") if mysql_type.zerofill else value
    if family is Family.BINARY and of_bytes is not None:
        return of_bytes(F.unhex(value))
    if family is Family.ENUM:  # the ordinal; 0 is the empty text of an invalid value
        return F.array_position(_texts(labels), value).cast("string")
    if family is Family.SET:  # the mask
        chosen = F.split(value, ",")
        bits = [F.when(F.array_contains(chosen, label), 1 << n).otherwise(0) for n, label in enumerate(labels)]
        return F.when(value.isNotNull(), reduce(add, (bit.cast("decimal(20,0)") for bit in bits)).cast("string"))
    return None


def _texts(labels: tuple[str, ...]) -> Column:
    return F.array(*map(F.lit, labels)).cast("array<string>")
