r"""What MySQL makes of existing values when ALTER TABLE ... MODIFY gives their column another type.

One table, `_CONVERSIONS`, says per pair of families how. MySQL mostly prints the old value and reads that text as the new
type, and so does this: a first step says a value as text, a second reads that text, and `casting.decode` has the last word
on what the new type holds.

MySQL refuses an ALTER in strict mode (the default) when a value does not fit. So a value that does not fit was never
there, or was clipped outside strict mode: it becomes NULL, never a guess. So does a value of which MySQL's manual and
MySQL's code printer different things; a comment tells where.

The manual's sections that are named here are those of the MySQL 8.4 reference manual.
"""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNTZType,
)

from cdc_assets.expressions import first_true, once
from cdc_assets.mysql_types.casting import decode
from cdc_assets.mysql_types.debezium import HEX
from cdc_assets.mysql_types.reference import TYPES, Family
from cdc_assets.mysql_types.types import MySQLType


class _TypeChange(NamedTuple):
    """What a conversion needs to know beside the value."""

    old: MySQLType
    new: MySQLType
    target: DataType
    time_zone: str


_Printer = Callable[[Column, _TypeChange], Column | None]
"""A value of the old type as text; None: not known."""
_Reader = Callable[[Column, _TypeChange], Column]
"""That text as a value of the new type."""


def converted(value: Column, old: MySQLType, new: MySQLType, target: DataType, time_zone: str) -> Column | None:
    """What a value is after its column's type was changed.

    Args:
        value: the typed value, as a column of `casting.spark_type(old)` holds it.
        old: the type before. A length or scale that is None is not known; a DATETIME, TIMESTAMP or TIME without one has
            whole seconds, unless its values show that nobody told the digits.
        new: the type after, as a DDL statement declares it (`types.declared`): DATETIME, TIMESTAMP and TIME without a length
            have whole seconds.
        target: `casting.spark_type(new)`, or a type that `casting.widen` gave for it.
        time_zone: the zone of the feed, taken for that of the session that changed the table: between TIMESTAMP and other
            types MySQL goes by that session's zone, which no record tells. A local time that occurs twice is the earlier
            instant, as in `casting.decode`.

    Returns:
        A column of type `target`, NULL where the value is NULL or what MySQL makes of it is not known; None: what MySQL
        makes of such a pair is not known at all, or depends on more than the value.
    """
    if any(t.base in {"enum", "set"} and t.labels is None for t in (old, new)):
        return None
    conversion = _CONVERSIONS.get((TYPES[old.base].family, TYPES[new.base].family))
    return conversion and conversion(value, _TypeChange(old, new, target, time_zone))


_Conversion = Callable[[Column, _TypeChange], Column | None]


def _through_text(printer: _Printer, read: _Reader) -> _Conversion:
    def convert(value: Column, change: _TypeChange) -> Column | None:
        text = printer(value, change)
        return None if text is None else once(text, lambda said: read(said, change))

    return convert


def _decoded(text: Column, change: _TypeChange, wire: str = "ddl") -> Column:
    return once(text, lambda said: decode(said, change.new, wire, change.time_zone, change.target))


# Numbers as text. "Rounding Behavior" of the chapter "Precision Math"; "Out-of-Range and Overflow Handling".

# Blanks before and after are no part of a number. The lengths keep hostile texts from being computed for hours.
_NUMBER = r"^ *([+-]?(?:[0-9]{1,400}(?:[.][0-9]{0,400})?|[.][0-9]{1,400})(?:[eE][+-]?[0-9]{1,3})?) *\z"
_WHOLE = DecimalType(38, 0)


