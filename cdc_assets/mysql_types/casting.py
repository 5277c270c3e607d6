r"""Casts of MySQL values from the texts in messages to typed Spark columns, with native expressions only.

The table `_DECODERS` has the expression for each dialect and family of types; a new dialect is a new entry. No value makes
an expression fail: a value that does not fit becomes NULL, and `problem` returns why.

Every text is matched with a pattern before Spark casts it, because Spark's casts accept more than MySQL prints: blanks
around numbers, `+1`, `1e3`, `1d`, `NaN`, dates without days, and decimals that they round. (Patterns end in `\z`, because
`$` in Java also matches before a closing line feed.)

This module is long because it has a decoder for each form in which a dialect writes a family's values.
"""

import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, reduce
from operator import or_
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from cdc_assets.expressions import compute_once
from cdc_assets.mysql_types.descriptors import TIMESTAMP_RANGE, TYPES, Family, Range
from cdc_assets.mysql_types.types import MySQLType, value_range

_SPARK_TYPES = {
    spark_type.simpleString(): spark_type
    for spark_type in (
        *(ByteType(), ShortType(), IntegerType(), LongType(), DecimalType(20, 0), FloatType(), DoubleType()),
        *(StringType(), BinaryType(), DateType(), TimestampNTZType(), TimestampType()),
    )
}
MAX_PRECISION = 38
"""The most digits of a decimal of Spark."""
HEX = "hex:"
"""Before bytes in hexadecimal digits, in the dialect `debezium`: base64 has no colon, so no base64 text begins like this."""
_MAX_BITS_IN_BIGINT = 63


def spark_type(mysql_type: MySQLType, scale_seen: int = 0) -> DataType:
    """Return the Spark type of a history column for a MySQL type.

    Args:
        mysql_type: the source column's type.
        scale_seen: for a decimal of unknown precision, the largest number of digits after the point among its values.
    """
    row = TYPES[mysql_type.base]
    if row.family is Family.DECIMAL:
        if mysql_type.length is None:
            return DecimalType(MAX_PRECISION, min(scale_seen, MAX_PRECISION))
        if mysql_type.length > MAX_PRECISION:
            return StringType()
        return DecimalType(mysql_type.length, mysql_type.scale or 0)
    if row.family is Family.BIT:
        fits = mysql_type.length is not None and mysql_type.length <= _MAX_BITS_IN_BIGINT
        return LongType() if fits else DecimalType(20, 0)
    return _SPARK_TYPES[(mysql_type.unsigned and row.spark_unsigned) or row.spark]


class _DecodeContext(NamedTuple):
    """What a decoder depends on beside the value."""

    type: MySQLType
    time_zone: str
    target: DataType


_Decoder = Callable[[Column, _DecodeContext], Column]


def decode(value: Column, mysql_type: MySQLType, wire: str, time_zone: str, target: DataType) -> Column:
    """Return a value's text as a typed column.

    Args:
        value: STRING, the text in the message, or NULL.
        mysql_type: the type that the source column had when the value was written.
        wire: the dialect of the text: `canal-json`, `open-protocol`, `simple`, `debezium` (for texts of
            `debezium.mysql_text`), `dump` for dumped values (`protocols.loaded`), or `ddl` for the text of a default
            (`ddl.Column.default`).
        time_zone: zone in which the source prints TIMESTAMP values: a region (`Asia/Tokyo`) or an offset (`+09:00`). A
            printed local time that occurs twice, or that a clock change leaves out, is no instant: NULL. In a default it is
            what MySQL makes of it: the earlier instant, or one that is moved forward. A Z at the end of a default is UTC.
        target: `spark_type(mysql_type)`, or a type that `widen` returned for it. A column of another type gets the values
            that the type holds unchanged.

    Returns:
        A column of type `target`; NULL if the value is NULL or is not a value of `mysql_type` and of `target`. Length limits
        of texts and bytes are not enforced: the Spark types hold any length.

    Raises:
        ValueError: the dialect is unknown.
    """
    if wire not in _DECODERS:
        raise ValueError(f"unknown wire dialect {wire!r}: one of {', '.join(sorted(_DECODERS))}")
    decoder = _DECODERS[wire][TYPES[mysql_type.base].family]
    own = spark_type(mysql_type, target.scale if isinstance(target, DecimalType) else 0)
    are_decimals = TYPES[mysql_type.base].family is Family.DECIMAL and isinstance(target, DecimalType)
    are_texts = isinstance(target, StringType) and not isinstance(own, BinaryType)
    is_wider = are_decimals or are_texts or widen(own, target) == target
    typed = decoder(value, _DecodeContext(mysql_type, time_zone, target if is_wider else own))
    return (
        typed.try_cast(target) if is_wider else compute_once(typed.try_cast(own), lambda v: _unchanged(v, own, target))
    )


