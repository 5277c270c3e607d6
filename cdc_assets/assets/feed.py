"""One step a feed: it runs the stages in their order, and tells of each asset that has news.

A run without news materialises nothing: the page of an asset goes on showing what the last run that did something told, and
each check its last verdict. So that none is planned and then shown as skipped, the job `cdc_pipeline` has no checks: the
step tells their verdicts by itself. The same checks run alone (the job `audit`, or by hand) look over everything
that the tables hold.
"""

from collections.abc import Iterator

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckResult,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    DagsterInstance,
    MaterializeResult,
    ResourceParam,
    multi_asset,
)

from cdc_assets.assets import (
    audit,
    change_events,
    history,
    initial_load,
    page,
    quarantine,
    raw_records,
    released_changes,
    table_schemas,
    type_observations,
)
from cdc_assets.assets.common import CODE_VERSION, StageAsset, Told, evaluation, table_metadata
from cdc_assets.assets.known_tables import known_tables
from cdc_assets.assets.resources import LakehouseResource
from cdc_assets.assets.verdicts import BlockingCheckFailed
from cdc_assets.config import Feed
from cdc_assets.lakehouse.cursor import record_run
from cdc_assets.lakehouse.lakehouse import Lakehouse

# In the order in which they run.
_STAGES: tuple[StageAsset, ...] = (
    raw_records,
    change_events,
    initial_load,
    table_schemas,
    type_observations,
    released_changes,
    history,
    quarantine,
)


def _stages_of(feed: Feed) -> list[StageAsset]:
    """The assets that a feed has."""
    return [stage for stage in _STAGES if stage is not initial_load or feed.initial_load is not None]


def build(name: str, feed: Feed) -> AssetsDefinition:
    """The assets of one feed's stages."""

    @multi_asset(
        name=f"{name}__raw_to_history",
        description=f"Take in what is new of {name}, decode it, release what is complete, write history.",
        specs=[stage.spec(name, feed) for stage in _stages_of(feed)],
        check_specs=[check for stage in _stages_of(feed) for check in stage.check_specs(name, feed)],
        can_subset=True,
        # Of two runs of a feed at once the second would be refused what the first commits.
        pool=f"feed_{name}",
    )
    def pipeline(
        context: AssetExecutionContext, lakehouse: ResourceParam[LakehouseResource]
    ) -> Iterator[MaterializeResult[None] | AssetCheckResult | AssetCheckEvaluation]:
        lake = lakehouse.feed(name)
        if context.selected_asset_keys:
            yield from _run(context, lake, feed)
        else:
            yield from audit.results(context, lake, feed)

    return pipeline


def _run(
    context: AssetExecutionContext, lake: Lakehouse, feed: Feed
) -> Iterator[MaterializeResult[None] | AssetCheckResult | AssetCheckEvaluation]:
    news, error = False, None
    for stage in _stages_of(feed):
        key = stage.key_of(lake.feed)
        if key not in context.selected_asset_keys:
            continue
        with record_run(context.run.run_id):
            told = stage.run(context, lake, feed)
        # What lies below an asset with news looks out of date until it is told of, too.
        news = news or told.worked or _is_news(context.instance, key, told)
        if news:
            of_table = table_metadata(told.table) if told.table else {}
            yield MaterializeResult(asset_key=key, data_version=told.version, metadata=of_table | dict(told.metadata))
        blocking = {spec.name for spec in stage.check_specs(lake.feed, feed) if spec.blocking}
        yield from _verdicts(context, key, told, blocking, news=news)
        error = error or told.error
    if news:
        page.renew(context, lake, feed, known_tables(lake.root, lake.feed))
    if error:
        raise error


def _verdicts(
    context: AssetExecutionContext, key: AssetKey, told: Told, blocking: set[str], *, news: bool
) -> Iterator[AssetCheckResult | AssetCheckEvaluation]:
    """The verdicts on what a stage did, up to the first that stops the feed.

    Raises:
        BlockingCheckFailed: one does.
    """
    for result in [*told.checks, *told.of_time]:
        # As the result of a check that the run was started for, else as an event of its log.
        if AssetCheckKey(key, str(result.check_name)) in context.selected_asset_check_keys:
            yield result
        elif news or result in told.of_time:
            yield evaluation(key, result, blocking=result.check_name in blocking)
        if not result.passed and result.check_name in blocking:
            raise BlockingCheckFailed(
                f"{key.to_user_string()}: {result.check_name}: {result.description}", allow_retries=False
            )


def _is_news(instance: DagsterInstance, key: AssetKey, told: Told) -> bool:
    """Whether Dagster has been told of another state of the asset, by other code, or of none."""
    event = instance.get_latest_materialization_event(key)
    newest = event.asset_materialization if event else None
    known = (newest.tags or {}) if newest else {}
    return (known.get("dagster/data_version"), known.get("dagster/code_version")) != (told.version.value, CODE_VERSION)
