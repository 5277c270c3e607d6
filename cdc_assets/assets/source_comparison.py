"""The checks `matches_source` of a feed with `verify:`, which compare its histories with the source's own rows.

The job `verify_<feed>` evaluates them, and a person can execute one of them on its page.
"""

from collections.abc import Iterable, Iterator, Sequence

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetKey,
    In,
    Nothing,
    Out,
    ResourceParam,
    op,
)

from cdc_assets.assets.checks.source import matches_source, matches_source_of_database
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.assets.common import build_check_result
from cdc_assets.assets.history_specs import describe_table_check
from cdc_assets.assets.names import CheckSpec, build_output_name
from cdc_assets.assets.resources import LakehouseResource, SparkResource
from cdc_assets.assets.table_assets import TableAsset, build_table_assets
from cdc_assets.config import Feed
from cdc_assets.operations.verify.tables import Outcome, verify_tables
from cdc_assets.operations.verify.verification import Grade

MATCHES_SOURCE = "matches_source"
# One pool for the comparisons of all feeds, and none that a pipeline is in. So comparisons that wait for a pipeline's run
# take one place among the concurrent runs, and keep no pipeline from running.
POOL = "verify"
_DESCRIPTION = (
    "At its final position the history holds the rows of the source database. Rows that have changed at the source since "
    "are in the history later. If not, the violations show rows that differ, each with what became of its events (why): "
    "load the table again, or rebuild it."
)


def list_checks(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[AssetCheckKey]:
    """Return the checks of a feed's history tables, (database, table) pairs; none for a feed without `verify:`."""
    keys = dict.fromkeys(asset.key for asset in _list_compared(name, feed, tables))
    return [AssetCheckKey(key, MATCHES_SOURCE) for key in keys]


def _list_compared(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[TableAsset]:
    """Return the assets of the tables that `verify:` names; none for a feed without it."""
    assets = build_table_assets(name, feed, tables) if feed.verify is not None else []
    return [each for each in assets if feed.verify is not None and feed.verify.takes(each.database, each.table)]


def build_checks(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[AssetChecksDefinition]:
    """Return the step that compares these history tables with the source; none if there is none to compare."""
    settings, compared = feed.verify, _list_compared(name, feed, tables)
    specs = [
        CheckSpec(MATCHES_SOURCE, asset=asset.key, description=describe_table_check(asset, _DESCRIPTION))
        for asset in {each.key: each for each in compared}.values()
    ]
    if settings is None or not specs:
        return []
    # As in the audit, the inputs are not named after the asset keys, as a table's name may be no valid input name.
    inputs = {build_output_name(spec.asset_key): spec.asset_key for spec in specs}
    outputs = {spec.get_python_identifier(): spec for spec in specs}

    @op(
        name=f"{name}__source_comparison",
        ins={each: In(Nothing) for each in inputs},
        out={each: Out(None, is_required=False) for each in outputs},
        pool=POOL,
    )
    def compare(
        context: AssetCheckExecutionContext, lakehouse: ResourceParam[LakehouseResource], pyspark: SparkResource
    ) -> Iterator[AssetCheckResult]:
        selected = {check.asset_key for check in context.selected_asset_check_keys}
        assets = {(each.database, each.table): each for each in compared if each.key in selected}
        outcomes = verify_tables(lakehouse.feed(name, pyspark), feed, settings, list(assets), context.log)
        yield from _build_results((assets[table], outcome) for table, outcome in outcomes)

    return [
        AssetChecksDefinition.create(
            keys_by_input_name=inputs, node_def=compare, check_specs_by_output_name=outputs, can_subset=True
        )
    ]


def _build_results(outcomes: Iterable[tuple[TableAsset, Outcome]]) -> Iterator[AssetCheckResult]:
    """Yield the result of each table as soon as it is known, then one for all tables of each database that is one asset."""
    by_database: dict[AssetKey, dict[str, Outcome]] = {}
    for asset, outcome in outcomes:
        if asset.partition is None:
            yield _build_result(asset.key, matches_source(outcome), [outcome.grade])
        else:
            by_database.setdefault(asset.key, {})[asset.table] = outcome
    for key, tables in by_database.items():
        yield _build_result(key, matches_source_of_database(tables), [outcome.grade for outcome in tables.values()])


def _build_result(key: AssetKey, verdict: Verdict, grades: Sequence[Grade]) -> AssetCheckResult:
    only_warns = Grade.WARNING in grades and Grade.ERROR not in grades
    severity = AssetCheckSeverity.WARN if only_warns else AssetCheckSeverity.ERROR
    return build_check_result(MATCHES_SOURCE, key, verdict, severity)
