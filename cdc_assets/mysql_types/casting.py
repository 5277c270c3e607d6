r"""MySQL values from the wire's text to typed Spark columns, with native expressions only.

One table, `_DECODERS`, says per wire dialect and family of types which expression does it. A new dialect is another
entry of it. Nothing here fails on a value: what does not fit gives NULL, and `problem` says why.

Every text is checked for its shape before Spark casts it, because Spark's casts accept more than MySQL prints: blanks
around numbers, `+1`, `1e3`, `1d`, `NaN`, dates without days, and decimals that they round. (`\z` and not `$`, which in
Java matches before a closing line feed as well.)
"""

from collections.abc import Callable, Mapping
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
from cdc_assets.mysql_types.debezium import HEX
from cdc_assets.mysql_types.reference import TIMESTAMP_RANGE, TYPES, Family, Range, value_range
from cdc_assets.mysql_types.types import MySQLType

_SPARK_TYPES: Mapping[str, DataType] = MappingProxyType(
    {
        "tinyint": ByteType(),
        "smallint": ShortType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "decimal(20,0)": DecimalType(20, 0),
        "float": FloatType(),
        "double": DoubleType(),
        "string": StringType(),
        "binary": BinaryType(),
        "date": DateType(),
        "timestamp_ntz": TimestampNTZType(),
        "timestamp": TimestampType(),
    }
)
_MAX_PRECISION = 38
_MAX_BITS_IN_BIGINT = 63


def spark_type(mysql_type: MySQLType, scale_seen: int = 0) -> DataType:
    """The Spark type of a history column for a MySQL type (the table "Types" of the design).

    Args:
        mysql_type: the source column's type.
        scale_seen: for a decimal whose precision is unknown: the digits after the point that its values have.
    """
    row = TYPES[mysql_type.base]
    if row.family is Family.DECIMAL:
        if mysql_type.length is None:
            return DecimalType(_MAX_PRECISION, min(scale_seen, _MAX_PRECISION))
        if mysql_type.length > _MAX_PRECISION:
            return StringType()
        return DecimalType(mysql_type.length, mysql_type.scale or 0)
    if row.family is Family.BIT:
        fits = mysql_type.length is not None and mysql_type.length <= _MAX_BITS_IN_BIGINT
        return LongType() if fits else DecimalType(20, 0)
    return _SPARK_TYPES[(mysql_type.unsigned and row.spark_unsigned) or row.spark]


class _Wish(NamedTuple):
    """What a decoder needs to know beside the value."""

    type: MySQLType
    time_zone: str
    target: DataType


_Decoder = Callable[[Column, _Wish], Column]


def decode(value: Column, mysql_type: MySQLType, wire: str, time_zone: str, target: DataType) -> Column:
    """Turn a value's text on the wire into a typed column.

    Args:
        value: STRING, the text on the wire, or NULL.
        mysql_type: the type that the source column had when the value was written.
        wire: the dialect: `canal-json`, `open-protocol`, `simple`, `debezium` (for what `debezium.mysql_text` gives),
            `dump` for dumped values (`protocols.loaded`), or `ddl` for the text of a default (`ddl.Column.default`).
        time_zone: zone in which the source prints TIMESTAMP values: a region (`Asia/Tokyo`) or an offset (`+09:00`). A
            local time that occurs twice is the earlier instant; one that a clock change leaves out moves forward.
        target: `spark_type(mysql_type)`, or a type that `widen` gave for it; any other has what it holds unchanged.

    Returns:
        A column of type `target`; NULL where the value is NULL, is no value of `mysql_type` or none of `target`. Length
        limits of text and bytes are not enforced: the Spark types hold them all.

    Raises:
        ValueError: the dialect is unknown.
    """
    if wire not in _DECODERS:
        raise ValueError(f"unknown wire dialect {wire!r}: one of {', '.join(sorted(_DECODERS))}")
    decoder = _DECODERS[wire][TYPES[mysql_type.base].family]
    own = spark_type(mysql_type, target.scale if isinstance(target, DecimalType) else 0)
    decimals = TYPES[mysql_type.base].family is Family.DECIMAL and isinstance(target, DecimalType)
    texts = isinstance(target, StringType) and not isinstance(own, BinaryType)
    held = decimals or texts or widen(own, target) == target
    typed = decoder(value, _Wish(mysql_type, time_zone, target if held else own))
    return typed.try_cast(target) if held else compute_once(typed.try_cast(own), lambda v: _unchanged(v, own, target))


