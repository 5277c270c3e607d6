"""history/<feed>/<database>/<table>: SCD type 2 histories; and history/<feed>, the list of those that a run changed.

The feed's step writes all histories. It does not plan their assets, but logs a materialization and check results for
each table that it changed. So a table that a run did not change neither looks stale nor has skipped checks. In a feed
with very many tables each database is one asset, with its tables as partitions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from traceback import format_exception_only
from typing import Any

import dagster as dg

from cdc_assets.assets import table_schemas
from cdc_assets.assets.checks import history as checks
from cdc_assets.assets.checks.conservation import changes_reflected
from cdc_assets.assets.checks.database import merge_table_verdicts
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.assets.common import (
    CODE_VERSION,
    StageAsset,
    StageResult,
    Stopwatch,
    build_check_result,
    build_evaluation,
    describe_table,
    format_rows,
    read_data_version,
)
from cdc_assets.assets.page import draw_versions
from cdc_assets.assets.table_assets import (
    TableAsset,
    add_partitions,
    build_table_asset,
    has_asset_per_table,
)
from cdc_assets.assets.table_list import refresh_table_list
from cdc_assets.assets.verdicts import find_last_evaluation
from cdc_assets.config import Feed
from cdc_assets.errors import first_line
from cdc_assets.history.progress import Name
from cdc_assets.history.table_report import TableReport
from cdc_assets.history.version_rules import UNREFLECTED
from cdc_assets.lakehouse.history import source_columns, source_name
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, HoldReason, ReleaseCursor
from cdc_assets.operations.holds import describe_hold
from cdc_assets.operations.views import register_histories
from cdc_assets.stages import HISTORY, RELEASE, SCHEMAS
from cdc_assets.stages.history.progress_file import blocked_tables
from cdc_assets.stages.history.stage import Failure, HistoryReport
from cdc_assets.stages.missing_parents import find_missing_parents
from cdc_assets.tso import time_text


class NotWrittenError(RuntimeError):
    """A history table could not be written; the run fails with this error after all other tables."""

    def __init__(self, failure: Failure) -> None:
        name = ".".join(failure.name)
        super().__init__(f"{name} was not written; the next run tries again: {first_line(failure.error)}")
        self.__cause__ = failure.error


CONSERVATION, INTERVALS = "conservation", "history_intervals"
DDL_APPLIED, RELOAD = "ddl_applied", "reload_required"
TYPE_MAPPING, COMPLETE = "type_mapping", "history_complete"
COLUMNS, CONTINUE, PARENTS = "column_schema_change", "changes_continue", "parents_exist"

_Outcome = tuple[Name, str, Verdict]  # a history table, one of its checks, and the verdict


def _run(context: dg.AssetExecutionContext, lake: Lakehouse, feed: Feed) -> StageResult:
    """Run the stage, log each table that it changed, and return what to report."""
    name, watch = lake.feed, Stopwatch()

    def log_table(report: TableReport, number: int, total: int) -> None:
        lines = [*(f"applied {s['statement']}" for s in report.statements), *report.log_lines]
        for line in lines:
            context.log.info(f"history/{name} {report.database}.{report.table}: {line}")
        context.log.info(
            f"history/{name} {report.database}.{report.table} ({number} of {total}): {report.changes} changes, "
            f"{report.opened} versions opened, {report.closed} closed, {report.current} rows current, {watch.seconds} s"
        )

    done = HISTORY.run(lake, feed, on_report=log_table)
    # List the tables before logging them, because their number decides which asset each of them has.
    listed = refresh_table_list(context, lake)
    asset_of = partial(build_table_asset, name, per_table=has_asset_per_table(feed, listed))
    released = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
    # The check `schema_known` reports the holds for a missing schema.
    holds = {(hold.database, hold.table): hold for hold in released.holds if hold.reason != HoldReason.SCHEMA}
    failed, blocked = {failure.name for failure in done.failures}, blocked_tables(lake)
    errors: list[Exception] = [NotWrittenError(failure) for failure in done.failures if not failure.is_blocked]
    changed = {(report.database, report.table) for report in done.tables}
    if changed | failed:
        add_partitions(context.instance, [asset_of(*table) for table in sorted({*listed, *changed, *failed})])
    outcomes = _report_tables(context, lake, done, asset_of, holds, errors)
    outcomes += _report_failures(context, lake, done, blocked)
    outcomes += _check_parents(context.instance, lake, feed, done.tables, asset_of)
    if feed.views is not None and done.tables:
        _register_views(context, lake, feed.views, done)
    for table in sorted(({*done.unchanged, *holds}) - changed - failed):
        outcomes += _check_hold(name, table, holds.get(table), checks.ddl_applied_of_unblocked())
    # Append last: of two outcomes of a check, the later one counts.
    outcomes += [((r.database, r.table), COMPLETE, checks.history_complete_of_refused(r)) for r in released.refused]
    results = list(_build_results(context.instance, outcomes, asset_of))
    for key, result in results:
        context.log_event(build_evaluation(key, result))
    stage_result = _build_stage_result(context, lake, done, [*holds.values(), *blocked.values()], errors, watch)
    return replace(stage_result, table_checks=[result for _, result in results])


def _register_views(context: dg.AssetExecutionContext, lake: Lakehouse, schema: str, run: HistoryReport) -> None:
    """Register the tables that a run changed in Spark's catalog. A failure is a warning, since the run has done its work."""
    try:
        register_histories(lake, schema, [(report.database, report.table) for report in run.tables])
    except Exception as error:  # noqa: BLE001 -- a metastore raises errors of many types
        context.log.warning(
            f"{lake.feed}: could not register tables in the catalog; try `cdc-assets views {lake.feed}`: {error}"
        )


