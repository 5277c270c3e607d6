"""Texts of table values: for people on one line, for programs as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from cdc_assets.tso import time_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_MAX_CHARACTERS = 1000


def format_json(answer: "DataclassInstance") -> str:
    """Return a dataclass as a JSON object.

    Instants and dates are in ISO 8601, decimals are texts, and bytes are `0x` with hexadecimal digits.
    """
    return json.dumps(asdict(answer), default=_to_json_value, ensure_ascii=False, indent=2)


def format_value(value: object) -> str:
    """Return a value as JSON on one line; only the first 1000 characters of a longer one."""
    text = "NULL" if value is None else json.dumps(value, default=_to_json_value, ensure_ascii=False)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


def format_row(row: Mapping[str, object]) -> str:
    """Return a row as `column=value` pairs on one line."""
    return ", ".join(f"{column}={format_value(value)}" for column, value in row.items())


def format_position(commit_ts: int) -> str:
    """Return a commit_ts with its time in UTC."""
    return f"{commit_ts} ({time_text(commit_ts)})"


def _to_json_value(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
