"""Run maintenance and rebuilds: the tables keep their content, and the next run goes on from there."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import Failure, build_op_context
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.assets.checks.audit import all_events_placed, all_records_decoded, each_record_once
from cdc_assets.assets.operations import _fail_if_changed
from cdc_assets.config import Feed
from cdc_assets.errors import OperationError
from cdc_assets.lakehouse.cursor import read_note
from cdc_assets.lakehouse.raw_records import cursor_to_continue
from cdc_assets.lakehouse.table import ConcurrentRunError
from cdc_assets.operations import rebuild as rebuilding
from cdc_assets.operations.diff import Difference, SampleRow
from cdc_assets.operations.maintenance.files import compact_tables, list_tables, vacuum_tables
from cdc_assets.operations.maintenance.retention import trim_changes, trim_events, trim_records
from cdc_assets.operations.rebuild import compare_with_rebuild, rebuild_feed
from cdc_assets.operations.replay_quarantine import ReplayReport, replay_quarantine
from cdc_assets.protocols.canal_json import CanalJson
from cdc_assets.stages import DECODE, INGEST, RELEASE, SCHEMAS, TYPES
from cdc_assets_tests.broker import Client
from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.laws.streams import PARTITIONS, short_stream
from cdc_assets_tests.protocols.simple_encoder import Table
from cdc_assets_tests.protocols.simple_encoder import watermark as simple_watermark
from cdc_assets_tests.release.test_complete_transactions import stream as transactions
from cdc_assets_tests.support import (
    Chain,
    Reports,
    Rows,
    Stream,
    change,
    contents,
    ddl,
    delta_versions,
    histories,
    record,
    rows_in,
    tso,
)

Feeding = Callable[..., Chain]


def sound(it: Chain) -> None:
    for verdict in (all_records_decoded(it.lake), all_events_placed(it.lake, it.feed), each_record_once(it.lake)):
        assert verdict.passed, verdict.description


def cursors(it: Chain) -> dict[str, Any]:
    """Return the position from which the next run of each stage goes on."""
    table_cursors: dict[str, Any] = {table.name: table.cursor() for table in list_tables(it.lake)}
    return table_cursors | {it.lake.raw_records.name: cursor_to_continue(it.lake.raw_records)}


def numberless(it: Chain) -> dict[str, list[Any]]:
    """Return all rows without the numbers of releases, which a rebuild gives again; repeated layouts count once."""
    rows_by_table: dict[str, list[Any]] = {}
    for name, rows in contents(it.lake).items():
        drop = {"release"} | ({"batch"} if name.startswith("quarantine/") else set())
        kept = [r for r in rows if r.get("kind") != "layout"]
        if name.startswith("type_observations/"):
            kept = observations(rows)
        rows_by_table[name] = sorted(({k: v for k, v in r.items() if k not in drop} for r in kept), key=repr)
        if name.startswith("released_changes/"):
            layout_columns = ("database", "table", "layout_id", "layout", "key_columns")
            rows_by_table["layouts"] = sorted(
                {repr([r[c] for c in layout_columns]) for r in rows if r["kind"] == "layout"}
            )
    return rows_by_table


def observations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each different observation, with all its events."""
    seen = {"events", "batch", "first_batch", "first", "last", "sample_value"}
    counts = Counter[str]()
    for r in rows:
        counts[repr({k: v for k, v in r.items() if k not in seen})] += r["events"]
    return [{"what": what, "events": count} for what, count in counts.items()]


