"""Run the gate of feeds with watermarks on change events that the tests write into the table, without decoding."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lakehouse.change_events import CHANGE_EVENTS, EventsCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import Offsets, RawCursor
from cdc_assets.stages import RELEASE, SCHEMAS
from cdc_assets.stages.release.report import ReleaseReport
from cdc_assets_tests.support import delta_versions, frame_of_rows, make_feed, rows_in

Event = dict[str, Any]
SCHEMA = CHANGE_EVENTS.columns


class Gate:
    """A feed whose change events the test writes."""

    def __init__(self, spark: SparkSession, folder: Path, **settings: Any) -> None:
        self.feed = make_feed(folder, **settings)
        self.lake = Lakehouse(lambda: spark, str(folder / "lake"), "f")
        self.batch = 0
        self.offset = 0
        self.offsets: Offsets = {}

    def event(self, commit_ts: int, **more: Any) -> Event:
        self.offset += 1
        return (
            dict.fromkeys(SCHEMA.names)
            | {
                "topic": "t",
                "partition": 0,
                "offset": self.offset,
                "index": 0,
                "record_timestamp": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
                "commit_ts": commit_ts,
            }
            | more
        )

    def row(self, commit_ts: int, key: int, v: str = "", **more: Any) -> Event:
        image = json.dumps({"id": str(key), "v": v})
        row = {
            "kind": "row",
            "op": "insert",
            "database": "shop",
            "table": "orders",
            "key_columns": ["id"],
            "key": json.dumps([str(key)]),
            "after": image,
        }
        return self.event(commit_ts, **(row | more))

    def mark(self, commit_ts: int, **more: Any) -> Event:
        return self.event(commit_ts, kind="watermark", **more)

    def ddl(self, commit_ts: int, sql: str, **more: Any) -> Event:
        of_table = {"database": "shop", "table": "orders"}
        return self.event(commit_ts, kind="ddl", ddl_type="ALTER", ddl_statement=sql, **(of_table | more))

    def run(self, *events: Event) -> ReleaseReport:
        """Write one batch, run the stage `table_schemas` and the gate, and return the gate's report."""
        if events:
            self.batch += 1
            rows = [tuple((e | {"batch": self.batch})[c] for c in SCHEMA.names) for e in events]
            frame = frame_of_rows(self.lake.spark, rows, SCHEMA)
            for e in events:
                self.offsets.setdefault(e["topic"], {})[str(e["partition"])] = [0, e["offset"]]
            raw = self.lake.raw_records
            raw.commit(raw.stage_rows([]), RawCursor(sequence=self.batch, offsets=self.offsets))
            self.lake.change_events.commit(
                self.lake.change_events.stage(frame), EventsCursor(sequence=self.batch, batch=self.batch)
            )
        if SCHEMAS.due(self.lake, self.feed):
            SCHEMAS.run(self.lake, self.feed)
        return RELEASE.run(self.lake, self.feed)

    def released(self) -> list[tuple[int, str | None]]:
        """Return (commit_ts, key) of the released changes, in order."""
        changes = [(r["commit_ts"], r["key"] and json.loads(r["key"])[0]) for r in self.changes()]
        return sorted(changes, key=str)

    def changes(self) -> list[Event]:
        return rows_in(self.lake.released_changes, self.lake.spark)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_a_partition_without_a_watermark_holds_everything(spark: SparkSession, folder: Path) -> None:
    gate = Gate(spark, folder)
    report = gate.run(gate.row(10, 1), gate.row(11, 2, partition=1), gate.mark(20))
    assert (report.released, report.pending, report.watermarks) == (0, 2, {})
    assert gate.released() == []
    report = gate.run(gate.mark(15, partition=1))
    assert (report.released, report.pending, report.pending_before, report.watermarks) == (2, 0, 2, {"t": 15})
    assert gate.released() == [(10, "1"), (11, "2")]


def test_a_partition_without_records_holds_everything(spark: SparkSession, folder: Path) -> None:
    gate = Gate(spark, folder, partitions=2)
    assert gate.run(gate.row(10, 1), gate.mark(20)).released == 0
    assert gate.run(gate.mark(20, partition=1)).released == 1


def test_events_strictly_below_the_watermark_are_released(spark: SparkSession, folder: Path) -> None:
    gate = Gate(spark, folder)
    report = gate.run(gate.row(19, 1), gate.row(20, 2), gate.row(21, 3), gate.mark(20))
    assert (report.released, report.pending) == (1, 2)
    assert gate.released() == [(19, "1")]
    report = gate.run(gate.mark(21))
    assert (report.released, report.pending) == (1, 1)
    assert gate.released() == [(19, "1"), (20, "2")], "an event at the watermark is not late when the watermark rises"
    assert report.late_unseen == report.late_repeated == 0


def test_late_events_are_duplicates_or_unseen(spark: SparkSession, folder: Path) -> None:
    """Below the released watermark a duplicate is harmless, and an unseen event breaks the source's promise."""
    gate = Gate(spark, folder)
    gate.run(gate.row(10, 1), gate.row(11, 2), gate.mark(20))
    report = gate.run(
        gate.row(10, 1),  # a duplicate
        gate.row(10, 1),
        gate.row(12, 2),  # never seen: that key, at another commit_ts
        gate.row(11, 3),  # never seen: another key
        gate.row(11, 3),  # a copy of it
        gate.row(10, 1, table="customers"),  # never seen: another table
        gate.row(20, 4),  # not late
        gate.mark(30),
    )
    assert report.rows == 7
    assert report.released == 1
    assert (report.late_repeated, report.late_unseen) == (3, 3)
    assert gate.released() == [(10, "1"), (11, "2"), (20, "4")], "late events are ignored"
    sample = [
        (s["topic"], s["partition"], s["offset"], s["table"], s["commit_ts"], s["key"]) for s in report.late_sample
    ]
    assert sample == [
        ("t", 0, 6, "orders", 12, '["2"]'),
        ("t", 0, 7, "orders", 11, '["3"]'),
        ("t", 0, 9, "customers", 10, '["1"]'),
    ]


