"""Run every recorded scenario of the Simple Protocol in both encodings, cut into runs, and from every offset on."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.laws.test_dialects import TICDC, check_states, check_versions, row_same, ticdc_types, truth
from cdc_assets_tests.support import Chain, Record, bytes_of, histories, read_lines, record

SCENARIOS = ["large", "nopk", "orders", "types", "tz"]
KEYLESS = "nokey"
# All scenarios are topics of one feed, as their tables differ; nopk_raw has the tables of nopk, and another test.
TOGETHER = [*SCENARIOS, KEYLESS]


def records_of(config: str) -> list[Record]:
    """Return the first and the second records of the scenarios, side by side."""
    streams = [[r | {"topic": s} for r in read_lines(TICDC / config / s)] for s in TOGETHER]
    placed = [(n / len(stream), r) for stream in streams for n, r in enumerate(stream)]
    return [r for _, r in sorted(placed, key=lambda p: p[0])]


@pytest.fixture(scope="module")
def json_in_one_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    made = Chain(spark, tmp_path_factory.mktemp("json"), protocol="simple", time_zone="Asia/Tokyo")
    made.add(records_of("simple-json"))
    assert made.run().types.wrong == []
    return made


@pytest.mark.fast
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_versions_are_the_recorded_truth(scenario: str, json_in_one_run: Chain) -> None:
    assert check_versions(json_in_one_run, scenario)


def test_rows_without_a_key_are_the_recorded_truth(json_in_one_run: Chain) -> None:
    check_states(json_in_one_run, KEYLESS)


def test_every_record_is_accounted_for(json_in_one_run: Chain) -> None:
    counts = conserved(json_in_one_run.lake, json_in_one_run.feed)
    assert (counts.undecodable, counts.late) == (0, 0)
    assert {q["reason"] for q in json_in_one_run.quarantine()} == {"zero_date"}


def test_avro_in_two_runs_makes_the_histories_of_json_in_one(
    json_in_one_run: Chain, spark: SparkSession, tmp_path: Path
) -> None:
    """The histories of both encodings are equal, column by column."""
    made = Chain(spark, tmp_path, protocol="simple", encoding="avro", time_zone="Asia/Tokyo")
    records = records_of("simple-avro")
    for part in (records[: len(records) // 2], records[len(records) // 2 :]):
        made.add(part)
        assert made.run().types.wrong == []
    conserved(made.lake, made.feed)
    assert histories(made.lake) == histories(json_in_one_run.lake)


# --- from the middle

DEFAULTS = {"added": "2020-02-02 02:02:02"}  # of the column that the scenario adds


def renamed(line: Record, database: str) -> Record:
    """Return a recorded JSON message in another database and a topic of its own."""
    text = bytes_of(line).decode().replace('"shop"', json.dumps(database)).replace("`shop`", f"`{database}`")
    return record(text.encode(), line["partition"], line["offset"], topic=database) | {"timestamp": line["timestamp"]}


def replayed(events: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return (from, to, row) of each version that the events of a table make; the rows from before them are unknown."""
    versions: list[list[Any]] = []
    for event in events:
        for version in versions:
            if version[1] is None and all(version[2][c] == event["key"][c] for c in event["key_cols"]):
                version[1] = event["commit_ts"]
        if event["after"] is not None:
            versions.append([event["commit_ts"], None, event["after"]])
    return [tuple(version) for version in versions]


