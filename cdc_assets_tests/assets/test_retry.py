"""Retry a failed run from its failure, as `run_retries` in dagster.yaml does."""

from pathlib import Path

import pytest
from dagster import DagsterInstance, JobDefinition, ReexecutionOptions, execute_job, reconstructable

from cdc_assets.definitions import defs
from cdc_assets_tests.jobs import FEEDS


def pipeline() -> JobDefinition:
    """Return the job, as a process of its own would load it."""
    return defs().resolve_job_def("cdc_pipeline")


def test_a_retry_goes_on_at_the_feed_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No feed has a record: one fails before it needs Spark because its folder is missing, the other needs no Spark."""
    (tmp_path / "feeds.yaml").write_text(FEEDS)
    monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
    monkeypatch.setenv("CDC_LAKEHOUSE", str(tmp_path / "lake"))
    (tmp_path / "crm").mkdir()
    with DagsterInstance.ephemeral() as instance:

        def run(again: str | None = None) -> tuple[str, dict[str, str]]:
            retried = ReexecutionOptions.from_failure(again, instance) if again else None
            done = execute_job(reconstructable(pipeline), instance, reexecution_options=retried)
            steps = {e.step_key: e.event_type_value for e in done.all_events if e.is_step_success or e.is_step_failure}
            return done.run_id, {str(step): outcome for step, outcome in steps.items()}

        first, steps = run()
        assert steps == {"shop__raw_to_history": "STEP_FAILURE", "crm__raw_to_history": "STEP_SUCCESS"}
        (tmp_path / "shop").mkdir()
        assert run(again=first)[1] == {"shop__raw_to_history": "STEP_SUCCESS"}
