"""`cdc-assets record` and `cdc-assets replay`: a topic comes back as it was."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_assets import cli
from cdc_assets.stages import INGEST
from cdc_assets_tests.broker import Client, TestBroker
from cdc_assets_tests.support import RECORDED, Chain, read_lines, record, rows_in

Feeding = Callable[..., Chain]


@pytest.fixture
def feeds(broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write the feeds file; the arguments are settings of the feed's source.kafka, as YAML."""

    def write(topics: str) -> None:
        source = f"kafka: {{bootstrap_servers: '{broker.servers}', {topics}}}"
        feeds = {"f": source, "files": "recorded: x"}
        feed_texts = ", ".join(f"{name}: {{protocol: canal-json, source: {{{each}}}}}" for name, each in feeds.items())
        (tmp_path / "feeds.yaml").write_text(f"feeds: {{{feed_texts}}}")
        monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))

    return write


def every_record(it: Chain) -> list[dict[str, Any]]:
    """Return the records without what a broker sets again."""
    INGEST.run(it.lake, it.feed)
    rows = sorted(rows_in(it.lake.raw_records, it.lake.spark), key=lambda r: (r["topic"], r["partition"], r["offset"]))
    return [{c: r[c] for c in ("topic", "partition", "key", "value", "headers")} for r in rows]


def lines_of(file: Path) -> list[dict[str, Any]]:
    return read_lines(file.parent / file.name.partition(".")[0])


def test_recorded_replayed_and_recorded_again(
    feeds: Callable[..., None],
    client: Client,
    feeding: Feeding,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    original = [r | {"topic": topic} for r in read_lines(RECORDED / "ticdc/canal-json_ext/nopk")]
    original += [
        record(None, 1, topic=topic, headers=[("h", bytes(range(256))), ("h", b"")]),
        record(b"", 0, topic=topic, key=b""),
    ]
    client.create(topic, 1 + max(r["partition"] for r in original))
    client.send(original)
    feeds(f"topics: [{topic}]")
    first, again = tmp_path / "first/all.jsonl.gz", tmp_path / "again/all.jsonl"
    assert cli.main(["record", "f", str(first)]) == 0
    assert capsys.readouterr().out == f"{len(original)} records written to {first}\n"
    assert [p.name for p in first.parent.iterdir()] == ["all.jsonl.gz"]

    def content(lines: list[dict[str, Any]], partition: int) -> list[tuple[Any, ...]]:
        mine = [r for r in lines if r["partition"] == partition]
        return [(r["timestamp"], r["key"], r["value"], r["headers"] or []) for r in mine]

    recorded = lines_of(first)
    for partition in {r["partition"] for r in original}:
        assert content(recorded, partition) == content(original, partition)
        offsets = [r["offset"] for r in recorded if r["partition"] == partition]
        assert offsets == list(range(len(offsets)))

    assert cli.main(["replay", "f", str(first.parent), "--prefix", "copy."]) == 1
    assert f"too few partitions: copy.{topic}; create them first" in capsys.readouterr().err
    assert cli.main(["replay", "f", str(first.parent), "--prefix", "copy.", "--create"]) == 0
    assert capsys.readouterr().out == f"{len(original)} records to copy.{topic}\n"
    assert cli.main(["record", "f", str(again), "--topic", f"copy.{topic}"]) == 0

    def untimed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v for k, v in r.items() if k not in {"timestamp", "topic"}} for r in lines]

    assert untimed(lines_of(again)) == untimed(recorded)
    # A feed that reads the file holds what a feed that reads the broker holds.
    files = Chain(feeding(topic).lake.spark, tmp_path / "files")
    files.add(recorded)
    assert every_record(files) == every_record(feeding(topic))


def test_a_part_of_a_topic(
    feeds: Callable[..., None], client: Client, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create(topic, 2)
    client.send(
        [record(b"%d" % n, p) | {"timestamp": 1_700_000_000_000 + n} for p in (0, 1) for n in range(6)], topic=topic
    )
    feeds("topic_pattern: 'no such topic'")
    file = tmp_path / "some.jsonl"
    assert cli.main(["record", "f", str(file), "--range", f"{topic}:0:2-4", "--range", f"{topic}:1:5-6"]) == 0
    assert [(r["partition"], r["offset"]) for r in lines_of(file)] == [(0, 2), (0, 3), (1, 5)]
    assert cli.main(["record", "f", str(file), "--range", f"{topic}:0:2-4"]) == 1
    assert "the file exists" in capsys.readouterr().err
    file.unlink()
    instants = ["--from", "2023-11-14T22:13:20.002Z", "--to", "2023-11-14T22:13:20.004Z"]
    assert cli.main(["record", "f", str(file), "--topic", topic, *instants]) == 0
    assert [(r["partition"], r["offset"]) for r in lines_of(file)] == [(0, 2), (0, 3), (1, 2), (1, 3)]
    capsys.readouterr()
    for wrong, message in [
        (["--range", f"{topic}:0:2-7"], f"{topic} partition 0: offsets 2 to 7 are not available; available are 0 to 6"),
        (["--range", "x"], '"x" is not a range of the form topic:partition:start-end'),
        (["--topic", "nowhere"], "has no topic nowhere"),
    ]:
        assert cli.main(["record", "f", str(tmp_path / "none.jsonl"), *wrong]) == 1
        assert message in capsys.readouterr().err
    assert cli.main(["record", "f", str(tmp_path / "none.jsonl")]) == 0
    assert capsys.readouterr().out == "There are no such records; nothing was written.\n"
    assert not (tmp_path / "none.jsonl").exists()


def test_a_feed_without_a_broker(
    feeds: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feeds("topics: [t]")
    for name in ("files", "nobody"):
        assert cli.main(["replay", name, str(tmp_path)]) == 1
        assert (
            capsys.readouterr().err
            == f"{name}: the feeds file has no such feed with source.kafka; its feeds: f, files\n"
        )


@pytest.mark.usefixtures("spark")  # the command would start a session with other jars than later tests need
def test_snapshots_that_cannot_be_replayed(
    feeds: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feeds("topics: [t]")
    assert cli.main(["replay", "f", str(tmp_path / "nowhere")]) == 1
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/a.jsonl").write_text("no record\n")
    assert cli.main(["replay", "f", str(tmp_path / "bad")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "no such folder" in lines[0]
    assert "some lines are not records" in lines[1]


@pytest.mark.fast
@pytest.mark.parametrize(("command", "message"), [([], "record"), (["record"], "--range"), (["replay"], "--prefix")])
def test_help(command: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cdc_assets", *command, "--help"], capture_output=True, text=True, check=True
    )
    assert message in done.stdout
