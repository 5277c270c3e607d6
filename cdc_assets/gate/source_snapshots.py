"""Snapshots of a source's connector (Debezium) at the gate: which are whole, so that what they lack is gone.

A snapshot's reads all tell the place in the binlog where it was taken, and which of the snapshot they are: the first, the
last, the first or the last of their table, or another. A connector that dies in the middle begins again, at the same place
or at another. Of a table without rows nothing comes, so nothing is known. Incremental snapshots are not among these: their
chunks have places of their own, and nothing in their reads tells that there are no more.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.gate.base import Group, Name
from cdc_assets.tables.change_events import Kind, Op
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.released_changes import SourceSnapshot
from cdc_assets.tso import TSO_LOGICAL_BITS

_LAST = "last"  # of the whole snapshot; else, where there is one, of the table
_BEGIN, _END = {"first", "first_in_data_collection"}, {_LAST, "last_in_data_collection"}
_MARKERS = {*_BEGIN, *_END, "true"}
_TOLD_BY_TABLE = {*_BEGIN, "last_in_data_collection"}
_SECOND = 1000  # milliseconds: what the clocks of a source may leave out

_Place = tuple[str, int]  # file and position in the binlog


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
    window: Iterable[Group],
    release: int,
    damaged: Callable[[SourceSnapshot], bool],
) -> list[SourceSnapshot]:
    """The snapshots after a release.

    Args:
        known: those before it.
        window: what it releases.
        release: its number.
        damaged: whether reads of a snapshot that has come to its end may be missing.
    """
    groups = list(window)
    found = {(s.database, s.table, s.file, s.position): s for s in known}
    brought: set[_Place] = set()
    of_tables: dict[Name, int] = {}
    for g in groups:
        of_tables[g.database, g.table] = min(g.first, of_tables.get((g.database, g.table), g.first))
        if g.read is None:
            continue
        topic, file, position = g.read["topic"], g.read["file"], g.read["position"]
        key = (g.database, g.table, file, position)
        read = SourceSnapshot(*key, g.first, g.first, [topic], sorted(g.markers), g.first_ms, g.last_ms)
        found[key] = _together(found[key], read) if key in found else read
        brought.add((file, position))
    for key, s in found.items():
        low = of_tables.get((s.database, s.table))
        if low is not None and (not s.release or (s.file, s.position) in brought):
            found[key] = replace(s, since=min(s.since, low))
    for place in brought:
        at_place = {key: s for key, s in found.items() if (s.file, s.position) == place}
        told = {m for s in at_place.values() for m in s.markers}
        for key, s in at_place.items():
            has_reads = any(
                g.read is not None and (g.database, g.table, g.read["file"], g.read["position"]) == key for g in groups
            )
            if (has_reads or not s.release) and _ended(s, told) and not damaged(s):
                found[key] = replace(s, release=release)
    return _worth_keeping(list(found.values()))


def _together(a: SourceSnapshot, b: SourceSnapshot) -> SourceSnapshot:
    return replace(
        a,
        at=min(a.at, b.at),
        since=min(a.since, b.since),
        topics=sorted({*a.topics, *b.topics}),
        markers=sorted({*a.markers, *b.markers}),
        first=min(a.first, b.first),
        last=max(a.last, b.last),
    )


def _ended(snapshot: SourceSnapshot, told: set[str]) -> bool:
    """Whether a table's reads began and ended; `told`: what all tables' reads of the snapshot say.

    A table of one row has no read but its last, or the first of all. Debezium 1.9 marks only the last row of all tables.
    """
    markers = set(snapshot.markers)
    began = bool(markers & _BEGIN) or markers <= _END or not told & _TOLD_BY_TABLE
    return began and (bool(markers & _END) or _LAST in told)


def _worth_keeping(snapshots: list[SourceSnapshot]) -> list[SourceSnapshot]:
    """Without those that were broken off, and of whose table there is a whole one since."""
    whole: dict[Name, int] = {}
    for s in snapshots:
        if s.release:
            whole[s.database, s.table] = max(s.at, whole.get((s.database, s.table), s.at))
    return [s for s in snapshots if s.release or s.at > whole.get((s.database, s.table), -1)]


def undecodable_between(lake: Lakehouse, snapshot: SourceSnapshot) -> bool:
    """Whether records that nobody could decode came among a snapshot's reads: rows of it may be in quarantine."""
    begin = min(snapshot.first, snapshot.at >> TSO_LOGICAL_BITS) - _SECOND
    low, high = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (begin, snapshot.last))
    files = [f for f in lake.change_events.files(kind=str(Kind.UNDECODABLE)) if f.high["record_timestamp"] >= low]
    bad = lake.change_events.fetch(files, "topic", "record_timestamp").to_pylist()
    return any(r["topic"] in snapshot.topics and low <= r["record_timestamp"] <= high for r in bad)
