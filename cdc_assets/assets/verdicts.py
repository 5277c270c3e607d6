"""Failed checks and failure reasons of a run, read from Dagster's log of the run."""

from collections.abc import Container, Iterable

import dagster as dg


class BlockingCheckFailed(dg.Failure):
    """A blocking check failed: the later stages of the feed do not run, and the other feeds go on."""


class StrictCheckFailed(dg.Failure):
    """A check of a feed with `strict: true` failed, and all stages of the feed have run."""


def list_failed_checks(instance: dg.DagsterInstance, run: str, *, blocking: bool = False) -> list[str]:
    """Return the checks of severity ERROR that failed in a run, a line each; with `blocking` only the blocking checks."""
    return [format_verdict(each) for each in _list_failures(instance, run) if each.blocking or not blocking]


def list_failing_checks(instance: dg.DagsterInstance, runs: Iterable[str], feeds: Container[str]) -> list[str]:
    """Return the checks of these feeds that failed in one of the runs and still fail by their last verdict, a line each.

    Checks of severity WARN are left out.
    """
    failed = {
        dg.AssetCheckKey(each.asset_key, each.check_name): None
        for run in runs
        for each in _list_failures(instance, run)
        if each.asset_key.path[0] in feeds
    }
    last = [find_last_evaluation(instance, key) for key in failed]
    return [format_verdict(each) for each in last if each is not None and is_failure(each)]


def list_failure_reasons(instance: dg.DagsterInstance, run: str) -> list[str]:
    """Return why a run failed, a line a reason: the blocking checks that failed, and the errors of its steps."""
    reasons = list_failed_checks(instance, run, blocking=True)
    for event in _list_events(instance, run):
        if event.event_type == dg.DagsterEventType.STEP_FAILURE:
            error = event.step_failure_data.error
            if error and error.cls_name == "DagsterExecutionStepExecutionError":
                error = error.cause
            if error and error.cls_name != BlockingCheckFailed.__name__:
                # Take the first line only: Spark's messages continue with the stack of the JVM.
                reasons.append(f"{event.step_key}: {error.message.strip().splitlines()[0]}")
    return reasons


def find_last_evaluation(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """Return the last verdict on a check; skip runs that planned the check and ended before they evaluated it."""
    cursor = None
    while records := instance.event_log_storage.get_asset_check_execution_history(key, limit=10, cursor=cursor):
        for record in records:
            if isinstance(evaluation := record.evaluation, dg.AssetCheckEvaluation):
                return evaluation
        cursor = records[-1].id
    return None


def find_last_result(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckResult | None:
    """Return the last verdict on a check as a result that a run can yield again; None if there is none."""
    evaluation = find_last_evaluation(instance, key)
    if evaluation is None:
        return None
    return dg.AssetCheckResult(
        check_name=key.name,
        asset_key=key.asset_key,
        passed=evaluation.passed,
        severity=evaluation.severity,
        description=evaluation.description,
        metadata=evaluation.metadata,
    )


def _list_failures(instance: dg.DagsterInstance, run: str) -> list[dg.AssetCheckEvaluation]:
    """Return the failing verdicts of a run, of severity ERROR."""
    events = [e for e in _list_events(instance, run) if e.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION]
    return [event.asset_check_evaluation_data for event in events if is_failure(event.asset_check_evaluation_data)]


def is_failure(verdict: dg.AssetCheckEvaluation | dg.AssetCheckResult) -> bool:
    """Return whether a check of severity ERROR failed."""
    return not verdict.passed and verdict.severity == dg.AssetCheckSeverity.ERROR


def format_verdict(verdict: dg.AssetCheckEvaluation | dg.AssetCheckResult) -> str:
    """Return a verdict as one line: asset, check, description."""
    asset = verdict.asset_key.to_user_string() if verdict.asset_key else ""
    return f"{asset}: {verdict.check_name}: {verdict.description}"


def _list_events(instance: dg.DagsterInstance, run: str) -> list[dg.DagsterEvent]:
    return [event for entry in instance.all_logs(run) if (event := entry.dagster_event) is not None]
