"""Retention: deletes old records, events and changes that no stage needs any more."""

from dataclasses import replace
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.config import Feed
from cdc_assets.history.progress import Name
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import cursor_to_continue
from cdc_assets.lakehouse.released_changes import (
    ConnectorSnapshot,
    ReleaseCursor,
    ReleasedKind,
    SourceSnapshot,
    Trimmed,
)
from cdc_assets.protocols.loaded import is_loaded
from cdc_assets.release.pending import is_pending
from cdc_assets.release.watermarks import has_watermarks
from cdc_assets.stages import HISTORY, SCHEMAS


def trim_records(lake: Lakehouse, feed: Feed, before: datetime) -> int:
    """Delete the oldest raw batches, each as a whole, up to the first that is still needed.

    A batch is needed if a record's Kafka time is not before `before`, if an event of it is not released, or if the gate has
    not looked at it. Audits start after the deleted batches, and the feed can no longer be rebuilt.

    Args:
        lake: the feed's tables.
        feed: a feed with `source.kafka`; recorded files would be ingested again.
        before: only records older than this are deleted.

    Returns:
        The number of deleted records.

    Raises:
        ValueError: the feed reads recorded files.
        ConcurrentRunError: a run committed to raw_records in the meantime.
    """
    if feed.source.kafka is None:
        raise ValueError("The feed reads recorded files: the next run would ingest deleted records again.")
    cursor, released = cursor_to_continue(lake.raw_records), _find_released_batch(lake, feed)
    if cursor is None or released <= cursor.trimmed:
        return 0
    session = lake.spark.newSession()
    records = lake.raw_records.read(session)
    through = _bound_number(released, records.where(F.col("timestamp") >= F.lit(before)), "batch")
    is_old = F.col("batch") <= through
    count = records.where(is_old).count()
    if count:
        next_cursor = replace(cursor, sequence=cursor.sequence + 1, trimmed=through)
        lake.raw_records.transact(session, next_cursor, lambda table: table.delete(is_old))
    return count


def trim_events(lake: Lakehouse, feed: Feed, before: datetime) -> int:
    """Delete the change events of the oldest batches, each as a whole, up to the first that is still needed.

    A batch is needed if a record's Kafka time is not before `before`, if an event of it is not released, or if another stage
    has not finished with it. Undecodable records stay as long as their raw records, as the job replay_quarantine may decode
    them. In feeds with transaction markers, row events and markers stay: each new transaction is compared with all of them.

    Args:
        lake: the feed's tables.
        feed: the feed's settings.
        before: only events of records older than this are deleted.

    Returns:
        The number of deleted events.

    Raises:
        ConcurrentRunError: a run decoded records in the meantime.
    """
    cursor, released, raw = lake.change_events.cursor(), lake.released_changes.cursor(), lake.raw_records.cursor()
    finished = _find_finished_batch(lake, feed)
    if cursor is None or released is None or raw is None or finished <= cursor.trimmed:
        return 0
    session = lake.spark.newSession()
    events = lake.change_events.read(session)
    through = _bound_number(finished, events.where(F.col("record_timestamp") >= F.lit(before)), "batch")
    kept_kinds = (str(Kind.ROW), str(Kind.TRANSACTION)) if released.transactions.marked else ()
    can_be_replayed = (F.col("kind") == str(Kind.UNDECODABLE)) & (F.col("batch") > raw.trimmed)
    is_old = (F.col("batch") <= through) & ~can_be_replayed & ~F.col("kind").isin(*kept_kinds)
    is_row = F.col("kind") == str(Kind.ROW)
    newest = F.unix_millis(F.max(F.when(is_row, F.col("record_timestamp"))))
    ((count, rows, newest_ms),) = events.where(is_old).agg(F.count("*"), F.count_if(is_row), newest).collect()
    if count:
        next_cursor = replace(
            cursor,
            sequence=cursor.sequence + 1,
            trimmed=through,
            trimmed_rows=cursor.trimmed_rows + rows,
            trimmed_newest=max(cursor.trimmed_newest, newest_ms or 0),
        )
        lake.change_events.transact(session, next_cursor, lambda table: table.delete(is_old))
    return int(count)


