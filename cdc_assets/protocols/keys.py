"""Keys of rows, from row images and from dumps."""

from collections.abc import Callable
from functools import reduce
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.mysql_types.descriptors import TYPES, Family
from cdc_assets.mysql_types.types import MySQLType

# The types whose values TiCDC writes exactly as MySQL prints them. FLOAT and JSON are not among them, because their texts
# may differ, nor is TIMESTAMP, whose text depends on the zone.
_PRINTED = (Family.DECIMAL, Family.BIT, Family.TEXT, Family.DATE, Family.DATETIME, Family.TIME, Family.YEAR)


def key_of(image: Column, key_columns: Column) -> Column:
    """Return the key of a row image: its values as the text of a JSON array, or `row_as_key` if the table has no key.

    In: STRING (JSON object), ARRAY<STRING>. Out: STRING; NULL without an image.
    """
    return F.when(F.size(key_columns) > 0, key_values(image, key_columns)).otherwise(row_as_key(image))


def key_values(image: Column, key_columns: Column) -> Column:
    """Return the values of these columns of a row image as the text of a JSON array. In and out: as `key_of`."""
    return F.call_function("cdc_json_key", image, key_columns)


def row_as_key(image: Column) -> Column:
    """Return the row without its NULLs as the text of a JSON object, sorted by column. In and out: as `key_of`.

    Sorted, because an image that was combined of two has its columns in another order than an image of one message.
    """
    row = F.from_json(image, "MAP<STRING, STRING>")
    entries = F.filter(F.map_entries(row), lambda entry: entry["value"].isNotNull())
    return F.when(image.isNotNull(), F.to_json(F.map_from_entries(F.array_sort(entries))))


def dumped_value(value: Column, mysql_type: MySQLType, of_bytes: Callable[[Column], Column] | None) -> Column | None:
    """Return a dumped value of a key in the form of TiCDC's messages, as `Protocol.dumped_key`; None without such a form.

    Args:
        value: the dumped value.
        mysql_type: the column's type.
        of_bytes: how messages write bytes; None if that cannot be derived.
    """
    family, labels = TYPES[mysql_type.base].family, mysql_type.labels or ()
    if family in _PRINTED:
        return value
    if family is Family.INTEGER:
        return F.regexp_replace(value, "^0+(?=[0-9])", "") if mysql_type.zerofill else value
    if family is Family.BINARY and of_bytes is not None:
        return of_bytes(F.unhex(value))
    if family is Family.ENUM:  # Its ordinal. 0 is MySQL's empty text of an invalid value.
        return F.array_position(_texts(labels), value).cast("string")
    if family is Family.SET:  # Its bit mask.
        chosen = F.split(value, ",")
        bits = [F.when(F.array_contains(chosen, label), 1 << n).otherwise(0) for n, label in enumerate(labels)]
        return F.when(value.isNotNull(), reduce(add, (bit.cast("decimal(20,0)") for bit in bits)).cast("string"))
    return None


def _texts(labels: tuple[str, ...]) -> Column:
    return F.array(*map(F.lit, labels)).cast("array<string>")
