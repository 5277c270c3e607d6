"""Show first what a person on call asks: the gate's state, and the page that a run makes."""

import logging
from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from cdc_assets.assets import change_events, history, page, raw_records, type_observations
from cdc_assets.assets.released_changes import describe_status
from cdc_assets.history.table_report import TableReport
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, HoldReason
from cdc_assets.operations.report import collect
from cdc_assets.stages.decode import DecodeReport
from cdc_assets.stages.ingest import IngestReport
from cdc_assets.stages.release.report import ReleaseReport
from cdc_assets.stages.types import TypesReport
from cdc_assets_tests.support import make_feed

# 2024-05-01 00:00:00 UTC, as TiDB writes it: milliseconds, and 18 bits of a logical part.
MAY = 1_714_521_600_000 << 18


def test_the_gates_state_comes_first_and_in_order() -> None:
    waits = Hold("shop", "orders", MAY, HoldReason.SCHEMA, 3, {"schema_version": 7})
    report = ReleaseReport(released=5, pending=4, watermarks={"late": MAY, "early": MAY + (1000 << 18)}, holds=[waits])
    status = describe_status(report, "f", datetime(2024, 5, 1, 0, 1, 30, tzinfo=UTC))
    assert list(status) == ["state", "lag_seconds", "released", "pending", "held_tables", "next_step"]
    assert status["state"] == "released up to 2024-05-01 00:00:00.000 UTC; pending row events: 4; held tables: 1"
    assert status["lag_seconds"] == 90
    assert status["next_step"].startswith(
        f"shop.orders: the table is blocked from commit_ts {MAY} (2024-05-01 00:00:00.000 UTC) on"
    )


def test_without_watermarks_no_lag_is_made_up() -> None:
    status = describe_status(ReleaseReport(released=5), "f", datetime.now(UTC))
    assert "lag_seconds" not in status
    assert status["state"] == "no watermarks: every ingested event is released; pending row events: 0; held tables: 0"
    assert status["next_step"] == "none"


def test_each_asset_says_how_far_it_is_and_what_to_do() -> None:
    """The state comes first, the next step last, and the run's work in between."""
    left = IngestReport(
        taken=3, left=7, held={"t": {"0": [0, 2], "1": [0, 0]}}, lost=["t 1: offsets 4 to 9 have expired"]
    )
    status = raw_records.describe_status(left, "f")
    assert list(status) == ["state", "records_taken_in", "offsets_held", "next_step"]
    assert status["state"].startswith("2 partitions of 1 topics are held")
    assert status["next_step"] == (
        "run the feed again: 7 offsets are left by max_records_per_run; t 1: offsets 4 to 9 have expired"
    )
    status = change_events.describe_status(DecodeReport(after=1, through=2, events={"row": 5, "undecodable": 1}), "f")
    assert list(status) == ["state", "events_row", "events_undecodable", "raw_batches", "next_step"]
    assert status["state"] == "decoded up to raw batch 2; undecodable events: 1"
    assert status["next_step"].startswith("look into quarantine/f: ")
    assert change_events.describe_status(DecodeReport(through=2, events={"row": 5}), "f")["next_step"] == "none"
    waits = Hold("shop", "orders", MAY, HoldReason.SCHEMA, 3, {"schema_version": 7})
    table = TableReport("shop", "orders", 1, 2, True, 5, 4, 1, 0, 9, 3)
    status = history.describe_status(table, "f", waits)
    first, *_, last = status
    assert (first, last) == ("state", "next_step")
    assert status["state"] == "3 rows are open, of 9 versions; changes wait"
    assert status["next_step"].startswith("shop.orders: the table is blocked from commit_ts")
    status = history.describe_status(table, "f", None)
    assert (status["state"], status["next_step"]) == (
        "3 rows are open, of 9 versions",
        "none, as long as no check fails",
    )
    status = type_observations.describe_status(TypesReport(after=1, through=2, codes_called="code", distinct=4))
    first, *_, last = status
    assert (first, last) == ("state", "next_step")
    assert status["state"] == (
        "types checked up to raw batch 2; observations that break a mapping: 0; blocked tables: 0"
    )
    assert status["next_step"] == "none"
    moved = replace(
        table, reload=[{"commit_ts": MAY, "statement": "TRUNCATE PARTITION p0", "why": "w", "reload": True}]
    )
    assert (
        history.describe_status(moved, "f", None)["next_step"]
        == "load the table again: the check reload_required says why"
    )


def renewed(root: Path, tables: int) -> None:
    context: Any = SimpleNamespace(log=logging.getLogger("run"))
    lake = Lakehouse(lambda: pytest.fail("a session is asked for"), str(root / "lake"), "f")
    page.write_page(context, lake, make_feed(root), [("shop", str(n)) for n in range(tables)])


def test_a_page_that_cannot_be_made_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CDC_STATE", str(tmp_path / "file"))
    renewed(tmp_path, 1)
    assert f"f: the report {tmp_path}/file/f.html could not be written: " in caplog.text


def test_a_picture_that_cannot_be_drawn_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(lake: Lakehouse) -> None:
        raise ValueError("no such commit")

    monkeypatch.setattr(collect, "list_releases", broken)
    context: Any = SimpleNamespace(log=logging.getLogger("run"))
    lake = Lakehouse(lambda: pytest.fail("a session is asked for"), str(tmp_path / "lake"), "f")
    assert page.draw_releases(context, lake) == {}
    assert "f: the chart over_time could not be drawn: no such commit" in caplog.text


def test_the_versions_of_a_table_by_day_are_drawn_from_the_second_day_on(tmp_path: Path) -> None:
    context: Any = SimpleNamespace(log=logging.getLogger("run"))
    assert page.draw_versions(context, "t", {}) == {}
    assert page.draw_versions(context, "t", {"2024-05-01": 3}) == {}
    metadata = page.draw_versions(context, "t", {"2024-04-30": 1, "2024-05-01": 3})["versions_by_day"]
    picture = b64decode(str(metadata.value).rpartition("base64,")[2].removesuffix(")"))
    bars = [e for e in fromstring(picture).iter() if e.get("class", "").startswith("rect")]
    assert len(bars) == 2
    low, high = (float(bar.get("height", "")) for bar in bars)
    assert round(high / low, 6) == 3
    assert len(picture) < 10_000  # Dagster keeps this metadata of each run


def test_a_feed_of_many_tables_gets_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_STATE", str(tmp_path / "state"))
    renewed(tmp_path, page.MOST_TABLES + 1)
    assert not page.build_page_path("f").exists()
    renewed(tmp_path, page.MOST_TABLES)
    assert [file.name for file in (tmp_path / "state").iterdir()] == ["f.html"]