@pytest.fixture(scope="module")
def first_half(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A feed after the first half of the stream, in two runs, with bad records; tests do not change it."""
    first, _ = short_stream()
    it = Chain(spark, tmp_path_factory.mktemp("halves"), partitions=PARTITIONS)
    it.add(first[:7])
    it.run()
    it.add([*first[7:], record(b"{", 0, 1000), record(None, 1, 1000)])
    with (it.snapshots / "0001.jsonl").open("a") as file:
        file.write('{"topic":\n')
    it.run()
    return it


@pytest.fixture
def halves(first_half: Chain, tmp_path: Path) -> tuple[Chain, list[Any]]:
    """A copy of the feed, for a test that changes it, and the second half of the stream."""
    return first_half.copy(tmp_path / "halves"), short_stream()[1]


def test_maintenance_changes_no_row_and_no_cursor(halves: tuple[Chain, list[Any]]) -> None:
    it, second = halves
    before, stood, versions = contents(it.lake), cursors(it), delta_versions(it.lake)
    done = {c.table: c for c in compact_tables(it.lake)}
    assert done.keys() == before.keys()
    # A table of one file is not compacted.
    assert delta_versions(it.lake) == {name: versions[name] + (done[name].removed > 0) for name in versions}
    assert done["raw_records/f"].removed >= 2
    assert done["raw_records/f"].added == 1
    versions = delta_versions(it.lake)
    # Files of a run that died before its commit: one from a week ago, one from now.
    orders = Path(it.lake.history("shop", "orders").path)
    for folder, hours in (("old", 169), ("new", 167)):
        (orders / folder).mkdir()
        (orders / folder / "part-0.parquet").write_bytes(b"")
        os.utime(orders / folder / "part-0.parquet", times=2 * (time.time() - hours * 3600,))
    vacuum_tables(it.lake, 168)
    assert [path.parent.name for path in orders.rglob("part-0.parquet") if not path.stat().st_size] == ["new"]
    assert contents(it.lake) == before
    assert cursors(it) == stood
    # Each commit has the cursor, so older ones may leave the log; the other tables have nothing to delete.
    newest = next(it.lake.history("shop", "orders").log().commits())
    assert newest.operation == "VACUUM END"
    assert read_note(newest.note) is not None
    changed = {name for name, version in delta_versions(it.lake).items() if version != versions[name]}
    assert changed == {"history/f/shop/orders"}
    assert it.run().ingest.batch is None
    it.add(second)
    it.run()
    sound(it)


def test_a_rebuild_gives_the_same_and_the_next_run_goes_on(
    halves: tuple[Chain, list[Any]], chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    it, second = halves
    before, raw = numberless(it), contents(it.lake)["raw_records/f"]
    replace = rebuilding._replace_tables

    # killed half way: some tables are replaced, others are not
    def dies(*args: Any) -> Any:
        for n, done in enumerate(replace(*args)):
            yield done
            if n == 4:
                raise KeyboardInterrupt

    monkeypatch.setattr(rebuilding, "_replace_tables", dies)
    with pytest.raises(KeyboardInterrupt):
        list(rebuild_feed(it.lake, it.feed))
    with pytest.raises(ConcurrentRunError, match="this feed is being rebuilt"):
        it.run()
    monkeypatch.setattr(rebuilding, "_replace_tables", replace)
    done = {r.table: r.rows for r in rebuild_feed(it.lake, it.feed)}
    assert numberless(it) == before
    assert contents(it.lake)["raw_records/f"] == raw
    assert done == {name: len(rows) for name, rows in contents(it.lake).items() if name != "raw_records/f"}
    sound(it)
    it.add(second)
    it.run()
    sound(it)
    undisturbed = chain(partitions=PARTITIONS)
    for n, file in enumerate(sorted(it.snapshots.iterdir())):
        (undisturbed.snapshots / f"{n}.jsonl").write_bytes(file.read_bytes())
    undisturbed.run()
    assert histories(it.lake) == histories(undisturbed.lake)
    assert [p.name for p in Path(it.lake.root, "rebuilding/f").iterdir()] == ["3"], "of the one that was killed"


def test_what_a_rebuild_would_change(halves: tuple[Chain, list[Any]]) -> None:
    """A history was changed by hand: the check reports it and changes nothing."""
    it, _ = halves
    change(it.lake.history("shop", "orders"), "v = 'one'", v="'by hand'")
    before, stood = contents(it.lake), cursors(it)
    ((name, difference),) = rebuilding.compare_with_rebuild(it.lake, it.feed)
    assert name == "shop.orders"
    assert difference is not None
    assert (difference.inserted, difference.deleted, difference.updated, difference.columns) == (0, 0, 1, {"v": 1})
    assert difference.samples == [SampleRow("update", '["3"]', {"v": "by hand"}, {"v": "one"})]
    assert (contents(it.lake), cursors(it)) == (before, stood)
    assert list(Path(it.lake.root, "rebuilding/f").iterdir()) == []


def test_the_check_fails_if_a_rebuild_would_change_anything() -> None:
    same = Difference("shop.a", 0, 0, 0, {}, [], [], [], before=1, after=1, caveats=[])
    compared = [("shop.a", same), ("shop.b", replace(same, table="shop.b", deleted=1)), ("shop.c", None)]
    _fail_if_changed(build_op_context(), compared[:1])
    with pytest.raises(Failure, match=r"A rebuild would change shop\.b, shop\.c: the log shows how"):
        _fail_if_changed(build_op_context(), compared)


def test_an_empty_feed_has_nothing_to_rebuild(chain: Callable[..., Chain]) -> None:
    it = chain()
    with pytest.raises(OperationError, match="has no records yet"):
        list(rebuild_feed(it.lake, it.feed))


@pytest.mark.extended
def test_a_replayed_record_takes_its_place_unless_its_table_is_past_it(
    chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An updated decoder reads what today's cannot: messages that begin with two braces."""
    it, rows = chain(partitions=1), Rows()
    stream = Stream(1)

    def broken(message: dict[str, Any]) -> None:
        stream.send(b"{" + json.dumps(message).encode())

    broken(rows.insert(tso(3), 1, "too late"))
    stream.send(rows.insert(tso(4), 2, "a"))
    stream.watermark(tso(5))
    broken(rows.insert(tso(7), 3, "b"))
    broken(rows.update(tso(8), 2, "c", "a"))
    stream.send(b"never a message")
    it.add(stream.records)
    it.run()
    assert replay_quarantine(it.lake, it.feed) == ReplayReport(tried=4)
    plain = CanalJson.decode

    def updated(self: CanalJson, records: DataFrame, feed: Feed) -> DataFrame:
        repaired = F.expr("IF(startswith(value, X'7B7B'), substring(value, 2), value)")
        return plain(self, records.withColumn("value", repaired), feed)

    monkeypatch.setattr(CanalJson, "decode", updated)
    first = replay_quarantine(it.lake, it.feed)
    assert (first.tried, first.replayed) == (4, 2)
    assert [(r["offset"], r["database"], r["table"], r["commit_ts"]) for r in first.passed] == [
        (0, "shop", "orders", tso(3))
    ]
    assert sorted(q["offset"] for q in it.quarantine()) == [0, 5]
    stream.watermark(tso(9))
    it.add(stream.records)
    it.run()
    sound(it)
    conserved(it.lake, it.feed)
    assert [(v["id"], v["v"], v["_cdc_from_ts"], v["_cdc_to_ts"]) for v in it.versions()] == [
        (2, "a", tso(4), tso(8)),
        (3, "b", tso(7), None),
        (2, "c", tso(8), None),
    ]
    again = replay_quarantine(it.lake, it.feed)
    assert (again.tried, again.replayed, len(again.passed)) == (2, 0, 1)
    # In the rebuilt tables the record is in its place.
    list(rebuild_feed(it.lake, it.feed))
    assert [v["id"] for v in it.versions()] == [1, 2, 3, 2]
    assert [q["offset"] for q in it.quarantine()] == [5]


def test_old_raw_records_are_deleted_when_they_are_released(client: Client, feeding: Feeding, topic: str) -> None:
    """The oldest batches are deleted first; a batch with a pending event and a recent one stay."""
    client.create(topic)
    it, rows = feeding(topic), Rows()

    def produce(day: int, start: int, *, watermark: int) -> None:
        stream = Stream(1)
        stream.send(rows.insert(tso(start), start, "v"))
        stream.watermark(tso(watermark))
        at = int(datetime(2024, 1, day, tzinfo=UTC).timestamp() * 1000)
        client.send([r | {"timestamp": at} for r in stream.records], topic=topic)
        it.run()

    produce(1, 10, watermark=20)
    produce(2, 30, watermark=40)
    produce(3, 60, watermark=50)  # its insert is pending
    produce(4, 70, watermark=51)

    def left() -> list[int]:
        return sorted(r["offset"] for r in rows_in(it.lake.raw_records, it.lake.spark))

    assert trim_records(it.lake, it.feed, datetime(2024, 1, 1, tzinfo=UTC)) == 0
    assert trim_records(it.lake, it.feed, datetime(2024, 1, 2, tzinfo=UTC)) == 2
    assert left() == [2, 3, 4, 5, 6, 7]
    assert trim_records(it.lake, it.feed, datetime(2024, 2, 1, tzinfo=UTC)) == 2
    assert left() == [4, 5, 6, 7]
    assert trim_records(it.lake, it.feed, datetime(2024, 2, 1, tzinfo=UTC)) == 0
    sound(it)
    assert it.run().ingest.taken == 0
    produce(5, 80, watermark=90)
    assert sorted(v["id"] for v in it.versions()) == [10, 30, 60, 70, 80]
    sound(it)
    with pytest.raises(OperationError, match="maintenance has deleted the records up to batch 5"):
        list(rebuild_feed(it.lake, it.feed))


def test_a_topic_that_was_created_again_is_not_rebuilt_without_watermarks(chain: Callable[..., Chain]) -> None:
    """Offsets began again, and only they order the records."""
    it, stream = chain(protocol="canal-json", tidb_extension=False), Stream()
    it.add([stream.send(Rows().insert(tso(1), 1, "a") | {"_tidb": None})])
    it.run()
    raw, cursor = it.lake.raw_records, it.lake.raw_records.cursor()
    assert cursor is not None
    raw.commit(raw.stage_rows([]), replace(cursor, sequence=2, recreated={"orders": [2]}))
    for rebuilt in (rebuild_feed, compare_with_rebuild):
        with pytest.raises(OperationError, match="orders was deleted and created again"):
            list(rebuilt(it.lake, it.feed))


def test_records_of_files_are_not_deleted(halves: tuple[Chain, list[Any]]) -> None:
    it, _ = halves
    with pytest.raises(ValueError, match="would ingest deleted records again"):
        trim_records(it.lake, it.feed, datetime.now(UTC))


def at(day: int) -> datetime:
    """Return a day, counted from that of `tso(0)`."""
    return datetime(2023, 11, 14, tzinfo=UTC) + timedelta(days=day)


class Days:
    """A feed that gets a file and runs once a day; commit_ts and Kafka times follow the days."""

    def __init__(self, it: Chain) -> None:
        self.it, self.stream, self.sent = it, Stream(1), 0

    def ts(self, day: int, second: int = 0) -> int:
        return tso(int(at(day).timestamp() * 1000) - 1_700_000_000_000 + second * 1000)

    def add(self, day: int) -> None:
        """Write what the stream has got since the last time into a file."""
        new, self.sent = self.stream.records[self.sent :], len(self.stream.records)
        self.it.add([r | {"timestamp": int(at(day).timestamp() * 1000)} for r in new])

    def run(self, day: int) -> Reports:
        """Run over what the stream has got since the last run."""
        self.add(day)
        return self.it.run()

    def batches(self) -> dict[str, set[int]]:
        """Return the batches that change_events holds of each kind."""
        by_kind: dict[str, set[int]] = {}
        for r in rows_in(self.it.lake.change_events, self.it.lake.spark):
            by_kind.setdefault(r["kind"], set()).add(r["batch"])
        return by_kind

    def releases(self) -> set[int]:
        """Return the releases that released_changes holds, layouts included."""
        return {r["release"] for r in rows_in(self.it.lake.released_changes, self.it.lake.spark)}


@pytest.mark.extended
def test_old_events_and_changes_are_deleted_when_nothing_needs_them(chain: Callable[..., Chain]) -> None:
    """Batches and releases are deleted one by one; the histories and the counts stay the same."""
    it, undisturbed, rows = chain(partitions=1), chain(partitions=1), Rows()
    days = Days(it)
    for day in range(1, 6):
        if day == 1:
            days.stream.send(ddl("CREATE TABLE `shop`.`orders` (`id` BIGINT PRIMARY KEY,`v` VARCHAR(20))", days.ts(1)))
        days.stream.send(rows.insert(days.ts(day, 1), day, "v"))
        days.stream.send(rows.insert(days.ts(day, 1), day, "v"))  # a repeat
        days.stream.send(b"{ no message")
        days.stream.watermark(days.ts(day, 2))
        if day == 4:
            days.stream.send(rows.update(days.ts(9), 1, "later", "v"))  # pending
        days.run(day)
    totals = it.lake.released_changes.cursor().totals
    assert trim_events(it.lake, it.feed, at(1)) == 0
    assert trim_changes(it.lake, at(1)) == 0

    assert trim_events(it.lake, it.feed, at(3)) == 7
    every = set(range(1, 6))
    assert days.batches() == {"row": {3, 4, 5}, "watermark": {3, 4, 5}, "undecodable": every}
    assert trim_changes(it.lake, at(3)) == 3
    assert days.releases() == {3, 4, 5}
    sound(it)
    assert it.lake.change_events.cursor().trimmed_rows == 4
    trimmed = it.lake.released_changes.cursor().trimmed
    assert (trimmed.release, trimmed.highest, trimmed.events, trimmed.repeats) == (2, days.ts(2, 1), 2, 2)
    assert it.lake.released_changes.cursor().totals == totals
    assert it.run().history == []

    # The batch of a pending event stays; released events are deleted.
    assert trim_events(it.lake, it.feed, at(20)) == 3
    assert days.batches() == {"row": {4, 5}, "watermark": {4, 5}, "undecodable": every}
    assert trim_changes(it.lake, at(20)) == 3
    assert days.releases() == set()
    sound(it)
    assert (trim_events(it.lake, it.feed, at(20)), trim_changes(it.lake, at(20))) == (0, 0)

    days.stream.send(rows.delete(days.ts(10), 2, "v"))
    days.stream.send(rows.insert(days.ts(1, 1), 1, "v"))  # a repeat of what is deleted
    days.stream.send(rows.insert(days.ts(5, 1), 5, "v"))
    days.stream.watermark(days.ts(11))
    report = days.run(11)
    assert (report.release.released, report.release.late_repeated, report.release.late_unseen) == (2, 0, 2)
    sound(it)
    for file in it.snapshots.iterdir():
        (undisturbed.snapshots / file.name).write_bytes(file.read_bytes())
    undisturbed.run()
    assert histories(it.lake) == histories(undisturbed.lake)
    # All records are kept.
    list(rebuild_feed(it.lake, it.feed))
    sound(it)
    assert histories(it.lake) == histories(undisturbed.lake)
    assert days.batches()["row"] == every | {6}
    assert it.lake.released_changes.cursor().trimmed.release == 0


@pytest.mark.extended
def test_input_that_a_stage_still_needs_stays(chain: Callable[..., Chain]) -> None:
    """A batch that is not released, a release that a history has not applied, and a statement ahead of its rows."""
    it, rows = chain(partitions=1), Rows()
    days = Days(it)
    days.stream.send(rows.insert(days.ts(1, 1), 1, "v"))
    days.stream.watermark(days.ts(1, 2))
    days.run(1)
    days.stream.send(ddl("ALTER TABLE `shop`.`orders` ADD COLUMN `w` INT", days.ts(6), ddl_type="ALTER"))
    days.stream.send(rows.insert(days.ts(2, 1), 2, "v"))
    days.stream.watermark(days.ts(2, 2))
    days.add(2)
    for stage in (INGEST, DECODE, SCHEMAS, TYPES, RELEASE):
        stage.run(it.lake, it.feed)
    assert trim_changes(it.lake, at(20)) == 1
    assert days.releases() == {2}
    assert trim_events(it.lake, it.feed, at(20)) == 2
    assert days.batches() == {"row": {2}, "ddl": {2}, "watermark": {2}}
    it.run()
    assert trim_changes(it.lake, at(20)) == 1
    assert trim_events(it.lake, it.feed, at(20)) == 0
    days.stream.watermark(days.ts(7))
    report = days.run(7)
    assert report.release.ddl == 1
    assert trim_events(it.lake, it.feed, at(20)) == 4
    sound(it)
    assert sorted(v["id"] for v in it.versions()) == [1, 2]


def test_events_of_a_blocked_table_stay(chain: Callable[..., Chain]) -> None:
    """The schema of the table has not come; all events of its batch and of later ones stay."""
    it = chain(protocol="simple", partitions=1)
    days, late, earlier = Days(it), Table("late", version=2, table_id=12), Table("known", version=1, table_id=11)

    def send(message: dict[str, Any]) -> None:
        days.stream.send(json.dumps(message).encode())

    for day in (1, 2, 3):
        if day == 1:
            send(earlier.bootstrap())
        if day == 2:
            send(late.insert(days.ts(2, 1), 1, "held"))
        send(earlier.insert(days.ts(day, 1), day, "v"))
        send(simple_watermark(days.ts(day, 2)))
        days.run(day)
    assert trim_events(it.lake, it.feed, at(20)) == 3
    assert days.batches() == {"row": {2, 3}, "watermark": {2, 3}}
    send(late.bootstrap())
    send(simple_watermark(days.ts(5)))
    days.run(5)
    assert [(r["id"], r["v"]) for r in it.history("late", "simple")] == [(1, "held")]
    assert trim_events(it.lake, it.feed, at(20)) == 7
    assert days.batches() == {}
    sound(it)


@pytest.mark.extended
def test_without_watermarks_duplicates_are_recognised_within_the_retention(chain: Callable[..., Chain]) -> None:
    it, rows = chain(tidb_extension=False), Rows()
    days = Days(it)

    def send(message: dict[str, Any]) -> None:
        days.stream.send({k: v for k, v in message.items() if k != "_tidb"})

    for day in (1, 2, 3):
        send(rows.insert(days.ts(day), day, "v"))
        days.run(day)
    assert trim_changes(it.lake, at(2)) == 1
    assert trim_events(it.lake, it.feed, at(20)) == 3
    assert days.batches() == {}
    before = it.history()
    send(rows.insert(days.ts(2), 2, "v"))
    send(rows.insert(days.ts(3), 3, "v"))
    report = days.run(4)
    assert (report.release.released, report.release.duplicate, report.release.late_unseen) == (0, 2, 0)
    assert it.history() == before
    sound(it)


def test_events_of_feeds_with_transaction_markers_stay(chain: Callable[..., Chain]) -> None:
    """A connector that starts again may repeat a part of any transaction."""
    it = chain(protocol="debezium")
    transaction_records = transactions()
    it.add(transaction_records)
    it.run()
    before = Counter(r["kind"] for r in rows_in(it.lake.change_events, it.lake.spark))
    assert before.keys() == {"row", "transaction"}
    assert trim_events(it.lake, it.feed, datetime(2100, 1, 1, tzinfo=UTC)) == 0
    assert trim_changes(it.lake, datetime(2100, 1, 1, tzinfo=UTC)) > 0
    sound(it)
