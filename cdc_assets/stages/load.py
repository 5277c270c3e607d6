"""The stage initial_load: finds the tables of the feed's dump, once, and fixes what is loaded from which position on.

Their rows are released by the stage released_changes, which has the gate's transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_assets.feeds import DumpFormat, Feed, InitialLoad, TableLoad, split_pattern
from cdc_assets.gate.loads import check_position
from cdc_assets.sources.dumps import DumpedTable, DumpError, Name, dumped_at, dumped_tables
from cdc_assets.storage import Store
from cdc_assets.tables.initial_load import LoadsCursor
from cdc_assets.tables.lakehouse import Lakehouse


@dataclass(frozen=True)
class LoadReport:
    """What one run of the stage did: the tables that it found, as rows of `initial_load`."""

    found: list[dict[str, Any]] = field(default_factory=list)


class Load:
    """Finds the tables to load; once for each state of `initial_load` in the feeds file."""

    name = "initial_load"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Whether `initial_load` is new or has changed, or a table was found and not loaded: its dump may be another."""
        if feed.initial_load is None:
            return False
        cursor = _cursor(lake)
        return cursor.settings != _settings(feed.initial_load) or cursor.tables > len(_loaded(lake))

    def run(self, lake: Lakehouse, feed: Feed) -> LoadReport:
        """Find them: one commit.

        Raises:
            DumpError: the dump cannot be read, tells no position, or cannot be loaded at it.
            ConcurrentRunError: another run found them meanwhile.
        """
        if feed.initial_load is None or not self.due(lake, feed):
            return LoadReport()
        loaded = _loaded(lake)
        wanted = {name: row for name, row in _wanted(lake.store, feed.initial_load).items() if feed.takes(*name)}
        for name, row in wanted.items():
            if name in loaded and loaded[name] != row["position"]:
                raise DumpError(
                    f"{'.'.join(name)} was loaded at {loaded[name]}, and cannot be loaded once more at "
                    f"{row['position']}: begin it anew in a feed of its own."
                )
        new = [row for name, row in sorted(wanted.items()) if name not in loaded]
        for row in new:
            check_position(lake, feed, row)
        rows = [*lake.load_rows()[: len(loaded)], *new]
        rows = [row | {"number": number} for number, row in enumerate(rows, start=1)]
        cursor = LoadsCursor(
            sequence=_cursor(lake).sequence + 1, settings=_settings(feed.initial_load), tables=len(rows)
        )
        lake.loads.commit(lake.loads.stage_rows(rows), cursor, over={})
        return LoadReport(new)


def _cursor(lake: Lakehouse) -> LoadsCursor:
    return lake.loads.cursor() or LoadsCursor(sequence=0)


def _loaded(lake: Lakehouse) -> dict[Name, int]:
    """The tables that are loaded, the first that were found: only of others may the files still be others."""
    cursor = lake.released_changes.cursor()
    return cursor.loaded_at if cursor else {}


def _settings(load: InitialLoad) -> str:
    return load.model_dump_json()


def _wanted(store: Store, load: InitialLoad) -> dict[Name, dict[str, Any]]:
    """The rows of the tables that the dumps have."""
    own = {split_pattern(path): told for path, told in load.tables.items()}
    places = {(told.path or load.path, told.format or load.format) for told in own.values()}
    dumps = {place: dumped_tables(store, *place) for place in {(load.path, load.format), *places}}
    found = {
        name: _row(store, table, load, TableLoad())
        for name, table in dumps[load.path, load.format].items()
        if name not in own
    }
    for name, told in own.items():
        found[name] = _row(store, _of(dumps, told.path or load.path, told.format or load.format, name), load, told)
    return found


def _of(
    dumps: Mapping[tuple[str, DumpFormat], Mapping[Name, DumpedTable]], path: str, form: DumpFormat, name: Name
) -> DumpedTable:
    if name not in dumps[path, form]:
        raise DumpError(f"{path}: has no table {'.'.join(name)}, which initial_load.tables names.")
    return dumps[path, form][name]


def _row(store: Store, table: DumpedTable, load: InitialLoad, own: TableLoad) -> dict[str, Any]:
    path = own.path or load.path
    position = own.position or (None if own.path else load.position) or dumped_at(store, path)
    return {
        "database": table.database,
        "table": table.table,
        "position": position,
        "path": path,
        "format": own.format or load.format,
        "time_zone": load.time_zone,
        "statement": table.statement,
        "files": [{"path": f.path, "size": f.size} for f in table.files],
    }
