"""Snapshots of a source's connector (Debezium): which have ended, and which are complete, so that other rows were deleted.

All reads of a snapshot state the binlog position at which it was taken. Each read states its place in the snapshot: the
first, the last, the first or the last of its table, or another. A connector that dies during a snapshot begins again, at the
same position or at another. A table without rows has no reads, so nothing shows that it was read. Incremental snapshots are
in `table_scans`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.released_changes import SourceSnapshot
from cdc_assets.release.base import EventGroup, QualifiedName

# The last read of the whole snapshot; without it, the last read of its table.
_LAST = "last"
_BEGIN, _END = {"first", "first_in_data_collection"}, {_LAST, "last_in_data_collection"}
_MARKERS = {*_BEGIN, *_END, "true"}
_TABLE_MARKERS = {*_BEGIN, "last_in_data_collection"}

_Key = tuple[str, str, str, int]  # database, table; file and position in the binlog


def snapshot_read() -> Column:
    """Return the topic and binlog position of a snapshot's read, STRUCT<topic, file, position>; NULL for other events."""
    is_read = (F.col("op") == str(Op.SNAPSHOT)) & F.col("detail").isin(*_MARKERS) & F.col("source.file").isNotNull()
    place = F.struct("topic", F.col("source.file").alias("file"), F.col("source.position").alias("position"))
    return F.when(is_read, place)


def snapshot_aggregates() -> list[Column]:
    """Return the aggregates `markers`, `first_ms` and `last_ms` of an `EventGroup`, over detail and record_timestamp."""
    kafka_ms = F.unix_millis("record_timestamp")
    return [
        F.collect_set("detail").alias("markers"),
        F.min(kafka_ms).alias("first_ms"),
        F.max(kafka_ms).alias("last_ms"),
    ]


def advance_snapshots(
    before: Sequence[SourceSnapshot],
    window: Sequence[EventGroup],
    release: int,
    is_new: Callable[[QualifiedName], bool],
    is_damaged: Callable[[SourceSnapshot], bool],
    deleted: int,
) -> list[SourceSnapshot]:
    """Return the snapshots after a release.

    Args:
        before: the snapshots before the release.
        window: the released events.
        release: the number of the release.
        is_new: whether a table had no released change before.
        is_damaged: whether reads of a snapshot may be in quarantine.
        deleted: the commit_ts up to which maintenance has deleted changes. A read at or below it may be a duplicate of a
            deleted one, so it begins no snapshot.
    """
    snapshots = {_key(s): s for s in before}
    lowest: dict[QualifiedName, int] = {}
    for g in window:
        name = (g.database, g.table)
        lowest[name] = min(g.first, lowest.get(name, g.first))
    from_window = [_build_snapshot(g, g.read) for g in window if g.read is not None]
    reads = [read for read in from_window if read.until > deleted or _key(read) in snapshots]
    read_keys = {_key(read) for read in reads}
    for read in reads:
        snapshots[_key(read)] = _merge(snapshots.get(_key(read), read), read)
    for key, s in snapshots.items():
        if key[:2] in lowest and (key in read_keys or not s.release):
            snapshots[key] = replace(s, since=min(s.since, lowest[key[:2]]))
    tables_before = {key[:2] for key in map(_key, before)}
    for key in read_keys:
        s = snapshots[key]
        if key[:2] not in tables_before and s.at == lowest[key[:2]] and is_new(key[:2]):
            snapshots[key] = replace(s, initial=True)
    for place in {key[2:] for key in read_keys}:
        at_place = [s for key, s in snapshots.items() if key[2:] == place]
        markers = {marker for s in at_place for marker in s.markers}
        for s in at_place:
            is_undecided = _key(s) in read_keys or not (s.is_complete or (s.initial and s.ended))
            if is_undecided and _has_ended(s, markers) and not is_damaged(s):
                snapshots[_key(s)] = replace(s, ended=True, release=0 if s.initial else release)
    return _drop_superseded(_end_by_changes(list(snapshots.values()), window, is_damaged))