def _report_tables(
    context: dg.AssetExecutionContext,
    lake: Lakehouse,
    run: HistoryReport,
    asset_of: Callable[[str, str], TableAsset],
    holds: Mapping[Name, Hold],
    errors: list[Exception],
) -> list[_Outcome]:
    """Log each table that was written, and return the outcomes of its checks. An error in a report is added to `errors`."""
    outcomes: list[_Outcome] = []
    for report in run.tables:
        name = report.database, report.table
        try:
            outcomes += _report_table(context, lake, run, report, asset_of(*name), holds.get(name))
        except Exception as error:
            # Go on: the table is written, and the other tables need their reports.
            context.log.exception(f"history/{lake.feed} {'.'.join(name)}: written, but the report of it failed")
            errors.append(error)
    return outcomes


def _report_failures(
    context: dg.AssetExecutionContext, lake: Lakehouse, run: HistoryReport, blocked: Mapping[Name, Hold]
) -> list[_Outcome]:
    """Log write failures, and return the outcomes of `conservation` for failed, blocked and recovered tables."""
    for failure in run.failures:
        text = "".join(format_exception_only(failure.error)).strip()
        context.log.error(f"history/{lake.feed} {'.'.join(failure.name)}: {text}")
    verdicts = {failure.name: checks.conservation_of_failed(failure.error) for failure in run.failures}
    verdicts |= {name: checks.conservation_of_blocked(hold, lake.feed) for name, hold in blocked.items()}
    verdicts |= dict.fromkeys(run.recovered, checks.conservation_of_recovered())
    return [(name, CONSERVATION, verdict) for name, verdict in verdicts.items()]


def _check_parents(
    instance: dg.DagsterInstance,
    lake: Lakehouse,
    feed: Feed,
    reports: Sequence[TableReport],
    asset_of: Callable[[str, str], TableAsset],
) -> list[_Outcome]:
    """Return the outcomes of `parents_exist` for each table whose rows a foreign key may have changed in a run."""

    def had_missing(table: Name) -> bool:
        last = find_last_evaluation(instance, dg.AssetCheckKey(asset_of(*table).key, PARENTS))
        return last is not None and not last.passed

    examined = find_missing_parents(lake, feed, reports, had_missing)
    return [
        (table, PARENTS, checks.parents_exist(".".join(table), missing)) for table, missing in sorted(examined.items())
    ]


