"""Sensors that tell a webhook of runs that failed, and of checks that did."""

from collections.abc import Sequence

from dagster import (
    DagsterRunStatus,
    DefaultSensorStatus,
    RunFailureSensorContext,
    RunStatusSensorContext,
    SensorDefinition,
    run_failure_sensor,
    run_status_sensor,
)

from cdc_assets.assets.verdicts import failed_checks, reasons

_SECONDS = 10
_SHOWN = 20


def build(webhook: str) -> list[SensorDefinition]:
    """The sensors; what they post is JSON, `{"text": ...}`, as Slack, Mattermost, Teams and others take it.

    They run from the start: that there is a webhook says that they are wanted.
    """

    @run_failure_sensor(
        name="alert_on_failed_runs",
        default_status=DefaultSensorStatus.RUNNING,
        description="Tells the webhook of alerts: in the feeds file of each run that failed, and why.",
    )
    def failed_runs(context: RunFailureSensorContext) -> None:
        run = context.dagster_run
        _tell(webhook, f"The run {run.run_id} of {run.job_name} failed.", reasons(context.instance, run.run_id))

    @run_status_sensor(
        run_status=DagsterRunStatus.SUCCESS,
        name="alert_on_failed_checks",
        default_status=DefaultSensorStatus.RUNNING,
        description="Tells the webhook of alerts: in the feeds file of the checks that failed in a run that went on.",
    )
    def failing_checks(context: RunStatusSensorContext) -> None:
        run = context.dagster_run
        if found := failed_checks(context.instance, run.run_id):
            _tell(webhook, f"{len(found)} checks failed in the run {run.run_id} of {run.job_name}.", found)

    return [failed_runs, failing_checks]


def _tell(webhook: str, headline: str, lines: Sequence[str]) -> None:
    # Which a process that has nothing to tell need not load.
    import requests  # noqa: PLC0415

    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    try:
        answer = requests.post(webhook, json={"text": "\n".join([headline, *lines[:_SHOWN], *more])}, timeout=_SECONDS)
    except requests.RequestException as error:
        told = type(error).__name__
    else:
        if answer.ok:
            return
        told = f"HTTP {answer.status_code}"
    # Not in the words of `requests`, which have the address: often that is the secret.
    raise RuntimeError(f"the webhook of alerts: in the feeds file was not told: {told}")
