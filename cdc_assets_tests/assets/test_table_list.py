"""Keep the list of a feed's history tables, and refresh it after a release."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.assets.table_list import read_table_list, refresh_table_list
from cdc_assets.history.progress import Progress
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages.history.progress_file import write_progress


def never() -> SparkSession:
    raise AssertionError("a Spark session was asked for")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
    return Lakehouse(never, str(tmp_path / "lake"), "shop")


def make(lake: Lakehouse, table: str) -> Path:
    log = Path(lake.root, "history/shop/sales", table, "_delta_log")
    log.mkdir(parents=True)
    return log


def run(lake: Lakehouse) -> list[tuple[str, str]]:
    context: Any = SimpleNamespace(log=logging.getLogger("run"), run=SimpleNamespace(remote_job_origin=None))
    refresh_table_list(context, lake)
    return list(read_table_list(lake.root, "shop"))


def test_the_table_list_follows_new_and_dropped_tables_after_a_release(lake: Lakehouse) -> None:
    assert run(lake) == []  # nothing was ever released
    log = make(lake, "a")
    make(lake, "b")
    write_progress(lake, Progress(1))
    assert run(lake) == [("sales", "a"), ("sales", "b")]
    log.rmdir()
    assert len(run(lake)) == 2  # nothing new was released, so the list is not refreshed
    write_progress(lake, Progress(2))
    assert run(lake) == [("sales", "b")]


def test_a_table_is_listed_once_it_has_been_written(lake: Lakehouse) -> None:
    write_progress(lake, Progress(1, frozenset({("sales", "a")})))
    assert run(lake) == []
    make(lake, "a")
    write_progress(lake, Progress(1))
    assert run(lake) == [("sales", "a")]


def test_another_lakehouse_is_not_mistaken_for_this_one(lake: Lakehouse, tmp_path: Path) -> None:
    make(lake, "a")
    write_progress(lake, Progress(1))
    run(lake)
    assert read_table_list(str(tmp_path / "other"), "shop") == ()
    assert run(Lakehouse(never, str(tmp_path / "other"), "shop")) == []
    assert run(lake) == [("sales", "a")]


def test_a_run_goes_on_and_warns_if_it_cannot_write_the_list(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CDC_STATE", str(tmp_path / "file"))
    assert run(lake) == []
    assert "shop: the list of its tables could not be written: " in caplog.text


def test_a_web_server_that_does_not_answer_is_a_warning(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("CDC_WEBSERVER", "http://127.0.0.1:1")
    make(lake, "a")
    write_progress(lake, Progress(1))
    assert run(lake) == [("sales", "a")]
    assert (
        "shop: the web server at http://127.0.0.1:1 did not answer: reload the definitions in the UI: " in caplog.text
    )
    (kept,) = (tmp_path / ".cdc_state").iterdir()  # and no half-written file beside it
    assert json.loads(kept.read_text())["tables"] == [["sales", "a"]]
