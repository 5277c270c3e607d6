"""Convert the literal of a DEFAULT to the value that existing rows get, as MySQL does.

MySQL converts a literal as it converts an assigned value. In any SQL mode it refuses a DEFAULT that does not fit the column
("Invalid default value"), but it accepts one that it rounds, or whose blanks at the end it cuts off. The source has executed
the statements, so if a literal does not fit its column by these functions, its value is not known.

Sections named here are those of the MySQL 8.4 reference manual.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType

from cdc_assets.ddl.literal_values import EXACT, bytes_of, decode_bytes, is_double, number_of, round_half_up
from cdc_assets.ddl.temporal_literals import (
    convert_to_date,
    convert_to_datetime,
    convert_to_time,
    convert_to_timestamp,
    convert_to_year,
)
from cdc_assets.mysql_types.descriptors import TYPES, Family
from cdc_assets.mysql_types.tokens import Token, TokenKind
from cdc_assets.mysql_types.types import MySQLType, value_range


def convert_default(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return the value that a column gets from a literal, as `casting.decode` reads it in the dialect `ddl`.

    Args:
        literal: a literal that `read_literal` returned.
        mysql_type: the column's type, with its declared lengths.

    Returns:
        The text; None: the value is not known, or no column of a history can hold it (zero and invalid dates).
    """
    converter = _CONVERTERS.get(TYPES[mysql_type.base].family)
    return None if literal.kind is TokenKind.OTHER or converter is None else converter(literal, mysql_type)


def _round_to_integer(literal: Token) -> int | None:
    """Return a literal as an integer; None: it is no number, or its rounding is not known."""
    number = number_of(literal)
    if number is None:
        return None
    # The manual leaves the rounding of halves of approximate numbers to the C library.
    is_half = is_double(literal) and EXACT.remainder(number, Decimal(1)).copy_abs() == Decimal("0.5")
    return None if is_half else int(round_half_up(number, 0))