def _unchanged(value: Column, own: DataType, target: DataType) -> Column:
    """A value in a column of another type: NULL where that type does not hold it."""
    if not _castable(own, target):
        return F.lit(None).cast(target)
    there = value.try_cast(target)
    same = there.try_cast(own) == value
    return F.when(same & F.is_valid_utf8(there) if isinstance(target, StringType) else same, there)


def _castable(own: DataType, target: DataType) -> bool:
    """Whether Spark has a way from one type to the other and back."""
    both = {type(own), type(target)}
    if StringType in both:
        return True
    return both <= {DateType, TimestampNTZType, TimestampType} or all(issubclass(t, NumericType) for t in both)


def problem(value: Column, typed: Column, mysql_type: MySQLType) -> Column:
    """Why a value could not be decoded.

    Args:
        value: STRING, the text on the wire.
        typed: what `decode` made of it.
        mysql_type: the source column's type.

    Returns:
        STRING: NULL when nothing is wrong, `zero_date` for zero and invalid dates that MySQL permits in such a column,
        `bad_value` for all else.
    """
    reason: Column = F.lit("bad_value")
    permitted = _PERMITTED_DATES.get(TYPES[mysql_type.base].family)
    if permitted is not None:
        date = F.substring(value, 1, len("0000-00-00")).try_cast("date")
        unreal = date.isNull() | value.startswith("0000")
        reason = F.when(value.rlike(permitted) & unreal, F.lit("zero_date")).otherwise(reason)
    return F.when(value.isNotNull() & typed.isNull(), reason)


_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
# Month and day 00, or a day that the month does not have: MySQL without NO_ZERO_DATE, NO_ZERO_IN_DATE or with
# ALLOW_INVALID_DATES stores them in DATE and DATETIME. In TIMESTAMP only the zero date is possible.
_PERMITTED_DATE = "[0-9]{4}-(0[0-9]|1[0-2])-([0-2][0-9]|3[01])"
_PERMITTED_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?"
_PERMITTED_DATES = {
    Family.DATE: rf"^{_PERMITTED_DATE}\z",
    Family.DATETIME: rf"^{_PERMITTED_DATE} {_PERMITTED_CLOCK}\z",
    # With a zone beside it in Simple's JSON object.
    Family.TIMESTAMP: r'^([{].*"value":")?0000-00-00 00:00:00([.]0{1,6})?("[^"]*("[^"]*"){0,2}[}])?\z',
}


def _integer(value: Column, wish: _Wish) -> Column:
    limits = value_range(wish.type)
    if limits is None:
        raise ValueError(f"{wish.type} has no range")
    return _whole_number(value, limits)


_LONG = Range(-(1 << 63), (1 << 63) - 1)


def _whole_number(value: Column, limits: Range) -> Column:
    """Decimal digits as BIGINT, or as DECIMAL(20,0) where BIGINT is too small."""
    natural: DataType = LongType() if limits.high < 1 << 63 else DecimalType(20, 0)
    digits, number = value.rlike(r"^-?[0-9]+\z"), value.try_cast(natural)
    if limits == _LONG:
        return F.when(digits, number)
    low, high = (F.lit(str(limit)).cast(natural) for limit in limits)
    # The pattern is dear, and stands here once; the number is not, and stands here thrice.
    return F.when(digits & number.between(low, high), number)


def _year(value: Column, wish: _Wish) -> Column:
    number = F.when(value.rlike(r"^[0-9]{1,4}\z"), value.try_cast(ShortType()))
    low, high = value_range(wish.type) or Range(0, 0)
    return F.when((number == 0) | number.between(low, high), number)


def _decimal(value: Column, wish: _Wish) -> Column:
    """Plain digits, exactly: more digits after the point than the column has are a bad value, never rounded."""
    precision, scale = wish.type.length, wish.type.scale or 0
    sign = "" if wish.type.unsigned else "-?"
    target = wish.target
    if isinstance(target, DecimalType):
        fraction = target.scale if precision is None else min(scale, target.scale)
        exact = value.rlike(rf"^({sign}[0-9]+([.][0-9]{{0,{fraction}}}0*)?|-0+([.]0*)?)\z")
        number = F.when(exact, value.try_cast(target))
        if precision is None or target.precision - target.scale <= precision - scale:
            return number
        # The type of the values is narrower than the column that holds them.
        limit = F.lit("1" + "0" * (precision - scale)).cast(DecimalType(precision - scale + 1, 0))
        return F.when(F.abs(number) < limit, number)
    if precision is None:
        return F.when(value.rlike(rf"^{sign}[0-9]+([.][0-9]+)?\z"), value)
    shape = rf"^({sign})0*([0-9]{{0,{precision - scale}}})(?:[.]([0-9]{{0,{scale}}})0*)?\z"
    whole = F.regexp_extract(value, shape, 2)
    digits = F.when(F.length(whole) == 0, F.lit("0")).otherwise(whole)
    if scale:
        digits = F.concat(digits, F.lit("."), F.rpad(F.regexp_extract(value, shape, 3), scale, "0"))
    negative = value.startswith("-") & digits.rlike("[1-9]")
    fits = value.rlike(r"^-?[0-9]+([.][0-9]*)?\z") & value.rlike(shape)
    return F.when(fits, F.concat(F.when(negative, F.lit("-")).otherwise(F.lit("")), digits))


