"""The job that deletes old runs from Dagster's database. Dagster deletes old ticks by itself, and runs never."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from dagster import (
    AssetRecordsFilter,
    Config,
    DagsterInstance,
    DagsterRunStatus,
    JobDefinition,
    OpExecutionContext,
    RunsFilter,
    job,
    op,
)
from pydantic import Field

from cdc_assets.assets.table_assets import partitions

_ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
_PAGE = 1000


class OldRunsConfig(Config):
    """Which runs are old."""

    keep_runs_days: float = Field(90, gt=0, description="Delete runs that began longer ago than this and have ended.")


def build() -> JobDefinition:
    """Return the job `delete_old_runs`."""

    @op
    def delete_runs(context: OpExecutionContext, config: OldRunsConfig) -> None:
        before = datetime.now(UTC) - timedelta(days=config.keep_runs_days)
        # All of them first: a page begins after the last run of the page before, which must still be there.
        old = list(_ended_runs(context.instance, before))
        shown = _runs_shown(context.instance) if old else set()
        deleted = [run for run in old if run not in shown]
        for run in deleted:
            context.instance.delete_run(run)
        context.log.info(
            f"{len(deleted)} runs from before {before:%Y-%m-%d %H:%M} UTC deleted; {len(old) - len(deleted)} kept, as "
            "nothing newer materialised one of their assets"
        )

    @job(
        name="delete_old_runs",
        description="Delete runs that ended, with their events, from Dagster's database. The last run that materialised an "
        "asset, or a partition of it, stays.",
    )
    def delete_old_runs_job() -> None:
        delete_runs()

    return delete_old_runs_job


def _ended_runs(instance: DagsterInstance, before: datetime) -> Iterator[str]:
    """Yield the ids of the runs that were created before an instant, and have ended."""
    old, cursor = RunsFilter(statuses=_ENDED, created_before=before), None
    while page := instance.get_run_records(old, limit=_PAGE, cursor=cursor):
        yield from (record.dagster_run.run_id for record in page)
        cursor = page[-1].dagster_run.run_id


def _runs_shown(instance: DagsterInstance) -> set[str]:
    """Return the ids of the runs that last materialised an asset, or a partition of one: their metadata is on its page."""
    runs = set()
    for key in instance.get_asset_keys():
        names = instance.get_dynamic_partitions(str(partitions(key).name))
        for of in [AssetRecordsFilter(key, asset_partitions=[name]) for name in names] or [AssetRecordsFilter(key)]:
            runs |= {record.run_id for record in instance.fetch_materializations(of, limit=1).records}
    return runs
