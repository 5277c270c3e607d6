"""The key of a row as people give it, and as the tables have it; and which keys are next to one that is not there."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import BinaryType, DataType, NumericType

from cdc_assets.lakehouse.history import RESERVED, history_name
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import Engine, engine_for
from cdc_assets.lakehouse.released_changes import ReleasedKind

# As the JSON writer escapes that made the keys of the tables.
_ESCAPES = {n: f"\\u{n:04X}" for n in range(32)} | {
    8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", ord('"'): '\\"', ord("\\"): "\\\\",
}  # fmt: skip


@dataclass(frozen=True)
class Near:
    """What a history has next to a key.

    Attributes:
        below: the next lower key; None: there is none.
        above: the next higher.
        lowest: of all keys.
        highest: of all keys.
        alike: keys that differ in letter case only.
    """

    below: str | None
    above: str | None
    lowest: str | None
    highest: str | None
    alike: list[str]


def keys_of(lake: Lakehouse, database: str, table: str) -> list[list[str]]:
    """The columns of each key that a table has had, newest first; empty: it had none. No entry: nothing is known."""
    released = lake.released_changes
    files = released.files(kind=str(ReleasedKind.LAYOUT))
    told = released.fetch(files, "database", "table", "last_ts", "key_columns").to_pylist()
    told = [(r["last_ts"], r["key_columns"]) for r in told if (r["database"], r["table"]) == (database, table)]
    if not told:
        shapes = [r for r in lake.schema_rows([(database, table)]) if r["columns"] is not None]
        told = [(r["commit_ts"], r["key_columns"]) for r in shapes]
    newest_first: list[list[str]] = [columns for _, columns in sorted(told, reverse=True)]
    return [columns for n, columns in enumerate(newest_first) if columns not in newest_first[:n]]


def key_columns(lake: Lakehouse, database: str, table: str) -> list[str] | None:
    """The columns of a table's key, as its newest rows have it; empty: it has none; None: not known."""
    return next(iter(keys_of(lake, database, table)), None)


def columns_of(key: str, keys: Sequence[Sequence[str]]) -> Sequence[str] | None:
    """The columns whose values a key has, of those that its table's keys have had; None: not known."""
    said = json.loads(key)
    fitting = (columns for columns in keys if len(columns) == (0 if isinstance(said, dict) else len(said)))
    return next(fitting, keys[0] if keys else None)


def key_of(values: Sequence[str | None]) -> str:
    """A key as the tables have it: the text of a JSON array."""
    return "[" + ",".join("null" if v is None else _quoted(v) for v in values) + "]"


def row_key(image: Mapping[str, Any]) -> str:
    """The key of a row of a table without one: the row without its NULLs, in the order of the columns' names."""
    told = {name: text for name, value in image.items() if (text := _text(value)) is not None}
    return "{" + ",".join(f"{_quoted(name)}:{_quoted(told[name])}" for name in sorted(told)) + "}"


def key_of_image(image: Mapping[str, Any], columns: Sequence[str]) -> str:
    """The key of a row."""
    return key_of([_text(image.get(c)) for c in columns]) if columns else row_key(image)


def texts_of(key: str) -> list[str]:
    """The values in a key."""
    said = json.loads(key)
    return [v for v in (said.values() if isinstance(said, dict) else said) if v is not None]


def sought(given: Sequence[str], keys: Sequence[Sequence[str]]) -> str:
    """The key that a person means.

    Args:
        given: its values; or one JSON array of them, or one JSON object, the row of a table without a key.
        keys: the columns of each key that the table has had, newest first, as far as they are known.

    Raises:
        ValueError: these are not its values.
    """
    if len(given) == 1 and given[0][:1] in {"[", "{"}:
        try:
            said = json.loads(given[0], parse_float=str, parse_int=str)
        except ValueError:
            said = None  # a value that begins so
        if isinstance(said, dict):
            return row_key(said)
        if isinstance(said, list):
            return key_of([_text(v) for v in said])
    if keys and len(given) not in map(len, keys):
        if not keys[0]:
            raise ValueError('has no key: give the row as one JSON object, such as {"a": "1"}')
        raise ValueError(f"has the key ({', '.join(keys[0])}): {len(keys[0])} values are needed, {len(given)} given")
    return key_of(given)


def same_values(
    lake: Lakehouse, database: str, table: str, columns: Sequence[str] | None, given: Sequence[str]
) -> str | None:
    """The key in the history whose typed columns have these values; None where there is none, or several.

    A protocol may send other texts than people give: days for a date, padded fractions, bytes in base64. Of bytes, people
    give 0x and hexadecimal digits.
    """
    history = lake.history(database, table)
    schema = history.schema()
    if schema is None or not columns or len(columns) != len(given):
        return None
    engine = engine_for(lake.session, history)
    kinds = {f.name.lower(): (f.name, f.dataType) for f in schema}
    named = [kinds.get(history_name(c).lower()) for c in columns]
    told = [_is(engine, *of, text) for of, text in zip(named, given, strict=True) if of]
    if len(told) != len(columns):
        return None
    sql = f"SELECT DISTINCT _cdc_key FROM h WHERE {' AND '.join(told)} LIMIT 2"
    found = engine.fetch(sql, {"h": history})["_cdc_key"].to_pylist()
    return found[0] if len(found) == 1 else None


def nearest(lake: Lakehouse, database: str, table: str, key: str) -> Near | None:
    """The keys next to one, and the lowest and highest: as numbers, where the key is one; else as texts.

    None where there is no history, or no key in it.
    """
    history = lake.history(database, table)
    schema = history.schema()
    if schema is None:
        return None
    engine = engine_for(lake.session, history)
    columns, texts = columns_of(key, keys_of(lake, database, table)), texts_of(key)
    kinds = {f.name.lower(): f for f in schema if not f.name.startswith(RESERVED)}
    only = kinds.get(history_name(columns[0]).lower()) if columns and len(columns) == 1 and len(texts) == 1 else None
    by, to = "_cdc_key", engine.text(key)
    if only is not None and isinstance(only.dataType, NumericType) and _is_number(texts[0]):
        by, to = engine.name(only.name), texts[0]
    each = {
        "below": f"max(CASE WHEN {by} < {to} THEN {by} END)",
        "above": f"min(CASE WHEN {by} > {to} THEN {by} END)",
        "lowest": f"min({by})",
        "highest": f"max({by})",
    }
    listed = ", ".join(f"{said} AS {name}" for name, said in each.items())
    (ends,) = engine.fetch(f"SELECT {listed} FROM h", {"h": history}).to_pylist()
    sql = f"SELECT DISTINCT _cdc_key FROM h WHERE lower(_cdc_key) = lower({engine.text(key)}) LIMIT 5"
    alike = engine.fetch(sql, {"h": history})["_cdc_key"].to_pylist()
    if ends["lowest"] is None:
        return None
    return Near(**{k: None if v is None else str(v) for k, v in ends.items()}, alike=sorted(alike))


def _is(engine: Engine[Any], name: str, kind: DataType, text: str) -> str:
    """That a column has a value, in SQL."""
    if isinstance(kind, BinaryType):
        digits = text.removeprefix("0x")
        hexadecimal = digits != text and not set(digits.lower()) - set("0123456789abcdef")
        return f"{engine.name(name)} = X'{digits}'" if hexadecimal and len(digits) % 2 == 0 else "false"
    said = kind.simpleString().replace("timestamp_ntz", "timestamp")
    return f"{engine.name(name)} = TRY_CAST({engine.text(text)} AS {said})"


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal()


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _text(value: object) -> str | None:
    """A JSON value as its text."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
