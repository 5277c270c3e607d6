"""The job on a handful of new records, as Dagster runs it, and three plain Delta appends of the same records."""

import os
from collections.abc import Callable
from pathlib import Path

from dagster import DagsterInstance, JobDefinition
from pyspark.sql import SparkSession

from benchmarks import floors, generate
from benchmarks.stages import Place, Timing, timed
from cdc_assets.feeds import load_feeds
from cdc_assets.sources.recorded import read_lines

RECORDS = 100
_WARM_UP_RUNS = 2
_LATER_MS = 100_000_000


def small_runs(spark: SparkSession, place: Place, folder: Path, runs: int) -> list[tuple[Timing, Timing]]:
    """(the job, three appends), `runs` times, each on new records; two runs more before them are not counted."""
    timings = []
    with DagsterInstance.ephemeral() as instance:
        job = _job(place)
        for number in range(1, runs + _WARM_UP_RUNS + 1):
            name = f"small-{number}.jsonl"
            # A little less than the records: the watermarks are records too.
            events = RECORDS - generate.PARTITIONS
            offsets = [10_000_000 * number] * generate.PARTITIONS
            generate.write(
                place.snapshots / name, events, seed=number, after_ms=_LATER_MS * number, offsets=offsets, repeats=0
            )
            timings.append((timed("job", _run(job, instance)), timed("appends", _appends(spark, place, name, folder))))
    return timings[_WARM_UP_RUNS:]


def _job(place: Place) -> JobDefinition:
    """The job over the place's feed and lakehouse, as the code location defines it."""
    os.environ |= {"CDC_FEEDS": str(place.feeds_file), "CDC_LAKEHOUSE": str(place.root)}
    from cdc_assets.definitions import build_definitions  # noqa: PLC0415 -- it reads the environment when imported

    return build_definitions(load_feeds(place.feeds_file)).resolve_job_def("cdc_pipeline")


def _run(job: JobDefinition, instance: DagsterInstance) -> Callable[[], None]:
    def run() -> None:
        if not job.execute_in_process(instance=instance).success:
            raise RuntimeError("the job failed")

    return run


def _appends(spark: SparkSession, place: Place, name: str, folder: Path) -> Callable[[], None]:
    def run() -> None:
        for table in ("one", "two", "three"):
            floors.append(read_lines(spark, place.snapshots, [name]), folder / "plain" / table)

    return run
