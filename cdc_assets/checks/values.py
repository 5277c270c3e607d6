"""The one classifier of values: whether a value on the wire is one that its column's type holds.

What a column may hold is data (`Limits`), not an expression of its own: a wide table makes no larger plan.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, IntegerType

from cdc_assets.expressions import built_once, once
from cdc_assets.mysql_types.reference import TYPES, Family, Range, value_range
from cdc_assets.mysql_types.simple import largest_length
from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.tables.schema import BIGINT, BOOLEAN, STRING, array, struct


class Form(IntEnum):
    """What texts of values look like. As numbers, which are compared for each value."""

    ANY = 0
    WHOLE = 1  # a whole number in a range
    DECIMAL = 2
    FLOAT = 3
    DOUBLE = 4
    TEXT = 5
    LATIN1 = 6  # bytes as characters
    BASE64 = 7
    DATE = 8
    DATETIME = 9
    TIMESTAMP = 10
    ZONED = 11  # a TIMESTAMP in ISO 8601, in UTC
    TIME = 12
    YEAR = 13
    LABEL = 14  # of an enum, or its number
    LABELS = 15  # of a set, and none
    UNSCALED = 16  # the bytes of a decimal in base64, or the number itself


class Class(StrEnum):
    """What is wrong with a value; of others the class is the range that it is to be in, or `any`."""

    NOT_NULL = "NULL in a NOT NULL column"
    ELSEWHERE = "not the code of this value"
    OUTSIDE = "outside the range of the type"
    TOO_LONG = "too long for the type"
    UNREADABLE = "no value of the type"
    MISSING = "not in the row"
    CORRUPTED = "corrupted, as TiCDC's checksum of the row says"
    UNTYPED = "in the row, and not among the columns that have a type"


ANY = "any"
# Of a column that the row lacks, and may: nothing is observed.
ABSENT = "absent"


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


_NUMBER = DecimalType(38, 0)
ANYTHING = Limits()
LIMITS = struct(
    name=STRING,
    form=IntegerType(),
    null=STRING,
    wires=array(STRING),
    low=BIGINT,
    high=BIGINT,
    ranges=array(_NUMBER),
    length=BIGINT,
    scale=BIGINT,
    signed=BOOLEAN,
    labels=array(STRING),
)
_BIGINT = Range(-(1 << 63), (1 << 63) - 1)
# The classes of whole numbers that came in another way than usual, where that may go by their size.
LOWER, UPPER = f"0..{_BIGINT.high}", f"{_BIGINT.high + 1}..{(1 << 64) - 1}"
# A DECIMAL of unknown precision becomes Spark's largest.
_MOST_DIGITS = 38

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


def as_row(name: str, limits: Limits) -> dict[str, object]:
    """The limits of a column of this name as a value of `LIMITS`."""
    low, high = limits.ranges[:2] if limits.ranges else (None, None)
    return {
        "name": name,
        **limits._asdict(),
        "form": int(limits.form),
        # What BIGINT holds of the range is looked at first.
        "low": None if low is None else max(low, _BIGINT.low),
        "high": None if high is None else min(high, _BIGINT.high),
    }


def json_type(value: Column) -> Column:
    """What a VARIANT is in JSON, STRING: string, number, object, boolean or array; NULL for null."""
    return once(
        F.schema_of_variant(value),
        lambda schema: (
            F.when(value.isNull() | (schema == "VOID"), None)
            .when(schema == "STRING", "string")
            .when(schema.isin("BIGINT", "DOUBLE", "FLOAT") | schema.startswith("DECIMAL"), "number")
            .when(schema.startswith("OBJECT"), "object")
            .otherwise(F.lower(F.substring_index(schema, "<", 1)))
        ),
    )


def entry(name: Column, text: Column, wire: Column | None = None) -> Column:
    """A value of a row, as `remarks` takes it: the column's name, its text, what it is on the wire."""
    told = F.lit(None).cast("string") if wire is None else wire
    return F.struct(name.alias("name"), text.alias("text"), told.alias("wire"))