def _unchanged(value: Column, own: DataType, target: DataType) -> Column:
    """Return a value in a column of another type; NULL if the cast and the cast back change the value."""
    if not _is_castable(own, target):
        return F.lit(None).cast(target)
    cast = value.try_cast(target)
    is_same = cast.try_cast(own) == value
    return F.when(is_same & F.is_valid_utf8(cast) if isinstance(target, StringType) else is_same, cast)


def _is_castable(own: DataType, target: DataType) -> bool:
    """Return whether Spark can cast one type to the other and back."""
    both = {type(own), type(target)}
    if StringType in both:
        return True
    return both <= {DateType, TimestampNTZType, TimestampType} or all(issubclass(t, NumericType) for t in both)


def problem(value: Column, typed: Column, mysql_type: MySQLType) -> Column:
    """Return why a value could not be decoded.

    Args:
        value: STRING, the text in the message.
        typed: the result of `decode` for it.
        mysql_type: the source column's type.

    Returns:
        STRING: NULL if the value could be decoded, `zero_date` for zero and invalid dates that MySQL permits in such a
        column, `unclear_time` for a TIMESTAMP whose local time occurs twice or not at all, else `bad_value`.
    """
    reason: Column = F.lit("bad_value")
    if TYPES[mysql_type.base].family is Family.TIMESTAMP:
        day = F.regexp_extract(value, f"({_DATE}) {_PERMITTED_CLOCK}", 1).try_cast("date")
        reason = F.when(day.between(F.lit("1970-01-02"), F.lit("2038-01-18")), F.lit("unclear_time")).otherwise(reason)
    permitted = _PERMITTED_DATES.get(TYPES[mysql_type.base].family)
    if permitted is not None:
        date = F.substring(value, 1, len("0000-00-00")).try_cast("date")
        is_no_date = date.isNull() | value.startswith("0000")
        reason = F.when(value.rlike(permitted) & is_no_date, F.lit("zero_date")).otherwise(reason)
    return F.when(value.isNotNull() & typed.isNull(), reason)


_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
# By how much clocks go back where they do: by an hour, rarely by half of one (Lord Howe Island) or two (Antarctica/Troll).
_REPEATED_MINUTES = (30, 60, 120)
_TIMESTAMP_DAYS = 25_000  # more than from 1970 to 2038
# Without NO_ZERO_DATE and NO_ZERO_IN_DATE, or with ALLOW_INVALID_DATES, MySQL stores dates with month or day 00, or with a
# day that the month does not have, in DATE and DATETIME. TIMESTAMP stores only the zero date.
_PERMITTED_DATE = "[0-9]{4}-(0[0-9]|1[0-2])-([0-2][0-9]|3[01])"
_PERMITTED_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?"
_PERMITTED_DATES = {
    Family.DATE: rf"^{_PERMITTED_DATE}\z",
    Family.DATETIME: rf"^{_PERMITTED_DATE} {_PERMITTED_CLOCK}\z",
    # Alone, or in Simple's JSON object of zone and value.
    Family.TIMESTAMP: r'^([{].*"value":")?0000-00-00 00:00:00([.]0{1,6})?("[^"]*("[^"]*"){0,2}[}])?\z',
}


