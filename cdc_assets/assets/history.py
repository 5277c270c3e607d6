"""history/<feed>/<database>/<table>: one SCD2 table, and one asset, for each source table.

Tables appear by themselves, and Dagster's graph is fixed when the definitions are loaded. So the step knows two kinds of
tables: those of the graph, and those it meets for the first time, whose materialisation and checks it logs under the key
that they have in the graph from the next load on. `history/<feed>` is the feed's list of them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetsDefinition,
    AssetSpec,
    MaterializeResult,
    MetadataValue,
    multi_asset,
)

from cdc_assets.assets import released_changes as upstream
from cdc_assets.assets import table_schemas
from cdc_assets.assets.common import Stopwatch, check_result, described, rows_metadata, table_metadata
from cdc_assets.checks.conservation import changes_reflected
from cdc_assets.checks.history import intervals
from cdc_assets.feeds import Feed
from cdc_assets.history.apply import TableReport, apply, pending_tables
from cdc_assets.lakehouse import Lakehouse
from cdc_assets.resources import LakehouseResource


def key_of(name: str, database: str, table: str) -> AssetKey:
    """The key of one history table."""
    return AssetKey(["history", name, database, table])


def list_key(name: str) -> AssetKey:
    """The key of the feed's list of history tables."""
    return AssetKey(["history", name])


def _check_specs(key: AssetKey) -> list[AssetCheckSpec]:
    return [
        AssetCheckSpec(
            "conservation",
            asset=key,
            description="After its last released change a key has one open version, or none if that change was a delete.",
        ),
        AssetCheckSpec(
            "history_intervals",
            asset=key,
            description="Per key: no overlap, no gap that a delete does not explain, at most one open version.",
        ),
    ]


def build(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> AssetsDefinition:
    """The history of one feed; `tables` are the (database, table) pairs that have one already."""
    upstream_keys = [upstream.key_of(name), table_schemas.key_of(name)]
    keys = [key_of(name, database, table) for database, table in tables]
    specs = [
        AssetSpec(
            key,
            deps=upstream_keys,
            skippable=True,
            kinds={"deltalake"},
            description=f"The history of `{database}`.`{table}`: one row a version, SCD type 2.",
            **described(name, feed),
        )
        for key, (database, table) in zip(keys, tables, strict=True)
    ]
    listing = AssetSpec(
        list_key(name),
        deps=upstream_keys,
        kinds={"deltalake"},
        description="The history tables that a run brought up to date, those it met for the first time included.",
        **described(name, feed),
    )

    @multi_asset(
        name=f"history__{name}",
        specs=[listing, *specs],
        check_specs=[spec for key in keys for spec in _check_specs(key)],
        can_subset=True,
    )
    def history(
        context: AssetExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[MaterializeResult[None] | AssetCheckResult]:
        lake, watch = lakehouse.feed(name), Stopwatch()
        unselected = set(keys) - context.selected_asset_keys
        due = {place: span for place, span in pending_tables(lake).items() if key_of(name, *place) not in unselected}
        done: list[TableReport] = []
        for report in apply(lake, feed, due):
            done.append(report)
            context.log.info(
                f"history/{name} {report.database}.{report.table} ({len(done)} of {len(due)}): {report.changes} changes, "
                f"{report.opened} versions opened, {report.closed} closed, {report.current} rows current, {watch.seconds} s"
            )
            yield from _results(context, lake, report, in_graph=key_of(name, report.database, report.table) in keys)
        if list_key(name) in context.selected_asset_keys:
            columns = [
                "database",
                "table",
                "created",
                "changes",
                "opened",
                "closed",
                "quarantined",
                "versions",
                "current",
            ]
            rows = [{c: getattr(report, c) for c in columns} for report in done]
            yield MaterializeResult(
                asset_key=list_key(name),
                metadata={
                    "tables_touched": len(done),
                    "tables_new": sum(report.created for report in done),
                    "tables": rows_metadata(rows),
                    "seconds": watch.seconds,
                },
            )

    return history


def _results(
    context: AssetExecutionContext, lake: Lakehouse, report: TableReport, *, in_graph: bool
) -> Iterator[MaterializeResult[None] | AssetCheckResult]:
    table = lake.history(report.database, report.table)
    key = key_of(lake.feed, report.database, report.table)
    metadata: dict[str, Any] = table_metadata(table) | {
        "current_rows": report.current,
        "changes_applied": report.changes,
        "versions_opened": report.opened,
        "versions_closed": report.closed,
        "values_quarantined": report.quarantined,
        "example_query": MetadataValue.md(f"```sql\nSELECT * FROM delta.`{table.path}` WHERE _cdc_is_current\n```"),
    }
    results = [
        check_result("conservation", key, changes_reflected(lake, report)),
        check_result("history_intervals", key, intervals(table, report.since)),
    ]
    if in_graph:
        yield MaterializeResult(asset_key=key, metadata=metadata)
        yield from results
        return
    context.log_event(AssetMaterialization(key, metadata=metadata))
    for result in results:
        context.log_event(
            AssetCheckEvaluation(
                asset_key=key,
                check_name=str(result.check_name),
                passed=result.passed,
                metadata=result.metadata,
                severity=result.severity,
                description=result.description,
            )
        )
