"""The checks over everything that a feed's tables hold, which the job `audit` runs, or a person in the UI.

The pipeline evaluates the same checks over what one run did. A check that only a run of the pipeline can evaluate gets
its last verdict again.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import dagster as dg

from cdc_assets.assets import change_events, history, history_specs, raw_records, released_changes, type_observations
from cdc_assets.assets.check_steps import build_check_step
from cdc_assets.assets.checks import audit
from cdc_assets.assets.checks.database import merge_table_verdicts
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.assets.common import build_check_result
from cdc_assets.assets.table_assets import TableAsset, build_table_assets
from cdc_assets.assets.verdicts import find_last_result
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse

# Each run of the pipeline plans these checks, too.
_STAGE_CHECKS = (
    (raw_records.ASSET, "conservation"),
    (change_events.ASSET, "conservation"),
    (type_observations.ASSET, "mysql_type_mapping"),
    (type_observations.ASSET, "jdbc_type_mapping"),
    (released_changes.ASSET, "conservation"),
)


def list_audited_checks(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[dg.AssetCheckKey]:
    """Return the checks of a feed that can read complete tables."""
    return [*list_stage_checks(name), *_group_by_check(build_table_assets(name, feed, tables))]


def list_stage_checks(name: str) -> list[dg.AssetCheckKey]:
    """Return the checks of a feed's stages that can read complete tables."""
    return [dg.AssetCheckKey(stage.build_key(name), check) for stage, check in _STAGE_CHECKS]


def _group_by_check(assets: Sequence[TableAsset]) -> dict[dg.AssetCheckKey, list[TableAsset]]:
    """Return the tables that each check of complete histories covers."""
    assets_by_check: dict[dg.AssetCheckKey, list[TableAsset]] = {}
    for asset in assets:
        assets_by_check.setdefault(dg.AssetCheckKey(asset.key, history.INTERVALS), []).append(asset)
    return assets_by_check


def _check_intervals(lake: Lakehouse, assets: Sequence[TableAsset]) -> Verdict:
    verdicts = {each.table: audit.all_intervals(lake, each.database, each.table) for each in assets}
    return verdicts[assets[0].table] if assets[0].partition is None else merge_table_verdicts(verdicts)


def _build_audits(
    lake: Lakehouse, feed: Feed, tables: Sequence[tuple[str, str]]
) -> Mapping[dg.AssetCheckKey, Callable[[], Verdict]]:
    """Return the functions that evaluate the checks over complete tables, by check."""

    @functools.cache
    def check_types() -> tuple[Verdict, Verdict]:
        """Return the verdicts on both type mappings, from one pass over the events."""
        return audit.all_types_mapped(lake, feed)

    verdicts: list[Callable[[], Verdict]] = [
        partial(audit.each_record_once, lake),
        partial(audit.all_records_decoded, lake),
        lambda: check_types()[0],
        lambda: check_types()[1],
        partial(audit.all_events_placed, lake, feed),
    ]
    stage_audits = dict(zip(list_stage_checks(lake.feed), verdicts, strict=True))
    by_check = _group_by_check(build_table_assets(lake.feed, feed, tables))
    return stage_audits | {key: partial(_check_intervals, lake, assets) for key, assets in by_check.items()}


def evaluate_checks(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext,
    lake: Lakehouse,
    feed: Feed,
    tables: Sequence[tuple[str, str]] = (),
) -> Iterator[dg.AssetCheckResult]:
    """Yield the results of the checks that the run selects."""
    audits = _build_audits(lake, feed, tables)
    for key in sorted(context.selected_asset_check_keys):
        if key not in audits:
            yield _repeat_verdict(context.instance, key)
            continue
        verdict = audits[key]()
        context.log.info(f"{key.asset_key.to_user_string()} {key.name}: {verdict.description}")
        if feed.type_mapping == "warn" and key.asset_key == type_observations.ASSET.build_key(lake.feed):
            verdict = verdict.as_warning()
        yield build_check_result(key.name, key.asset_key, verdict)


def _repeat_verdict(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckResult:
    """Return the last verdict on a check that only a run of the pipeline can evaluate.

    Raises:
        Failure: no run has evaluated the check yet.
    """
    if result := find_last_result(instance, key):
        return result
    raise dg.Failure(
        f"{key.asset_key.to_user_string()} {key.name}: only a run of the pipeline evaluates this check, and no run has yet.",
        allow_retries=False,
    )


def build_table_checks(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> dg.AssetChecksDefinition:
    """Return the step that checks complete history tables of one feed."""
    specs = history_specs.build_table_checks(build_table_assets(name, feed, tables), history_specs.CHECKS)
    return build_check_step(
        name, "history_audit", specs, lambda context, lake: evaluate_checks(context, lake, feed, tables)
    )
