"""A feed as a component of Dagster's: for projects that `dg` keeps, beside definitions of other kinds.

`cdc_assets.definitions` has all feeds, and the jobs and schedules of the person who runs them, without it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from dagster.components.utils.defs_state import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field

from cdc_assets.assets import feed_definitions, known_tables, new_records
from cdc_assets.assets.resources import build_resources
from cdc_assets.config import Feed, FeedsError, FeedsFile, feeds_path, load_feeds
from cdc_assets.lakehouse.lakehouse import Lakehouse, lakehouse_root
from cdc_assets.spark.session import spark_session
from cdc_assets.stores.storage import Store


def _state() -> DefsStateConfigArgs:
    # `dagster dev` does not ask the lakehouse: the pipeline itself keeps the state.
    return DefsStateConfigArgs.local_filesystem().model_copy(update={"refresh_if_dev": False})


class FeedParams(BaseModel):
    """What `dg scaffold defs` asks for."""

    feed: str = Field(description="The name of a feed of the feeds file (CDC_FEEDS, else data/feeds.yaml).")


class FeedScaffolder(dg.Scaffolder[FeedParams]):
    """Writes the component's YAML."""

    @classmethod
    def get_scaffold_params(cls) -> type[FeedParams]:
        """What `dg scaffold defs` asks for."""
        return FeedParams

    def scaffold(self, request: dg.ScaffoldRequest[FeedParams]) -> None:
        """Write the component's YAML."""
        scaffold_component(request, {"feed": request.params.feed})


@dg.scaffold_with(FeedScaffolder)
@dataclass
class CdcFeedComponent(dg.StateBackedComponent, dg.Resolvable):
    """One feed of the feeds file: its assets, their checks, its job, and a sensor that starts it when there are new records.

    Its history tables are those that the feed's last run left word of; where no run has, those that
    `dg utils refresh-defs-state` has found in the lakehouse.
    """

    feed: Annotated[
        str,
        dg.Resolver.default(description="The name of a feed of the feeds file (CDC_FEEDS, else data/feeds.yaml)."),
    ]
    translation: (
        Annotated[
            TranslationFn[str],
            TranslationFnResolver[str](template_vars_for_translation_fn=lambda feed: {"feed": feed}),
        ]
        | None
    ) = None
    defs_state: ResolvedDefsStateConfig = field(default_factory=_state)

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where Dagster keeps the state."""
        return DefsStateConfig.from_args(self.defs_state, default_key=f"{type(self).__name__}[{self.feed}]")

    def write_state_to_path(self, state_path: Path) -> None:
        """Look which history tables the lakehouse has, without a JVM."""
        root = lakehouse_root()
        file, _ = _shared(feeds_path())
        known_tables.keep(Lakehouse(spark_session, root, self.feed, Store.of(file, root)), state_path)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """What Dagster has of the feed.

        Raises:
            FeedsError: the feeds file has no such feed.
        """
        root = lakehouse_root()
        file, resources = _shared(feeds_path())
        feed = self._of(file.feeds, context)
        built = feed_definitions.build(self.feed, feed, known_tables.known_tables(root, self.feed, state_path))
        sensor = new_records.build(
            {self.feed: feed},
            {self.feed: built.job},
            feed_definitions.PIPELINE,
            root,
            Store.of(file, root),
            f"new_records_{self.feed}",
        )
        return dg.Definitions(
            assets=self._translated(built.assets),
            asset_checks=built.checks,
            jobs=[built.job],
            sensors=[sensor],
            resources=resources,
        )

    def _translated(
        self, assets: list[dg.AssetsDefinition | dg.AssetSpec]
    ) -> Iterable[dg.AssetsDefinition | dg.AssetSpec]:
        translation = self.translation
        return assets if translation is None else dg.map_asset_specs(lambda spec: translation(spec, self.feed), assets)

    def _of(self, feeds: Mapping[str, Feed], context: dg.ComponentLoadContext) -> Feed:
        if self.feed not in feeds:
            raise FeedsError(
                f"{context.path / 'defs.yaml'}: attributes.feed: {self.feed!r} is not in {feeds_path()}; "
                f"allowed: {', '.join(feeds)}"
            )
        return feeds[self.feed]


# Dagster wants the resources that definitions share to be one object.


@cache
def _shared(path: Path) -> tuple[FeedsFile, Mapping[str, object]]:
    """The feeds file and the resources of a project."""
    file = load_feeds(path)
    return file, build_resources(file)
