"""Compare MySQL's text of a value, as the truth files have it, with a history's value, by the tests' own rules."""

import datetime as dt
import json
import struct
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

_TEXT = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}


def same(
    text: str | None,
    column_type: str,
    value: Any,
    zone: str = "UTC",
    *,
    hexadecimal_bits: bool = False,
    double_decimals: bool = False,
) -> bool:
    """Return whether a history's value is right for MySQL's text; zero dates are NULL."""
    base = column_type.replace("(", " ").split(" ", maxsplit=1)[0].lower()
    if text is None:
        return value is None
    if base in {"date", "datetime", "timestamp"} and (text[5:7] == "00" or text[8:10] == "00"):
        return value is None
    if value is None:
        return False
    if base == "json":
        return bool(json.loads(text) == json.loads(value))
    if base in _TEXT:
        return bool(text == value)
    if base in _BYTES:
        return bool(bytes.fromhex(text.removeprefix("0x")) == value)
    if base == "bit" and hexadecimal_bits:
        return bool(int(text, 16) == int(value))
    if base == "float":
        # The mysql client prints six digits, rounded; other truth files have all digits.
        exact = struct.unpack("f", struct.pack("f", float(text)))[0]
        return bool(exact == value or abs(exact - value) <= 5e-6 * abs(exact))
    if base == "double" and "," in column_type:
        # DOUBLE(m,d) is printed with d digits, but stored and sent in binary.
        rounding = 10.0 ** -int(column_type.split(",")[1].rstrip(")")) / 2
        return bool(abs(float(text) - value) <= 5e-16 * abs(value) + rounding)
    if base == "double":
        return bool(float(text) == value)
    if base == "decimal" and double_decimals:
        return float(text) == float(value)
    if base == "date":
        return bool(dt.date.fromisoformat(text) == value)
    if base == "datetime":
        return bool(dt.datetime.fromisoformat(text) == value)
    if base == "timestamp":
        local = dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))
        return bool(local.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f") == value)
    if base == "time":
        return _time(text) == _time(value)
    return Decimal(text) == Decimal(value)  # integers, decimals, years, bits


def _time(text: str) -> tuple[bool, list[int], str]:
    clock, _, fraction = text.lstrip("-").partition(".")
    return text.startswith("-"), [int(part) for part in clock.split(":")], fraction.rstrip("0")
