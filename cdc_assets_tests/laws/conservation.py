"""Check the conservation law from the tables alone, without the reports of the stages."""

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.stages.release.report import ReleaseReport
from cdc_assets_tests.support import rows_in


@dataclass(frozen=True)
class Counts:
    """The row events of a feed, each in exactly one class, and the number of its records."""

    records: int
    undecodable: int
    rows: int
    released: int
    duplicate: int
    late: int
    pending: int
    excluded: int


def assert_counts_add_up(lake: Lakehouse) -> None:
    """Assert that the counts of a feed without watermarks add up.

    Only the releases of such a feed know which events are late or pending, so their totals are used.
    """
    rows = [e for e in _decoded(lake) if e["kind"] == "row"]
    last = lake.released_changes.cursor()
    assert last is not None
    totals = last.totals
    late = totals["late_repeated"] + totals["late_unseen"]
    assert len(rows) == totals["rows"], "row events that the gate has not looked at, or more than once"
    assert len(rows) == sum(_released(lake)) + late + totals["excluded"] + last.pending


def balanced(report: ReleaseReport) -> None:
    """Assert that the counts of one release add up."""
    late = report.late_repeated + report.late_unseen
    assert report.rows + report.pending_before == report.window + report.excluded + late + report.pending
    assert report.window == report.released + report.duplicate


def _decoded(lake: Lakehouse) -> list[dict[str, Any]]:
    """Return all change events, after asserting that every record has an event or is in quarantine."""
    raw = Counter(_record(r) for r in rows_in(lake.raw_records, lake.spark))
    events = rows_in(lake.change_events, lake.spark)
    assert set(raw.values()) <= {1}, "a record was taken in twice"
    assert {_record(e) for e in events} == raw.keys(), "records without an event, or events without a record"
    assert max(Counter(_place(e) for e in events).values(), default=1) == 1
    undecodable = Counter(_place(e) for e in events if e["kind"] == "undecodable")
    quarantined = Counter(_place(q) for q in rows_in(lake.quarantine, lake.spark) if q["stage"] == "decode")
    assert quarantined == undecodable, "what could not be decoded is in quarantine, each once"
    return events


def _released(lake: Lakehouse) -> tuple[int, int]:
    """Return the number of row events that are released, and the number of dropped duplicates of them."""
    own = [c for c in rows_in(lake.released_changes, lake.spark) if c["kind"] == "row"]
    return sum(c["events"] for c in own), sum(c["repeats"] for c in own)


def _record(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["topic"], row["partition"], row["offset"]


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the place of an event.

    A record of Open Protocol may hold events that can be decoded and one that cannot.
    """
    return row["topic"], row["partition"], row["offset"], row["index"]


def conserved(lake: Lakehouse, feed: Feed) -> Counts:
    """Assert that every record and every row event is accounted for, and return the counts."""
    events = _decoded(lake)
    undecodable = [e for e in events if e["kind"] == "undecodable"]
    rows = [e for e in events if e["kind"] == "row"]
    classes = Counter(_classes(lake, feed, events, rows))
    released, duplicate = _released(lake)
    assert released + duplicate == classes["window"], (
        "row events below the watermark that are not released, or too many"
    )
    return Counts(
        len({_record(e) for e in events}),
        len(undecodable),
        len(rows),
        released,
        duplicate,
        classes["late"],
        classes["pending"],
        classes["excluded"],
    )


def _classes(lake: Lakehouse, feed: Feed, events: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[str]:
    """Return the class of each row event, from the watermarks that each release used.

    The first release whose cursor has passed a batch classifies its events: an event is late if it is below the
    watermark that was released before. A blocked table is released only up to the position of its hold.
    """
    cursors = list(lake.released_changes.cursors())[::-1]
    assert [c.sequence for c in cursors] == list(range(1, len(cursors) + 1))
    before: list[dict[str, int]] = [{}, *[c.watermarks for c in cursors]]
    held = [{}, *[{(h.database, h.table): h.since for h in c.holds} for c in cursors]]
    _watermarks_are_right(feed, cursors, events)

    def gate(release: int, event: dict[str, Any]) -> int:
        mark = before[release].get(event["topic"], 0)
        return min(mark, held[release].get((event["database"], event["table"]), mark))

    def classify(event: dict[str, Any]) -> str:
        looked_at = next((n for n, c in enumerate(cursors) if c.batch >= event["batch"]), None)
        assert looked_at is not None, "an event that the gate has not looked at"
        if event["commit_ts"] < gate(looked_at, event):
            return "late"
        if event["commit_ts"] >= gate(-1, event):
            return "pending"
        return "window" if _takes(feed, f"{event['database']}.{event['table']}") else "excluded"

    return [classify(event) for event in rows]


def _watermarks_are_right(feed: Feed, cursors: list[ReleaseCursor], events: list[dict[str, Any]]) -> None:
    """Assert each topic's watermark in the last release.

    It is the smallest, over the topic's partitions, of the largest watermark of each.
    """
    if not cursors or feed.gate_scope != "topic":
        return
    shown: dict[str, dict[int, int]] = {}
    for e in events:
        if e["batch"] <= cursors[-1].batch:
            shown.setdefault(e["topic"], {}).setdefault(e["partition"], 0)
            if e["kind"] == "watermark":
                shown[e["topic"]][e["partition"]] = max(shown[e["topic"]][e["partition"]], e["commit_ts"])
    for topic, by_partition in shown.items():
        for partition in range(feed.source.partitions or 0):
            by_partition.setdefault(partition, 0)
        assert cursors[-1].watermarks.get(topic, 0) == min(by_partition.values())


def _takes(feed: Feed, name: str) -> bool:
    def any_of(patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    return any_of(feed.tables.include) and not any_of(feed.tables.exclude)
