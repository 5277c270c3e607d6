"""A feed as a Dagster component, for `dg` projects that also have other definitions.

`cdc_assets.definitions` defines all feeds without components, with the jobs and schedules that operate them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from pydantic import BaseModel, Field

from cdc_assets.assets import feed_definitions, new_records
from cdc_assets.assets.resources import build_resources
from cdc_assets.assets.table_list import read_table_list
from cdc_assets.config import Feed, FeedsError, FeedsFile, feeds_path, load_feeds, validate_feeds
from cdc_assets.lakehouse.lakehouse import lakehouse_root
from cdc_assets.stores.storage import Store

_FEED = "The name of a feed of the feeds file (CDC_FEEDS, else data/feeds.yaml, else feeds.yaml); with `settings`, any name."
_SETTINGS = "The feed's settings, as below a feed's name in the feeds file; the feeds file must not have this feed."


class FeedParams(BaseModel):
    """The parameters of `dg scaffold defs`."""

    feed: str = Field(description=_FEED)


class FeedScaffolder(dg.Scaffolder[FeedParams]):
    """Writes the YAML file of a component."""

    @classmethod
    def get_scaffold_params(cls) -> type[FeedParams]:
        """Return the class of the parameters."""
        return FeedParams

    def scaffold(self, request: dg.ScaffoldRequest[FeedParams]) -> None:
        """Write the YAML file of the component."""
        dg.scaffold_component(request, {"feed": request.params.feed})


@dg.scaffold_with(FeedScaffolder)
@dataclass
class CdcFeedComponent(dg.Component, dg.Resolvable):
    """One feed: its assets, their checks, its jobs, and a sensor that starts the pipeline for new records.

    The feed's settings are in `defs.yaml`, or in the feeds file. The commands of `cdc-assets` know the feeds of the feeds
    file only. Settings of Spark and of stores are always in the feeds file. A subclass can override `get_asset_spec` to
    change how Dagster shows the assets.
    """

    feed: Annotated[str, dg.Resolver.default(description=_FEED)]
    settings: Annotated[dict[str, Any] | None, dg.Resolver.default(description=_SETTINGS)] = None

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """Return the spec of an asset as Dagster shows it; an override may change everything except key and deps."""
        return spec

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the feed.

        Raises:
            FeedsError: the feed is in neither file or in both, or a setting is wrong.
        """
        root = lakehouse_root()
        file, resources = _load_project(feeds_path())
        feed = self._feed(file, context.path / "defs.yaml")
        tables, schedule_status = read_table_list(root, self.feed), dg.DefaultScheduleStatus[file.automation.upper()]
        built = feed_definitions.build(self.feed, feed, tables, schedule_status)
        sensor = new_records.build(
            {self.feed: feed},
            {self.feed: built.job},
            root,
            Store.of(file, root),
            sensor_name=f"new_records_{self.feed}",
            status=dg.DefaultSensorStatus[file.automation.upper()],
        )
        return dg.Definitions(
            assets=list(dg.map_asset_specs(self.get_asset_spec, built.assets)),
            asset_checks=built.checks,
            jobs=[built.job],
            schedules=built.comparisons,
            sensors=[sensor],
            resources=resources,
        )

    def _feed(self, file: FeedsFile, defs_file: Path) -> Feed:
        if self.settings is None:
            if self.feed not in file.feeds:
                raise FeedsError(
                    f"{defs_file}: attributes.feed: {self.feed!r} is not in {feeds_path()}; "
                    f"allowed: {', '.join(file.feeds)}, or any name with settings"
                )
            return file.feeds[self.feed]
        if self.feed in file.feeds:
            raise FeedsError(
                f"{defs_file}: attributes.settings: the feed {self.feed!r} is in {feeds_path()}, too; "
                "allowed: settings in one of the two files"
            )
        try:
            return validate_feeds({"feeds": {self.feed: self.settings}}, defs_file).feeds[self.feed]
        except FeedsError as error:
            lines = str(error).replace(f"{defs_file}: feeds.{self.feed}", f"{defs_file}: attributes.settings")
            raise FeedsError(lines) from None


@cache
def _load_project(path: Path) -> tuple[FeedsFile, Mapping[str, object]]:
    """Return feeds file and resources of a project; cached, as Dagster requires that components share resource objects."""
    file = load_feeds(path)
    return file, build_resources(file)
