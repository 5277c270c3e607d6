"""Convert literals to dates and times: "Date and Time Literals", "Fractional Seconds in Time Values".

Sections named here are those of the MySQL 8.4 reference manual. A *stamp* is a date with a time of day.
"""

import re
import string
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import NamedTuple

from cdc_assets.ddl.literal_values import is_double, number_of, round_half_up
from cdc_assets.mysql_types.tokens import Token, TokenKind
from cdc_assets.mysql_types.types import MySQLType, value_range


class _Stamp(NamedTuple):
    """A date and time in seconds, and the fraction of its second as written."""

    seconds: datetime
    fraction: Decimal = Decimal(0)
    digits: int = 0  # of the fraction

    def round_to(self, digits: int) -> datetime:
        """Return the stamp rounded half up to these digits of the fraction.

        Raises:
            OverflowError: the result is after the year 9999.
        """
        micros = round_half_up(self.fraction, digits) * 1_000_000
        return self.seconds + timedelta(microseconds=int(micros))


_PUNCTUATION = f"[{re.escape(string.punctuation)}]"


_FRACTION = r"(?:[.]([0-9]*))?"


# Parts of one or two digits with delimiters between them. The time may lack its last parts.
_DELIMITED = re.compile(
    rf"\s*([0-9]{{4}}|[0-9]{{2}}){_PUNCTUATION}+([0-9]{{1,2}}){_PUNCTUATION}+([0-9]{{1,2}})"
    rf"(?:(?:T|[\s{re.escape(string.punctuation)}]+)([0-9]{{1,2}})"
    rf"(?:{_PUNCTUATION}+([0-9]{{1,2}})(?:{_PUNCTUATION}+([0-9]{{1,2}}){_FRACTION})?)?)?\s*",
    re.ASCII,
)


_UNDELIMITED = re.compile(
    rf"\s*([0-9]{{4}}|[0-9]{{2}})([0-9]{{2}})([0-9]{{2}})(?:T?([0-9]{{2}})([0-9]{{2}})([0-9]{{2}}){_FRACTION})?\s*",
    re.ASCII,
)


def _parse_stamp(text: str) -> _Stamp | None:
    """Return the date and time that a text is; None: it is none, or one that no Spark type can hold."""
    match = _UNDELIMITED.fullmatch(text) or _DELIMITED.fullmatch(text)
    if match is None:
        return None
    *parts, fraction = match.groups(default="")
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    if len(parts[0]) == 2:
        year = _complete_year(year)
    return _make_stamp(year, month, day, hour, minute, second, fraction)


def _make_stamp(year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str) -> _Stamp | None:
    """Return the stamp of these parts; None: there is no such day or time."""
    try:
        seconds = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 -- MySQL's literals have no time zone
    except ValueError:
        return None
    return _Stamp(seconds, Decimal("0." + (fraction or "0")), min(len(fraction), 6))


# The largest number of each form of date (YYMMDD from 2000, YYMMDD before 2000, YYYYMMDD), and what to add to make YYYYMMDD.
_DATE_NUMBERS = ((691231, 20000000), (991231, 19000000), (99991231, 0))


