"""Read the releases that histories have not applied, once for all tables. Without Spark."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from cdc_assets.config import Feed
from cdc_assets.ddl.actions import Column
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl, read_statements
from cdc_assets.lakehouse.decisions import Decision, identify_statement
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import ConnectorSnapshot, LeftOut, LoadedTable, ReleaseCursor, ReleasedKind
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Protocol

_T = TypeVar("_T")

STATEMENT = ["release", "commit_ts", "database", "table", "topic", "partition", "offset", "ddl_statement", "source"]
_POSITION = ["release", "database", "table", "commit_ts"]
LAYOUT = ["release", "database", "table", "layout_id", "layout", "key_columns", "commit_ts", "last_ts"]


@dataclass(frozen=True)
class NewReleases:
    """The content of the releases that at least one history has not applied.

    Attributes:
        layouts: by table, rows of released_changes of kind layout.
        statements: rows of released_changes of kind ddl.
        counts: by table: release -> number of row events.
        files: the files of released_changes with row events.
        schema_rows: rows of table_schemas.
        decided: people's decisions about statements, by statement id.
        loaded: the tables whose histories begin with a load, and the position of that load.
        typed: the loads of these whose rows are stored typed.
        reloads: by table, the positions of its reloads.
        snapshots: by table, the connector's snapshots that claim to have all rows of the table.
        read: by table: release -> the commit_ts of the last read of a snapshot that ended in that release.
        rejoined: by table: release -> the changes that the feed had left out before that release.
    """

    layouts: Mapping[Name, list[dict[str, Any]]]
    statements: list[dict[str, Any]]
    counts: Mapping[Name, Counter[int]]
    files: list[DataFile]
    schema_rows: list[dict[str, Any]]
    decided: Mapping[str, Decision]
    loaded: Mapping[Name, int]
    typed: Mapping[Name, LoadedTable]
    reloads: Mapping[Name, set[int]]
    snapshots: Mapping[Name, list[ConnectorSnapshot]]
    read: Mapping[Name, Mapping[int, int]]
    rejoined: Mapping[Name, Mapping[int, LeftOut]]

    @cached_property
    def new_ddls(self) -> dict[str, tuple[int, Ddl]]:
        """Ids of the statements of these releases -> the release and the statement."""
        releases = {identify_statement(s): s["release"] for s in self.statements}
        return {d.id: (releases[d.id], d) for d in read_statements(self.statements, self.schema_rows, self.decided)}

    @cached_property
    def all_ddls(self) -> dict[str, Ddl]:
        """Ids of the statements of all releases, in `schema_rows` -> the statement."""
        sent = [r for r in self.schema_rows if r["ddl_statement"] is not None and r["topic"] != LOAD_TOPIC]
        return {d.id: d for d in read_statements(sent, self.schema_rows, self.decided)}

    @cached_property
    def schema_rows_by_table(self) -> dict[Name, list[dict[str, Any]]]:
        """The rows of table_schemas of each table."""
        return _group_by_table(self.schema_rows)


def read_new_releases(lake: Lakehouse, feed: Feed, cursors: Mapping[Name, HistoryCursor]) -> NewReleases:
    """Return the content of the releases that not all tables of `cursors` (at least one) have applied."""
    after = min(c.release for c in cursors.values())
    log = lake.released_changes.log()
    files = [f for f in log.files() if f.high["release"] > after] if log else []

    def files_of(kind: ReleasedKind) -> list[DataFile]:
        return [f for f in files if f.partition["kind"] == kind]

    statements = lake.released_changes.fetch(files_of(ReleasedKind.DDL), *STATEMENT).to_pylist()
    decided = lake.read_decisions()
    schema_rows = lake.schema_rows() if statements else _read_linked_schemas(lake, set(cursors), decided)
    protocol = protocol_of(feed)
    released = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
    cursors_after = _list_release_cursors(lake, after)
    return NewReleases(
        layouts=_group_by_table(lake.released_changes.fetch(files_of(ReleasedKind.LAYOUT), *LAYOUT).to_pylist()),
        statements=statements,
        counts=_count_row_events(cursors_after),
        files=[*files_of(ReleasedKind.ROW), *files_of(ReleasedKind.LOADED)],
        schema_rows=[r | {"key_columns": _sent_key(protocol, r)} if r["key_columns"] else r for r in schema_rows],
        decided=decided,
        loaded=released.loaded_at,
        typed={(each.database, each.table): each for each in released.loads if each.folder},
        reloads=_group_reloads(released),
        snapshots=_group_snapshots(released),
        read=_group_by_release((c.sequence, (d, t), until) for c in cursors_after for d, t, until in c.read),
        rejoined=_group_by_release(
            (c.sequence, (each.database, each.table), each) for c in cursors_after for each in c.rejoined
        ),
    )


def _group_by_table(rows: Iterable[dict[str, Any]]) -> dict[Name, list[dict[str, Any]]]:
    """Return the rows of each table."""
    by_table: dict[Name, list[dict[str, Any]]] = {}
    for r in rows:
        by_table.setdefault((r["database"], r["table"]), []).append(r)
    return by_table


def _group_reloads(released: ReleaseCursor) -> dict[Name, set[int]]:
    """Return the positions of each table's reloads."""
    reloads: dict[Name, set[int]] = {}
    for each in released.loads:
        if each.is_reload:
            reloads.setdefault((each.database, each.table), set()).add(each.position)
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