def list_ended_tables(before: Sequence[SourceSnapshot], after: Sequence[SourceSnapshot]) -> list[tuple[str, str, int]]:
    """Return [database, table, commit_ts of the last read] of the snapshots that end with a release.

    Args:
        before: the snapshots before the release.
        after: the snapshots after it.
    """
    ended_before = {(_key(s), s.until) for s in before if s.ended}
    return [(s.database, s.table, s.until) for s in after if s.ended and (_key(s), s.until) not in ended_before]


def keep_unended(snapshots: Sequence[SourceSnapshot]) -> list[SourceSnapshot]:
    """Return the snapshots that may go on: those after the last one of their table that has ended."""
    ends = _find_newest(s for s in snapshots if s.ended)
    return [s for s in snapshots if s.at > ends.get((s.database, s.table), -1)]


def _find_newest(snapshots: Iterable[SourceSnapshot]) -> dict[QualifiedName, int]:
    """Return (database, table) -> `at` of the table's newest snapshot."""
    return {(s.database, s.table): s.at for s in sorted(snapshots, key=lambda s: s.at)}


def _key(snapshot: SourceSnapshot) -> _Key:
    return snapshot.database, snapshot.table, snapshot.file, snapshot.position


def _build_snapshot(group: EventGroup, read: Mapping[str, Any]) -> SourceSnapshot:
    """Return the snapshot of a group of reads."""
    return SourceSnapshot(
        database=group.database,
        table=group.table,
        file=read["file"],
        position=read["position"],
        at=group.first,
        until=group.last,
        since=group.first,
        topics=[read["topic"]],
        markers=sorted(group.markers),
        first=group.first_ms,
        last=group.last_ms,
    )


def _merge(a: SourceSnapshot, b: SourceSnapshot) -> SourceSnapshot:
    return replace(
        a,
        at=min(a.at, b.at),
        until=max(a.until, b.until),
        since=min(a.since, b.since),
        topics=sorted({*a.topics, *b.topics}),
        markers=sorted({*a.markers, *b.markers}),
        first=min(a.first, b.first),
        last=max(a.last, b.last),
    )


def _has_ended(snapshot: SourceSnapshot, all_markers: set[str]) -> bool:
    """Return whether the first and the last read of a table have come.

    The only read of a table is marked as the last one of the table, or, in the first table, as the first one of the
    snapshot. Debezium 1.9 marks only the last read of the snapshot.

    Args:
        snapshot: the reads of the table.
        all_markers: the markers of the reads of all tables in the snapshot.
    """
    markers, has_no_table_markers = set(snapshot.markers), not all_markers & _TABLE_MARKERS
    if markers & _END:
        return bool(markers & _BEGIN) or markers <= _END or has_no_table_markers
    # Debezium may read tables in parallel, so the last read of the snapshot does not end the other tables.
    return _LAST in all_markers and (markers == {"first"} or has_no_table_markers)


def _end_by_changes(
    snapshots: list[SourceSnapshot], window: Sequence[EventGroup], is_damaged: Callable[[SourceSnapshot], bool]
) -> list[SourceSnapshot]:
    """End the newest snapshot of each table that has a change after the reads: Debezium sends none before the end.

    Debezium 1.9 marks only the last read of the snapshot, which may be in a topic that the feed does not read.
    """
    changed: dict[QualifiedName, int] = {}
    for g in window:
        if g.read is None:
            changed[g.database, g.table] = max(g.last_ms, changed.get((g.database, g.table), 0))
    # A snapshot that was broken off is older than the one that replaces it.
    newest = {(s.database, s.table): s for s in sorted(snapshots, key=lambda s: s.at)}

    def ends(s: SourceSnapshot) -> bool:
        name = s.database, s.table
        return newest[name] is s and not s.ended and changed.get(name, 0) > s.last and not is_damaged(s)

    return [replace(s, ended=True) if ends(s) else s for s in snapshots]


def _drop_superseded(snapshots: list[SourceSnapshot]) -> list[SourceSnapshot]:
    """Drop the incomplete snapshots that are older than a complete one of their table."""
    complete = _find_newest(s for s in snapshots if s.release)
    return [s for s in snapshots if s.release or s.at > complete.get((s.database, s.table), -1)]
