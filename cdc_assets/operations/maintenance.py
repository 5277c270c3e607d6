"""Maintenance: small files into larger ones, files that no version needs removed, old rows that nothing needs deleted."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyarrow.fs import FileSelector, FileType
from pyspark.sql import Row
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.config import Feed
from cdc_assets.history.progress import Name
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import cursor_to_continue
from cdc_assets.lakehouse.released_changes import (
    ConnectorSnapshot,
    ReleaseCursor,
    ReleasedKind,
    SourceSnapshot,
    Trimmed,
)
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.protocols.loaded import is_loaded
from cdc_assets.release.choose import has_watermarks
from cdc_assets.release.pending import is_pending
from cdc_assets.stages import HISTORY, SCHEMAS


@dataclass(frozen=True)
class Compaction:
    """What OPTIMIZE did to one table."""

    table: str
    removed: int  # files
    added: int


def tables(lake: Lakehouse) -> list[LakeTable[Any]]:
    """Every table of the feed that is there."""
    every = [*lake.stage_tables, *(lake.history(*name) for name in lake.histories())]
    return [table for table in every if table.exists()]


def compact(lake: Lakehouse) -> Iterator[Compaction]:
    """OPTIMIZE the tables of the feed: the rows stay, and so do the cursors."""
    for table in tables(lake):
        before, cursor = {f.path for f in table.files()}, _cursor(lake, table)
        if cursor is not None and _may_be_compacted(table):
            table.alter(lake.spark.newSession(), cursor, lambda t: t.optimize().executeCompaction())
        after = {f.path for f in table.files()}
        yield Compaction(table.name, len(before - after), len(after - before))


def _may_be_compacted(table: LakeTable[Any]) -> bool:
    """Whether there are files of one partition, or rows that are marked as deleted."""
    log = table.log()
    files = Counter(tuple(sorted(f.partition.items())) for f in log.files()) if log else Counter()
    return log is not None and (log.may_have_deletion_vectors or any(n > 1 for n in files.values()))


def vacuum(lake: Lakehouse, hours: float) -> None:
    """VACUUM the tables of the feed: remove the files that no version younger than so many hours needs.

    And the typed rows of loads that no release names.

    Delta refuses fewer hours than the table's `delta.deletedFileRetentionDuration`, a week. A table that has no file to be
    removed is left out, as Spark takes more than a second for it, however small it is.
    """
    for table in tables(lake):
        cursor = _cursor(lake, table)
        if cursor is not None and _has_old_files(table, hours):
            table.alter(lake.spark.newSession(), cursor, lambda t: t.vacuum(hours))
    remove_unnamed_loads(lake, hours)


def _has_old_files(table: LakeTable[Any], hours: float) -> bool:
    """Whether there are files, older than so many hours, that are no data of the newest version.

    Such are those that VACUUM removes, and marks of deleted rows, some of which it keeps.
    """
    young = datetime.now(UTC) - timedelta(hours=hours)
    system, base = table.store.files(table.path)
    needed = {file.path.removeprefix(f"{table.path}/") for file in table.files()}
    found = system.get_file_info(FileSelector(base, recursive=True))
    old = (info.path.removeprefix(f"{base}/") for info in found if info.type == FileType.File and info.mtime < young)
    return any(path not in needed and not path.startswith("_delta_log/") for path in old)


def remove_unnamed_loads(lake: Lakehouse, hours: float) -> None:
    """Remove typed rows of loads that no release names, as the run that wrote them died.

    Not those that are younger than so many hours: a run may be writing them now.
    """
    named = {each.folder for cursor in lake.released_changes.cursors() for each in cursor.loads}
    young = datetime.now(UTC) - timedelta(hours=hours)
    for load in lake.load_rows():
        system, base = lake.store.files(lake.loaded_rows(load["database"], load["table"]).path)
        for folder in system.get_file_info(FileSelector(base, allow_not_found=True)):
            files = system.get_file_info(FileSelector(folder.path, recursive=True))
            written = [info.mtime for info in files if info.type == FileType.File]
            if folder.base_name not in named and all(time < young for time in written):
                system.delete_dir(folder.path)


def _cursor(lake: Lakehouse, table: LakeTable[Any]) -> Cursor | None:
    """What a commit without rows has to carry."""
    if table.path == lake.raw_records.path:
        return cursor_to_continue(lake.raw_records)
    found: Cursor | None = table.cursor()
    return found


# --- retention


def trim_records(lake: Lakehouse, feed: Feed, before: datetime) -> int:
    """Delete old raw records, a batch whole or not at all: the oldest batches, up to one that is still needed.

    Needed is a batch with a record whose Kafka time is not before the instant, with an event that is not released yet, or
    that the gate has not looked at. Audits begin after what is deleted, and a rebuild is no longer possible.

    Args:
        lake: the feed's tables.
        feed: a feed of a broker; recorded files may be read again, and would bring back what is deleted.
        before: only records older than that.

    Returns:
        How many records were deleted.

    Raises:
        ValueError: the feed reads recorded files.
        ConcurrentRunError: a run committed to raw_records meanwhile.
    """
    if feed.source.kafka is None:
        raise ValueError("Only of a feed with source.kafka: recorded files may be read again.")
    cursor, released = cursor_to_continue(lake.raw_records), _released(lake, feed)
    if cursor is None or released <= cursor.trimmed:
        return 0
    session = lake.spark.newSession()
    records = lake.raw_records.read(session)
    young = records.where(F.col("timestamp") >= F.lit(before)).agg(F.min("batch")).head()
    through = _below(released, young)
    old = F.col("batch") <= through
    count = records.where(old).count()
    if count:
        advanced = replace(cursor, sequence=cursor.sequence + 1, trimmed=through)
        lake.raw_records.transact(session, advanced, lambda table: table.delete(old))
    return count


def trim_events(lake: Lakehouse, feed: Feed, before: datetime) -> int:
    """Delete old change events, a batch whole or not at all: the oldest batches, up to one that is still needed.

    Needed is a batch with a record whose Kafka time is not before the instant, with an event that is not released yet, or
    that a stage has not done with. What could not be decoded stays as long as its record: the job replay_quarantine may
    try it again. Where markers tell of transactions, row events and markers stay: all are asked whether a transaction came
    before.

    Returns:
        How many events were deleted.

    Raises:
        ConcurrentRunError: a run decoded records meanwhile.
    """
    cursor, released, raw = lake.change_events.cursor(), lake.released_changes.cursor(), lake.raw_records.cursor()
    settled = _settled(lake, feed)
    if cursor is None or released is None or raw is None or settled <= cursor.trimmed:
        return 0
    session = lake.spark.newSession()
    events = lake.change_events.read(session)
    young = events.where(F.col("record_timestamp") >= F.lit(before)).agg(F.min("batch")).head()
    through = _below(settled, young)
    marked = (str(Kind.ROW), str(Kind.TRANSACTION)) if released.transactions.marked else ()
    undecodable = (F.col("kind") == str(Kind.UNDECODABLE)) & (F.col("batch") > raw.trimmed)
    old = (F.col("batch") <= through) & ~undecodable & ~F.col("kind").isin(*marked)
    is_row = F.col("kind") == str(Kind.ROW)
    newest = F.unix_millis(F.max(F.when(is_row, F.col("record_timestamp"))))
    count, of_rows, newest_ms = events.where(old).agg(F.count("*"), F.count_if(is_row), newest).head() or (0, 0, None)
    if count:
        advanced = replace(
            cursor,
            sequence=cursor.sequence + 1,
            trimmed=through,
            trimmed_rows=cursor.trimmed_rows + of_rows,
            trimmed_newest=max(cursor.trimmed_newest, newest_ms or 0),
        )
        lake.change_events.transact(session, advanced, lambda table: table.delete(old))
    return int(count)


def trim_changes(lake: Lakehouse, before: datetime) -> int:
    """Delete old released changes, a release whole or not at all: the oldest releases, up to one that is still needed.

    Needed is a release with a change whose commit_ts is not before the instant, one that a history has not applied, and one
    that it has to apply again, on top of a load; a release has the layouts of its own changes, and no later one needs them.
    Loaded rows stay.

    What comes again of a deleted change is not known to be a repeat. With watermarks it lies below what was released, and
    is dropped as ever, but counted as never seen. So it is without them, unless it continues what is known of its key.

    With the changes go the snapshots of the source's connector that lie among them: the gate has kept these for histories
    that go back before one, which none does any more, and for reads that come late, which are too old now to be told from
    repeats.

    Returns:
        How many changes were deleted.

    Raises:
        ConcurrentRunError: a run released meanwhile.
    """
    cursor = lake.released_changes.cursor()
    if cursor is None:
        return 0
    behind = HISTORY.behind(lake)
    applied = _applied(lake, cursor, behind)
    if applied <= cursor.trimmed.release:
        return 0
    session = lake.spark.newSession()
    changes = lake.released_changes.read(session).where(
        F.col("kind").isin(str(ReleasedKind.ROW), str(ReleasedKind.DDL), str(ReleasedKind.REPEAT))
    )
    needed_from = min([tso.at(before), *_applied_again(cursor, behind)])
    young = changes.where(F.col("commit_ts") >= needed_from).agg(F.min("release")).head()
    through = _below(applied, young)
    # Rows of a dump, and the layouts that they name, have no other place.
    loaded = (F.col("kind") == str(ReleasedKind.LOADED)) | F.coalesce(is_loaded("layout"), F.lit(False))
    old = (F.col("release") <= through) & ~loaded
    told = [F.count("*"), F.max("commit_ts"), F.sum("events"), F.sum("repeats")]
    count, highest, events, repeats = changes.where(old).agg(*told).head() or (0, 0, None, None)
    if count:
        before_it = cursor.trimmed
        trimmed = Trimmed(
            release=through,
            highest=max(before_it.highest, highest),
            events=before_it.events + (events or 0),
            repeats=before_it.repeats + (repeats or 0),
        )
        # A number of its own, and no release of any table.
        advanced = replace(
            cursor,
            sequence=cursor.sequence + 1,
            tables=[],
            read=[],
            trimmed=trimmed,
            snapshots=[s for s in cursor.snapshots if not _outlived(s, trimmed, behind)],
            scans=[s for s in cursor.scans if not _outlived(s, trimmed, behind)],
        )
        lake.released_changes.transact(session, advanced, lambda table: table.delete(old))
    return int(count)


def _below(done: int, young: Row | None) -> int:
    """The number up to which rows may go: `done`, or what lies below the first that is too young, if there is one."""
    return done if young is None or young[0] is None else min(done, young[0] - 1)


def _released(lake: Lakehouse, feed: Feed) -> int:
    """The batch up to which the gate has done with all events: released, dropped, or counted."""
    cursor = lake.released_changes.cursor()
    if cursor is None:
        return 0
    if not has_watermarks(feed, cursor.partition_watermarks):
        back = [cursor.transactions.oldest] if cursor.transactions.bounds else []
        return min([cursor.batch + 1, *back, *(h.batch for h in cursor.holds)]) - 1
    # First of all, as no column can be built before Spark has been started.
    events = lake.change_events.read(lake.spark.newSession())
    changes = F.col("kind").isin(str(Kind.ROW), str(Kind.DDL)) & is_pending(feed, cursor)
    return _below(cursor.batch, events.where(changes).agg(F.min("batch")).head())


def _settled(lake: Lakehouse, feed: Feed) -> int:
    """The batch up to which the other stages have done with all events, too: they are learnt and judged."""
    learnt, judged = lake.table_schemas.cursor(), lake.type_observations.cursor()
    if judged is None:
        return 0
    # Those of doubted tables are judged again when the settings change, or a schema comes.
    again = [doubted.after for doubted in judged.doubted]
    to_learn = [learnt.batch if learnt else 0] if SCHEMAS.due(lake, feed) else []
    return min(_released(lake, feed), judged.batch, *again, *to_learn)


def _applied_again(cursor: ReleaseCursor, behind: set[Name]) -> list[int]:
    """From where on histories may have to apply changes again, on top of a load, or for a snapshot of the connector."""
    loads = [each.position for each in cursor.loads if each.is_reload and (each.database, each.table) in behind]
    snapshots: list[ConnectorSnapshot] = [*cursor.snapshots, *cursor.scans]
    return loads + [s.since for s in snapshots if s.release and (s.database, s.table) in behind]


def _outlived(snapshot: ConnectorSnapshot, trimmed: Trimmed, behind: set[Name]) -> bool:
    """Whether no history goes back before a snapshot, and nothing of it is to come."""
    open_still = isinstance(snapshot, SourceSnapshot) and not (snapshot.is_complete or snapshot.initial)
    return not open_still and snapshot.until <= trimmed.highest and (snapshot.database, snapshot.table) not in behind


def _applied(lake: Lakehouse, cursor: ReleaseCursor, behind: set[Name]) -> int:
    """The release up to which every history has all changes; `behind`: the tables of which that may not be the newest."""
    cursors = [lake.history(*name).cursor() for name in behind]
    return min([cursor.sequence, *(c.release if c else 0 for c in cursors)])
