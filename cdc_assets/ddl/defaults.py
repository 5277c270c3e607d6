"""The value that a default's literal gives to existing rows: MySQL's own conversion, in plain Python.

MySQL stores a literal as it stores an assigned value, and refuses a DEFAULT that does not fit ("Invalid default value"),
whatever the SQL mode. Rounding and blanks that are cut off do not count. So a literal that does not fit here is one of which
this module does not know what MySQL makes of it.

The sections that are named here are those of the MySQL 8.4 reference manual.
"""

import re
import string
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from types import MappingProxyType
from typing import NamedTuple

from cdc_assets.mysql_types.reference import TYPES, Family, value_range
from cdc_assets.mysql_types.tokens import Token, TokenCursor, TokenKind
from cdc_assets.mysql_types.types import MySQLType

# A literal of which the value is not known.
_UNKNOWN = Token(TokenKind.OTHER, "")
_EXACT = Context(prec=500, rounding=ROUND_HALF_UP)
_MOST_DIGITS = 65  # of a DECIMAL


# --- literals of statements: "Literal Values"


def read_literal(cursor: TokenCursor) -> Token | None:
    """Take the literal that stands here, NULL excepted.

    Returns:
        A STRING, NUMBER, HEX or BITS token. A temporal literal is a STRING as MySQL prints it, TRUE and FALSE are numbers,
        texts of other character sets are in Unicode. An OTHER token is a literal whose value is not known. None: no literal
        stands here, and nothing is taken.
    """
    if cursor.sees("TRUE") or cursor.sees("FALSE"):
        return Token(TokenKind.NUMBER, "1" if cursor.next().text.upper() == "TRUE" else "0")
    if cursor.word() in _TEMPORAL and cursor.peek(1).kind is TokenKind.STRING:
        printed = _TEMPORAL[cursor.next().text.upper()]
        text = printed(cursor.next().text)
        return _UNKNOWN if text is None else Token(TokenKind.STRING, text)
    if cursor.peek().kind in {TokenKind.STRING, TokenKind.INTRODUCER}:
        return _read_text(cursor)
    if cursor.peek().kind in {TokenKind.HEX, TokenKind.BITS}:
        return cursor.next()
    return _read_number(cursor)


def _read_number(cursor: TokenCursor) -> Token | None:
    start = cursor.at
    minus = cursor.symbol("-")
    if not minus:
        cursor.symbol("+")
    point = cursor.symbol(".")
    if cursor.peek().kind is not TokenKind.NUMBER:
        cursor.at = start
        return None
    text = cursor.next().text
    return Token(TokenKind.NUMBER, "-" * minus + "0." * point + text)


