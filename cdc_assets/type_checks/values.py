"""The one classifier of values: whether a value on the wire is one that its column's type holds.

What a column may hold is data (`Limits`), not an expression of its own: a wide table makes no larger plan. What looks at the
values is a function in the JVM, `ValueChecks.scala`.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum, auto
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.lakehouse.schema import STRING, array, struct
from cdc_assets.mysql_types.reference import TYPES, Family, Range, value_range
from cdc_assets.mysql_types.simple import largest_length
from cdc_assets.mysql_types.types import MySQLType


class Form(StrEnum):
    """What texts of values look like."""

    ANY = auto()
    WHOLE = auto()  # a whole number in a range
    DECIMAL = auto()
    FLOAT = auto()
    DOUBLE = auto()
    TEXT = auto()
    LATIN1 = auto()  # bytes as characters
    BASE64 = auto()
    DATE = auto()
    DATETIME = auto()
    TIMESTAMP = auto()
    ZONED = auto()  # a TIMESTAMP in ISO 8601, in UTC
    TIME = auto()
    YEAR = auto()
    LABEL = auto()  # of an enum, or its number
    LABELS = auto()  # of a set, and none
    JSON = auto()  # a JSON document
    UNSCALED = auto()  # the bytes of a decimal in base64, or the number itself


class Class(StrEnum):
    """What is wrong with a value; of others the class is the range that it is to be in, or `any`."""

    NOT_NULL = "NULL in a NOT NULL column"
    ELSEWHERE = "not the code of this value"
    OUTSIDE = "outside the range of the type"
    TOO_LONG = "too long for the type"
    UNREADABLE = "no value of the type"
    MISSING = "not in the row"
    NO_KEY = "a column of the key is not in the row"
    CORRUPTED = "corrupted, as TiCDC's checksum of the row says"
    UNTYPED = "in the row, and not among the columns that have a type"


ANY = "any"
# Of a column that the row lacks, and may.
ABSENT = "absent"
# The class of what is observed of such a column: no value.
LEFT_OUT = "left out of the row"
# The class of what a schema change says of a column: no value either.
DESCRIBED = "described by a schema change"


class Limits(NamedTuple):
    """What a value of a column may be.

    Attributes:
        form: what its text looks like.
        null: what is wrong with NULL; None: nothing.
        wires: what it may be on the wire, such as JSON types; the usual one first; None: the wire does not tell.
        ranges: of whole numbers: low and high beside its code, then of the type.
        length: at most so many characters, bytes, or digits before the point; None: not known.
        scale: at most so many digits after the point.
        signed: whether it may be negative.
        labels: of enum and set.
    """

    form: Form = Form.ANY
    null: Class | None = None
    wires: tuple[str, ...] | None = None
    ranges: tuple[int, int, int, int] | None = None
    length: int | None = None
    scale: int | None = None
    signed: bool = True
    labels: tuple[str, ...] | None = None


ANYTHING = Limits()
_BIGINT = Range(-(1 << 63), (1 << 63) - 1)
# The classes of whole numbers that came in another way than usual, where that may go by their size.
LOWER, UPPER = f"0..{_BIGINT.high}", f"{_BIGINT.high + 1}..{(1 << 64) - 1}"
# What the function in the JVM calls the classes.
_CLASSES = {each.name: str(each) for each in Class} | {"ABSENT": ABSENT, "LOWER": LOWER, "UPPER": UPPER}

_FORMS: Mapping[Family, Form] = MappingProxyType(
    {
        Family.INTEGER: Form.WHOLE,
        Family.BIT: Form.WHOLE,
        Family.DECIMAL: Form.DECIMAL,
        Family.FLOAT: Form.DOUBLE,
        Family.TEXT: Form.TEXT,
        Family.ENUM: Form.LABEL,
        Family.SET: Form.WHOLE,
        Family.DATE: Form.DATE,
        Family.DATETIME: Form.DATETIME,
        Family.TIMESTAMP: Form.TIMESTAMP,
        Family.TIME: Form.TIME,
        Family.YEAR: Form.YEAR,
        Family.JSON: Form.JSON,
    }
)


def whole(low: int, high: int) -> Limits:
    """The limits of a whole number."""
    return Limits(Form.WHOLE, ranges=(low, high, low, high))


def limits_of(mysql_type: MySQLType | None, binary: Form = Form.ANY) -> Limits:
    """The limits that a type sets to texts as MySQL prints them; `binary`: what those of its bytes look like."""
    if mysql_type is None:
        return ANYTHING
    family, length = TYPES[mysql_type.base].family, mysql_type.length
    form = binary if family in {Family.BINARY, Family.SPATIAL} else _FORMS.get(family, Form.ANY)
    limits = Limits(form, signed=not mysql_type.unsigned, labels=mysql_type.labels)
    if family in {Family.TEXT, Family.BINARY}:
        # MySQL counts a text's bytes in a character set of its own, in which a character has one at least.
        limits = limits._replace(length=length or largest_length(mysql_type))
    elif mysql_type.base == "float":
        limits = limits._replace(form=Form.FLOAT)
    elif family is Family.DECIMAL and length is not None:
        scale = mysql_type.scale or 0
        limits = limits._replace(length=length - scale, scale=scale)
    elif found := _numbers(mysql_type, family):
        limits = limits._replace(ranges=(*found, *found))
    return limits


def _numbers(mysql_type: MySQLType, family: Family) -> Range | None:
    """The range of the numbers that stand for values of a type."""
    labels = len(mysql_type.labels or ())
    if family is Family.ENUM:
        return Range(0, labels or (1 << 16) - 1)  # 0 is MySQL's empty error value
    if family is Family.SET:
        return Range(0, (1 << (labels or 64)) - 1)
    return value_range(mysql_type) if family in {Family.INTEGER, Family.BIT} else None


def class_of(name: str | None) -> str | None:
    """The class that a remark's `class` is the name of."""
    return None if name is None else _CLASSES[name]


def remarks(layouts: Mapping[int, tuple[Iterable[tuple[str, Limits]], Iterable[str]]], *, wired: bool) -> Column:
    """What is not as usual in a row: ARRAY<STRUCT<name, wire, class, text>> of STRINGs, NULL where all is.

    `class` is the name of a `Class`, ABSENT, LOWER or UPPER; NULL where only `wire` is not the usual one. `text` is how the
    value begins. Made of three columns of the row: `shape` BIGINT, its layout; `image` STRING, a JSON object; `branches`
    STRING, column -> what its value came in, where that is not its JSON type.

    Args:
        layouts: by shape the limits of the columns, and the names of those that a row has to have.
        wired: whether what a value is on the wire tells anything.
    """
    told = {
        shape: {"columns": [_told(name, limits) for name, limits in columns], "required": list(required)}
        for shape, (columns, required) in layouts.items()
    }
    branches = F.coalesce("branches", F.lit(""))
    settings = F.lit(json.dumps(told)), F.lit(wired), F.lit(_REMARKS.json())
    return F.call_function("cdc_check_values", F.col("shape"), F.col("image"), branches, *settings)


_REMARKS = array(struct(**dict.fromkeys(["name", "wire", "class", "text"], STRING)))


def _told(name: str, limits: Limits) -> dict[str, object]:
    """The limits of a column of this name, as the function in the JVM reads them: numbers of any size as texts."""
    ranges = None if limits.ranges is None else [str(bound) for bound in limits.ranges]
    null = None if limits.null is None else limits.null.name
    return {"name": name, **limits._asdict(), "form": limits.form.name, "null": null, "ranges": ranges}
