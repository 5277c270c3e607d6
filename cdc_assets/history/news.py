"""What releases that histories have not seen hold, read once for all of them. Without Spark."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.ddl.actions import Column
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl, ddls
from cdc_assets.lakehouse.decisions import Decision, statement_id
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import ConnectorSnapshot, LoadedTable, ReleaseCursor, ReleasedKind
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Protocol

STATEMENT = ["release", "commit_ts", "database", "table", "topic", "partition", "offset", "ddl_statement", "source"]
_POSITION = ["release", "database", "table", "commit_ts"]
LAYOUT = ["release", "database", "table", "layout_id", "layout", "key_columns", "commit_ts", "last_ts"]


@dataclass(frozen=True)
class News:
    """What releases that a history has not seen hold.

    Attributes:
        layouts: by table, rows of released_changes.
        statements: likewise.
        counts: by table: release -> row events.
        files: with row events.
        known: rows of table_schemas.
        decided: what people have decided about statements, by id.
        loaded: the tables whose histories begin with a load, and the positions at which they do.
        typed: those of these loads of which rows are kept typed.
        anew: the tables that were loaded anew, and the positions at which they were.
        snapshots: by table: the connector's that have all its rows, or of which that was said.
        read: by table: release -> the commit_ts of the last read of a snapshot that ended with it.
    """

    layouts: Mapping[Name, list[dict[str, Any]]]
    statements: list[dict[str, Any]]
    counts: Mapping[Name, Counter[int]]
    files: list[DataFile]
    known: list[dict[str, Any]]
    decided: Mapping[str, Decision]
    loaded: Mapping[Name, int]
    typed: Mapping[Name, LoadedTable]
    anew: Mapping[Name, frozenset[int]]
    snapshots: Mapping[Name, list[ConnectorSnapshot]]
    read: Mapping[Name, Mapping[int, int]]

    @cached_property
    def ddls(self) -> dict[str, tuple[int, Ddl]]:
        """Ids of the statements -> their releases, and what they do."""
        releases = {
            statement_id(s["commit_ts"], s["database"], s["ddl_statement"]): s["release"] for s in self.statements
        }
        return {d.id: (releases[d.id], d) for d in ddls(self.statements, self.known, self.decided)}

    @cached_property
    def known_ddls(self) -> dict[str, Ddl]:
        """Ids of the statements that were ever learnt -> what they do."""
        said = [r for r in self.known if r["ddl_statement"] is not None and r["topic"] != LOAD_TOPIC]
        return {d.id: d for d in ddls(said, self.known, self.decided)}

    @cached_property
    def known_of(self) -> dict[Name, list[dict[str, Any]]]:
        """What is known of each table."""
        found: dict[Name, list[dict[str, Any]]] = {}
        for r in self.known:
            found.setdefault((r["database"], r["table"]), []).append(r)
        return found


@dataclass(frozen=True)
class Lacking:
    """What released changes a history lacks.

    Attributes:
        since: the lowest commit_ts of a change or statement; 0 where none is known.
        events: how many row events.
    """

    since: int
    events: int


def news_of(lake: Lakehouse, feed: Feed, cursors: Mapping[Name, HistoryCursor]) -> News:
    """What there is for tables that are due; `cursors`: theirs, at least one."""
    after = min(c.release for c in cursors.values())
    log = lake.released_changes.log()
    files = [f for f in log.files() if f.high["release"] > after] if log else []

    def of(kind: ReleasedKind) -> list[DataFile]:
        return [f for f in files if f.partition["kind"] == kind]

    layouts: dict[Name, list[dict[str, Any]]] = {}
    for r in lake.released_changes.fetch(of(ReleasedKind.LAYOUT), *LAYOUT).to_pylist():
        layouts.setdefault((r["database"], r["table"]), []).append(r)
    statements = lake.released_changes.fetch(of(ReleasedKind.DDL), *STATEMENT).to_pylist()
    decided = lake.read_decisions()
    known = lake.schema_rows() if statements else _with_linked(lake, set(cursors), decided)
    rows = [*of(ReleasedKind.ROW), *of(ReleasedKind.LOADED)]
    known = [r | {"key_columns": _sent_key(protocol_of(feed), r)} if r["key_columns"] else r for r in known]
    released = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
    anew: dict[Name, frozenset[int]] = {}
    for each in released.loads:
        if each.is_reload:
            name = each.database, each.table
            anew[name] = anew.get(name, frozenset()) | {each.position}
    snapshots: dict[Name, list[ConnectorSnapshot]] = {}
    every: list[ConnectorSnapshot] = [*released.snapshots, *released.scans]
    for s in sorted((s for s in every if s.release), key=lambda s: s.at):
        snapshots.setdefault((s.database, s.table), []).append(s)
    typed = {(each.database, each.table): each for each in released.loads if each.folder}
    counts, read = _told_by_cursors(lake, after)
    return News(layouts, statements, counts, rows, known, decided, released.loaded_at, typed, anew, snapshots, read)


def _sent_key(protocol: Protocol, row: Mapping[str, Any]) -> list[str]:
    """The key of a row of table_schemas in the order that messages have it."""
    columns = tuple(Column(c["name"], c["type"], nullable=False) for c in row["columns"])
    primary, key = tuple(row["primary_key"] or ()), tuple(row["key_columns"])
    return protocol.sent_key_columns(TableSchema(row["database"], row["table"], columns, primary, (key,)))


def _with_linked(lake: Lakehouse, names: set[Name], decided: Mapping[str, Decision]) -> list[dict[str, Any]]:
    """What is known of tables, and of those that a RENAME has ever linked to them."""
    known = lake.schema_rows(names)
    said = ddls([r for r in known if r["ddl_statement"] is not None], known, decided)
    linked = {name for ddl in said for name in _ends(ddl)}
    return known if linked <= names else _with_linked(lake, names | linked, decided)


def _ends(ddl: Ddl) -> set[Name]:
    """The tables between which a statement moves rows."""
    return {*ddl.moved, *ddl.moved.values()}


def _told_by_cursors(lake: Lakehouse, after: int) -> tuple[dict[Name, Counter[int]], dict[Name, dict[int, int]]]:
    """`News.counts` and `News.read` of the releases after one."""
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


def lacking(lake: Lakehouse, applied: Mapping[Name, int]) -> dict[Name, Lacking]:
    """Return what histories lack; `applied`: the tables, at least one, and the releases up to which they have all."""
    after = min(applied.values())
    rows = [r for kind in (ReleasedKind.LAYOUT, ReleasedKind.DDL) for r in all_of(lake, kind, _POSITION, after)]
    counts, _ = _told_by_cursors(lake, after)
    lowest: dict[Name, int] = {}
    for r in rows:
        name = r["database"], r["table"]
        if r["release"] > applied.get(name, r["release"]):
            lowest[name] = min(r["commit_ts"], lowest.get(name, r["commit_ts"]))
    return {
        name: Lacking(
            # A table without changes of its own waits for a statement that is sent for another one.
            lowest.get(name) or min((r["commit_ts"] for r in rows if r["release"] > release), default=0),
            sum(count for number, count in counts.get(name, Counter()).items() if number > release),
        )
        for name, release in applied.items()
    }


def all_of(lake: Lakehouse, kind: ReleasedKind, columns: list[str], after: int = -1) -> list[dict[str, Any]]:
    """All rows of released_changes of a kind, of which there are few, in files that have releases above `after`."""
    files = [f for f in lake.released_changes.files(kind=str(kind)) if f.high["release"] > after]
    rows: list[dict[str, Any]] = lake.released_changes.fetch(files, *columns).to_pylist()
    return rows
