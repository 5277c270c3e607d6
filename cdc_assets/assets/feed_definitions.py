"""The Dagster definitions of one feed: its assets, their checks, and its job."""

from collections.abc import Sequence
from dataclasses import dataclass

from dagster import AssetCheckKey, AssetChecksDefinition, AssetsDefinition, AssetSelection, AssetSpec, define_asset_job
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from cdc_assets.assets import audit, history_specs
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
        checks: the step that checks complete history tables.
        planned: the keys of the checks that each run of the pipeline plans.
        audited: the keys of all checks that can read complete tables.
        job: the pipeline of this feed alone.
    """

    assets: list[AssetsDefinition | AssetSpec]
    checks: list[AssetChecksDefinition]
    planned: list[AssetCheckKey]
    audited: list[AssetCheckKey]
    job: AssetJob


def build(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> FeedDefinitions:
    """Return the definitions of a feed with these history tables, (database, table) pairs."""
    step, planned = feed_step.build(name, feed), audit.list_stage_checks(name)
    return FeedDefinitions(
        assets=[step, *history_specs.build_table_specs(name, feed, tables)],
        checks=[audit.build_table_checks(name, feed, tables)] if tables else [],
        planned=planned,
        audited=audit.list_audited_checks(name, feed, tables),
        job=define_asset_job(
            f"{PIPELINE}_{name}",
            selection=AssetSelection.assets(*step.keys).without_checks() | AssetSelection.checks(*planned),
            description=f"The pipeline of the feed {name} alone.",
        ),
    )
