"""One commit to a history table: read the changes, type them, chain them into versions, stage these, commit them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.history.absent_rows import find_absent_rows
from cdc_assets.history.chain_breaks import NO_BREAKS, find_chain_breaks
from cdc_assets.history.columns import SourceColumn, Typing
from cdc_assets.history.completeness import count_met, find_complete_position
from cdc_assets.history.contradictions import find_contradictions
from cdc_assets.history.days import count_by_day, count_by_day_in_spark, update_days
from cdc_assets.history.ddl_report import report_statements
from cdc_assets.history.effects import UnappliedStatement, build_effects, list_unapplied
from cdc_assets.history.eras import drop_unused_layouts
from cdc_assets.history.evolution import Arrive, Close, Recover, Rekey, Step
from cdc_assets.history.excluded_values import list_excluded_values
from cdc_assets.history.moved_rows import Move, list_moved_columns, read_moved_rows
from cdc_assets.history.open_versions import list_new_columns, read_open_versions
from cdc_assets.history.planned_columns import plan_columns
from cdc_assets.history.row_keys import fill_deleted_rows, key_by_row
from cdc_assets.history.shape import Shape, plan_shape
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.table_report import TableReport
from cdc_assets.history.unordered_rows import list_unordered_rows
from cdc_assets.history.unstated_columns import list_unstated_columns
from cdc_assets.history.version_rows import CLOSED, OPENED, PART, to_table_rows
from cdc_assets.history.versions import (
    Effects,
    build_timeline,
    build_versions,
    continue_versions,
    keep_boundaries,
    number_copies,
)
from cdc_assets.lakehouse.history import COPY, HistoryCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.schema import literal
from cdc_assets.lakehouse.table import LakeTable, Staged
from cdc_assets.protocols import protocol_of
from cdc_assets.spark.session import checkpointed, compiled_plans
from cdc_assets.stages.history.changes import is_ordered_by_clock, read_changes
from cdc_assets.stages.quarantining import quarantine

STAGE = "history"


def apply_plan(lake: Lakehouse, session: SparkSession, feed: Feed, plan: TablePlan) -> TableReport:
    """Apply a plan to its history table in one commit; create the table if it does not exist.

    Args:
        lake: the feed's tables.
        session: a Spark session of the commit's own.
        feed: the feed.
        plan: what to apply.

    Raises:
        ConcurrentRunError: another run wrote the table meanwhile.
    """
    changes = fill_deleted_rows(plan, read_changes(lake, session, plan))
    plan = drop_unused_layouts(plan, changes)
    columns = plan_columns(feed, plan, changes)
    shape = plan_shape(plan, columns)
    _alter_table(session, plan, shape)
    typing = Typing(protocol_of(feed), feed.time_zone, plan.layouts, columns)
    effects = _find_effects(lake, session, feed, plan, columns)

    # Without the checkpoint every later step would plan the expressions of all columns again.
    typed = key_by_row(plan, columns, checkpointed(typing.type_rows(changes), eager=False))
    # Observed while the versions are written, because a pass over the changes of its own would cost as much again.
    loss, metrics = Observation(), Observation()
    watched = typed.observe(loss, F.max(F.col("lost").cast("int")).alias("lost"))

    open_versions = read_open_versions(session, plan, shape, typing.schema, typed, list_new_columns(plan, columns))
    moves = _list_moves(lake, feed, plan)
    moved_rows = read_moved_rows(session, plan, moves, columns, effects)
    without_copies = watched.withColumn("copy", F.lit(0))
    applied = number_copies(watched, open_versions, moved_rows, effects) if plan.keyless else without_copies
    if plan.reload_positions:
        absent_rows = find_absent_rows(plan, typed, open_versions, moved_rows, typing.schema)
        applied = applied.unionByName(absent_rows, allowMissingColumns=True)
    line = build_timeline(applied, open_versions, moved_rows)
    since, protocol = find_complete_position(plan, lake.history), protocol_of(feed)
    bounds = keep_boundaries(line, effects, metrics, since, distinguishes_inserts=protocol.distinguishes_inserts)
    versions = build_versions(continue_versions(bounds, effects), effects)

    table = plan.table.with_schema(shape.columns, shape.properties)
    staged = table.stage(to_table_rows(versions, shape.columns, columns, all_open=plan.rewrites_all_open), by=PART)
    report = _report_versions(session, plan, shape, staged)
    report = _report_statements(session, feed, plan, columns, changes, moves, staged, report)
    lost = quarantine(lake, typing.find_problems(typed), STAGE, plan.after, plan.through) if loss.get["lost"] else 0
    breaks = NO_BREAKS
    if metrics.get.get("unlike"):
        breaks = find_chain_breaks(plan, line, columns, effects, distinguishes_inserts=protocol.distinguishes_inserts)
    met = count_met(plan, since, metrics.get["met"])
    report = replace(report, quarantined=lost, breaks=breaks, complete=since, met=met)
    return _commit(session, plan, shape, table, staged, report)


def _alter_table(session: SparkSession, plan: TablePlan, shape: Shape) -> None:
    """Bring an existing history table to its new columns, with one commit a statement."""
    for statement, naming in shape.alterations:
        cursor = replace(plan.cursor, naming=dict(naming))
        plan.table.alter(session, cursor, lambda _, s=statement: session.sql(s))  # type: ignore[misc]


def _find_effects(
    lake: Lakehouse, session: SparkSession, feed: Feed, plan: TablePlan, columns: list[SourceColumn]
) -> Effects:
    """Return what statements do to rows, without a replacement whose place in the order of changes is not certain."""
    effects = build_effects(plan, columns, feed.time_zone)
    if effects.replacement is not None and not is_ordered_by_clock(lake, session, plan, effects.replacement):
        return replace(effects, replacement=None)
    return effects


def _list_moves(lake: Lakehouse, feed: Feed, plan: TablePlan) -> list[Move]:
    """Return the statements of the commit that bring rows into the table, in order."""
    moves = []
    for era, step in enumerate(plan.steps, start=plan.base):
        for op in step.ops:
            if isinstance(op, Recover | Rekey):
                moves.append(Move(op, step.spot, era, plan.table))
            elif isinstance(op, Arrive) and feed.takes(*op.origin) and (origin := lake.history(*op.origin)).exists():
                moves.append(Move(op, step.spot, era, origin))
    return moves


def _report_statements(
    session: SparkSession,
    feed: Feed,
    plan: TablePlan,
    columns: list[SourceColumn],
    changes: DataFrame,
    moves: list[Move],
    staged: Staged,
    report: TableReport,
) -> TableReport:
    """Add to the report what the statements did, which could not be applied in full, and which rows do not fit them."""
    unapplied: list[UnappliedStatement] = [*plan.unreported_changes]
    if report.versions:
        unapplied += list_unapplied(plan, columns, staged, feed.time_zone, list_moved_columns(moves))
        unapplied += list_excluded_values(session, plan, columns, report.columns, staged)
    return replace(
        report,
        statements=report_statements(plan, staged),
        unapplied=unapplied,
        reload=_list_needed_reloads(plan, moves, unapplied),
        loaded=max(plan.reload_positions, default=-1),
        contradictions=find_contradictions(changes, plan.suspicions, exact=plan.has_exact_order),
        unstated=list_unstated_columns(plan, columns, changes),
        unordered=list_unordered_rows(session, plan, changes, staged),
    )


def _list_needed_reloads(
    plan: TablePlan, moves: Iterable[Move], unapplied: Iterable[UnappliedStatement]
) -> list[dict[str, Any]]:
    """Return the statements after which rows are wrong: of this commit, of earlier ones, and of tables that rows came from.

    A reload after a statement has corrected the rows, and a DROP or TRUNCATE has ended them. A statement that one of these
    follows in the same commit is still returned, so that a check fails once.
    """
    mended = max(plan.reload_positions, default=-1)
    ended = max((step.spot.commit_ts for step in plan.evolution.steps if _ends_all_rows(step)), default=-1)
    earlier = [r for r in plan.cursor.reload if r["commit_ts"] >= ended]
    inherited = [
        r
        for move in moves
        if isinstance(move.op, Arrive) and (cursor := move.origin.cursor()) is not None
        for r in cursor.reload
        if move.op.since < r["commit_ts"] <= move.spot.commit_ts
    ]
    statements = [*earlier, *inherited, *(each for each in unapplied if each["reload"])]
    pending = [r for r in statements if r["commit_ts"] > mended]
    # A replay finds statements that the cursor has already.
    return [r for n, r in enumerate(pending) if r not in pending[:n]]


def _ends_all_rows(step: Step) -> bool:
    return any(isinstance(op, Close) and op.reason in {"drop", "truncate"} for op in step.ops)


def _rewritten_condition(plan: TablePlan) -> str:
    """Return a SQL condition for the versions that the commit rewrites."""
    if not plan.rewinds:
        return f"_cdc_is_current = true OR {plan.reopens}" if plan.reopens else "_cdc_is_current = true"
    return f"_cdc_from_ts >= {plan.replay} OR _cdc_to_ts >= {plan.replay} OR _cdc_is_current = true"


def _report_versions(session: SparkSession, plan: TablePlan, shape: Shape, staged: Staged) -> TableReport:
    """Return a report with the counts that the staged files give."""
    opened, closed = staged.in_partition(**{PART: OPENED}), staged.in_partition(**{PART: CLOSED})
    still_open = opened.in_partition(_cdc_is_current=True)
    versions, current = plan.cursor.versions + opened.rows, plan.cursor.current + still_open.rows - closed.rows
    written, removed_by_day = opened, None
    if plan.rewinds:
        removed, removed_by_day = count_by_day_in_spark(plan.table.read(session).where(_rewritten_condition(plan)))
        versions, written = plan.cursor.versions - removed + staged.rows, staged
    if plan.rewinds or plan.reopens:
        # The commit rewrites closed versions, too.
        current = staged.in_partition(_cdc_is_current=True).rows
    # One file after the other, because the files of a load may together be too large for the memory.
    opened_by_day = sum(
        (count_by_day(plan.table.fetch([f], "_cdc_from_ts", "_cdc_op")) for f in written.files), Counter[str]()
    )
    database, name = plan.name
    return TableReport(
        database=database,
        table=name,
        after=plan.after,
        through=plan.through,
        created=plan.present is None,
        changes=plan.changes,
        opened=opened.rows,
        closed=0 if plan.reopens else closed.rows,  # an earlier commit of the run has counted them
        quarantined=0,
        versions=versions,
        current=current,
        columns=shape.columns,
        log_lines=shape.messages,
        days=update_days(plan.cursor.days, opened_by_day, removed_by_day),
    )


def _commit(
    session: SparkSession,
    plan: TablePlan,
    shape: Shape,
    table: LakeTable[HistoryCursor],
    staged: Staged,
    report: TableReport,
) -> TableReport:
    """Add the staged versions to the table and advance its cursor, in one commit; return the report with the new files."""
    is_last = plan.is_last_part
    cursor = HistoryCursor(
        sequence=plan.cursor.sequence + 1,
        release=plan.through if is_last else plan.after,
        versions=report.versions,
        current=report.current,
        statements=list(dict.fromkeys(plan.statements)),
        newest=max([plan.cursor.newest, plan.last or -1, *(step.spot.commit_ts for step in plan.steps)]),
        partly=None if is_last else (plan.through, plan.eras[1], -1 if plan.replay is None else plan.replay),
        naming=None if is_last else dict(shape.naming),
        reload=report.reload,
        complete=report.complete,
        met=report.met,
        days=report.days,
        adopted=plan.cursor.adopted,
    )
    if shape.properties:
        table.create_by_spark(session)
    else:
        table.create()
    before = {f.path for f in table.files()}
    if plan.rewinds or plan.changes_open_versions or (plan.rewrites_all_open and report.closed):
        _replace(session, table, staged, cursor, _rewritten_condition(plan))
    elif report.closed:
        _merge(session, table, staged, cursor)
    else:
        opened = table.read_staged(session, staged.in_partition(**{PART: OPENED}))
        table.transact(session, cursor, lambda _: opened.write.format("delta").mode("append").save(table.path))
    return replace(report, files=[f for f in table.files() if f.path not in before])


def _replace(
    session: SparkSession, table: LakeTable[HistoryCursor], staged: Staged, cursor: HistoryCursor, condition: str
) -> None:
    """Replace all versions that meet the condition by the staged rows."""
    rows = table.read_staged(session, staged)
    writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", condition)
    # The staged rows include versions that the commit closes, which no longer meet the condition.
    session.conf.set("spark.databricks.delta.replaceWhere.constraintCheck.enabled", "false")
    table.transact(session, cursor, lambda _: writer.save(table.path))


def _merge(session: SparkSession, table: LakeTable[HistoryCursor], staged: Staged, cursor: HistoryCursor) -> None:
    """Close the open versions that the commit closes, and insert those that it opens."""
    opened, closed = staged.in_partition(**{PART: OPENED}), staged.in_partition(**{PART: CLOSED})
    rows = [
        table.read_staged(session, part).withColumn("_cdc_closes", F.lit(part is closed)) for part in (opened, closed)
    ]
    same = ["new._cdc_closes", "old._cdc_key = new._cdc_key", "old._cdc_is_current = true"]
    if COPY.name in table.definition.columns.names:
        same.append(f"old.{COPY.name} <=> new.{COPY.name}")
    # Delta skips files by literal bounds only. Parquet states no bounds for long keys.
    if all("_cdc_key" in file.high for file in closed.files):
        low, high = (min(f.low["_cdc_key"] for f in closed.files), max(f.high["_cdc_key"] for f in closed.files))
        same.append(f"old._cdc_key BETWEEN {literal(low)} AND {literal(high)}")

    def merge(history: DeltaTable) -> None:
        merging = history.alias("old").merge(reduce(DataFrame.unionAll, rows).alias("new"), " AND ".join(same))
        merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    # However small the number of rows that close, the MERGE reads all files that may contain them.
    with compiled_plans(session):
        table.transact(session, cursor, merge)
