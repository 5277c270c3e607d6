"""Lakehouses that the code of cursor format 1 made: brought to today's shape, and gone on with, they end up as today's."""

import json
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.tables import upgrade as module
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.upgrade import upgrade
from cdc_assets_tests.laws.test_as_of import actual_versions, expected_versions, key_columns
from cdc_assets_tests.support import RECORDED, Chain, Record, Reports, bytes_of, histories, read_lines, record, rows_in

LAKEHOUSES = RECORDED / "lakehouses"
TOLD: dict[str, dict[str, Any]] = json.loads((LAKEHOUSES / "lakehouses.json").read_text("utf-8"))
TRUTH = {"canal_json": "orders"}  # whose history the recorded truth has
FILLED = {"change_events", "raw_records", "released_changes"}


def stream(name: str) -> tuple[list[Record], list[Record]]:
    """The records that a lakehouse has, and those that come after them."""
    told = TOLD[name]
    lines, apart = read_lines(RECORDED / told["stream"]), []
    if name == "simple":
        first = (b'"BOOTSTRAP"', b'"CREATE"')
        apart = [line for line in lines if any(kind in bytes_of(line) for kind in first)]
        lines = [line for line in lines if line not in apart]
    held, rest = lines[: told["lines"]], lines[told["lines"] :]
    if name == "canal_json":
        held = [*held, record(b'{"cut', 0, 10**9, held[0]["topic"])]
    return held, [*rest, *apart]


def unpacked(spark: SparkSession, name: str, folder: Path) -> Chain:
    """A feed with the lakehouse of before."""
    with tarfile.open(LAKEHOUSES / "format1.tar.gz") as packed:
        members = [m for m in packed.getmembers() if m.name.startswith(f"./{name}/")]
        packed.extractall(folder, members, filter="data")
    return Chain(spark, folder / name, **TOLD[name]["settings"])


def without_spark(it: Chain) -> Lakehouse:
    def none() -> SparkSession:
        raise AssertionError("Spark is asked for")

    return Lakehouse(none, it.lake.root, it.lake.feed)


def released(it: Chain, last: Reports) -> dict[str, Any]:
    """What has become of the row events; which of two copies was late depends on how the stream was cut."""
    rows = [r for r in rows_in(it.lake.released_changes, it.lake.spark) if r["kind"] == "row"]
    return {
        "changes": sorted((r["table"], r["commit_ts"], r["key"], r["op"], r["events"]) for r in rows),
        "rows": last.release.total["rows"],
        "excluded": last.release.total["excluded"],
        "unseen": last.release.total["late_unseen"],
        "pending": last.release.pending,
        "holds": last.release.holds,
    }


def quarantined(it: Chain) -> list[dict[str, Any]]:
    """But for the steps' numbers: the upgrade is a step of its own."""
    return [{name: value for name, value in r.items() if name != "batch"} for r in it.quarantine()]


@pytest.mark.parametrize("name", TOLD)
def test_what_is_gone_on_with_ends_up_as_if_made_today(spark: SparkSession, tmp_path: Path, name: str) -> None:
    held, rest = stream(name)
    old = unpacked(spark, name, tmp_path)
    assert {n.split("/")[0] for n in upgrade(old.lake, old.feed)} >= FILLED
    assert upgrade(without_spark(old), old.feed) == []
    # By which decoding knows that it need not look for compressed values.
    assert all(f.nulls["compressed"] == f.rows for f in old.lake.raw_records.files())
    assert quarantined(old) == [r for r in quarantined(old) if r["stage"] != "decode" or r["offset"] == 10**9]
    today = Chain(spark, tmp_path / "today", **TOLD[name]["settings"])
    today.add(held, "held.jsonl")
    today.run()
    assert histories(old.lake) == histories(today.lake)
    last = []
    for it in (old, today):
        it.add(rest, "rest.jsonl")
        last.append(it.run())
    assert histories(old.lake) == histories(today.lake)
    assert released(old, last[0]) == released(today, last[1])
    assert quarantined(old) == quarantined(today)
    for table, wanted in expected_versions(TRUTH[name]).items() if name in TRUTH else ():
        actual = actual_versions(old, table, key_columns(TRUTH[name])[table])
        assert actual.keys() == wanted.keys()
        assert all({c: actual[place][c] for c in version} == version for place, version in wanted.items())


def test_killed_after_each_table_it_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = unpacked(spark, "canal_json", tmp_path)
    original: Callable[..., None] = module._replace

    def dies(*of: Any) -> None:
        original(*of)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_replace", dies)
    deaths = 0
    while True:
        try:
            assert upgrade(it.lake, it.feed) == []
            break
        except KeyboardInterrupt:
            deaths += 1
    assert deaths == 5
    (bad,) = it.quarantine()
    assert (bad["reason"], bad["partition"], bad["offset"]) == ("malformed_json", 0, 10**9)
    kinds = Counter(r["kind"] for r in rows_in(it.lake.released_changes, spark))
    assert (kinds["row"], kinds["ddl"]) == (176, 2)
    events, records = (rows_in(table, spark) for table in (it.lake.change_events, it.lake.raw_records))
    assert len([e for e in events if e["index"] == 0]) == len(records) == 275


def test_what_a_run_of_before_had_not_put_into_quarantine_yet(spark: SparkSession, tmp_path: Path) -> None:
    """It did so after its commit, and may have died in between."""
    it = unpacked(spark, "canal_json", tmp_path)
    for table in (it.lake.quarantine, it.lake.released_changes):
        shutil.rmtree(table.path)
    upgrade(it.lake, it.feed)
    (bad,) = it.quarantine()
    assert (bad["stage"], bad["batch"], bad["offset"], bad["value"]) == ("decode", 2, 10**9, b'{"cut')


def test_nothing_to_do_needs_no_spark(spark: SparkSession, tmp_path: Path) -> None:
    it = Chain(spark, tmp_path)
    assert upgrade(without_spark(it), it.feed) == []
    for table in (it.lake.raw_records, it.lake.change_events, it.lake.quarantine):
        table.create()
    assert upgrade(without_spark(it), it.feed) == []


def test_tables_that_were_created_and_not_filled(spark: SparkSession, tmp_path: Path) -> None:
    """A first run of before that died at once."""
    it = Chain(spark, tmp_path)
    for table, columns in (
        ("raw_records", "topic STRING, batch BIGINT, value BINARY"),
        ("quarantine", "reason STRING"),
    ):
        spark.createDataFrame([], columns).write.format("delta").save(f"{it.lake.root}/{table}/f")
    upgrade(it.lake, it.feed)
    held, _ = stream("keyless")
    it.add(held)
    assert it.run().ingest.taken == len(held)
