"""Read the releases that histories have not applied, once for all tables. Without Spark."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.ddl.actions import Column
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.history.new_releases import NewReleases
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import read_statements
from cdc_assets.lakehouse.decisions import Decision
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import ConnectorSnapshot, ReleaseCursor, ReleasedKind
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Protocol

STATEMENT = ["release", "commit_ts", "database", "table", "topic", "partition", "offset", "ddl_statement", "source"]
_POSITION = ["release", "database", "table", "commit_ts"]
LAYOUT = ["release", "database", "table", "layout_id", "layout", "key_columns", "commit_ts", "last_ts"]


@dataclass(frozen=True)
class HistoryLag:
    """The released changes that a history lacks.

    Attributes:
        since: the lowest commit_ts of these changes and statements; 0 if none is known.
        events: the number of row events.
    """

    since: int
    events: int


def read_new_releases(lake: Lakehouse, feed: Feed, cursors: Mapping[Name, HistoryCursor]) -> NewReleases:
    """Return the content of the releases that not all tables of `cursors` (at least one) have applied."""
    after = min(c.release for c in cursors.values())
    log = lake.released_changes.log()
    files = [f for f in log.files() if f.high["release"] > after] if log else []

    def files_of(kind: ReleasedKind) -> list[DataFile]:
        return [f for f in files if f.partition["kind"] == kind]

    layouts: dict[Name, list[dict[str, Any]]] = {}
    for r in lake.released_changes.fetch(files_of(ReleasedKind.LAYOUT), *LAYOUT).to_pylist():
        layouts.setdefault((r["database"], r["table"]), []).append(r)
    statements = lake.released_changes.fetch(files_of(ReleasedKind.DDL), *STATEMENT).to_pylist()
    decided = lake.read_decisions()
    schema_rows = lake.schema_rows() if statements else _read_linked_schemas(lake, set(cursors), decided)
    protocol = protocol_of(feed)
    released = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
    counts, read = _read_release_cursors(lake, after)
    return NewReleases(
        layouts=layouts,
        statements=statements,
        counts=counts,
        files=[*files_of(ReleasedKind.ROW), *files_of(ReleasedKind.LOADED)],
        schema_rows=[r | {"key_columns": _sent_key(protocol, r)} if r["key_columns"] else r for r in schema_rows],
        decided=decided,
        loaded=released.loaded_at,
        typed={(each.database, each.table): each for each in released.loads if each.folder},
        reloads=_group_reloads(released),
        snapshots=_group_snapshots(released),
        read=read,
    )


def _group_reloads(released: ReleaseCursor) -> dict[Name, frozenset[int]]:
    """Return the positions of each table's reloads."""
    reloads: dict[Name, frozenset[int]] = {}
    for each in released.loads:
        if each.is_reload:
            name = each.database, each.table
            reloads[name] = reloads.get(name, frozenset()) | {each.position}
    return reloads


def _group_snapshots(released: ReleaseCursor) -> dict[Name, list[ConnectorSnapshot]]:
    """Return the released snapshots and table scans of each table, in the order of their ends."""
    snapshots: dict[Name, list[ConnectorSnapshot]] = {}
    every: list[ConnectorSnapshot] = [*released.snapshots, *released.scans]
    for s in sorted((s for s in every if s.release), key=lambda s: s.at):
        snapshots.setdefault((s.database, s.table), []).append(s)
    return snapshots


def _sent_key(protocol: Protocol, row: Mapping[str, Any]) -> list[str]:
    """Return the key columns of a row of table_schemas in the order in which messages state them."""
    columns = tuple(Column(c["name"], c["type"], nullable=False) for c in row["columns"])
    primary, key = tuple(row["primary_key"] or ()), tuple(row["key_columns"])
    return protocol.sent_key_columns(TableSchema(row["database"], row["table"], columns, primary, (key,)))


def _read_linked_schemas(lake: Lakehouse, names: set[Name], decided: Mapping[str, Decision]) -> list[dict[str, Any]]:
    """Return the rows of table_schemas of these tables, and of those that a RENAME ever linked to one of them."""
    schema_rows = lake.schema_rows(names)
    statements = read_statements([r for r in schema_rows if r["ddl_statement"] is not None], schema_rows, decided)
    linked = {name for ddl in statements for pair in ddl.moved.items() for name in pair}
    return schema_rows if linked <= names else _read_linked_schemas(lake, names | linked, decided)


def _read_release_cursors(lake: Lakehouse, after: int) -> tuple[dict[Name, Counter[int]], dict[Name, dict[int, int]]]:
    """Return `NewReleases.counts` and `NewReleases.read` of the releases above `after`, from their cursors."""
    counts: dict[Name, Counter[int]] = {}
    read: dict[Name, dict[int, int]] = {}
    for cursor in lake.released_changes.cursors():
        if cursor.sequence <= after:
            break
        for database, table, count in cursor.tables:
            counts.setdefault((database, table), Counter())[cursor.sequence] = count
        for database, table, until in cursor.read:
            read.setdefault((database, table), {})[cursor.sequence] = until
    return counts, read


def measure_lags(lake: Lakehouse, applied: Mapping[Name, int]) -> dict[Name, HistoryLag]:
    """Return what each history lacks; `applied`: at least one table, and the release up to which its history is complete."""
    after = min(applied.values())
    rows = [r for kind in (ReleasedKind.LAYOUT, ReleasedKind.DDL) for r in fetch_released(lake, kind, _POSITION, after)]
    counts, _ = _read_release_cursors(lake, after)
    lowest: dict[Name, int] = {}
    for r in rows:
        name = r["database"], r["table"]
        if r["release"] > applied.get(name, r["release"]):
            lowest[name] = min(r["commit_ts"], lowest.get(name, r["commit_ts"]))
    return {
        name: HistoryLag(
            # A table without new changes of its own lacks a statement that a message of another table brought.
            lowest.get(name) or min((r["commit_ts"] for r in rows if r["release"] > release), default=0),
            sum(count for number, count in counts.get(name, Counter()).items() if number > release),
        )
        for name, release in applied.items()
    }


def fetch_released(lake: Lakehouse, kind: ReleasedKind, columns: list[str], after: int = -1) -> list[dict[str, Any]]:
    """Return the rows of released_changes of one kind, in all files that have releases above `after`.

    Only for kinds with a small number of rows, such as layouts and statements.
    """
    files = [f for f in lake.released_changes.files(kind=str(kind)) if f.high["release"] > after]
    rows: list[dict[str, Any]] = lake.released_changes.fetch(files, *columns).to_pylist()
    return rows
