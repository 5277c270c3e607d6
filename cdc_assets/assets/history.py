"""history/<feed>/<database>/<table>: SCD type 2 histories; and history/<feed>, the list of those that a run touched.

The feed's step writes all of them. A table's asset is one that Dagster is told about, not one that it plans: a run tells of
the tables that it touched, however many there are, and a table that it did not touch neither looks stale nor has checks
that were skipped. Where there are very many, a database is the asset, and its tables are the partitions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from traceback import format_exception_only
from typing import Any

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetRecordsFilter,
    AssetSpec,
    DagsterInstance,
    MetadataValue,
    TableColumnDep,
    TableColumnLineage,
    TableMetadataValue,
    TableSchema,
    TableSchemaMetadataValue,
)
from pyspark.sql.types import StructType

from cdc_assets.assets import released_changes as upstream
from cdc_assets.assets import table_schemas
from cdc_assets.assets.checks.conservation import changes_reflected
from cdc_assets.assets.checks.database import merge_table_verdicts
from cdc_assets.assets.checks.history import (
    changes_continue,
    column_schema_change,
    conservation_of_blocked,
    conservation_of_failed,
    conservation_of_recovered,
    ddl_applied,
    ddl_applied_of_blocked,
    ddl_applied_of_unblocked,
    history_complete,
    history_complete_of_refused,
    history_intervals,
    reload_required,
    type_mapping,
)
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.assets.common import (
    CODE_VERSION,
    Stopwatch,
    Told,
    check_result,
    column_schema,
    data_version,
    described,
    evaluation,
    rows_metadata,
    table_metadata,
)
from cdc_assets.assets.known_tables import refresh
from cdc_assets.assets.names import CheckSpec, asset_key
from cdc_assets.assets.page import versions_picture
from cdc_assets.assets.table_assets import (
    TableAsset,
    add_partitions,
    each_alone,
    partitions,
    table_asset,
    table_assets,
)
from cdc_assets.assets.verdicts import last_evaluation
from cdc_assets.config import Feed
from cdc_assets.errors import first_line
from cdc_assets.history.progress import blocked_tables
from cdc_assets.history.table_report import TableReport
from cdc_assets.history.verify import UNREFLECTED
from cdc_assets.lakehouse.history import source_columns, source_name
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, HoldReason, ReleaseCursor
from cdc_assets.operations.holds import describe_hold
from cdc_assets.operations.views import register_histories
from cdc_assets.protocols import protocol_of
from cdc_assets.stages import HISTORY
from cdc_assets.stages.history import Failure, HistoryReport
from cdc_assets.tso import time_text


class NotWrittenError(RuntimeError):
    """A table could not be written; the run fails by it when all else is done."""

    def __init__(self, failure: Failure) -> None:
        name = ".".join(failure.name)
        super().__init__(f"{name} was not written, and the next run tries again: {first_line(failure.error)}")
        self.__cause__ = failure.error


_CONSERVATION, INTERVALS = "conservation", "history_intervals"
_DDL_APPLIED, _RELOAD = "ddl_applied", "reload_required"
_TYPE_MAPPING, _COMPLETE = "type_mapping", "history_complete"
_COLUMNS, _CONTINUE = "column_schema_change", "changes_continue"


def key_of(name: str) -> AssetKey:
    """The key of the feed's list of history tables."""
    return asset_key(name, HISTORY.name)


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
    """The assets of history tables, (database, table) pairs, and of what the source has that they are histories of."""
    sources, histories = {}, {}
    for asset in table_assets(name, feed, tables):
        one = asset.partition is None
        what = f"table `{asset.database}`.`{asset.table}`" if one else f"tables of the database `{asset.database}`"
        sources[asset.source] = AssetSpec(
            asset.source,
            kinds={protocol_of(feed).source_kind(feed)},
            description=f"The source's own {what}, outside of this lakehouse.",
            group_name=name,
        )
        histories[asset.key] = AssetSpec(
            asset.key,
            deps=[key_of(name), asset.source],
            partitions_def=None if one else partitions(asset.key),
            kinds={"deltalake"},
            description=f"The {'history' if one else 'histories'} of the {what}{'' if one else ', each a partition'}: one "
            f"row a version, SCD type 2; written by the step of `{name}/history`.",
            **described(name, feed),
        )
    return [*sources.values(), *histories.values()]