def _integer(value: Column, context: _DecodeContext) -> Column:
    limits = value_range(context.type)
    if limits is None:
        raise ValueError(f"{context.type} has no range")
    return _integer_within(value, limits)


_LONG = Range(-(1 << 63), (1 << 63) - 1)


def _integer_within(value: Column, limits: Range) -> Column:
    """Return decimal digits as BIGINT, or as DECIMAL(20,0) if the limits need it; NULL outside the limits."""
    number_type: DataType = LongType() if limits.high < 1 << 63 else DecimalType(20, 0)
    is_integer, number = value.rlike(r"^-?[0-9]+\z"), value.try_cast(number_type)
    if limits == _LONG:
        return F.when(is_integer, number)
    low, high = (F.lit(str(limit)).cast(number_type) for limit in limits)
    # Spark evaluates each mention of an expression: the slow pattern is used once, the fast cast three times.
    return F.when(is_integer & number.between(low, high), number)


def _year(value: Column, context: _DecodeContext) -> Column:
    number = F.when(value.rlike(r"^[0-9]{1,4}\z"), value.try_cast(ShortType()))
    low, high = value_range(context.type) or Range(0, 0)
    return F.when((number == 0) | number.between(low, high), number)


def _decimal(value: Column, context: _DecodeContext) -> Column:
    """Return a decimal exactly: a value with more digits after the point than the column has is NULL, never rounded."""
    precision, scale = context.type.length, context.type.scale or 0
    sign = "" if context.type.unsigned else "-?"
    target = context.target
    if isinstance(target, DecimalType):
        fraction = target.scale if precision is None else min(scale, target.scale)
        exact = value.rlike(rf"^({sign}[0-9]+([.][0-9]{{0,{fraction}}}0*)?|-0+([.]0*)?)\z")
        number = F.when(exact, value.try_cast(target))
        if precision is None or target.precision - target.scale <= precision - scale:
            return number
        # The column has more digits before the point than the type of the values.
        limit = F.lit("1" + "0" * (precision - scale)).cast(DecimalType(precision - scale + 1, 0))
        return F.when(F.abs(number) < limit, number)
    if precision is None:
        return F.when(value.rlike(rf"^{sign}[0-9]+([.][0-9]+)?\z"), value)
    shape = rf"^({sign})0*([0-9]{{0,{precision - scale}}})(?:[.]([0-9]{{0,{scale}}})0*)?\z"
    integer_digits = F.regexp_extract(value, shape, 2)
    digits = F.when(F.length(integer_digits) == 0, F.lit("0")).otherwise(integer_digits)
    if scale:
        digits = F.concat(digits, F.lit("."), F.rpad(F.regexp_extract(value, shape, 3), scale, "0"))
    negative = value.startswith("-") & digits.rlike("[1-9]")
    fits = value.rlike(r"^-?[0-9]+([.][0-9]*)?\z") & value.rlike(shape)
    return F.when(fits, F.concat(F.when(negative, F.lit("-")).otherwise(F.lit("")), digits))


def _float(value: Column, context: _DecodeContext) -> Column:
    number_type = _SPARK_TYPES[context.type.base]
    number = F.when(value.rlike(r"^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?\z"), value.try_cast(number_type))
    is_finite = F.abs(number) < F.lit("Infinity").cast(number_type)
    return F.when(is_finite & (number >= 0) if context.type.unsigned else is_finite, number)


def _as_is(value: Column, context: _DecodeContext) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    return value


def _latin1_bytes(value: Column, context: _DecodeContext) -> Column:
    # encode() fails the job on a character above U+00FF, so it must not get one.
    return _padded(F.when(~value.rlike(r"[^\x00-\xff]"), F.encode(value, "ISO-8859-1")), context)


def _padded(data: Column, context: _DecodeContext) -> Column:
    if context.type.base != "binary" or context.type.length is None:
        return data
    # Canal strips the trailing zero bytes of BINARY(n), TiCDC does not.
    short = F.octet_length(data) < context.type.length
    return F.when(short, F.rpad(data, context.type.length, F.lit(b"\0"))).otherwise(data)


