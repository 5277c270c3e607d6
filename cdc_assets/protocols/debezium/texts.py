"""Debezium's values as MySQL prints them.

They are then cast like those of every other protocol (dialect `debezium` of `mysql_types.casting`). A value that cannot be
read becomes a text that no type has, so that it is quarantined.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, TimestampNTZType

from cdc_assets.mysql_types.casting import HEX
from cdc_assets.mysql_types.descriptors import TYPES, Family
from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.protocols.debezium import semantics
from cdc_assets.protocols.debezium.semantics import Field, stands_for

_Text = Callable[[Column, Field, MySQLType], Column]
UNREADABLE = "unreadable: "
_SCALES = frozenset(map(str, range(39)))  # of decimals in MariaDB; those in MySQL end at 30


def mysql_text(value: Column, column: Field, mysql_type: MySQLType | None) -> Column:
    """Return a value as MySQL prints it.

    Args:
        value: STRING, the text of the JSON value.
        column: the column's field in the message.
        mysql_type: the column's MySQL type.

    Returns:
        STRING; NULL for NULL; bytes are base64, or `hex:` and hexadecimal digits.
    """
    if mysql_type is None or column.semantic in {semantics.UNSTATED, "bytes"}:
        return value
    read = _TEXT_OF.get(column.semantic)
    return value if read is None else F.coalesce(read(value, column, mysql_type), F.concat(F.lit(UNREADABLE), value))


def _boolean(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001 -- all have one signature
    return F.when(value == "true", F.lit("1")).when(value == "false", F.lit("0"))


def _integer(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    """Return an integer. With bigint.unsigned.handling.mode=long a value above the signed range is negative."""
    if stands_for(mysql_type) != "bigint unsigned":
        return value
    wrapped = value.try_cast(DecimalType(20, 0)) + F.lit(str(1 << 64)).cast(DecimalType(20, 0))
    return F.when(value.startswith("-"), wrapped.cast("string")).otherwise(value)


def _double(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    """Return a number. With decimal.handling.mode=double the largest DECIMAL becomes a double above the type's range."""
    if mysql_type.base != "decimal":
        return value
    if mysql_type.length is None:
        return plain_number(value)
    scale = mysql_type.scale or 0
    largest = ("9" * (mysql_type.length - scale) or "0") + f".{'9' * scale}" * bool(scale)
    sign = F.when(value.startswith("-"), F.lit("-")).otherwise(F.lit(""))
    is_largest = F.abs(value.try_cast("double")) == F.lit(float(largest))
    return F.when(is_largest, F.concat(sign, F.lit(largest))).otherwise(plain_number(value))


def plain_number(value: Column) -> Column:
    """Return the text of a floating-point number without exponent."""
    return F.when(value.rlike("[eE]"), F.call_function("cdc_plain_number", value)).otherwise(value)


def _string(value: Column, column: Field, mysql_type: MySQLType) -> Column:
    """Return a text, or bytes in hex, base64 or base64-url-safe: a text that may be both hex and base64 is hex."""
    if TYPES[mysql_type.base].family is not Family.BINARY:
        return value
    return F.when(_may_be_hex(value, mysql_type), _hex_bytes(value, column, mysql_type)).otherwise(
        _base64_bytes(value, column, mysql_type)
    )


def _unstated_bytes(value: Column, column: Field, mysql_type: MySQLType) -> Column:
    """Return bytes in base64, hex or base64-url-safe: a text that may be both hex and base64 is base64."""
    is_hex = _may_be_hex(value, mysql_type)
    if fixed_size(mysql_type) is None:
        is_hex = is_hex & (F.length(value) % 4 != 0)
    return F.when(is_hex, _hex_bytes(value, column, mysql_type)).otherwise(_base64_bytes(value, column, mysql_type))


def _may_be_hex(value: Column, mysql_type: MySQLType) -> Column:
    digits = value.rlike(r"^([0-9a-f]{2})*\z")
    size = fixed_size(mysql_type)
    # The base64 of n bytes has 2n characters only if some of them are padding.
    return digits if size is None else digits & (F.length(value) == 2 * size)


def fixed_size(mysql_type: MySQLType) -> int | None:
    """Return the number of bytes of each value of a BINARY(n); None for other types."""
    return mysql_type.length if mysql_type.base == "binary" else None


