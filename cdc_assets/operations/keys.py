"""Row keys: from what a person gives to the text in `_cdc_key`, and which keys of a history are near one that it lacks."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import BinaryType, NumericType, StructField, StructType

from cdc_assets.lakehouse.history import history_name
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import Engine, engine_for
from cdc_assets.lakehouse.released_changes import ReleasedKind

# The escapes of the JSON writer that the decoders build keys with.
_ESCAPES = {n: f"\\u{n:04X}" for n in range(32)} | {
    8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", ord('"'): '\\"', ord("\\"): "\\\\",
}  # fmt: skip


@dataclass(frozen=True)
class NearKeys:
    """The keys of a history that are near a key that it lacks.

    Attributes:
        below: the next lower key; None: there is none.
        above: the next higher key; None: there is none.
        lowest: the lowest key of the history.
        highest: the highest key of the history.
        same_but_case: keys that differ from it in letter case only, at most five.
    """

    below: str | None
    above: str | None
    lowest: str | None
    highest: str | None
    same_but_case: list[str]


def find_key_columns(lake: Lakehouse, database: str, table: str) -> list[list[str]]:
    """Return the columns of each key that a source table has had, newest key first.

    An empty list of columns means that the table had no key then; no list at all, that nothing states its key.
    """
    released = lake.released_changes
    files = released.files(kind=str(ReleasedKind.LAYOUT))
    layouts = released.fetch(files, "database", "table", "last_ts", "key_columns").to_pylist()
    dated = [(r["last_ts"], r["key_columns"]) for r in layouts if (r["database"], r["table"]) == (database, table)]
    schemas = lake.schema_rows([(database, table)])
    stated = sorted((r["commit_ts"], r["key_columns"]) for r in schemas if r["columns"] is not None)
    newest_first: list[list[str]] = [columns for _, columns in sorted(dated or stated, reverse=True)]
    # A statement may have given the table another key, or the name to another table, of which no row has come yet.
    if dated and stated and stated[-1][0] >= max(dated)[0] and set(stated[-1][1]) != set(newest_first[0] or ()):
        newest_first.insert(0, stated[-1][1])
    return [columns for n, columns in enumerate(newest_first) if columns not in newest_first[:n]]


def match_key_columns(key: str, keys: Sequence[Sequence[str]]) -> Sequence[str] | None:
    """Return the columns that the values of `key` belong to: of the newest of `keys` with as many columns; None: unknown."""
    values = json.loads(key)
    count = 0 if isinstance(values, dict) else len(values)
    return next((columns for columns in keys if len(columns) == count), keys[0] if keys else None)


def encode_key(values: Sequence[str | None]) -> str:
    """Return key values as the tables hold them: a JSON array of texts."""
    return "[" + ",".join("null" if value is None else _quote(value) for value in values) + "]"


def encode_row_key(image: Mapping[str, Any]) -> str:
    """Return a row as the key that the tables hold for a table without one: its values but NULLs, by column name."""
    texts = {name: text for name, value in image.items() if (text := _to_text(value)) is not None}
    return "{" + ",".join(f"{_quote(name)}:{_quote(texts[name])}" for name in sorted(texts)) + "}"


def encode_image_key(image: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return the key of a row image; `columns`: its key's columns, none for a table without a key."""
    return encode_key([_to_text(image.get(column)) for column in columns]) if columns else encode_row_key(image)


def list_key_values(key: str) -> list[str]:
    """Return the values in a key as texts, without NULLs."""
    values = json.loads(key)
    return [value for value in (values.values() if isinstance(values, dict) else values) if value is not None]


def parse_key(given: Sequence[str], keys: Sequence[Sequence[str]]) -> str:
    """Return the key that a person means, as the tables hold it.

    Args:
        given: the key's values; or all of them as one JSON array; or, of a table without a key, the row as one JSON object.
        keys: the columns of each key that the table has had, newest first, as far as they are known.

    Raises:
        ValueError: the table has had no key with so many columns.
    """
    if len(given) == 1 and given[0][:1] in {"[", "{"}:
        try:
            parsed = json.loads(given[0], parse_float=str, parse_int=str)
        except ValueError:
            parsed = None  # a key value that only begins like JSON
        if isinstance(parsed, dict):
            return encode_row_key(parsed)
        if isinstance(parsed, list):
            return encode_key([_to_text(value) for value in parsed])
    if keys and len(given) not in map(len, keys):
        if not keys[0]:
            raise ValueError('The table has no key: give the row as one JSON object, such as {"a": "1"}.')
        raise ValueError(
            f"The table has the key ({', '.join(keys[0])}): give {len(keys[0])} values instead of {len(given)}."
        )
    return encode_key(given)


