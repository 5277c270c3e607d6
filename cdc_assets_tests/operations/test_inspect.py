"""Run `cdc-assets inspect` and `init` on topics of every recorded encoder, and on mixed and broken topics."""

import base64
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from cdc_assets import cli
from cdc_assets.config import Kafka, load_feeds
from cdc_assets.operations.inspect.samples import SampledHeader, SampledRecord, TopicSample, sample_folder
from cdc_assets.operations.inspect.topics import inspect_topics
from cdc_assets.sources.broker import Broker
from cdc_assets_tests.broker import TestBroker
from cdc_assets_tests.registry import CONFLUENT, NATIVE, SET, recorded_answers, running_registry
from cdc_assets_tests.support import RECORDED, Record, read_lines

CLAIMS = "file:///srv/claims/out/public/claimcheck-files"
# The settings of the senders when they were recorded: recorded/README.md.
SETTINGS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "canal-json": ("canal-json", {"tidb_extension": False}, set()),
    "canal-json_ext": ("canal-json", {"tidb_extension": True}, set()),
    "canal-json_ext_claim-check": ("canal-json", {"tidb_extension": True, "claim_check": CLAIMS}, set()),
    "canal-json_ext_content-compatible": (
        "canal-json",
        {"tidb_extension": True},
        {"content-compatible", "only-output-updated-columns"},
    ),
    "canal-json_ext_delete-handle-only": (
        "canal-json",
        {"tidb_extension": True},
        {"delete-only-output-handle-key-columns"},
    ),
    "canal-json_ext_handle-key-only": (
        "canal-json",
        {"tidb_extension": True},
        {"large-message-handle-option: handle-key-only"},
    ),
    "canal-json_ext_lz4": ("canal-json", {"tidb_extension": True}, {"compression: lz4"}),
    "canal-json_ext_only-updated": ("canal-json", {"tidb_extension": True}, {"only-output-updated-columns"}),
    "canal117-flat": ("canal-json", {"tidb_extension": False}, set()),
    "canal117-flat-dyn3-shanghai": ("canal-json", {"tidb_extension": False}, set()),
    "canal117-flat-gtid": ("canal-json", {"tidb_extension": False}, set()),
    "debezium": ("debezium", {}, {"schemas.enable=true"}),
    "debezium_ext_noschema": ("debezium", {}, {"schemas.enable=false"}),
    "dbz195-double-connect": ("debezium", {}, {"time.precision.mode=connect"}),
    "dbz195-noschemas-tx": ("debezium", {}, {"schemas.enable=false", "provide.transaction.metadata=true"}),
    "dbz195-schemas": ("debezium", {}, {"schemas.enable=true", "decimal.handling.mode=precise", "tombstones"}),
    "dbz350m-incremental": ("debezium", {}, {"schema-change topic"}),
    "dbz350m-noschemas-tx": ("debezium", {}, {"schemas.enable=false", "provide.transaction.metadata=true"}),
    "dbz350m-string-hex": ("debezium", {}, {"schemas.enable=true"}),
    "open-protocol": ("open-protocol", {}, {"batches of events"}),
    "open-protocol_batch1": ("open-protocol", {}, set()),
    "open-protocol_claim-check": ("open-protocol", {"claim_check": CLAIMS}, set()),
    "open-protocol_delete-handle-only": ("open-protocol", {}, {"delete-only-output-handle-key-columns"}),
    "open-protocol_handle-key-only": ("open-protocol", {}, {"large-message-handle-option: handle-key-only"}),
    "open-protocol_only-updated": ("open-protocol", {}, {"only-output-updated-columns"}),
    "simple-avro": ("simple", {"encoding": "avro"}, set()),
    "simple-avro_checksum": ("simple", {"encoding": "avro"}, {"integrity-check-level"}),
    "simple-avro_claim-check": ("simple", {"encoding": "avro", "claim_check": CLAIMS}, set()),
    "simple-json": ("simple", {"encoding": "json"}, set()),
    "simple-json_checksum": ("simple", {"encoding": "json"}, {"integrity-check-level"}),
    "simple-json_claim-check": ("simple", {"encoding": "json", "claim_check": CLAIMS}, set()),
}
Lines = list[Record]