def _base64_text(value: Column, context: _DecodeContext) -> Column:
    if TYPES[context.type.base].capacity is None:  # CHAR and VARCHAR
        return value
    data = F.try_to_binary(value, F.lit("base64"))
    return F.when(F.is_valid_utf8(data.cast("string")), data.cast("string"))


def _base64_or_quoted_bytes(value: Column, context: _DecodeContext) -> Column:
    if context.type.base in {"binary", "varbinary"}:
        return _padded(_quoted_bytes(value), context)
    return F.try_to_binary(value, F.lit("base64"))


def _base64_bytes(value: Column, context: _DecodeContext) -> Column:
    return _padded(F.try_to_binary(value, F.lit("base64")), context)


def _hex_bytes(value: Column, context: _DecodeContext) -> Column:
    return _padded(F.unhex(value), context)


def _hex_or_base64_bytes(value: Column, context: _DecodeContext) -> Column:
    digits = F.unhex(F.when(value.startswith(HEX), F.substr(value, F.lit(len(HEX) + 1))))
    return F.coalesce(_padded(digits, context), _base64_bytes(value, context))


# The parts of a text that Go's strconv.Quote wrote: printable characters unchanged, other bytes and characters as escapes.
_QUOTED = r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|\\.?|[^\\]+"
_ESCAPED = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34, "'": 39}


# Decoding removes a byte order mark at the beginning. With this one in front, a U+FEFF of the text itself stays.
_UTF32_MARK = "0000feff"


def _quoted_bytes(value: Column) -> Column:
    r"""Return the bytes of a quoted text: `\xNN` is a byte, everything else is a character and becomes UTF-8."""
    escapes = F.create_map(*[F.lit(e) for c, b in _ESCAPED.items() for e in ("\\" + c, f"{b:02X}")])

    def in_hex(part: Column) -> Column:
        number = F.lpad(F.substr(part, F.lit(3)), 8, "0")
        # Surrogates and numbers beyond 10ffff are not characters, and decode() fails the job on them.
        character = F.when(
            number.rlike("^00(0[0-9a-f]|10)") & ~number.rlike("^0000d[89a-f]"),
            F.hex(F.encode(F.decode(F.unhex(F.concat(F.lit(_UTF32_MARK), number)), "UTF-32"), "UTF-8")),
        )
        return (
            F.when(~part.startswith("\\"), F.hex(F.encode(part, "UTF-8")))
            .when(part.startswith("\\x") & (F.length(part) == 4), F.upper(F.substr(part, F.lit(3))))
            .when(F.lower(part).startswith("\\u") & (F.length(part) > 4), character)
            .otherwise(F.try_element_at(escapes, part))
        )

    parts = F.regexp_extract_all(value, F.lit(_QUOTED), F.lit(0))
    # transform() over one element computes the parts once. array_join() would leave out NULLs, so there must be none.
    texts = F.transform(F.array(parts), lambda text_parts: F.transform(text_parts, in_hex))
    joined = F.transform(texts, lambda t: F.when(F.forall(t, lambda h: h.isNotNull()), F.unhex(F.array_join(t, ""))))
    return F.when(value.contains("\\"), F.get(joined, F.lit(0))).otherwise(F.encode(value, "UTF-8"))


def _none(value: Column, context: _DecodeContext) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    return F.lit(None)


def _enum_ordinal(value: Column, context: _DecodeContext) -> Column:
    """Return the label of an ordinal, which counts from 1; a label stays. 0 is MySQL's empty value for errors."""
    labels = context.type.labels
    zero = value.rlike(r"^0+\z")
    if labels is None:
        return F.when(zero, F.lit("")).otherwise(value)
    label_array = text_array(labels)
    ordinal = F.when(value.rlike(r"^[0-9]+\z"), value.try_cast(IntegerType()))
    return F.when(zero, F.lit("")).otherwise(
        F.coalesce(F.get(label_array, ordinal - 1), F.when(F.array_contains(label_array, value), value))
    )


