"""Recorded snapshots: lines that are not records, and repeated records."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.assets.checks.conservation import records_taken
from cdc_assets.lakehouse.quarantine import MESSAGES, Reason
from cdc_assets.sources.recorded import locate_lines, snapshot_files
from cdc_assets.stages import INGEST
from cdc_assets.stages.ingest import IngestReport
from cdc_assets_tests.support import TOPIC, Chain, Rows, Stream, ddl, delta_versions, record, rows_in, tso

GOOD = record(b"value", 0, 1)


def line(**changes: Any) -> str:
    return json.dumps(GOOD | changes)


# Lines that are not Kafka records in the form of a recorded snapshot.
BAD_LINES = [
    "no JSON",
    '{"topic": "cut',
    "[]",
    "1",
    "null",
    "{}",
    json.dumps({k: v for k, v in GOOD.items() if k != "topic"}),
    json.dumps({k: v for k, v in GOOD.items() if k != "partition"}),
    json.dumps({k: v for k, v in GOOD.items() if k != "offset"}),
    json.dumps({k: v for k, v in GOOD.items() if k != "timestamp"}),
    line(topic=None),
    line(partition=-1),
    line(partition="0"),
    line(offset=-1),
    line(offset=2**63),
    line(offset=1.5),
    line(timestamp="yesterday"),
    line(value="not base64!"),
    line(key="*"),
    line(headers="x"),
    line(headers=[{"key": "h", "value": "*"}]),
]


def run(pipeline: Chain) -> IngestReport:
    return INGEST.run(pipeline.lake, pipeline.feed)


def ingested_records(pipeline: Chain) -> list[tuple[int, int, int, bytes | None]]:
    rows = rows_in(pipeline.lake.raw_records, pipeline.lake.spark)
    return sorted((r["partition"], r["offset"], r["batch"], r["value"]) for r in rows)


def bad_lines(pipeline: Chain) -> list[tuple[str, int, bytes]]:
    return sorted((q["file"], q["line"], q["value"]) for q in pipeline.quarantine())


def test_lines_that_are_not_records_are_quarantined_with_file_and_line(chain: Callable[..., Chain]) -> None:
    """In plain and compressed files, between blank lines and records; each line once, also if a file is read again."""
    pipeline = chain()
    pipeline.add([])
    text = "\n".join(["", json.dumps(GOOD), *BAD_LINES, "   ", json.dumps(GOOD | {"offset": 2}), ""])
    (pipeline.snapshots / "a.jsonl").write_text(text, "utf-8")
    pipeline.add([record(b"x", 1, n) for n in range(3)], "b.jsonl.gz")
    packed = pipeline.snapshots / "c.jsonl.gz"
    pipeline.add([record(b"y", 2, 0), {"not": "a record"}, record(b"y", 2, 1), {"not": "a record"}], packed.name)
    (pipeline.snapshots / "notes.txt").write_text("not a snapshot")
    report = run(pipeline)
    lost = json.dumps({"not": "a record"}).encode()
    # line 1 is blank, 2 is good
    expected = [("a.jsonl", n, bad.encode()) for n, bad in enumerate(BAD_LINES, start=3)]
    expected += [("c.jsonl.gz", 2, lost), ("c.jsonl.gz", 4, lost)]
    assert bad_lines(pipeline) == sorted(expected)
    for row in pipeline.quarantine():
        assert (row["stage"], row["reason"], row["batch"]) == ("ingest", "not_a_record", 1)
        assert row["message"] == MESSAGES[Reason.NOT_A_RECORD]
        assert row["topic"] is row["partition"] is row["offset"] is None
    assert [record[:2] for record in ingested_records(pipeline)] == [
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
        (2, 1),
    ]
    assert (report.lines, report.records, report.quarantined) == (7 + len(expected), 7, len(expected))
    assert (report.held_before, report.taken) == (0, 7)
    assert report.files == ["0000.jsonl", "a.jsonl", "b.jsonl.gz", "c.jsonl.gz"]


def test_a_record_is_ingested_once(chain: Callable[..., Chain]) -> None:
    """With overlapping files, a file that grew, a record twice in a file, and offsets in any order."""
    pipeline = chain()
    pipeline.add([record(b"10", 0, 10), record(b"11", 0, 11), record(b"11", 0, 11)], "a.jsonl")
    first = run(pipeline)
    assert (first.lines, first.records, first.held_before, first.taken) == (3, 2, 0, 2)
    assert first.held == {TOPIC: {"0": [10, 11]}}
    # overlaps with a, and has what lies before and after it, and another partition with the same offsets
    pipeline.add([record(b"11", 0, 11), record(b"12", 0, 12), record(b"5", 0, 5), record(b"p1", 1, 10)], "b.jsonl.gz")
    second = run(pipeline)
    assert (second.batch, second.files, second.lines) == (2, ["b.jsonl.gz"], 4)
    assert (second.records, second.held_before, second.taken) == (4, 1, 3)
    assert second.offsets == {TOPIC: {"0": [5, 12], "1": [10, 10]}}
    assert second.held == {TOPIC: {"0": [5, 12], "1": [10, 10]}}
    # grows, by a record in a gap and one of another topic
    pipeline.add([record(b"10", 0, 10), record(b"7", 0, 7), record(b"other", 0, 7, topic="other")], "a.jsonl")
    third = run(pipeline)
    assert (third.files, third.records, third.held_before, third.taken) == (["a.jsonl"], 3, 1, 2)
    assert third.held == {TOPIC: {"0": [5, 12], "1": [10, 10]}, "other": {"0": [7, 7]}}
    assert ingested_records(pipeline) == [
        (0, 5, 2, b"5"),
        (0, 7, 3, b"7"),
        (0, 7, 3, b"other"),
        (0, 10, 1, b"10"),
        (0, 11, 1, b"11"),
        (0, 12, 2, b"12"),
        (1, 10, 2, b"p1"),
    ]


def test_the_first_of_two_records_with_equal_coordinates_stays(chain: Callable[..., Chain]) -> None:
    """The values or keys differ, which no broker produces: the ingested record is not replaced, the other is reported."""
    pipeline = chain()
    pipeline.add([record(b"first", 0, 1), record(b"same", 0, 2), record(None, 0, 3, key=b"k")])
    run(pipeline)
    pipeline.add([record(b"second", 0, 1), record(b"same", 0, 2), record(b"same", 0, 2), record(None, 0, 3)])
    report = run(pipeline)
    assert (report.records, report.held_before, report.quarantined, report.in_quarantine) == (3, 3, 2, 2)
    assert records_taken(report).passed
    assert ingested_records(pipeline) == [(0, 1, 1, b"first"), (0, 2, 1, b"same"), (0, 3, 1, None)]
    reported = [(r["reason"], r["offset"], r["key"], r["value"]) for r in pipeline.quarantine()]
    assert reported == [("offset_taken", 1, None, b"second"), ("offset_taken", 3, None, None)]
    pipeline.add([record(b"a", 0, 9), record(b"b", 0, 9)])
    report = run(pipeline)
    assert (report.taken, report.quarantined, report.in_quarantine) == (1, 1, 1)


def test_records_are_ingested_unchanged(chain: Callable[..., Chain]) -> None:
    pipeline = chain()
    every_byte = bytes(range(256))
    headers = [("h", b"\x00\xff"), ("h", b""), ("ü", b"x")]
    pipeline.add(
        [
            record(None, 0, 0),
            record(b"", 0, 1, key=b""),
            record(every_byte, 0, 2, key=every_byte, headers=headers),
            {k: v for k, v in record(b"v", 0, 3).items() if k != "headers"},
            record(b"v", 0, 2**63 - 1) | {"timestamp": 1_700_000_000_123},
        ]
    )
    run(pipeline)
    rows = {r["offset"]: r for r in rows_in(pipeline.lake.raw_records, pipeline.lake.spark)}
    assert [(rows[n]["key"], rows[n]["value"]) for n in range(3)] == [
        (None, None),
        (b"", b""),
        (every_byte, every_byte),
    ]
    assert rows[2]["headers"] == [{"key": k, "value": v} for k, v in headers]
    assert (rows[0]["headers"], rows[3]["headers"]) == ([], None)
    assert rows[2**63 - 1]["timestamp"] == "2023-11-14 22:13:20.123000"
    assert all((r["topic"], r["partition"], r["batch"]) == (TOPIC, 0, 1) for r in rows.values())
    assert pipeline.quarantine() == []


def test_with_nothing_new_no_table_gets_a_commit(chain: Callable[..., Chain]) -> None:
    pipeline, rows, stream = chain(), Rows(), Stream()
    stream.send(ddl("CREATE TABLE `shop`.`orders` (`id` BIGINT PRIMARY KEY,`v` VARCHAR(20))", tso(1)))
    stream.send(rows.insert(tso(2), 1, "a"))
    stream.send(b"{")
    stream.watermark(tso(3))
    path = pipeline.add(stream.records)
    pipeline.run()
    before = delta_versions(pipeline.lake)
    assert before.keys() == {
        "raw_records/f",
        "change_events/f",
        "table_schemas/f",
        "type_observations/f",
        "released_changes/f",
        "quarantine/f",
        "history/f/shop/orders",
    }
    report = pipeline.run()
    assert delta_versions(pipeline.lake) == before
    assert (report.ingest.batch, report.release.release, report.history) == (None, None, [])
    # A file that was touched is read again, and still brings nothing into the tables after the first.
    path.touch()
    report = pipeline.run()
    assert (report.ingest.taken, report.ingest.held_before) == (0, len(stream.records))
    assert len(rows_in(pipeline.lake.change_events, pipeline.lake.spark)) == len(stream.records)
    assert len(pipeline.history()) == 1


@pytest.mark.fast
def test_snapshot_files_are_selected_by_name(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "c.json", "d.jsonl.tmp", ".jsonl"):
        (tmp_path / name).write_text("x" * len(name))
    files = snapshot_files(str(tmp_path))
    assert list(files) == [".jsonl", "a.jsonl.gz", "b.jsonl"]
    assert files["b.jsonl"] == [7, (tmp_path / "b.jsonl").stat().st_mtime_ns]


@pytest.mark.fast
def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        snapshot_files(str(tmp_path / "nowhere"))


@pytest.mark.fast
def test_lines_are_located_by_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"bad\ngood\n\nbad\r\nbad")
    located = locate_lines(str(tmp_path), {"a.jsonl": {b"bad", b"bad\r"}})
    assert [(f["line"], f["value"]) for f in located] == [(1, b"bad"), (4, b"bad\r"), (5, b"bad")]
