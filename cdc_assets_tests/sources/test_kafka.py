"""Ingestion from a real broker: each record exactly once, when runs are killed, brokers restart and topics change."""

import base64
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_assets.assets.checks.audit import all_events_placed, all_records_decoded, each_record_once
from cdc_assets.assets.checks.conservation import records_taken
from cdc_assets.assets.checks.gate import watermark_progress
from cdc_assets.lakehouse.table import ConcurrentRunError
from cdc_assets.sources import kafka as source
from cdc_assets.sources.broker import Broker, BrokerError
from cdc_assets.sources.offsets import DataLossError
from cdc_assets.stages import INGEST
from cdc_assets.stages.ingest import IngestReport
from cdc_assets_tests.broker import Client, TestBroker
from cdc_assets_tests.laws.crashing_run import run_and_die
from cdc_assets_tests.laws.streams import short_stream
from cdc_assets_tests.support import (
    RECORDED,
    Chain,
    Record,
    Rows,
    Stream,
    histories,
    read_lines,
    record,
    rows_in,
    tso,
)

Feeding = Callable[..., Chain]

ROOT = Path(__file__).parents[2]
QUICK = {"kafka.default.api.timeout.ms": "4000", "kafka.request.timeout.ms": "3000"}


def run(pipeline: Chain) -> IngestReport:
    """Run the stage ingest, and its check."""
    report = INGEST.run(pipeline.lake, pipeline.feed)
    verdict = records_taken(report)
    assert verdict.passed, verdict.description
    return report


def values(pipeline: Chain) -> list[tuple[int, int, bytes | None]]:
    return sorted(
        (r["partition"], r["offset"], r["value"]) for r in rows_in(pipeline.lake.raw_records, pipeline.lake.spark)
    )


def numbered(partition: int, numbers: range) -> list[Record]:
    return [record(b"%d" % n, partition, n) for n in numbers]


def expect(**by_partition: range) -> list[tuple[int, int, bytes]]:
    """Offset n of partition p has the value n."""
    return [(int(p.removeprefix("p")), n, b"%d" % n) for p, numbers in sorted(by_partition.items()) for n in numbers]


