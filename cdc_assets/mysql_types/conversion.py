r"""Conversion of existing values when ALTER TABLE ... MODIFY changes the type of their column, as MySQL converts them.

The table `_CONVERSIONS` has the conversion for each pair of families. MySQL mostly prints the old value and reads that text
as the new type, and so does this module: a printer returns a value's text, a reader reads that text, and `casting.decode`
decides whether the new type holds the result.

In strict mode, the default, MySQL refuses an ALTER if a value does not fit. So a value that does not fit cannot exist, or
was clipped outside strict mode: it becomes NULL, never a guess. So does a value for which MySQL's manual and MySQL's code
differ; a comment says where.

Sections in quotes are those of the MySQL 8.4 reference manual. This module is long because MySQL has its own rules for most
pairs of types.
"""

from collections.abc import Callable, Mapping
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

from cdc_assets.expressions import compute_once, first_true
from cdc_assets.mysql_types.casting import HEX, decode, text_array
from cdc_assets.mysql_types.descriptors import TYPES, Family
from cdc_assets.mysql_types.types import MySQLType


class _TypeChange(NamedTuple):
    """What a conversion depends on beside the value."""

    old: MySQLType
    new: MySQLType
    target: DataType
    time_zone: str
    of_tidb: bool


_Printer = Callable[[Column, _TypeChange], Column | None]
"""Returns the text of a value of the old type; None if the text is not known."""
_Reader = Callable[[Column, _TypeChange], Column]
"""Returns the value of the new type that a text states."""


def converted(
    value: Column, old: MySQLType, new: MySQLType, target: DataType, time_zone: str, *, of_tidb: bool
) -> Column | None:
    """Return a value after the type of its column was changed.

    Args:
        value: the typed value, of type `casting.spark_type(old)`.
        old: the type before. A length or scale of None is not known; a DATETIME, TIMESTAMP or TIME without a length has
            whole seconds, unless its values have fractions.
        new: the type after, as a DDL statement declares it (`types.declared`): DATETIME, TIMESTAMP and TIME without a length
            have whole seconds.
        target: `casting.spark_type(new)`, or a type that `casting.widen` returned for it.
        time_zone: the zone of the feed. MySQL converts between TIMESTAMP and other types in the zone of the session that
            changes the table; no record states that zone, so the feed's is assumed. A local time that occurs twice is the
            earlier instant, as in `casting.decode`.
        of_tidb: whether the source is TiDB, which rounds fractions of seconds as MySQL does, and stores texts in UTF-8. Else
            it may be MariaDB, which cuts fractions off, and bytes of texts depend on the column's character set.

    Returns:
        A column of type `target`, NULL if the value is NULL or its conversion is not known; None if conversions between
        these types are not known, or depend on more than the value.
    """
    if any(t.base in {"enum", "set"} and t.labels is None for t in (old, new)):
        return None
    conversion = _CONVERSIONS.get((TYPES[old.base].family, TYPES[new.base].family))
    return conversion and conversion(value, _TypeChange(old, new, target, time_zone, of_tidb))


_Conversion = Callable[[Column, _TypeChange], Column | None]


def _through_text(printer: _Printer, reader: _Reader) -> _Conversion:
    def convert(value: Column, change: _TypeChange) -> Column | None:
        text = printer(value, change)
        return None if text is None else compute_once(text, lambda computed: reader(computed, change))

    return convert


def _decoded(text: Column, change: _TypeChange, wire: str = "ddl") -> Column:
    return compute_once(text, lambda computed: decode(computed, change.new, wire, change.time_zone, change.target))


# Numbers as text. "Rounding Behavior" of the chapter "Precision Math"; "Out-of-Range and Overflow Handling".

# MySQL ignores blanks around a number. The lengths are limited, because a hostile text could cost hours of computing.
_NUMBER = r"^ *([+-]?(?:[0-9]{1,400}(?:[.][0-9]{0,400})?|[.][0-9]{1,400})(?:[eE][+-]?[0-9]{1,3})?) *\z"
_WIDE_INTEGER = DecimalType(38, 0)