@built_once
def remarks(forms: frozenset[Form]) -> Column:
    """What is not as usual in a row: ARRAY<STRUCT<name, wire, class, text>>, of most rows empty.

    Made of four columns of the row:
        entries: ARRAY of `entry`.
        names: ARRAY<STRING>, the columns that have a type, each once.
        limits: ARRAY of `LIMITS`, theirs, in that order.
        required: ARRAY<STRING>, those of them that a row has to have.

    Args:
        forms: all that the limits may have: a plan of what is there only takes a part of the time to make.
    """
    names, limits, required = F.col("names"), F.col("limits"), F.col("required")

    def looked_at(found: Column) -> Column:
        return once(F.transform(found, lambda e: e["name"]), lambda there: by_names(found, there))

    def by_names(found: Column, there: Column) -> Column:
        # Most messages have their columns in one order, or in another; few have other ones.
        as_listed, as_sorted = there == names, F.sort_array(there) == F.sort_array(names)
        ordered = F.when(as_listed | ~as_sorted, found).otherwise(F.array_sort(found))
        each = F.transform(found, lambda e: F.get(limits, F.array_position(names, e["name"]).cast("int") - 1))
        allowed = F.when(as_listed, limits).when(as_sorted, F.array_sort(limits)).otherwise(each)
        remarked = F.filter(
            F.zip_with(ordered, allowed, lambda e, limit: _remark(e, limit, forms)),
            lambda r: r["class"].isNotNull() | r["wire"].isNotNull(),
        )
        nothing = F.lit(None).cast("string")
        absent = F.when(as_listed | as_sorted, F.array().cast("array<string>")).otherwise(F.array_except(names, there))
        missing = F.transform(
            absent,
            lambda n: _made(
                n, nothing, F.when(F.array_contains(required, n), str(Class.MISSING)).otherwise(ABSENT), nothing
            ),
        )
        return F.concat(remarked, missing)

    return once(F.col("entries"), looked_at)


def _made(name: Column, wire: Column, what: Column, text: Column) -> Column:
    return F.struct(
        name.alias("name"), wire.alias("wire"), what.alias("class"), F.substring(text, 1, 200).alias("text")
    )


def _remark(found: Column, limits: Column, forms: frozenset[Form]) -> Column:
    """Of a value: its class where that is wrong, and its wire type where that is not the usual one; else NULL.

    Without limits the column has no type.
    """
    typed = limits.isNotNull()
    usual = typed & (limits["wires"].isNull() | (found["wire"] == F.get(limits["wires"], F.lit(0))))
    wire = F.when(found["wire"].isNotNull() & ~usual, found["wire"])
    wrong = [F.when(~typed, str(Class.UNTYPED)), _wrong(found["text"], limits, found["wire"], forms)]
    if Form.WHOLE in forms:
        above = F.get(limits["ranges"], F.lit(1)) > F.lit(_BIGINT.high)
        half = F.when(found["text"].try_cast("bigint").isNotNull(), LOWER).otherwise(UPPER)
        wrong.append(F.when(wire.isNotNull() & above & (limits["form"] == int(Form.WHOLE)), half))
    return _made(found["name"], wire, F.coalesce(*wrong), found["text"])


_WHOLE = r"^-?[0-9]+\z"
_DECIMAL = r"^-?[0-9]+([.][0-9]*)?\z"
_FLOAT = r"^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?\z"
_LARGEST_FLOAT = 3.4028235677973366e38  # from here on it is rounded to infinity
# Zero dates, and days that a month does not have, are permitted here: history tells them apart.
_DATE = "[0-9]{4}-(0[0-9]|1[0-2])-([0-2][0-9]|3[01])"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?"
_TIME = r"^(?!-?838:59:59[.]0*[1-9])-?(0?[0-9]{2}|[1-7][0-9]{2}|8[0-2][0-9]|83[0-8]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?\z"
# The days on which a TIMESTAMP may lie in some time zone.
_YEARS = (1901, 2155)  # and 0
_FIRST_DAY, _LAST_DAY = "1969-12-31", "2038-01-20"


