"""Sensors that post failed runs and failed checks to a webhook."""

from collections.abc import Sequence

import dagster as dg

from cdc_assets.assets.verdicts import list_failed_checks, list_failure_reasons

_TIMEOUT_SECONDS = 10
_MOST_LINES = 20


def build(webhook: str) -> list[dg.SensorDefinition]:
    """Return the sensors. They post JSON, `{"text": ...}`, the form of Slack, Mattermost, Teams and others.

    They run from the start, because a feeds file names a webhook only to get alerts.
    """

    @dg.run_failure_sensor(
        name="alert_on_failed_runs",
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Posts each failed run, with the reasons, to the webhook that alerts: in the feeds file names.",
    )
    def alert_failed_run(context: dg.RunFailureSensorContext) -> None:
        run = context.dagster_run
        _post(
            webhook,
            f"The run {run.run_id} of {run.job_name} failed.",
            list_failure_reasons(context.instance, run.run_id),
        )

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name="alert_on_failed_checks",
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Posts the failed checks of each successful run to the webhook that alerts: in the feeds file names.",
    )
    def alert_failed_checks(context: dg.RunStatusSensorContext) -> None:
        run = context.dagster_run
        if failed := list_failed_checks(context.instance, run.run_id):
            _post(webhook, f"{len(failed)} checks failed in the run {run.run_id} of {run.job_name}.", failed)

    return [alert_failed_run, alert_failed_checks]


def _post(webhook: str, headline: str, lines: Sequence[str]) -> None:
    """Post a text to the webhook.

    Raises:
        RuntimeError: the webhook did not accept the text.
    """
    # Import late: most processes post nothing, and the import is slow.
    import requests  # noqa: PLC0415

    more = [f"and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    try:
        answer = requests.post(
            webhook, json={"text": "\n".join([headline, *lines[:_MOST_LINES], *more])}, timeout=_TIMEOUT_SECONDS
        )
    except requests.RequestException as error:
        reason = type(error).__name__
    else:
        if answer.ok:
            return
        reason = f"HTTP {answer.status_code}"
    # Leave out the message of `requests`: it contains the address, which often is a secret.
    raise RuntimeError(f"The webhook that alerts: in the feeds file names did not accept the alert: {reason}")