def find_key_by_typed_values(
    lake: Lakehouse, database: str, table: str, columns: Sequence[str] | None, given: Sequence[str]
) -> str | None:
    """Return the one key in a history whose typed columns have the given values; None: no key has, or several have.

    A protocol may send other texts than people give: days for a date, padded fractions, bytes in base64.

    Args:
        lake: the feed's tables.
        database: the source's database.
        table: the source's table.
        columns: the key's columns; None: unknown.
        given: their values in MySQL's text form, bytes as `0x` and hexadecimal digits.
    """
    history = lake.history(database, table)
    schema = history.schema()
    if schema is None or not columns:
        return None
    fields = [field for column in columns if (field := _find_field(schema, column)) is not None]
    if not len(fields) == len(columns) == len(given):
        return None
    engine = engine_for(lake.session, history)
    conditions = [_match_value(engine, field, text) for field, text in zip(fields, given, strict=True)]
    sql = f"SELECT DISTINCT _cdc_key FROM h WHERE {' AND '.join(conditions)} LIMIT 2"
    keys = engine.fetch(sql, {"h": history})["_cdc_key"].to_pylist()
    return keys[0] if len(keys) == 1 else None


def find_near_keys(lake: Lakehouse, database: str, table: str, key: str) -> NearKeys | None:
    """Return the keys of a history around `key`; None: there is no history, or it holds no key.

    A key of one numeric column is compared as a number, any other as text.
    """
    history = lake.history(database, table)
    schema = history.schema()
    if schema is None:
        return None
    engine = engine_for(lake.session, history)
    columns, values = match_key_columns(key, find_key_columns(lake, database, table)), list_key_values(key)
    field = _find_field(schema, columns[0]) if columns and len(columns) == len(values) == 1 else None
    term, literal = "_cdc_key", engine.text(key)
    if field is not None and isinstance(field.dataType, NumericType) and _is_number(values[0]):
        term, literal = engine.name(field.name), values[0]
    sql = (
        f"SELECT max(CASE WHEN {term} < {literal} THEN {term} END) AS below, "
        f"min(CASE WHEN {term} > {literal} THEN {term} END) AS above, "
        f"min({term}) AS lowest, max({term}) AS highest FROM h"
    )
    (bounds,) = engine.fetch(sql, {"h": history}).to_pylist()
    if bounds["lowest"] is None:
        return None
    sql = f"SELECT DISTINCT _cdc_key FROM h WHERE lower(_cdc_key) = lower({engine.text(key)}) LIMIT 5"
    same_but_case = engine.fetch(sql, {"h": history})["_cdc_key"].to_pylist()
    texts = {name: None if value is None else str(value) for name, value in bounds.items()}
    return NearKeys(**texts, same_but_case=sorted(same_but_case))


def _find_field(schema: StructType, column: str) -> StructField | None:
    """Return the field that a history has for a column of its source."""
    return next((field for field in schema if field.name.lower() == history_name(column).lower()), None)


def _match_value(engine: Engine[Any], field: StructField, text: str) -> str:
    """Return the SQL condition that a history column holds a value given in MySQL's text form."""
    name = engine.name(field.name)
    if isinstance(field.dataType, BinaryType):
        is_hexadecimal = re.fullmatch("0x([0-9A-Fa-f]{2})*", text)
        return f"{name} = X'{text.removeprefix('0x')}'" if is_hexadecimal else "false"
    # deltalake's SQL has no TIMESTAMP_NTZ: its TIMESTAMP is the one without a zone.
    sql_type = field.dataType.simpleString().replace("timestamp_ntz", "timestamp")
    return f"{name} = TRY_CAST({engine.text(text)} AS {sql_type})"


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal()


def _quote(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _to_text(value: object) -> str | None:
    """Return a JSON value as the text that keys hold of it."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