def _wrong(text: Column, limits: Column, wire: Column, forms: frozenset[Form]) -> Column:
    """What is wrong with a value, STRING: a `Class`, or NULL."""
    form = limits["form"]
    rules: dict[Form, Callable[[Column, Column], Column]] = {
        Form.WHOLE: _wrong_whole,
        Form.TEXT: lambda t, m: F.when((F.length(t) > m["length"]) & ~t.contains("\ufffd"), _told(Class.TOO_LONG)),
        Form.DECIMAL: _wrong_decimal,
        Form.DATETIME: lambda t, _: _unless(t.rlike(rf"^{_DATE} {_CLOCK}\z")),
        Form.TIMESTAMP: _wrong_timestamp,
        Form.DOUBLE: _wrong_float(float("inf")),
        Form.FLOAT: _wrong_float(_LARGEST_FLOAT),
        Form.LATIN1: lambda t, m: F.when(t.rlike(r"[^\x00-\xff]"), _told(Class.UNREADABLE)).when(
            F.length(t) > m["length"], _told(Class.TOO_LONG)
        ),
        Form.BASE64: _wrong_base64,
        # In base64 there is no point.
        Form.UNSCALED: lambda t, m: F.when(
            t.contains(".") | F.coalesce(wire == "number", F.lit(False)), _unless(t.rlike(_FLOAT))
        ).otherwise(_wrong_base64(t, m)),
        Form.DATE: lambda t, _: _unless(t.rlike(rf"^{_DATE}\z")),
        Form.ZONED: lambda t, _: _unless(t.rlike(rf"^{_DATE}T{_CLOCK}Z\z")),
        Form.TIME: lambda t, _: _unless(t.rlike(_TIME)),
        Form.YEAR: lambda t, _: _unless(t.rlike(r"^[0-9]{1,4}\z")).when(
            ~t.try_cast("int").between(*_YEARS) & (t.try_cast("int") != 0),
            _told(Class.OUTSIDE),
        ),
        Form.LABEL: lambda t, m: F.when(
            ~F.coalesce(F.array_contains(m["labels"], t), F.lit(False)), _wrong_whole(t, m)
        ),
        Form.LABELS: lambda t, m: F.when(
            (t != "") & ~F.forall(F.split(t, ","), lambda one: F.array_contains(m["labels"], one)),
            _told(Class.UNREADABLE),
        ),
    }
    found = F.when(text.isNull(), limits["null"]).when(form == int(Form.ANY), F.lit(None).cast("string"))
    for each, rule in rules.items():
        if each in forms:
            found = found.when(form == int(each), rule(text, limits))
    return found


def _told(what: Class) -> Column:
    return F.lit(str(what))


def _unless(fine: Column) -> Column:
    return F.when(~fine, _told(Class.UNREADABLE))


def _wrong_whole(text: Column, limits: Column) -> Column:
    # Spark's cast takes more than digits; so what it has made must be the text again. All else is looked at closely.
    number = text.try_cast("bigint")
    plain = number.between(limits["low"], limits["high"]) & (number.cast("string") == text)
    exact = F.when(text.rlike(_WHOLE), text.try_cast(_NUMBER))
    bounds = [F.get(limits["ranges"], F.lit(n)) for n in range(4)]
    closely = (
        F.when(exact.between(bounds[0], bounds[1]), None)
        .when(exact.between(bounds[2], bounds[3]), _told(Class.ELSEWHERE))
        .otherwise(_told(Class.OUTSIDE))
    )
    return F.when(~F.coalesce(plain, F.lit(False)), closely)


def _wrong_decimal(text: Column, limits: Column) -> Column:
    before = F.length(F.ltrim(F.substring_index(text, ".", 1), F.lit("-0")))
    after = F.when(text.contains("."), F.length(F.rtrim(F.substring_index(text, ".", -1), F.lit("0")))).otherwise(0)
    too_many = F.when(limits["length"].isNull(), before + after > _MOST_DIGITS).otherwise(
        (before > limits["length"]) | (after > limits["scale"])
    )
    negative = ~limits["signed"] & text.startswith("-") & text.rlike("[1-9]")
    return _unless(text.rlike(_DECIMAL)).when(too_many | negative, _told(Class.OUTSIDE))


def _wrong_float(most: float) -> Callable[[Column, Column], Column]:
    def wrong(text: Column, limits: Column) -> Column:
        number = text.try_cast("double")
        outside = (F.abs(number) >= F.lit(most)) | (~limits["signed"] & (number < 0))
        return _unless(text.rlike(_FLOAT)).when(outside, _told(Class.OUTSIDE))

    return wrong


def _wrong_base64(text: Column, limits: Column) -> Column:
    data = F.octet_length(F.try_to_binary(text, F.lit("base64")))
    return F.when(data.isNull(), _told(Class.UNREADABLE)).when(data > limits["length"], _told(Class.TOO_LONG))


def _wrong_timestamp(text: Column, limits: Column) -> Column:  # noqa: ARG001 -- all have one signature
    """A text, or the object of Simple's JSON."""
    clock = F.when(text.startswith("{"), F.get_json_object(text, "$.value")).otherwise(text)
    day = F.substring(clock, 1, len(_FIRST_DAY))
    return _unless(F.coalesce(clock.rlike(rf"^{_DATE} {_CLOCK}\z"), F.lit(False))).when(
        ~day.between(_FIRST_DAY, _LAST_DAY) & (day != "0000-00-00"), _told(Class.OUTSIDE)
    )
