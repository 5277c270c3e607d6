"""Maintenance and rebuild: the tables hold what they held, and the next run goes on from there."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.checks.audit import all_events_placed, all_records_decoded, each_record_once
from cdc_assets.feeds import Feed
from cdc_assets.lakehouse import ConcurrentRunError
from cdc_assets.operations import rebuild as rebuilding
from cdc_assets.operations.maintenance import compact, tables, trim, vacuum
from cdc_assets.operations.rebuild import RebuildError, rebuild
from cdc_assets.operations.replay_quarantine import ReplayReport, replay_quarantine
from cdc_assets.protocols import DECODERS
from cdc_assets_tests.broker import Client
from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.laws.streams import PARTITIONS, short_stream
from cdc_assets_tests.support import Chain, Rows, Stream, contents, histories, record, tso

Feeding = Callable[..., Chain]


def sound(it: Chain) -> None:
    for verdict in (all_records_decoded(it.lake), all_events_placed(it.lake, it.feed), each_record_once(it.lake)):
        assert verdict.passed, verdict.description


def cursors(it: Chain) -> dict[str, Any]:
    return {table.name: table.cursor() for table in tables(it.lake)}


def numberless(it: Chain) -> dict[str, list[dict[str, Any]]]:
    """Everything but the numbers of the releases, which a rebuild gives anew."""
    found = {}
    for name, rows in contents(it.lake).items():
        drop = {"release"} | ({"batch"} if name.startswith("quarantine/") else set())
        found[name] = sorted(({k: v for k, v in r.items() if k not in drop} for r in rows), key=repr)
    return found


@pytest.fixture
def halves(chain: Callable[..., Chain]) -> tuple[Chain, list[Any]]:
    """A feed after the first half of the stream, in two runs, with records that cannot be decoded; and the second half."""
    first, second = short_stream()
    it = chain(partitions=PARTITIONS)
    it.add(first[:7])
    it.run()
    it.add([*first[7:], record(b"{", 0, 1000), record(None, 1, 1000)])
    with (it.snapshots / "0001.jsonl").open("a") as file:
        file.write('{"topic":\n')
    it.run()
    return it, second


def test_maintenance_changes_no_row_and_no_cursor(halves: tuple[Chain, list[Any]]) -> None:
    it, second = halves
    before, stood = contents(it.lake), cursors(it)
    done = {c.table: c for c in compact(it.lake)}
    assert done.keys() == before.keys()
    assert done["raw_records/f"].removed >= 2
    assert done["raw_records/f"].added == 1
    vacuum(it.lake, 168)
    assert contents(it.lake) == before
    assert cursors(it) == stood
    assert it.run().ingest.batch is None
    it.add(second)
    it.run()
    sound(it)


def test_a_rebuild_gives_the_same_and_the_next_run_goes_on(
    halves: tuple[Chain, list[Any]], chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    it, second = halves
    before, raw = numberless(it), contents(it.lake)["raw_records/f"]
    replace = rebuilding._replace

    # killed half way: some tables are replaced, others are not
    def dies(*args: Any) -> Any:
        for n, done in enumerate(replace(*args)):
            yield done
            if n == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(rebuilding, "_replace", dies)
    with pytest.raises(KeyboardInterrupt):
        list(rebuild(it.lake, it.feed))
    with pytest.raises(ConcurrentRunError, match="this feed is being rebuilt"):
        it.run()
    monkeypatch.setattr(rebuilding, "_replace", replace)
    done = {r.table: r.rows for r in rebuild(it.lake, it.feed)}
    assert numberless(it) == before
    assert contents(it.lake)["raw_records/f"] == raw
    assert done == {name: len(rows) for name, rows in before.items() if name != "raw_records/f"}
    sound(it)
    it.add(second)
    it.run()
    sound(it)
    undisturbed = chain(partitions=PARTITIONS)
    for n, file in enumerate(sorted(it.snapshots.iterdir())):
        (undisturbed.snapshots / f"{n}.jsonl").write_bytes(file.read_bytes())
    undisturbed.run()
    assert histories(it.lake) == histories(undisturbed.lake)
    assert not list(Path(it.lake.root, "rebuilding/f").glob(f"{it.lake.raw_records.cursor()['sequence']}*"))


def test_there_is_nothing_to_rebuild_yet(chain: Callable[..., Chain]) -> None:
    it = chain()
    with pytest.raises(RebuildError, match="nothing was taken in yet"):
        list(rebuild(it.lake, it.feed))


def test_what_decodes_after_an_update_takes_its_place_unless_its_table_has_moved_past_it(
    chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update of the decoder that reads what today's cannot: messages that begin with two braces."""
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
    plain = DECODERS["canal-json"]

    def updated(records: DataFrame, feed: Feed) -> DataFrame:
        repaired = F.expr("IF(startswith(value, X'7B7B'), substring(value, 2), value)")
        return plain(records.withColumn("value", repaired), feed)

    monkeypatch.setitem(DECODERS, "canal-json", updated)
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
    # In the rebuilt tables it is in its place.
    list(rebuild(it.lake, it.feed))
    assert [v["id"] for v in it.versions()] == [1, 2, 3, 2]
    assert [q["offset"] for q in it.quarantine()] == [5]


def test_old_raw_records_go_when_they_are_released(client: Client, feeding: Feeding, topic: str) -> None:
    """Batch by batch, from the oldest: not the one with a pending event, and none that is young."""
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
        return sorted(r["offset"] for r in it.lake.raw_records.read().select("offset").collect())

    assert trim(it.lake, it.feed, datetime(2024, 1, 1, tzinfo=UTC)) == 0
    assert trim(it.lake, it.feed, datetime(2024, 1, 2, tzinfo=UTC)) == 2
    assert left() == [2, 3, 4, 5, 6, 7]
    assert trim(it.lake, it.feed, datetime(2024, 2, 1, tzinfo=UTC)) == 2
    assert left() == [4, 5, 6, 7]
    assert trim(it.lake, it.feed, datetime(2024, 2, 1, tzinfo=UTC)) == 0
    sound(it)
    assert it.run().ingest.taken == 0
    produce(5, 80, watermark=90)
    assert sorted(v["id"] for v in it.versions()) == [10, 30, 60, 70, 80]
    sound(it)
    with pytest.raises(RebuildError, match="maintenance has deleted the records up to batch 5"):
        list(rebuild(it.lake, it.feed))


def test_records_of_files_are_not_deleted(halves: tuple[Chain, list[Any]]) -> None:
    it, _ = halves
    with pytest.raises(ValueError, match="recorded files may be read again"):
        trim(it.lake, it.feed, datetime.now(UTC))