def _convert_to_integer(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return an integer in the range of its type."""
    integer, limits = _round_to_integer(literal), value_range(mysql_type)
    return str(integer) if integer is not None and limits and limits.low <= integer <= limits.high else None


def _convert_to_decimal(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return a DECIMAL rounded to the digits of its type."""
    number = number_of(literal)
    if number is None or mysql_type.length is None:
        return None
    scale = mysql_type.scale or 0
    rounded = round_half_up(number, scale)
    if (mysql_type.unsigned and rounded < 0) or rounded.copy_abs() >= 10 ** (mysql_type.length - scale):
        return None
    return f"{rounded or abs(rounded):f}"


_LARGEST_FLOAT = Decimal("3.4028234663852886e38")
_LARGEST_DOUBLE = Decimal("1.7976931348623157e308")


def _convert_to_float(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return a FLOAT or DOUBLE in the range of its type."""
    number = number_of(literal)
    if number is None or (mysql_type.unsigned and number < 0):
        return None
    if number.copy_abs() > (_LARGEST_FLOAT if mysql_type.base == "float" else _LARGEST_DOUBLE):
        return None
    length, scale = mysql_type.length, mysql_type.scale
    # The rounding of FLOAT(m,d) depends on the binary form of the number.
    if (
        scale is not None
        and length is not None
        and (number != round_half_up(number, scale) or abs(number) >= 10 ** (length - scale))
    ):
        return None
    plain = f"{number or abs(number):f}"
    return plain if len(plain) <= _DECIMAL_DIGITS else f"{number:e}"


def _convert_to_bits(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return a BIT as a decimal number. A string is the bytes of the bits ("Bit-Value Type - BIT")."""
    number = (
        int.from_bytes(literal.text.encode(), "big") if literal.kind is TokenKind.STRING else _round_to_integer(literal)
    )
    if number is None or (is_double(literal) and number != number_of(literal)):
        return None
    limits = value_range(mysql_type)
    return str(number) if limits and 0 <= number <= limits.high else None


_DECIMAL_DIGITS = 65  # of a DECIMAL


def _print_literal(literal: Token) -> str | None:
    """Return the text that a literal becomes in a column of texts; None: not known.

    Bytes are in the column's character set, which is not known, so only those of ASCII have a known text.
    """
    if literal.kind is TokenKind.STRING:
        return literal.text
    if literal.kind in {TokenKind.HEX, TokenKind.BITS}:
        return decode_bytes(bytes_of(literal), "ascii")
    number = number_of(literal)
    if number is None or len(number.as_tuple().digits) > _DECIMAL_DIGITS:
        return None
    if is_double(literal):
        return _print_double(float(number))
    # MySQL keeps all digits after the point. The manual does not say whether a zero keeps its sign.
    return None if number.is_signed() and not number else f"{number:f}"


def _print_double(number: float) -> str | None:
    """Return a DOUBLE as MySQL prints it; None: MySQL prints it with an exponent."""
    if number and not 1e-4 <= abs(number) < 1e15:
        return None
    return str(int(number)) if number.is_integer() else repr(number)


def _convert_to_text(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return a text. A CHAR loses blanks at the end, a VARCHAR those beyond its length ("The CHAR and VARCHAR Types")."""
    text, limit = _print_literal(literal), TYPES[mysql_type.base].capacity
    if text is None or (limit is not None and len(text.encode()) > limit):
        return None
    if mysql_type.length is not None and limit is None:
        if text[mysql_type.length :].strip(" "):
            return None
        text = text[: mysql_type.length]
    return text.rstrip(" ") if mysql_type.base == "char" else text


def _convert_to_bytes(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return bytes as ISO-8859-1 characters."""
    if literal.kind in {TokenKind.HEX, TokenKind.BITS}:
        data = bytes_of(literal)
    elif (text := _print_literal(literal)) is not None:
        data = text.encode()
    else:
        return None
    limit = TYPES[mysql_type.base].capacity or mysql_type.length
    return None if limit is not None and len(data) > limit else data.decode("latin-1")


def _find_label(text: str, labels: tuple[str, ...]) -> int | None:
    """Return the index of a label: the same one, else the only one that differs in letter case; None: there is none."""
    if text in labels:
        return labels.index(text)
    matches = [place for place, label in enumerate(labels) if label.lower() == text.lower()]
    return matches[0] if len(matches) == 1 else None


def _convert_to_labels(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return the label of an ENUM, or labels of a SET in the order of the definition, each once ("The SET Type").

    None for a number: for one that is a label, too, the manual and MySQL differ.
    """
    text, labels = _print_literal(literal), mysql_type.labels
    if literal.kind is TokenKind.NUMBER or text is None or labels is None:
        return None
    text = text.rstrip(" ")
    given = [text] if mysql_type.base == "enum" else text.split(",") if text else []
    label_places = [_find_label(label, labels) for label in given]
    places = sorted({place for place in label_places if place is not None})
    return None if None in label_places else ",".join(labels[place] for place in places)


# JSON documents that MySQL prints as written.
_SIMPLE_JSON = re.compile(r'0|-?[1-9][0-9]{0,17}|true|false|null|\[\]|[{][}]|"[^"\\\x00-\x1f]*"')


def _convert_to_json(literal: Token, mysql_type: MySQLType) -> str | None:  # noqa: ARG001 -- all have one signature
    """Return a JSON document as MySQL prints it; None: not known."""
    return literal.text if literal.kind is TokenKind.STRING and _SIMPLE_JSON.fullmatch(literal.text) else None


# The conversion to a spatial type is not known.
_CONVERTERS: Mapping[Family, Callable[[Token, MySQLType], str | None]] = MappingProxyType(
    {
        Family.INTEGER: _convert_to_integer,
        Family.DECIMAL: _convert_to_decimal,
        Family.FLOAT: _convert_to_float,
        Family.BIT: _convert_to_bits,
        Family.TEXT: _convert_to_text,
        Family.BINARY: _convert_to_bytes,
        Family.ENUM: _convert_to_labels,
        Family.SET: _convert_to_labels,
        Family.DATE: convert_to_date,
        Family.DATETIME: convert_to_datetime,
        Family.TIMESTAMP: convert_to_timestamp,
        Family.TIME: convert_to_time,
        Family.YEAR: convert_to_year,
        Family.JSON: _convert_to_json,
    }
)