def _float(value: Column, wish: _Wish) -> Column:
    natural = _SPARK_TYPES[wish.type.base]
    number = F.when(value.rlike(r"^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?\z"), value.try_cast(natural))
    finite = F.abs(number) < F.lit("Infinity").cast(natural)
    return F.when(finite & (number >= 0) if wish.type.unsigned else finite, number)


def _bit(value: Column, wish: _Wish) -> Column:
    return _whole_number(value, value_range(wish.type) or Range(0, 0))


def _as_is(value: Column, wish: _Wish) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    return value


def _latin1_bytes(value: Column, wish: _Wish) -> Column:
    # encode() fails the whole job on a character above U+00FF: it must not see one.
    return _padded(F.when(~value.rlike(r"[^\x00-\xff]"), F.encode(value, "ISO-8859-1")), wish)


def _padded(data: Column, wish: _Wish) -> Column:
    if wish.type.base != "binary" or wish.type.length is None:
        return data
    # Canal strips the trailing zero bytes of BINARY(n), TiCDC keeps them.
    short = F.octet_length(data) < wish.type.length
    return F.when(short, F.rpad(data, wish.type.length, F.lit(b"\0"))).otherwise(data)


_BASE64_TEXTS = frozenset({"tinytext", "text", "mediumtext", "longtext"})


def _base64_text(value: Column, wish: _Wish) -> Column:
    if wish.type.base not in _BASE64_TEXTS:
        return value
    data = F.try_to_binary(value, F.lit("base64"))
    return F.when(F.is_valid_utf8(data.cast("string")), data.cast("string"))


def _base64_or_quoted_bytes(value: Column, wish: _Wish) -> Column:
    if wish.type.base in {"binary", "varbinary"}:
        return _padded(_quoted_bytes(value), wish)
    return F.try_to_binary(value, F.lit("base64"))


def _base64_bytes(value: Column, wish: _Wish) -> Column:
    return _padded(F.try_to_binary(value, F.lit("base64")), wish)


def _hex_bytes(value: Column, wish: _Wish) -> Column:
    return _padded(F.unhex(value), wish)


def _hex_or_base64_bytes(value: Column, wish: _Wish) -> Column:
    digits = F.unhex(F.when(value.startswith(HEX), F.substr(value, F.lit(len(HEX) + 1))))
    return F.coalesce(_padded(digits, wish), _base64_bytes(value, wish))


# What Go's strconv.Quote writes: characters that can be printed as they are, other bytes and characters as escapes.
_QUOTED = r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|\\.?|[^\\]+"
_ESCAPED = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34, "'": 39}


# Decoding takes the first byte order mark away: without one, it would take a U+FEFF of the text.
_UTF32_MARK = "0000feff"


def _quoted_bytes(value: Column) -> Column:
    r"""The bytes of a text in which only `\xNN` is a byte; all else is characters, and those are UTF-8."""
    escapes = F.create_map(*[F.lit(e) for c, b in _ESCAPED.items() for e in ("\\" + c, f"{b:02X}")])

    def in_hex(part: Column) -> Column:
        number = F.lpad(F.substr(part, F.lit(3)), 8, "0")
        # Surrogates are no characters, and beyond 10ffff there are none: decode() fails the whole job on them.
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
    # transform() over one element computes the parts once. array_join() leaves out nulls: none may be among them.
    texts = F.transform(F.array(parts), lambda found: F.transform(found, in_hex))
    joined = F.transform(texts, lambda t: F.when(F.forall(t, lambda h: h.isNotNull()), F.unhex(F.array_join(t, ""))))
    return F.when(value.contains("\\"), F.get(joined, F.lit(0))).otherwise(F.encode(value, "UTF-8"))


def _none(value: Column, wish: _Wish) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    return F.lit(None)