def table_check_specs(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[CheckSpec]:
    """The checks of history tables."""
    told = {
        _CONSERVATION: "After its last released change a key has one open version, or none if that change was a "
        "delete. If the table could not be written, mend what the check names, and have it tried again "
        "(`cdc-assets retry`); else run the job audit, and rebuild the feed.",
        INTERVALS: "Per key: no overlap, no gap that a delete does not explain, at most one open version. If not, "
        "somebody has written to the table by hand, or it is a bug: run the job audit, and rebuild the feed.",
        _DDL_APPLIED: "What the source's DDL does to columns and open rows was done here, too. If not, decide about "
        "the statement (`cdc-assets acknowledge`); what is left open is right again with each row's next change.",
        _RELOAD: "No statement (TRUNCATE PARTITION and the like) moved rows without a row event. If one did, load the "
        "table anew, with a dump.",
        _COMPLETE: "From some position on the history has every row: a load, a CREATE TABLE or a TRUNCATE was seen. If "
        "not, rows of before are missing: begin it with a dump (initial_load: in the feeds file).",
        _TYPE_MAPPING: "The table waits at no event whose types are not as the protocol's mappings prescribe. If it "
        "does, give the column's type under columns: in the feeds file, or set type_mapping: warn for the table.",
        _CONTINUE: "Each UPDATE and DELETE found the row as the history has it, as far as its message tells the row before. "
        "If not, a change before it was lost: the rows are right again, the versions before may not be.",
        _COLUMNS: "The columns are those of the last run. If not, whoever reads the table may have to follow: what "
        "changed is told here, and by which statement in ddl_applied; it passes again with the table's next change.",
    }
    assets = {asset.key: asset for asset in table_assets(name, feed, tables)}
    return [
        CheckSpec(check, asset=key, description=description if asset.partition is None else _OF_EACH + description)
        for key, asset in assets.items()
        for check, description in told.items()
    ]


# Before the description of a check that is about all tables of a database.
_OF_EACH = "Of each table of the database, and the violations name those that fail: "


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> Told:
    """Run the stage, and tell of each table that it touched."""
    name, watch = lake.feed, Stopwatch()

    def told(report: TableReport, number: int, of: int) -> None:
        lines = [*(f"applied {s['statement']}" for s in report.statements), *report.log_lines]
        for line in lines:
            context.log.info(f"history/{name} {report.database}.{report.table}: {line}")
        context.log.info(
            f"history/{name} {report.database}.{report.table} ({number} of {of}): {report.changes} changes, "
            f"{report.opened} versions opened, {report.closed} closed, {report.current} rows current, {watch.seconds} s"
        )

    done = HISTORY.run(lake, feed, on_report=told)
    known = refresh(
        context, lake
    )  # before it is told of the tables: which asset is theirs depends on how many there are
    asset_of = partial(table_asset, name, alone=each_alone(feed, known))
    released = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
    holds, failed = _waiting(released), {failure.name for failure in done.failures}
    blocked = blocked_tables(lake)
    errors: list[Exception] = [NotWrittenError(failure) for failure in done.failures if not failure.is_blocked]
    touched = {(report.database, report.table) for report in done.tables}
    if touched | failed:
        add_partitions(context.instance, [asset_of(*table) for table in sorted({*known, *touched, *failed})])
    found = _tell_tables(context, lake, done, asset_of, holds, errors)
    found += _tell_failures(context, lake, done, blocked, asset_of)
    if feed.views is not None and done.tables:
        _register(context, lake, feed.views, done)
    for table in sorted(({*done.unchanged, *holds}) - touched - failed):
        found += _waits(name, asset_of(*table), holds.get(table), ddl_applied_of_unblocked())
    # After what a table's own report says.
    found += [
        _Found(asset_of(r.database, r.table), _COMPLETE, history_complete_of_refused(r)) for r in released.refused
    ]
    results = list(_results(context.instance, found))
    for key, result in results:
        context.log_event(evaluation(key, result))
    listed = _listed(context, lake, done, [*holds.values(), *blocked.values()], errors, watch)
    return replace(listed, of_tables=[result for _, result in results])


def _register(context: AssetExecutionContext, lake: Lakehouse, schema: str, run: HistoryReport) -> None:
    """Have the catalog know the tables that a run touched; the run has done its work, whatever the catalog says."""
    try:
        register_histories(lake, schema, [(report.database, report.table) for report in run.tables])
    except Exception as error:  # noqa: BLE001 -- a metastore has many
        context.log.warning(
            f"{lake.feed}: not registered in the catalog (`cdc-assets views {lake.feed}` does so): {error}"
        )


@dataclass(frozen=True)
class _Found:
    """What a check found of one table."""

    asset: TableAsset
    check: str
    verdict: Verdict
    severity: AssetCheckSeverity = AssetCheckSeverity.ERROR


def _tell_tables(
    context: AssetExecutionContext,
    lake: Lakehouse,
    run: HistoryReport,
    asset_of: Callable[[str, str], TableAsset],
    holds: Mapping[tuple[str, str], Hold],
    errors: list[Exception],
) -> list[_Found]:
    """Tell of each table that was written; return what its checks found. An error with one of them goes to `errors`."""
    found: list[_Found] = []
    for report in run.tables:
        name = report.database, report.table
        try:
            found += _tell_table(context, lake, run, report, asset_of(*name), holds.get(name))
        except Exception as error:
            # The table is written, and of the others there is something to tell.
            context.log.exception(f"history/{lake.feed} {'.'.join(name)}: written, and not told of")
            errors.append(error)
    return found


def _tell_failures(
    context: AssetExecutionContext,
    lake: Lakehouse,
    run: HistoryReport,
    blocked: Mapping[tuple[str, str], Hold],
    asset_of: Callable[[str, str], TableAsset],
) -> list[_Found]:
    """Log what could not be written; return the check of these tables, of blocked ones, and of those that failed before."""
    for failure in run.failures:
        text = "".join(format_exception_only(failure.error)).strip()
        context.log.error(f"history/{lake.feed} {'.'.join(failure.name)}: {text}")
    verdicts = {failure.name: conservation_of_failed(failure.error) for failure in run.failures}
    verdicts |= {name: conservation_of_blocked(hold, lake.feed) for name, hold in blocked.items()}
    verdicts |= dict.fromkeys(run.recovered, conservation_of_recovered())
    return [_Found(asset_of(*name), _CONSERVATION, verdict) for name, verdict in verdicts.items()]


# What the feed's list of history tables tells of each that a run touched.
_LISTED = ("database", "table", "created", "changes", "opened", "closed", "quarantined", "versions", "current")


def _listed(
    context: AssetExecutionContext,
    lake: Lakehouse,
    run: HistoryReport,
    holds: Sequence[Hold],
    errors: Sequence[Exception],
    watch: Stopwatch,
) -> Told:
    """Tell of all tables; `errors`: those that fail the run, when all else is done."""
    if timeline := _timeline(run.tables):
        # Where people look for DDL, though its own step cannot know what came of it.
        metadata = {"ddl_applied": rows_metadata(timeline)}
        context.log_event(AssetObservation(table_schemas.key_of(lake.feed), metadata=metadata))
    held = len({(hold.database, hold.table) for hold in holds})
    return Told(
        data_version(lake.released_changes),
        {
            "state": f"tables brought up to date: {len(run.tables)}; that failed: {len(run.failures)}; held: {held}",
            "tables_touched": len(run.tables),
            "tables_new": sum(report.created for report in run.tables),
            "next_step": "look at the checks that fail of the tables below" if run.failures or held else "none",
            "tables": rows_metadata({c: getattr(report, c) for c in _LISTED} for report in run.tables),
            "ddl_applied": rows_metadata(timeline),
            "tables_failed": len(run.failures),
            "held_tables": rows_metadata(hold.row() for hold in holds),
            "seconds": watch.seconds,
        },
        worked=bool(run.tables or run.failures),
        error=next(iter(errors), None),
    )


def _timeline(reports: Sequence[TableReport]) -> list[dict[str, Any]]:
    """The statements that a run applied, one line for each table that one is about, in the source's order."""
    lines = [
        {"time": time_text(s["commit_ts"]), "database": r.database, "table": r.table} | s
        for r in reports
        for s in r.statements
    ]
    return sorted(lines, key=lambda line: (line["commit_ts"], line["database"], line["table"]))


def _results(instance: DagsterInstance, found: Sequence[_Found]) -> Iterator[tuple[AssetKey, AssetCheckResult]]:
    """The results to tell, of which asset: a table's own, and one for all tables of a database that is an asset."""
    of_databases: dict[AssetCheckKey, list[_Found]] = {}
    for each in found:
        if each.asset.partition is None:
            yield each.asset.key, check_result(each.check, each.asset.key, each.verdict, each.severity)
        else:
            of_databases.setdefault(AssetCheckKey(each.asset.key, each.check), []).append(each)
    for key, tables in of_databases.items():
        last = last_evaluation(instance, key)
        shown = last.metadata.get("violations") if last else None
        before = [record.data for record in shown.records] if isinstance(shown, TableMetadataValue) else []
        verdict = merge_table_verdicts({each.asset.table: each.verdict for each in tables}, before)
        errors = any(not each.verdict.passed and each.severity == AssetCheckSeverity.ERROR for each in tables)
        severity = AssetCheckSeverity.ERROR if errors else tables[0].severity
        yield key.asset_key, check_result(key.name, key.asset_key, verdict, severity)


def _tell_table(
    context: AssetExecutionContext,
    lake: Lakehouse,
    run: HistoryReport,
    report: TableReport,
    asset: TableAsset,
    hold: Hold | None,
) -> list[_Found]:
    """Tell of one table; what its checks found is returned."""
    table = lake.history(report.database, report.table).at_current_version()
    broken = run.broken.get((report.database, report.table), [])
    unreflected = [b for b in broken if b["rule"] == UNREFLECTED]
    now = column_schema(table.schema() or StructType())
    columns = column_schema_change(_columns_told(context.instance, asset), _types(now))
    metadata: dict[str, Any] = (
        on_call(report, lake.feed, hold)
        | table_metadata(table, report.versions)
        | {
            "dagster/column_lineage": column_lineage(asset, _types(now)),
            "ddl_applied": rows_metadata({"time": time_text(s["commit_ts"])} | s for s in report.statements),
            **versions_picture(context, table.name, report.days),
            "example_query": MetadataValue.md(
                f"```sql\nSELECT *\nFROM delta.`{table.path}`\nWHERE _cdc_is_current\n```"
            ),
        }
    )
    tags = {"dagster/data_version": data_version(table).value, "dagster/code_version": CODE_VERSION}
    context.log_event(AssetMaterialization(asset.key, partition=asset.partition, metadata=metadata, tags=tags))
    warn = AssetCheckSeverity.WARN
    return [
        _Found(asset, _CONSERVATION, changes_reflected(report, unreflected)),
        _Found(asset, INTERVALS, history_intervals([b for b in broken if b["rule"] != UNREFLECTED])),
        *_waits(lake.feed, asset, hold, ddl_applied(report)),
        _Found(asset, _RELOAD, reload_required(report)),
        _Found(asset, _CONTINUE, changes_continue(report)),
        _Found(asset, _COMPLETE, history_complete(report), warn),
        _Found(asset, _COLUMNS, columns, warn),
    ]


def on_call(report: TableReport, feed: str, hold: Hold | None) -> dict[str, Any]:
    """What somebody on call asks first, in that order: what there is, what the run did, what it waits for, what to do."""
    held = f"{report.database}.{report.table}: {describe_hold(hold, feed)}" if hold else ""
    steps = [held, "load the table anew: reload_required says why" if report.reload else ""]
    waits = "; changes wait" if hold else ""
    return {
        "state": f"{report.current} rows are open, of {report.versions} versions{waits}",
        "current_rows": report.current,
        "changes_applied": report.changes,
        "versions_opened": report.opened,
        "versions_closed": report.closed,
        "values_quarantined": report.quarantined,
        # It may begin to wait without being touched, and then only its checks say so.
        "next_step": "; ".join(filter(None, steps)) or "none, as long as no check fails",
    }


def _columns_told(instance: DagsterInstance, asset: TableAsset) -> dict[str, str] | None:
    """The types of the columns as Dagster was last told of them."""
    of_table = AssetRecordsFilter(asset.key, asset_partitions=None if asset.partition is None else [asset.partition])
    records = instance.fetch_materializations(of_table, limit=1).records
    told = records[0].asset_materialization if records else None
    shown = told.metadata.get("dagster/column_schema") if told else None
    return _types(shown.value) if isinstance(shown, TableSchemaMetadataValue) else None


def _types(shown: TableSchema) -> dict[str, str]:
    return {column.name: column.type for column in shown.columns}


def column_lineage(asset: TableAsset, columns: Iterable[str]) -> TableColumnLineage:
    """Which of the source's columns each column of a history table comes from; those that are ours alone from none."""
    return TableColumnLineage(
        {c: [TableColumnDep(asset.source, asset.source_column(source_name(c)))] for c in source_columns(columns)}
    )


def _waiting(released: ReleaseCursor) -> dict[tuple[str, str], Hold]:
    """The tables that wait, but for those that wait for a schema, of which the gate's own check tells."""
    return {(h.database, h.table): h for h in released.holds if h.reason != HoldReason.SCHEMA}


def _waits(name: str, asset: TableAsset, hold: Hold | None, applied: Verdict) -> list[_Found]:
    """The checks that fail while a table waits; `applied`: what is said of its DDL when it does not wait at any."""
    at_type = hold is not None and hold.reason == HoldReason.TYPE
    of_ddl = (
        applied if hold is None or at_type or hold.reason == HoldReason.LOAD else ddl_applied_of_blocked(name, hold)
    )
    return [
        _Found(asset, _DDL_APPLIED, of_ddl),
        _Found(asset, _TYPE_MAPPING, type_mapping(hold if at_type else None)),
    ]
