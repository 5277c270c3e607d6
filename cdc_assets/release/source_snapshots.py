"""Snapshots of a source's connector (Debezium) at the gate: which have ended, and which are whole: what these lack is gone.

A snapshot's reads all tell the place in the binlog where it was taken, and which of the snapshot they are: the first, the
last, the first or the last of their table, or another. A connector that dies in the middle begins again, at the same place
or at another. Of a table without rows nothing comes, so nothing is known. Incremental snapshots are not among these: see
`table_scans`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Kind, Op
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import SourceSnapshot
from cdc_assets.release.base import Group, Name
from cdc_assets.tso import TSO_LOGICAL_BITS

_LAST = "last"  # of the whole snapshot; else, where there is one, of the table
_BEGIN, _END = {"first", "first_in_data_collection"}, {_LAST, "last_in_data_collection"}
_MARKERS = {*_BEGIN, *_END, "true"}
_TOLD_BY_TABLE = {*_BEGIN, "last_in_data_collection"}
_SECOND = 1000  # milliseconds: what the clocks of a source may leave out

_Key = tuple[str, str, str, int]  # database, table; file and position in the binlog


def read_of() -> Column:
    """Of an event that is a snapshot's read: STRUCT<topic, file, position>; else NULL."""
    is_read = (F.col("op") == str(Op.SNAPSHOT)) & F.col("detail").isin(*_MARKERS) & F.col("source.file").isNotNull()
    place = F.struct("topic", F.col("source.file").alias("file"), F.col("source.position").alias("position"))
    return F.when(is_read, place)


def of_reads() -> list[Column]:
    """What a `Group` tells of its reads: aggregates over detail and record_timestamp of events."""
    kafka_ms = F.unix_millis("record_timestamp")
    return [
        F.collect_set("detail").alias("markers"),
        F.min(kafka_ms).alias("first_ms"),
        F.max(kafka_ms).alias("last_ms"),
    ]


def advanced_snapshots(
    known: Sequence[SourceSnapshot],
    window: Sequence[Group],
    release: int,
    is_new: Callable[[Name], bool],
    damaged: Callable[[SourceSnapshot], bool],
    deleted: int,
) -> list[SourceSnapshot]:
    """The snapshots after a release.

    Args:
        known: those before it.
        window: what it releases.
        release: its number.
        is_new: whether nothing of a table was released before.
        damaged: whether reads of a snapshot that has come to its end may be missing.
        deleted: the commit_ts up to which maintenance has deleted changes, and with them what was known of snapshots: a read
            of before, which may be a repeat, begins none.
    """
    found = {_key(s): s for s in known}
    lowest: dict[Name, int] = {}
    for g in window:
        name = (g.database, g.table)
        lowest[name] = min(g.first, lowest.get(name, g.first))
    told = [_snapshot_of(g, g.read) for g in window if g.read is not None]
    reads = [read for read in told if read.until > deleted or _key(read) in found]
    brought = {_key(read) for read in reads}
    for read in reads:
        found[_key(read)] = _together(found.get(_key(read), read), read)
    for key, s in found.items():
        if key[:2] in lowest and (key in brought or not s.release):
            found[key] = replace(s, since=min(s.since, lowest[key[:2]]))
    had = {key[:2] for key in map(_key, known)}
    for key in brought:
        s = found[key]
        if key[:2] not in had and s.at == lowest[key[:2]] and is_new(key[:2]):
            found[key] = replace(s, initial=True)
    for place in {key[2:] for key in brought}:
        there = [s for key, s in found.items() if key[2:] == place]
        said = {marker for s in there for marker in s.markers}
        news = [s for s in there if _key(s) in brought or not (s.is_complete or (s.initial and s.ended))]
        for s in news:
            if _told_to_end(s, said) and not damaged(s):
                found[_key(s)] = replace(s, ended=True, release=0 if s.initial else release)
    return _worth_keeping(_gone_on(list(found.values()), window, damaged))