def _list_release_cursors(lake: Lakehouse, after: int) -> list[ReleaseCursor]:
    """Return the cursors of the releases above `after`, newest first."""
    return list(itertools.takewhile(lambda cursor: cursor.sequence > after, lake.released_changes.cursors()))


def _count_row_events(cursors: Iterable[ReleaseCursor]) -> dict[Name, Counter[int]]:
    """Return `NewReleases.counts` of these releases."""
    counts: dict[Name, Counter[int]] = {}
    for cursor in cursors:
        for database, table, count in cursor.tables:
            counts.setdefault((database, table), Counter())[cursor.sequence] = count
    return counts


def _group_by_release(values: Iterable[tuple[int, Name, _T]]) -> dict[Name, dict[int, _T]]:
    """Return the values by table and release."""
    by_table: dict[Name, dict[int, _T]] = {}
    for release, name, value in values:
        by_table.setdefault(name, {})[release] = value
    return by_table


def measure_lags(lake: Lakehouse, applied: Mapping[Name, int]) -> dict[Name, tuple[int, int]]:
    """Return which released changes each history lacks.

    Args:
        lake: the feed's tables.
        applied: at least one table, and the release up to which its history is complete.

    Returns:
        By table, the lowest commit_ts of these changes and statements (0 if none is known) and the number of row events.
    """
    after = min(applied.values())
    rows = [r for kind in (ReleasedKind.LAYOUT, ReleasedKind.DDL) for r in fetch_released(lake, kind, _POSITION, after)]
    counts = _count_row_events(_list_release_cursors(lake, after))
    lags = {}
    for name, release in applied.items():
        new = [r for r in rows if r["release"] > release]
        # A table without new changes of its own lacks a statement that a message of another table brought.
        of_table = [r for r in new if (r["database"], r["table"]) == name] or new
        events = sum(count for number, count in counts.get(name, Counter()).items() if number > release)
        lags[name] = min((r["commit_ts"] for r in of_table), default=0), events
    return lags


def fetch_released(lake: Lakehouse, kind: ReleasedKind, columns: list[str], after: int = -1) -> list[dict[str, Any]]:
    """Return the rows of released_changes of one kind, in all files that have releases above `after`.

    Only for kinds with a small number of rows, such as layouts and statements.
    """
    files = [f for f in lake.released_changes.files(kind=str(kind)) if f.high["release"] > after]
    rows: list[dict[str, Any]] = lake.released_changes.fetch(files, *columns).to_pylist()
    return rows
