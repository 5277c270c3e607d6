"""The classifier of values: whether a value on the wire is one that its column's type holds.

What a column may hold is data (`Limits`), not an expression of its own, so that a wide table makes no larger plan. A
function in the JVM, `ValueChecks.scala`, compares the values with it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.lakehouse.schema import STRING, array, struct
from cdc_assets.mysql_types.descriptors import TYPES, Family, Range
from cdc_assets.mysql_types.types import MySQLType, capacity, value_range


class TextForm(StrEnum):
    """How the texts of a column's values are written, by the names that the JVM function has for the forms."""

    ANY = "ANY"
    INTEGER = "WHOLE"  # a whole number in a range
    DECIMAL = "DECIMAL"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    TEXT = "TEXT"
    LATIN1 = "LATIN1"  # a character a byte
    BASE64 = "BASE64"
    DATE = "DATE"
    DATETIME = "DATETIME"
    TIMESTAMP = "TIMESTAMP"
    ZONED = "ZONED"  # a TIMESTAMP in ISO 8601, in UTC
    TIME = "TIME"
    YEAR = "YEAR"
    LABEL = "LABEL"  # a label of an enum, or its number
    LABELS = "LABELS"  # labels of a set, maybe none
    JSON = "JSON"  # a JSON document
    UNSCALED = "UNSCALED"  # the bytes of a decimal in base64, or the number itself
    UNSCALED_OR_DIGITS = "UNSCALED_OR_DIGITS"  # the same, or the digits of a decimal without fraction as a text
    HEX = "HEX"  # bytes in lower-case hexadecimal digits
    BASE64_OR_URL = "BASE64_OR_URL"  # base64 in the usual or in the URL-safe alphabet
    HEX_OR_BASE64 = "HEX_OR_BASE64"  # one of these two
    ISO_DATE = "ISO_DATE"  # in ISO 8601, in UTC, as are the next two
    ISO_TIME = "ISO_TIME"
    ISO_DATETIME = "ISO_DATETIME"


class ValueClass(StrEnum):
    """What is wrong with a value. The class of a value that is right is its range, or `ANY`."""

    NOT_NULL = "NULL in a NOT NULL column"
    ELSEWHERE = "not the code of this value"  # the code is one of the type's, but for other values
    OUTSIDE = "outside the range of the type"
    TOO_LONG = "too long for the type"
    UNREADABLE = "no value of the type"
    MISSING = "not in the row"
    NO_KEY = "a column of the key is not in the row"
    CORRUPTED = "corrupted, as TiCDC's checksum of the row says"
    UNTYPED = "in the row, and not among the columns that have a type"


ANY = "any"
# The readings that a value may have where the message does not state how it is written. The class of such a value joins
# those that fit by `_OR`.
HEX, BASE64, DIGITS = "hex", "base64", "digits"
SECOND_PARTS: Mapping[str, int] = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_OR = " or "
_READINGS = frozenset({HEX, BASE64, DIGITS, *SECOND_PARTS})
# The class of NULL, 0 and other values that show no reading.
SHOWS_NO_READING = "shows nothing of how it is written"
# The class in a remark on a column that the row lacks and may lack, and the class of the observation made of it.
ABSENT, LEFT_OUT = "absent", "left out of the row"
# The class of an observation of a schema change, which has no value.
DESCRIBED = "described by a schema change"


class Unit(NamedTuple):
    """A unit in which a number may be.

    Attributes:
        reading: its name.
        low: the lowest number that the column's type permits in this unit.
        high: the highest one.
        step: the numbers are multiples of it, by the digits that the type has after the point.
    """

    reading: str
    low: int
    high: int
    step: int


class Limits(NamedTuple):
    """What the values of a column may be. `ValueChecks.scala` reads the fields by their names.

    Attributes:
        form: how a value's text is written.
        null: the class of NULL; None: the usual one.
        wires: the types that a value may have on the wire, such as JSON types, the usual one first; None: any.
        ranges: of whole numbers: lowest and highest value of the column's type code, then of its type.
        length: the largest number of characters, bytes, or digits before the point; None: unknown.
        scale: the largest number of digits after the point.
        signed: whether a value may be negative.
        labels: of an enum or a set.
        usual: the usual class of the values, if it is a reading.
        units: of whole numbers, if the message does not state their unit: all that it may be.
    """

    form: TextForm = TextForm.ANY
    null: str | None = None
    wires: tuple[str, ...] | None = None
    ranges: tuple[int, int, int, int] | None = None
    length: int | None = None
    scale: int | None = None
    signed: bool = True
    labels: tuple[str, ...] | None = None
    usual: str | None = None
    units: tuple[Unit, ...] = ()


ANYTHING = Limits()
_BIGINT = Range(-(1 << 63), (1 << 63) - 1)
# The classes of unsigned numbers with an unusual wire type, where the wire type depends on whether a BIGINT holds the
# number.
LOWER, UPPER = f"0..{_BIGINT.high}", f"{_BIGINT.high + 1}..{(1 << 64) - 1}"
# The JVM function's name for a class -> the class.
_CLASSES_BY_NAME = {each.name: str(each) for each in ValueClass} | {
    "ABSENT": ABSENT,
    "LOWER": LOWER,
    "UPPER": UPPER,
    "SHOWS_NO_READING": SHOWS_NO_READING,
}

_FORMS: Mapping[Family, TextForm] = {
    Family.INTEGER: TextForm.INTEGER,
    Family.BIT: TextForm.INTEGER,
    Family.DECIMAL: TextForm.DECIMAL,
    Family.FLOAT: TextForm.DOUBLE,
    Family.TEXT: TextForm.TEXT,
    Family.ENUM: TextForm.LABEL,
    Family.SET: TextForm.INTEGER,
    Family.DATE: TextForm.DATE,
    Family.DATETIME: TextForm.DATETIME,
    Family.TIMESTAMP: TextForm.TIMESTAMP,
    Family.TIME: TextForm.TIME,
    Family.YEAR: TextForm.YEAR,
    Family.JSON: TextForm.JSON,
}


