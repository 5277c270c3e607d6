"""Execute the definitions over two feeds in the test's process, and read the results from Dagster."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    DagsterInstance,
    Definitions,
    ExecuteInProcessResult,
)
from pyspark.sql import SparkSession

from cdc_assets.definitions import defs
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets_tests.support import Record

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
    """Both feeds in one folder, the definitions, loaded again for each run as Dagster does, and a Dagster instance."""

    home: Path
    spark: SparkSession
    instance: DagsterInstance = field(default_factory=DagsterInstance.ephemeral)

    def add(self, feed: str, records: list[Record], name: str | None = None) -> None:
        """Add a snapshot file to a feed's folder."""
        folder = self.home / feed
        folder.mkdir(exist_ok=True)
        name = name or f"{len(list(folder.iterdir()))}.jsonl"
        (folder / name).write_text("".join(json.dumps(r) + "\n" for r in records))

    def lake(self, feed: str) -> Lakehouse:
        """Return a feed's tables."""
        return Lakehouse(lambda: self.spark, str(self.home / "lake"), feed)

    def loaded(self) -> Definitions:
        """Return the definitions as they are now."""
        return defs()

    def run(self, name: str = "cdc_pipeline", config: Mapping[str, Any] | None = None) -> ExecuteInProcessResult:
        """Execute a job; its result states what failed."""
        job = self.loaded().resolve_job_def(name)
        return job.execute_in_process(run_config=config, raise_on_error=False, instance=self.instance)

    def by_hand(self, *checks: AssetCheckKey) -> ExecuteInProcessResult:
        """Execute checks alone, as from their page."""
        job = self.loaded().resolve_implicit_global_asset_job_def().get_subset(asset_check_selection=set(checks))
        return job.execute_in_process(raise_on_error=False, instance=self.instance)

    def alone(self, *asset: str) -> ExecuteInProcessResult:
        """Materialise one asset, as from its page."""
        job = self.loaded().resolve_implicit_global_asset_job_def().get_subset(asset_selection={AssetKey([*asset])})
        return job.execute_in_process(raise_on_error=False, instance=self.instance)

    def verdicts(self) -> dict[tuple[str, ...], str]:
        """Return what Dagster shows of every check; PLANNED for one that was planned and not evaluated."""
        keys = list(self.loaded().resolve_asset_graph().asset_check_keys)
        newest = self.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        return {(*key.asset_key.path, key.name): newest[key].status.value for key in keys if key in newest}


def materialised(done: ExecuteInProcessResult) -> list[tuple[str, ...]]:
    """Return the assets that a run materialised, in order."""
    events = [e for e in done.all_events if e.event_type_value == "ASSET_MATERIALIZATION"]
    return [tuple(e.asset_key.path) for e in events if e.asset_key]


def evaluated(done: ExecuteInProcessResult) -> list[AssetCheckEvaluation]:
    """Return the checks that a run evaluated, in order."""
    return [e.asset_check_evaluation_data for e in done.all_events if e.event_type_value == "ASSET_CHECK_EVALUATION"]


def evaluations(done: ExecuteInProcessResult, *key: str) -> dict[str, AssetCheckEvaluation]:
    """Return the evaluations of an asset's checks, by name."""
    return {each.check_name: each for each in evaluated(done) if each.asset_key == AssetKey([*key])}


def failures(done: ExecuteInProcessResult) -> dict[str, str]:
    """Return the steps that failed, with their errors."""
    failed = [e for e in done.all_events if e.event_type_value == "STEP_FAILURE"]
    return {str(e.step_key): str(e.step_failure_data) for e in failed}
