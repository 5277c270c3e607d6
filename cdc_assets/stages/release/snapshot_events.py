"""Advance the snapshots of a source's connector, by the events of a release and by undecodable records among them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import ReleaseCursor, SourceSnapshot, TableScan
from cdc_assets.protocols import protocol_of
from cdc_assets.release.base import EventGroup, Part, QualifiedName
from cdc_assets.release.new_events import NewEvents, kafka_time
from cdc_assets.release.source_snapshots import advance_snapshots, keep_unended, list_ended_tables
from cdc_assets.release.table_scans import SLACK, ScanEvents, advance_scans, parse_scans, summarize_scans
from cdc_assets.spark.session import session_for
from cdc_assets.tso import TSO_LOGICAL_BITS

_SECOND = 1000  # milliseconds: a source clock may have seconds only


def advance_source_snapshots(
    lake: Lakehouse,
    feed: Feed,
    cursor: ReleaseCursor,
    taken: list[EventGroup],
    is_first: Callable[[QualifiedName], bool],
) -> tuple[list[SourceSnapshot], list[tuple[str, str, int]]]:
    """Return `ReleaseCursor.snapshots` and `ReleaseCursor.read` after a release.

    Args:
        lake: the feed's tables.
        feed: the feed.
        cursor: the cursor of the release before.
        taken: the row events of the release.
        is_first: whether a table has no released rows yet.
    """
    if not protocol_of(feed).takes_snapshots:
        return [], []
    before = cursor.snapshots
    after = advance_snapshots(
        before,
        taken,
        cursor.sequence + 1,
        is_first,
        lambda snapshot: _may_lack_reads(lake, snapshot),
        cursor.trimmed.highest,
    )
    return after if feed.snapshots == "whole" else keep_unended(after), list_ended_tables(before, after)


def advance_table_scans(
    lake: Lakehouse, feed: Feed, new: NewEvents, groups: Iterable[EventGroup], build_part: Callable[[], Column]
) -> list[TableScan]:
    """Return `ReleaseCursor.scans` after a release.

    Args:
        lake: the feed's tables.
        feed: the feed.
        new: the events since the release before.
        groups: all row events that the run read.
        build_part: returns the `Part` of a row event after the release.
    """
    cursor = new.cursor
    if feed.snapshots != "whole":
        return cursor.scans
    deleted, begun = cursor.trimmed.highest, {each.at for each in cursor.scans}
    notified = [s for s in parse_scans(new.notifications) if s.at > deleted or s.at in begun]
    inside = [g for g in groups if g.part == Part.INSIDE]

    def find_events(scans: list[TableScan]) -> list[ScanEvents | None]:
        return _find_scan_events(lake, scans, new.row_files, build_part(), deleted)

    return advance_scans(cursor.scans, notified, inside, cursor.sequence + 1, find_events)


def _find_scan_events(
    lake: Lakehouse, scans: Sequence[TableScan], row_files: Iterable[DataFile], part: Column, deleted: int
) -> list[ScanEvents | None]:
    """Return the events of each scan, in order; None if maintenance may have deleted events or changes of it.

    Args:
        lake: the feed's tables.
        scans: the scans.
        row_files: all files of row events.
        part: the `Part` of a row event after the release.
        deleted: the commit_ts up to which maintenance has deleted changes.
    """
    first = min(s.first for s in scans) - SLACK
    files = [f for f in row_files if kafka_time(f) >= first]
    spark = session_for(lake.spark, sum(f.rows for f in files))
    through = max((f.high["batch"] for f in files), default=0)
    since = (F.col("batch") <= through) & (F.col("record_timestamp") >= F.timestamp_millis(F.lit(first)))
    events = lake.change_events.read(spark).where((F.col("kind") == str(Kind.ROW)) & since)
    deleted_ms = lake.change_events.last_cursor().trimmed_newest
    result: list[ScanEvents | None] = []
    for scan, of_scan in zip(scans, summarize_scans(events, scans, part), strict=True):
        low, high = scan.first - SLACK, scan.last + SLACK
        has_undecodable = _has_undecodable_records(lake, of_scan.begun, low, high)
        is_kept = low > deleted_ms and of_scan.since > deleted
        has_unreleased = of_scan.has_unreleased or has_undecodable
        result.append(of_scan._replace(has_unreleased=has_unreleased) if is_kept else None)
    return result


def _may_lack_reads(lake: Lakehouse, snapshot: SourceSnapshot) -> bool:
    """Return whether undecodable records came between a snapshot's reads, so that reads may be in quarantine."""
    begin = min(snapshot.first, snapshot.at >> TSO_LOGICAL_BITS) - _SECOND
    return _has_undecodable_records(lake, snapshot.topics, begin, snapshot.last)


def _has_undecodable_records(lake: Lakehouse, topics: Collection[str], first_ms: int, last_ms: int) -> bool:
    """Return whether topics have undecodable records with Kafka times from `first_ms` to `last_ms`."""
    low, high = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (first_ms, last_ms))
    files = [f for f in lake.change_events.files(kind=str(Kind.UNDECODABLE)) if f.high["record_timestamp"] >= low]
    undecodable = lake.change_events.fetch_rows(files, "topic", "record_timestamp")
    return any(r["topic"] in topics and low <= r["record_timestamp"] <= high for r in undecodable)