def _enum_ordinal(value: Column, wish: _Wish) -> Column:
    """The label of a 1-based ordinal; 0 is MySQL's empty "invalid" value. The label itself is accepted."""
    labels = wish.type.labels
    zero = value.rlike(r"^0+\z")
    if labels is None:
        return F.when(zero, F.lit("")).otherwise(value)
    known = _text_array(labels)
    ordinal = F.when(value.rlike(r"^[0-9]+\z"), value.try_cast(IntegerType()))
    return F.when(zero, F.lit("")).otherwise(
        F.coalesce(F.get(known, ordinal - 1), F.when(F.array_contains(known, value), value))
    )


def _enum_label(value: Column, wish: _Wish) -> Column:
    labels = wish.type.labels
    return value if labels is None else F.when(F.array_contains(_text_array(labels), value), value)


def _enum_label_or_empty(value: Column, wish: _Wish) -> Column:
    """A label, or the empty text of MySQL's "invalid" value."""
    return F.when(value == "", value).otherwise(_enum_label(value, wish))


def _set_mask(value: Column, wish: _Wish) -> Column:
    """The labels of a bit mask, joined by commas in the order of the definition."""
    labels = wish.type.labels
    mask = _whole_number(value, Range(0, (1 << (64 if labels is None else len(labels))) - 1))
    if labels is None:
        return F.when(mask == 0, F.lit("")).otherwise(F.when(mask.isNotNull(), value))
    if len(labels) == 64:
        # As two's complement: the 64th bit is BIGINT's sign.
        above = F.lit(str(1 << 64)).cast(DecimalType(20, 0))
        mask = F.when(mask < F.lit(str(1 << 63)).cast(DecimalType(20, 0)), mask).otherwise(mask - above)
    bits = mask.try_cast(LongType())

    def chosen(mask: Column) -> Column:
        return F.concat_ws(
            ",", *(F.when(F.getbit(mask, F.lit(place)) == 1, F.lit(label)) for place, label in enumerate(labels))
        )

    # transform() over one element evaluates the mask once, not once per label.
    return F.when(bits.isNotNull(), F.get(F.transform(F.array(bits), chosen), F.lit(0)))


def _wrapped(decoder: _Decoder) -> _Decoder:
    """A decoder of bits that takes 64 of them as two's complement as well: Simple's Avro sends a set 64th bit as a sign."""

    def decode_either(value: Column, wish: _Wish) -> Column:
        above = F.lit(str(1 << 64)).cast(DecimalType(20, 0))
        unsigned = (value.try_cast(DecimalType(20, 0)) + above).cast(StringType())
        return decoder(F.when(value.rlike(r"^-[1-9][0-9]{0,18}\z"), unsigned).otherwise(value), wish)

    return decode_either


def _set_labels(value: Column, wish: _Wish) -> Column:
    labels = wish.type.labels
    if labels is None:
        return value
    unknown = F.array_except(F.split(value, ","), _text_array(labels))
    return F.when((value == "") | (F.size(unknown) == 0), value)


def _text_array(texts: tuple[str, ...]) -> Column:
    return F.array(*(F.lit(text) for text in texts)).cast("array<string>")


def _date(value: Column, wish: _Wish) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    return F.when(value.rlike(rf"^(?!0000){_DATE}\z"), value.try_cast(DateType()))


def _datetime(value: Column, wish: _Wish) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    return F.when(value.rlike(rf"^(?!0000){_DATE} {_CLOCK}\z"), value.try_cast(TimestampNTZType()))


def _timestamp(value: Column, wish: _Wish) -> Column:
    return _instant(value, F.lit(wish.time_zone))


def _instant(value: Column, zone: Column) -> Column:
    # The zone stands in the text, so the session's own zone does not matter.
    zoned = F.concat(value, F.lit(" "), zone)
    instant = F.when(value.rlike(rf"^(?!0000){_DATE} {_CLOCK}\z"), zoned.try_cast(TimestampType()))
    low, high = (F.lit(f"{limit} UTC").cast(TimestampType()) for limit in TIMESTAMP_RANGE)
    return F.when(instant.between(low, high), instant)


def _located_timestamp(value: Column, wish: _Wish) -> Column:
    """`{"location": zone, "value": text}`, as the encoder writes it, or a plain text, as the document has it."""
    located = F.from_json(F.when(value.startswith("{"), value), "location STRING, value STRING")
    clock = F.coalesce(located["value"], F.when(~value.startswith("{"), value))
    return _instant(clock, F.coalesce(located["location"], F.lit(wish.time_zone)))


def _timestamp_in_utc(value: Column, wish: _Wish) -> Column:
    return _timestamp(value, wish._replace(time_zone="UTC"))


