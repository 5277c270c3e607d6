"""All that Dagster has of one feed: its assets, their checks, and its job."""

from collections.abc import Sequence
from dataclasses import dataclass

from dagster import AssetCheckKey, AssetChecksDefinition, AssetsDefinition, AssetSelection, AssetSpec, define_asset_job
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from cdc_assets.assets import audit, history
from cdc_assets.assets import feed as feed_assets
from cdc_assets.config import Feed

PIPELINE = "cdc_pipeline"

# What `define_asset_job` makes, for which Dagster has no public name.
AssetJob = UnresolvedAssetJobDefinition


@dataclass(frozen=True)
class FeedDefinitions:
    """One feed's.

    Attributes:
        assets: the step of its stages, its history tables, and the source's own tables.
        checks: of history tables, over all that they hold.
        planned: the keys of the checks that each run of the pipeline plans.
        audited: the keys of all checks that look over all that the tables hold.
        job: the pipeline of this feed alone.
    """

    assets: list[AssetsDefinition | AssetSpec]
    checks: list[AssetChecksDefinition]
    planned: list[AssetCheckKey]
    audited: list[AssetCheckKey]
    job: AssetJob


def build(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> FeedDefinitions:
    """What Dagster has of a feed with these history tables, (database, table) pairs."""
    chain, planned = feed_assets.build(name, feed), audit.audited_of_stages(name)
    return FeedDefinitions(
        assets=[chain, *history.table_specs(name, feed, tables)],
        checks=[audit.tables_audit(name, feed, tables)] if tables else [],
        planned=planned,
        audited=audit.audited(name, feed, tables),
        job=define_asset_job(
            f"{PIPELINE}_{name}",
            selection=AssetSelection.assets(*chain.keys).without_checks() | AssetSelection.checks(*planned),
            description=f"The pipeline of the feed {name} alone.",
        ),
    )
