"""What a run said that somebody has to look at, out of Dagster's log of it."""

from collections.abc import Container, Iterable

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSeverity,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    Failure,
)


class BlockingCheckFailed(Failure):
    """What the stages after it would build on is not right: the feed stops here, and the other feeds go on."""


class StrictCheckFailed(Failure):
    """A check of a feed with `strict: true` failed; the feed's run has done all its work."""


def failed_checks(instance: DagsterInstance, run: str, *, blocking: bool = False) -> list[str]:
    """The checks of a run that failed and are no mere warnings, a line each; `blocking`: only those that stop it."""
    return [line_of(each) for each in _failures(instance, run) if each.blocking or not blocking]


def failing_checks(instance: DagsterInstance, runs: Iterable[str], feeds: Container[str]) -> list[str]:
    """Return the checks of these feeds that failed in one of the runs and whose last verdict is a failure, a line each.

    Checks that only warn are left out.
    """
    failed = {
        AssetCheckKey(each.asset_key, each.check_name): None
        for run in runs
        for each in _failures(instance, run)
        if each.asset_key.path[0] in feeds
    }
    last = [last_evaluation(instance, key) for key in failed]
    return [line_of(each) for each in last if each is not None and is_failure(each)]


def reasons(instance: DagsterInstance, run: str) -> list[str]:
    """Why a run failed, a line a reason: the checks that stopped it, and what its steps raised."""
    found = failed_checks(instance, run, blocking=True)
    for event in _events(instance, run):
        if event.event_type == DagsterEventType.STEP_FAILURE:
            error = event.step_failure_data.error
            if error and error.cls_name == "DagsterExecutionStepExecutionError":
                error = error.cause
            if error and error.cls_name != BlockingCheckFailed.__name__:
                # The first line: after it Spark's messages go on with the JVM's stack.
                found.append(f"{event.step_key}: {error.message.strip().splitlines()[0]}")
    return found


def last_evaluation(instance: DagsterInstance, key: AssetCheckKey) -> AssetCheckEvaluation | None:
    """Return the last verdict on a check, past the runs that planned the check and ended before they evaluated it."""
    cursor = None
    while records := instance.event_log_storage.get_asset_check_execution_history(key, limit=10, cursor=cursor):
        for record in records:
            if isinstance(known := record.evaluation, AssetCheckEvaluation):
                return known
        cursor = records[-1].id
    return None


def last_result(instance: DagsterInstance, key: AssetCheckKey) -> AssetCheckResult | None:
    """Return the last verdict on a check as a result that a run can give again; None if there is no verdict yet."""
    known = last_evaluation(instance, key)
    if known is None:
        return None
    return AssetCheckResult(
        check_name=key.name,
        asset_key=key.asset_key,
        passed=known.passed,
        severity=known.severity,
        description=known.description,
        metadata=known.metadata,
    )


def _failures(instance: DagsterInstance, run: str) -> list[AssetCheckEvaluation]:
    """Return the failures among the verdicts of a run."""
    events = [e for e in _events(instance, run) if e.event_type == DagsterEventType.ASSET_CHECK_EVALUATION]
    return [event.asset_check_evaluation_data for event in events if is_failure(event.asset_check_evaluation_data)]


def is_failure(verdict: AssetCheckEvaluation | AssetCheckResult) -> bool:
    """Return whether a check failed and does not only warn."""
    return not verdict.passed and verdict.severity == AssetCheckSeverity.ERROR


def line_of(verdict: AssetCheckEvaluation | AssetCheckResult) -> str:
    """Return a verdict as one line: the asset, the check, and what it found."""
    asset = verdict.asset_key.to_user_string() if verdict.asset_key else ""
    return f"{asset}: {verdict.check_name}: {verdict.description}"


def _events(instance: DagsterInstance, run: str) -> list[DagsterEvent]:
    return [event for entry in instance.all_logs(run) if (event := entry.dagster_event) is not None]
