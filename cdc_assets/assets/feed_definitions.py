"""The Dagster definitions of one feed: its assets, their checks, its jobs, and the schedule of its comparisons."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from cdc_assets.assets import audit, history_specs, source_comparison
from cdc_assets.assets import feed as feed_step
from cdc_assets.config import Feed

PIPELINE = "cdc_pipeline"

# The return type of `define_asset_job`, for which Dagster has no public name.
AssetJob = UnresolvedAssetJobDefinition


@dataclass(frozen=True)
class FeedDefinitions:
    """The Dagster definitions of one feed.

    Attributes:
        assets: the step of the stages, the history tables, and the source's tables.
        checks: the steps that check complete history tables.
        audited: the keys of all checks that can read complete tables.
        job: the pipeline of this feed alone.
        comparisons: the schedule of the job that compares histories with the source, with `verify:` in the feed's settings.
    """

    assets: list[dg.AssetsDefinition | dg.AssetSpec]
    checks: list[dg.AssetChecksDefinition]
    audited: list[dg.AssetCheckKey]
    job: AssetJob
    comparisons: list[dg.ScheduleDefinition]


def build(
    name: str, feed: Feed, tables: Sequence[tuple[str, str]], status: dg.DefaultScheduleStatus
) -> FeedDefinitions:
    """Return the definitions of a feed.

    Args:
        name: the feed's name.
        feed: its settings.
        tables: its history tables, (database, table) pairs.
        status: whether its schedule runs until a person starts or stops it.
    """
    step, comparisons = feed_step.build(name, feed), source_comparison.build_checks(name, feed, tables)
    return FeedDefinitions(
        assets=[step, *history_specs.build_table_specs(name, feed, tables)],
        checks=[
            *([audit.build_table_checks(name, feed, tables)] if tables else []),
            *comparisons,
        ],
        audited=audit.list_audited_checks(name, feed, tables),
        job=dg.define_asset_job(
            f"{PIPELINE}_{name}",
            selection=dg.AssetSelection.assets(*step.keys).without_checks()
            | dg.AssetSelection.checks(*audit.list_stage_checks(name)),
            description=f"The pipeline of the feed {name} alone.",
        ),
        comparisons=[] if feed.verify is None else [_build_comparisons(name, feed.verify.cron, comparisons, status)],
    )


def _build_comparisons(
    name: str, cron: str, comparisons: Sequence[dg.AssetChecksDefinition], status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Return the schedule of the job that compares the feed's histories with the source."""
    job = dg.define_asset_job(
        f"verify_{name}",
        selection=dg.AssetSelection.checks(*comparisons),
        description=f"Compare the histories of the feed {name} with the tables of its source database.",
    )
    return dg.ScheduleDefinition(
        name=f"verify_{name}_schedule",
        job=job,
        cron_schedule=cron,
        description=f"Compare the histories of the feed {name} with its source, as verify: in the feeds file says.",
        default_status=status,
    )
