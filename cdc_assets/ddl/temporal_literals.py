"""Convert literals to dates and times: "Date and Time Literals", "Fractional Seconds in Time Values".

Sections named here are those of the MySQL 8.4 reference manual. A *stamp* is a date with a time of day.
"""

import re
import string
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from cdc_assets.ddl.literal_values import is_double, number_of, round_half_up
from cdc_assets.mysql_types.tokens import Token, TokenKind
from cdc_assets.mysql_types.types import MySQLType, value_range


class _Stamp(NamedTuple):
    """A date and time in seconds, and the fraction of its second as written."""

    seconds: datetime
    fraction: Decimal
    digits: int  # of the fraction

    def date(self) -> str | None:
        """Return `YYYY-MM-DD`; None with a fraction, which may round to the next day."""
        return None if self.fraction else self.seconds.date().isoformat()

    def text(self, digits: int) -> str | None:
        """Return `YYYY-MM-DD hh:mm:ss` rounded half up to these digits of the fraction; None: after the year 9999."""
        micros = int(round_half_up(self.fraction, digits) * 1_000_000)
        try:
            text = (self.seconds + timedelta(microseconds=micros)).isoformat(" ", "microseconds")
        except OverflowError:
            return None
        return text[: len(text) - 6 + digits - (not digits)]


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
    try:
        seconds = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 -- MySQL's literals have no time zone
    except ValueError:
        return None
    return _Stamp(seconds, Decimal("0." + (fraction or "0")), min(len(fraction), 6))


def _stamp_of_number(number: Decimal) -> _Stamp | None:
    """Return the date and time of a number: YYMMDD, YYYYMMDD, YYMMDDhhmmss or YYYYMMDDhhmmss; None: it is none."""
    integer, _, fraction = f"{number:f}".partition(".")
    length = next((length for length in (6, 8, 12, 14) if len(integer) <= length), 0)
    fraction = fraction.rstrip("0")
    return _parse_stamp(integer.zfill(length) + (f".{fraction}" if fraction else "")) if number >= 101 else None


def _read_stamp(literal: Token) -> _Stamp | None:
    """Return the date and time that a literal is; None: it is none."""
    if literal.kind is TokenKind.STRING:
        return _parse_stamp(literal.text)
    number = number_of(literal) if literal.kind is TokenKind.NUMBER and not is_double(literal) else None
    return None if number is None else _stamp_of_number(number)


def convert_to_date(literal: Token, mysql_type: MySQLType) -> str | None:  # noqa: ARG001 -- every type has the same signature
    """Return a DATE. MySQL cuts the time of day off."""
    stamp = _read_stamp(literal)
    return stamp and stamp.date()


def convert_to_datetime(literal: Token, mysql_type: MySQLType) -> str | None:
    """Return a DATETIME with the digits of its type."""
    stamp = _read_stamp(literal)
    return stamp and stamp.text(mysql_type.length or 0)


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
    return time and time.text(mysql_type.length or 0)


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


def print_temporal_literal(keyword: str, text: str) -> str | None:
    """Return the literal DATE 'text', TIME 'text' or TIMESTAMP 'text' as MySQL prints it; None: not known."""
    if keyword == "TIME":
        time = _parse_time(text)
        return time and time.text(time.digits)
    stamp = _parse_stamp(text)
    return stamp and (stamp.date() if keyword == "DATE" else stamp.text(stamp.digits))
