"""The stage initial_load: plans which tables of the feed's dumps are loaded, and from which position on.

The stage released_changes releases their rows, because the gate commits them. A table whose dump cannot be loaded is
refused, and each run looks at it again until its dump is mended; the other tables go on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdc_assets.config import DumpFormat, Feed, InitialLoad, TableLoad, split_pattern
from cdc_assets.initial_load.dumps import DumpedTable, DumpError, Name, find_dumped_tables, read_dump_position
from cdc_assets.lakehouse.initial_load import LoadsCursor, RefusedLoad, dump_digest
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages.load.release import check_key, check_position
from cdc_assets.stores.storage import Store

_Dumps = dict[tuple[str, DumpFormat], Mapping[Name, DumpedTable]]  # by folder and format


@dataclass(frozen=True)
class LoadReport:
    """What one run of the stage did.

    Attributes:
        planned: the tables that this run added to the plan, as rows of initial_load.
        refused: the tables that cannot be loaded.
    """

    planned: list[dict[str, Any]] = field(default_factory=list)
    refused: list[RefusedLoad] = field(default_factory=list)


class Load:
    """Plans the loads, once for each state of `initial_load` in the feeds file and of the dumps that are not loaded."""

    name = "initial_load"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Whether `initial_load` is new or has changed, or the dump of a table that is not loaded has changed."""
        try:
            return feed.initial_load is not None and _make_new_plan(lake, feed, feed.initial_load) is not None
        except DumpError:
            return True  # `run` raises it again, so that the run reports it

    def run(self, lake: Lakehouse, feed: Feed) -> LoadReport:
        """Plan the loads, in one commit.

        Raises:
            DumpError: the dump of the feed's tables does not exist, or has no position.
            ConcurrentRunError: another run planned the loads at the same time.
        """
        if feed.initial_load is None or (plan := _make_new_plan(lake, feed, feed.initial_load)) is None:
            return LoadReport()
        for row in plan.unchecked:
            try:
                check_key(lake, feed, row)
            except DumpError as error:
                plan.refused.append(RefusedLoad(row["database"], row["table"], str(error), dump_digest(row)))
            else:
                plan.accepted.append(row)
        rows = [row | {"number": number} for number, row in enumerate([*plan.loaded, *plan.accepted], start=1)]
        cursor = LoadsCursor(
            sequence=_read_cursor(lake).sequence + 1,
            settings=feed.initial_load.model_dump_json(),
            tables=len(rows),
            refused=sorted(plan.refused, key=lambda refused: (refused.database, refused.table)),
        )
        lake.loads.commit(lake.loads.stage_rows(rows), cursor, replaces=True)
        return LoadReport(plan.accepted, plan.refused)


class _Plan(NamedTuple):
    """The loads of a feed, as far as they can be planned without Spark. Loads are rows of initial_load.

    Attributes:
        loaded: the loads that are released.
        accepted: the loads that are to be released.
        unchecked: the loads whose keys `check_key` has still to check.
        refused: the tables that cannot be loaded.
    """

    loaded: list[dict[str, Any]]
    accepted: list[dict[str, Any]]
    unchecked: list[dict[str, Any]]
    refused: list[RefusedLoad]


def _make_new_plan(lake: Lakehouse, feed: Feed, load: InitialLoad) -> _Plan | None:
    """Return a plan that differs from the committed one; None: the committed plan still holds.

    Raises:
        DumpError: as `Load.run`.
    """
    cursor, released = _read_cursor(lake), lake.released_changes.cursor()
    released_loads = released.loaded if released else set()
    have_settings_changed = cursor.settings != load.model_dump_json()
    if not have_settings_changed and not cursor.refused and cursor.tables == len(released_loads):
        return None
    committed, tables_with_changes = lake.load_rows(), lake.released_tables()
    loaded = [row for row in committed if (row["database"], row["table"], row["position"]) in released_loads]
    accepted_dumps = {dump_digest(row) for row in committed}
    refused_dumps = {r.dump: r for r in cursor.refused if r.dump}
    plan = _Plan(loaded, [], [], [])
    for name, (row, damage) in sorted(_find_tables_to_load(lake.store, load, loaded).items()):
        # The dumps of released loads are not looked at again.
        if not feed.takes(*name) or (row and (*name, row["position"]) in released_loads):
            continue
        row["is_reload"] = name in tables_with_changes
        if reason := damage or _find_position_error(lake, row):
            plan.refused.append(RefusedLoad(*name, reason))
        elif (dump := dump_digest(row)) in accepted_dumps:
            plan.accepted.append(row)
        elif dump in refused_dumps:
            plan.refused.append(refused_dumps[dump])
        else:
            plan.unchecked.append(row)
    has_same_dumps = {dump_digest(row) for row in (*loaded, *plan.accepted)} == accepted_dumps
    is_same = has_same_dumps and not plan.unchecked and plan.refused == cursor.refused
    return None if is_same and not have_settings_changed else plan