def test_a_restarted_changefeed_goes_back_and_nothing_is_lost_or_doubled(spark: SparkSession, folder: Path) -> None:
    gate = Gate(spark, folder)
    gate.run(gate.row(10, 1), gate.row(12, 2), gate.mark(11))
    report = gate.run(gate.row(10, 1), gate.row(12, 2), gate.mark(5), gate.mark(9))
    assert report.watermarks == {"t": 11}, "a lower watermark is ignored"
    assert (report.released, report.late_repeated, report.late_unseen, report.pending) == (0, 1, 0, 2)
    report = gate.run(gate.row(12, 2), gate.row(13, 3), gate.mark(14))
    assert (report.released, report.duplicate) == (2, 2), "three copies of one pending event, and another"
    assert gate.released() == [(10, "1"), (12, "2"), (13, "3")]


@pytest.mark.parametrize(
    ("scope", "released", "watermarks"),
    [("topic", [(10, "1"), (10, "2")], {"t": 20, "u": 11}), ("feed", [(10, "1"), (10, "2")], {"t": 11, "u": 11})],
)
def test_two_topics(
    scope: str, released: list[tuple[int, str]], watermarks: dict[str, int], spark: SparkSession, folder: Path
) -> None:
    gate = Gate(spark, folder, gate_scope=scope)
    first = gate.run(gate.row(10, 1), gate.row(15, 5), gate.mark(20), gate.row(10, 2, topic="u"))
    assert gate.released() == ([(10, "1"), (15, "5")] if scope == "topic" else [])
    assert first.pending == (1 if scope == "topic" else 3)
    report = gate.run(gate.row(12, 6, topic="u"), gate.mark(11, topic="u"))
    assert report.watermarks == watermarks
    assert report.pending == (1 if scope == "topic" else 2)
    assert set(gate.released()) >= set(released)
    assert report.late_unseen == report.late_repeated == 0
    late = gate.run(gate.row(13, 7), gate.row(13, 8, topic="u"))
    assert (late.late_unseen, late.pending) == ((1, 2) if scope == "topic" else (0, 4))


def test_tables_that_the_feed_leaves_out(spark: SparkSession, folder: Path) -> None:
    gate = Gate(spark, folder, tables={"include": ["shop.*", "crm.pe?ple"], "exclude": ["*.tmp_*", "shop.a.b"]})
    names = {
        ("shop", "orders"): True,
        ("crm", "people"): True,
        ("crm", "peeople"): False,
        ("shop", "tmp_1"): False,
        ("shop", "a.b"): False,
        ("shop", "axb"): True,
        ("SHOP", "orders"): False,
        ("workshop", "orders"): False,
        ("shop", "line\nbreak"): True,
    }
    rows = [gate.row(10, n, database=d, table=t) for n, (d, t) in enumerate(names)]
    report = gate.run(*rows, gate.ddl(9, "ALTER TABLE `tmp_1` ADD `x` INT", table="tmp_1"), gate.mark(20))
    kept = {name for name, takes in names.items() if takes}
    assert (report.rows, report.released, report.excluded) == (len(names), len(kept), len(names) - len(kept))
    assert {(r["database"], r["table"]) for r in gate.changes()} == kept
    assert report.rows == report.released + report.duplicate + report.excluded + report.pending
    assert report.ddl == 0
    assert all(gate.feed.takes(*name) == takes for name, takes in names.items())


def test_a_ddl_is_released_once(spark: SparkSession, folder: Path) -> None:
    """A statement that comes several times is released once, with its first record, below the watermark."""
    gate = Gate(spark, folder)
    one, other = "ALTER TABLE `orders` ADD `a` INT", "ALTER TABLE `orders` ADD `b` INT"
    report = gate.run(
        gate.ddl(10, one),
        gate.ddl(10, one, partition=1),
        gate.ddl(10, one),
        gate.ddl(10, other),
        gate.ddl(20, one),
        gate.mark(15),
        gate.mark(15, partition=1),
    )
    assert (report.ddl, report.rows, report.released, report.pending) == (2, 0, 0, 0)
    changes = gate.changes()
    shown = {(r["commit_ts"], r["ddl_statement"], r["partition"], r["offset"], r["kind"]) for r in changes}
    assert shown == {(10, one, 0, 1, "ddl"), (10, other, 0, 4, "ddl")}
    report = gate.run(gate.ddl(10, one), gate.mark(30), gate.mark(30, partition=1))
    assert report.ddl == 1
    assert len(gate.changes()) == 3


def test_a_run_without_new_events_commits_nothing(spark: SparkSession, folder: Path) -> None:
    gate = Gate(spark, folder)
    first = gate.run(gate.row(10, 1), gate.row(30, 2), gate.mark(20))
    version = delta_versions(gate.lake)["released_changes/f"]
    again = gate.run()
    assert (first.release, again.release) == (1, None)
    assert (again.pending, again.watermarks, again.rows) == (1, {"t": 20}, 0)
    assert delta_versions(gate.lake)["released_changes/f"] == version
