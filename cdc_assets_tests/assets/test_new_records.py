"""Decide for which feeds the sensor starts the pipeline, and why."""

from collections.abc import Callable
from pathlib import Path

import pytest
from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    SensorDefinition,
    SensorResult,
    SkipReason,
    build_sensor_context,
    define_asset_job,
)

from cdc_assets.assets import new_records
from cdc_assets.config import Feed
from cdc_assets.stages import DECODE, INGEST
from cdc_assets.stores.storage import LOCAL
from cdc_assets_tests.broker import Client
from cdc_assets_tests.jobs import Job
from cdc_assets_tests.support import Chain, Rows, Stream, make_feed, record, tso


def sensor_of(root: str, feeds: dict[str, Feed]) -> SensorDefinition:
    jobs = {name: define_asset_job(f"cdc_pipeline_{name}") for name in feeds}
    return new_records.build(feeds, jobs, root, LOCAL)


def asked(sensor: SensorDefinition, instance: DagsterInstance) -> dict[str | None, tuple[str | None, str]] | str:
    """Return job -> run key and reason; or why nothing is started."""
    answer = sensor(build_sensor_context(instance=instance))
    if isinstance(answer, SkipReason):
        return answer.skip_message or ""
    assert isinstance(answer, SensorResult)
    return {r.job_name: (r.run_key, r.tags["cdc/reason"]) for r in answer.run_requests or []}


@pytest.fixture
def instance() -> DagsterInstance:
    return DagsterInstance.ephemeral()


def test_it_starts_the_pipeline_of_a_topic_once_for_new_records(
    client: Client, feeding: Callable[..., Chain], topic: str, instance: DagsterInstance
) -> None:
    client.create(topic, 2)
    it = feeding(topic, max_records_per_run=2)
    sensor = sensor_of(it.lake.root, {it.lake.feed: it.feed})
    job = f"cdc_pipeline_{it.lake.feed}"

    def ask() -> tuple[str | None, str]:
        answer = asked(sensor, instance)
        assert isinstance(answer, dict)
        return answer[job]

    client.send([record(b"%d" % n, n % 2) for n in range(3)], topic=topic)
    first = ask()
    assert first[1] == "3 offsets of 1 topics are new"
    assert ask() == first  # Dagster starts a key once
    INGEST.run(it.lake, it.feed)
    assert ask()[0] != first[0]
    assert ask()[1] == "1 offsets of 1 topics are new"  # max_records_per_run left one
    INGEST.run(it.lake, it.feed)
    # These records are no events, which only the next stage finds out.
    assert ask()[1] == "change_events has something to do that no run has done"


def test_each_feed_is_asked_by_itself_and_an_error_does_not_stop_the_others(
    tmp_path: Path, job: Job, instance: DagsterInstance
) -> None:
    stream = Stream()
    stream.send(Rows().insert(tso(10), 1, "a"))
    stream.watermark(tso(20))
    for feed in ("shop", "crm"):
        job.add(feed, stream.records)
    feeds = {name: make_feed(tmp_path / name) for name in ("shop", "crm", "gone")}
    sensor = sensor_of(str(tmp_path / "lake"), feeds)
    new = "1 files are new or have changed"
    first = asked(sensor, instance)
    assert isinstance(first, dict)
    assert {name: reason for name, (_, reason) in first.items()} == {"cdc_pipeline_shop": new, "cdc_pipeline_crm": new}

    # A running run of one feed does not delay the others; a run of all feeds does.
    run = instance.add_run(DagsterRun(job_name="cdc_pipeline_crm", status=DagsterRunStatus.STARTED))
    assert asked(sensor, instance) == {"cdc_pipeline_shop": first["cdc_pipeline_shop"]}
    instance.delete_run(run.run_id)
    run = instance.add_run(DagsterRun(job_name="cdc_pipeline", status=DagsterRunStatus.STARTED))
    assert asked(sensor, instance) == "A run of cdc_pipeline is under way."
    instance.delete_run(run.run_id)

    # A run that was killed between two stages left work, though the source has nothing new.
    assert job.run("cdc_pipeline_shop").success
    INGEST.run(job.lake("crm"), feeds["crm"])
    left = asked(sensor, instance)
    assert isinstance(left, dict)
    assert {name: reason for name, (_, reason) in left.items()} == {
        "cdc_pipeline_crm": "change_events has something to do that no run has done"
    }
    DECODE.run(job.lake("crm"), feeds["crm"])
    assert job.run("cdc_pipeline_crm").success
    idle = asked(sensor, instance)
    assert isinstance(idle, str)
    assert idle.startswith("gone: ")
    assert asked(sensor_of(str(tmp_path / "lake"), {"shop": feeds["shop"]}), instance) == (
        "No feed has anything to do that no run has been started for."
    )
