"""Values of tables for people, and for programs."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_SHOWN = 1000


def as_json(told: "DataclassInstance") -> str:
    """A dataclass as a JSON object: instants and dates in ISO 8601, decimals as texts, bytes as 0x and hex digits."""
    return json.dumps(asdict(told), default=_plain, ensure_ascii=False, indent=2)


def value_text(value: object) -> str:
    """A value on one line; of a long one the beginning."""
    text = "NULL" if value is None else json.dumps(value, default=_plain, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def row_text(row: Mapping[str, object]) -> str:
    """A row on one line."""
    return ", ".join(f"{column}={value_text(value)}" for column, value in row.items())


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