def _hex_bytes(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    return F.concat(F.lit(HEX), value)


def _base64_bytes(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    """Return bytes in base64; the alphabet of base64-url-safe differs in two characters."""
    return F.translate(value, "-_", "+/")


def _bits(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    """Return the number of at most eight little-endian bytes."""
    digits = F.hex(F.try_to_binary(value, F.lit("base64")))
    return F.when(F.length(value) <= len("AAAAAAAAAAA="), F.conv(_reversed_bytes(digits), 16, 10))


def _reversed_bytes(digits: Column) -> Column:
    return F.array_join(F.reverse(F.regexp_extract_all(digits, F.lit("(..)"), F.lit(1))), "")


def _decimal(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    """Return a decimal from its unscaled value in big-endian two's complement and the scale in the field's parameters."""
    scale = dict(column.parameters).get("scale", "0")
    if scale not in _SCALES:
        return F.lit(None).cast("string")
    return F.call_function("cdc_decimal_digits", F.try_to_binary(value, F.lit("base64")), F.lit(int(scale)))


def _unstated_decimal(value: Column, column: Field, mysql_type: MySQLType) -> Column:
    """Return a decimal without a fraction from its digits or from base64: a text that may be both is digits."""
    return F.when(value.rlike(r"^[0-9]+\z"), value).otherwise(_decimal(value, column, mysql_type))


_DAY = 86_400_000_000  # microseconds


def _date(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    return F.date_from_unix_date(value.try_cast("int")).cast("string")


def _microseconds(value: Column, column: Field) -> Column:
    """Return a number of milli-, micro- or nanoseconds as microseconds, BIGINT; NULL if it is too large."""
    number = value.try_cast("bigint")
    name = column.semantic.rpartition(".")[2]
    if name.startswith("Nano"):
        return F.floor(number / 1000).cast("bigint")
    return number if name.startswith("Micro") else F.try_multiply(number, F.lit(1000))


def _time(value: Column, column: Field, mysql_type: MySQLType) -> Column:
    """Return `[-]HH:MM:SS[.ffffff]` with the digits of the column's type; without a length as many as needed."""
    number = _microseconds(value, column)
    size = F.abs(number)
    sign = F.when(number < 0, F.lit("-")).otherwise(F.lit(""))
    parts = [F.floor(size / 3_600_000_000), F.floor(size / 60_000_000) % 60, F.floor(size / 1_000_000) % 60]
    clock = F.format_string("%s%02d:%02d:%02d.%06d", sign, *parts, size % 1_000_000)
    digits = mysql_type.length
    superfluous = r"[.]?0*\z" if digits is None else rf"[.]?[0-9]{{{6 - digits}}}\z"
    # MySQL's range is about 35 days.
    return F.when(number.between(-50 * _DAY, 50 * _DAY), F.regexp_replace(clock, superfluous, ""))


def _datetime(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    """Return a date and time from the time since the epoch, which Debezium computes as if the source's clock were UTC."""
    number = _microseconds(value, column)
    epoch = F.lit("1970-01-01").cast(TimestampNTZType())
    text = F.timestamp_add("MICROSECOND", number, epoch).cast("string")
    # Somewhat more than the years from 0 to 9999.
    return F.when(number.between(-719_000 * _DAY, 3_000_000 * _DAY), text)


_ZONED = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,6})?)Z\z"
_ZERO = r"^1970-01-01T00:00:00([.]0+)?Z\z"


def _timestamp(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    """Return a time in UTC. The epoch stands for MySQL's zero date, because TIMESTAMP begins a second later."""
    text = F.concat_ws(" ", F.regexp_extract(value, _ZONED, 1), F.regexp_extract(value, _ZONED, 2))
    return F.when(value.rlike(_ZERO), F.lit("0000-00-00 00:00:00")).when(value.rlike(_ZONED), text)


_DAY_TEXT, _TIME_TEXT = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,9})?"


def _iso_date(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    """Return a date in ISO 8601 without the zone, which is always UTC if present; so do the next two functions."""
    return _matched(value, rf"^({_DAY_TEXT})Z?\z")


def _iso_time(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    return _matched(value, rf"^({_TIME_TEXT})(?:Z|[+]00:00)?\z")


def _iso_timestamp(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    return F.replace(_matched(value, rf"^({_DAY_TEXT}T{_TIME_TEXT})(?:Z|[+]00:00)?\z"), F.lit("T"), F.lit(" "))


def _matched(value: Column, shape: str) -> Column:
    """Return the first group of a pattern, without zeros below the microsecond; NULL if the value does not match."""
    text = F.nullif(F.regexp_extract(value, shape, 1), F.lit(""))
    return F.regexp_replace(text, r"([.][0-9]{6})0+\z", "$1")


def _year(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    """Return a year. The connector sends 1900 for MySQL's year 0000; other years begin with 1901."""
    return F.when(value == "1900", F.lit("0")).otherwise(value)


def _enum(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    r"""Return a label. The connector writes a comma in a label as `\,`."""
    unescaped = F.replace(value, F.lit("\\,"), F.lit(","))
    if mysql_type.labels is None:
        return unescaped
    return F.when(value.isin(*mysql_type.labels), value).otherwise(unescaped)


def _geometry(value: Column, column: Field, mysql_type: MySQLType) -> Column:  # noqa: ARG001
    """Return the bytes that MySQL stores: the SRID, little-endian, and the WKB."""
    srid = F.coalesce(F.get_json_object(value, "$.srid"), F.lit("0")).try_cast("bigint")
    wkb = F.hex(F.try_to_binary(F.get_json_object(value, "$.wkb"), F.lit("base64")))
    fits = F.when(srid.between(0, (1 << 32) - 1), srid)
    return F.concat(F.lit(HEX), _reversed_bytes(F.lpad(F.hex(fits), 8, "0")), wkb)


_TEXT_OF: Mapping[str, _Text] = {
    "boolean": _boolean,
    "int64": _integer,
    "double": _double,
    "string": _string,
    semantics.BITS: _bits,
    semantics.HEX_BYTES: _hex_bytes,
    semantics.BASE64_BYTES: _base64_bytes,
    semantics.UNSTATED_BYTES: _unstated_bytes,
    semantics.DECIMAL: _decimal,
    semantics.UNSTATED_DECIMAL: _unstated_decimal,
    "io.debezium.data.Enum": _enum,
    "io.debezium.time.ZonedTimestamp": _timestamp,
    "io.debezium.time.Year": _year,
    "io.debezium.data.geometry.Point": _geometry,
    semantics.GEOMETRY: _geometry,
    **{name: _date for name, row in semantics.SEMANTICS.items() if row.text == "date"},
    **{name: _time for name, row in semantics.SEMANTICS.items() if row.text == "time"},
    **{name: _datetime for name, row in semantics.SEMANTICS.items() if row.text.startswith("datetime")},
    semantics.ISO_DATE: _iso_date,
    semantics.ISO_TIME: _iso_time,
    semantics.ISO_TIMESTAMP: _iso_timestamp,
}
