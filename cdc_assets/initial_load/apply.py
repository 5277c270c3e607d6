"""Histories that begin with a load: its rows are typed once, when they are released, in files as the history has them.

The history then begins with a copy of these files. Where it cannot (its types are to be others since, or it has rows
already), they are changes as any others are: `history.changes` makes them of the typed rows.
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
from cdc_assets.history.columns import SourceColumn, Typing, needs_scale, readings_of, target_type
from cdc_assets.history.evolution import Evolution, Seen, evolve
from cdc_assets.history.layouts import layouts_of
from cdc_assets.history.progress import Name, Progress
from cdc_assets.history.reading import overrides
from cdc_assets.history.shape import own_fields, unusual_names
from cdc_assets.history.writer import TableReport, version_rows
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

_AT_ONCE = 8  # files that are copied


@dataclass(frozen=True)
class Beginning:
    """A history that begins with a load.

    Attributes:
        position: of the load.
        columns: the source's.
        shape: the history's columns.
        typing: of the loaded rows.
    """

    position: int
    columns: list[SourceColumn]
    shape: StructType
    typing: Typing

    def versions(self, typed: DataFrame, key: Column, offset: Column, *more: str) -> DataFrame:
        """Loaded rows as the files of the history have them; in: `Typing.typed`. `more`: columns that stay beside."""
        shown = {
            "key": key,
            "commit_ts": F.lit(self.position),
            "to_ts": F.lit(None).cast("bigint"),
            "op": F.lit(str(Op.SNAPSHOT)),
            "closed_by": F.lit(None).cast("string"),
            "topic": F.lit(LOAD_TOPIC),
            "partition": F.lit(0),
            "offset": offset,
            "standing": F.lit(False),
        }
        made = typed.select("row", *[value.alias(name) for name, value in shown.items()], *more)
        names = [quoted(f.name) for f in in_files(self.shape)]
        return version_rows(made, self.shape, self.columns, more, all_open=True).select(*names, *more)


def beginning(feed: Feed, name: Name, position: int, layout_id: int, layout: str) -> Beginning | None:
    """How a history begins with a load; None where that is for its changes to tell.

    Args:
        feed: the feed.
        name: of the table, which has a key.
        position: of the load.
        layout_id: of its rows.
        layout: its text.
    """
    told = [(c.name, LOADED_ROWS.resolve(c, None, None)) for c in columns_in(LOADED_ROWS, layout)]
    evolution = evolve([], {name: [Seen(None, told)]}).get(name, Evolution(name))
    row = {"layout_id": layout_id, "layout": layout, "commit_ts": position, "last_ts": position}
    layouts = layouts_of(feed, [row], [], evolution, None)
    found = readings_of(protocol_of(feed), layouts, overrides(feed, name))
    columns = [
        SourceColumn(s.id, each[-1].column.name, s.column, each, target_type(each, None, None), each[-1].type)
        for s, each in found.items()
    ]
    own = own_fields(columns)
    if unusual_names(own) or any(needs_scale(c.type) for c in columns):
        return None
    typing = Typing(protocol_of(feed), feed.time_zone, layouts, columns)
    return Beginning(position, columns, StructType([*CDC_COLUMNS, *own]), typing)


def adopt(
    lake: Lakehouse,
    feed: Feed,
    due: Iterable[Name],
    progress: Progress | None,
    failed: Callable[[Name, Exception], None],
) -> dict[Name, TableReport]:
    """Let the histories that are not there yet begin with the typed rows of their loads: a commit each, without Spark.

    Args:
        lake: the feed's tables.
        feed: the feed.
        due: the tables that may have releases to apply.
        progress: how far all are.
        failed: is told of tables of which that failed.
    """
    released = lake.released_changes.cursor()
    loads = {(each.database, each.table): each for each in released.loads if each.folder} if released else {}
    found = {}
    for name in sorted(loads.keys() & set(due)):
        load = loads[name]
        if progress is not None and load.release <= progress.release and name not in progress.behind:
            continue
        try:
            if (report := _adopted(lake, feed, name, load)) is not None:
                found[name] = report
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with one table holds up that table only
            failed(name, error)
    return found


def _adopted(lake: Lakehouse, feed: Feed, name: Name, load: LoadedTable) -> TableReport | None:
    """Begin one history with a copy of the files; None: it cannot."""
    history, kept = lake.history(*name), lake.loaded_rows(*name)
    if history.cursor() is not None or (layout := _layout(lake, name, load)) is None:
        return None
    begun = beginning(feed, name, load.position, layout["layout_id"], layout["layout"])
    staged = kept.list_staged(load.folder)
    if begun is None or _named(read_file_schema(staged.files[0].path, lake.store)) != _named(in_files(begun.shape)):
        return None
    table = history.with_schema(begun.shape, {})
    staged = _copied(lake, table.path, staged)
    # What no type holds is in released_changes, and applied next.
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
        columns=begun.shape,
        complete=load.position,
    )


def _layout(lake: Lakehouse, name: Name, load: LoadedTable) -> Mapping[str, Any] | None:
    """The layout of a load's rows."""
    files = [f for f in lake.released_changes.files(kind=str(ReleasedKind.LAYOUT)) if f.low["release"] <= load.release]
    files = [f for f in files if f.high["release"] >= load.release]
    columns = ("release", "database", "table", "layout_id", "layout")
    rows: list[dict[str, Any]] = lake.released_changes.fetch(files, *columns).to_pylist()
    return next((r for r in rows if (r["release"], r["database"], r["table"]) == (load.release, *name)), None)


def in_files(shape: StructType) -> StructType:
    """The columns that files of a history have: all but what tells files apart."""
    return StructType([f for f in shape if f.name not in HISTORY.partition_by])


def _named(columns: StructType) -> list[tuple[str, str]]:
    return [(f.name, f.dataType.simpleString()) for f in columns]


def _copied(lake: Lakehouse, table: str, staged: Staged) -> Staged:
    """The same files in a table's folder."""
    folder = uuid.uuid4().hex

    def copy(file: DataFile) -> DataFile:
        path = f"{table}/{folder}/_cdc_is_current=true/{file.path.rpartition('/')[2]}"
        copy_file(lake.store, file.path, path)
        return replace(file, path=path)

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return Staged(folder, list(pool.map(copy, staged.files)))
