"""history/<feed>/<database>/<table>: one SCD2 table, and one asset, for each source table.

Tables appear by themselves, and Dagster's graph is fixed when the definitions are loaded. So the step knows two kinds of
tables: those of the graph, and those it meets for the first time, whose materialisation and checks it logs under the key
that they have in the graph from the next load on. The asset `<feed>/history` is the feed's list of them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetOut,
    AssetsDefinition,
    MaterializeResult,
    MetadataValue,
    multi_asset,
)

from cdc_assets.assets import released_changes as upstream
from cdc_assets.assets import table_schemas
from cdc_assets.assets.common import (
    CODE_VERSION,
    Stopwatch,
    check_result,
    data_version,
    described,
    rows_metadata,
    table_metadata,
)
from cdc_assets.assets.names import CheckSpec, asset_key, output_name
from cdc_assets.checks.conservation import changes_reflected
from cdc_assets.checks.gate import instant_text
from cdc_assets.checks.history import (
    ddl_applied,
    intervals,
    nothing_waits,
    reload_required,
    type_mapping,
    waits_for_decision,
)
from cdc_assets.checks.verdict import Verdict
from cdc_assets.feeds import Feed
from cdc_assets.history.verify import UNREFLECTED
from cdc_assets.history.writer import TableReport
from cdc_assets.resources import LakehouseResource
from cdc_assets.stages import HISTORY
from cdc_assets.stages.history import Failure, HistoryReport
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.released_changes import Hold, HoldReason
from cdc_assets.tables.table import LakeTable

_CONSERVATION, _INTERVALS = "conservation", "history_intervals"
_DDL_APPLIED, _RELOAD = "ddl_applied", "reload_required"
_TYPE_MAPPING = "type_mapping"


def key_of(name: str, database: str, table: str) -> AssetKey:
    """The key of one history table."""
    return asset_key(name, HISTORY.name, database, table)


def list_key(name: str) -> AssetKey:
    """The key of the feed's list of history tables."""
    return asset_key(name, HISTORY.name)


def _check_specs(key: AssetKey) -> list[CheckSpec]:
    return [
        CheckSpec(
            _CONSERVATION,
            asset=key,
            description="After its last released change a key has one open version, or none if that change was a delete.",
        ),
        CheckSpec(
            _INTERVALS,
            asset=key,
            description="Per key: no overlap, no gap that a delete does not explain, at most one open version.",
        ),
        CheckSpec(
            _DDL_APPLIED,
            asset=key,
            description="What the source's DDL does to columns and open rows was done here, too; else what is left open.",
        ),
        CheckSpec(
            _RELOAD,
            asset=key,
            description="No statement (TRUNCATE PARTITION and the like) moved rows without a row event.",
        ),
        CheckSpec(
            _TYPE_MAPPING,
            asset=key,
            description="The table waits at no event whose types are not as the protocol's mappings prescribe.",
        ),
    ]


