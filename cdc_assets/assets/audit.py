"""The checks over everything that a feed's tables hold: run by the job `audit`, and by hand in the UI.

They are the checks that the pipeline evaluates over what a run did. One that only a run can tell of has its last verdict
told again.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetExecutionContext,
    DagsterInstance,
    Failure,
    In,
    Nothing,
    Out,
    ResourceParam,
    op,
)

from cdc_assets.assets import change_events, history, raw_records, released_changes, type_observations
from cdc_assets.assets.checks import audit
from cdc_assets.assets.checks.database import merge_table_verdicts
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.assets.common import check_result
from cdc_assets.assets.names import output_name
from cdc_assets.assets.resources import LakehouseResource, SparkResource
from cdc_assets.assets.table_assets import TableAsset, table_assets
from cdc_assets.assets.verdicts import last_result
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse

# The pipeline plans these in each run, too.
_OF_STAGES = (
    (raw_records, "conservation"),
    (change_events, "conservation"),
    (type_observations, "mysql_type_mapping"),
    (type_observations, "jdbc_type_mapping"),
    (released_changes, "conservation"),
)


def audited(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[AssetCheckKey]:
    """The checks of a feed that can look over everything."""
    return [*audited_of_stages(name), *_by_check(table_assets(name, feed, tables))]


def audited_of_stages(name: str) -> list[AssetCheckKey]:
    """Return the checks of a feed's stages that can look over everything."""
    return [AssetCheckKey(stage.key_of(name), check) for stage, check in _OF_STAGES]


def _by_check(assets: Sequence[TableAsset]) -> dict[AssetCheckKey, list[TableAsset]]:
    """The tables that each check over a whole history is about."""
    found: dict[AssetCheckKey, list[TableAsset]] = {}
    for asset in assets:
        found.setdefault(AssetCheckKey(asset.key, history.INTERVALS), []).append(asset)
    return found


def _all_intervals(lake: Lakehouse, assets: Sequence[TableAsset]) -> Verdict:
    found = {each.table: audit.all_intervals(lake, each.database, each.table) for each in assets}
    return found[assets[0].table] if assets[0].partition is None else merge_table_verdicts(found)


def _audits(
    lake: Lakehouse, feed: Feed, tables: Sequence[tuple[str, str]]
) -> Mapping[AssetCheckKey, Callable[[], Verdict]]:
    @functools.cache
    def types() -> tuple[Verdict, Verdict]:
        """Both mappings: one pass over the events."""
        return audit.all_types_mapped(lake, feed)

    verdicts: list[Callable[[], Verdict]] = [
        partial(audit.each_record_once, lake),
        partial(audit.all_records_decoded, lake),
        lambda: types()[0],
        lambda: types()[1],
        partial(audit.all_events_placed, lake, feed),
    ]
    of_stages = dict(zip(audited_of_stages(lake.feed), verdicts, strict=True))
    of_tables = _by_check(table_assets(lake.feed, feed, tables))
    return of_stages | {key: partial(_all_intervals, lake, assets) for key, assets in of_tables.items()}


def results(
    context: AssetExecutionContext | AssetCheckExecutionContext,
    lake: Lakehouse,
    feed: Feed,
    tables: Sequence[tuple[str, str]] = (),
) -> Iterator[AssetCheckResult]:
    """Evaluate the checks that the run was started for."""
    audits = _audits(lake, feed, tables)
    for key in sorted(context.selected_asset_check_keys):
        if key not in audits:
            yield _last_verdict(context.instance, key)
            continue
        verdict = audits[key]()
        context.log.info(f"{key.asset_key.to_user_string()} {key.name}: {verdict.description}")
        mild = feed.type_mapping == "warn" and key.asset_key == type_observations.key_of(lake.feed)
        severity = AssetCheckSeverity.WARN if mild else AssetCheckSeverity.ERROR
        yield check_result(key.name, key.asset_key, verdict, severity)


def _last_verdict(instance: DagsterInstance, key: AssetCheckKey) -> AssetCheckResult:
    """Return the last verdict on a check that only a run of the pipeline can evaluate."""
    if result := last_result(instance, key):
        return result
    raise Failure(
        f"{key.asset_key.to_user_string()} {key.name}: only a run of the pipeline can tell, and none has yet.",
        allow_retries=False,
    )


def tables_audit(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> AssetChecksDefinition:
    """The checks of one feed's history tables."""
    specs = history.table_check_specs(name, feed, tables)
    # As @multi_asset_check does it; but that names the inputs by the keys, and a table's name need not be a Dagster name.
    inputs = {output_name(spec.asset_key): spec.asset_key for spec in specs}
    outputs = {spec.get_python_identifier(): spec for spec in specs}

    @op(
        name=f"{name}__history_audit",
        ins={each: In(Nothing) for each in inputs},
        out={each: Out(None, is_required=False) for each in outputs},
    )
    def run_audit(
        context: AssetCheckExecutionContext, lakehouse: ResourceParam[LakehouseResource], pyspark: SparkResource
    ) -> Iterator[AssetCheckResult]:
        yield from results(context, lakehouse.feed(name, pyspark), feed, tables)

    checks: AssetChecksDefinition = AssetChecksDefinition.create(
        keys_by_input_name=inputs, node_def=run_audit, check_specs_by_output_name=outputs, can_subset=True
    )
    return checks
