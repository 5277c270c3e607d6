"""Delete old runs from Dagster's database, and keep those that are still needed."""

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DynamicPartitionsDefinition,
    MaterializeResult,
    asset,
    materialize,
)

from cdc_assets.assets import old_runs
from cdc_assets.assets.verdicts import find_last_evaluation

TABLES = DynamicPartitionsDefinition(name="tables")


@asset(check_specs=[AssetCheckSpec("check", asset="checked")])
def checked() -> MaterializeResult:  # type: ignore[type-arg]  # Dagster takes no other annotation here
    return MaterializeResult(check_results=[AssetCheckResult(passed=False, description="broke")])


@asset(partitions_def=TABLES)
def tables(context: AssetExecutionContext) -> None:
    """The database of a server that has one table for each partition."""


@asset
def failing() -> None:
    raise RuntimeError("failed")


def delete(instance: DagsterInstance, days: float) -> None:
    config = {"ops": {"delete_runs": {"config": {"keep_runs_days": days}}}}
    assert old_runs.build().execute_in_process(run_config=config, instance=instance).success


def ids(instance: DagsterInstance) -> set[str]:
    return {record.dagster_run.run_id for record in instance.get_run_records() if record.dagster_run.job_name != JOB}


JOB = old_runs.build().name
NOW = 1e-9


def test_runs_that_have_ended_are_deleted_but_the_last_that_materialised_an_asset() -> None:
    with DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("tables", ["a", "b"])
        first, last = (materialize([checked], instance=instance).run_id for _ in range(2))
        failed = materialize([failing], instance=instance, raise_on_error=False).run_id
        of_a, of_b, of_a_again = (
            materialize([tables], instance=instance, partition_key=name).run_id for name in ("a", "b", "a")
        )
        under_way = instance.add_run(DagsterRun(job_name="j", status=DagsterRunStatus.STARTED)).run_id
        every = {first, last, failed, of_a, of_b, of_a_again, under_way}
        delete(instance, 1)
        assert ids(instance) == every
        delete(instance, NOW)
        assert ids(instance) == {last, of_b, of_a_again, under_way}
        assert not instance.all_logs(first)
        # A verdict outlives its run.
        verdict = find_last_evaluation(instance, AssetCheckKey(AssetKey("checked"), "check"))
        assert verdict
        assert verdict.description == "broke"


def test_more_runs_than_a_page_are_deleted() -> None:
    with DagsterInstance.ephemeral() as instance:
        for _ in range(old_runs._PAGE + 1):
            instance.add_run(DagsterRun(job_name="j", status=DagsterRunStatus.CANCELED))
        delete(instance, NOW)
        assert ids(instance) == set()