def build(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> AssetsDefinition:
    """The history of one feed; `tables` are the (database, table) pairs that have one already."""
    keys = [key_of(name, database, table) for database, table in tables]
    outs = {
        output_name(key): AssetOut(
            key=key,
            is_required=False,
            kinds={"deltalake"},
            description=f"The history of `{database}`.`{table}`: one row a version, SCD type 2.",
            **described(name, feed),
        )
        for key, (database, table) in zip(keys, tables, strict=True)
    }
    outs[output_name(list_key(name))] = AssetOut(
        key=list_key(name),
        is_required=False,
        kinds={"deltalake"},
        description="The history tables that a run brought up to date, those it met for the first time included.",
        **described(name, feed),
    )

    @multi_asset(
        name=f"{name}__history",
        outs=outs,
        deps=[upstream.key_of(name), table_schemas.key_of(name)],
        check_specs=[spec for key in keys for spec in _check_specs(key)],
        can_subset=True,
    )
    def history(
        context: AssetExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[MaterializeResult[None] | AssetCheckResult]:
        lake, watch = lakehouse.feed(name), Stopwatch()
        unselected = set(keys) - context.selected_asset_keys

        def told(report: TableReport, number: int, of: int) -> None:
            lines = [*(f"applied {s['statement']}" for s in report.statements), *report.told]
            for line in lines:
                context.log.info(f"history/{name} {report.database}.{report.table}: {line}")
            context.log.info(
                f"history/{name} {report.database}.{report.table} ({number} of {of}): {report.changes} changes, "
                f"{report.opened} versions opened, {report.closed} closed, {report.current} rows current, {watch.seconds} s"
            )

        run = HISTORY.run(lake, feed, only=lambda table: key_of(name, *table) not in unselected, told=told)
        holds, failed = _waiting(lake), {(f.database, f.table) for f in run.failures}
        for report in run.tables:
            in_graph = key_of(name, report.database, report.table) in keys
            yield from _results(
                context, lake, run, report, holds.get((report.database, report.table)), in_graph=in_graph
            )
        for failure in run.failures:
            context.log.error(f"history/{name} {failure.database}.{failure.table}: {failure.error}")
            yield from _failed(context, name, failure, in_graph=key_of(name, failure.database, failure.table) in keys)
        reported = failed | {(report.database, report.table) for report in run.tables}
        for table in sorted(({*run.unchanged, *holds}) - reported):
            key = key_of(name, *table)
            if key not in unselected:
                results = _waits(name, key, holds.get(table), nothing_waits())
                yield from _told(context, key, results, in_graph=key in keys)
        if list_key(name) in context.selected_asset_keys:
            yield _listed(context, lake, run, watch)
        if run.failures:
            # When all others are done.
            raise run.failures[0].error

    return history


# What the feed's list of history tables tells of each that a run touched.
_LISTED = ("database", "table", "created", "changes", "opened", "closed", "quarantined", "versions", "current")


def _listed(
    context: AssetExecutionContext, lake: Lakehouse, run: HistoryReport, watch: Stopwatch
) -> MaterializeResult[None]:
    if timeline := _timeline(run.tables):
        # Where people look for DDL, though its own step cannot know what came of it.
        metadata = {"ddl_applied": rows_metadata(timeline)}
        context.log_event(AssetObservation(table_schemas.key_of(lake.feed), metadata=metadata))
    return MaterializeResult(
        asset_key=list_key(lake.feed),
        data_version=data_version(lake.released_changes),
        metadata={
            "tables_touched": len(run.tables),
            "tables_new": sum(report.created for report in run.tables),
            "tables": rows_metadata({c: getattr(report, c) for c in _LISTED} for report in run.tables),
            "ddl_applied": rows_metadata(timeline),
            "tables_failed": len(run.failures),
            "seconds": watch.seconds,
        },
    )


def _timeline(reports: Sequence[TableReport]) -> list[dict[str, Any]]:
    """The statements that a run applied, one line for each table that one is about, in the source's order."""
    lines = [
        {"time": instant_text(s["commit_ts"]), "database": r.database, "table": r.table} | s
        for r in reports
        for s in r.statements
    ]
    return sorted(lines, key=lambda line: (line["commit_ts"], line["database"], line["table"]))


def _upstream(lake: Lakehouse) -> dict[AssetKey, LakeTable[Any]]:
    return {
        upstream.key_of(lake.feed): lake.released_changes,
        table_schemas.key_of(lake.feed): lake.table_schemas,
    }


def _results(
    context: AssetExecutionContext,
    lake: Lakehouse,
    run: HistoryReport,
    report: TableReport,
    hold: Hold | None,
    *,
    in_graph: bool,
) -> Iterator[MaterializeResult[None] | AssetCheckResult]:
    table = lake.history(report.database, report.table).pinned()
    key = key_of(lake.feed, report.database, report.table)
    broken = run.broken.get((report.database, report.table), [])
    unreflected = [b for b in broken if b["rule"] == UNREFLECTED]
    metadata: dict[str, Any] = table_metadata(table, report.versions) | {
        "current_rows": report.current,
        "changes_applied": report.changes,
        "versions_opened": report.opened,
        "versions_closed": report.closed,
        "values_quarantined": report.quarantined,
        "ddl_applied": rows_metadata(report.statements),
        "example_query": MetadataValue.md(f"```sql\nSELECT *\nFROM delta.`{table.path}`\nWHERE _cdc_is_current\n```"),
    }
    results = [
        check_result(_CONSERVATION, key, changes_reflected(report, unreflected)),
        check_result(_INTERVALS, key, intervals([b for b in broken if b["rule"] != UNREFLECTED])),
        *_waits(lake.feed, key, hold, ddl_applied(report)),
        check_result(_RELOAD, key, reload_required(report)),
    ]
    if in_graph:
        yield MaterializeResult(asset_key=key, data_version=data_version(table), metadata=metadata)
        yield from results
        return
    # What Dagster itself writes beside an asset of the graph: without it the new table would look out of date.
    tags = {"dagster/data_version": data_version(table).value, "dagster/code_version": CODE_VERSION}
    for upstream_key, source in _upstream(lake).items():
        tags[f"dagster/input_data_version/{upstream_key.to_user_string()}"] = data_version(source).value
        tags[f"dagster/input_event_pointer/{upstream_key.to_user_string()}"] = "NULL"
    context.log_event(AssetMaterialization(key, metadata=metadata, tags=tags))
    yield from _told(context, key, results, in_graph=False)


def _waiting(lake: Lakehouse) -> dict[tuple[str, str], Hold]:
    """The tables that wait, but for those that wait for a schema, of which the gate's own check tells."""
    released = lake.released_changes.cursor()
    holds = released.holds if released else []
    return {(h.database, h.table): h for h in holds if h.reason != HoldReason.SCHEMA}


def _waits(name: str, key: AssetKey, hold: Hold | None, applied: Verdict) -> list[AssetCheckResult]:
    """The checks that fail while a table waits; `applied`: what is said of its DDL when it does not wait at any."""
    at_type = hold is not None and hold.reason == HoldReason.TYPE
    return [
        check_result(_DDL_APPLIED, key, applied if hold is None or at_type else waits_for_decision(name, hold)),
        check_result(_TYPE_MAPPING, key, type_mapping(hold if at_type else None)),
    ]


def _told(
    context: AssetExecutionContext, key: AssetKey, results: list[AssetCheckResult], *, in_graph: bool
) -> Iterator[AssetCheckResult]:
    """Results of checks: Dagster takes those of assets of the graph from the step, and others from its log."""
    if in_graph:
        yield from results
    else:
        for result in results:
            context.log_event(_evaluation(key, result))


def _failed(
    context: AssetExecutionContext, name: str, failure: Failure, *, in_graph: bool
) -> Iterator[AssetCheckResult]:
    """The failing check of a table that could not be written."""
    key = key_of(name, failure.database, failure.table)
    first_line = str(failure.error).strip().split("\n", 1)[0]
    told = f"The table was not written, and the next run takes it up where it stands: {first_line}"
    result = check_result(_CONSERVATION, key, Verdict(passed=False, description=told))
    yield from _told(context, key, [result], in_graph=in_graph)


def _evaluation(key: AssetKey, result: AssetCheckResult) -> AssetCheckEvaluation:
    return AssetCheckEvaluation(
        asset_key=key,
        check_name=str(result.check_name),
        passed=result.passed,
        metadata=result.metadata,
        severity=result.severity,
        description=result.description,
    )
