"""Follow table scans in incremental snapshots of a source's connector (Debezium).

Rows that a complete scan lacks were deleted.

The connector reads a table in chunks while it reads the binlog. If the binlog changes a row meanwhile, the
connector sends the change and no read of the row. Its notifications state when the snapshot began and when the scan
of each table ended. All events that it sends in between have Kafka times in between, in whatever topics and
partitions, and whichever run ingests them. So a row that existed at that time has a read or a change among these
events. An earlier row without such an event was deleted. A row whose first event is an INSERT was deleted and
inserted again.

Notifications are rare, and all of them are read whenever new ones come. A connector that stops within a snapshot
continues it and sends some events again, notifications included. So the earliest beginning counts, and the latest
end.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets import binlog
from cdc_assets.lakehouse.change_events import PARTIAL_SNAPSHOT, Op
from cdc_assets.lakehouse.released_changes import LogPlace, TableScan
from cdc_assets.lakehouse.schema import BIGINT, INT, STRING, frame_of, struct
from cdc_assets.release.base import EventGroup, Part
from cdc_assets.tso import TSO_LOGICAL_BITS

# By how many milliseconds the clocks of two brokers may differ: events within this time around a scan count as its events.
SLACK = 1000
_INCREMENTAL = "Incremental Snapshot"
_DONE = {"SUCCEEDED", "EMPTY"}

_Key = tuple[str, str, int]  # database, table, commit_ts at which the snapshot began


def parse_scans(notifications: Iterable[Mapping[str, Any]]) -> list[TableScan]:
    """Return the scans that succeeded, by a connector's notifications.

    In: topic, partition, offset, record_timestamp, commit_ts and detail of change events.
    """
    beginnings: dict[str, _Notification] = {}  # connector -> the beginning of its newest snapshot
    ended: set[str] = set()  # the connectors whose newest snapshot has ended
    scans: dict[_Key, TableScan] = {}
    for n in sorted(_parse_notifications(notifications)):
        connector = str(n.data.get("connector_name"))
        begun = beginnings.get(connector)
        if n.kind == "STARTED" and (begun is None or connector in ended or begun.id != n.id):
            beginnings[connector] = n
            ended.discard(connector)
        elif n.kind == "COMPLETED":
            ended.add(connector)
        elif n.kind == "TABLE_SCAN_COMPLETED" and begun and n.data.get("status") in _DONE:
            database, _, table = str(n.data.get("scanned_collection", "")).partition(".")
            scan = TableScan(database, table, begun.at, n.at, begun.kafka_ms, n.kafka_ms, _count_rows(n.data))
            if table:  # Debezium 2.3.0 does not state the table
                scans[_key(scan)] = _merge_scans(scans.get(_key(scan)), scan)
    return list(scans.values())


class _Notification(NamedTuple):
    """A notification about an incremental snapshot; its first fields order notifications as the connector made them."""

    at: int
    topic: str
    partition: int
    offset: int
    kafka_ms: int
    kind: str
    id: str
    data: dict[str, Any]


def _parse_notifications(notifications: Iterable[Mapping[str, Any]]) -> Iterable[_Notification]:
    """Yield the notifications that are about incremental snapshots."""
    for n in notifications:
        message = json.loads(n["detail"] or "{}")
        if message.get("aggregate_type") == _INCREMENTAL:
            kafka_ms = round(n["record_timestamp"].timestamp() * 1000)
            # Debezium 2.3 does not state the time.
            at = (kafka_ms << TSO_LOGICAL_BITS) if n["commit_ts"] is None else n["commit_ts"]
            place = n["topic"], n["partition"], n["offset"]
            data = _parse_object(message.get("additional_data"))
            yield _Notification(at, *place, kafka_ms, message["type"], str(message.get("id")), data)


def _parse_object(text: str | None) -> dict[str, Any]:
    """Return a JSON object; {} for any other text."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _count_rows(data: Mapping[str, Any]) -> int:
    """Return how many rows were read, by a notification. A restarted connector counts from 0."""
    text = str(data.get("total_rows_scanned"))
    return int(text) if text.isdecimal() else 0


def _key(scan: TableScan) -> _Key:
    return scan.database, scan.table, scan.at


def _merge_scans(a: TableScan | None, b: TableScan) -> TableScan:
    """Merge two notifications of the end of one scan."""
    if a is None:
        return b
    return replace(a, until=max(a.until, b.until), last=max(a.last, b.last), rows=max(a.rows, b.rows))


class ScanEvents(NamedTuple):
    """The row events of a table from the beginning of a snapshot on.

    Attributes:
        since: the lowest commit_ts of the beginning and the events.
        begun: as `TableScan.begun`.
        places: as `TableScan.places`.
        rows: how many keys have an event before the end of the scan.
        has_unreleased: whether events before the end are not released, or may be in quarantine.
        has_partial_signal: whether a signal between beginning and end asks for some rows only.
    """

    since: int
    begun: dict[str, dict[str, int]]
    places: list[LogPlace]
    rows: int
    has_unreleased: bool
    has_partial_signal: bool


