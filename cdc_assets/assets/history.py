"""history/<feed>/<database>/<table>: SCD type 2 histories; and history/<feed>, the list of those that a run touched.

The feed's step writes all of them. A table's asset is one that Dagster is told about, not one that it plans: a run tells of
the tables that it touched, however many there are, and a table that it did not touch neither looks stale nor has checks
that were skipped.
"""

from collections.abc import Sequence
from typing import Any

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetSpec,
    MetadataValue,
)

from cdc_assets.assets import released_changes as upstream
from cdc_assets.assets import table_schemas
from cdc_assets.assets.common import (
    CODE_VERSION,
    Stopwatch,
    Told,
    check_result,
    data_version,
    described,
    evaluation,
    rows_metadata,
    table_metadata,
)
from cdc_assets.assets.names import CheckSpec, asset_key
from cdc_assets.checks.conservation import changes_reflected
from cdc_assets.checks.history import (
    ddl_applied,
    history_complete,
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
from cdc_assets.operations.views import register
from cdc_assets.stages import HISTORY
from cdc_assets.stages.history import Failure, HistoryReport
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.released_changes import Hold, HoldReason
from cdc_assets.tso import time_text

_CONSERVATION, INTERVALS = "conservation", "history_intervals"
_DDL_APPLIED, _RELOAD = "ddl_applied", "reload_required"
_TYPE_MAPPING, _COMPLETE = "type_mapping", "history_complete"


def key_of(name: str) -> AssetKey:
    """The key of the feed's list of history tables."""
    return asset_key(name, HISTORY.name)


def table_key(name: str, database: str, table: str) -> AssetKey:
    """The key of one history table."""
    return asset_key(name, HISTORY.name, database, table)


def spec(name: str, feed: Feed) -> AssetSpec:
    """The list of one feed's history tables."""
    return AssetSpec(
        key_of(name),
        deps=[upstream.key_of(name), table_schemas.key_of(name)],
        skippable=True,
        kinds={"pyspark", "deltalake"},
        description="The history tables that a run brought up to date, those it met for the first time included.",
        **described(name, feed),
    )


def check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:  # noqa: ARG001 -- all stages have one signature
    """The list has none: its tables have."""
    return []


def table_specs(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[AssetSpec]:
    """The assets of history tables, (database, table) pairs."""
    return [
        AssetSpec(
            table_key(name, database, table),
            deps=[key_of(name)],
            kinds={"deltalake"},
            description=f"The history of `{database}`.`{table}`: one row a version, SCD type 2; written by the step of "
            f"`{name}/history`.",
            **described(name, feed),
        )
        for database, table in tables
    ]


def table_check_specs(name: str, tables: Sequence[tuple[str, str]]) -> list[CheckSpec]:
    """The checks of history tables."""
    told = {
        _CONSERVATION: "After its last released change a key has one open version, or none if that change was a delete.",
        INTERVALS: "Per key: no overlap, no gap that a delete does not explain, at most one open version.",
        _DDL_APPLIED: "What the source's DDL does to columns and open rows was done here, too; else what is left open.",
        _RELOAD: "No statement (TRUNCATE PARTITION and the like) moved rows without a row event.",
        _COMPLETE: "From some position on the history has every row: a load, a CREATE TABLE or a TRUNCATE was seen.",
        _TYPE_MAPPING: "The table waits at no event whose types are not as the protocol's mappings prescribe.",
    }
    return [
        CheckSpec(check, asset=table_key(name, *table), description=description)
        for table in tables
        for check, description in told.items()
    ]


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> Told:
    """Run the stage, and tell of each table that it touched."""
    name, watch = lake.feed, Stopwatch()

    def told(report: TableReport, number: int, of: int) -> None:
        lines = [*(f"applied {s['statement']}" for s in report.statements), *report.told]
        for line in lines:
            context.log.info(f"history/{name} {report.database}.{report.table}: {line}")
        context.log.info(
            f"history/{name} {report.database}.{report.table} ({number} of {of}): {report.changes} changes, "
            f"{report.opened} versions opened, {report.closed} closed, {report.current} rows current, {watch.seconds} s"
        )

    done = HISTORY.run(lake, feed, told=told)
    holds, failed = _waiting(lake), {(f.database, f.table) for f in done.failures}
    for report in done.tables:
        _tell_table(context, lake, done, report, holds.get((report.database, report.table)))
    for failure in done.failures:
        context.log.error(f"history/{name} {failure.database}.{failure.table}: {failure.error}")
        key = table_key(name, failure.database, failure.table)
        context.log_event(evaluation(key, _failed(key, failure)))
    if feed.views is not None and done.tables:
        _register(context, lake, feed.views, done)
    reported = failed | {(report.database, report.table) for report in done.tables}
    for table in sorted(({*done.unchanged, *holds}) - reported):
        key = table_key(name, *table)
        for result in _waits(name, key, holds.get(table), nothing_waits()):
            context.log_event(evaluation(key, result))
    return _listed(context, lake, done, watch)


def _register(context: AssetExecutionContext, lake: Lakehouse, schema: str, run: HistoryReport) -> None:
    """Have the catalog know the tables that a run touched; the run has done its work, whatever the catalog says."""
    try:
        register(lake, schema, [(report.database, report.table) for report in run.tables])
    except Exception as error:  # noqa: BLE001 -- a metastore has many
        context.log.warning(
            f"{lake.feed}: not registered in the catalog (`cdc-assets views {lake.feed}` does so): {error}"
        )


# What the feed's list of history tables tells of each that a run touched.
_LISTED = ("database", "table", "created", "changes", "opened", "closed", "quarantined", "versions", "current")


def _listed(context: AssetExecutionContext, lake: Lakehouse, run: HistoryReport, watch: Stopwatch) -> Told:
    if timeline := _timeline(run.tables):
        # Where people look for DDL, though its own step cannot know what came of it.
        metadata = {"ddl_applied": rows_metadata(timeline)}
        context.log_event(AssetObservation(table_schemas.key_of(lake.feed), metadata=metadata))
    return Told(
        data_version(lake.released_changes),
        {
            "tables_touched": len(run.tables),
            "tables_new": sum(report.created for report in run.tables),
            "tables": rows_metadata({c: getattr(report, c) for c in _LISTED} for report in run.tables),
            "ddl_applied": rows_metadata(timeline),
            "tables_failed": len(run.failures),
            "seconds": watch.seconds,
        },
        worked=bool(run.tables or run.failures),
        # When all others are done.
        error=run.failures[0].error if run.failures else None,
    )


def _timeline(reports: Sequence[TableReport]) -> list[dict[str, Any]]:
    """The statements that a run applied, one line for each table that one is about, in the source's order."""
    lines = [
        {"time": time_text(s["commit_ts"]), "database": r.database, "table": r.table} | s
        for r in reports
        for s in r.statements
    ]
    return sorted(lines, key=lambda line: (line["commit_ts"], line["database"], line["table"]))


def _tell_table(
    context: AssetExecutionContext, lake: Lakehouse, run: HistoryReport, report: TableReport, hold: Hold | None
) -> None:
    table = lake.history(report.database, report.table).pinned()
    key = table_key(lake.feed, report.database, report.table)
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
    tags = {"dagster/data_version": data_version(table).value, "dagster/code_version": CODE_VERSION}
    context.log_event(AssetMaterialization(key, metadata=metadata, tags=tags))
    for result in (
        check_result(_CONSERVATION, key, changes_reflected(report, unreflected)),
        check_result(INTERVALS, key, intervals([b for b in broken if b["rule"] != UNREFLECTED])),
        *_waits(lake.feed, key, hold, ddl_applied(report)),
        check_result(_RELOAD, key, reload_required(report)),
        check_result(_COMPLETE, key, history_complete(report), AssetCheckSeverity.WARN),
    ):
        context.log_event(evaluation(key, result))


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


def _failed(key: AssetKey, failure: Failure) -> AssetCheckResult:
    """The failing check of a table that could not be written."""
    first_line = str(failure.error).strip().split("\n", 1)[0]
    told = f"The table was not written, and the next run takes it up where it stands: {first_line}"
    return check_result(_CONSERVATION, key, Verdict(passed=False, description=told))
