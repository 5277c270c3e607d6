"""Records that do not fit the feed's settings: each is reported, with the settings that fit it."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.assets.checks.conservation import settings_fit_records
from cdc_assets.assets.checks.quarantine import nothing_quarantined
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.raw_records import RAW_RECORDS
from cdc_assets.protocols import protocol_of, recognize_settings
from cdc_assets.stages import DECODE, INGEST
from cdc_assets_tests.protocols import open_encoder as open_protocol
from cdc_assets_tests.protocols.debezium_encoder import envelope, source, with_schema
from cdc_assets_tests.protocols.simple_encoder import Table, watermark
from cdc_assets_tests.support import (
    RECORDED,
    Chain,
    Rows,
    Stream,
    bytes_of,
    ddl,
    frame_of_rows,
    make_feed,
    read_lines,
    tso,
)
from cdc_assets_tests.support import watermark as canal_watermark

Sent = tuple[bytes | None, bytes]  # key and value of a record


def text(*messages: Any) -> list[Sent]:
    return [(None, json.dumps(message).encode()) for message in messages]


ROW = Rows().insert(tso(1), 1, "a")
CREATE = ddl("CREATE TABLE `shop`.`orders` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20))", tso(1))
PLAIN = [{name: value for name, value in message.items() if name != "_tidb"} for message in (ROW, CREATE)]
TABLE = Table()
INSERTED = envelope("c", None, {"id": 1, "v": "a"}, source())
CHANGED = {
    "source": source(),
    "ts_ms": 1_700_000_000_500,
    "databaseName": "shop",
    "ddl": "CREATE TABLE t (id INT)",
    "tableChanges": [],
}
# settings -> records that are written under them
SENT: dict[str, list[Sent]] = {
    "protocol: canal-json": text(ROW, CREATE, canal_watermark(tso(2)), *PLAIN),
    "protocol: open-protocol": [
        open_protocol.message((open_protocol.row_key(1), {"u": {"id": open_protocol.key_column(1)}})),
        open_protocol.message(open_protocol.resolved(2)),
        open_protocol.message(open_protocol.ddl(3, "CREATE TABLE t1 (id INT)", 3)),
    ],
    "protocol: simple, encoding: json": text(
        TABLE.insert(tso(1), 1, "a"),
        TABLE.bootstrap(),
        TABLE.ddl("QUERY", "CREATE TABLE t (id INT)", tso(1)),
        watermark(tso(2)),
    ),
    "protocol: simple, encoding: avro": [
        (None, bytes_of(line)) for line in read_lines(RECORDED / "ticdc/simple-avro/large")
    ],
    "protocol: debezium, encoding: json": text(INSERTED, with_schema(INSERTED), CHANGED),
    "protocol: debezium, encoding: avro": [
        (None, bytes_of(line))
        for line in read_lines(RECORDED / "mysql/dbz350m-registry/extra-confluent")
        if line["value"]
    ],
}
FEEDS: dict[str, dict[str, Any]] = {
    "canal-json": {"protocol": "canal-json"},
    "canal-json, extended": {"protocol": "canal-json", "tidb_extension": True},
    "open-protocol": {"protocol": "open-protocol"},
    "simple": {"protocol": "simple"},
    "simple, avro": {"protocol": "simple", "encoding": "avro"},
    "debezium": {"protocol": "debezium"},
    "debezium, avro": {
        "protocol": "debezium",
        "encoding": "avro",
        "schema_registry": {"url": "http://registry.example"},
    },
}


def raw(spark: SparkSession, sent: list[Sent]) -> DataFrame:
    rows: list[tuple[Any, ...]] = [("t", 0, n, None, 1, key, value, [], None) for n, (key, value) in enumerate(sent)]
    return frame_of_rows(spark, rows, RAW_RECORDS.columns)


def own(settings: dict[str, Any]) -> str:
    """Return the settings of a feed that records show."""
    has_encodings = settings["protocol"] in {"simple", "debezium"}
    encoding = f", encoding: {settings.get('encoding', 'json')}" if has_encodings else ""
    return f"protocol: {settings['protocol']}{encoding}"


def test_each_record_is_recognised_unless_it_fits_the_feed(spark: SparkSession, tmp_path: Path) -> None:
    feeds = {name: make_feed(tmp_path, **settings) for name, settings in FEEDS.items()}
    sent = [(looks, each) for looks, records in SENT.items() for each in records]
    shown = raw(spark, [each for _, each in sent]).select(
        "offset", *[recognize_settings(f).alias(n) for n, f in feeds.items()]
    )
    recognized = {(r["offset"], name): r[name] for r in shown.collect() for name in feeds}
    assert recognized == {
        (n, name): None if looks == own(FEEDS[name]) else looks
        for (n, (looks, _)), name in product(enumerate(sent), FEEDS)
    }


@pytest.mark.parametrize("name", FEEDS)
def test_no_record_of_another_protocol_or_encoding_is_decoded(spark: SparkSession, tmp_path: Path, name: str) -> None:
    feed = make_feed(tmp_path, **FEEDS[name])
    others = [each for looks, records in SENT.items() if looks != own(FEEDS[name]) for each in records]
    events = protocol_of(feed).decode(raw(spark, others), feed)
    assert {r["kind"]: r["count"] for r in events.groupBy("kind").count().collect()} == {Kind.UNDECODABLE: len(others)}


def test_the_quarantine_names_the_settings_that_fit(chain: Callable[..., Chain]) -> None:
    made, sent = chain(protocol="debezium"), Stream(1)
    made.add([sent.send(ROW), sent.send({"a": 1})])
    INGEST.run(made.lake, made.feed)
    report = DECODE.run(made.lake, made.feed)
    assert (report.undecodable, report.in_quarantine) == (2, 2)
    hint = "the record looks like one of protocol: canal-json: set that in the feeds file, and run the job replay_quarantine"
    messages = {q["offset"]: q["message"] for q in made.quarantine()}
    assert hint in messages[0]
    assert "looks like" not in messages[1]
    assert not messages[1].endswith("()")
    verdict = nothing_quarantined(made.lake)
    assert any(hint in row["message"] for row in verdict.violations)


def test_messages_with_the_extension_in_a_feed_without_it_fail_a_check(chain: Callable[..., Chain]) -> None:
    """A row, a statement or a watermark shows the extension first; later runs remember it."""
    made, sent = chain(protocol="canal-json"), Stream(2)

    def run() -> Any:
        INGEST.run(made.lake, made.feed)
        return DECODE.run(made.lake, made.feed)

    made.add([sent.send(message) for message in PLAIN])
    denied = protocol_of(made.feed).denied_setting(made.feed)
    assert denied is not None
    first = run()
    assert settings_fit_records(first, "f", denied).passed
    made.add([sent.send(ROW), sent.send(canal_watermark(tso(2)), 1), sent.send(CREATE), *[sent.send(m) for m in PLAIN]])
    second = run()
    place = {"topic": sent.records[2]["topic"], "partition": 0, "offset": 2}
    assert (second.contradicting, second.contradiction) == (3, place)
    verdict = settings_fit_records(second, "f", denied)
    assert not verdict.passed
    assert "Set tidb_extension: true for the feed f" in verdict.description
    assert f"topic {place['topic']}, partition 0, offset 2" in verdict.description
    # A run without records, or with records that fit, still reports it; a run with more such records counts them.
    assert run().contradiction == place
    made.add([sent.send(PLAIN[0])])
    third = run()
    assert (third.contradicting, third.contradiction) == (3, place)
    made.add([sent.send(canal_watermark(tso(3)), 1)])
    fourth = run()
    assert (fourth.contradicting, fourth.contradiction) == (4, place)
    assert made.quarantine() == []


def test_with_the_extension_a_record_that_lacks_it_is_reported(chain: Callable[..., Chain]) -> None:
    made, sent = chain(protocol="canal-json", tidb_extension=True), Stream(1)
    assert protocol_of(made.feed).denied_setting(made.feed) is None
    made.add([sent.send(ROW), *[sent.send(m) for m in PLAIN]])
    INGEST.run(made.lake, made.feed)
    report = DECODE.run(made.lake, made.feed)
    assert (report.contradicting, report.contradiction) == (0, None)
    details = (
        made.lake.change_events.read(made.lake.spark).where(F.col("kind") == str(Kind.ROW)).select("detail").collect()
    )
    assert [r["detail"] for r in details] == [None]
    assert all("tidb_extension: false" in q["message"] for q in made.quarantine())
    assert len(made.quarantine()) == len(PLAIN)