def advance_scans(
    before: Sequence[TableScan],
    notified: Sequence[TableScan],
    window: Collection[EventGroup],
    release: int,
    find_events: Callable[[list[TableScan]], list[ScanEvents | None]],
) -> list[TableScan]:
    """Return the scans after a release.

    Args:
        before: the scans before the release.
        notified: the scans by the notifications, if some are new.
        window: the row events in the release window.
        release: the number of the release.
        find_events: returns the events of each scan; None if some of them may be deleted.
    """
    scans = {_key(s): s for s in before}
    due = []
    for scan in notified:
        previous = scans.get(_key(scan))
        scans[_key(scan)] = _merge_scans(previous, scan)
        if scans[_key(scan)] != previous:
            due.append(_key(scan))
    due += [key for key, scan in scans.items() if key not in due and any(_concerns(g, scan) for g in window)]
    for key, events in zip(due, find_events([scans[key] for key in due]) if due else [], strict=True):
        scans[key] = _update_scan(scans[key], events, release)
    return list(scans.values())


def _concerns(group: EventGroup, scan: TableScan) -> bool:
    """Return whether a group has events of the table before the end of the scan, or a partial signal during the scan."""
    if group.first_ms > scan.last + SLACK:
        return False
    is_of_table = (group.database, group.table) == (scan.database, scan.table)
    return is_of_table or (PARTIAL_SNAPSHOT in group.markers and group.last_ms >= scan.first - SLACK)


def _update_scan(scan: TableScan, events: ScanEvents | None, release: int) -> TableScan:
    """Return a scan with whether it is complete: each row that was read has a read, or an earlier change."""
    if events is None:
        return scan if scan.is_complete else replace(scan, why_not="maintenance has deleted events of the scan")
    why_not = ""
    if events.has_partial_signal:
        why_not = (
            "a signal during the scan has additional-conditions or a surrogate-key, so rows may have been left out"
        )
    elif events.has_unreleased:
        why_not = "changes during the scan are held, pending, or in quarantine as undecodable"
    elif events.rows < scan.rows:
        why_not = f"{events.rows} of {scan.rows} rows have come so far"
    is_complete = not why_not
    return replace(
        scan,
        since=events.since,
        begun=events.begun,
        places=events.places,
        is_complete=is_complete,
        why_not=why_not,
        release=release if is_complete or scan.is_complete else scan.release,
    )


def summarize_scans(events: DataFrame, scans: Sequence[TableScan], part: Column) -> list[ScanEvents]:
    """Return the events of each scan, in order.

    Args:
        events: all row events since the earliest beginning of the snapshots.
        scans: the scans.
        part: the `Part` of a row event after the release.
    """
    kafka_ms = F.unix_millis("record_timestamp")
    of_scans = _join_scans(events.withColumns({"ms": kafka_ms, "part": part}), scans)
    in_log = F.col("within") & (F.col("op") != str(Op.SNAPSHOT)) & F.col("source.file").isNotNull()
    by_log = of_scans.groupBy("n", "topic", "partition", F.when(in_log, binlog.log_hash()).alias("log")).agg(
        F.min("offset").alias("offset"),
        F.min("commit_ts").alias("since"),
        F.min(F.struct(binlog.file_number().alias("number"), "source.position")).alias("place"),
        F.count_if(F.col("within") & (F.col("part") == str(Part.PENDING))).alias("pending"),
    )
    rows = of_scans.groupBy("n").agg(F.count_distinct(F.when(F.col("within"), F.xxhash64("key"))).alias("rows"))
    groups, counts = by_log.collect(), {r["n"]: r["rows"] for r in rows.collect()}
    signals = [r[0] for r in events.where(F.col("detail") == PARTIAL_SNAPSHOT).select(kafka_ms).collect()]
    return [
        _summarize_scan(scan, [g for g in groups if g["n"] == n], counts.get(n, 0), signals)
        for n, scan in enumerate(scans)
    ]


def _join_scans(events: DataFrame, scans: Sequence[TableScan]) -> DataFrame:
    """Return the events of each scan since the beginning of its snapshot.

    In: row events with `ms`, their Kafka time.
    Out: the same columns, with `n` INT, the index of the scan, and `within` BOOLEAN, whether the scan had not ended.
    """
    rows = [
        {"n": n, "database": s.database, "table": s.table, "low": s.first - SLACK, "high": s.last + SLACK}
        for n, s in enumerate(scans)
    ]
    bounds = frame_of(events.sparkSession, rows, struct(n=INT, database=STRING, table=STRING, low=BIGINT, high=BIGINT))
    joined = events.join(F.broadcast(bounds), on=["database", "table"])
    return joined.where("ms >= low").withColumn("within", F.col("ms") <= F.col("high"))


def _summarize_scan(scan: TableScan, groups: Sequence[Row], rows: int, signals: Sequence[int]) -> ScanEvents:
    """Return the events of one scan.

    Args:
        scan: the scan.
        groups: its events by topic, partition and log: offset, since, log, place, pending.
        rows: how many keys have an event before its end.
        signals: the Kafka times of the signals that ask for some rows only.
    """
    begun: dict[str, dict[str, int]] = {}
    logs: dict[int, LogPlace] = {}
    for g in groups:
        of_topic = begun.setdefault(g["topic"], {})
        of_topic[str(g["partition"])] = min(g["offset"], of_topic.get(str(g["partition"]), g["offset"]))
        if g["log"] is not None and g["place"]["number"] is not None:
            place = LogPlace(g["log"], g["place"]["number"], g["place"]["position"])
            logs[place.log] = min(place, logs.get(place.log, place), key=lambda p: (p.number, p.position))
    return ScanEvents(
        since=min([scan.at, *(g["since"] for g in groups)]),
        begun=begun,
        places=sorted(logs.values(), key=lambda p: p.log),
        rows=rows,
        has_unreleased=any(g["pending"] for g in groups),
        has_partial_signal=any(scan.first - SLACK <= ms <= scan.last + SLACK for ms in signals),
    )