# The columns of the list of history tables that a run changed.
_LISTED_COLUMNS = ("database", "table", "created", "changes", "opened", "closed", "quarantined", "versions", "current")


def _build_stage_result(
    context: dg.AssetExecutionContext,
    lake: Lakehouse,
    run: HistoryReport,
    holds: Sequence[Hold],
    errors: Sequence[Exception],
    watch: Stopwatch,
) -> StageResult:
    """Return what to report for the list of history tables; the first of `errors` fails the run at its end."""
    if statements := _list_statements(run.tables):
        # People look for DDL on the asset table_schemas, but its stage cannot know what the history stage applied.
        metadata = {"ddl_applied": format_rows(statements)}
        context.log_event(dg.AssetObservation(table_schemas.ASSET.build_key(lake.feed), metadata=metadata))
    held = len({(hold.database, hold.table) for hold in holds})
    return StageResult(
        read_data_version(lake.released_changes),
        {
            "state": f"tables changed: {len(run.tables)}; failed: {len(run.failures)}; held: {held}",
            "tables_touched": len(run.tables),
            "tables_new": sum(report.created for report in run.tables),
            "next_step": "look at the failing checks of the tables below" if run.failures or held else "none",
            "tables": format_rows({c: getattr(report, c) for c in _LISTED_COLUMNS} for report in run.tables),
            "ddl_applied": format_rows(statements),
            "tables_failed": len(run.failures),
            "held_tables": format_rows(hold.row() for hold in holds),
            "seconds": watch.seconds,
        },
        has_worked=bool(run.tables or run.failures),
        error=next(iter(errors), None),
    )


def _list_statements(reports: Sequence[TableReport]) -> list[dict[str, Any]]:
    """Return the DDL statements that a run applied, one line a table, in the source's order."""
    lines = [
        {"time": time_text(s["commit_ts"]), "database": r.database, "table": r.table} | s
        for r in reports
        for s in r.statements
    ]
    return sorted(lines, key=lambda line: (line["commit_ts"], line["database"], line["table"]))


def _build_results(
    instance: dg.DagsterInstance, outcomes: Sequence[_Outcome], asset_of: Callable[[str, str], TableAsset]
) -> Iterator[tuple[dg.AssetKey, dg.AssetCheckResult]]:
    """Yield the check results by asset key: one a table, or one for all tables of a database that is one asset."""
    by_database: dict[dg.AssetCheckKey, dict[str, Verdict]] = {}
    for name, check, verdict in outcomes:
        asset = asset_of(*name)
        if asset.partition is None:
            yield asset.key, build_check_result(check, asset.key, verdict)
        else:
            by_database.setdefault(dg.AssetCheckKey(asset.key, check), {})[asset.table] = verdict
    for key, verdicts in by_database.items():
        last = find_last_evaluation(instance, key)
        violations = last.metadata.get("violations") if last else None
        before = [row.data for row in violations.records] if isinstance(violations, dg.TableMetadataValue) else []
        yield key.asset_key, build_check_result(key.name, key.asset_key, merge_table_verdicts(verdicts, before))


