"""The stage initial_load: finds the tables of the feed's dump, once, and fixes what is loaded from which position on.

Their rows are released by the stage released_changes, which has the gate's transaction. What is wrong with one table's
dump is that table's trouble: it is refused, and looked at again by each run until it is mended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cdc_assets.config import DumpFormat, Feed, InitialLoad, TableLoad, split_pattern
from cdc_assets.initial_load.dumps import DumpedTable, DumpError, Name, dumped_at, dumped_tables
from cdc_assets.initial_load.release import check_key, check_position
from cdc_assets.lakehouse.initial_load import LoadsCursor, RefusedLoad, dump_digest
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stores.storage import Store

_Dumps = dict[tuple[str, DumpFormat], Mapping[Name, DumpedTable]]  # by folder and format


@dataclass(frozen=True)
class LoadReport:
    """What one run of the stage did: the tables that it found, as rows of `initial_load`, and those that it refused."""

    found: list[dict[str, Any]] = field(default_factory=list)
    refused: list[RefusedLoad] = field(default_factory=list)


class Load:
    """Finds the tables to load; once for each state of `initial_load` in the feeds file, and of the dumps not loaded."""

    name = "initial_load"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Whether `initial_load` is new or has changed, or a table is not loaded and its dump is another than it was."""
        try:
            return feed.initial_load is not None and _news(lake, feed, feed.initial_load) is not None
        except DumpError:
            return True  # and run tells

    def run(self, lake: Lakehouse, feed: Feed) -> LoadReport:
        """Find them: one commit.

        Raises:
            DumpError: the dump of the feed's tables is not there, or tells no position.
            ConcurrentRunError: another run found them meanwhile.
        """
        if feed.initial_load is None or (plan := _news(lake, feed, feed.initial_load)) is None:
            return LoadReport()
        for row in plan.unjudged:
            try:
                check_key(lake, feed, row)
            except DumpError as error:
                plan.refused.append(RefusedLoad(row["database"], row["table"], str(error), dump_digest(row)))
            else:
                plan.found.append(row)
        rows = [row | {"number": number} for number, row in enumerate([*plan.loaded, *plan.found], start=1)]
        cursor = LoadsCursor(
            sequence=_cursor(lake).sequence + 1,
            settings=_settings(feed.initial_load),
            tables=len(rows),
            refused=sorted(plan.refused, key=_name),
        )
        lake.loads.commit(lake.loads.stage_rows(rows), cursor, replaces=True)
        return LoadReport(plan.found, plan.refused)


@dataclass(frozen=True)
class _Plan:
    """What the dumps have, as far as that shows without Spark; rows of initial_load.

    Attributes:
        loaded: those that are loaded.
        found: those that can be.
        unjudged: those of which it is not known whether their keys can be told.
        refused: those that cannot be loaded.
        is_news: whether this is another plan than the one that stands.
    """

    loaded: list[dict[str, Any]]
    found: list[dict[str, Any]]
    unjudged: list[dict[str, Any]]
    refused: list[RefusedLoad]
    is_news: bool


def _news(lake: Lakehouse, feed: Feed, load: InitialLoad) -> _Plan | None:
    """What the dumps have, where that may be another plan than the one that stands; else None.

    Raises:
        DumpError: as `Load.run`.
    """
    cursor = _cursor(lake)
    changed = cursor.settings != _settings(load)
    if not changed and not cursor.refused and cursor.tables == len(_loaded(lake)):
        return None
    plan = _plan(lake, feed, load)
    return plan if changed or plan.is_news else None


def _plan(lake: Lakehouse, feed: Feed, load: InitialLoad) -> _Plan:
    before, at, standing = _cursor(lake), _loaded(lake), lake.load_rows()
    loaded = [row for row in standing if (row["database"], row["table"], row["position"]) in at]
    released = lake.released_tables()
    judged = {dump_digest(row) for row in standing}
    plan = _Plan(loaded, [], [], [], is_news=False)
    for name, (row, damage) in sorted(_wanted(lake.store, load, loaded).items()):
        if not feed.takes(*name) or (row and (*name, row["position"]) in at):
            continue
        row["anew"] = name in released
        if why := damage or _misplaced(lake, row):
            plan.refused.append(RefusedLoad(*name, why))
        elif (dump := dump_digest(row)) in judged:
            plan.found.append(row)
        elif (known := next((r for r in before.refused if r.dump == dump), None)) is not None:
            plan.refused.append(known)
        else:
            plan.unjudged.append(row)
    same = {dump_digest(row) for row in (*loaded, *plan.found)} == judged and plan.refused == before.refused
    return replace(plan, is_news=bool(plan.unjudged) or not same)


def _misplaced(lake: Lakehouse, row: Mapping[str, Any]) -> str:
    """Why a table cannot be loaded at its position; "": it can."""
    try:
        check_position(lake, row)
    except DumpError as error:
        return str(error)
    return ""


def _name(refused: RefusedLoad) -> Name:
    return refused.database, refused.table


def _cursor(lake: Lakehouse) -> LoadsCursor:
    return lake.loads.cursor() or LoadsCursor(sequence=0)


def _loaded(lake: Lakehouse) -> set[tuple[str, str, int]]:
    """(database, table, position) of the loads that are done: only of others may the files still be others."""
    cursor = lake.released_changes.cursor()
    return cursor.loaded if cursor else set()


def _settings(load: InitialLoad) -> str:
    return load.model_dump_json()


def _wanted(store: Store, load: InitialLoad, stay: list[dict[str, Any]]) -> dict[Name, tuple[dict[str, Any], str]]:
    """The rows of the tables that the dumps have, and what is wrong with a table's; of no row it cannot even be told.

    `stay`: the rows of those that are loaded: their dump may be gone.
    """
    own = {split_pattern(path): told for path, told in load.tables.items()}
    mine = {row["path"] for row in stay}
    dumps: _Dumps = {}
    try:
        dumps[load.path, load.format] = dumped_tables(store, load.path, load.format)
    except DumpError:
        if load.path not in mine:
            raise
    position = load.position
    found: dict[Name, tuple[dict[str, Any], str]] = {}
    for name, table in dumps.get((load.path, load.format), {}).items():
        if name not in own:
            position = position or dumped_at(store, load.path)
            found[name] = _row(table, load, TableLoad(), position), table.damage
    for name, told in own.items():
        try:
            found[name] = _own_row(store, dumps, load, name, told)
        except DumpError as error:
            found[name] = {}, str(error)
    return found


def _own_row(store: Store, dumps: _Dumps, load: InitialLoad, name: Name, told: TableLoad) -> tuple[dict[str, Any], str]:
    """The row of a table that has settings of its own, and what is wrong with it; `dumps`: those that were looked at.

    Raises:
        DumpError: its dump is not there, or tells no position.
    """
    path, form = told.path or load.path, told.format or load.format
    if (path, form) not in dumps:
        dumps[path, form] = dumped_tables(store, path, form)
    if name not in dumps[path, form]:
        raise DumpError(f"{path}: has no table {'.'.join(name)}, which initial_load.tables names.")
    table = dumps[path, form][name]
    position = told.position or (None if told.path else load.position) or dumped_at(store, path)
    return _row(table, load, told, position), table.damage


def _row(table: DumpedTable, load: InitialLoad, own: TableLoad, position: int) -> dict[str, Any]:
    return {
        "database": table.database,
        "table": table.table,
        "position": position,
        "path": own.path or load.path,
        "format": own.format or load.format,
        "time_zone": load.time_zone,
        "statement": table.statement,
        "files": [{"path": f.path, "size": f.size, "modified": f.modified} for f in table.files],
    }
