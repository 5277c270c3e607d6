"""Begin histories with a load.

The gate types the rows of such a load once, in files as the history has them, and the history begins with a copy of these
files. Where a copy is not possible (the column types have changed since, or the history has rows already), the loaded rows
are changes like any others: `stages.history.changes` makes them from the typed rows.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets.config import Feed
from cdc_assets.history.columns import SourceColumn, Typing, collect_readings, needs_scale, target_type
from cdc_assets.history.evolution import Evolution, SeenColumns
from cdc_assets.history.layouts import plan_layouts
from cdc_assets.history.planned_columns import type_overrides
from cdc_assets.history.progress import Name, Progress
from cdc_assets.history.schema_evolution import evolve_tables
from cdc_assets.history.shape import own_fields, unusual_names
from cdc_assets.history.table_report import TableReport
from cdc_assets.history.version_rows import to_table_rows
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.files import copy_file, read_file_schema
from cdc_assets.lakehouse.history import CDC_COLUMNS, HISTORY, HistoryCursor
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import LoadedTable, ReleasedKind
from cdc_assets.lakehouse.schema import quoted
from cdc_assets.lakehouse.table import Staged
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.loaded import LOADED_ROWS, columns_in

_COPY_THREADS = 8


@dataclass(frozen=True)
class HistoryStart:
    """A history that begins with a load.

    Attributes:
        position: of the load.
        columns: the source's columns.
        shape: the history's columns.
        typing: types the loaded rows.
    """

    position: int
    columns: list[SourceColumn]
    shape: StructType
    typing: Typing

    def to_versions(self, typed: DataFrame, key: Column, offset: Column, *more: str) -> DataFrame:
        """Return loaded rows as open versions, in the columns of the history's files.

        Args:
            typed: the columns of `Typing.type_rows`.
            key: of a row.
            offset: of a row; unique in the load.
            more: columns of `typed` to keep beside the history's.
        """
        version = {
            "key": key,
            "commit_ts": F.lit(self.position),
            "to_ts": F.lit(None).cast("bigint"),
            "op": F.lit(str(Op.SNAPSHOT)),
            "closed_by": F.lit(None).cast("string"),
            "topic": F.lit(LOAD_TOPIC),
            "partition": F.lit(0),
            "offset": offset,
            "was_open": F.lit(False),
        }
        versions = typed.select("row", *[value.alias(name) for name, value in version.items()], *more)
        names = [quoted(f.name) for f in _file_columns(self.shape)]
        return to_table_rows(versions, self.shape, self.columns, more, all_open=True).select(*names, *more)


def plan_history_start(feed: Feed, name: Name, position: int, layout_id: int, layout: str) -> HistoryStart | None:
    """Return how a history begins with a load; None: its columns cannot be created from the layout alone.

    That is so where a name needs Delta's column mapping, or only the values show the scale of a DECIMAL.

    Args:
        feed: the feed.
        name: of the table, which has a key.
        position: of the load.
        layout_id: of its rows.
        layout: the text of that layout.
    """
    declared = [(c.name, LOADED_ROWS.resolve(c, None, None)) for c in columns_in(LOADED_ROWS, layout)]
    evolution = evolve_tables([], {name: [SeenColumns(None, declared)]}).get(name, Evolution(name))
    row = {"layout_id": layout_id, "layout": layout, "commit_ts": position, "last_ts": position}
    layouts = plan_layouts(feed, [row], [], evolution, None)
    readings = collect_readings(protocol_of(feed), layouts, type_overrides(feed, name))
    columns = [
        SourceColumn(s.id, each[-1].column.name, s.column, each, target_type(each, None, None), each[-1].type)
        for s, each in readings.items()
    ]
    own = own_fields(columns)
    if unusual_names(own) or any(needs_scale(c.type) for c in columns):
        return None
    typing = Typing(protocol_of(feed), feed.time_zone, layouts, columns)
    return HistoryStart(position, columns, StructType([*CDC_COLUMNS, *own]), typing)


def adopt_loaded_rows(
    lake: Lakehouse,
    feed: Feed,
    due: Iterable[Name],
    progress: Progress | None,
    on_error: Callable[[Name, Exception], None],
) -> dict[Name, TableReport]:
    """Begin histories that do not exist yet with the typed rows of their loads: one commit each, without Spark.

    Args:
        lake: the feed's tables.
        feed: the feed.
        due: the tables that may have releases to apply.
        progress: how far the histories have come.
        on_error: is called for each table that failed.

    Returns:
        The reports of the histories that were begun.
    """
    released = lake.released_changes.cursor()
    loads = {(each.database, each.table): each for each in released.loads if each.folder} if released else {}
    reports = {}
    for name in sorted(loads.keys() & set(due)):
        load = loads[name]
        if progress is not None and load.release <= progress.release and name not in progress.behind:
            continue
        try:
            if (report := _begin_history(lake, feed, name, load)) is not None:
                reports[name] = report
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with one table blocks that table only
            on_error(name, error)
    return reports


def _begin_history(lake: Lakehouse, feed: Feed, name: Name, load: LoadedTable) -> TableReport | None:
    """Begin one history with a copy of the files; return None if a copy is not possible."""
    history, loaded_rows = lake.history(*name), lake.loaded_rows(*name)
    if history.cursor() is not None or (layout := _read_layout(lake, name, load)) is None:
        return None
    start = plan_history_start(feed, name, load.position, layout["layout_id"], layout["layout"])
    staged = loaded_rows.list_staged(load.folder)
    if start is None or not _have_same_types(
        read_file_schema(staged.files[0].path, lake.store), _file_columns(start.shape)
    ):
        return None
    table = history.with_schema(start.shape, {})
    staged = _copy_files(lake, table.path, staged)
    # Rows that no type holds are in released_changes, in the load's release, which is then applied next.
    release = load.release if load.typed == load.rows else load.release - 1
    cursor = HistoryCursor(
        sequence=1,
        release=release,
        versions=staged.rows,
        current=staged.rows,
        statements=[],
        newest=load.position,
        complete=load.position,
        adopted=load.position,
    )
    table.commit(staged, cursor)
    return TableReport(
        *name,
        after=0,
        through=load.release,
        created=True,
        changes=staged.rows,
        opened=staged.rows,
        closed=0,
        quarantined=0,
        versions=staged.rows,
        current=staged.rows,
        columns=start.shape,
        complete=load.position,
    )


def _read_layout(lake: Lakehouse, name: Name, load: LoadedTable) -> Mapping[str, Any] | None:
    """Return the released layout of a load's rows; None: there is none."""
    files = [f for f in lake.released_changes.files(kind=str(ReleasedKind.LAYOUT)) if f.low["release"] <= load.release]
    files = [f for f in files if f.high["release"] >= load.release]
    columns = ("release", "database", "table", "layout_id", "layout")
    rows: list[dict[str, Any]] = lake.released_changes.fetch(files, *columns).to_pylist()
    return next((r for r in rows if (r["release"], r["database"], r["table"]) == (load.release, *name)), None)


def _file_columns(shape: StructType) -> StructType:
    """Return the columns of a history's files: all but the partition columns."""
    return StructType([f for f in shape if f.name not in HISTORY.partition_by])


def _have_same_types(one: StructType, other: StructType) -> bool:
    """Whether two schemas have the same names and types, in the same order."""
    names_and_types = [[(f.name, f.dataType.simpleString()) for f in each] for each in (one, other)]
    return names_and_types[0] == names_and_types[1]


def _copy_files(lake: Lakehouse, table_path: str, staged: Staged) -> Staged:
    """Copy files into a new folder of a table; return the copies."""
    folder = uuid.uuid4().hex

    def copy_into_history(file: DataFile) -> DataFile:
        path = f"{table_path}/{folder}/_cdc_is_current=true/{file.path.rpartition('/')[2]}"
        copy_file(lake.store, file.path, path)
        return replace(file, path=path)

    with ThreadPoolExecutor(max_workers=_COPY_THREADS) as pool:
        return Staged(list(pool.map(copy_into_history, staged.files)))