def trim_changes(lake: Lakehouse, before: datetime) -> int:
    """Delete the oldest released changes, each release as a whole, up to the first that is still needed.

    A release is needed if a change's commit_ts is not before `before`, if a history has not applied it, or if a history must
    apply it again on top of a load. A release has the layouts of its own changes only, so no later one needs them. Loaded
    rows stay.

    The duplicate of a deleted change is no longer recognised. With watermarks it is below the released watermark, so it is
    dropped as before, but counted as never seen. Without watermarks the same happens, unless it continues the key's state.

    The snapshots of the source's connector that lie among the deleted changes are forgotten. The gate kept them for
    histories that go back before a snapshot, of which there is none any more, and for late reads, which are now too old to
    be recognised as duplicates.

    Args:
        lake: the feed's tables.
        before: only changes older than this in the source are deleted.

    Returns:
        The number of deleted changes.

    Raises:
        ConcurrentRunError: a run released changes in the meantime.
    """
    cursor = lake.released_changes.cursor()
    if cursor is None:
        return 0
    behind = HISTORY.behind(lake)
    applied = _find_applied_release(lake, cursor, behind)
    if applied <= cursor.trimmed.release:
        return 0
    session = lake.spark.newSession()
    kinds = F.col("kind").isin(str(ReleasedKind.ROW), str(ReleasedKind.DDL), str(ReleasedKind.REPEAT))
    changes = lake.released_changes.read(session).where(kinds)
    needed_from = min([tso.first_commit_ts(before), *_list_positions_to_apply_again(cursor, behind)])
    through = _bound_number(applied, changes.where(F.col("commit_ts") >= needed_from), "release")
    is_old = (F.col("release") <= through) & ~_is_of_load()
    totals = [F.count("*"), F.max("commit_ts"), F.sum("events"), F.sum("repeats")]
    ((count, highest, events, repeats),) = changes.where(is_old).agg(*totals).collect()
    if count:
        trimmed = Trimmed(
            release=through,
            highest=max(cursor.trimmed.highest, highest),
            events=cursor.trimmed.events + (events or 0),
            repeats=cursor.trimmed.repeats + (repeats or 0),
        )
        next_cursor = _advance_release(cursor, trimmed, behind)
        lake.released_changes.transact(session, next_cursor, lambda table: table.delete(is_old))
    return int(count)


def _bound_number(done: int, needed: DataFrame, number: str) -> int:
    """Return the number up to which rows can be deleted: `done`, or what lies below the lowest number of a needed row."""
    ((lowest,),) = needed.agg(F.min(number)).collect()
    return done if lowest is None else min(done, lowest - 1)


def _advance_release(cursor: ReleaseCursor, trimmed: Trimmed, behind: set[Name]) -> ReleaseCursor:
    """Return the cursor of the commit that deletes changes: a number of its own, and no release of any table."""
    return replace(
        cursor.start_next(),
        trimmed=trimmed,
        snapshots=[each for each in cursor.snapshots if not _is_obsolete(each, trimmed, behind)],
        scans=[each for each in cursor.scans if not _is_obsolete(each, trimmed, behind)],
    )


def _is_of_load() -> Column:
    """Return whether a row of released_changes is a row of a dump or its layout, which no other table holds."""
    return (F.col("kind") == str(ReleasedKind.LOADED)) | F.coalesce(is_loaded("layout"), F.lit(False))


def _find_released_batch(lake: Lakehouse, feed: Feed) -> int:
    """Return the raw batch up to which the gate has released, dropped or counted every event."""
    cursor = lake.released_changes.cursor()
    if cursor is None:
        return 0
    if not has_watermarks(feed, cursor.partition_watermarks):
        in_transactions = [cursor.transactions.oldest] if cursor.transactions.bounds else []
        return min([cursor.batch + 1, *in_transactions, *(hold.batch for hold in cursor.holds)]) - 1
    # Start Spark first: without it no column can be built.
    events = lake.change_events.read(lake.spark.newSession())
    is_unreleased = F.col("kind").isin(str(Kind.ROW), str(Kind.DDL)) & is_pending(feed, cursor)
    return _bound_number(cursor.batch, events.where(is_unreleased), "batch")


def _find_finished_batch(lake: Lakehouse, feed: Feed) -> int:
    """Return the raw batch up to which every stage has finished with all events."""
    schemas, types = lake.table_schemas.cursor(), lake.type_observations.cursor()
    if types is None:
        return 0
    # The types of doubted tables are judged again when settings change or a schema comes.
    judged_again = [doubted.after for doubted in types.doubted]
    unread_statements = [schemas.batch if schemas else 0] if SCHEMAS.due(lake, feed) else []
    return min(_find_released_batch(lake, feed), types.batch, *judged_again, *unread_statements)


def _find_applied_release(lake: Lakehouse, cursor: ReleaseCursor, behind: set[Name]) -> int:
    """Return the release up to which every history has all changes; `behind`: the tables that may lack newer ones."""
    cursors = [lake.history(*name).cursor() for name in behind]
    return min([cursor.sequence, *(history.release if history else 0 for history in cursors)])


def _list_positions_to_apply_again(cursor: ReleaseCursor, behind: set[Name]) -> list[int]:
    """Return the positions from which on histories may have to apply changes again, after a load or a snapshot."""
    loads = [load.position for load in cursor.loads if load.is_reload and (load.database, load.table) in behind]
    snapshots: list[ConnectorSnapshot] = [*cursor.snapshots, *cursor.scans]
    return loads + [each.since for each in snapshots if each.release and (each.database, each.table) in behind]


def _is_obsolete(snapshot: ConnectorSnapshot, trimmed: Trimmed, behind: set[Name]) -> bool:
    """Return whether no history goes back before a connector's snapshot, and no read of it is to come."""
    is_unfinished = isinstance(snapshot, SourceSnapshot) and not (snapshot.is_complete or snapshot.initial)
    is_applied = (snapshot.database, snapshot.table) not in behind
    return not is_unfinished and snapshot.until <= trimmed.highest and is_applied