def _enum_label(value: Column, context: _DecodeContext) -> Column:
    labels = context.type.labels
    return value if labels is None else F.when(F.array_contains(text_array(labels), value), value)


def _enum_label_or_empty(value: Column, context: _DecodeContext) -> Column:
    """Return a label, or the empty text that MySQL has for errors."""
    return F.when(value == "", value).otherwise(_enum_label(value, context))


def _set_mask(value: Column, context: _DecodeContext) -> Column:
    """Return the labels of a bit mask, joined by commas in the order of the definition."""
    labels = context.type.labels
    mask = _integer_within(value, Range(0, (1 << (64 if labels is None else len(labels))) - 1))
    if labels is None:
        return F.when(mask == 0, F.lit("")).otherwise(F.when(mask.isNotNull(), value))
    if len(labels) == 64:
        # In two's complement, because the 64th bit is the sign of BIGINT.
        above = F.lit(str(1 << 64)).cast(DecimalType(20, 0))
        mask = F.when(mask < F.lit(str(1 << 63)).cast(DecimalType(20, 0)), mask).otherwise(mask - above)
    bits = mask.try_cast(LongType())

    def chosen(mask: Column) -> Column:
        return F.concat_ws(
            ",", *(F.when(F.getbit(mask, F.lit(place)) == 1, F.lit(label)) for place, label in enumerate(labels))
        )

    # transform() over one element evaluates the mask once, not once per label.
    return F.when(bits.isNotNull(), F.get(F.transform(F.array(bits), chosen), F.lit(0)))


def _accepting_twos_complement(decoder: _Decoder) -> _Decoder:
    """Return a decoder of bits that also accepts negative numbers: Simple's Avro sends 64 bits in two's complement."""

    def decode_either(value: Column, context: _DecodeContext) -> Column:
        above = F.lit(str(1 << 64)).cast(DecimalType(20, 0))
        unsigned = (value.try_cast(DecimalType(20, 0)) + above).cast(StringType())
        return decoder(F.when(value.rlike(r"^-[1-9][0-9]{0,18}\z"), unsigned).otherwise(value), context)

    return decode_either


def _set_labels(value: Column, context: _DecodeContext) -> Column:
    labels = context.type.labels
    if labels is None:
        return value
    unknown = F.array_except(F.split(value, ","), text_array(labels))
    return F.when((value == "") | (F.size(unknown) == 0), value)


def text_array(texts: Iterable[str]) -> Column:
    """Return an array of texts, ARRAY<STRING>."""
    return F.array(*(F.lit(text) for text in texts)).cast("array<string>")


def _date(value: Column, context: _DecodeContext) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    return F.when(value.rlike(rf"^(?!0000){_DATE}\z"), value.try_cast(DateType()))


def _datetime(value: Column, context: _DecodeContext) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    return F.when(value.rlike(rf"^(?!0000){_DATE} {_CLOCK}\z"), value.try_cast(TimestampNTZType()))


def _timestamp(value: Column, context: _DecodeContext) -> Column:
    """Read the local time of an instant that the source has printed; NULL if it does not say which instant."""
    zone = F.lit(context.time_zone)
    return _clear_instant(value, zone) if _changes_clocks(context.time_zone) else _instant(value, zone)


def _default_timestamp(value: Column, context: _DecodeContext) -> Column:
    """Read a local time as MySQL does, or a time in UTC with a Z at its end."""
    zone = F.when(value.endswith("Z"), "UTC").otherwise(context.time_zone)
    return _instant(F.rtrim(value, F.lit("Z")), zone)


def occurs_once(value: Column, time_zone: str) -> Column:
    """Return whether a local time occurs exactly once in a zone. BOOLEAN; may be NULL if the text is no TIMESTAMP."""
    if not _changes_clocks(time_zone):
        return F.lit(True)
    zone = F.lit(time_zone)
    return F.when(_instant(value, zone).isNotNull(), _is_shown_once(value, zone))


