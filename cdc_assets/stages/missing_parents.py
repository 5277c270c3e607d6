"""Find open rows whose parent row has ended, in the histories of the tables that a run of the stage history changed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.ddl.actions import ForeignKey, Statement, TableName, decode_statement
from cdc_assets.ddl.foreign_keys import follow_parent, gives_names
from cdc_assets.errors import first_line
from cdc_assets.history.missing_parents import MissingParents, find_rows_without_parent, pair_columns, summarize
from cdc_assets.history.progress import Name
from cdc_assets.history.table_report import TableReport
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.protocols import protocol_of
from cdc_assets.spark.session import session_for

_COLUMNS = ("database", "table", "sequence", "primary_key", "foreign_keys", "actions")


def find_missing_parents(
    lake: Lakehouse, feed: Feed, reports: Sequence[TableReport], had_missing: Callable[[Name], bool]
) -> dict[Name, MissingParents]:
    """Return the open rows without a parent of each table that a run may have affected by foreign keys.

    A table is examined if the run wrote ended versions of a parent; or if the run wrote the table itself, and it
    had such rows before: the comparison reads all open rows. TiDB writes row events for what foreign keys do, and
    did not enforce them in earlier versions, so its tables are not examined.

    Args:
        lake: the feed's tables.
        feed: the feed.
        reports: what the run did to the tables that it wrote.
        had_missing: returns whether a table had such rows when it was last examined.
    """
    if not reports or protocol_of(feed).source_kind(feed) == "tidb":
        return {}
    written = {(report.database, report.table) for report in reports}
    with_ends = {(report.database, report.table) for report in reports if _has_ended_versions(report)}
    examined: dict[Name, MissingParents] = {}
    for child, keys in _read_foreign_keys(lake).items():
        if any(key.parent in with_ends for key in keys) or (child in written and had_missing(child)):
            results = [each for each in (_examine(lake, child, key) for key in keys) if each is not None]
            if results:
                examined[child] = reduce(add, results)
    return examined


def _has_ended_versions(report: TableReport) -> bool:
    """Return whether a run closed versions, or wrote versions that began and ended within it."""
    return report.closed > 0 or any(file.partition.get("_cdc_is_current") is False for file in report.files)


def _read_foreign_keys(lake: Lakehouse) -> dict[Name, list[ForeignKey]]:
    """Return the foreign keys that change rows, by child table, with the present names of parents and their columns."""
    table = lake.table_schemas.at_current_version()
    files = table.files()
    if not any(table.fetch(files, "foreign_keys")["foreign_keys"].to_pylist()):
        return {}
    rows = sorted(
        (row for row in table.fetch(files, *_COLUMNS).to_pylist() if row["sequence"] is not None),
        key=lambda row: row["sequence"],
    )
    newest = {(row["database"], row["table"]): row for row in rows}
    renames = _read_renames(rows)
    return {
        name: [_read_foreign_key(key, row["sequence"], renames, newest) for key in row["foreign_keys"]]
        for name, row in newest.items()
        if row["foreign_keys"]
    }


def _read_renames(rows: Iterable[Mapping[str, Any]]) -> list[tuple[int, Statement]]:
    """Return the statements that may rename tables or columns, in order, each with its number."""
    actions = {row["sequence"]: row["actions"] for row in rows if row["actions"]}
    statements = ((sequence, decode_statement(text)) for sequence, text in actions.items())
    return [(sequence, statement) for sequence, statement in statements if gives_names(statement)]


def _read_foreign_key(
    stored: Mapping[str, Any],
    sequence: int,
    renames: Sequence[tuple[int, Statement]],
    newest: Mapping[Name, Mapping[str, Any]],
) -> ForeignKey:
    """Return a foreign key as the statements after its row of table_schemas have left it.

    Args:
        stored: an element of the column `foreign_keys`.
        sequence: the number of the statement that the element belongs to.
        renames: the statements that may rename tables or columns, in order, each with its number.
        newest: the last row of each table.
    """
    key = ForeignKey(
        stored["name"],
        tuple(stored["columns"]),
        TableName(stored["database"], stored["table"]),
        tuple(stored["parent_columns"] or ()),
        stored["on_delete"],
        stored["on_update"],
    )
    key = reduce(follow_parent, (statement for number, statement in renames if number > sequence), key)
    if key.parent_columns:
        return key
    primary_key = newest.get(key.parent, {}).get("primary_key")
    return replace(key, parent_columns=tuple(primary_key or ()))


def _examine(lake: Lakehouse, child: Name, key: ForeignKey) -> MissingParents | None:
    """Return the open rows without a parent by one foreign key; None if the histories do not show both tables."""
    try:
        return _compare(lake, child, key)
    except Exception as error:  # noqa: BLE001 -- the tables are written, and the other tables are still to be examined
        return MissingParents(errors=[f"foreign key {key.name} to {'.'.join(key.parent)}: {first_line(error)}"])


def _compare(lake: Lakehouse, child: Name, key: ForeignKey) -> MissingParents | None:
    """Compare the histories of a child and its parent. Spark runs only if a version of the parent has ended."""
    children = lake.history(*child).at_current_version()
    parents = lake.history(*key.parent).at_current_version()
    child_columns, parent_columns = children.schema(), parents.schema()
    if child_columns is None or parent_columns is None:
        return None
    pairs = pair_columns(key, child_columns.names, parent_columns.names)
    if pairs is None:
        return None
    open_rows, versions = children.cursor(), parents.cursor()
    if open_rows is None or versions is None or not open_rows.current or versions.versions == versions.current:
        return MissingParents()
    session = session_for(lake.spark, open_rows.current + versions.versions)
    return summarize(
        find_rows_without_parent(
            children.read(session), parents.read(session), pairs, by_update=key.on_update is not None
        ),
        key,
    )
