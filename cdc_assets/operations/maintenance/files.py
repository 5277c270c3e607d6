"""Compaction and vacuum: the files of a feed's tables change, their rows and cursors stay."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyarrow.fs import FileSelector, FileType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import cursor_to_continue
from cdc_assets.lakehouse.table import LakeTable


@dataclass(frozen=True)
class Compaction:
    """What OPTIMIZE did to one table.

    Attributes:
        table: its name.
        removed: the number of files that it replaced.
        added: the number of files that it wrote.
    """

    table: str
    removed: int
    added: int


def list_tables(lake: Lakehouse) -> list[LakeTable[Any]]:
    """Return every existing table of the feed."""
    tables = [*lake.stage_tables, *(lake.history(*name) for name in lake.histories())]
    return [table for table in tables if table.exists()]


def compact_tables(lake: Lakehouse) -> Iterator[Compaction]:
    """OPTIMIZE the feed's tables; rows and cursors stay."""
    for table in list_tables(lake):
        before, cursor = {file.path for file in table.files()}, _find_cursor(lake, table)
        if cursor is not None and _can_be_compacted(table):
            table.alter(lake.spark.newSession(), cursor, lambda t: t.optimize().executeCompaction())
        after = {file.path for file in table.files()}
        yield Compaction(table.name, len(before - after), len(after - before))


def vacuum_tables(lake: Lakehouse, hours: float) -> None:
    """VACUUM the feed's tables, and remove the typed rows of loads that no release names.

    A table without a file to remove is skipped, as VACUUM takes a Spark job however small the table is.

    Args:
        lake: the feed's tables.
        hours: files stay that a version younger than this needs. Delta refuses less than the table's
            `delta.deletedFileRetentionDuration`, a week.
    """
    for table in list_tables(lake):
        cursor = _find_cursor(lake, table)
        if cursor is not None and _has_unneeded_files(table, hours):
            table.alter(lake.spark.newSession(), cursor, lambda t: t.vacuum(hours))
    remove_unnamed_loads(lake, hours)


def remove_unnamed_loads(lake: Lakehouse, hours: float) -> None:
    """Remove typed rows of loads that no release names: their runs died before the release.

    Args:
        lake: the feed's tables.
        hours: rows younger than this stay, as a run may be writing them.
    """
    named = {load.folder for cursor in lake.released_changes.cursors() for load in cursor.loads}
    oldest_kept = datetime.now(UTC) - timedelta(hours=hours)
    for load in lake.load_rows():
        files, base = lake.store.files(lake.loaded_rows(load["database"], load["table"]).path)
        for folder in files.get_file_info(FileSelector(base, allow_not_found=True)):
            infos = files.get_file_info(FileSelector(folder.path, recursive=True))
            times = [info.mtime for info in infos if info.type == FileType.File]
            if folder.base_name not in named and all(time < oldest_kept for time in times):
                files.delete_dir(folder.path)


def _can_be_compacted(table: LakeTable[Any]) -> bool:
    """Return whether a partition has several files, or rows may be marked as deleted."""
    log = table.log()
    if log is None:
        return False
    files_by_partition = Counter(tuple(sorted(file.partition.items())) for file in log.files())
    return log.may_have_deletion_vectors or any(count > 1 for count in files_by_partition.values())


def _has_unneeded_files(table: LakeTable[Any], hours: float) -> bool:
    """Return whether there are files older than this that are no data files of the newest version.

    VACUUM removes such files, but for those deletion vectors that the newest version needs.
    """
    oldest_kept = datetime.now(UTC) - timedelta(hours=hours)
    files, base = table.store.files(table.path)
    needed = {file.path.removeprefix(f"{table.path}/") for file in table.files()}
    infos = files.get_file_info(FileSelector(base, recursive=True))
    old = (
        info.path.removeprefix(f"{base}/") for info in infos if info.type == FileType.File and info.mtime < oldest_kept
    )
    return any(path not in needed and not path.startswith("_delta_log/") for path in old)


def _find_cursor(lake: Lakehouse, table: LakeTable[Any]) -> Cursor | None:
    """Return the cursor that a commit without rows must repeat."""
    if table.path == lake.raw_records.path:
        return cursor_to_continue(lake.raw_records)
    cursor: Cursor | None = table.cursor()
    return cursor