def ended_with(before: Sequence[SourceSnapshot], after: Sequence[SourceSnapshot]) -> list[tuple[str, str, int]]:
    """The tables of which a snapshot has ended with a release, and the commit_ts of its last read: `ReleaseCursor.read`."""
    known = {(_key(s), s.until) for s in before if s.ended}
    return [(s.database, s.table, s.until) for s in after if s.ended and (_key(s), s.until) not in known]


def not_ended(snapshots: Sequence[SourceSnapshot]) -> list[SourceSnapshot]:
    """Those that may go on: the connector has begun none of their tables anew."""
    ends = {(s.database, s.table): s.at for s in sorted(snapshots, key=lambda s: s.at) if s.ended}
    return [s for s in snapshots if s.at > ends.get((s.database, s.table), -1)]


def _key(snapshot: SourceSnapshot) -> _Key:
    return snapshot.database, snapshot.table, snapshot.file, snapshot.position


def _snapshot_of(group: Group, read: Mapping[str, Any]) -> SourceSnapshot:
    """What a group of reads tells."""
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


def _together(a: SourceSnapshot, b: SourceSnapshot) -> SourceSnapshot:
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


def _told_to_end(snapshot: SourceSnapshot, told: set[str]) -> bool:
    """Whether a table's reads began and ended; `told`: what all tables' reads of the snapshot say.

    Of a table of one row that is called the last, or, if the table is the first, the first of all. Debezium 1.9 marks only
    the last row of all tables.
    """
    markers, by_all_only = set(snapshot.markers), not told & _TOLD_BY_TABLE
    if markers & _END:
        return bool(markers & _BEGIN) or markers <= _END or by_all_only
    # Tables may be read at the same time: of others the last row of all is not the end.
    return _LAST in told and (markers == {"first"} or by_all_only)


def _gone_on(
    snapshots: list[SourceSnapshot], window: Sequence[Group], damaged: Callable[[SourceSnapshot], bool]
) -> list[SourceSnapshot]:
    """The snapshots; those have ended, too, of whose table a change came after the reads: before the end none is sent.

    Nothing else tells where the last read of all tables (Debezium 1.9 marks no other) is in no topic of the feed.
    """
    changed: dict[Name, int] = {}
    for g in window:
        if g.read is None:
            changed[g.database, g.table] = max(g.last_ms, changed.get((g.database, g.table), 0))
    newest: dict[Name, SourceSnapshot] = {}
    for s in sorted(snapshots, key=lambda s: s.at):
        newest[s.database, s.table] = s  # one that was broken off comes before it

    def ends(s: SourceSnapshot) -> bool:
        name = s.database, s.table
        return newest[name] is s and not s.ended and changed.get(name, 0) > s.last and not damaged(s)

    return [replace(s, ended=True) if ends(s) else s for s in snapshots]


def _worth_keeping(snapshots: list[SourceSnapshot]) -> list[SourceSnapshot]:
    """Without those that were broken off, and of whose table there is a whole one since."""
    whole: dict[Name, int] = {}
    for s in snapshots:
        if s.release:
            whole[s.database, s.table] = max(s.at, whole.get((s.database, s.table), s.at))
    return [s for s in snapshots if s.release or s.at > whole.get((s.database, s.table), -1)]


def damaged(lake: Lakehouse, snapshot: SourceSnapshot) -> bool:
    """Whether records that nobody could decode came among a snapshot's reads: rows of it may be in quarantine."""
    begin = min(snapshot.first, snapshot.at >> TSO_LOGICAL_BITS) - _SECOND
    return undecodable_between(lake, snapshot.topics, begin, snapshot.last)


def undecodable_between(lake: Lakehouse, topics: Collection[str], first_ms: int, last_ms: int) -> bool:
    """Whether records of topics, with Kafka times in between, could not be decoded."""
    low, high = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (first_ms, last_ms))
    files = [f for f in lake.change_events.files(kind=str(Kind.UNDECODABLE)) if f.high["record_timestamp"] >= low]
    bad = lake.change_events.fetch(files, "topic", "record_timestamp").to_pylist()
    return any(r["topic"] in topics and low <= r["record_timestamp"] <= high for r in bad)