def _as_text(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    return value.try_cast(StringType())


def _integer_text(value: Column, change: _TypeChange) -> Column | None:
    """What is printed of a ZEROFILL column has zeros up to its display width ("Numeric Type Attributes")."""
    if not change.old.zerofill:
        return _as_text(value, change)
    if change.old.length is None:
        return None
    text = _as_text(value, change)
    return F.when(F.length(text) >= change.old.length, text).otherwise(F.lpad(text, change.old.length, "0"))


def _unfilled_text(value: Column, change: _TypeChange) -> Column | None:
    """An integer for types that read its text: to them zeros before it might, or might not, mean something."""
    return None if change.old.zerofill else _as_text(value, change)


def _decimal_text(value: Column, change: _TypeChange) -> Column | None:
    """All digits of the scale; without it they are not known."""
    return None if change.old.zerofill or change.old.length is None else _as_text(value, change)


def _numeric_text(text: Column) -> Column:
    """A text that is a number as a whole, without blanks and plus sign; else NULL: strict mode refuses the rest."""
    number = F.regexp_extract(text, _NUMBER, 1)
    return F.when(text.rlike(_NUMBER), F.regexp_replace(number, "^[+]", ""))


def _read_integer(text: Column, change: _TypeChange) -> Column:
    """Rounded half away from zero, as the manual has it for columns of exact types."""
    return _decoded(_numeric_text(text).try_cast(_WHOLE).cast(StringType()), change)


def _read_decimal(text: Column, change: _TypeChange) -> Column:
    """Rounded half away from zero to the new scale; where that is not known, only what the target holds exactly."""
    if change.new.length is None:
        return _decoded(_numeric_text(text), change)
    rounded = DecimalType(38, change.new.scale or 0)
    # A value of more than 38 digits remains as it is: it fits when it needs no rounding.
    return once(
        _numeric_text(text),
        lambda plain: _decoded(F.coalesce(plain.try_cast(rounded).cast(StringType()), plain), change),
    )


def _read_float(text: Column, change: _TypeChange) -> Column:
    """The nearest DOUBLE, of that the nearest FLOAT; of FLOAT(m,d) only what needs no rounding to d digits."""
    natural = FloatType() if change.new.base == "float" else DoubleType()
    number = _numeric_text(text).try_cast(DoubleType()).try_cast(natural)
    fits = F.abs(number) < F.lit("Infinity").cast(natural)
    if change.new.unsigned:
        fits &= number >= 0
    if change.new.length is not None and change.new.scale is not None:
        # The whole part has m - d digits. Of the other values the binary form decides, not the text, which way they round.
        fits &= F.round(number, change.new.scale) == number
        fits &= F.abs(number) < F.lit(f"1e{change.new.length - change.new.scale}").cast(DoubleType())
    return F.when(fits, number).try_cast(change.target)


def _whole(text: Column) -> Column:
    """A whole number without its point; else NULL."""
    return F.when(text.rlike(r"^-?[0-9]+([.]0*)?\z"), F.substring_index(text, ".", 1))


def _read_whole(text: Column, change: _TypeChange) -> Column:
    """A number without a fraction, where what becomes of a fraction is not known."""
    return _decoded(_whole(text), change)


# FLOAT and DOUBLE.


def _scientific(number: Column) -> Column:
    """`d.ddde+xx`: the fewest digits of 15 to 17 from which a DOUBLE can be read again; NULL for subnormal numbers.

    Of the latter Java prints more digits than MySQL does.
    """
    texts = [F.format_string(f"%.{digits}e", number) for digits in (14, 15, 16)]
    normal = (number == 0) | (F.abs(number) >= F.lit("2.2250738585072014e-308").cast(DoubleType()))
    return F.when(normal, F.coalesce(*(F.when(text.try_cast(DoubleType()) == number, text) for text in texts)))


def _float_digits(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    """The number as MySQL computes with it: as DOUBLE, a FLOAT too."""
    return once(value.cast(DoubleType()), _scientific)


def _double_text(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    """Digits for what is a DOUBLE or FLOAT again: they need not be MySQL's."""
    return value.cast(DoubleType()).cast(StringType())


def _six_digits(number: Column) -> Column:
    """What MySQL prints of a FLOAT: six digits, and of two that are as near the even one."""
    text = F.format_string("%.16e", number)
    digits = F.bround(F.substring_index(text, "e", 1).try_cast(DecimalType(18, 16)), 5)
    return F.concat_ws("e", digits.cast(StringType()), F.substring_index(text, "e", -1)).try_cast(DoubleType())


_SCIENTIFIC = r"^(-?)([0-9])[.]([0-9]*?)0*e([+-][0-9]+)\z"


def _printed(scientific: Column) -> Column:
    """MySQL's text of a FLOAT or DOUBLE: plain from 1e-15 up to 15 digits before the point, or with digits after it."""
    sign, first, others, power = (F.regexp_extract(scientific, _SCIENTIFIC, group) for group in range(1, 5))
    parts = F.struct(
        sign.alias("sign"), F.concat(first, others).alias("digits"), (power.try_cast(IntegerType()) + 1).alias("point")
    )

    def laid_out(number: Column) -> Column:
        digits, point, count = number["digits"], number["point"], F.length(number["digits"])
        behind = F.substr(digits, point + 1, count)
        with_power = F.concat(
            F.substr(digits, F.lit(1), F.lit(1)),
            F.when(count > 1, F.concat(F.lit("."), F.substr(digits, F.lit(2), count))).otherwise(""),
            F.lit("e"),
            (point - 1).cast(StringType()),
        )
        plain = (point >= -14) & ((point <= 15) | (count > point))
        text = first_true(
            (~plain, with_power),
            (point <= 0, F.concat(F.lit("0."), F.repeat(F.lit("0"), -point), digits)),
            (point >= count, F.rpad(digits, point, F.lit("0"))),
            (F.lit(True), F.concat(F.substr(digits, F.lit(1), point), F.lit("."), behind)),
        )
        return F.concat(number["sign"], text)

    return F.when(scientific.isNotNull(), once(parts, laid_out))


def _float_text(value: Column, change: _TypeChange) -> Column | None:
    """FLOAT(m,d) with d digits after the point; else up to six digits of a FLOAT, and all that a DOUBLE needs."""
    if change.old.zerofill:
        return None
    number = value.cast(DoubleType())
    if change.old.scale is not None:
        exact = once(number, _scientific)
        return exact.try_cast(DecimalType(38, change.old.scale)).cast(StringType())
    if change.old.base == "float":
        number = once(number, _six_digits)
    return once(once(number, _scientific), _printed)


def _nearest_text(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    """The nearest integer; NULL for halves that the manual rounds away from zero, and MySQL's code (`rint`) to even."""

    def nearest(number: Column) -> Column:
        return F.when(F.rint(number) == F.round(number), F.rint(number).try_cast(_WHOLE))

    return once(value.cast(DoubleType()), nearest).cast(StringType())


# Text and bytes. "The CHAR and VARCHAR Types", "The BINARY and VARBINARY Types", "The BLOB and TEXT Types".

_MOST_BYTES = {"tiny": (1 << 8) - 1, "": (1 << 16) - 1, "medium": (1 << 24) - 1, "long": (1 << 32) - 1}


def _most_bytes(base: str) -> int | None:
    """What a TEXT or BLOB type holds; None for other types."""
    return _MOST_BYTES.get(base.removesuffix("text").removesuffix("blob"))


def _read_text(text: Column, change: _TypeChange) -> Column:
    """The text, when it is not too long: blanks at its end may be cut off. A CHAR gives no blanks at its end back."""
    length, most = change.new.length, _most_bytes(change.new.base)
    fitting = text
    if most is not None:
        fitting = F.when(F.octet_length(text) <= most, text)
    elif length is not None:
        only_blanks = F.rtrim(F.substr(text, F.lit(length + 1))) == ""
        fitting = F.when(only_blanks, F.substring(text, 1, length))
    return (F.rtrim(fitting) if change.new.base == "char" else fitting).try_cast(change.target)


def _read_bytes(text: Column, change: _TypeChange) -> Column:
    return _stored_bytes(F.encode(text, "UTF-8"), change)


def _stored_bytes(data: Column, change: _TypeChange) -> Column:
    """The bytes, when they are not too many; those of BINARY(n) are filled up with zeros."""
    most = _most_bytes(change.new.base) or change.new.length
    text = F.concat(F.lit(HEX), F.hex(data))
    return _decoded(text if most is None else F.when(F.octet_length(data) <= most, text), change, "debezium")


def _utf8_text(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    return once(value.cast(StringType()), lambda text: F.when(F.is_valid_utf8(text), text))


# Dates and times. "Date and Time Literals", "Conversion Between Date and Time Types", "Fractional Seconds in Time Values".

_P = r"\p{Punct}"
_SECONDS = "([0-9]{1,2})(?:[.]([0-9]{0,6}))?"
# Year, month, day, hour, minute, second, fraction: with any delimiters, and without.
_DELIMITED = (
    rf"^ *([0-9]{{4}}|[0-9]{{2}}){_P}([0-9]{{1,2}}){_P}([0-9]{{1,2}})"
    rf"(?:(?: +|T)([0-9]{{1,2}}){_P}([0-9]{{1,2}}){_P}{_SECONDS})? *\z"
)
_RUN_TOGETHER = r"^ *([0-9]{4}|[0-9]{2})([0-9]{2})([0-9]{2})(?:([0-9]{2})([0-9]{2})([0-9]{2})(?:[.]([0-9]{0,6}))?)? *\z"
_PARTS_OF_DATE = "$1-$2-$3 $4:$5:$6.$7"
_MICROS = 1_000_000


def _century(year: Column) -> Column:
    """Of 70 to 99 those of 1970 to 1999, of 00 to 69 those of 2000 to 2069 ("2-Digit Years in Dates")."""
    return F.when(F.length(year) > 2, year).otherwise(F.concat(F.when(year >= "70", "19").otherwise("20"), year))


def _read_stamp(text: Column) -> Column:
    """The date and time that a text tells, as TIMESTAMP_NTZ; NULL when it tells none."""
    parts = first_true(
        (text.rlike(_RUN_TOGETHER), F.regexp_replace(text, _RUN_TOGETHER, _PARTS_OF_DATE)),
        (text.rlike(_DELIMITED), F.regexp_replace(text, _DELIMITED, _PARTS_OF_DATE)),
    )

    def stamp(part: Column) -> Column:
        month, day, hour, minute, second = (F.lpad(part[at], 2, "0") for at in range(1, 6))
        date = F.concat_ws("-", _century(part[0]), month, day)
        clock = F.concat(F.concat_ws(":", hour, minute, second), F.lit("."), F.rpad(part[6], 6, "0"))
        return F.when(part[0] != "0000", F.concat_ws(" ", date, clock)).try_cast(TimestampNTZType())

    return once(F.split(parts, "[-: .]"), stamp)


def _stamp_text(stamp: Column) -> Column:
    """`YYYY-MM-DD hh:mm:ss.ffffff`, always with six digits."""

    def filled(text: Column) -> Column:
        return F.concat(F.substring(text, 1, 19), F.lit("."), F.rpad(F.substring(text, 21, 6), 6, "0"))

    return once(stamp.try_cast(StringType()), filled)


def _seconds_later(stamp: Column, seconds: Decimal) -> Column:
    return stamp + F.make_dt_interval(secs=F.lit(seconds))


def _rounded(stamp: Column, digits: int) -> Column:
    """The text of a date and time with these digits of its second, rounded half up."""
    later = stamp if digits == 6 else _seconds_later(stamp, Decimal(5).scaleb(-digits - 1))
    return F.substring(_stamp_text(later), 1, 19 + digits + bool(digits))


def _digits(mysql_type: MySQLType) -> int:
    """Fractional digits: "If omitted, the default precision is 0"."""
    return mysql_type.length or 0


_TIMES = frozenset({Family.DATETIME, Family.TIMESTAMP, Family.TIME})


def _digits_hidden(change: _TypeChange) -> bool:
    """Whether a fraction in the old value would show that the types came without their digits (as TiCDC writes them)."""
    return change.old.length is None and change.new.length is None and TYPES[change.old.base].family in _TIMES


def _local(value: Column, change: _TypeChange) -> Column:
    """A DATE, DATETIME or TIMESTAMP as TIMESTAMP_NTZ in the feed's zone."""
    if TYPES[change.old.base].family is not Family.TIMESTAMP:
        return value.try_cast(TimestampNTZType())
    # By hand, because a cast would go by the session's zone.
    seconds = (F.unix_micros(value) / F.lit(_MICROS).cast(DecimalType(7, 0))).cast(DecimalType(18, 6))
    utc = F.lit("1970-01-01").cast(TimestampNTZType()) + F.make_dt_interval(secs=seconds)
    return F.convert_timezone(F.lit("UTC"), F.lit(change.time_zone), utc)


def _date_text(value: Column, change: _TypeChange) -> Column:
    return F.substring(_full_text(value, change), 1, 10)


def _full_text(value: Column, change: _TypeChange) -> Column:
    return _stamp_text(_local(value, change))


def _datetime_text(value: Column, change: _TypeChange) -> Column:
    """With all digits of the type; NULL when the value has more than the type tells of."""
    end = 19 + _digits(change.old) + bool(_digits(change.old))

    def shown(text: Column) -> Column:
        return F.when(~F.substring(text, end + 1, 7).rlike("[1-9]"), F.substring(text, 1, end))

    return once(_full_text(value, change), shown)


def _known_digits(text: Column, change: _TypeChange) -> Column:
    """The text, when what to round it to is known."""
    return F.when(~text.rlike("[.][0-9]*[1-9]"), text) if _digits_hidden(change) else text


def _read_date(text: Column, change: _TypeChange) -> Column:
    """The day; from half a second before midnight on the next day, as the manual has it."""
    return _decoded(F.substring(_rounded(_read_stamp(text), 0), 1, 10), change)


def _read_datetime(text: Column, change: _TypeChange) -> Column:
    return _decoded(_rounded(_read_stamp(_known_digits(text, change)), _digits(change.new)), change)


def _read_timestamp(text: Column, change: _TypeChange) -> Column:
    """The instant in the feed's zone; NULL for a local time that a clock change leaves out: strict mode refuses it."""

    def instant(rounded: Column) -> Column:
        found = _decoded(rounded, change)
        back = _local(found, change._replace(old=change.new))
        return F.when(back == rounded.try_cast(TimestampNTZType()), found)

    return once(_rounded(_read_stamp(_known_digits(text, change)), _digits(change.new)), instant)


def _rounded_instant(value: Column, change: _TypeChange) -> Column | None:
    """In UTC, where no local time is left out or occurs twice."""
    return _through_text(_full_text, _read_timestamp)(value, change._replace(time_zone="UTC"))


def _read_time_of_day(text: Column, change: _TypeChange) -> Column:
    """The time without its date; NULL when rounding goes to the next day: the manual does not printer what then."""

    def clock(stamp: Column) -> Column:
        rounded = _rounded(stamp, _digits(change.new))
        same_day = F.substring(rounded, 1, 10) == F.substring(_stamp_text(stamp), 1, 10)
        return F.when(same_day, F.substring(rounded, 12, 15))

    return _decoded(once(_read_stamp(_known_digits(text, change)), clock), change)


# Sign, days, hours, minutes, seconds, fraction: "11:12" is 11:12:00, "1112" is 00:11:12.
_TIME_SHAPES = (
    (rf"^ *(-?)(?:([0-9]{{1,2}}) +)?([0-9]{{1,3}}):([0-9]{{1,2}})(?::{_SECONDS})? *\z", "$1;$2;$3;$4;$5;$6"),
    (r"^ *(-?)([0-9]{1,2}) +([0-9]{1,3}) *\z", "$1;$2;$3;;;"),
    (rf"^ *(-?)([0-9]{{0,3}}?)([0-9]{{0,2}}?){_SECONDS} *\z", "$1;;$2;$3;$4;$5"),
)


def _micros(text: Column) -> Column:
    """A time as BIGINT microseconds; NULL when the text tells none."""
    parts = first_true(*((text.rlike(shape), F.regexp_replace(text, shape, to)) for shape, to in _TIME_SHAPES))

    def total(part: Column) -> Column:
        days, hours, minutes, seconds = (F.coalesce(part[at].try_cast(LongType()), F.lit(0)) for at in range(1, 5))
        whole = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * _MICROS
        size = whole + F.rpad(part[5], 6, "0").try_cast(LongType())
        return F.when((minutes < 60) & (seconds < 60), F.when(part[0] == "-", -size).otherwise(size))

    return once(F.split(parts, ";"), total)


def _clock_text(micros: Column, digits: int) -> Column:
    """`[-]hh:mm:ss[.f]` with these digits of its second, rounded half away from zero."""
    unit = 10 ** (6 - digits)
    near = F.abs(micros) + unit // 2
    size = near - near % unit
    seconds = F.floor(size / _MICROS)
    text = F.format_string(
        "%s%02d:%02d:%02d.%06d",
        F.when((micros < 0) & (size > 0), "-").otherwise(""),
        F.floor(seconds / 3600),
        F.floor(seconds / 60) % 60,
        seconds % 60,
        size % _MICROS,
    )
    cut = 6 - digits + (not digits)
    return F.when(micros.isNotNull(), F.substr(text, F.lit(1), F.length(text) - cut))


def _read_time(text: Column, change: _TypeChange) -> Column:
    clock = once(_micros(_known_digits(text, change)), lambda micros: _clock_text(micros, _digits(change.new)))
    return _decoded(clock, change)


def _time_text(value: Column, change: _TypeChange) -> Column:
    """With all digits of the type; as it came when they are not known."""
    digits = change.old.length
    return value if digits is None else once(_micros(value), lambda micros: _clock_text(micros, digits))


def _midnight_text(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    """Of a DATE as a TIME: "Conversion to a TIME value is not useful; the result is '00:00:00'"."""
    return F.when(value.isNotNull(), F.lit("00:00:00"))


def _year_text(value: Column, change: _TypeChange) -> Column:
    return F.lpad(_as_text(value, change), 4, "0")


# As numbers: hhmmss, YYYYMMDD and YYYYMMDDhhmmss, with the fraction.


def _date_number(value: Column, change: _TypeChange) -> Column:
    return F.replace(_date_text(value, change), F.lit("-"), F.lit(""))


def _datetime_number(value: Column, change: _TypeChange) -> Column:
    return F.regexp_replace(_full_text(value, change), "[- :]", "")


def _time_number(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    return F.replace(value, F.lit(":"), F.lit(""))


def _read_clock_as_integer(text: Column, change: _TypeChange) -> Column:
    """Rounded; NULL when that gives 60 seconds: by the manual they stay, by MySQL's code they become a minute."""
    whole = _numeric_text(text).try_cast(_WHOLE)
    return _decoded(F.when(F.abs(whole) % 100 != 60, whole.cast(StringType())), change)


# "The YEAR Type", "2-Digit Years in Dates".


def _read_year_text(text: Column, change: _TypeChange) -> Column:
    digits = F.when(text.rlike(r"^ *([0-9]{1,2}|[0-9]{4}) *\z"), F.trim(text))
    return _decoded(_century(F.when(F.length(digits) == 1, F.lpad(digits, 2, "0")).otherwise(digits)), change)


def _read_year_number(text: Column, change: _TypeChange) -> Column:
    """As from text, save that 0 is the year 0000; numbers with a fraction are not known."""
    number = _whole(text).try_cast(IntegerType())
    short = number.between(1, 99)
    year = F.when(short, number + F.when(number >= 70, 1900).otherwise(2000)).otherwise(number)
    return _decoded(year.cast(StringType()), change)


# "The ENUM Type", "The SET Type".


def _labels(mysql_type: MySQLType) -> tuple[str, ...]:
    return mysql_type.labels or ()


def _array(texts: Iterable[str]) -> Column:
    return F.array(*(F.lit(text) for text in texts)).cast("array<string>")


def _folded(labels: tuple[str, ...]) -> tuple[str, ...] | None:
    """The labels in lower case; None when they differ in nothing else, which no collation without case permits."""
    lower = tuple(label.lower() for label in labels)
    return lower if len(set(lower)) == len(labels) else None


def _read_label(text: Column, change: _TypeChange) -> Column:
    """The label that is so spelled, or so but for its case, or that has this number.

    An ENUM's empty value for errors remains, of other types strict mode refuses an empty text.
    """
    labels, folded = _labels(change.new), _folded(_labels(change.new))
    spelled = F.rtrim(text)
    place = F.nullif(F.array_position(_array(labels), spelled), F.lit(0))
    if folded is not None:
        place = F.coalesce(place, F.nullif(F.array_position(_array(folded), F.lower(spelled)), F.lit(0)))
    number = F.when(spelled.rlike(r"^[1-9][0-9]{0,4}\z"), spelled.try_cast(LongType()))
    label = F.get(_array(labels), F.coalesce(place, number) - 1)
    if change.old.base == "enum":
        label = F.when(text == "", text).otherwise(label)
    return label.try_cast(change.target)


def _read_labels(text: Column, change: _TypeChange) -> Column:
    """The labels of a SET in the order of its definition, each once; NULL when there is another in the text."""
    labels, folded = _labels(change.new), _folded(_labels(change.new))
    given = F.split(text if folded is None else F.lower(text), ",")

    def chosen(given: Column) -> Column:
        names = labels if folded is None else folded
        marked = (
            F.when(F.array_contains(given, name), F.lit(label)) for name, label in zip(names, labels, strict=True)
        )
        unknown = F.size(F.array_except(given, _array(names)))
        return F.when(unknown == 0, F.concat_ws(",", *marked))

    return F.when(text == "", text).otherwise(once(given, chosen)).try_cast(change.target)


def _read_ordinal(text: Column, change: _TypeChange) -> Column:
    """The label with this number, or the labels of these bits.

    NULL for 0, an ENUM's value for errors, and for a number that is a label's spelling as well: the manual says that a
    number is an index, but MySQL's code reads its text.
    """
    numeric = [label for label in _labels(change.new) if label.isdecimal()]
    known = ~F.array_contains(_array(numeric), text)
    if change.new.base == "enum":
        known &= text != "0"
    return _decoded(F.when(known, text), change, "canal-json")


def _enum_ordinal(value: Column, change: _TypeChange) -> Column:
    """The label's number; that of the empty value for errors is 0."""
    labels = _labels(change.old)
    place = F.array_position(_array(labels), value)
    # A label that is empty cannot be told from that value.
    known = (place > 0) & (value != "") if "" in labels else (place > 0) | (value == "")
    return F.when(known, place.cast(StringType()))


def _set_bits(value: Column, change: _TypeChange) -> Column:
    """The number whose bits are the labels, the first label's the lowest."""
    bits = F.create_map(*(F.lit(x) for at, label in enumerate(_labels(change.old)) for x in (label, Decimal(1 << at))))
    zero = F.lit(Decimal(0)).cast(_WHOLE)
    given = F.filter(F.split(value, ","), lambda label: label != "")

    def added(total: Column, label: Column) -> Column:
        return (total + F.try_element_at(bits, label).cast(_WHOLE)).cast(_WHOLE)

    return F.aggregate(given, zero, added).cast(StringType())


# "The JSON Data Type".

# What MySQL prints as it was written: no number with a fraction, no escapes, nothing that it would order or lay out anew.
_SIMPLE_JSON = r'^[ \t\r\n]*(0|-?[1-9][0-9]{0,17}|true|false|null|\[\]|[{][}]|"[^"\\\x00-\x1f]*")[ \t\r\n]*\z'


def _read_json(text: Column, change: _TypeChange) -> Column:
    return F.when(text.rlike(_SIMPLE_JSON), F.regexp_extract(text, _SIMPLE_JSON, 1)).try_cast(change.target)


def _same(value: Column, change: _TypeChange) -> Column:
    return value.try_cast(change.target)


def _same_shape(value: Column, change: _TypeChange) -> Column | None:
    """A GEOMETRY column holds every shape; from one shape to another there is no conversion."""
    return value.try_cast(change.target) if change.new.base in {change.old.base, "geometry"} else None


# What MySQL prints of a value.
_PRINTED: Mapping[Family, _Printer] = {
    Family.INTEGER: _integer_text,
    Family.DECIMAL: _decimal_text,
    Family.FLOAT: _float_text,
    Family.TEXT: _as_text,
    Family.ENUM: _as_text,
    Family.SET: _as_text,
    Family.DATE: _date_text,
    Family.DATETIME: _datetime_text,
    Family.TIMESTAMP: _datetime_text,
    Family.TIME: _time_text,
    Family.YEAR: _year_text,
}
# The number that a value is to MySQL.
_NUMBERS: Mapping[Family, _Printer] = {
    Family.INTEGER: _as_text,
    Family.DECIMAL: _as_text,
    Family.FLOAT: _float_digits,
    Family.BIT: _as_text,
    Family.TEXT: _as_text,
    Family.ENUM: _enum_ordinal,
    Family.SET: _set_bits,
    Family.DATE: _date_number,
    Family.DATETIME: _datetime_number,
    Family.TIMESTAMP: _datetime_number,
    Family.TIME: _time_number,
    Family.YEAR: _as_text,
    Family.JSON: _as_text,
}
# What tells a date or a time.
_STAMPS: Mapping[Family, _Printer] = {
    Family.INTEGER: _unfilled_text,
    Family.DECIMAL: _decimal_text,
    Family.TEXT: _as_text,
    Family.DATE: _full_text,
    Family.DATETIME: _full_text,
    Family.TIMESTAMP: _full_text,
}
_TIME_TEXTS: Mapping[Family, _Printer] = {
    Family.INTEGER: _unfilled_text,
    Family.DECIMAL: _decimal_text,
    Family.TEXT: _as_text,
    Family.TIME: _as_text,
    Family.DATE: _midnight_text,
}

# Missing, because not known: BIT to text (bytes or digits, by the length of the text) and text to BIT, bytes to all but
# text, TIME to types with a date (today's), temporal types to YEAR and back, FLOAT and DOUBLE to temporal types, JSON of
# what is neither text nor integer, spatial types to others.
_CONVERSIONS: Mapping[tuple[Family, Family], _Conversion] = MappingProxyType(
    {
        **{(old, Family.TEXT): _through_text(printer, _read_text) for old, printer in _PRINTED.items()},
        **{(old, Family.BINARY): _through_text(printer, _read_bytes) for old, printer in _PRINTED.items()},
        **{(old, Family.DECIMAL): _through_text(printer, _read_decimal) for old, printer in _NUMBERS.items()},
        **{(old, Family.FLOAT): _through_text(printer, _read_float) for old, printer in _NUMBERS.items()},
        **{(old, Family.INTEGER): _through_text(printer, _read_integer) for old, printer in _NUMBERS.items()},
        **{
            (old, Family.INTEGER): _through_text(_NUMBERS[old], _read_clock_as_integer)
            for old in (Family.DATETIME, Family.TIMESTAMP, Family.TIME)
        },
        (Family.FLOAT, Family.FLOAT): _through_text(_double_text, _read_float),
        (Family.FLOAT, Family.INTEGER): _through_text(_nearest_text, _read_integer),
        (Family.JSON, Family.INTEGER): _through_text(_as_text, _read_whole),
        **{(old, Family.BIT): _through_text(_as_text, _read_whole) for old in (Family.INTEGER, Family.BIT)},
        **{(old, Family.DATE): _through_text(printer, _read_date) for old, printer in _STAMPS.items()},
        **{(old, Family.DATETIME): _through_text(printer, _read_datetime) for old, printer in _STAMPS.items()},
        **{(old, Family.TIMESTAMP): _through_text(printer, _read_timestamp) for old, printer in _STAMPS.items()},
        (Family.TIMESTAMP, Family.TIMESTAMP): _rounded_instant,
        **{(old, Family.TIME): _through_text(printer, _read_time) for old, printer in _TIME_TEXTS.items()},
        **{
            (old, Family.TIME): _through_text(_full_text, _read_time_of_day)
            for old in (Family.DATETIME, Family.TIMESTAMP)
        },
        (Family.TEXT, Family.YEAR): _through_text(_as_text, _read_year_text),
        **{
            (old, Family.YEAR): _through_text(_as_text, _read_year_number)
            for old in (Family.INTEGER, Family.DECIMAL, Family.YEAR)
        },
        **{(old, Family.ENUM): _through_text(_as_text, _read_label) for old in (Family.TEXT, Family.ENUM, Family.SET)},
        **{(old, Family.SET): _through_text(_as_text, _read_labels) for old in (Family.TEXT, Family.ENUM, Family.SET)},
        **{(Family.INTEGER, new): _through_text(_unfilled_text, _read_ordinal) for new in (Family.ENUM, Family.SET)},
        (Family.BINARY, Family.TEXT): _through_text(_utf8_text, _read_text),
        (Family.BINARY, Family.BINARY): _stored_bytes,
        (Family.JSON, Family.TEXT): _through_text(_as_text, _read_text),
        (Family.JSON, Family.JSON): _same,
        **{(old, Family.JSON): _through_text(_unfilled_text, _read_json) for old in (Family.TEXT, Family.INTEGER)},
        (Family.SPATIAL, Family.SPATIAL): _same_shape,
    }
)