@cache
def _changes_clocks(zone: str) -> bool:
    """Return whether a zone, or an unknown one, changes its offset from UTC within the range of TIMESTAMP."""
    if zone == "UTC" or zone.startswith(("+", "-")):
        return False
    try:
        region = zoneinfo.ZoneInfo(zone)
    except zoneinfo.ZoneInfoNotFoundError:
        return True
    days = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(_TIMESTAMP_DAYS))
    return len({day.astimezone(region).utcoffset() for day in days}) > 1


def _clear_instant(value: Column, zone: Column) -> Column:
    """Return the instant of a local time that occurs exactly once in its zone; else NULL. TIMESTAMP."""
    return compute_once(
        _instant(value, zone),
        lambda instant: F.when(F.when(instant.isNotNull(), _is_shown_once(value, zone)), instant),
    )


def _is_shown_once(value: Column, zone: Column) -> Column:
    """Return whether clocks in a zone show a local time, which `_instant` can read, exactly once. BOOLEAN."""
    utc = F.lit("UTC")

    def compare(moment: Column, in_utc: Column) -> Column:
        again = [in_utc + F.expr(f"INTERVAL {minutes} MINUTE") for minutes in _REPEATED_MINUTES]
        is_shown_again = [F.convert_timezone(utc, zone, each) == moment for each in again]
        return (F.convert_timezone(utc, zone, in_utc) == moment) & ~reduce(or_, is_shown_again)

    def read_clocks(moment: Column) -> Column:
        return compute_once(F.convert_timezone(zone, utc, moment), lambda in_utc: compare(moment, in_utc))

    return compute_once(value.try_cast(TimestampNTZType()), read_clocks)


def _instant(value: Column, zone: Column) -> Column:
    # The zone is part of the text, so that the session's zone has no effect.
    zoned = F.concat(value, F.lit(" "), zone)
    instant = F.when(value.rlike(rf"^(?!0000){_DATE} {_CLOCK}\z"), zoned.try_cast(TimestampType()))
    low, high = (F.lit(f"{limit} UTC").cast(TimestampType()) for limit in TIMESTAMP_RANGE)
    return F.when(instant.between(low, high), instant)


def _located_timestamp(value: Column, context: _DecodeContext) -> Column:
    """Read `{"location": zone, "value": text}`, which TiCDC writes, or a plain text, which the document prescribes."""
    located = F.from_json(F.when(value.startswith("{"), value), "location STRING, value STRING")
    clock = F.coalesce(located["value"], F.when(~value.startswith("{"), value))
    zone = F.coalesce(located["location"], F.lit(context.time_zone))
    return _clear_instant(clock, zone)


def _timestamp_in_utc(value: Column, context: _DecodeContext) -> Column:
    return _timestamp(value, context._replace(time_zone="UTC"))


def _accepting_date(decoder: _Decoder) -> _Decoder:
    """Return a decoder that also reads a date alone, as its midnight: MySQL does so with the text of a default."""

    def decode_either(value: Column, context: _DecodeContext) -> Column:
        midnight = F.concat(value, F.lit(" 00:00:00"))
        return decoder(F.when(value.rlike(rf"^{_DATE}\z"), midnight).otherwise(value), context)

    return decode_either


def _json(value: Column, context: _DecodeContext) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    """Return a JSON document unchanged.

    When a JSON column is added NOT NULL, MySQL stores no bytes in existing rows and shows null ("Data Type Default Values").
    Canal prints an empty text for these rows.
    """
    document = F.call_function("cdc_json_document", value)
    return F.when(value == "", "null").otherwise(F.when(document, value))


_HOURS = "(0?[0-9]{2}|[1-7][0-9]{2}|8[0-2][0-9]|83[0-8])"
_TIME = rf"^(?!-?838:59:59[.]0*[1-9])-?{_HOURS}:[0-5][0-9]:[0-5][0-9]([.][0-9]{{1,6}})?\z"


def _time(value: Column, context: _DecodeContext) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    """Return a time as MySQL prints it, from -838:59:59 to 838:59:59: with three digits of hours only above 99."""
    return F.when(value.rlike(_TIME), F.regexp_replace(value, "^(-?)0([0-9]{2}:)", "$1$2"))


