"""Conservation and the audit: good tables pass; a row removed or doubled in any table behind their back does not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.checks import audit
from cdc_assets.checks.conservation import changes_reflected, events_placed, records_decoded, records_taken
from cdc_assets.checks.history import intervals
from cdc_assets.checks.quarantine import nothing_quarantined
from cdc_assets.checks.verdict import Verdict
from cdc_assets.feeds import Feed
from cdc_assets.gate.release import ReleaseReport
from cdc_assets.lakehouse import Lakehouse, LakeTable
from cdc_assets.sources.ingest import IngestReport
from cdc_assets_tests.support import RECORDED, Chain, Reports, Rows, Stream, delta_versions, read_lines, tables_of, tso

ORDERS = Rows()
CODES = {"sqlType": {"id": -5, "v": 12}}


def stream() -> Stream:
    """Three keys, an update, a delete, a repeat, a record that cannot be decoded, and an event above the watermark."""
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


def tables(lake: Lakehouse) -> dict[str, LakeTable]:
    return {
        "raw_records": lake.raw_records,
        "change_events": lake.change_events,
        "released_changes": lake.released_changes,
        "quarantine": lake.quarantine,
        "history": lake.history("shop", "orders"),
    }


@pytest.fixture
def restored(run: tuple[Chain, Reports]) -> Iterator[tuple[Chain, Reports]]:
    """The run; whatever a test does to its tables is undone."""
    before = delta_versions(run[0].lake)
    yield run
    for name, version in delta_versions(run[0].lake).items():
        if version != before[name]:
            tables_of(run[0].lake)[name].delta().restoreToVersion(before[name])


def verdicts(lake: Lakehouse, feed: Feed, reports: Reports) -> dict[str, Verdict]:
    """Every check that counts in a table."""
    (table,) = reports.history
    return {
        "conservation of change_events": records_decoded(lake, reports.decode.after, reports.decode.through),
        "conservation of the history": changes_reflected(lake, table),
        "history_intervals": intervals(lake.history("shop", "orders"), table.since),
        "audit_each_record_once": audit.each_record_once(lake),
        "audit_conservation of change_events": audit.all_records_decoded(lake),
        "audit_conservation of released_changes": audit.all_events_placed(lake, feed),
        "audit_history_intervals": intervals(lake.history("shop", "orders")),
    }


def failing(chain: Chain, reports: Reports) -> set[str]:
    return {name for name, verdict in verdicts(chain.lake, chain.feed, reports).items() if not verdict.passed}


def test_good_tables_pass_every_check(run: tuple[Chain, Reports]) -> None:
    chain, reports = run
    assert failing(chain, reports) == set()
    assert all(verdict.passed for verdict in audit.all_types_mapped(chain.lake, chain.feed))
    assert records_taken(chain.lake, reports.ingest).passed
    assert events_placed(reports.release).passed


OF_EVENTS = {"conservation of change_events", "audit_conservation of change_events"}
OF_GATE = {"audit_conservation of released_changes"}
OF_INTERVALS = {"history_intervals", "audit_history_intervals"}
# table, which row, and the checks that must fail when it is removed, and when it stands there twice
TAMPERED = {
    "a raw record": ("raw_records", "partition = 0 AND offset = 0", OF_EVENTS, OF_EVENTS | {"audit_each_record_once"}),
    "a row event": ("change_events", "partition = 0 AND offset = 1", OF_EVENTS | OF_GATE, OF_EVENTS | OF_GATE),
    "a pending row event": ("change_events", "partition = 0 AND offset = 4", OF_EVENTS | OF_GATE, OF_EVENTS | OF_GATE),
    "a watermark": ("change_events", "partition = 1 AND offset = 4", OF_EVENTS, OF_EVENTS),
    "a change": ("released_changes", "key = '[\"3\"]' OR key = '[3]'", OF_GATE, OF_GATE),
    "an undecodable record": ("quarantine", "reason = 'malformed_json'", OF_EVENTS, OF_EVENTS),
    "an open version": (
        "history",
        "id = 1 AND _cdc_is_current",
        {"conservation of the history"} | OF_INTERVALS,
        {"conservation of the history"} | OF_INTERVALS,
    ),
    "a closed version": ("history", "id = 1 AND NOT _cdc_is_current", set(), OF_INTERVALS),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_row_removed_behind_their_back(restored: tuple[Chain, Reports], what: str) -> None:
    chain, reports = restored
    table, row, removed, _ = TAMPERED[what]
    before = tables(chain.lake)[table].read().count()
    tables(chain.lake)[table].delta().delete(row)
    assert tables(chain.lake)[table].read().count() == before - 1
    assert failing(chain, reports) == removed


@pytest.mark.parametrize("what", TAMPERED)
def test_a_row_doubled_behind_their_back(restored: tuple[Chain, Reports], what: str) -> None:
    chain, reports = restored
    table, row, _, doubled = TAMPERED[what]
    path = tables(chain.lake)[table].path
    before = tables(chain.lake)[table].read().count()
    tables(chain.lake)[table].read().where(row).write.format("delta").mode("append").save(path)
    assert tables(chain.lake)[table].read().count() == before + 1
    assert failing(chain, reports) == doubled


def test_what_stands_twice_is_shown(restored: tuple[Chain, Reports]) -> None:
    chain, _ = restored
    raw, released = chain.lake.raw_records, chain.lake.released_changes
    for table, row in ((raw, "partition = 1 AND offset = 3"), (released, "commit_ts < 0 OR op = 'delete'")):
        table.read().where(row).write.format("delta").mode("append").save(table.path)
    (record,) = audit.each_record_once(chain.lake).violations
    assert (record["topic"], record["partition"], record["offset"]) == ("shop_changes", 1, 3)
    (change,) = audit.all_events_placed(chain.lake, chain.feed).metadata["stands_twice"]
    assert (change["table"], change["commit_ts"], change["count"]) == ("orders", tso(40), 2)


def test_a_key_without_its_open_version_is_shown_with_its_last_record(restored: tuple[Chain, Reports]) -> None:
    chain, reports = restored
    chain.lake.history("shop", "orders").delta().delete("id = 1 AND _cdc_is_current")
    (shown,) = changes_reflected(chain.lake, reports.history[0]).violations
    assert (shown["topic"], shown["partition"], shown["offset"]) == ("shop_changes", 0, 2)
    assert (shown["expected_open"], shown["found_open"]) == (1, 0)


def test_a_key_still_open_after_its_delete_is_shown(restored: tuple[Chain, Reports]) -> None:
    chain, reports = restored
    history = chain.lake.history("shop", "orders")
    history.delta().update("id = 2", {"_cdc_to_ts": "null", "_cdc_is_current": "true", "_cdc_closed_by": "null"})
    (shown,) = changes_reflected(chain.lake, reports.history[0]).violations
    assert (shown["op"], shown["expected_open"], shown["found_open"]) == ("delete", 0, 1)


# The counts of the stream above: 10 lines; 7 row events, of them 1 repeat and 1 pending.


def test_the_stages_counts_are_those_of_the_stream(run: tuple[Chain, Reports]) -> None:
    ingest, gate = run[1].ingest, run[1].release
    assert (ingest.lines, ingest.records, ingest.taken, ingest.held_before, ingest.quarantined) == (10, 10, 10, 0, 0)
    assert (gate.rows, gate.released, gate.duplicate, gate.pending) == (7, 5, 1, 1)


@pytest.mark.parametrize(
    "wrong", [{"taken": 9}, {"taken": 11}, {"records": 11}, {"held_before": 1}, {"quarantined": 1}]
)
def test_lines_that_do_not_add_up(run: tuple[Chain, Reports], wrong: dict[str, int]) -> None:
    report: IngestReport = replace(run[1].ingest, **wrong)
    verdict = records_taken(run[0].lake, report)
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
def test_row_events_that_do_not_add_up(run: tuple[Chain, Reports], wrong: dict[str, int]) -> None:
    good = run[1].release
    report: ReleaseReport = replace(good, **{name: getattr(good, name) + delta for name, delta in wrong.items()})
    assert not events_placed(report).passed


def test_a_run_without_news_passes(run: tuple[Chain, Reports]) -> None:
    chain, reports = run
    assert records_taken(chain.lake, IngestReport()).passed
    assert records_decoded(chain.lake, reports.decode.through, reports.decode.through).passed
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
    assert (group["stage"], group["reason"], group["count"]) == ("decode", "malformed_json", 1)
    assert "topic" in group["message"]
    assert verdict.description == "1 rows are in quarantine: 1 malformed_json"


def test_a_run_looks_at_the_keys_it_touched_and_the_audit_at_all(restored: tuple[Chain, Reports]) -> None:
    table = restored[0].lake.history("shop", "orders")
    table.delta().update("id = 1 AND NOT _cdc_is_current", {"_cdc_to_ts": f"{tso(29)}"})  # a gap from 29 to 30
    assert not intervals(table).passed
    assert not intervals(table, since=tso(29)).passed
    assert intervals(table, since=tso(35)).passed


@pytest.mark.parametrize("scenario", ["orders", "nopk"])
def test_the_audit_passes_over_what_ticdc_really_sent(recorded: object, scenario: str) -> None:
    chain: Chain = recorded(scenario)  # type: ignore[operator]
    assert_audit_passes(chain)


def test_the_audit_passes_over_what_canal_really_sent_to_a_feed_without_watermarks(
    spark: SparkSession, tmp_path: Path
) -> None:
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