@pytest.mark.soak
def test_starting_at_every_offset(spark: SparkSession, tmp_path: Path) -> None:
    """No wrong row is released, and every row is once the bootstrap has come.

    The stream has one table, whose rows come under one schema and then under another. Each start offset is a
    database of its own.
    """
    stream = read_lines(TICDC / "simple-json/tz")
    messages = [json.loads(bytes_of(line)) for line in stream]
    altered = next(n for n, m in enumerate(messages) if m["type"] == "ALTER")
    watermark = next(m["commitTs"] for m in messages if m["type"] == "WATERMARK")
    rows = [n for n, m in enumerate(messages) if "schemaVersion" in m]
    made = Chain(spark, tmp_path, protocol="simple", time_zone="Asia/Tokyo")
    for start in range(len(stream)):
        made.add(renamed(line, f"from_{start}") for line in stream[start:])
    first = made.run().release
    conserved(made.lake, made.feed)
    # A feed that starts before the ALTER has both schemas, one that starts after it has none.
    behind = {start: [n for n in rows if n >= max(start, altered) and messages[n]["commitTs"] < watermark] for start in
              range(altered + 1, len(stream))}  # fmt: skip
    waiting = {(h.database, h.events, h.since) for h in first.holds}
    assert waiting == {(f"from_{s}", len(ns), messages[ns[0]]["commitTs"]) for s, ns in behind.items() if ns}
    assert {h.first["schema_version"] for h in first.holds} == {messages[altered]["tableSchema"]["version"]}

    # The changefeed sends its bootstrap, and a watermark above all events.
    late = [
        {
            "version": 1,
            "type": "BOOTSTRAP",
            "commitTs": 0,
            "buildTs": 0,
            "tableSchema": messages[altered]["tableSchema"],
        },
        {"version": 1, "type": "WATERMARK", "commitTs": messages[rows[-1]]["commitTs"] + 1, "buildTs": 0},
    ]
    for start in range(len(stream)):
        at_the_end = {"timestamp": stream[-1]["timestamp"]}
        made.add(renamed(record(m, 0, 100 + n) | at_the_end, f"from_{start}") for n, m in enumerate(late))
    second = made.run().release
    counts = conserved(made.lake, made.feed)
    assert (second.holds, second.pending, counts.pending, counts.late) == ([], 0, 0, 0)
    assert counts.released == counts.rows
    types = ticdc_types("tz")["shop", "tz_c_t"]
    changes = [e for e in truth(TICDC, "tz", "events") if e["op"] != "ddl"]
    for start in range(len(stream)):
        sent = {(m["commitTs"], (m.get("data") or m["old"])["id"]) for m in messages[start:] if "schemaVersion" in m}
        expected = replayed(e for e in changes if (e["commit_ts"], str(e["key"]["id"])) in sent)
        assert len(expected) >= 1
        got = made.history("tz_c_t", f"from_{start}")
        for from_ts, to_ts, row in expected:
            candidates = [r for r in got if (r["_cdc_from_ts"], r["_cdc_to_ts"]) == (from_ts, to_ts)]
            # A feed that starts after the statement does not know the default.
            assert any(row_same(row, r, types, zone="Asia/Tokyo", defaults=DEFAULTS) for r in candidates), (
                start,
                row,
                candidates,
            )
        assert len(got) == len(expected)


def test_partitions_that_begin_at_different_places(spark: SparkSession, tmp_path: Path) -> None:
    """Each start is a database of its own; a key's rows depend only on the records of the key."""
    stream = read_lines(TICDC / "simple-json/orders")
    partitions = [[r for r in stream if r["partition"] == p] for p in range(3)]
    beginnings = {"early": (0.1, 0.5, 0.9), "late": (0.95, 0.2, 0.6), "apart": (0.5, 0.0, 0.85)}
    made = Chain(spark, tmp_path, protocol="simple", partitions=3)
    sent: dict[str, set[tuple[int, str, str]]] = {}
    for name, places in beginnings.items():
        lines = [line for p, place in zip(partitions, places, strict=True) for line in p[int(place * len(p)) :]]
        made.add(renamed(line, name) for line in lines)
        rows = [m for m in (json.loads(bytes_of(line)) for line in lines) if "schemaVersion" in m]
        images = [(m["commitTs"], m.get("data") or m["old"]) for m in rows]
        sent[name] = {(commit_ts, image["region"], image["order_id"]) for commit_ts, image in images}
    report = made.run().release
    counts = conserved(made.lake, made.feed)
    assert (report.holds, counts.late) == ([], 0)
    ((place, types),) = ticdc_types("orders").items()
    changes = [e for e in truth(TICDC, "orders", "events") if e["op"] != "ddl"]
    for name in beginnings:
        mark = report.watermarks[name]
        below = (e for e in changes if e["commit_ts"] < mark)
        expected = replayed(
            e for e in below if (e["commit_ts"], e["key"]["region"], e["key"]["order_id"]) in sent[name]
        )
        got = made.history(place[1], name)
        assert expected
        assert len(got) == len(expected)
        for from_ts, to_ts, row in expected:
            candidates = [r for r in got if (r["_cdc_from_ts"], r["_cdc_to_ts"]) == (from_ts, to_ts)]
            assert any(row_same(row, r, types) for r in candidates), (name, row, candidates)
