"""A feed as a Dagster component, for projects that `dg` keeps, beside definitions of other kinds.

`cdc_assets.definitions` has all feeds, and the jobs and schedules of the person who runs them, without components.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import dagster as dg
from pydantic import BaseModel, Field

from cdc_assets.assets import feed_definitions, known_tables, new_records
from cdc_assets.assets.resources import build_resources
from cdc_assets.config import FeedsError, FeedsFile, feeds_path, load_feeds
from cdc_assets.lakehouse.lakehouse import lakehouse_root
from cdc_assets.stores.storage import Store

_FEED = "The name of a feed of the feeds file (CDC_FEEDS, else data/feeds.yaml, else feeds.yaml)."


class FeedParams(BaseModel):
    """What `dg scaffold defs` asks for."""

    feed: str = Field(description=_FEED)


class FeedScaffolder(dg.Scaffolder[FeedParams]):
    """Writes the component's YAML."""

    @classmethod
    def get_scaffold_params(cls) -> type[FeedParams]:
        """Return what `dg scaffold defs` asks for."""
        return FeedParams

    def scaffold(self, request: dg.ScaffoldRequest[FeedParams]) -> None:
        """Write the component's YAML."""
        dg.scaffold_component(request, {"feed": request.params.feed})


@dg.scaffold_with(FeedScaffolder)
@dataclass
class CdcFeedComponent(dg.Component, dg.Resolvable):
    """One feed of the feeds file: its assets, their checks, its job, and a sensor that starts it when there are new records.

    The feed's settings stand in the feeds file, not here: the commands of `cdc-assets` and the resources read them there. A
    subclass that overrides `get_asset_spec` changes how Dagster shows the assets.
    """

    feed: Annotated[str, dg.Resolver.default(description=_FEED)]

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """Return the spec of an asset as Dagster shows it; an override may change all but its key and deps."""
        return spec

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return what Dagster has of the feed.

        Raises:
            FeedsError: the feeds file has no such feed.
        """
        root = lakehouse_root()
        file, resources = _shared(feeds_path())
        if self.feed not in file.feeds:
            raise FeedsError(
                f"{context.path / 'defs.yaml'}: attributes.feed: {self.feed!r} is not in {feeds_path()}; "
                f"allowed: {', '.join(file.feeds)}"
            )
        feed = file.feeds[self.feed]
        built = feed_definitions.build(self.feed, feed, known_tables.known_tables(root, self.feed))
        sensor = new_records.build(
            {self.feed: feed},
            {self.feed: built.job},
            feed_definitions.PIPELINE,
            root,
            Store.of(file, root),
            named=f"new_records_{self.feed}",
            status=dg.DefaultSensorStatus[file.automation.upper()],
        )
        return dg.Definitions(
            assets=list(dg.map_asset_specs(self.get_asset_spec, built.assets)),
            asset_checks=built.checks,
            jobs=[built.job],
            sensors=[sensor],
            resources=resources,
        )


@cache
def _shared(path: Path) -> tuple[FeedsFile, Mapping[str, object]]:
    """Return the feeds file and the resources of a project: one object for all components, as Dagster wants it."""
    file = load_feeds(path)
    return file, build_resources(file)
