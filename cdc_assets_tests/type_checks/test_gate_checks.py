"""The checks of the gate, on reports made by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

from cdc_assets.assets.checks.gate import (
    late_events_seen_before,
    list_partition_watermarks,
    watermark_freshness,
    watermark_progress,
)
from cdc_assets.stages.release.report import ReleaseReport
from cdc_assets.tso import time_text
from cdc_assets_tests.support import tso


def report(**fields: Any) -> ReleaseReport:
    return ReleaseReport(release=1, **fields)


def test_advancing_partitions_pass() -> None:
    advancing = report(
        rows=3,
        pending=1,
        watermarks={"t": 20},
        watermarks_before={"t": 10},
        partition_watermarks={"t": {"0": 25, "1": 20}},
    )
    assert watermark_progress(advancing, partitions=2).passed


def test_a_partition_without_a_watermark_is_named() -> None:
    silent = report(rows=3, pending=3, partition_watermarks={"t": {"0": 25, "1": None}})
    verdict = watermark_progress(silent, partitions=None)
    assert not verdict.passed
    assert [(v["topic"], v["partition"]) for v in verdict.violations] == [("t", 1)]


def test_a_partition_that_sent_nothing_at_all_is_named_even_when_no_event_is_new() -> None:
    silent = report(rows=0, pending=3, partition_watermarks={"t": {"0": 25, "1": 25}})
    verdict = watermark_progress(silent, partitions=4)
    assert not verdict.passed
    assert [(v["topic"], v["partition"]) for v in verdict.violations] == [("t", 2), ("t", 3)]


def test_a_watermark_that_does_not_advance_while_events_come_is_shown_with_its_partition() -> None:
    stuck = report(
        rows=3,
        pending=3,
        watermarks={"t": 20, "u": 30},
        watermarks_before={"t": 20, "u": 20},
        partition_watermarks={"t": {"0": 25, "1": 20}, "u": {"0": 30, "1": 30}},
    )
    verdict = watermark_progress(stuck, partitions=2)
    assert not verdict.passed
    assert {v["topic"] for v in verdict.violations} == {"t"}
    assert "3 are pending" in verdict.description


def test_a_statement_that_other_topics_have_passed_is_named() -> None:
    row = {"topic": "t", "partition": 0, "offset": 7, "database": "shop", "table": "t", "commit_ts": 21}
    drop = row | {"ddl_statement": "DROP TABLE `shop`.`t`", "kind": "ddl"}
    marks = {"t": {"0": 20}, "u": {"0": 40}}
    waiting = report(watermarks={"t": 20, "u": 40}, partition_watermarks=marks, overtaken=[drop])
    verdict = watermark_progress(waiting, partitions=1)
    assert not verdict.passed
    assert [(v["table"], v["offset"]) for v in verdict.violations] == [("t", 7)]


def test_a_watermark_that_does_not_advance_without_events_passes() -> None:
    idle = report(
        rows=0, pending=3, watermarks={"t": 20}, watermarks_before={"t": 20}, partition_watermarks={"t": {"0": 20}}
    )
    assert watermark_progress(idle, partitions=1).passed


def test_an_empty_feed_passes() -> None:
    assert watermark_progress(report(), partitions=3).passed


def test_late_repeats_pass_and_are_counted() -> None:
    verdict = late_events_seen_before(report(late_repeated=4))
    assert verdict.passed
    assert verdict.metadata["late_repeated"] == 4


def test_a_late_event_that_was_never_released_fails_with_its_record() -> None:
    sample = [{"topic": "t", "partition": 2, "offset": 77, "key": "[1]", "commit_ts": 5}]
    verdict = late_events_seen_before(report(late_repeated=4, late_unseen=1, late_sample=sample))
    assert not verdict.passed
    assert verdict.violations == sample
    assert verdict.description.startswith("1 events")


def test_partitions_in_order_of_their_numbers_with_readable_times() -> None:
    rows = list_partition_watermarks(
        report(watermarks={"t": tso(0)}, partition_watermarks={"t": {"10": tso(1), "9": tso(0, logical=5), "2": None}})
    )
    assert [r["partition"] for r in rows] == [2, 9, 10]
    # 1,700,000,000 s after the epoch
    assert [r["watermark_time"] for r in rows] == [None, "2023-11-14 22:13:20.000 UTC", "2023-11-14 22:13:20.001 UTC"]
    assert time_text(tso(7)) == "2023-11-14 22:13:20.007 UTC"


def test_a_watermark_that_is_too_old_or_missing_is_named() -> None:
    # tso(0) is 2023-11-14 22:13:20 UTC
    marks = {"new": tso(0), "old": tso(-60_000)}
    stale = report(watermarks=marks, partition_watermarks={t: {"0": 1} for t in ("new", "none", "old")})
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    verdict = watermark_freshness(stale, 30, at + timedelta(minutes=30, seconds=10))
    assert not verdict.passed
    assert [(v["topic"], v["minutes"]) for v in verdict.violations] == [("none", None), ("old", 31)]
    complete = report(watermarks=marks, partition_watermarks={t: {"0": 1} for t in marks})
    assert watermark_freshness(complete, 31, at + timedelta(minutes=30, seconds=10)).passed
    assert watermark_freshness(report(), 30, at).passed, "no watermark and no source time has come yet"


def test_without_watermarks_the_newest_time_of_the_source_counts() -> None:
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    without_watermarks = report(source=1_700_000_000_000)
    assert watermark_freshness(without_watermarks, 30, at + timedelta(minutes=30, seconds=10)).passed
    verdict = watermark_freshness(without_watermarks, 30, at + timedelta(minutes=31))
    assert not verdict.passed
    assert verdict.violations == [{"newest": "2023-11-14 22:13:20.000 UTC", "minutes": 31}]
