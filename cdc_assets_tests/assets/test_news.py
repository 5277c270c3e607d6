"""What a run tells Dagster: of what has news, and of nothing else."""

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetCheckKey, AssetKey, DagsterInstance, Definitions, ExecuteInProcessResult
from pyspark.sql import SparkSession

from cdc_assets.assets import raw_records
from cdc_assets.checks.verdict import Verdict
from cdc_assets.resources import LakehouseResource
from cdc_assets.stages import DECODE, INGEST
from cdc_assets.stages.ingest import IngestReport
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets_tests.support import Record, Rows, Stream, make_feed, tso

ROWS = Rows()
STAGES = ["raw_records", "change_events", "table_schemas", "type_observations", "released_changes", "history"]
STAGES += ["quarantine"]
FEEDS = """
feeds:
  shop:
    protocol: canal-json
    tidb_extension: true
    freshness_minutes: 30
    source: {recorded: shop}
  crm:
    protocol: canal-json
    tidb_extension: true
    source: {recorded: crm}
"""


@dataclass
class Job:
    """The definitions over two feeds, and one Dagster instance for all runs."""

    home: Path
    spark: SparkSession
    patch: pytest.MonkeyPatch
    instance: DagsterInstance

    def add(self, feed: str, name: str, records: list[Record]) -> None:
        (self.home / feed).mkdir(exist_ok=True)
        (self.home / feed / name).write_text("".join(json.dumps(r) + "\n" for r in records))

    def loaded(self) -> Definitions:
        self.patch.delitem(sys.modules, "cdc_assets.definitions", raising=False)
        found: Definitions = importlib.import_module("cdc_assets.definitions").defs
        return found

    def run(self) -> ExecuteInProcessResult:
        job = self.loaded().resolve_job_def("cdc_pipeline")
        return job.execute_in_process(raise_on_error=False, instance=self.instance)

    def by_hand(self, *checks: AssetCheckKey) -> ExecuteInProcessResult:
        job = self.loaded().resolve_implicit_global_asset_job_def().get_subset(asset_check_selection=set(checks))
        return job.execute_in_process(raise_on_error=False, instance=self.instance)

    def verdicts(self) -> dict[tuple[str, ...], str]:
        """What Dagster shows of every check: when it was planned and not evaluated, that."""
        keys = list(self.loaded().resolve_asset_graph().asset_check_keys)
        newest = self.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        return {(*key.asset_key.path, key.name): newest[key].status.value for key in keys if key in newest}


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    (tmp_path / "feeds.yaml").write_text(FEEDS)
    monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
    monkeypatch.setenv("CDC_LAKEHOUSE", str(tmp_path / "lake"))
    monkeypatch.setattr(LakehouseResource, "_session", lambda _: spark)
    made = Job(tmp_path, spark, monkeypatch, DagsterInstance.ephemeral())
    for feed in ("shop", "crm"):
        made.add(feed, f"{feed}1.jsonl", first_records().records)
    return made


def first_records() -> Stream:
    stream = Stream()
    stream.send(ROWS.insert(tso(10), 1, "a"))
    stream.watermark(tso(20))
    return stream


def materialised(done: ExecuteInProcessResult) -> list[tuple[str, ...]]:
    events = [e for e in done.all_events if e.event_type_value == "ASSET_MATERIALIZATION"]
    return [tuple(e.asset_key.path) for e in events if e.asset_key]


def evaluated(done: ExecuteInProcessResult) -> list[tuple[str, ...]]:
    events = [e for e in done.all_events if e.event_type_value == "ASSET_CHECK_EVALUATION"]
    data: list[Any] = [e.asset_check_evaluation_data for e in events]
    return [(*each.asset_key.path, each.check_name) for each in data]