def _date_or_datetime(decoder: _Decoder) -> _Decoder:
    """A decoder that takes a date alone for its midnight, as MySQL does with the text of a default."""

    def decode_either(value: Column, wish: _Wish) -> Column:
        midnight = F.concat(value, F.lit(" 00:00:00"))
        return decoder(F.when(value.rlike(rf"^{_DATE}\z"), midnight).otherwise(value), wish)

    return decode_either


def _json(value: Column, wish: _Wish) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    """A JSON document as it is written.

    MySQL stores no bytes in existing rows when a JSON column is added NOT NULL, and shows them as null ("Data Type Default
    Values"). Canal prints them as an empty text.
    """
    document = F.call_function("cdc_json_document", value)
    return F.when(value == "", "null").otherwise(F.when(document, value))


_HOURS = "(0?[0-9]{2}|[1-7][0-9]{2}|8[0-2][0-9]|83[0-8])"
_TIME = rf"^(?!-?838:59:59[.]0*[1-9])-?{_HOURS}:[0-5][0-9]:[0-5][0-9]([.][0-9]{{1,6}})?\z"


def _time(value: Column, wish: _Wish) -> Column:  # noqa: ARG001 -- every decoder has the same signature
    """MySQL's own text, from -838:59:59 to 838:59:59: three digits of hours only above 99."""
    return F.when(value.rlike(_TIME), F.regexp_replace(value, "^(-?)0([0-9]{2}:)", "$1$2"))


_CANAL_JSON: dict[Family, _Decoder] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.BIT: _bit,
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


_DECODERS: Mapping[str, Mapping[Family, _Decoder]] = MappingProxyType(
    {
        "canal-json": _CANAL_JSON,
        # TiDB has no spatial types, and the protocol none.
        "open-protocol": _CANAL_JSON
        | {Family.TEXT: _base64_text, Family.BINARY: _base64_or_quoted_bytes, Family.SPATIAL: _none},
        "simple": _CANAL_JSON
        | {
            Family.BIT: _wrapped(_bit),
            Family.SET: _wrapped(_set_mask),
            Family.BINARY: _base64_bytes,
            Family.TIMESTAMP: _located_timestamp,
            Family.SPATIAL: _none,
        },
        "debezium": _CANAL_JSON
        | {
            Family.BINARY: _hex_or_base64_bytes,
            Family.SPATIAL: _hex_or_base64_bytes,
            Family.ENUM: _enum_label_or_empty,
            Family.SET: _set_labels,
            Family.TIMESTAMP: _timestamp_in_utc,
        },
        # The text of dumped values, as cdc_assets.protocols.loaded has it.
        "dump": _CANAL_JSON
        | {
            Family.BINARY: _hex_bytes,
            Family.SPATIAL: _hex_bytes,
            Family.ENUM: _enum_label_or_empty,
            Family.SET: _set_labels,
            Family.TIMESTAMP: _timestamp_in_utc,
        },
        # The text of defaults, as cdc_assets.ddl.actions has it.
        "ddl": _CANAL_JSON
        | {
            Family.ENUM: _enum_label,
            Family.SET: _set_labels,
            Family.DATETIME: _date_or_datetime(_datetime),
            Family.TIMESTAMP: _date_or_datetime(_timestamp),
        },
    }
)


# Narrowest first, with the decimal digits that the values have, and the digits that Delta's type widening wants before
# the point when a column of this type becomes a decimal.
_INTEGERS: Mapping[DataType, tuple[int, int]] = MappingProxyType(
    {ByteType(): (3, 10), ShortType(): (5, 10), IntegerType(): (10, 10), LongType(): (19, 20)}
)


def widen(old: DataType, new: DataType) -> DataType | None:
    """The narrowest type that holds the values of both, and that Delta can widen a column of type `old` to.

    Args:
        old: type of the history table's column.
        new: type of the values to come.

    Returns:
        The type, `old` itself when it is wide enough; None when there is no such type: integers go up to wider ones and
        to decimals, decimals to more digits (38 at most), float to double.
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
    whole = max(pair[0] for pair in digits if pair)
    scale = max(pair[1] for pair in digits if pair)
    return DecimalType(whole + scale, scale) if whole + scale <= _MAX_PRECISION else None


def _digits(number: DataType, column: int) -> tuple[int, int] | None:
    """Digits before and after the point; for integers from that column of `_INTEGERS`; None for other types."""
    if isinstance(number, DecimalType):
        return number.precision - number.scale, number.scale
    return (_INTEGERS[number][column], 0) if number in _INTEGERS else None
