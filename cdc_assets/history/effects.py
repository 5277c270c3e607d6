"""Turn what the DDL statements of a commit do to rows into expressions over a row of the history."""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from cdc_assets.expressions import compute_once
from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import Arrive, Close, Convert, Fill, Flag, Forget, Step, StepOp
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.versions import NO_EFFECTS, Effects, Ending, Replacement
from cdc_assets.lakehouse.table import Staged
from cdc_assets.mysql_types.casting import decode, spark_type
from cdc_assets.mysql_types.conversion import converted

_DEFAULTS = "ddl"  # the dialect of the text of a default

# A statement that could not be applied in full: commit_ts, statement, `why`, and `reload`: whether rows are wrong until the
# table is reloaded; otherwise only the column that `why` names is NULL.
UnappliedStatement = dict[str, Any]


def build_effects(plan: TablePlan, columns: Sequence[SourceColumn], time_zone: str) -> Effects:
    """Return what the statements of the commit, and those before them, do to rows.

    Args:
        plan: the commit.
        columns: the columns of the history.
        time_zone: of the feed.
    """
    if not plan.evolves:
        return NO_EFFECTS
    steps = list(enumerate(plan.evolution.steps))[: plan.eras[1]]
    ops = [(era, op) for era, step in steps for op in step.ops]
    endings = tuple(
        Ending(era, op.reason, plan.evolution.steps[era].spot.commit_ts) for era, op in ops if isinstance(op, Close)
    )
    columns_by_id = {c.id: c for c in columns}

    def evolve(row: Column, since: Column, until: Column, *, forget: bool) -> Column:
        values = {c.id: row.getField(c.column) for c in columns}
        for era, op in ops:
            within = (since <= era) & (until > era)
            values |= _apply_operation(
                op, values, columns_by_id, time_zone, within, forget=forget, of_tidb=plan.has_exact_order
            )
        return F.when(row.isNotNull(), F.struct(*[values[c.id].alias(c.column) for c in columns]))

    return Effects(
        last_era=plan.eras[1],
        endings=endings,
        evolve_to_compare=lambda row, since, until: evolve(row, since, until, forget=True),
        evolve=lambda row, since, until: evolve(row, since, until, forget=False),
        replacement=_build_replacement(plan, columns),
    )


def _build_replacement(plan: TablePlan, columns: Sequence[SourceColumn]) -> Replacement | None:
    """Return how rows of this table and of the table that takes its name are compared and merged, or None."""
    if plan.replacement is None:
        return None
    era, arrive, replaced = plan.replacement
    in_both = {slot.id for slot in replaced.columns}
    only_in_new = {slot.id for slot in arrive.columns} - in_both

    def is_same(old: Column, new: Column) -> Column:
        compared = [old.getField(c.column).eqNullSafe(new.getField(c.column)) for c in columns if c.id in in_both]
        # Without known columns in both tables, nothing proves that rows are equal.
        return reduce(and_, compared) if compared else F.lit(False)

    def merge(old: Column, new: Column) -> Column:
        return F.struct(*[(new if c.id in only_in_new else old).getField(c.column).alias(c.column) for c in columns])

    return Replacement(replaced.commit_ts, replaced.era, era, is_same, merge)


def list_unapplied(
    plan: TablePlan, columns: Sequence[SourceColumn], staged: Staged, time_zone: str, moved: Collection[str]
) -> list[UnappliedStatement]:
    """Return the statements of the commit that cannot be applied in full.

    Args:
        plan: the commit.
        columns: the columns of the history.
        staged: the versions that the commit writes.
        time_zone: of the feed.
        moved: ids of the columns of which moved rows have values.
    """
    names, unapplied = {c.id: c.column for c in columns}, []
    for step in plan.steps:
        for op in step.ops:
            why = _explain_unknown_values(op, names, time_zone)
            why = why or _explain_unconverted_values(plan, staged, step.spot.commit_ts, op, names)
            if why is not None:
                unapplied.append(describe_unapplied(step, why, reload=isinstance(op, Flag) and op.reload))
    return unapplied + _list_late_virtual_columns(plan, columns, staged, moved)


def _list_late_virtual_columns(
    plan: TablePlan, columns: Sequence[SourceColumn], staged: Staged, moved: Collection[str]
) -> list[UnappliedStatement]:
    """Return the statements that brought virtual columns whose first values come later, and not for the rows from before.

    Some sources send no virtual columns, so a history has such a column from its first value on. When the statement is
    applied, it is not known whether values will come.
    """
    filled = {op.slot for step in plan.steps for op in step.ops if isinstance(op, Fill)}
    names = {c.id: c.column for c in columns if c.readings and c.id not in plan.naming and c.id not in moved}
    unapplied = []
    for slot in plan.evolution.slots:
        if not slot.virtual or slot.id not in names or slot in filled:
            continue
        step = next((s for s in plan.evolution.steps if slot in s.live.values()), None)
        if step is None:
            continue
        is_moved = any(isinstance(op, Arrive) and slot in op.columns for op in step.ops)
        if not (slot.added or is_moved):
            continue
        # Moved versions begin with the statement.
        until = step.spot.commit_ts + is_moved
        if count := _count_rows_without_value(plan, staged, names[slot.id], until):
            why = f"{names[slot.id]} is NULL in {count} rows from before the statement: only the source knows their values"
            unapplied.append(describe_unapplied(step, why, reload=False))
    return unapplied