# Character sets of introducers, as Python calls them. In those of `_WIDE` the bytes of ASCII are other characters.
_CHARACTER_SETS = {"utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "ascii": "ascii", "latin1": "cp1252"}
_WIDE = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf32": "utf-32-be"}


def _read_text(cursor: TokenCursor) -> Token:
    """Read a string with its introducer; strings beside each other are one ("String Literals")."""
    charset = cursor.next().text.lower().removeprefix("_") if cursor.peek().kind is TokenKind.INTRODUCER else None
    if cursor.peek().kind in {TokenKind.HEX, TokenKind.BITS}:
        token, encoding = cursor.next(), (_CHARACTER_SETS | _WIDE).get(charset or "")
        if charset == "binary":
            return token
        decoded = None if encoding is None else _decoded(_bytes_of(token), encoding)
        return _UNKNOWN if decoded is None else Token(TokenKind.STRING, decoded)
    text, is_text = "", cursor.peek().kind is TokenKind.STRING
    while cursor.peek().kind is TokenKind.STRING:
        text += cursor.next().text
    # The server takes the bytes of the text, which are in the session's character set, for bytes of the introducer's.
    same_bytes = charset in {None, "binary", "utf8", "utf8mb3", "utf8mb4"}
    is_known = is_text and (same_bytes or (text.isascii() and charset not in _WIDE))
    return Token(TokenKind.STRING, text) if is_known else _UNKNOWN


def _bytes_of(token: Token) -> bytes:
    """Return the bytes of a hexadecimal or bit-value literal."""
    size = -(-len(token.text) // (8 if token.kind is TokenKind.BITS else 2))
    return int(token.text or "0", 2 if token.kind is TokenKind.BITS else 16).to_bytes(size, "big")


def _decoded(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


# --- values of columns


def default_text(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return the value that a column gets from a literal, as `casting.decode` reads it in the dialect `ddl`.

    Args:
        literal: as `read_literal` returns it.
        mysql_type: the column's type, with its declared lengths.

    Returns:
        The text; None: the value is not known, or no column of a history holds it (zero and invalid dates).
    """
    return None if literal.kind is TokenKind.OTHER else _VALUES[TYPES[mysql_type.base].family](literal, mysql_type)


# Blanks around a number do not count, and nothing else may stand beside it.
_NUMBER = re.compile(
    r"\s*([+-]?(?:[0-9]{1,100}(?:[.][0-9]{0,100})?|[.][0-9]{1,100})(?:[eE][+-]?[0-9]{1,3})?)\s*", re.ASCII
)


def _number(literal: Token) -> Decimal | None:
    """Return the number that a literal is where a number is wanted: "Hexadecimal Literals", "Bit-Value Literals"."""
    if literal.kind in {TokenKind.HEX, TokenKind.BITS}:
        data = _bytes_of(literal)
        return Decimal(int.from_bytes(data, "big")) if len(data) <= 8 else None
    found = _NUMBER.fullmatch(literal.text)
    return Decimal(found[1]) if found else None


def _is_double(literal: Token) -> bool:
    """Tell whether a literal is an approximate number: one with an exponent ("Numeric Literals")."""
    return literal.kind is TokenKind.NUMBER and "e" in literal.text.lower()


def _rounded(number: Decimal, digits: int) -> Decimal:
    """Round half away from zero: "Rounding Behavior"."""
    return number.quantize(Decimal(1).scaleb(-digits), context=_EXACT)


def _whole(literal: Token) -> int | None:
    number = _number(literal)
    if number is None:
        return None
    # The manual leaves halves of approximate numbers to the C library.
    half = _is_double(literal) and _EXACT.remainder(number, Decimal(1)).copy_abs() == Decimal("0.5")
    return None if half else int(_rounded(number, 0))


def _integer(literal: Token, mysql_type: MySQLType) -> str | None:
    whole, limits = _whole(literal), value_range(mysql_type)
    return str(whole) if whole is not None and limits and limits.low <= whole <= limits.high else None


def _decimal(literal: Token, mysql_type: MySQLType) -> str | None:
    number = _number(literal)
    if number is None or mysql_type.length is None:
        return None
    scale = mysql_type.scale or 0
    rounded = _rounded(number, scale)
    if (mysql_type.unsigned and rounded < 0) or rounded.copy_abs() >= 10 ** (mysql_type.length - scale):
        return None
    return f"{rounded or abs(rounded):f}"


_LARGEST_FLOAT = Decimal("3.4028234663852886e38")
_LARGEST_DOUBLE = Decimal("1.7976931348623157e308")


def _float(literal: Token, mysql_type: MySQLType) -> str | None:
    number = _number(literal)
    if number is None or (mysql_type.unsigned and number < 0):
        return None
    if number.copy_abs() > (_LARGEST_FLOAT if mysql_type.base == "float" else _LARGEST_DOUBLE):
        return None
    length, scale = mysql_type.length, mysql_type.scale
    # Which way FLOAT(m,d) rounds the binary form decides.
    if (
        scale is not None
        and length is not None
        and (number != _rounded(number, scale) or abs(number) >= 10 ** (length - scale))
    ):
        return None
    plain = f"{number or abs(number):f}"
    return plain if len(plain) <= _MOST_DIGITS else f"{number:e}"


def _bits(literal: Token, mysql_type: MySQLType) -> str | None:
    """A string is the bytes of the bits: "Bit-Value Type - BIT"."""
    number = int.from_bytes(literal.text.encode(), "big") if literal.kind is TokenKind.STRING else _whole(literal)
    if number is None or (_is_double(literal) and number != _number(literal)):
        return None
    limits = value_range(mysql_type)
    return str(number) if limits and 0 <= number <= limits.high else None


def _printed(literal: Token) -> str | None:
    """Return the text of a literal where a text is wanted; bytes are in the column's character set, which is not known."""
    if literal.kind is TokenKind.STRING:
        return literal.text
    if literal.kind in {TokenKind.HEX, TokenKind.BITS}:
        return _decoded(_bytes_of(literal), "ascii")
    number = _number(literal)
    if number is None or len(number.as_tuple().digits) > _MOST_DIGITS:
        return None
    if _is_double(literal):
        return _printed_double(float(number))
    # All digits after the point stay. Whether a zero keeps its sign is not said.
    return None if number.is_signed() and not number else f"{number:f}"


def _printed_double(number: float) -> str | None:
    """Return a DOUBLE as a text, where MySQL prints it without an exponent."""
    if number and not 1e-4 <= abs(number) < 1e15:
        return None
    return str(int(number)) if number.is_integer() else repr(number)


# The largest TEXT and BLOB types, by the bytes that they hold: "Data Type Storage Requirements".
_MOST_BYTES = {"tiny": (1 << 8) - 1, "": (1 << 16) - 1, "medium": (1 << 24) - 1, "long": (1 << 32) - 1}


def _most_bytes(base: str) -> int | None:
    return _MOST_BYTES.get(base.removesuffix("text").removesuffix("blob"))


def _text(literal: Token, mysql_type: MySQLType) -> str | None:
    """A CHAR gives no blanks at its end back; too many blanks are cut off: "The CHAR and VARCHAR Types"."""
    text, most = _printed(literal), _most_bytes(mysql_type.base)
    if text is None or (most is not None and len(text.encode()) > most):
        return None
    if mysql_type.length is not None and most is None:
        if text[mysql_type.length :].strip(" "):
            return None
        text = text[: mysql_type.length]
    return text.rstrip(" ") if mysql_type.base == "char" else text


def _binary(literal: Token, mysql_type: MySQLType) -> str | None:
    """Bytes as ISO-8859-1 characters."""
    if literal.kind in {TokenKind.HEX, TokenKind.BITS}:
        data = _bytes_of(literal)
    elif (text := _printed(literal)) is not None:
        data = text.encode()
    else:
        return None
    most = _most_bytes(mysql_type.base) or mysql_type.length
    return None if most is not None and len(data) > most else data.decode("latin-1")


def _place_of_label(text: str, labels: tuple[str, ...]) -> int | None:
    """Return where a label stands: one that is spelled so, else the only one that is but for its letter case."""
    if text in labels:
        return labels.index(text)
    alike = [place for place, label in enumerate(labels) if label.lower() == text.lower()]
    return alike[0] if len(alike) == 1 else None


def _enum(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return the label. What a number gives is not known: of one that is a label as well the manual and MySQL differ."""
    text, labels = _printed(literal), mysql_type.labels
    if literal.kind is TokenKind.NUMBER or text is None or labels is None:
        return None
    place = _place_of_label(text.rstrip(" "), labels)
    return None if place is None else labels[place]


def _set(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return the labels in the order of the definition, each once: "The SET Type"."""
    text, labels = _printed(literal), mysql_type.labels
    if literal.kind is TokenKind.NUMBER or text is None or labels is None:
        return None
    given = [_place_of_label(label, labels) for label in text.rstrip(" ").split(",")] if text.rstrip(" ") else []
    places = sorted({place for place in given if place is not None})
    return None if None in given else ",".join(labels[place] for place in places)


# --- dates and times: "Date and Time Literals", "Fractional Seconds in Time Values"


class _Stamp(NamedTuple):
    """A date and time of whole seconds, and the fraction of its second as it is written."""

    whole: datetime
    fraction: Decimal = Decimal(0)
    digits: int = 0  # of the fraction

    def rounded(self, digits: int) -> datetime:
        """Round half up to these digits.

        Raises:
            OverflowError: there is no such day.
        """
        micros = _rounded(self.fraction, digits) * 1_000_000
        return self.whole + timedelta(microseconds=int(micros))


_P = f"[{re.escape(string.punctuation)}]"
_FRACTION = r"(?:[.]([0-9]*))?"
# Parts with delimiters, of one digit or two; the time may lack its end.
_DELIMITED = re.compile(
    rf"\s*([0-9]{{4}}|[0-9]{{2}}){_P}+([0-9]{{1,2}}){_P}+([0-9]{{1,2}})"
    rf"(?:(?:T|[\s{re.escape(string.punctuation)}]+)([0-9]{{1,2}})"
    rf"(?:{_P}+([0-9]{{1,2}})(?:{_P}+([0-9]{{1,2}}){_FRACTION})?)?)?\s*",
    re.ASCII,
)
_RUN_TOGETHER = re.compile(
    rf"\s*([0-9]{{4}}|[0-9]{{2}})([0-9]{{2}})([0-9]{{2}})(?:T?([0-9]{{2}})([0-9]{{2}})([0-9]{{2}}){_FRACTION})?\s*",
    re.ASCII,
)


def _stamp_of_text(text: str) -> _Stamp | None:
    """Return the date and time that a text tells; None: none, or one that no type of Spark's holds."""
    found = _RUN_TOGETHER.fullmatch(text) or _DELIMITED.fullmatch(text)
    if found is None:
        return None
    *parts, fraction = found.groups(default="")
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    if len(parts[0]) == 2:
        year = _full_year(year)
    return _stamp(year, month, day, hour, minute, second, fraction)


def _stamp(year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str) -> _Stamp | None:
    try:
        whole = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 -- of a zone that the column tells
    except ValueError:
        return None
    return _Stamp(whole, Decimal("0." + (fraction or "0")), min(len(fraction), 6))


# The numbers that are dates with two and with four digits of the year: the largest, and what it lacks.
_DAYS = ((691231, 20000000), (991231, 19000000), (99991231, 0))


def _stamp_of_number(number: Decimal) -> _Stamp | None:
    """Return the date and time that a number tells: YYMMDD, YYYYMMDD, YYMMDDhhmmss or YYYYMMDDhhmmss."""
    if number < 101:
        return None
    whole = int(number)
    of_day = whole <= _DAYS[-1][0]
    day, clock = (whole, 0) if of_day else divmod(whole, 1_000_000)
    if day < 101:
        return None
    day += next((more for largest, more in _DAYS if day <= largest), 0)
    _, _, fraction = f"{number:f}".partition(".")
    if of_day and fraction.strip("0"):
        return None
    date = day // 10_000, day // 100 % 100, day % 100
    return _stamp(*date, clock // 10_000, clock // 100 % 100, clock % 100, fraction)


def _stamp_of(literal: Token) -> _Stamp | None:
    if literal.kind is TokenKind.STRING:
        return _stamp_of_text(literal.text)
    number = _number(literal)
    return (
        None
        if number is None or literal.kind is not TokenKind.NUMBER or _is_double(literal)
        else _stamp_of_number(number)
    )


def _date(literal: Token, mysql_type: MySQLType) -> str | None:  # noqa: ARG001 -- every type has the same signature
    """A time of day is cut off; a fraction might round to the next day."""
    stamp = _stamp_of(literal)
    return None if stamp is None or stamp.fraction else stamp.whole.date().isoformat()


def _clock_digits(stamp: datetime, digits: int) -> str:
    """`YYYY-MM-DD hh:mm:ss` with these digits of the fraction."""
    text = stamp.isoformat(" ", "microseconds")
    return text[: len(text) - 6 + digits - (not digits)]


def _datetime(literal: Token, mysql_type: MySQLType) -> str | None:
    stamp, digits = _stamp_of(literal), mysql_type.length or 0
    try:
        return None if stamp is None else _clock_digits(stamp.rounded(digits), digits)
    except OverflowError:
        return None


# Inside these days a TIMESTAMP exists in every time zone.
_FIRST_TIMESTAMP, _LAST_TIMESTAMP = "1970-01-02", "2038-01-18"


def _timestamp(literal: Token, mysql_type: MySQLType) -> str | None:
    text = _datetime(literal, mysql_type)
    return text if text is not None and _FIRST_TIMESTAMP <= text < _LAST_TIMESTAMP else None


class _Time(NamedTuple):
    """A time as whole seconds, and the fraction of the last one as it is written."""

    negative: bool
    seconds: int
    fraction: Decimal
    digits: int

    def text(self, digits: int) -> str | None:
        """Return `[-]hh:mm:ss` with these digits of the fraction, rounded half away from zero; None out of MySQL's range."""
        micros = self.seconds * 1_000_000 + int(_rounded(self.fraction, digits) * 1_000_000)
        if micros > _LARGEST_TIME:
            return None
        seconds, fraction = divmod(micros, 1_000_000)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        text += f".{fraction:06}"[: digits + 1] if digits else ""
        return "-" + text if self.negative and micros else text


_LARGEST_TIME = (838 * 3600 + 59 * 60 + 59) * 1_000_000
# Sign, days, hours, minutes, seconds, fraction: "11:12" is 11:12:00, "1112" is 00:11:12.
_TIMES = tuple(
    re.compile(shape, re.ASCII)
    for shape in (
        rf"\s*(-?)(?:([0-9]{{1,2}}) +)?([0-9]{{1,3}}):([0-9]{{1,2}})(?::([0-9]{{1,2}}){_FRACTION})?\s*",
        r"\s*(-?)([0-9]{1,2}) +([0-9]{1,3})()()()\s*",
        rf"\s*(-?)()([0-9]{{0,3}}?)([0-9]{{0,2}}?)([0-9]{{1,2}}){_FRACTION}\s*",
    )
)
# From so many characters on a text may be a date and time.
_LONG_TIME = 12


def _time_of_text(text: str) -> _Time | None:
    """Return the time that a text tells."""
    if len(text.strip()) >= _LONG_TIME and (stamp := _stamp_of_text(text)) is not None:
        clock = stamp.whole.hour * 3600 + stamp.whole.minute * 60 + stamp.whole.second
        # Rounding might go on to the next day.
        return None if stamp.fraction else _Time(False, clock, stamp.fraction, stamp.digits)  # noqa: FBT003
    found = next((match for shape in _TIMES if (match := shape.fullmatch(text))), None)
    if found is None:
        return None
    sign, *parts, fraction = found.groups(default="")
    days, hours, minutes, seconds = (int(part or 0) for part in parts)
    if minutes > 59 or seconds > 59:
        return None
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return _Time(sign == "-", whole, Decimal("0." + (fraction or "0")), min(len(fraction), 6))


def _time(literal: Token, mysql_type: MySQLType) -> str | None:
    if _is_double(literal) or literal.kind in {TokenKind.HEX, TokenKind.BITS}:
        return None
    time = _time_of_text(literal.text)
    return None if time is None else time.text(mysql_type.length or 0)


def _year(literal: Token, mysql_type: MySQLType) -> str | None:
    """The number 0 is the year 0000, the text '0' is 2000: "The YEAR Type"."""
    if literal.kind not in {TokenKind.STRING, TokenKind.NUMBER} or not re.fullmatch("[0-9]{1,4}", literal.text):
        return None
    year, limits = int(literal.text), value_range(mysql_type)
    if len(literal.text) <= 2 if literal.kind is TokenKind.STRING else 0 < year < 100:
        year = _full_year(year)
    return f"{year:04}" if year == 0 or (limits and limits.low <= year <= limits.high) else None


def _full_year(year: int) -> int:
    """Return the year that two digits stand for: "2-Digit Years in Dates"."""
    return year + (1900 if year >= 70 else 2000)


# Documents that MySQL prints as they are written.
_SIMPLE_JSON = re.compile(r'0|-?[1-9][0-9]{0,17}|true|false|null|\[\]|[{][}]|"[^"\\\x00-\x1f]*"')


def _json(literal: Token, mysql_type: MySQLType) -> str | None:  # noqa: ARG001 -- every type has the same signature
    return literal.text if literal.kind is TokenKind.STRING and _SIMPLE_JSON.fullmatch(literal.text) else None


def _not_known(literal: Token, mysql_type: MySQLType) -> str | None:  # noqa: ARG001 -- every type has the same signature
    return None


_VALUES: Mapping[Family, Callable[[Token, MySQLType], str | None]] = MappingProxyType(
    {
        Family.INTEGER: _integer,
        Family.DECIMAL: _decimal,
        Family.FLOAT: _float,
        Family.BIT: _bits,
        Family.TEXT: _text,
        Family.BINARY: _binary,
        Family.ENUM: _enum,
        Family.SET: _set,
        Family.DATE: _date,
        Family.DATETIME: _datetime,
        Family.TIMESTAMP: _timestamp,
        Family.TIME: _time,
        Family.YEAR: _year,
        Family.JSON: _json,
        Family.SPATIAL: _not_known,
    }
)


def _printed_date(text: str) -> str | None:
    stamp = _stamp_of_text(text)
    return None if stamp is None or stamp.fraction else stamp.whole.date().isoformat()


def _printed_timestamp(text: str) -> str | None:
    stamp = _stamp_of_text(text)
    try:
        return None if stamp is None else _clock_digits(stamp.rounded(stamp.digits), stamp.digits)
    except OverflowError:
        return None


def _printed_time(text: str) -> str | None:
    time = _time_of_text(text)
    return None if time is None else time.text(time.digits)


# What MySQL prints of `DATE 'text'` and the like.
_TEMPORAL: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {"DATE": _printed_date, "TIME": _printed_time, "TIMESTAMP": _printed_timestamp}
)
