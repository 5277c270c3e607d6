"""Conservation and the audit: right tables pass; tables with a row lost, doubled or changed by hand fail."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.assets.checks import audit
from cdc_assets.assets.checks.conservation import events_placed, records_decoded, records_taken
from cdc_assets.assets.checks.quarantine import nothing_quarantined
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.protocols.canal_json import CanalJson
from cdc_assets.stages import DECODE, INGEST
from cdc_assets.stages.ingest import IngestReport
from cdc_assets.stages.release.report import ReleaseReport
from cdc_assets_tests.support import (
    RECORDED,
    Chain,
    Reports,
    Rows,
    Stream,
    change,
    double,
    read_lines,
    remove,
    rows_in,
    tso,
)

ORDERS = Rows()
CODES = {"sqlType": {"id": -5, "v": 12}}


def stream() -> Stream:
    """Return three keys, an update, a delete, a repeat, an undecodable record, and an event above the watermark."""
    made = Stream(partitions=2)
    made.send(ORDERS.insert(tso(10), 1, "a") | CODES, 0)
    made.send(ORDERS.insert(tso(20), 2, "b") | CODES, 1)
    made.send(ORDERS.insert(tso(20), 2, "b") | CODES, 1)
    made.send(ORDERS.insert(tso(25), 3, "c") | CODES, 0)
    made.send(ORDERS.update(tso(30), 1, "d", old="a") | CODES, 0)
    made.send(ORDERS.delete(tso(40), 2, "b") | CODES, 1)
    made.send(b'{"id": 0, "cut', 1)
    made.watermark(tso(100))
    made.send(ORDERS.insert(tso(150), 9, "pending") | CODES, 0)
    return made


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Chain, Reports]:
    chain = Chain(spark, tmp_path_factory.mktemp("audited"), partitions=2)
    chain.add(stream().records)
    return chain, chain.run()


def tables(lake: Lakehouse) -> dict[str, LakeTable[Any]]:
    return {
        "raw_records": lake.raw_records,
        "change_events": lake.change_events,
        "released_changes": lake.released_changes,
        "quarantine": lake.quarantine,
        "history": lake.history("shop", "orders"),
    }


@pytest.fixture
def copied(run: tuple[Chain, Reports], tmp_path: Path) -> Chain:
    """The run's tables, for a test that changes them."""
    return run[0].copy(tmp_path / "copied")


def verdicts(lake: Lakehouse, feed: Feed) -> dict[str, Verdict]:
    """Return the verdicts of the audit over the feed's tables."""
    return {
        "each_record_once": audit.each_record_once(lake),
        "conservation of change_events": audit.all_records_decoded(lake),
        "conservation of released_changes": audit.all_events_placed(lake, feed),
        "history_intervals": audit.all_intervals(lake, "shop", "orders"),
    }


def failing(chain: Chain) -> set[str]:
    return {name for name, verdict in verdicts(chain.lake, chain.feed).items() if not verdict.passed}


def test_right_tables_pass_every_check(run: tuple[Chain, Reports]) -> None:
    chain, reports = run
    assert failing(chain) == set()
    assert all(verdict.passed for verdict in audit.all_types_mapped(chain.lake, chain.feed))
    assert records_taken(reports.ingest).passed
    assert records_decoded(reports.decode).passed
    assert events_placed(reports.release).passed


def at(partition: int, offset: int) -> str:
    """Return the condition for the rows of a record."""
    return f'"partition" = {partition} AND "offset" = {offset}'