def _report_table(
    context: dg.AssetExecutionContext,
    lake: Lakehouse,
    run: HistoryReport,
    report: TableReport,
    asset: TableAsset,
    hold: Hold | None,
) -> list[_Outcome]:
    """Log the materialization of one table, and return the outcomes of its checks."""
    name = report.database, report.table
    table = lake.history(*name).at_current_version()
    broken = run.broken.get(name, [])
    unreflected = [b for b in broken if b["rule"] == UNREFLECTED]
    description = describe_table(table, report.versions)
    columns = _list_column_types(description["dagster/column_schema"])
    column_changes = checks.column_schema_change(_find_last_column_types(context.instance, asset), columns)
    metadata: dict[str, Any] = (
        describe_status(report, lake.feed, hold)
        | description
        | {
            "dagster/column_lineage": build_column_lineage(asset, columns),
            "ddl_applied": format_rows({"time": time_text(s["commit_ts"])} | s for s in report.statements),
            **draw_versions(context, table.name, report.days),
            "example_query": dg.MetadataValue.md(
                f"```sql\nSELECT *\nFROM delta.`{table.path}`\nWHERE _cdc_is_current\n```"
            ),
        }
    )
    tags = {"dagster/data_version": read_data_version(table).value, "dagster/code_version": CODE_VERSION}
    context.log_event(dg.AssetMaterialization(asset.key, partition=asset.partition, metadata=metadata, tags=tags))
    return [
        (name, CONSERVATION, changes_reflected(report, unreflected)),
        (name, INTERVALS, checks.history_intervals([b for b in broken if b["rule"] != UNREFLECTED])),
        *_check_hold(lake.feed, name, hold, checks.ddl_applied(report)),
        (name, RELOAD, checks.reload_required(report)),
        (name, CONTINUE, checks.changes_continue(report)),
        (name, COMPLETE, checks.history_complete(report).as_warning()),
        (name, COLUMNS, column_changes.as_warning()),
    ]


def describe_status(report: TableReport, feed: str, hold: Hold | None) -> dict[str, Any]:
    """Return the first metadata entries, for a person on call: rows, what the run did, the hold, and what to do."""
    held = f"{report.database}.{report.table}: {describe_hold(hold, feed)}" if hold else ""
    steps = [held, "load the table again: the check reload_required says why" if report.reload else ""]
    suffix = "; changes wait" if hold else ""
    return {
        "state": f"{report.current} rows are open, of {report.versions} versions{suffix}",
        "current_rows": report.current,
        "changes_applied": report.changes,
        "versions_opened": report.opened,
        "versions_closed": report.closed,
        "values_quarantined": report.quarantined,
        # The table may become blocked in a run that does not change it, and then only its checks show the hold.
        "next_step": "; ".join(filter(None, steps)) or "none, as long as no check fails",
    }


def _find_last_column_types(instance: dg.DagsterInstance, asset: TableAsset) -> dict[str, str] | None:
    """Return the column types of the last materialization of a history table; None if there is none."""
    records_filter = dg.AssetRecordsFilter(
        asset.key, asset_partitions=None if asset.partition is None else [asset.partition]
    )
    records = instance.fetch_materializations(records_filter, limit=1).records
    last = records[0].asset_materialization if records else None
    columns = last.metadata.get("dagster/column_schema") if last else None
    return _list_column_types(columns.value) if isinstance(columns, dg.TableSchemaMetadataValue) else None


def _list_column_types(schema: dg.TableSchema) -> dict[str, str]:
    return {column.name: column.type for column in schema.columns}


def build_column_lineage(asset: TableAsset, columns: Iterable[str]) -> dg.TableColumnLineage:
    """Return the lineage of the source columns of a history table; columns that the pipeline adds have none."""
    return dg.TableColumnLineage(
        {c: [dg.TableColumnDep(asset.source, asset.source_column(source_name(c)))] for c in source_columns(columns)}
    )


def _check_hold(feed: str, table: Name, hold: Hold | None, applied: Verdict) -> list[_Outcome]:
    """Return the outcomes of the checks that fail while a table is held; `applied` is the verdict on DDL without a hold."""
    type_hold = hold if hold is not None and hold.reason == HoldReason.TYPE else None
    if hold is not None and hold.reason not in (HoldReason.TYPE, HoldReason.LOAD):
        applied = checks.ddl_applied_of_blocked(feed, hold)
    return [(table, DDL_APPLIED, applied), (table, TYPE_MAPPING, checks.type_mapping(type_hold))]


# The checks are those of the history tables.
ASSET = StageAsset(
    name=HISTORY.name,
    upstream=(RELEASE.name, SCHEMAS.name),
    kinds={"pyspark", "deltalake"},
    description="The history tables that a run changed or created, and how.",
    run=_run,
)
