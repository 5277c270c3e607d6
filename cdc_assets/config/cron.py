"""Cron texts of five fields, which say when a schedule starts its job."""

import re
from typing import NamedTuple

ALLOWED = 'five fields (minute, hour, day of month, month, day of week) in UTC, such as "0 4 * * *"'
_ITEM = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<by>\d+))?")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST_DAY = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # of each month


class CronError(ValueError):
    """A text that is no schedule; the message says which part of it is wrong."""


class _Field(NamedTuple):
    """A field of a cron text: its lowest and highest value, and what names stand for values, beginning with the lowest."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _WEEKDAYS),  # 0 and 7 are Sunday
)


def check_cron(text: str) -> None:
    """Check a cron text.

    Raises:
        CronError: it does not have five fields, a field is wrong, or the text names only days that no year has.
    """
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise CronError(f"it has {len(parts)} fields")
    values = [_list_values(field, part) for field, part in zip(_FIELDS, parts, strict=True)]
    days, months = values[2], values[3]
    if min(days) > max(_LONGEST_DAY[month - 1] for month in months):
        raise CronError(f"no month of {parts[3]} has a day {parts[2]}")


def _list_values(field: _Field, text: str) -> set[int]:
    """Return the values that a field's text stands for."""
    return {value for item in text.split(",") for value in _list_item_values(field, item)}


def _list_item_values(field: _Field, item: str) -> range:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise CronError(f'wrong {field.name} "{item}"')
    first = field.low if match["first"] is None else _parse_value(field, match["first"])
    last = _parse_value(field, match["last"]) if match["last"] else first if match["first"] else field.high
    by = int(match["by"] or 1)
    is_step_of_one_value = match["by"] and match["first"] and not match["last"]
    if first > last or is_step_of_one_value or not 1 <= by <= field.high:
        raise CronError(f'wrong {field.name} "{item}"')
    return range(first, last + 1, by)


def _parse_value(field: _Field, text: str) -> int:
    if text.lower() in field.names:
        return field.low + field.names.index(text.lower())
    if not (text.isascii() and text.isdecimal()) or not field.low <= int(text) <= field.high:
        raise CronError(f"{field.name} {text}: allowed are {field.low} to {field.high}")
    return int(text)
