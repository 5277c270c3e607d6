"""Incremental snapshots of a source's connector (Debezium) at the gate: which tables were read whole; other rows are gone.

The connector reads a table in chunks, while it goes on with the binlog; of a row that the binlog changes meanwhile, its
change counts, and no read of it comes. Its notifications tell when the snapshot began, and when each table was done. All
that it sends in between has Kafka times in between, whatever the topics and partitions, and whenever it is taken in: a row
that was there then has a read or a change among it. What a row was before is of before, and no news of it means that it is
gone; or that it came back, if the first news is its INSERT.

Notifications are few, and are all looked at whenever there are new ones. A connector that stops amid a snapshot goes on
with it, and repeats some of what it has sent, notifications among it: the earliest beginning counts, and the latest end.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets import binlog
from cdc_assets.lakehouse.change_events import PARTIAL_SNAPSHOT, Kind, Op
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import LogPlace, TableScan
from cdc_assets.release.base import Group, Part
from cdc_assets.release.news import kafka_time
from cdc_assets.release.source_snapshots import undecodable_between
from cdc_assets.spark.session import session_for
from cdc_assets.tso import TSO_LOGICAL_BITS

# Milliseconds, by which the clocks of two brokers may differ: what came so long before or after counts as of the time.
SLACK = 1000
_INCREMENTAL = "Incremental Snapshot"
_DONE = {"SUCCEEDED", "EMPTY"}

_Key = tuple[str, str, int]  # database, table, commit_ts of the beginning


@dataclass
class _Running:
    """A snapshot that a connector has begun."""

    id: str
    at: int
    first: int
    ended: bool = False


def scans_told(notifications: Iterable[Mapping[str, Any]]) -> list[TableScan]:
    """The tables' parts that have come to a good end, as a connector's notifications tell.

    In: topic, partition, offset, record_timestamp, commit_ts and detail of change events.
    """
    running: dict[str, _Running] = {}
    found: dict[_Key, TableScan] = {}
    for n in sorted(_read(notifications)):
        connector = str(n.data.get("connector_name"))
        known = running.get(connector)
        if n.kind == "STARTED" and (known is None or known.ended or known.id != n.id):
            running[connector] = _Running(n.id, n.at, n.kafka_ms)
        elif n.kind == "COMPLETED" and known:
            known.ended = True
        elif n.kind == "TABLE_SCAN_COMPLETED" and known and n.data.get("status") in _DONE:
            database, _, table = str(n.data.get("scanned_collection", "")).partition(".")
            scan = TableScan(database, table, known.at, n.at, known.first, n.kafka_ms, _rows(n.data))
            if table:  # Debezium 2.3.0 does not say which
                found[_key(scan)] = _later(found.get(_key(scan)), scan)
    return list(found.values())


class _Notification(NamedTuple):
    """One of an incremental snapshot, in the order in which they were made."""

    at: int
    topic: str
    partition: int
    offset: int
    kafka_ms: int
    kind: str
    id: str
    data: dict[str, Any]


def _read(notifications: Iterable[Mapping[str, Any]]) -> Iterable[_Notification]:
    for n in notifications:
        said = json.loads(n["detail"] or "{}")
        if said.get("aggregate_type") == _INCREMENTAL:
            kafka_ms = round(n["record_timestamp"].timestamp() * 1000)
            # Debezium 2.3 does not say when.
            at = (kafka_ms << TSO_LOGICAL_BITS) if n["commit_ts"] is None else n["commit_ts"]
            place = n["topic"], n["partition"], n["offset"]
            data = _parsed(said.get("additional_data"))
            yield _Notification(at, *place, kafka_ms, said["type"], str(said.get("id")), data)


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _rows(data: Mapping[str, Any]) -> int:
    """How many rows were read. A connector that has started again counts from 0."""
    text = str(data.get("total_rows_scanned"))
    return int(text) if text.isdecimal() else 0


def _key(scan: TableScan) -> _Key:
    return scan.database, scan.table, scan.at


def _later(a: TableScan | None, b: TableScan) -> TableScan:
    """A part that is told of twice."""
    if a is None:
        return b
    return replace(a, until=max(a.until, b.until), last=max(a.last, b.last), rows=max(a.rows, b.rows))


class Seen(NamedTuple):
    """What has come of a table since a snapshot began, and until its part ended.

    Attributes:
        since: the lowest commit_ts since the beginning.
        begun: as `TableScan.begun`.
        places: as `TableScan.places`.
        rows: how many rows have a read or a change until the end.
        lacks: whether changes until the end are not released, or may be in quarantine.
        partial: whether a signal of this time leaves rows out.
    """

    since: int
    begun: dict[str, dict[str, int]]
    places: list[LogPlace]
    rows: int
    lacks: bool
    partial: bool


def advanced_scans(
    known: Sequence[TableScan],
    told: Sequence[TableScan],
    window: Collection[Group],
    release: int,
    look: Callable[[list[TableScan]], list[Seen | None]],
) -> list[TableScan]:
    """The tables' parts after a release.

    Args:
        known: those before it.
        told: those that notifications tell of, if there are new ones.
        window: what it releases.
        release: its number.
        look: what has come of each; None: that can no longer be told, or has no use.
    """
    found = {_key(s): s for s in known}
    due = []
    for scan in told:
        before = found.get(_key(scan))
        found[_key(scan)] = _later(before, scan)
        if found[_key(scan)] != before:
            due.append(_key(scan))
    due += [key for key, scan in found.items() if key not in due and any(_concerns(g, scan) for g in window)]
    for key, seen in zip(due, look([found[key] for key in due]) if due else [], strict=True):
        found[key] = _judged(found[key], seen, release)
    return list(found.values())


def _concerns(group: Group, scan: TableScan) -> bool:
    """Whether a group has changes of the table of before the end, or a signal of the time in between."""
    if group.first_ms > scan.last + SLACK:
        return False
    mine = (group.database, group.table) == (scan.database, scan.table)
    return mine or (PARTIAL_SNAPSHOT in group.markers and group.last_ms >= scan.first - SLACK)


def _judged(scan: TableScan, seen: Seen | None, release: int) -> TableScan:
    """What is known of a part now. Each row that was read has a read, or a change that came before it was sent."""
    if seen is None:
        return scan if scan.is_complete else replace(scan, why_not="maintenance has deleted what came of its time")
    why_not = ""
    if seen.partial:
        why_not = "a signal of its time has additional-conditions, or a surrogate-key: rows may have been left out"
    elif seen.lacks:
        why_not = "changes of its time are held, pending, or in quarantine as undecodable"
    elif seen.rows < scan.rows:
        why_not = f"of its rows {seen.rows} have come so far"
    whole = not why_not
    return replace(
        scan,
        since=seen.since,
        begun=seen.begun,
        places=seen.places,
        is_complete=whole,
        why_not=why_not,
        release=release if whole or scan.is_complete else scan.release,
    )


def looked(
    lake: Lakehouse, scans: Sequence[TableScan], row_files: Iterable[DataFile], part: Column, deleted: int
) -> list[Seen | None]:
    """What has come of each part's table; None where events or changes of its time may be deleted.

    Args:
        lake: the feed's tables.
        scans: the parts.
        row_files: all files of row events.
        part: the `Part` of one, as it is after the release.
        deleted: the commit_ts up to which maintenance has deleted changes.
    """
    first = min(s.first for s in scans) - SLACK
    files = [f for f in row_files if kafka_time(f) >= first]
    spark = session_for(lake.spark, sum(f.rows for f in files))
    through = max((f.high["batch"] for f in files), default=0)
    since = (F.col("batch") <= through) & (F.col("record_timestamp") >= F.timestamp_millis(F.lit(first)))
    events = lake.change_events.read(spark).where((F.col("kind") == str(Kind.ROW)) & since)
    decoded = lake.change_events.cursor()
    gone = decoded.trimmed_newest if decoded else 0
    found: list[Seen | None] = []
    for scan, seen in zip(scans, seen_since(events, scans, part), strict=True):
        low, high = scan.first - SLACK, scan.last + SLACK
        damaged = undecodable_between(lake, seen.begun, low, high)
        told = low > gone and seen.since > deleted
        found.append(seen._replace(lacks=seen.lacks or damaged) if told else None)
    return found


def seen_since(events: DataFrame, scans: Sequence[TableScan], part: Column) -> list[Seen]:
    """What has come of each part's table, in its order.

    In: row events, all those since the earliest beginning; the `Part` of one, as it is after the release.
    """
    kafka_ms = F.unix_millis("record_timestamp")
    bounds = [
        F.struct(
            F.lit(n).alias("n"),
            F.lit(s.database).alias("database"),
            F.lit(s.table).alias("table"),
            F.lit(s.first - SLACK).alias("low"),
            F.lit(s.last + SLACK).alias("high"),
        )
        for n, s in enumerate(scans)
    ]
    of_scans = F.broadcast(events.sparkSession.range(1).select(F.inline(F.array(*bounds))))
    mine = events.withColumns({"ms": kafka_ms, "part": part}).join(of_scans, on=["database", "table"])
    mine = mine.where("ms >= low").withColumn("within", F.col("ms") <= F.col("high"))
    in_log = F.col("within") & (F.col("op") != str(Op.SNAPSHOT)) & F.col("source.file").isNotNull()
    by_log = mine.groupBy("n", "topic", "partition", F.when(in_log, binlog.log_hash()).alias("log")).agg(
        F.min("offset").alias("offset"),
        F.min("commit_ts").alias("since"),
        F.min(F.struct(binlog.file_number().alias("number"), "source.position")).alias("place"),
        F.count_if(F.col("within") & (F.col("part") == str(Part.PENDING))).alias("pending"),
    )
    rows = mine.groupBy("n").agg(F.count_distinct(F.when(F.col("within"), F.xxhash64("key"))).alias("rows"))
    groups, counts = by_log.collect(), {r["n"]: r["rows"] for r in rows.collect()}
    signals = [r[0] for r in events.where(F.col("detail") == PARTIAL_SNAPSHOT).select(kafka_ms).collect()]
    found = []
    for n, scan in enumerate(scans):
        ours = [g for g in groups if g["n"] == n]
        begun: dict[str, dict[str, int]] = {}
        for g in ours:
            of_topic = begun.setdefault(g["topic"], {})
            of_topic[str(g["partition"])] = min(g["offset"], of_topic.get(str(g["partition"]), g["offset"]))
        logs: dict[int, LogPlace] = {}
        for g in ours:
            if g["log"] is not None and g["place"]["number"] is not None:
                place = LogPlace(g["log"], g["place"]["number"], g["place"]["position"])
                logs[place.log] = min(place, logs.get(place.log, place), key=lambda p: (p.number, p.position))
        found.append(
            Seen(
                since=min([scan.at, *(g["since"] for g in ours)]),
                begun=begun,
                places=sorted(logs.values(), key=lambda p: p.log),
                rows=counts.get(n, 0),
                lacks=any(g["pending"] for g in ours),
                partial=any(scan.first - SLACK <= ms <= scan.last + SLACK for ms in signals),
            )
        )
    return found
