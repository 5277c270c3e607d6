"""What a run said that somebody has to look at, out of Dagster's log of it."""

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


def failed_checks(instance: DagsterInstance, run: str, *, blocking: bool = False) -> list[str]:
    """The checks of a run that failed and are no mere warnings, a line each; `blocking`: only those that stop it."""
    found = [
        event.asset_check_evaluation_data
        for event in _events(instance, run)
        if event.event_type == DagsterEventType.ASSET_CHECK_EVALUATION
    ]
    return [
        f"{each.asset_key.to_user_string()}: {each.check_name}: {each.description}"
        for each in found
        if not each.passed and each.severity == AssetCheckSeverity.ERROR and (each.blocking or not blocking)
    ]


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


def _events(instance: DagsterInstance, run: str) -> list[DagsterEvent]:
    return [event for entry in instance.all_logs(run) if (event := entry.dagster_event) is not None]
