"""The Dagster step of a feed: it runs the stages in order, and materializes each asset that changed.

A run without new input materializes nothing, so an asset's page keeps showing the last run that changed the asset. Each
run plans and evaluates `conservation` and the type checks; a run without new input repeats their last verdicts. The
step plans no other check, because Dagster shows a planned check without a verdict as skipped; when something changed,
it logs the verdicts on the other checks. The job `audit`, or a run of checks alone that a person starts, checks
everything that the tables hold.
"""

from collections.abc import Iterator, Sequence

import dagster as dg

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
from cdc_assets.assets.common import (
    CODE_VERSION,
    StageAsset,
    StageResult,
    build_check_result,
    build_evaluation,
    describe_table,
)
from cdc_assets.assets.resources import LakehouseResource, SparkResource
from cdc_assets.assets.table_list import read_table_list
from cdc_assets.assets.verdicts import (
    BlockingCheckFailed,
    StrictCheckFailed,
    find_last_result,
    format_verdict,
    is_failure,
)
from cdc_assets.config import Feed
from cdc_assets.lakehouse.cursor import record_run
from cdc_assets.lakehouse.lakehouse import Lakehouse

# In the order of execution.
_STAGES = (
    raw_records.ASSET,
    change_events.ASSET,
    initial_load.ASSET,
    table_schemas.ASSET,
    type_observations.ASSET,
    released_changes.ASSET,
    history.ASSET,
    quarantine.ASSET,
)


def _list_stages(feed: Feed) -> list[StageAsset]:
    """Return the stages of a feed: `initial_load` runs only for feeds that have a dump."""
    return [stage for stage in _STAGES if stage is not initial_load.ASSET or feed.initial_load is not None]


def build(name: str, feed: Feed) -> dg.AssetsDefinition:
    """Return the step that runs the stages of one feed, with their assets and checks."""

    @dg.multi_asset(
        name=f"{name}__raw_to_history",
        description=f"Ingest the new records of {name}, decode them, release complete changes, and write the histories.",
        specs=[stage.build_spec(name, feed) for stage in _list_stages(feed)],
        check_specs=[check for stage in _list_stages(feed) for check in stage.build_check_specs(name, feed)],
        can_subset=True,
        # Run one at a time: of two concurrent runs of a feed, the second stops at the first commit of the other.
        pool=f"feed_{name}",
    )
    def pipeline(
        context: dg.AssetExecutionContext, lakehouse: dg.ResourceParam[LakehouseResource], pyspark: SparkResource
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult | dg.AssetCheckEvaluation]:
        lake = lakehouse.feed(name, pyspark)
        if context.selected_asset_keys:
            yield from _run(context, lake, feed)
        else:
            yield from audit.evaluate_checks(context, lake, feed)

    return pipeline


def _run(
    context: dg.AssetExecutionContext, lake: Lakehouse, feed: Feed
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult | dg.AssetCheckEvaluation]:
    """Run the selected stages, and yield materializations and verdicts."""
    has_changes, error = False, None
    failing: list[dg.AssetCheckResult | dg.AssetCheckEvaluation] = []
    for stage in _list_stages(feed):
        key = stage.build_key(lake.feed)
        if key not in context.selected_asset_keys:
            continue
        with record_run(context.run.run_id):
            result = stage.run(context, lake, feed)
        # Materialize every asset after the first one that changed, because Dagster shows the others as out of date.
        has_changes = has_changes or result.has_worked or _is_changed(context.instance, key, result)
        if has_changes:
            table_fields = describe_table(result.table) if result.table else {}
            yield dg.MaterializeResult(
                asset_key=key, data_version=result.version, metadata=table_fields | dict(result.metadata)
            )
        specs = stage.build_check_specs(lake.feed, feed)
        for verdict in _evaluate_checks(context, specs, result, has_changes=has_changes, repeat=feed.strict):
            failing += [verdict] if is_failure(verdict) else []
            yield verdict
        failing += filter(is_failure, result.table_checks)
        error = error or result.error
    if has_changes:
        page.write_page(context, lake, feed, read_table_list(lake.root, lake.feed))
    if error:
        raise error
    if feed.strict and failing:
        raise StrictCheckFailed(
            f"{lake.feed} is strict: {'; '.join(map(format_verdict, failing))}", allow_retries=False
        )


def _evaluate_checks(
    context: dg.AssetExecutionContext,
    specs: Sequence[dg.AssetCheckSpec],
    stage_result: StageResult,
    *,
    has_changes: bool,
    repeat: bool,
) -> Iterator[dg.AssetCheckResult | dg.AssetCheckEvaluation]:
    """Yield the verdicts on what a stage did, up to the first that stops the feed.

    Without changes, a planned check gets its last verdict again; with `repeat` every check does. So a blocking check that
    failed stops all further runs until something changes, or until the job `audit` finds that the check passes.

    Raises:
        BlockingCheckFailed: a blocking check failed.
    """
    verdicts = {**stage_result.verdicts, **stage_result.timed_verdicts}
    for spec in specs:
        is_new = has_changes or spec.name in stage_result.timed_verdicts
        is_planned = spec.key in context.selected_asset_check_keys
        result = build_check_result(spec.name, spec.asset_key, verdicts[spec.name])
        if not is_new and (is_planned or repeat):
            result = find_last_result(context.instance, spec.key) or result
        if is_planned:
            yield result
        elif is_new or repeat:
            yield build_evaluation(spec.asset_key, result, blocking=spec.blocking)
        if not result.passed and spec.blocking:
            raise BlockingCheckFailed(
                f"{spec.asset_key.to_user_string()}: {result.check_name}: {result.description}", allow_retries=False
            )


def _is_changed(instance: dg.DagsterInstance, key: dg.AssetKey, result: StageResult) -> bool:
    """Return whether data or code version differ from the last materialization of the asset, or there is none."""
    event = instance.get_latest_materialization_event(key)
    newest = event.asset_materialization if event else None
    tags = (newest.tags or {}) if newest else {}
    return (tags.get("dagster/data_version"), tags.get("dagster/code_version")) != (result.version.value, CODE_VERSION)