OF_EVENTS = {"conservation of change_events"}
OF_GATE = {"conservation of released_changes"}
OF_INTERVALS = {"history_intervals"}
# table, condition for a row, and the checks that must fail when the row is removed, and when it is doubled
TAMPERED = {
    "a raw record": ("raw_records", at(0, 0), OF_EVENTS, OF_EVENTS | {"each_record_once"}),
    "a row event": ("change_events", at(0, 1), OF_EVENTS | OF_GATE, OF_EVENTS | OF_GATE),
    "a pending row event": ("change_events", at(0, 4), OF_EVENTS | OF_GATE, OF_EVENTS | OF_GATE),
    "a watermark": ("change_events", at(1, 4), OF_EVENTS, OF_EVENTS),
    "a change": ("released_changes", "key = '[\"3\"]' OR key = '[3]'", OF_GATE, OF_GATE),
    "an undecodable record": ("quarantine", "reason = 'malformed_json'", OF_EVENTS, OF_EVENTS),
    "an open version": ("history", "id = 1 AND _cdc_is_current", OF_INTERVALS, OF_INTERVALS),
    "a closed version": ("history", "id = 1 AND NOT _cdc_is_current", set(), OF_INTERVALS),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_row_removed_by_hand(copied: Chain, what: str) -> None:
    name, row, removed, _ = TAMPERED[what]
    table, spark = tables(copied.lake)[name], copied.lake.spark
    before = len(rows_in(table, spark))
    remove(table, row)
    assert len(rows_in(table, spark)) == before - 1
    assert failing(copied) == removed


@pytest.mark.parametrize("what", TAMPERED)
def test_a_row_doubled_by_hand(copied: Chain, what: str) -> None:
    name, row, _, doubled = TAMPERED[what]
    table, spark = tables(copied.lake)[name], copied.lake.spark
    before = len(rows_in(table, spark))
    double(table, row)
    assert len(rows_in(table, spark)) == before + 1
    assert failing(copied) == doubled


def test_doubled_rows_are_shown(copied: Chain) -> None:
    for table, row in ((copied.lake.raw_records, at(1, 3)), (copied.lake.released_changes, "op = 'delete'")):
        double(table, row)
    (record,) = audit.each_record_once(copied.lake).violations
    assert (record["topic"], record["partition"], record["offset"]) == ("shop_changes", 1, 3)
    (doubled,) = audit.all_events_placed(copied.lake, copied.feed).metadata["stands_twice"]
    assert (doubled["table"], doubled["commit_ts"], doubled["count"]) == ("orders", tso(40), 2)


def test_a_decoder_that_loses_a_record_fails_the_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(spark, tmp_path, partitions=2)
    chain.add(stream().records)
    INGEST.run(chain.lake, chain.feed)
    decode = CanalJson.decode

    def losing(self: CanalJson, raw: DataFrame, feed: Feed) -> DataFrame:
        return decode(self, raw.where(F.col("partition") + F.col("offset") > 0), feed)

    monkeypatch.setattr(CanalJson, "decode", losing)
    verdict = records_decoded(DECODE.run(chain.lake, chain.feed))
    assert not verdict.passed
    assert [(v["count"], v["expected"], v["actual"]) for v in verdict.violations] == [("records", 10, 9)]


# The counts of the stream above: 10 lines; 7 row events, of them 1 repeat and 1 pending.


def test_the_stages_counts_are_those_of_the_stream(run: tuple[Chain, Reports]) -> None:
    ingest, gate = run[1].ingest, run[1].release
    assert (ingest.lines, ingest.records, ingest.taken, ingest.held_before, ingest.quarantined) == (10, 10, 10, 0, 0)
    assert (gate.rows, gate.released, gate.duplicate, gate.pending) == (7, 5, 1, 1)


@pytest.mark.parametrize(
    "wrong", [{"taken": 9}, {"taken": 11}, {"records": 11}, {"held_before": 1}, {"quarantined": 1}]
)
def test_lines_that_do_not_add_up(run: tuple[Chain, Reports], wrong: dict[str, Any]) -> None:
    report: IngestReport = replace(run[1].ingest, **wrong)
    verdict = records_taken(report)
    assert not verdict.passed
    assert verdict.violations


@pytest.mark.parametrize(
    "wrong",
    [
        {n: delta}
        for n in ("released", "duplicate", "pending", "late_unseen", "late_repeated", "excluded")
        for delta in (1, -1)
    ],
)
def test_row_events_that_do_not_add_up(run: tuple[Chain, Reports], wrong: dict[str, Any]) -> None:
    good = run[1].release
    report: ReleaseReport = replace(good, **{name: getattr(good, name) + delta for name, delta in wrong.items()})
    assert not events_placed(report).passed


@pytest.mark.parametrize("wrong", [{"records": 11}, {"decoded": 9}, {"in_quarantine": 0}, {"in_quarantine": 2}])
def test_records_that_do_not_add_up(run: tuple[Chain, Reports], wrong: dict[str, Any]) -> None:
    assert not records_decoded(replace(run[1].decode, **wrong)).passed


def test_a_run_without_new_records_passes(run: tuple[Chain, Reports]) -> None:
    chain, _ = run
    assert records_taken(IngestReport()).passed
    assert records_decoded(DECODE.run(chain.lake, chain.feed)).passed
    assert events_placed(ReleaseReport(pending=3, pending_before=3)).passed


def test_the_quarantine_is_shown_by_reason_with_samples(run: tuple[Chain, Reports]) -> None:
    verdict = nothing_quarantined(run[0].lake)
    assert not verdict.passed
    (sample,) = verdict.violations
    assert (sample["reason"], sample["topic"], sample["partition"], sample["offset"]) == (
        "malformed_json",
        "shop_changes",
        1,
        3,
    )
    assert sample["value_begins"] == '{"id": 0, "cut'
    (group,) = verdict.metadata["by_reason"]
    assert (sample["stage"], group["reason"], group["count"]) == ("decode", "malformed_json", 1)
    assert "topic" in group["message"]
    assert verdict.description.startswith("1 rows are in quarantine: 1 malformed_json. ")


def test_the_audit_reports_a_gap(copied: Chain) -> None:
    history = copied.lake.history("shop", "orders")
    change(history, "id = 1 AND NOT _cdc_is_current", _cdc_to_ts=f"{tso(29)}")  # a gap from 29 to 30
    (shown,) = audit.all_intervals(copied.lake, "shop", "orders").violations
    assert (shown["rule"], shown["next_from"]) == ("a gap that no delete explains", tso(30))


@pytest.mark.parametrize("scenario", ["orders", "nopk"])
def test_the_audit_of_recorded_ticdc_streams_passes(recorded: object, scenario: str) -> None:
    chain: Chain = recorded(scenario)  # type: ignore[operator]
    assert_audit_passes(chain)


@pytest.mark.extended
def test_the_audit_of_a_recorded_canal_stream_passes_without_watermarks(spark: SparkSession, tmp_path: Path) -> None:
    chain = Chain(spark, tmp_path, tidb_extension=False)
    chain.add(read_lines(RECORDED / "mysql/canal117-flat/types"))
    chain.run()
    assert_audit_passes(chain)


def assert_audit_passes(chain: Chain) -> None:
    verdicts = [
        audit.each_record_once(chain.lake),
        audit.all_records_decoded(chain.lake),
        audit.all_events_placed(chain.lake, chain.feed),
        *audit.all_types_mapped(chain.lake, chain.feed),
    ]
    for verdict in verdicts:
        assert verdict.passed, (verdict.description, verdict.violations)