def _find_position_error(lake: Lakehouse, row: Mapping[str, Any]) -> str:
    """Return why a table cannot be loaded at its position; "": it can."""
    try:
        check_position(lake, row)
    except DumpError as error:
        return str(error)
    return ""


def _read_cursor(lake: Lakehouse) -> LoadsCursor:
    return lake.loads.cursor() or LoadsCursor(sequence=0)


def _find_tables_to_load(
    store: Store, load: InitialLoad, loaded: list[dict[str, Any]]
) -> dict[Name, tuple[dict[str, Any], str]]:
    """Return, by table, the row of initial_load and what is wrong with its dump ("": nothing).

    The row is empty if the dump or its position is not found.

    Args:
        store: how the dumps are reached.
        load: of the feeds file.
        loaded: the loads that are released. The folder of their dump may have been deleted since.

    Raises:
        DumpError: the dump of the feed's tables does not exist, or has no position.
    """
    own_settings = {split_pattern(path): table_load for path, table_load in load.tables.items()}
    dumps: _Dumps = {}
    try:
        dumps[load.path, load.format] = find_dumped_tables(store, load.path, load.format)
    except DumpError:
        if load.path not in {row["path"] for row in loaded}:
            raise
    position = load.position
    tables: dict[Name, tuple[dict[str, Any], str]] = {}
    for name, table in dumps.get((load.path, load.format), {}).items():
        if name not in own_settings:
            position = position or read_dump_position(store, load.path)
            tables[name] = _make_row(table, load, TableLoad(), position), table.damage
    for name, table_load in own_settings.items():
        try:
            tables[name] = _find_table_with_settings(store, dumps, load, name, table_load)
        except DumpError as error:
            tables[name] = {}, str(error)
    return tables


def _find_table_with_settings(
    store: Store, dumps: _Dumps, load: InitialLoad, name: Name, table_load: TableLoad
) -> tuple[dict[str, Any], str]:
    """Return the row of a table that has settings of its own, and what is wrong with its dump.

    Args:
        store: how the dumps are reached.
        dumps: the dumps that were looked at; a new one is added.
        load: of the feeds file.
        name: of the table.
        table_load: its own settings.

    Raises:
        DumpError: the table's dump does not exist, or has no position.
    """
    path, dump_format = table_load.path or load.path, table_load.format or load.format
    if (path, dump_format) not in dumps:
        dumps[path, dump_format] = find_dumped_tables(store, path, dump_format)
    if name not in dumps[path, dump_format]:
        raise DumpError(f"{path}: has no table {'.'.join(name)}, which initial_load.tables in the feeds file names.")
    table = dumps[path, dump_format][name]
    position = table_load.position or (None if table_load.path else load.position) or read_dump_position(store, path)
    return _make_row(table, load, table_load, position), table.damage


def _make_row(table: DumpedTable, load: InitialLoad, table_load: TableLoad, position: int) -> dict[str, Any]:
    return {
        "database": table.database,
        "table": table.table,
        "position": position,
        "path": table_load.path or load.path,
        "format": table_load.format or load.format,
        "time_zone": load.time_zone,
        "statement": table.statement,
        "files": [{"path": f.path, "size": f.size, "modified": f.modified} for f in table.files],
    }