def _as_text(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    return value.try_cast(StringType())


def _integer_text(value: Column, change: _TypeChange) -> Column | None:
    """Print an integer, with zeros up to the display width of a ZEROFILL column ("Numeric Type Attributes")."""
    if not change.old.zerofill:
        return _as_text(value, change)
    if change.old.length is None:
        return None
    text = _as_text(value, change)
    return F.when(F.length(text) >= change.old.length, text).otherwise(F.lpad(text, change.old.length, "0"))


def _unfilled_text(value: Column, change: _TypeChange) -> Column | None:
    """Print an integer without ZEROFILL; with it, leading zeros might change what the text means to the new type."""
    return None if change.old.zerofill else _as_text(value, change)


def _decimal_text(value: Column, change: _TypeChange) -> Column | None:
    """Print a decimal with all digits of its scale; without a scale they are not known."""
    return None if change.old.zerofill or change.old.length is None else _as_text(value, change)


def _numeric_text(text: Column) -> Column:
    """Return a text that is one number, without blanks and plus sign; NULL for another text, which strict mode refuses."""
    number = F.regexp_extract(text, _NUMBER, 1)
    return F.when(text.rlike(_NUMBER), F.regexp_replace(number, "^[+]", ""))


def _read_exact_text(text: Column, change: _TypeChange) -> Column:
    """Read a text as an integer; NULL for a fraction, which MariaDB does not round, if the source may be MariaDB."""
    return _read_integer(text if change.of_tidb else F.when(~text.rlike("[.eE]"), text), change)


def _read_integer(text: Column, change: _TypeChange) -> Column:
    """Read an integer, rounded half away from zero, as the manual says for columns of exact types."""
    return _decoded(_numeric_text(text).try_cast(_WIDE_INTEGER).cast(StringType()), change)


def _read_decimal(text: Column, change: _TypeChange) -> Column:
    """Read a decimal, rounded half away from zero to the new scale; without a scale, only if the target holds it exactly."""
    if change.new.length is None:
        return _decoded(_numeric_text(text), change)
    rounded = DecimalType(38, change.new.scale or 0)
    # A value of more than 38 digits stays unchanged: it fits if it needs no rounding.
    return compute_once(
        _numeric_text(text),
        lambda plain: _decoded(F.coalesce(plain.try_cast(rounded).cast(StringType()), plain), change),
    )


def _read_float(text: Column, change: _TypeChange) -> Column:
    """Read the nearest DOUBLE, and from that the nearest FLOAT; a FLOAT(m,d) only if it needs no rounding to d digits."""
    number_type = FloatType() if change.new.base == "float" else DoubleType()
    number = _numeric_text(text).try_cast(DoubleType()).try_cast(number_type)
    fits = F.abs(number) < F.lit("Infinity").cast(number_type)
    if change.new.unsigned:
        fits &= number >= 0
    if change.new.length is not None and change.new.scale is not None:
        # The integer part has m - d digits. Other values round by their binary form, which the text does not show.
        fits &= F.round(number, change.new.scale) == number
        fits &= F.abs(number) < F.lit(f"1e{change.new.length - change.new.scale}").cast(DoubleType())
    return F.when(fits, number).try_cast(change.target)


def _without_point(text: Column) -> Column:
    """Return the text of a whole number without its decimal point; NULL for another text."""
    return F.when(text.rlike(r"^-?[0-9]+([.]0*)?\z"), F.substring_index(text, ".", 1))


def _read_exact_integer(text: Column, change: _TypeChange) -> Column:
    """Read a number without a fraction; NULL with one, because its rounding is not known."""
    return _decoded(_without_point(text), change)


# FLOAT and DOUBLE.


def _scientific(number: Column) -> Column:
    """Return `d.ddde+xx` with the fewest digits, of 15 to 17, that identify a DOUBLE; NULL for subnormal numbers.

    Java prints more digits of subnormal numbers than MySQL does.
    """
    texts = [F.format_string(f"%.{digits}e", number) for digits in (14, 15, 16)]
    is_normal = (number == 0) | (F.abs(number) >= F.lit("2.2250738585072014e-308").cast(DoubleType()))
    return F.when(is_normal, F.coalesce(*(F.when(text.try_cast(DoubleType()) == number, text) for text in texts)))


def _float_digits(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    """Print a FLOAT or DOUBLE as the DOUBLE that MySQL computes with."""
    return compute_once(value.cast(DoubleType()), _scientific)


def _double_text(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    """Print a number whose text is read as DOUBLE or FLOAT again, so that the digits need not be MySQL's."""
    return value.cast(DoubleType()).cast(StringType())


def _six_digits(number: Column) -> Column:
    """Return a FLOAT rounded to the six digits that MySQL prints, half to even."""
    text = F.format_string("%.16e", number)
    digits = F.bround(F.substring_index(text, "e", 1).try_cast(DecimalType(18, 16)), 5)
    return F.concat_ws("e", digits.cast(StringType()), F.substring_index(text, "e", -1)).try_cast(DoubleType())


_SCIENTIFIC = r"^(-?)([0-9])[.]([0-9]*?)0*e([+-][0-9]+)\z"


def _printed(scientific: Column) -> Column:
    """Return MySQL's text of a FLOAT or DOUBLE from its scientific text.

    It has no exponent from 1e-15 on, up to 15 digits before the point or as long as there are digits after the point.
    """
    sign, first, others, power = (F.regexp_extract(scientific, _SCIENTIFIC, group) for group in range(1, 5))
    parts = F.struct(
        sign.alias("sign"), F.concat(first, others).alias("digits"), (power.try_cast(IntegerType()) + 1).alias("point")
    )

    def formatted(number: Column) -> Column:
        digits, point, count = number["digits"], number["point"], F.length(number["digits"])
        fraction = F.substr(digits, point + 1, count)
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
            (F.lit(True), F.concat(F.substr(digits, F.lit(1), point), F.lit("."), fraction)),
        )
        return F.concat(number["sign"], text)

    return F.when(scientific.isNotNull(), compute_once(parts, formatted))


def _float_text(value: Column, change: _TypeChange) -> Column | None:
    """Print a FLOAT(m,d) with d digits after the point, a FLOAT with up to six digits, a DOUBLE with all that it needs."""
    if change.old.zerofill:
        return None
    number = value.cast(DoubleType())
    if change.old.scale is not None:
        exact = compute_once(number, _scientific)
        return exact.try_cast(DecimalType(38, change.old.scale)).cast(StringType())
    if change.old.base == "float":
        number = compute_once(number, _six_digits)
    return compute_once(compute_once(number, _scientific), _printed)


def _nearest_text(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    """Print the nearest integer; NULL for a half, which the manual rounds away from zero and MySQL (`rint`) to even."""

    def nearest(number: Column) -> Column:
        return F.when(F.rint(number) == F.round(number), F.rint(number).try_cast(_WIDE_INTEGER))

    return compute_once(value.cast(DoubleType()), nearest).cast(StringType())


# Text and bytes. "The CHAR and VARCHAR Types", "The BINARY and VARBINARY Types", "The BLOB and TEXT Types".


def _read_text(text: Column, change: _TypeChange) -> Column:
    """Read a text; NULL if it is too long by more than blanks. A CHAR loses the blanks at its end."""
    length, most = change.new.length, TYPES[change.new.base].capacity
    stored = text
    if most is not None:
        stored = F.when(F.octet_length(text) <= most, text)
    elif length is not None:
        rest_is_blank = F.rtrim(F.substr(text, F.lit(length + 1))) == ""
        stored = F.when(rest_is_blank, F.substring(text, 1, length))
    return (F.rtrim(stored) if change.new.base == "char" else stored).try_cast(change.target)


def _read_bytes(text: Column, change: _TypeChange) -> Column:
    """Read the bytes of a text; NULL for other characters than ASCII if they may have another character set than UTF-8."""
    in_utf8 = text if change.of_tidb else F.when(text.rlike(r"^[\x00-\x7f]*\z"), text)
    return _stored_bytes(F.encode(in_utf8, "UTF-8"), change)


def _stored_bytes(data: Column, change: _TypeChange) -> Column:
    """Return the bytes in the new type; NULL if they are too many. BINARY(n) is filled up with zero bytes."""
    most = TYPES[change.new.base].capacity or change.new.length
    text = F.concat(F.lit(HEX), F.hex(data))
    return _decoded(text if most is None else F.when(F.octet_length(data) <= most, text), change, "debezium")


def _utf8_text(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    return compute_once(value.cast(StringType()), lambda text: F.when(F.is_valid_utf8(text), text))


# Dates and times. "Date and Time Literals", "Conversion Between Date and Time Types", "Fractional Seconds in Time Values".

_P = r"\p{Punct}"
_SECONDS = "([0-9]{1,2})(?:[.]([0-9]{0,6}))?"
# Year, month, day, hour, minute, second, fraction: with any delimiters, and without delimiters.
_DELIMITED = (
    rf"^ *([0-9]{{4}}|[0-9]{{2}}){_P}([0-9]{{1,2}}){_P}([0-9]{{1,2}})"
    rf"(?:(?: +|T)([0-9]{{1,2}}){_P}([0-9]{{1,2}}){_P}{_SECONDS})? *\z"
)
_RUN_TOGETHER = r"^ *([0-9]{4}|[0-9]{2})([0-9]{2})([0-9]{2})(?:([0-9]{2})([0-9]{2})([0-9]{2})(?:[.]([0-9]{0,6}))?)? *\z"
_PARTS_OF_DATE = "$1-$2-$3 $4:$5:$6.$7"
_MICROS = 1_000_000


def _century(year: Column) -> Column:
    """Return a year of two digits with its century: 70 to 99 are 1970 to 1999, 00 to 69 are 2000 to 2069.

    "2-Digit Years in Dates".
    """
    return F.when(F.length(year) > 2, year).otherwise(F.concat(F.when(year >= "70", "19").otherwise("20"), year))


def _read_stamp(text: Column) -> Column:
    """Return the date and time that a text states, as TIMESTAMP_NTZ; NULL if it states none."""
    parts = first_true(
        (text.rlike(_RUN_TOGETHER), F.regexp_replace(text, _RUN_TOGETHER, _PARTS_OF_DATE)),
        (text.rlike(_DELIMITED), F.regexp_replace(text, _DELIMITED, _PARTS_OF_DATE)),
    )

    def stamp(part: Column) -> Column:
        month, day, hour, minute, second = (F.lpad(part[at], 2, "0") for at in range(1, 6))
        date = F.concat_ws("-", _century(part[0]), month, day)
        clock = F.concat(F.concat_ws(":", hour, minute, second), F.lit("."), F.rpad(part[6], 6, "0"))
        return F.when(part[0] != "0000", F.concat_ws(" ", date, clock)).try_cast(TimestampNTZType())

    return compute_once(F.split(parts, "[-: .]"), stamp)


def _stamp_text(stamp: Column) -> Column:
    """Return `YYYY-MM-DD hh:mm:ss.ffffff`, always with six digits after the point."""

    def filled(text: Column) -> Column:
        return F.concat(F.substring(text, 1, 19), F.lit("."), F.rpad(F.substring(text, 21, 6), 6, "0"))

    return compute_once(stamp.try_cast(StringType()), filled)


def _rounded(stamp: Column, digits: int) -> Column:
    """Return the text of a date and time with `digits` fractional digits, rounded half up."""
    later = stamp if digits == 6 else stamp + F.make_dt_interval(secs=F.lit(Decimal(5).scaleb(-digits - 1)))
    return F.substring(_stamp_text(later), 1, 19 + digits + bool(digits))


def _agreed(rounded: Column, cut: Column, change: _TypeChange) -> Column:
    """Return the rounded value; NULL if MariaDB would have another, `cut`, and the source may be MariaDB."""
    return rounded if change.of_tidb else F.when(rounded == cut, rounded)


def _shortened(stamp: Column, change: _TypeChange) -> Column:
    """Return the text of a date and time with the fractional digits of the new type."""
    digits = _digits(change.new)
    cut = F.substring(_stamp_text(stamp), 1, 19 + digits + bool(digits))
    return _agreed(_rounded(stamp, digits), cut, change)


def _digits(mysql_type: MySQLType) -> int:
    """Return the fractional digits of a type: "If omitted, the default precision is 0"."""
    return mysql_type.length or 0


def _local(value: Column, change: _TypeChange) -> Column:
    """Return a DATE, DATETIME or TIMESTAMP as TIMESTAMP_NTZ in the feed's zone."""
    if TYPES[change.old.base].family is not Family.TIMESTAMP:
        return value.try_cast(TimestampNTZType())
    # Not by a cast, which would use the session's zone.
    seconds = (F.unix_micros(value) / F.lit(_MICROS).cast(DecimalType(7, 0))).cast(DecimalType(18, 6))
    utc = F.lit("1970-01-01").cast(TimestampNTZType()) + F.make_dt_interval(secs=seconds)
    return F.convert_timezone(F.lit("UTC"), F.lit(change.time_zone), utc)


def _date_text(value: Column, change: _TypeChange) -> Column:
    return F.substring(_full_text(value, change), 1, 10)


def _full_text(value: Column, change: _TypeChange) -> Column:
    return _stamp_text(_local(value, change))


def _datetime_text(value: Column, change: _TypeChange) -> Column:
    """Print a date and time with all fractional digits of its type; NULL if the value has more digits than the type."""
    end = 19 + _digits(change.old) + bool(_digits(change.old))

    def cut(text: Column) -> Column:
        return F.when(~F.substring(text, end + 1, 7).rlike("[1-9]"), F.substring(text, 1, end))

    return compute_once(_full_text(value, change), cut)


_TIMES = frozenset({Family.DATETIME, Family.TIMESTAMP, Family.TIME})


def _if_digits_stated(text: Column, change: _TypeChange) -> Column:
    """Return the text; NULL if it has a fraction and the types lack the digits to which MySQL rounds it.

    Both types may lack their fractional digits, as TiCDC writes types: a fraction in a value shows it.
    """
    is_time = TYPES[change.old.base].family in _TIMES
    if not is_time or change.old.length is not None or change.new.length is not None:
        return text
    return F.when(~text.rlike("[.][0-9]*[1-9]"), text)


def _read_date(text: Column, change: _TypeChange) -> Column:
    """Read a date; in the last half second of a day it is the next day, as the manual says."""

    def date(stamp: Column) -> Column:
        return _agreed(F.substring(_rounded(stamp, 0), 1, 10), F.substring(_stamp_text(stamp), 1, 10), change)

    return _decoded(compute_once(_read_stamp(text), date), change)


def _read_shortened(text: Column, change: _TypeChange) -> Column:
    """Return the text of the date and time that a text states, as `_shortened`."""
    return compute_once(_read_stamp(_if_digits_stated(text, change)), lambda stamp: _shortened(stamp, change))


def _read_datetime(text: Column, change: _TypeChange) -> Column:
    return _decoded(_read_shortened(text, change), change)


def _read_timestamp(text: Column, change: _TypeChange) -> Column:
    """Read an instant in the feed's zone; NULL for a local time that does not exist, which strict mode refuses."""

    def instant(rounded: Column) -> Column:
        decoded = _decoded(rounded, change)
        local = _local(decoded, change._replace(old=change.new))
        return F.when(local == rounded.try_cast(TimestampNTZType()), decoded)

    return compute_once(_read_shortened(text, change), instant)


def _rounded_instant(value: Column, change: _TypeChange) -> Column | None:
    """Convert a TIMESTAMP to other digits, in UTC, where no local time is left out or occurs twice."""
    return _through_text(_full_text, _read_timestamp)(value, change._replace(time_zone="UTC"))


def _read_time_of_day(text: Column, change: _TypeChange) -> Column:
    """Read the time of a date and time; NULL if rounding goes to the next day, for which the manual has no rule."""

    def clock(stamp: Column) -> Column:
        rounded = _shortened(stamp, change)
        is_same_day = F.substring(rounded, 1, 10) == F.substring(_stamp_text(stamp), 1, 10)
        return F.when(is_same_day, F.substring(rounded, 12, 15))

    return _decoded(compute_once(_read_stamp(_if_digits_stated(text, change)), clock), change)


# Sign, days, hours, minutes, seconds, fraction: "11:12" is 11:12:00, "1112" is 00:11:12.
_TIME_SHAPES = (
    (rf"^ *(-?)(?:([0-9]{{1,2}}) +)?([0-9]{{1,3}}):([0-9]{{1,2}})(?::{_SECONDS})? *\z", "$1;$2;$3;$4;$5;$6"),
    (r"^ *(-?)([0-9]{1,2}) +([0-9]{1,3}) *\z", "$1;$2;$3;;;"),
    (rf"^ *(-?)([0-9]{{0,3}}?)([0-9]{{0,2}}?){_SECONDS} *\z", "$1;;$2;$3;$4;$5"),
)


def _micros(text: Column) -> Column:
    """Return the time that a text states, as BIGINT microseconds; NULL if it states none."""
    parts = first_true(*((text.rlike(shape), F.regexp_replace(text, shape, to)) for shape, to in _TIME_SHAPES))

    def total(part: Column) -> Column:
        days, hours, minutes, seconds = (F.coalesce(part[at].try_cast(LongType()), F.lit(0)) for at in range(1, 5))
        total_seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        size = total_seconds * _MICROS + F.rpad(part[5], 6, "0").try_cast(LongType())
        return F.when((minutes < 60) & (seconds < 60), F.when(part[0] == "-", -size).otherwise(size))

    return compute_once(F.split(parts, ";"), total)


def _clock_text(micros: Column, digits: int) -> Column:
    """Return `[-]hh:mm:ss[.f]` with `digits` fractional digits, rounded half away from zero."""
    unit = 10 ** (6 - digits)
    half_up = F.abs(micros) + unit // 2
    size = half_up - half_up % unit
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
    digits = _digits(change.new)
    unit = 10 ** (6 - digits)

    def clock(micros: Column) -> Column:
        # Java's remainder has the sign of the dividend.
        return _agreed(_clock_text(micros, digits), _clock_text(micros - micros % unit, digits), change)

    return _decoded(compute_once(_micros(_if_digits_stated(text, change)), clock), change)


def _time_text(value: Column, change: _TypeChange) -> Column:
    """Print a time with all fractional digits of its type; unchanged if these are not known."""
    digits = change.old.length
    return value if digits is None else compute_once(_micros(value), lambda micros: _clock_text(micros, digits))


def _midnight_text(value: Column, change: _TypeChange) -> Column:  # noqa: ARG001 -- every step has the same signature
    """Print the TIME of a DATE: "Conversion to a TIME value is not useful; the result is '00:00:00'"."""
    return F.when(value.isNotNull(), F.lit("00:00:00"))


def _year_text(value: Column, change: _TypeChange) -> Column:
    return F.lpad(_as_text(value, change), 4, "0")


# Dates and times as numbers: hhmmss, YYYYMMDD and YYYYMMDDhhmmss, with the fraction.


def _without_delimiters(printer: Callable[[Column, _TypeChange], Column]) -> _Printer:
    """Return a printer without the delimiters in what `printer` prints; a minus sign stays."""
    return lambda value, change: F.regexp_replace(printer(value, change), "(?<=.)[- :]", "")


def _read_clock_as_integer(text: Column, change: _TypeChange) -> Column:
    """Read a rounded number; NULL for 60 seconds, which stay by the manual and become a minute by MySQL's code."""
    rounded = _numeric_text(text).try_cast(_WIDE_INTEGER)
    number = _agreed(rounded, F.substring_index(text, ".", 1).try_cast(_WIDE_INTEGER), change)
    return _decoded(F.when(F.abs(number) % 100 != 60, number.cast(StringType())), change)


# "The YEAR Type", "2-Digit Years in Dates".


def _read_year_text(text: Column, change: _TypeChange) -> Column:
    digits = F.when(text.rlike(r"^ *([0-9]{1,2}|[0-9]{4}) *\z"), F.trim(text))
    return _decoded(_century(F.when(F.length(digits) == 1, F.lpad(digits, 2, "0")).otherwise(digits)), change)


def _read_year_number(text: Column, change: _TypeChange) -> Column:
    """Read a year from a number, which differs from text in that 0 is the year 0000; NULL with a fraction."""
    number = _without_point(text).try_cast(IntegerType())
    short = number.between(1, 99)
    year = F.when(short, number + F.when(number >= 70, 1900).otherwise(2000)).otherwise(number)
    return _decoded(year.cast(StringType()), change)


# "The ENUM Type", "The SET Type".


def _folded(labels: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the labels in lower case; None if two labels differ in case only, so that the collation is case-sensitive."""
    lower = tuple(label.lower() for label in labels)
    return lower if len(set(lower)) == len(labels) else None


def _read_label(text: Column, change: _TypeChange) -> Column:
    """Read the label with this spelling, else with this spelling in another case, else with this number.

    The empty value for errors of an ENUM stays; strict mode refuses an empty text of other types.
    """
    labels = change.new.labels or ()
    folded = _folded(labels)
    spelled = F.rtrim(text)
    place = F.nullif(F.array_position(text_array(labels), spelled), F.lit(0))
    if folded is not None:
        place = F.coalesce(place, F.nullif(F.array_position(text_array(folded), F.lower(spelled)), F.lit(0)))
    number = F.when(spelled.rlike(r"^[1-9][0-9]{0,4}\z"), spelled.try_cast(LongType()))
    label = F.get(text_array(labels), F.coalesce(place, number) - 1)
    if change.old.base == "enum":
        label = F.when(text == "", text).otherwise(label)
    return label.try_cast(change.target)


def _read_labels(text: Column, change: _TypeChange) -> Column:
    """Read the labels of a SET, in the order of its definition, each once; NULL if the text has another label."""
    labels = change.new.labels or ()
    folded = _folded(labels)
    texts = F.split(text if folded is None else F.lower(text), ",")

    def chosen(texts: Column) -> Column:
        names = labels if folded is None else folded
        marked = (
            F.when(F.array_contains(texts, name), F.lit(label)) for name, label in zip(names, labels, strict=True)
        )
        unknown = F.size(F.array_except(texts, text_array(names)))
        return F.when(unknown == 0, F.concat_ws(",", *marked))

    return F.when(text == "", text).otherwise(compute_once(texts, chosen)).try_cast(change.target)


def _read_ordinal(text: Column, change: _TypeChange) -> Column:
    """Read the label with this number, or the labels of these bits.

    NULL for 0 of an ENUM, its value for errors, and for a number that is also a label's spelling: by the manual it is an
    index, but MySQL's code reads its text.
    """
    numeric = [label for label in (change.new.labels or ()) if label.isdecimal()]
    is_index = ~F.array_contains(text_array(numeric), text)
    if change.new.base == "enum":
        is_index &= text != "0"
    return _decoded(F.when(is_index, text), change, "canal-json")


def _enum_ordinal(value: Column, change: _TypeChange) -> Column:
    """Print a label's number; the empty value for errors has 0."""
    labels = change.old.labels or ()
    place = F.array_position(text_array(labels), value)
    # An empty label looks like the empty value for errors, so its number is not known.
    has_number = (place > 0) & (value != "") if "" in labels else (place > 0) | (value == "")
    return F.when(has_number, place.cast(StringType()))


def _set_bits(value: Column, change: _TypeChange) -> Column:
    """Print the number whose bits are the labels; the first label has the lowest bit."""
    bits = F.create_map(
        *(F.lit(x) for at, label in enumerate(change.old.labels or ()) for x in (label, Decimal(1 << at)))
    )
    zero = F.lit(Decimal(0)).cast(_WIDE_INTEGER)
    labels = F.filter(F.split(value, ","), lambda label: label != "")

    def added(total: Column, label: Column) -> Column:
        return (total + F.try_element_at(bits, label).cast(_WIDE_INTEGER)).cast(_WIDE_INTEGER)

    return F.aggregate(labels, zero, added).cast(StringType())


# "The JSON Data Type".

# Documents that MySQL prints unchanged: without fractions and escapes, and with nothing that MySQL sorts or formats.
_SIMPLE_JSON = r'^[ \t\r\n]*(0|-?[1-9][0-9]{0,17}|true|false|null|\[\]|[{][}]|"[^"\\\x00-\x1f]*")[ \t\r\n]*\z'


def _read_json(text: Column, change: _TypeChange) -> Column:
    return F.when(text.rlike(_SIMPLE_JSON), F.regexp_extract(text, _SIMPLE_JSON, 1)).try_cast(change.target)


def _same(value: Column, change: _TypeChange) -> Column | None:
    """Keep a JSON document, and any shape as GEOMETRY; there is no conversion from one shape to another."""
    return value.try_cast(change.target) if change.new.base in {change.old.base, "geometry"} else None


# The text that MySQL prints.
_PRINTED: dict[Family, _Printer] = {
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
# The number that a value is in MySQL's arithmetic.
_NUMBERS: dict[Family, _Printer] = {
    Family.INTEGER: _as_text,
    Family.DECIMAL: _as_text,
    Family.FLOAT: _float_digits,
    Family.BIT: _as_text,
    Family.TEXT: _as_text,
    Family.ENUM: _enum_ordinal,
    Family.SET: _set_bits,
    Family.DATE: _without_delimiters(_date_text),
    Family.DATETIME: _without_delimiters(_full_text),
    Family.TIMESTAMP: _without_delimiters(_full_text),
    Family.TIME: _without_delimiters(_as_text),
    Family.YEAR: _as_text,
    Family.JSON: _as_text,
}
# The text from which MySQL reads a date and time.
_STAMPS: dict[Family, _Printer] = {
    Family.INTEGER: _unfilled_text,
    Family.DECIMAL: _decimal_text,
    Family.TEXT: _as_text,
    Family.DATE: _full_text,
    Family.DATETIME: _full_text,
    Family.TIMESTAMP: _full_text,
}
# The text from which MySQL reads a time.
_TIME_TEXTS: dict[Family, _Printer] = {
    Family.INTEGER: _unfilled_text,
    Family.DECIMAL: _decimal_text,
    Family.TEXT: _as_text,
    Family.TIME: _as_text,
    Family.DATE: _midnight_text,
}


def _read_by(
    reader: _Reader, new: Family, printers: Mapping[Family, _Printer]
) -> Mapping[tuple[Family, Family], _Conversion]:
    """Return the conversions to a family by one reader, from each family of `printers` by its printer."""
    return {(old, new): _through_text(printer, reader) for old, printer in printers.items()}


# These conversions are missing, because they are not known: BIT to text (bytes or digits, depending on the text's length)
# and text to BIT, bytes to types other than text, TIME to types with a date (MySQL uses today's), temporal types to YEAR and
# back, FLOAT and DOUBLE to temporal types, JSON to types other than text and integers, spatial types to others.
_CONVERSIONS: Mapping[tuple[Family, Family], _Conversion] = MappingProxyType(
    {
        **_read_by(_read_text, Family.TEXT, _PRINTED),
        **_read_by(_read_bytes, Family.BINARY, _PRINTED),
        **_read_by(_read_decimal, Family.DECIMAL, _NUMBERS),
        **_read_by(_read_float, Family.FLOAT, _NUMBERS | {Family.FLOAT: _double_text}),
        **_read_by(_read_integer, Family.INTEGER, _NUMBERS | {Family.FLOAT: _nearest_text}),
        **_read_by(_read_clock_as_integer, Family.INTEGER, {old: _NUMBERS[old] for old in _TIMES}),
        (Family.TEXT, Family.INTEGER): _through_text(_as_text, _read_exact_text),
        (Family.JSON, Family.INTEGER): _through_text(_as_text, _read_exact_integer),
        **_read_by(_read_exact_integer, Family.BIT, dict.fromkeys((Family.INTEGER, Family.BIT), _as_text)),
        **_read_by(_read_date, Family.DATE, _STAMPS),
        **_read_by(_read_datetime, Family.DATETIME, _STAMPS),
        **_read_by(_read_timestamp, Family.TIMESTAMP, _STAMPS),
        (Family.TIMESTAMP, Family.TIMESTAMP): _rounded_instant,
        **_read_by(_read_time, Family.TIME, _TIME_TEXTS),
        **_read_by(_read_time_of_day, Family.TIME, dict.fromkeys((Family.DATETIME, Family.TIMESTAMP), _full_text)),
        **_read_by(
            _read_year_number, Family.YEAR, dict.fromkeys((Family.INTEGER, Family.DECIMAL, Family.YEAR), _as_text)
        ),
        (Family.TEXT, Family.YEAR): _through_text(_as_text, _read_year_text),
        **_read_by(_read_label, Family.ENUM, dict.fromkeys((Family.TEXT, Family.ENUM, Family.SET), _as_text)),
        **_read_by(_read_labels, Family.SET, dict.fromkeys((Family.TEXT, Family.ENUM, Family.SET), _as_text)),
        (Family.INTEGER, Family.ENUM): _through_text(_unfilled_text, _read_ordinal),
        (Family.INTEGER, Family.SET): _through_text(_unfilled_text, _read_ordinal),
        (Family.BINARY, Family.TEXT): _through_text(_utf8_text, _read_text),
        (Family.BINARY, Family.BINARY): _stored_bytes,
        (Family.JSON, Family.TEXT): _through_text(_as_text, _read_text),
        (Family.JSON, Family.JSON): _same,
        **_read_by(_read_json, Family.JSON, dict.fromkeys((Family.TEXT, Family.INTEGER), _unfilled_text)),
        (Family.SPATIAL, Family.SPATIAL): _same,
    }
)