def integer_limits(low: int, high: int) -> Limits:
    """Return the limits of a whole number."""
    return Limits(TextForm.INTEGER, ranges=(low, high, low, high))


def limits_of(mysql_type: MySQLType | None, binary: TextForm = TextForm.ANY) -> Limits:
    """Return the limits of a type's values.

    Args:
        mysql_type: None: unknown, so that every value is right.
        binary: how the protocol writes bytes; all other values are texts as MySQL prints them.
    """
    if mysql_type is None:
        return ANYTHING
    family, length = TYPES[mysql_type.base].family, mysql_type.length
    form = binary if family in {Family.BINARY, Family.SPATIAL} else _FORMS.get(family, TextForm.ANY)
    limits = Limits(form, signed=not mysql_type.unsigned, labels=mysql_type.labels)
    if family in {Family.TEXT, Family.BINARY}:
        # MySQL limits the bytes of a TEXT in the column's character set, which has at least one byte a character.
        limits = limits._replace(length=capacity(mysql_type))
    elif mysql_type.base == "float":
        limits = limits._replace(form=TextForm.FLOAT)
    elif family is Family.DECIMAL and length is not None:
        scale = mysql_type.scale or 0
        limits = limits._replace(length=length - scale, scale=scale)
    elif number_range := _number_range(mysql_type, family):
        limits = limits._replace(ranges=(*number_range, *number_range))
    return limits


def widest_limits(limits: Sequence[Limits]) -> Limits:
    """Return the limits of values that have one of several types.

    Values of types in different forms have no limits, nor have values of different types whose form messages do not state.

    Args:
        limits: of the types; all have the same `null` and `wires`.
    """
    first = limits[0]
    is_unstated = any(each.usual for each in limits)
    if len({each.form for each in limits}) > 1 or (is_unstated and len(set(limits)) > 1):
        return Limits(null=first.null, wires=first.wires)
    ranges = [each.ranges for each in limits if each.ranges is not None]
    labels = [each.labels for each in limits if each.labels is not None]
    return first._replace(
        ranges=_widest_ranges(ranges) if len(ranges) == len(limits) else None,
        length=_largest([each.length for each in limits]),
        scale=_largest([each.scale for each in limits]),
        signed=any(each.signed for each in limits),
        labels=tuple(dict.fromkeys(chain.from_iterable(labels))) if len(labels) == len(limits) else None,
    )


def _widest_ranges(ranges: Sequence[tuple[int, int, int, int]]) -> tuple[int, int, int, int]:
    """Return the widest range of the type codes, and the widest of the types."""
    code_low, code_high, low, high = zip(*ranges, strict=True)
    return min(code_low), max(code_high), min(low), max(high)


def _largest(numbers: Sequence[int | None]) -> int | None:
    """Return the largest number; None if one is None."""
    given = [number for number in numbers if number is not None]
    return max(given) if len(given) == len(numbers) else None


def _number_range(mysql_type: MySQLType, family: Family) -> Range | None:
    """Return the range of the numbers that the wire has for values of a type; None: it has no numbers."""
    labels = len(mysql_type.labels or ())
    if family is Family.ENUM:
        return Range(0, labels or (1 << 16) - 1)  # 0 is MySQL's empty error value
    if family is Family.SET:
        return Range(0, (1 << (labels or 64)) - 1)
    return value_range(mysql_type) if family in {Family.INTEGER, Family.BIT} else None


def class_of(name: str | None) -> str | None:
    """Return the class whose name a remark has in `class`; `Limits.null`, and the readings that fit, have no other name."""
    return None if name is None else _CLASSES_BY_NAME.get(name, name)


def readings_of_class(value_class: str) -> frozenset[str]:
    """Return the readings that a class of values names."""
    return _READINGS.intersection(value_class.split(_OR))


def find_remarks(
    columns_by_hash: Mapping[int, tuple[Iterable[tuple[str, Limits]], Iterable[str]]], *, has_wire_types: bool
) -> Column:
    """Return remarks on the values of a row that are not as usual; NULL: all are.

    The expression reads the row's columns `layout_hash` BIGINT, `image` STRING (a JSON object) and `wire_types` STRING
    (column -> wire type, where that is not the JSON type).

    Args:
        columns_by_hash: layout_hash -> the columns with their limits, and the names of the columns that a row must have.
        has_wire_types: whether the protocol prescribes the types that values have on the wire.

    Returns:
        ARRAY<STRUCT<name, wire, class, text>> of STRINGs. `wire` is the wire type where it is not the usual one. `class` is
        the name of a `ValueClass`, ABSENT, LOWER, UPPER or SHOWS_NO_READING, or the readings that fit, or `Limits.null`;
        NULL where only the wire type is unusual. `text` is the beginning of the value.
    """
    layouts = {
        layout_hash: {
            "columns": [{"name": name, **limits._asdict()} for name, limits in columns],
            "required": list(required),
        }
        for layout_hash, (columns, required) in columns_by_hash.items()
    }
    settings = F.lit(json.dumps(layouts)), F.lit(has_wire_types), F.lit(_REMARKS.json())
    wire_types = F.coalesce("wire_types", F.lit(""))
    return F.call_function("cdc_check_values", F.col("layout_hash"), F.col("image"), wire_types, *settings)


_REMARKS = array(struct(**dict.fromkeys(["name", "wire", "class", "text"], STRING)))
