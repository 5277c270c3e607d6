"""One step a feed: it runs the stages in their order, and materialises each asset that has news.

A run without news materialises nothing: an asset's page goes on showing the last run that had news. Each run plans and
evaluates `conservation` and the type checks; a run without news repeats their last verdicts. The step logs the verdicts on
other checks when there is news, and plans none of them: a planned check without a verdict would show as skipped. The job
`audit`, or a run of checks alone by hand, checks everything that the tables hold.
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
from cdc_assets.assets.resources import LakehouseResource, SparkResource
from cdc_assets.assets.verdicts import BlockingCheckFailed, StrictCheckFailed, is_failure, last_result, line_of
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
        context: AssetExecutionContext, lakehouse: ResourceParam[LakehouseResource], pyspark: SparkResource
    ) -> Iterator[MaterializeResult[None] | AssetCheckResult | AssetCheckEvaluation]:
        lake = lakehouse.feed(name, pyspark)
        if context.selected_asset_keys:
            yield from _run(context, lake, feed)
        else:
            yield from audit.results(context, lake, feed)

    return pipeline


def _run(
    context: AssetExecutionContext, lake: Lakehouse, feed: Feed
) -> Iterator[MaterializeResult[None] | AssetCheckResult | AssetCheckEvaluation]:
    news, error = False, None
    failing: list[AssetCheckResult | AssetCheckEvaluation] = []
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
        for verdict in _verdicts(context, key, told, blocking, news=news, repeat=feed.strict):
            failing += [verdict] if is_failure(verdict) else []
            yield verdict
        failing += filter(is_failure, told.of_tables)
        error = error or told.error
    if news:
        page.renew(context, lake, feed, known_tables(lake.root, lake.feed))
    if error:
        raise error
    if feed.strict and failing:
        raise StrictCheckFailed(f"{lake.feed} is strict: {'; '.join(map(line_of, failing))}", allow_retries=False)


def _verdicts(
    context: AssetExecutionContext, key: AssetKey, told: Told, blocking: set[str], *, news: bool, repeat: bool
) -> Iterator[AssetCheckResult | AssetCheckEvaluation]:
    """Yield the verdicts on what a stage did, up to the first that stops the feed.

    A planned check gets its last verdict again if there is no news; with `repeat` each check does. So a blocking check that
    failed stops each further run until there is news, or until the job `audit` finds that the check passes.

    Raises:
        BlockingCheckFailed: a blocking check failed.
    """
    for evaluated in [*told.checks, *told.of_time]:
        result, is_new = evaluated, news or evaluated in told.of_time
        check = AssetCheckKey(key, str(evaluated.check_name))
        is_planned = check in context.selected_asset_check_keys
        if not is_new and (is_planned or repeat):
            result = last_result(context.instance, check) or evaluated
        if is_planned:
            yield result
        elif is_new or repeat:
            yield evaluation(key, result, blocking=check.name in blocking)
        if not result.passed and check.name in blocking:
            raise BlockingCheckFailed(
                f"{key.to_user_string()}: {result.check_name}: {result.description}", allow_retries=False
            )


def _is_news(instance: DagsterInstance, key: AssetKey, told: Told) -> bool:
    """Whether Dagster has been told of another state of the asset, by other code, or of none."""
    event = instance.get_latest_materialization_event(key)
    newest = event.asset_materialization if event else None
    known = (newest.tags or {}) if newest else {}
    return (known.get("dagster/data_version"), known.get("dagster/code_version")) != (told.version.value, CODE_VERSION)