def test_records_of_all_encoders_are_ingested_unchanged(client: Client, feeding: Feeding) -> None:
    """Each recorded stream of each encoder is one topic; order, keys, values, headers and timestamps are compared."""
    sent: dict[str, list[Record]] = {}
    for path in sorted(RECORDED.glob("*/*/*.jsonl*")):
        if path.parent.name in {"truth", "claimcheck-files"}:
            continue
        records = read_lines(path.parent / path.name.partition(".jsonl")[0])
        name = f"recorded.{path.parent.parent.name}.{path.parent.name}.{path.name.partition('.')[0]}"
        first = [r for r in records if r["topic"] == records[0]["topic"]]
        client.create(name, 1 + max(r["partition"] for r in first))
        client.send(first, topic=name)
        sent[name] = first
    assert len(sent) > 40
    pipeline = feeding(topic_pattern=r"recorded\..*")
    report = run(pipeline)
    assert report.taken == sum(map(len, sent.values()))
    assert (report.without_record, report.left, report.lost) == (0, 0, [])
    rows_by_partition: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in sorted(rows_in(pipeline.lake.raw_records, pipeline.lake.spark), key=lambda r: r["offset"]):
        rows_by_partition.setdefault((row["topic"], row["partition"]), []).append(row)
    records_by_partition: dict[tuple[str, int], list[Record]] = {}
    for name, records in sent.items():
        for each in records:
            records_by_partition.setdefault((name, each["partition"]), []).append(each)
    assert rows_by_partition.keys() == records_by_partition.keys()
    for partition, rows in rows_by_partition.items():
        assert [r["offset"] for r in rows] == list(range(len(rows)))
        for row, line in zip(rows, records_by_partition[partition], strict=True):
            assert (row["key"], row["value"]) == (_bytes(line["key"]), _bytes(line["value"]))
            expected_headers = [{"key": h["key"], "value": _bytes(h["value"])} for h in line.get("headers") or []]
            assert row["headers"] == expected_headers
            assert row["timestamp"] == _time(line["timestamp"])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _time(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(milliseconds // 1000)) + f".{milliseconds % 1000:03}000"


def test_nulls_empty_values_and_headers_are_ingested_unchanged(client: Client, feeding: Feeding, topic: str) -> None:
    client.create(topic)
    every_byte = bytes(range(256))
    headers = [("h", b"\x00\xff"), ("h", b""), ("ü", b"x")]
    null_header = record(b"v", 0, 3)
    null_header["headers"] = [{"key": "null", "value": None}]
    sent = [record(None), record(b"", key=b""), record(every_byte, key=every_byte, headers=headers), null_header]
    client.send(sent, topic=topic)
    pipeline = feeding(topic)
    run(pipeline)
    rows = sorted(rows_in(pipeline.lake.raw_records, pipeline.lake.spark), key=lambda r: r["offset"])
    assert [(r["key"], r["value"]) for r in rows] == [(None, None), (b"", b""), (every_byte, every_byte), (None, b"v")]
    assert [r["headers"] for r in rows] == [
        [],
        [],
        [{"key": k, "value": v} for k, v in headers],
        [{"key": "null", "value": None}],
    ]


def same_history(chain: Chain, files: Chain) -> None:
    """Compare two histories row for row, without offsets: the broker assigns its own."""
    one, other = histories(chain.lake), histories(files.lake)
    assert one
    assert one.keys() == other.keys()
    for name, rows in other.items():
        assert without_offsets(one[name]) == without_offsets(rows), name


def without_offsets(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr({k: v for k, v in r.items() if k != "_cdc_offset"}) for r in rows)


@pytest.mark.parametrize(
    ("stream", "settings", "limit"),
    [
        ("ticdc/canal-json_ext/orders", {}, 300),
        ("ticdc/canal-json_ext_lz4/large", {}, None),
        ("mysql/canal117-flat/composite", {"protocol": "canal-json"}, None),
    ],
)
def test_histories_equal_those_from_recorded_files(
    stream: str,
    settings: dict[str, Any],
    limit: int | None,
    client: Client,
    feeding: Feeding,
    chain: Callable[..., Chain],
    topic: str,
) -> None:
    """In one run, and in several runs by max_records_per_run."""
    records = [r | {"topic": f"{topic}.{r['topic']}"} for r in read_lines(RECORDED / stream)]
    names = sorted({r["topic"] for r in records})
    for name in names:
        client.create(name, 1 + max(r["partition"] for r in records if r["topic"] == name))
    client.send(records)
    pipeline = feeding(*names, settings=settings, **({"max_records_per_run": limit} if limit else {}))
    runs = 0
    while (report := pipeline.run()).ingest.batch:
        runs += 1
        assert report.ingest.taken <= (limit or len(records))
    assert runs == (1 if limit is None else -(-len(records) // limit))
    files = chain(**settings)
    files.add(records)
    files.run()
    same_history(pipeline, files)
    for verdict in (
        all_records_decoded(pipeline.lake),
        all_events_placed(pipeline.lake, pipeline.feed),
        each_record_once(pipeline.lake),
    ):
        assert verdict.passed, verdict.description


def test_records_produced_during_a_run_are_left_for_the_next_run(
    client: Client, feeding: Feeding, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic, 2)
    client.send([*numbered(0, range(5)), *numbered(1, range(3))], topic=topic)
    pipeline, read = feeding(topic), source.read_records

    def meanwhile(*args: Any) -> Any:
        client.send(numbered(0, range(5, 9)), topic=topic)
        return read(*args)

    monkeypatch.setattr(source, "read_records", meanwhile)
    report = run(pipeline)
    assert report.offsets == {topic: {"0": [0, 4], "1": [0, 2]}}
    assert values(pipeline) == expect(p0=range(5), p1=range(3))
    monkeypatch.setattr(source, "read_records", read)
    assert run(pipeline).offsets == {topic: {"0": [5, 8]}}
    assert values(pipeline) == expect(p0=range(9), p1=range(3))
    again = run(pipeline)
    assert (again.batch, again.held) == (None, {topic: {"0": [0, 8], "1": [0, 2]}})


@pytest.mark.parametrize("moment", ["before 1", "after 1", "before 2", "after 2"])
def test_the_run_after_a_killed_run_reads_the_planned_offsets(
    moment: str, client: Client, feeding: Feeding, topic: str, spark: SparkSession
) -> None:
    """Commit 1 has the plan, commit 2 the records: the run is killed before or after each; new records follow."""
    client.create(topic, 2)
    first, second = short_stream()
    client.send(first, topic=topic)
    pipeline = feeding(topic)
    of_broker = {"bootstrap_servers": pipeline.feed.source.kafka.bootstrap_servers, "topics": [topic]}
    killed = run_and_die(pipeline.folder, moment, spark, {"source": {"kafka": of_broker}})
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    commits = [line.split()[1] for line in killed.stdout.splitlines() if line.startswith("commit")]
    assert commits == ["raw_records/f"] * (int(moment[-1]) - moment.startswith("before"))
    client.send(second, topic=topic)
    report = run(pipeline)
    taken = {
        "before 1": len(first) + len(second),  # no plan was committed
        "after 1": len(first),
        "before 2": len(first),
        "after 2": len(second),  # the first records were committed
    }
    assert report.taken == taken[moment]
    pipeline.run()
    assert len(values(pipeline)) == len(first) + len(second)
    assert each_record_once(pipeline.lake).passed
    cursor = pipeline.lake.raw_records.cursor()
    assert cursor is not None
    assert cursor.plan is None


def test_of_two_concurrent_runs_one_fails_and_writes_nothing(
    client: Client, feeding: Feeding, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run takes over the plan of the first run."""
    client.create(topic)
    client.send(numbered(0, range(5)), topic=topic)
    pipeline, read = feeding(topic), source.read_records

    def meanwhile(*args: Any) -> Any:
        monkeypatch.setattr(source, "read_records", read)
        client.send(numbered(0, range(5, 7)), topic=topic)
        assert run(pipeline).offsets == {topic: {"0": [0, 4]}}
        return read(*args)

    monkeypatch.setattr(source, "read_records", meanwhile)
    with pytest.raises(ConcurrentRunError, match="another run has already committed step 2"):
        run(pipeline)
    assert values(pipeline) == expect(p0=range(5))
    run(pipeline)
    assert values(pipeline) == expect(p0=range(7))


def test_new_partitions_and_topics_hold_the_watermark(client: Client, feeding: Feeding) -> None:
    """A partition without any watermark holds its topic, even if it has no records."""
    rows = Rows()
    client.create("join.a", 1)
    pipeline = feeding(topic_pattern=r"join\..*")
    first = Stream(1)
    first.send(rows.insert(tso(1), 1, "a"))
    first.watermark(tso(5))
    client.send(first.records, topic="join.a")
    assert pipeline.run().release.watermarks == {"join.a": tso(5)}
    client.grow("join.a", 2)
    client.create("join.b", 1)
    more = Stream(1)
    more.send(rows.insert(tso(6), 2, "b"))
    more.watermark(tso(9))
    client.send(more.records, topic="join.a")
    report = pipeline.run()
    assert report.ingest.held == {"join.a": {"0": [0, 3], "1": [0, -1]}, "join.b": {"0": [0, -1]}}
    assert report.release.watermarks == {"join.a": tso(5)}
    assert report.release.partition_watermarks == {"join.a": {"0": tso(9), "1": None}, "join.b": {"0": None}}
    progress = watermark_progress(report.release, None)
    assert not progress.passed
    assert [(v["topic"], v["partition"]) for v in progress.violations] == [("join.a", 1), ("join.b", 0)]
    last = Stream(2)
    last.send(rows.update(tso(7), 1, "c", "a"), 1)
    last.watermark(tso(10))
    client.send(last.records, topic="join.a")
    client.send([r for r in last.records if not r["partition"]], topic="join.b")
    assert pipeline.run().release.watermarks == {"join.a": tso(10), "join.b": tso(10)}
    assert [(v["id"], v["v"], v["_cdc_to_ts"]) for v in pipeline.versions()] == [
        (1, "a", tso(7)),
        (2, "b", None),
        (1, "c", None),
    ]


def quarantined_losses(pipeline: Chain) -> list[tuple[str, str, int, int]]:
    return [(q["reason"], q["topic"], q["partition"], q["offset"]) for q in pipeline.quarantine()]


def with_skip(pipeline: Chain) -> Chain:
    kafka = pipeline.feed.source.kafka.model_copy(update={"on_data_loss": "skip"})
    pipeline.feed = pipeline.feed.model_copy(
        update={"source": pipeline.feed.source.model_copy(update={"kafka": kafka})}
    )
    return pipeline


def test_expired_records_are_an_error_or_are_quarantined(client: Client, feeding: Feeding, topic: str) -> None:
    client.create(topic, 2)
    pipeline = feeding(topic)
    client.send([*numbered(0, range(4)), *numbered(1, range(2))], topic=topic)
    run(pipeline)
    client.send([*numbered(0, range(4, 10)), *numbered(1, range(2, 4))], topic=topic)
    client.expire(topic, 0, 7)
    with pytest.raises(DataLossError) as raised:
        run(pipeline)
    assert f"{topic} partition 0: needed from offset 4, available: 7 to 10" in str(raised.value)
    assert "on_data_loss: skip" in str(raised.value)
    assert values(pipeline) == expect(p0=range(4), p1=range(2))
    report = run(with_skip(pipeline))
    assert report.lost == [
        f"{topic} partition 0: needed from offset 4, available: 7 to 10 (the records before have expired)"
    ]
    assert values(pipeline) == sorted([*expect(p0=range(4), p1=range(4)), *expect(p0=range(7, 10))])
    assert quarantined_losses(pipeline) == [("data_loss", topic, 0, 4)]
    assert "needed from offset 4, available: 7 to 10" in pipeline.quarantine()[0]["message"]
    assert run(pipeline).batch is None
    assert len(quarantined_losses(pipeline)) == 1


def test_records_that_expire_after_the_plan_are_reported(
    client: Client, feeding: Feeding, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic)
    client.send(numbered(0, range(10)), topic=topic)
    pipeline, read = feeding(topic), source.read_records

    def too_late(*args: Any) -> Any:
        client.expire(topic, 0, 6)
        return read(*args)

    monkeypatch.setattr(source, "read_records", too_late)
    with pytest.raises(DataLossError, match="partition 0: needed from offset 0, available: 6 to 10"):
        run(pipeline)
    monkeypatch.setattr(source, "read_records", read)
    with pytest.raises(DataLossError, match="partition 0: needed from offset 0, available: 6 to 10"):
        run(pipeline)
    assert run(with_skip(pipeline)).taken == 4
    assert values(pipeline) == expect(p0=range(6, 10))
    assert quarantined_losses(pipeline) == [("data_loss", topic, 0, 0)]


def test_a_recreated_topic_is_another_topic(client: Client, feeding: Feeding, topic: str) -> None:
    """Also if the next offset exists in the new topic: the records before it were never read."""
    client.create(topic)
    pipeline = feeding(topic)
    client.send(numbered(0, range(3)), topic=topic)
    run(pipeline)
    client.delete(topic)
    with pytest.raises(
        DataLossError, match=r"partition 0: needed from offset 3, none available .the topic was deleted"
    ):
        run(pipeline)
    assert run(with_skip(pipeline)).taken == 0
    assert quarantined_losses(pipeline) == [("data_loss", topic, 0, 3)]
    assert run(pipeline).batch is None
    client.create(topic)
    client.send(numbered(0, range(5)), topic=topic)
    assert run(pipeline).taken == 5
    assert quarantined_losses(pipeline) == [("data_loss", topic, 0, 3)]
    client.delete(topic)
    client.create(topic)
    client.send(numbered(0, range(7)), topic=topic)
    strict = replace_kafka(pipeline, on_data_loss="fail")
    with pytest.raises(
        DataLossError, match=r"needed from offset 5, available: 0 to 7 .the topic was deleted and created"
    ):
        run(strict)
    assert run(with_skip(pipeline)).taken == 7
    assert [n for _, n, _ in values(pipeline)] == sorted([*range(3), *range(5), *range(7)])
    assert each_record_once(pipeline.lake).passed, "records of three topics with one name"


def test_a_topic_that_comes_again_with_fewer_partitions_goes_on(client: Client, feeding: Feeding, topic: str) -> None:
    """The partitions that it has no longer send no watermark."""
    pipeline = with_skip(feeding(topic))
    for number, partitions in ((1, 2), (2, 1)):
        client.create(topic, partitions)
        stream = Stream(partitions)
        stream.send(Rows().insert(tso(10 * number), number, "a"))
        stream.watermark(tso(10 * number + 5))
        client.send(stream.records, topic=topic)
        report = pipeline.run().release
        assert (report.released, report.pending) == (1, 0)
        client.delete(topic)


def replace_kafka(pipeline: Chain, **settings: Any) -> Chain:
    kafka = pipeline.feed.source.kafka.model_copy(update=settings)
    pipeline.feed = pipeline.feed.model_copy(
        update={"source": pipeline.feed.source.model_copy(update={"kafka": kafka})}
    )
    return pipeline


def test_gaps_of_aborted_transactions_and_compaction_are_not_losses(
    client: Client, feeding: Feeding, topic: str
) -> None:
    client.create(topic)
    client.send(numbered(0, range(2)), topic=topic)
    client.send([record(b"aborted") for _ in range(3)], topic=topic, transaction="abort")
    client.send([record(b"6"), record(b"7")], topic=topic, transaction="commit")
    pipeline = feeding(topic)
    report = run(pipeline)
    # 0, 1; three aborted and their marker at 2 to 5; 6, 7 and their marker at 8
    assert values(pipeline) == [(0, 0, b"0"), (0, 1, b"1"), (0, 6, b"6"), (0, 7, b"7")]
    assert (report.taken, report.without_record) == (4, 5)
    client.send(numbered(0, range(9, 11)), topic=topic)
    assert run(pipeline).taken == 2
    assert quarantined_losses(pipeline) == []

    packed = f"{topic}-compacted"
    quickly = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
    client.create(packed, 1, quickly)
    client.send([record(b"%d" % n, key=b"k") for n in range(20)], topic=packed)
    # A much later timestamp begins a new segment, so that the broker can compact the segment before.
    client.send([record(b"end", 0, 3_600_000, key=b"other")], topic=packed)
    pipeline = feeding(packed)
    deadline = time.monotonic() + 30
    while (report := run(pipeline)).taken > 2 and time.monotonic() < deadline:
        time.sleep(0.5)
        pipeline = feeding(packed)
    assert (report.taken, report.without_record) == (2, 19)
    assert [value for *_, value in values(pipeline)] == [b"19", b"end"]


def test_starting_offsets(client: Client, feeding: Feeding, topic: str) -> None:
    client.create(topic, 2)
    early = [record(b"%d" % n, p) | {"timestamp": 1_700_000_000_000 + n} for p in (0, 1) for n in range(4)]
    client.send(early, topic=topic)
    latest = feeding(topic, starting_offsets="latest")
    assert run(latest).taken == 0
    from_offsets = feeding(topic, starting_offsets={topic: {0: 3}})
    assert (run(from_offsets).taken, len(values(from_offsets))) == (5, 5)
    instant = feeding(topic, starting_offsets="2023-11-14T22:13:20.002Z")
    run(instant)
    assert values(instant) == [(0, 2, b"2"), (0, 3, b"3"), (1, 2, b"2"), (1, 3, b"3")]
    with pytest.raises(
        DataLossError, match=r"partition 1: needed from offset 9, available: 0 to 4 .*starting_offsets is wrong"
    ):
        run(feeding(topic, starting_offsets={topic: {1: 9}}))
    client.grow(topic, 3)
    client.send([record(b"4", 0), record(b"new", 2)], topic=topic)
    # A partition that is added later is read from its beginning: all its records are newer than the feed's first run.
    run(latest)
    assert values(latest) == [(0, 4, b"4"), (2, 0, b"new")]


def test_max_records_per_run_is_shared_by_the_partitions(client: Client, feeding: Feeding, topic: str) -> None:
    client.create(topic, 3)
    client.send([*numbered(0, range(20)), *numbered(1, range(2)), *numbered(2, range(9))], topic=topic)
    pipeline = feeding(topic, max_records_per_run=10)
    reports = [run(pipeline) for _ in range(5)]
    assert [r.taken for r in reports] == [10, 10, 10, 1, 0]
    assert [r.left for r in reports] == [21, 11, 1, 0, 0]
    assert reports[0].offsets == {topic: {"0": [0, 3], "1": [0, 1], "2": [0, 3]}}
    assert values(pipeline) == expect(p0=range(20), p1=range(2), p2=range(9))


@pytest.mark.extended
def test_a_broker_that_is_killed_and_comes_back_during_a_run(
    broker: TestBroker, client: Client, feeding: Feeding, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic, 2)
    client.send([*numbered(0, range(50)), *numbered(1, range(50))], topic=topic)
    pipeline, read = feeding(topic), source.read_records

    def interrupted(*args: Any) -> Any:
        broker.kill()
        threading.Timer(1.5, broker.start).start()
        return read(*args)

    monkeypatch.setattr(source, "read_records", interrupted)
    assert pipeline.feed.source.kafka is not None
    with Broker(pipeline.feed.source.kafka) as asked:
        before = asked.snapshot()
        assert run(pipeline).taken == 100
        assert values(pipeline) == expect(p0=range(50), p1=range(50))
        # The partitions have a new leader epoch.
        assert asked.snapshot() == before


def test_the_error_of_an_unreachable_broker_is_one_line(feeding: Feeding, topic: str) -> None:
    pipeline = feeding(topic, bootstrap_servers="127.0.0.1:1", options=QUICK)
    with pytest.raises(BrokerError) as raised:
        run(pipeline)
    assert str(raised.value).startswith("Kafka at 127.0.0.1:1: Failed to get metadata: ")
    assert "127.0.0.1:1 failed: Connection refused" in str(raised.value)
    assert "source.kafka in the feeds file" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert pipeline.lake.raw_records.cursor() is None


@pytest.mark.parametrize(
    ("kafka", "message"),
    [
        ({"topics": ["nowhere"]}, "has no topic nowhere (source.kafka.topics in the feeds file)"),
        ({"topics": ["nowhere"], "client_options": {"no.such": "x"}}, 'No such configuration property: "no.such"'),
    ],
)
def test_the_error_of_a_wrong_source_is_one_line(kafka: dict[str, Any], message: str, feeding: Feeding) -> None:
    with pytest.raises(BrokerError) as raised:
        run(feeding(**kafka))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.soak
def test_a_million_records_are_ingested_exactly_once(
    spark: SparkSession, broker: TestBroker, client: Client, feeding: Feeding, topic: str
) -> None:
    count = 1_000_000
    client.create(topic, 4)
    numbers = spark.range(count).select(
        F.lit(topic).alias("topic"),
        (F.col("id") % 4).cast("int").alias("partition"),
        F.col("id").cast("string").alias("value"),
    )
    numbers.write.format("kafka").option("kafka.bootstrap.servers", broker.servers).save()
    pipeline = feeding(topic)
    assert run(pipeline).taken == count
    raw = pipeline.lake.raw_records
    rows = raw.fetch(raw.files(), "partition", "offset", "value")
    assert rows.num_rows == count
    assert rows.group_by(["partition", "offset"]).aggregate([]).num_rows == count
    ingested = np.sort(rows["value"].cast(pa.string()).cast(pa.int64()).to_numpy())
    assert (ingested == np.arange(count)).all()
    client.delete(topic)