def _stamp_of_digits(number: Decimal) -> _Stamp | None:
    """Return the date and time of a number: YYMMDD, YYYYMMDD, YYMMDDhhmmss or YYYYMMDDhhmmss; None: it is none."""
    if number < 101:
        return None
    integer = int(number)
    is_date = integer <= _DATE_NUMBERS[-1][0]
    day, clock = (integer, 0) if is_date else divmod(integer, 1_000_000)
    if day < 101:
        return None
    day += next((century for largest, century in _DATE_NUMBERS if day <= largest), 0)
    _, _, fraction = f"{number:f}".partition(".")
    if is_date and fraction.strip("0"):
        return None
    date = day // 10_000, day // 100 % 100, day % 100
    return _make_stamp(*date, clock // 10_000, clock // 100 % 100, clock % 100, fraction)


def _read_stamp(literal: Token) -> _Stamp | None:
    """Return the date and time that a literal is; None: it is none."""
    if literal.kind is TokenKind.STRING:
        return _parse_stamp(literal.text)
    number = number_of(literal)
    return (
        None
        if number is None or literal.kind is not TokenKind.NUMBER or is_double(literal)
        else _stamp_of_digits(number)
    )


def convert_to_date(literal: Token, mysql_type: MySQLType) -> str | None:  # noqa: ARG001 -- every type has the same signature
    """Return a DATE. MySQL cuts the time of day off; with a fraction, which may round to the next day, None."""
    stamp = _read_stamp(literal)
    return None if stamp is None or stamp.fraction else stamp.seconds.date().isoformat()


def _format_stamp(stamp: datetime, digits: int) -> str:
    """Return `YYYY-MM-DD hh:mm:ss` with these digits of the fraction."""
    text = stamp.isoformat(" ", "microseconds")
    return text[: len(text) - 6 + digits - (not digits)]


def convert_to_datetime(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return a DATETIME with the digits of its type."""
    stamp, digits = _read_stamp(literal), mysql_type.length or 0
    try:
        return None if stamp is None else _format_stamp(stamp.round_to(digits), digits)
    except OverflowError:
        return None


# From the first of these days to before the last one a TIMESTAMP is in MySQL's range in every time zone.
_FIRST_TIMESTAMP, _LAST_TIMESTAMP = "1970-01-02", "2038-01-18"


def convert_to_timestamp(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return a TIMESTAMP in the session's time zone; None: it is not in MySQL's range in every time zone."""
    text = convert_to_datetime(literal, mysql_type)
    return text if text is not None and _FIRST_TIMESTAMP <= text < _LAST_TIMESTAMP else None


class _Time(NamedTuple):
    """A time in seconds, and the fraction of its second as written."""

    is_negative: bool
    seconds: int
    fraction: Decimal
    digits: int

    def text(self, digits: int) -> str | None:
        """Return `[-]hh:mm:ss` rounded half away from zero to these digits of the fraction; None: not in MySQL's range."""
        micros = self.seconds * 1_000_000 + int(round_half_up(self.fraction, digits) * 1_000_000)
        if micros > _LARGEST_TIME:
            return None
        seconds, fraction = divmod(micros, 1_000_000)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        text += f".{fraction:06}"[: digits + 1] if digits else ""
        return "-" + text if self.is_negative and micros else text


_LARGEST_TIME = (838 * 3600 + 59 * 60 + 59) * 1_000_000


# Sign, days, hours, minutes, seconds, fraction: "11:12" is 11:12:00, "1112" is 00:11:12.
_TIME_FORMS = tuple(
    re.compile(form, re.ASCII)
    for form in (
        rf"\s*(-?)(?:([0-9]{{1,2}}) +)?([0-9]{{1,3}}):([0-9]{{1,2}})(?::([0-9]{{1,2}}){_FRACTION})?\s*",
        r"\s*(-?)([0-9]{1,2}) +([0-9]{1,3})()()()\s*",
        rf"\s*(-?)()([0-9]{{0,3}}?)([0-9]{{0,2}}?)([0-9]{{1,2}}){_FRACTION}\s*",
    )
)


# A text of fewer characters is a time, never a date and time.
_SHORTEST_STAMP = 12


def _parse_time(text: str) -> _Time | None:
    """Return the time that a text is; None: it is none."""
    if len(text.strip()) >= _SHORTEST_STAMP and (stamp := _parse_stamp(text)) is not None:
        clock = stamp.seconds.hour * 3600 + stamp.seconds.minute * 60 + stamp.seconds.second
        # The server rounds the stamp, which may change its day.
        return None if stamp.fraction else _Time(False, clock, stamp.fraction, stamp.digits)  # noqa: FBT003
    match = next((match for form in _TIME_FORMS if (match := form.fullmatch(text))), None)
    if match is None:
        return None
    sign, *parts, fraction = match.groups(default="")
    days, hours, minutes, seconds = (int(part or 0) for part in parts)
    if minutes > 59 or seconds > 59:
        return None
    seconds += ((days * 24 + hours) * 60 + minutes) * 60
    return _Time(sign == "-", seconds, Decimal("0." + (fraction or "0")), min(len(fraction), 6))


def convert_to_time(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return a TIME with the digits of its type."""
    if is_double(literal) or literal.kind in {TokenKind.HEX, TokenKind.BITS}:
        return None
    time = _parse_time(literal.text)
    return None if time is None else time.text(mysql_type.length or 0)


def convert_to_year(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return a YEAR. The number 0 is the year 0000, the text '0' is 2000 ("The YEAR Type")."""
    if literal.kind not in {TokenKind.STRING, TokenKind.NUMBER} or not re.fullmatch("[0-9]{1,4}", literal.text):
        return None
    year, limits = int(literal.text), value_range(mysql_type)
    if len(literal.text) <= 2 if literal.kind is TokenKind.STRING else 0 < year < 100:
        year = _complete_year(year)
    return f"{year:04}" if year == 0 or (limits and limits.low <= year <= limits.high) else None


def _complete_year(year: int) -> int:
    """Return the year of two digits with its century ("2-Digit Years in Dates")."""
    return year + (1900 if year >= 70 else 2000)


def _print_date(text: str) -> str | None:
    """Return a DATE literal as MySQL prints it; None: not known."""
    stamp = _parse_stamp(text)
    return None if stamp is None or stamp.fraction else stamp.seconds.date().isoformat()


def _print_timestamp(text: str) -> str | None:
    """Return a TIMESTAMP literal as MySQL prints it; None: not known."""
    stamp = _parse_stamp(text)
    try:
        return None if stamp is None else _format_stamp(stamp.round_to(stamp.digits), stamp.digits)
    except OverflowError:
        return None


def _print_time(text: str) -> str | None:
    """Return a TIME literal as MySQL prints it; None: not known."""
    time = _parse_time(text)
    return None if time is None else time.text(time.digits)


# How MySQL prints the literals DATE 'text', TIME 'text' and TIMESTAMP 'text'.
TEMPORAL_PRINTERS: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {"DATE": _print_date, "TIME": _print_time, "TIMESTAMP": _print_timestamp}
)