_CANAL_JSON: dict[Family, _Decoder] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.BIT: _integer,
    Family.TEXT: _as_is,
    Family.BINARY: _latin1_bytes,
    Family.ENUM: _enum_ordinal,
    Family.SET: _set_mask,
    Family.DATE: _date,
    Family.DATETIME: _datetime,
    Family.TIMESTAMP: _timestamp,
    Family.TIME: _time,
    Family.YEAR: _year,
    Family.JSON: _json,
    Family.SPATIAL: _latin1_bytes,
}


_DEBEZIUM = _CANAL_JSON | {
    Family.BINARY: _hex_or_base64_bytes,
    Family.SPATIAL: _hex_or_base64_bytes,
    Family.ENUM: _enum_label_or_empty,
    Family.SET: _set_labels,
    Family.TIMESTAMP: _timestamp_in_utc,
}
_DECODERS: Mapping[str, Mapping[Family, _Decoder]] = MappingProxyType(
    {
        "canal-json": _CANAL_JSON,
        # Neither TiDB nor the protocol has spatial types.
        "open-protocol": _CANAL_JSON
        | {Family.TEXT: _base64_text, Family.BINARY: _base64_or_quoted_bytes, Family.SPATIAL: _none},
        "simple": _CANAL_JSON
        | {
            Family.BIT: _accepting_twos_complement(_integer),
            Family.SET: _accepting_twos_complement(_set_mask),
            Family.BINARY: _base64_bytes,
            Family.TIMESTAMP: _located_timestamp,
            Family.SPATIAL: _none,
        },
        "debezium": _DEBEZIUM,
        # The texts of dumped values, as cdc_assets.protocols.loaded defines them.
        "dump": _DEBEZIUM | {Family.BINARY: _hex_bytes, Family.SPATIAL: _hex_bytes},
        # The texts of defaults, as cdc_assets.ddl.actions defines them.
        "ddl": _CANAL_JSON
        | {
            Family.ENUM: _enum_label,
            Family.SET: _set_labels,
            Family.DATETIME: _accepting_date(_datetime),
            Family.TIMESTAMP: _accepting_date(_default_timestamp),
        },
    }
)


# From narrow to wide, with the decimal digits of the values, and the digits before the point that Delta's type widening
# requires of a decimal to which a column of this type is widened.
_INTEGERS: Mapping[DataType, tuple[int, int]] = MappingProxyType(
    {ByteType(): (3, 10), ShortType(): (5, 10), IntegerType(): (10, 10), LongType(): (19, 20)}
)


def widen(old: DataType, new: DataType) -> DataType | None:
    """Return the narrowest type that holds the values of both, and to which Delta can widen a column of type `old`.

    Integers are widened to wider integers and to decimals, decimals to more digits (at most 38), float to double.

    Args:
        old: type of the history table's column.
        new: type of the values to come.

    Returns:
        The type, which is `old` if `old` is wide enough; None if no type holds both.
    """
    if old == new:
        return old
    if old in _INTEGERS and new in _INTEGERS:
        order = list(_INTEGERS)
        return max(old, new, key=order.index)
    if {old, new} == {FloatType(), DoubleType()}:
        return DoubleType()
    if not (isinstance(old, DecimalType) or isinstance(new, DecimalType)):
        return None
    digits = (_digits(old, 1), _digits(new, 0))
    if None in digits:
        return None
    integer_digits = max(pair[0] for pair in digits if pair)
    scale = max(pair[1] for pair in digits if pair)
    precision = integer_digits + scale
    return DecimalType(precision, scale) if precision <= MAX_PRECISION else None


def _digits(number: DataType, column: int) -> tuple[int, int] | None:
    """Return the digits before and after the point, for integers from `column` of `_INTEGERS`; None for other types."""
    if isinstance(number, DecimalType):
        return number.precision - number.scale, number.scale
    return (_INTEGERS[number][column], 0) if number in _INTEGERS else None