def test_a_run_without_news_tells_nothing_and_leaves_every_verdict(job: Job) -> None:
    first = job.run()
    assert first.success
    table = ("history", "shop", "orders")
    every = [(feed, *path) for feed in ("shop", "crm") for path in [[name] for name in STAGES] + [list(table)]]
    assert sorted(materialised(first)) == sorted(every)
    verdicts = job.verdicts()
    # The records are three years old.
    stale = ("shop", "released_changes", "watermark_freshness")
    assert {key for key, status in verdicts.items() if status != "SUCCEEDED"} == {stale}
    assert len(verdicts) == 2 * (3 + 2 + 2 + 1 + 5) + 1
    idle = job.run()
    assert idle.success
    assert materialised(idle) == []
    # Time goes on without news.
    assert evaluated(idle) == [stale]
    assert job.verdicts() == verdicts


def test_what_a_run_had_done_that_was_killed_is_told_by_the_next(job: Job) -> None:
    assert job.run().success
    stream = first_records()
    stream.send(ROWS.insert(tso(30), 2, "b"))
    stream.watermark(tso(40))
    job.add("shop", "2.jsonl", stream.records[2:])
    lake = Lakehouse(lambda: job.spark, str(job.home / "lake"), "shop")
    feed = make_feed(job.home / "shop")
    for stage in (INGEST, DECODE):
        stage.run(lake, feed)
    done = job.run()
    assert done.success
    told = [("shop", name) for name in STAGES] + [("shop", "history", "shop", "orders")]
    assert sorted(materialised(done)) == sorted(told)
    assert materialised(job.run()) == []


def test_a_stage_whose_law_is_broken_stops_its_feed_alone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    sound: Callable[..., Verdict] = raw_records.records_taken
    lost = Verdict(passed=False, description="one record is lost")

    def of_shop(report: IngestReport) -> Verdict:
        return lost if report.files == ["shop1.jsonl"] else sound(report)

    monkeypatch.setattr(raw_records, "records_taken", of_shop)
    done = job.run()
    assert not done.success
    assert {e.step_key for e in done.all_events if e.event_type_value == "STEP_FAILURE"} == {"shop__raw_to_history"}
    assert [path for path in materialised(done) if path[0] == "shop"] == [("shop", "raw_records")]
    assert [key for key in evaluated(done) if key[0] == "shop"] == [("shop", "raw_records", "conservation")]
    assert [path[1] for path in materialised(done) if path[0] == "crm"][-1] == "quarantine"
    monkeypatch.setattr(raw_records, "records_taken", sound)
    again = job.run()
    assert again.success
    # What was told stays told; the rest is told now.
    assert {path[:2] for path in materialised(again)} == {("shop", name) for name in STAGES[1:]}


def test_a_check_by_hand_looks_over_everything_or_tells_the_last_verdict_again(job: Job) -> None:
    assert job.run().success
    raw, gate = AssetKey(["shop", "raw_records"]), AssetKey(["shop", "released_changes"])
    table = AssetKey(["shop", "history", "shop", "orders"])
    late = AssetCheckKey(gate, "late_events_seen_before")
    applied = AssetCheckKey(table, "ddl_applied")
    of_everything = [AssetCheckKey(raw, "conservation"), AssetCheckKey(table, "history_intervals")]
    done = job.by_hand(*of_everything, late, applied)
    assert done.success
    assert materialised(done) == []
    said = {
        (data.check_name, data.description)
        for e in done.all_events
        if e.event_type_value == "ASSET_CHECK_EVALUATION" and (data := e.asset_check_evaluation_data)
    }
    assert said == {
        ("conservation", "Each record stands once."),
        ("history_intervals", "Versions neither overlap nor leave unexplained gaps."),
        ("late_events_seen_before", "0 late events, all repeats of released ones."),
        ("ddl_applied", "There was no DDL statement."),
    }
    assert set(job.verdicts().values()) == {"SUCCEEDED", "FAILED"}


def test_a_check_that_only_a_run_can_tell_of_says_so(job: Job) -> None:
    done = job.by_hand(AssetCheckKey(AssetKey(["shop", "released_changes"]), "late_events_seen_before"))
    assert not done.success
    (failed,) = [e for e in done.all_events if e.event_type_value == "STEP_FAILURE"]
    told = "shop/released_changes late_events_seen_before: only a run of the pipeline can tell, and none has yet."
    assert told in str(failed.step_failure_data)
