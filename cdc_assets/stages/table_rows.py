"""Read what row events show about tables, for the stage table_schemas: their names, first columns and keys."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow.compute as pc

from cdc_assets.ddl.replay import TableRows
from cdc_assets.ddl.resolve import Name
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import ReleaseCursor, ReleasedKind
from cdc_assets.protocols.base import Protocol
from cdc_assets.protocols.loaded import columns_in


def rows_may_show_more(lake: Lakehouse, schema_rows: Iterable[Mapping[str, Any]] | None = None) -> bool:
    """Return whether new row events may show more about the statements than is known.

    They may if they belong to a table that a statement names in another letter case, or that CREATE TABLE IF NOT EXISTS has
    created as far as is known.

    Args:
        lake: the feed's tables.
        schema_rows: rows of table_schemas; None: those of the table.
    """
    files = _list_row_files(lake)
    if not files:
        return False
    # Whether IF NOT EXISTS is in the CREATE TABLE of a table, by its name.
    named = {
        (r["database"], r["table"]): '"tolerant":true' in (r["actions"] or "") and "create_table" in r["actions"]
        for r in (lake.schema_rows() if schema_rows is None else schema_rows)
        if r["ddl_statement"] is not None and r["table"] is not None
    }
    if not named:
        return False
    lower_names = {(database.lower(), table.lower()) for database, table in named}
    with_rows = {(r["database"], r["table"]) for r in _read_distinct(lake, files, "database", "table")}
    return any(named.get(name, (name[0].lower(), name[1].lower()) in lower_names) for name in with_rows)


def read_table_rows(lake: Lakehouse, protocol: Protocol) -> dict[Name, TableRows]:
    """Return what the row events of each table show: the released ones, and those that no release has read yet."""
    layouts = lake.released_changes.fetch(
        lake.released_changes.files(kind=str(ReleasedKind.LAYOUT)),
        "database", "table", "layout", "key_columns", "commit_ts",
    ).to_pylist()  # fmt: skip
    for r in _read_distinct(lake, _list_row_files(lake), "database", "table", "layout", "key_columns"):
        text = r["layout"] and protocol.layout_of({"layout": r["layout"], "jdbc_types": None})
        layouts.append({**r, "layout": text, "key_columns": r["key_columns"].split("\0") if r["key_columns"] else []})
    first: dict[Name, dict[str, Any]] = {}
    for r in layouts:
        name = r["database"], r["table"]
        if name not in first or r["commit_ts"] < first[name]["commit_ts"]:
            first[name] = r
    return {name: _make_table_rows(protocol, r) for name, r in first.items()}


def _make_table_rows(protocol: Protocol, layout: Mapping[str, Any]) -> TableRows:
    """Return what the first row event of a table shows.

    Args:
        protocol: the protocol of the feed.
        layout: the event's commit_ts, layout and key_columns.
    """
    columns = columns_in(protocol, layout["layout"]) if layout["layout"] else ()
    return TableRows(
        layout["commit_ts"],
        {c.name.lower(): c.wire_type if isinstance(c.wire_type, str) else None for c in columns},
        frozenset(column.lower() for column in layout["key_columns"] or ()),
    )


def _list_row_files(lake: Lakehouse) -> list[DataFile]:
    """Return the files of change_events with row events that are pending, or that no release has read yet."""
    released = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
    oldest = released.oldest_pending if released.pending and released.oldest_pending else released.batch + 1
    return [f for f in lake.change_events.files(kind=str(Kind.ROW)) if f.high["batch"] >= oldest]


def _read_distinct(lake: Lakehouse, files: Iterable[DataFile], *columns: str) -> list[dict[str, Any]]:
    """Return the distinct values of columns in row events, with the lowest commit_ts of each.

    The values of `key_columns` are one text, separated by NUL, because Arrow cannot group by lists.
    """
    lowest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for part in lake.change_events.fetch_parts(files, *columns, "commit_ts"):
        if "key_columns" in columns:
            at = part.column_names.index("key_columns")
            part = part.set_column(at, "key_columns", pc.binary_join(part["key_columns"], "\0"))  # noqa: PLW2901
        for r in part.group_by(list(columns), use_threads=False).aggregate([("commit_ts", "min")]).to_pylist():
            values = tuple(r[c] for c in columns)
            if values not in lowest or r["commit_ts_min"] < lowest[values]["commit_ts"]:
                lowest[values] = {**{c: r[c] for c in columns}, "commit_ts": r["commit_ts_min"]}
    return list(lowest.values())