def _count_rows_without_value(plan: TablePlan, staged: Staged, column: str, until: int) -> int:
    """Return how many open versions that begin below a commit_ts have NULL in a column that is new."""
    if not plan.rewrites_all_open:
        return plan.cursor.current
    rows = plan.table.fetch(staged.files, "_cdc_from_ts", "_cdc_is_current", column)
    lacks = pc.and_(pc.is_null(rows[column]), pc.less(rows["_cdc_from_ts"], until))
    return int(pc.sum(pc.and_(rows["_cdc_is_current"], lacks)).as_py() or 0)


def describe_unapplied(step: Step, why: str, *, reload: bool) -> UnappliedStatement:
    """Return a statement that could not be applied in full."""
    return {"commit_ts": step.spot.commit_ts, "statement": step.ddl.text, "why": why, "reload": reload}


def _explain_unconverted_values(
    plan: TablePlan, staged: Staged, commit_ts: int, op: StepOp, names: Mapping[str, str]
) -> str | None:
    """Return how many rows that were open at a statement have a value that could not be converted; None if none has."""
    if not isinstance(op, Convert) or op.is_in_place or not {op.slot.id, op.origin.id} <= names.keys():
        return None
    origin, own = names[op.origin.id], names[op.slot.id]
    rows = plan.table.fetch(staged.files, "_cdc_from_ts", "_cdc_to_ts", origin, own)
    ends_later = pc.or_kleene(pc.is_null(rows["_cdc_to_ts"]), pc.greater(rows["_cdc_to_ts"], commit_ts))
    was_open = pc.and_(pc.less(rows["_cdc_from_ts"], commit_ts), ends_later)
    count = pc.sum(pc.and_(was_open, pc.and_(pc.is_valid(rows[origin]), pc.is_null(rows[own])))).as_py()
    why = "it is not known how MySQL converts their values"
    return f"{op.slot.column} is NULL in {count} rows from before the statement: {why}" if count else None


def _explain_unknown_values(op: StepOp, names: Mapping[str, str], time_zone: str) -> str | None:
    """Return why the values that an operation gives to existing rows are not known; None if they are."""
    if isinstance(op, Fill) and op.slot.virtual and op.slot.id not in names:
        return None  # the source sends no such column
    if isinstance(op, Fill) and op.text is None:
        return f"{op.slot.column} is NULL in rows from before the statement: {op.why}"
    if isinstance(op, Convert):
        value = converted(
            F.lit(None).cast(spark_type(op.old)), op.old, op.new, spark_type(op.new), time_zone, of_tidb=False
        )
        why = f"it is not known how MySQL converts {op.old} to {op.new}"
        return f"{op.slot.column} is NULL in rows from before the statement: {why}" if value is None else None
    return op.why if isinstance(op, Flag) else None


def _apply_operation(
    op: StepOp,
    values: dict[str, Column],
    columns: dict[str, SourceColumn],
    time_zone: str,
    within: Column,
    *,
    forget: bool,
    of_tidb: bool,
) -> dict[str, Column]:
    """Return the values that one operation changes in a row that is open at its statement.

    Args:
        op: the operation.
        values: ids of columns -> their values before the operation.
        columns: ids of columns -> the columns.
        time_zone: of the feed.
        within: whether the statement lies between the two eras of the row.
        forget: whether dropped columns become NULL.
        of_tidb: as in `conversion.converted`.
    """
    if isinstance(op, Fill) and op.slot.id in columns and op.text is not None and op.type is not None:
        default = decode(F.lit(op.text), op.type, _DEFAULTS, time_zone, columns[op.slot.id].target)
        # A row has a value already if it came after the statement with a lower commit_ts.
        return {op.slot.id: F.coalesce(values[op.slot.id], F.when(within, default))}
    if isinstance(op, Convert) and op.origin.id in columns and op.slot.id in columns:
        target = columns[op.slot.id].target
        value = compute_once(
            values[op.origin.id], lambda origin: _convert(origin, op, target, time_zone, of_tidb=of_tidb)
        )
        present, result = values[op.slot.id], F.when(within, value)
        return {op.slot.id: F.coalesce(result, present) if op.is_in_place else F.coalesce(present, result)}
    if isinstance(op, Forget) and op.slot.id in columns and forget:
        return {op.slot.id: F.when(~within, values[op.slot.id])}
    return {}


def _convert(value: Column, op: Convert, target: DataType, time_zone: str, *, of_tidb: bool) -> Column:
    """Return a value as the statement converts it; NULL if that is not known."""
    result = converted(value, op.old, op.new, target, time_zone, of_tidb=of_tidb)
    return F.lit(None).cast(target) if result is None else result