def folder_of(configuration: str, into: Path) -> Path:
    """Return a folder with all snapshots of one encoder's configuration, each scenario in topics of its own."""
    (recorded,) = RECORDED.glob(f"*/{configuration}")
    into.mkdir()
    for stream in sorted({path.name.partition(".")[0] for path in recorded.iterdir()}):
        lines = [r | {"topic": f"{stream}.{r['topic']}"} for r in read_lines(recorded / stream)]
        (into / f"{stream}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return into


@pytest.mark.parametrize("configuration", SETTINGS)
def test_every_recorded_encoder_is_recognised(configuration: str, tmp_path: Path) -> None:
    reports = inspect_topics(sample_folder(folder_of(configuration, tmp_path / "recorded"), 1000, (), None))
    protocol, settings, switches = SETTINGS[configuration]
    assert {report.protocol for report in reports} == {protocol}
    claims = {"claim_check"} & settings.keys()
    for report in reports:  # a claim shows only in topics that have one
        assert {k: v for k, v in report.settings.items() if k not in claims} == {
            k: v for k, v in settings.items() if k not in claims
        }
    assert {report.settings.get("claim_check") for report in reports} >= {settings.get("claim_check")}
    assert switches <= {switch for report in reports for switch in report.switches}
    assert any(table["columns"] for report in reports for table in report.tables)
    assert not any("sets of columns" in p.problem for report in reports for p in report.problems)


@pytest.mark.parametrize(
    ("configuration", "asks"),
    [("dbz350m-noschemas-tx", True), ("dbz350m-schemas", False), ("debezium_ext_noschema", False)],
)
def test_messages_without_a_schema_ask_for_the_connectors_settings(
    configuration: str,
    asks: bool,
    tmp_path: Path,
) -> None:
    reports = inspect_topics(sample_folder(folder_of(configuration, tmp_path / "recorded"), 1000, (), None))
    advice = [p.advice for report in reports if "row" in report.kinds for p in report.problems]
    assert any("connector_settings" in each for each in advice) == asks


def test_tables_keys_types_and_watermarks(tmp_path: Path) -> None:
    """The expected watermark and columns are those of recorded/README.md and of the recorded DDL."""
    for configuration, types in (
        ("canal-json_ext", {"id": "bigint"}),
        ("open-protocol", {"id": "bigint"}),
        ("simple-json", {"id": "bigint"}),
    ):
        reports = inspect_topics(sample_folder(folder_of(configuration, tmp_path / configuration), 1000, (), None))
        tables = {(t["database"], t["table"]): t for report in reports for t in report.tables}
        large = tables["shop", "docs_c_"]
        assert large["key"] == ["id"]
        assert {**large["columns"], **types} == large["columns"]
        assert set(large["columns"]) == {"id", "title", "body"}
        assert all(report.watermarks for report in reports if "watermark" in report.kinds)


def test_missing_topics_and_settings_are_reported(tmp_path: Path) -> None:
    folder = folder_of("dbz195-schemas", tmp_path / "recorded")
    reports = inspect_topics(sample_folder(folder, 100, (), r"customers\..*dbz_shop\.customers"))
    (problem,) = [p for report in reports for p in report.problems if "schema-change topic" in p.problem]
    assert "mysql-server-1" in problem.advice
    (plain,) = inspect_topics(sample_folder(folder_of("canal-json", tmp_path / "plain"), 100, (), r"orders\..*"))
    assert any("enable-tidb-extension=true" in p.advice for p in plain.problems)


def test_partial_row_images_are_reported() -> None:
    case = Path(__file__).parents[1] / "cases" / "canal_minimal"
    reports = inspect_topics(sample_folder(case / "snapshots", 100, (), None)) if (case / "snapshots").is_dir() else []
    records = [sampled(line) for path in sorted(case.rglob("*.jsonl")) for line in lines_of(path)]
    (report,) = reports or inspect_topics([TopicSample("t", 1, tuple(r for r in records if r is not None))])
    assert any(
        "row images are not complete" in p.problem and "binlog_row_image=FULL" in p.advice for p in report.problems
    )


def lines_of(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def sampled(line: Record) -> SampledRecord | None:
    if "offset" not in line:
        return None
    key, value = (None if line[name] is None else base64.b64decode(line[name]) for name in ("key", "value"))
    return SampledRecord(line["topic"], line["partition"], line["offset"], key, value)


BASES = ("canal-json_ext/orders", "open-protocol/orders", "simple-json/nopk", "simple-avro/nopk", "debezium/nopk")
FOREIGN = [
    b"",
    b"plain text",
    b"{}",
    b"[1, 2]",
    b'{"id": 7, "name": "a row"}',
    b"\x00\x00\x00\x00\x07\x02\x0a",
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x07row",
    b"\x16",
    b"\xff\xfe\x00",
    b'{"type": "INSERT", "database": 3',
]


def cut(value: bytes, rng: random.Random) -> bytes:
    return value[: rng.randrange(1, max(len(value) - 1, 2))]


def mixed(rng: random.Random, number: int) -> tuple[list[SampledRecord], bool]:
    """Return records of one topic in which something is wrong, and whether the protocol can still be recognised."""
    streams = rng.sample(BASES, 2)
    first, second = (read_lines(RECORDED / "ticdc" / stream)[:20] for stream in streams)
    records = [r for r in map(sampled, first) if r is not None]
    kind = number % 4
    if kind == 0:  # two protocols in one topic
        other = sampled(rng.choice(second))
        assert other is not None
        return [*records, other], False
    if kind == 1:  # a message that is cut
        victim = rng.choice([r for r in records if r.value])
        key = None if victim.key is None else victim.key
        assert victim.value is not None
        return [*records, SampledRecord("t", 0, 10_000, key, cut(victim.value, rng))], False
    if kind == 2:  # something else altogether
        return [*records, SampledRecord("t", 0, 10_000, None, rng.choice(FOREIGN))], False
    return [*records, SampledRecord("t", 0, 10_000, b"k", None)], True  # a tombstone is of any protocol


@pytest.mark.parametrize("block", range(4))
def test_wrong_and_mixed_topics_are_reported_and_never_guessed(block: int) -> None:
    rng = random.Random(block)
    for number in range(50):
        records, is_recognised = mixed(rng, number)
        (report,) = inspect_topics([TopicSample("t", 3, tuple(records))])
        assert (report.protocol is not None) == is_recognised, (block, number)
        assert bool(report.protocol) or any("several kinds" in p.problem for p in report.problems), (block, number)


@pytest.mark.parametrize("value", FOREIGN, ids=range(len(FOREIGN)))
def test_an_unknown_topic_has_no_protocol_and_a_reason(value: bytes) -> None:
    (report,) = inspect_topics([TopicSample("t", 1, (SampledRecord("t", 0, 5, None, value),))])
    assert (report.protocol, report.settings, report.tables) == (None, {}, [])
    (problem,) = report.problems
    assert "partition 0 offset 5" in problem.problem
    if value[:1] == b"\x00":
        assert "schema registry" in problem.problem


def test_init_writes_a_feeds_file_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of("simple-avro", tmp_path / "recorded")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    assert cli.main(["init", "--recorded", str(folder)]) == 0
    assert sorted(path.name for path in home.iterdir()) == ["dagster.yaml", "feeds.yaml", "workspace.yaml"]
    (feed,) = load_feeds(home / "feeds.yaml").feeds.values()
    assert (feed.protocol, feed.encoding, feed.source.recorded) == ("simple", "avro", str(folder))
    before = (home / "feeds.yaml").read_text()
    capsys.readouterr()
    assert cli.main(["init", "--recorded", str(folder)]) == 1
    assert "has feeds.yaml, dagster.yaml, workspace.yaml already" in capsys.readouterr().err
    assert (home / "feeds.yaml").read_text() == before


def test_files_of_a_new_project_are_those_of_this_one() -> None:
    root = Path(__file__).parents[2]
    for name in ("dagster.yaml", "workspace.yaml"):
        template = root / "cdc_assets" / "operations" / "inspect" / "templates" / name
        assert template.read_text() == (root / name).read_text()


# The primary keys that the CREATE statements of the scenario `extra` state.
EXTRA_KEYS = {"child": ["id"], "docs": ["id"], "docs_json": ["id"], "parent": ["id"], "trg_log": ["id"]}


@pytest.mark.parametrize(
    ("wire_format", "api"),
    [
        ("confluent", CONFLUENT),
        pytest.param("native", NATIVE, marks=pytest.mark.extended),
        ("headers", NATIVE),
    ],
)
def test_records_in_avro_state_what_their_json_states(
    wire_format: str, api: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def inspected(recorded: Path, *arguments: str) -> list[dict[str, Any]]:
        folder = tmp_path / recorded.parent.name
        folder.mkdir(exist_ok=True)
        (folder / "extra.jsonl").write_text("".join(json.dumps(line) + "\n" for line in read_lines(recorded)))
        assert cli.main(["inspect", "--recorded", str(folder), "--json", *arguments]) == 0
        topics: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["topics"]
        return topics

    as_json = inspected(RECORDED / "mysql/dbz350m-schemas/extra")
    without = inspected(SET / f"extra-{wire_format}")
    assert all(each["protocol"] is None and "--schema-registry" in each["problems"][0]["advice"] for each in without)
    monkeypatch.setenv("LOGIN", "me:secret")
    option = "basic.auth.user.info=${LOGIN}"
    with running_registry(recorded_answers()) as registry:
        arguments = ["--schema-registry", registry.url + api, "--schema-registry-option", option]
        topics = inspected(SET / f"extra-{wire_format}", *arguments)
        assert all("Authorization" in headers for _, headers in registry.asked)
        assert len(registry.paths) == len(set(registry.paths))
        monkeypatch.chdir(tmp_path)
        assert cli.main(["init", "--recorded", str(tmp_path / SET.name), *arguments]) == 0
        settings = {"url": registry.url + api, "options": {"basic.auth.user.info": "${LOGIN}"}}
        (written,) = yaml.safe_load((tmp_path / "feeds.yaml").read_text())["feeds"].values()
        assert (written["protocol"], written["encoding"], written["schema_registry"]) == ("debezium", "avro", settings)
        (feed,) = load_feeds(tmp_path / "feeds.yaml").feeds.values()
        assert feed.schema_registry is not None
    same = ("topic", "dialect", "kinds", "source", "tables", "problems", "watermarks", "cannot_tell")
    assert [{name: each[name] for name in same} for each in topics] == [
        {name: each[name] for name in same} for each in as_json
    ]
    assert all(each["settings"] == {"encoding": "avro", "schema_registry": settings} for each in topics)
    assert all(set(each["switches"]) <= set(json_["switches"]) for each, json_ in zip(topics, as_json, strict=True))
    keys = {table["table"]: table["key"] for each in topics for table in each["tables"]}
    assert keys == EXTRA_KEYS


def test_json_with_a_header_of_a_registry_is_json() -> None:
    record = next(r for r in map(sampled, read_lines(RECORDED / "mysql/dbz350m-schemas/extra")) if r and r.value)
    header = SampledHeader("apicurio.value.globalId", bytes(7) + b"\x07")
    (report,) = inspect_topics([TopicSample("t", 1, (replace(record, headers=(header,)),))])
    assert (report.protocol, report.settings) == ("debezium", {})


MARKER = [("status", "string"), ("id", "string"), ("event_count", ["null", "long"]), ("ts_ms", "long")]


def test_avro_that_cannot_be_decoded_has_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = next(r for r in read_lines(SET / "extra-confluent") if r["value"] and "parent" in r["topic"])
    complete = base64.b64decode(row["value"])
    marker = {"type": "record", "name": "M", "fields": [{"name": name, "type": each} for name, each in MARKER]}
    values = {
        "cut": complete[:-1],
        "unknown": b"\x00\x00\x00\x03\x84" + complete[5:],
        "marker": b"\x00\x00\x00\x03\x85\x0aBEGIN\x02a\x00\x02",
    }
    lines = [row | {"topic": n, "offset": 7, "value": base64.b64encode(v).decode()} for n, v in values.items()]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    answers = recorded_answers() | {f"{CONFLUENT}/schemas/ids/901": json.dumps({"schema": json.dumps(marker)})}
    monkeypatch.chdir(tmp_path)
    with running_registry(answers) as registry:
        arguments = ["inspect", "--recorded", str(tmp_path), "--json", "--schema-registry", registry.url + CONFLUENT]
        assert cli.main(arguments) == 0
        topics = {each["topic"]: each for each in json.loads(capsys.readouterr().out)["topics"]}
        registry.status = 503
        assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert "503" in error
    assert error.count("\n") == 1
    number = int.from_bytes(complete[1:5], "big")
    problems = {name: "".join(p["problem"] for p in topics[name]["problems"]) for name in ("cut", "unknown")}
    assert f"(malformed_avro): the value's schema id is {number}" in problems["cut"]
    assert "(unknown_schema): the value's schema id is 900" in problems["unknown"]
    assert "partition 0 offset 7" in problems["unknown"]
    assert (topics["marker"]["protocol"], topics["marker"]["kinds"]) == ("debezium", {"transaction": 1})


def sent(broker: TestBroker, topic: str, lines: Lines) -> None:
    with Broker(Kafka(bootstrap_servers=broker.servers, topics=(topic,))) as asked:
        asked.create_topics({topic: 2})
    producer = Producer({"bootstrap.servers": broker.servers})
    for number, line in enumerate(lines):
        key, value = (None if line[name] is None else base64.b64decode(line[name]) for name in ("key", "value"))
        # The client would put as many records as it gets within some milliseconds into one partition.
        producer.produce(topic, value=value, key=key, partition=number % 2)
    assert producer.flush(30) == 0


def test_topics_of_a_broker(
    broker: TestBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent(broker, f"{topic}-canal", read_lines(RECORDED / "ticdc/canal-json_ext/orders"))
    sent(broker, f"{topic}-avro", read_lines(RECORDED / "ticdc/simple-avro/nopk"))
    sent(broker, f"{topic}-dbz", read_lines(RECORDED / "mysql/dbz195-noschemas-tx/customers"))
    asked = ["--kafka", broker.servers, "--topic-pattern", f"{topic}-.*"]
    assert cli.main(["inspect", *asked, "--records", "40", "--json"]) == 0
    topics = {each["topic"]: each for each in json.loads(capsys.readouterr().out)["topics"]}
    assert {name: (each["protocol"], each["settings"]) for name, each in topics.items()} == {
        f"{topic}-canal": ("canal-json", {"tidb_extension": True}),
        f"{topic}-avro": ("simple", {"encoding": "avro"}),
        f"{topic}-dbz": ("debezium", {}),
    }
    assert all(each["records"] == 40 * each["partitions"] for name, each in topics.items() if name.endswith("canal"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", *asked]) == 0
    feeds = load_feeds(tmp_path / "feeds.yaml").feeds
    assert sorted(feed.protocol for feed in feeds.values()) == ["canal-json", "debezium", "simple"]
    assert all(feed.source.kafka is not None for feed in feeds.values())
    assert yaml.safe_load((tmp_path / "workspace.yaml").read_text())
    capsys.readouterr()
    assert cli.main(["inspect", "--kafka", broker.servers, "--topic", "nowhere"]) == 1
    assert capsys.readouterr().err.endswith("has no topic nowhere\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recorded", "nowhere"], "nowhere: no files *.jsonl or *.jsonl.gz there"),
        (["--kafka", "127.0.0.1:1", "--kafka-option", "security.protocol"], "expected NAME=VALUE"),
        (["--kafka", "127.0.0.1:1", "--kafka-option", "kafka.password=${NOT_SET_HERE}"], "NOT_SET_HERE is not set"),
        (["--kafka", "127.0.0.1:1", "--topic-pattern", "("], "topic_pattern"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["inspect", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_text_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    folder = folder_of("canal-json_ext", tmp_path / "recorded")
    assert cli.main(["inspect", "--recorded", str(folder), "--topic", "orders.cdc_public"]) == 0
    text = capsys.readouterr().out
    assert "TiCDC Canal-JSON with enable-tidb-extension (the field _tidb)" in text
    assert "tidb_extension: True" in text
    assert "watermark 0" in text
