"""Run the stages of a feed one after the other, each timed; or the complete job, as Dagster runs it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from benchmarks.measuring import Timing, timed
from cdc_assets.config import Feed, load_feeds
from cdc_assets.definitions import build_definitions
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages import STAGES, Stage

FEED = "bench"
# The job in this process shows no log.
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
CANAL_JSON = {"protocol": "canal-json", "tidb_extension": True}


@dataclass(frozen=True)
class Place:
    """A folder with a feed's snapshots, its feeds file and its lakehouse."""

    folder: Path

    @property
    def snapshots(self) -> Path:
        """The folder of its recorded files."""
        return self.folder / "snapshots"

    @property
    def feeds_file(self) -> Path:
        """The value of `CDC_FEEDS`."""
        return self.folder / "feeds.yaml"

    @property
    def root(self) -> Path:
        """The value of `CDC_LAKEHOUSE`."""
        return self.folder / "lakehouse"

    def feed(self) -> Feed:
        """The feed, as its file declares it."""
        return load_feeds(self.feeds_file).feeds[FEED]

    def lake(self, spark: SparkSession) -> Lakehouse:
        """A new handle of its lakehouse, as each run has one."""
        return Lakehouse(lambda: spark, str(self.root), FEED)


def prepare(folder: Path, source: dict[str, object] | None = None, **settings: object) -> Place:
    """Make the folder of a feed without records; by default recorded snapshots in Canal-JSON with watermarks."""
    place = Place(folder)
    place.snapshots.mkdir(parents=True)
    feed = {"source": source or {"recorded": "snapshots", "partitions": 3}} | (settings or CANAL_JSON)
    place.feeds_file.write_text(yaml.safe_dump({"feeds": {FEED: feed}}))
    return place


def run_stages(spark: SparkSession, place: Place, stages: Sequence[Stage] = STAGES) -> list[Timing]:
    """Run every stage once, in order.

    Raises:
        RuntimeError: a table could not be written.
    """
    lake, feed = place.lake(spark), place.feed()
    return [timed(stage.name, lambda s=stage: _run(s, lake, feed), spark) for stage in stages]  # type: ignore[misc]


def _run(stage: Stage, lake: Lakehouse, feed: Feed) -> None:
    for failure in getattr(stage.run(lake, feed), "failures", ()):
        raise RuntimeError(f"{failure.database}.{failure.table} could not be written") from failure.error


def run_job(spark: SparkSession, place: Place, name: str) -> tuple[Timing, Timing]:
    """Run the job over the place's feed, checks included, as Dagster does; return its timing and that of history.

    Raises:
        RuntimeError: the job failed.
    """
    os.environ |= {"CDC_FEEDS": str(place.feeds_file), "CDC_LAKEHOUSE": str(place.root)}
    job = build_definitions(load_feeds(place.feeds_file)).resolve_job_def("cdc_pipeline")
    steps: dict[str, float] = {}

    def run() -> None:
        with DagsterInstance.ephemeral() as instance:
            result = job.execute_in_process(instance=instance, run_config=QUIET, raise_on_error=False)
        for event in result.all_events:
            if event.is_step_success:
                steps[str(event.step_key)] = event.step_success_data.duration_ms / 1000
        if not result.success:
            failures = [str(e.step_failure_data.error) for e in result.all_events if e.is_step_failure]
            raise RuntimeError("the job failed: " + "\n".join(failures))

    taken = timed(name, run, spark)
    return taken, Timing(f"{name}: history", sum(s for step, s in steps.items() if "history" in step))
