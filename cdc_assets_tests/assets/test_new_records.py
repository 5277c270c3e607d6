"""The sensor of a feed on a real broker: when it starts the pipeline, and when not."""

from collections.abc import Callable

import pytest
from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunRequest,
    SkipReason,
    build_sensor_context,
)

from cdc_assets.assets import new_records
from cdc_assets.stages import INGEST
from cdc_assets.storage import LOCAL
from cdc_assets_tests.broker import Client
from cdc_assets_tests.support import Chain, record


def test_it_starts_the_pipeline_once_for_what_is_new(
    client: Client, feeding: Callable[..., Chain], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic, 2)
    it = feeding(topic, max_records_per_run=2)
    monkeypatch.setenv("CDC_LAKEHOUSE", it.lake.root)
    kafka = it.feed.source.kafka
    assert kafka is not None
    sensor = new_records.build("f", kafka, job="cdc_pipeline_f", of_all="cdc_pipeline", store=LOCAL)
    with DagsterInstance.ephemeral() as instance:

        def asked() -> RunRequest | SkipReason:
            answer = sensor(build_sensor_context(instance=instance))
            assert isinstance(answer, RunRequest | SkipReason)
            return answer

        assert isinstance(asked(), SkipReason)  # nothing is there
        client.send([record(b"%d" % n, n % 2) for n in range(3)], topic=topic)
        first = asked()
        assert isinstance(first, RunRequest)
        assert first.tags["cdc/reason"] == "3 offsets of 1 topics are new"
        again = asked()
        assert isinstance(again, RunRequest)
        assert again.run_key == first.run_key  # Dagster starts a key once

        INGEST.run(it.lake, it.feed)
        more = asked()  # max_records_per_run left one
        assert isinstance(more, RunRequest)
        assert more.run_key != first.run_key
        INGEST.run(it.lake, it.feed)
        assert isinstance(asked(), SkipReason)

        client.send([record(b"new")], topic=topic)
        for job in ("cdc_pipeline", "cdc_pipeline_f"):
            run = instance.add_run(DagsterRun(job_name=job, status=DagsterRunStatus.STARTED))
            busy = asked()
            assert isinstance(busy, SkipReason)
            assert run.run_id in (busy.skip_message or "")
            instance.delete_run(run.run_id)
        instance.add_run(DagsterRun(job_name="cdc_pipeline_another", status=DagsterRunStatus.STARTED))
        assert isinstance(asked(), RunRequest)
