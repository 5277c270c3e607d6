"""The job `delete_old_runs`: Dagster deletes old ticks from its database by itself, but never runs."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg
from pydantic import Field

from cdc_assets.assets.table_assets import define_partitions

_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_PAGE = 1000


class OldRunsConfig(dg.Config):
    """The configuration of the job `delete_old_runs`."""

    keep_runs_days: float = Field(90, gt=0, description="Delete runs that began longer ago than this and have ended.")


def build() -> dg.JobDefinition:
    """Return the job `delete_old_runs`."""

    @dg.op
    def delete_runs(context: dg.OpExecutionContext, config: OldRunsConfig) -> None:
        before = datetime.now(UTC) - timedelta(days=config.keep_runs_days)
        # List all runs before deleting any: a page begins after the last run of the previous page, which must exist.
        old = list(_list_ended_runs(context.instance, before))
        kept = _list_last_materializing_runs(context.instance) if old else set()
        deleted = [run for run in old if run not in kept]
        for run in deleted:
            context.instance.delete_run(run)
        context.log.info(
            f"{len(deleted)} runs from before {before:%Y-%m-%d %H:%M} UTC deleted; {len(old) - len(deleted)} kept, "
            "because they are the last to have materialized one of their assets"
        )

    @dg.job(
        name="delete_old_runs",
        description="Delete old ended runs, with their events, from Dagster's database. The last run that materialized an "
        "asset, or a partition of it, stays.",
    )
    def delete_old_runs_job() -> None:
        delete_runs()

    return delete_old_runs_job


def _list_ended_runs(instance: dg.DagsterInstance, before: datetime) -> Iterator[str]:
    """Yield the ids of the ended runs that were created before an instant."""
    ended, cursor = dg.RunsFilter(statuses=_ENDED, created_before=before), None
    while page := instance.get_run_records(ended, limit=_PAGE, cursor=cursor):
        yield from (record.dagster_run.run_id for record in page)
        cursor = page[-1].dagster_run.run_id


def _list_last_materializing_runs(instance: dg.DagsterInstance) -> set[str]:
    """Return the ids of the last runs of all assets and partitions, because the pages of the assets show their metadata."""
    runs = set()
    for key in instance.get_asset_keys():
        names = instance.get_dynamic_partitions(str(define_partitions(key).name))
        for records_filter in [dg.AssetRecordsFilter(key, asset_partitions=[name]) for name in names] or [
            dg.AssetRecordsFilter(key)
        ]:
            runs |= {record.run_id for record in instance.fetch_materializations(records_filter, limit=1).records}
    return runs
