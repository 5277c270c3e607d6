"""What the statements of a part do to rows, as expressions over a row of the history."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from cdc_assets.expressions import compute_once
from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import Close, Convert, Fill, Flag, Forget, StepOp
from cdc_assets.history.versions import NO_EFFECTS, Effects, Ending, Replacement
from cdc_assets.history.work import Work
from cdc_assets.lakehouse.table import Staged
from cdc_assets.mysql_types.casting import decode, spark_type
from cdc_assets.mysql_types.conversion import converted

_DEFAULTS = "ddl"  # the dialect of a default's text


def effects_of(work: Work, columns: Sequence[SourceColumn], time_zone: str) -> Effects:
    """What statements do to the rows of a part."""
    if not work.evolves:
        return NO_EFFECTS
    steps = list(enumerate(work.evolution.steps))[: work.eras[1]]
    ops = [(era, op) for era, step in steps for op in step.ops]
    endings = tuple(
        Ending(era, op.reason, work.evolution.steps[era].spot.commit_ts) for era, op in ops if isinstance(op, Close)
    )
    values = {c.id: c for c in columns}

    def carried(row: Column, since: Column, until: Column, *, forget: bool) -> Column:
        now = {c.id: row.getField(c.column) for c in columns}
        for era, op in ops:
            within = (since <= era) & (until > era)
            now |= _changed(op, now, values, time_zone, within, forget=forget)
        return F.when(row.isNotNull(), F.struct(*[now[c.id].alias(c.column) for c in columns]))

    return Effects(
        last=work.eras[1],
        endings=endings,
        compared=lambda row, since, until: carried(row, since, until, forget=True),
        kept=lambda row, since, until: carried(row, since, until, forget=False),
        replacement=_replacement(work, columns),
    )


def _replacement(work: Work, columns: Sequence[SourceColumn]) -> Replacement | None:
    """What is equal, and what is put together, where another table takes the name of this one."""
    if work.replacement is None:
        return None
    era, arrive, replaced = work.replacement
    of_both = {slot.id for slot in replaced.columns}
    only_new = {slot.id for slot in arrive.columns} - of_both

    def is_same(old: Column, new: Column) -> Column:
        compared = [old.getField(c.column).eqNullSafe(new.getField(c.column)) for c in columns if c.id in of_both]
        # Of a table whose columns are not known, nothing says that its rows are equal.
        return reduce(and_, compared) if compared else F.lit(False)

    def merged(old: Column, new: Column) -> Column:
        return F.struct(*[(new if c.id in only_new else old).getField(c.column).alias(c.column) for c in columns])

    return Replacement(replaced.commit_ts, replaced.era, era, is_same, merged)


@dataclass(frozen=True)
class Unapplied:
    """A statement of which not everything could be done.

    Attributes:
        commit_ts: where it stands.
        statement: its SQL.
        why: what could not be done.
        reload: whether rows are wrong until the table is loaded anew; else only the columns named are NULL.
    """

    commit_ts: int
    statement: str
    why: str
    reload: bool


def unapplied(work: Work, columns: Sequence[SourceColumn], staged: Staged, time_zone: str) -> list[Unapplied]:
    """The statements of a part of which not everything can be done.

    Args:
        work: the part.
        columns: the history's.
        staged: the versions that the part writes.
        time_zone: of the feed.
    """
    found = []
    names = {c.id: c.column for c in columns}
    for step in work.steps:
        for op in step.ops:
            if isinstance(op, Fill) and op.slot.virtual and op.slot.id not in names:
                continue  # the source sends no such column
            why = _not_known(op, time_zone)
            if why is None and isinstance(op, Convert) and {op.slot.id, op.origin.id} <= names.keys():
                left = _left_null(work, staged, step.spot.commit_ts, names[op.origin.id], names[op.slot.id])
                told = (
                    f"{op.slot.column} is NULL in {left} rows of before: what MySQL makes of their values is not known"
                )
                why = told if left else None
            if why is not None:
                reload = isinstance(op, Flag) and op.reload
                found.append(Unapplied(step.spot.commit_ts, step.ddl.text, why, reload))
    return found


def _left_null(work: Work, staged: Staged, ts: int, origin: str, made: str) -> int:
    """How many of the rows that a statement found open have a value in one column, and none in the other, made of it."""
    rows = work.table.fetch(staged.files, "_cdc_from_ts", "_cdc_to_ts", origin, made)
    there = pc.or_kleene(pc.is_null(rows["_cdc_to_ts"]), pc.greater(rows["_cdc_to_ts"], ts))
    open_then = pc.and_(pc.less(rows["_cdc_from_ts"], ts), there)
    lost = pc.and_(pc.is_valid(rows[origin]), pc.is_null(rows[made]))
    return int(pc.sum(pc.and_(open_then, lost)).as_py() or 0)


def _not_known(op: StepOp, time_zone: str) -> str | None:
    if isinstance(op, Fill) and op.text is None:
        return f"{op.slot.column} is NULL in rows of before: only the source knows what they got"
    if isinstance(op, Convert):
        made = converted(F.lit(None).cast(spark_type(op.old)), op.old, op.new, spark_type(op.new), time_zone)
        told = f"what {op.old} becomes as {op.new} is not known"
        return f"{op.slot.column} is NULL in rows of before: {told}" if made is None else None
    return op.why if isinstance(op, Flag) else None


def _changed(
    op: StepOp,
    now: dict[str, Column],
    columns: dict[str, SourceColumn],
    time_zone: str,
    within: Column,
    *,
    forget: bool,
) -> dict[str, Column]:
    """The columns that one operation changes in a row that it finds open."""
    if isinstance(op, Fill) and op.slot.id in columns and op.text is not None:
        default = decode(F.lit(op.text), op.type, _DEFAULTS, time_zone, columns[op.slot.id].target)
        # Where the statement is stamped later than the row, the row has a value already.
        return {op.slot.id: F.coalesce(now[op.slot.id], F.when(within, default))}
    if isinstance(op, Convert) and op.origin.id in columns and op.slot.id in columns:
        target = columns[op.slot.id].target
        made = compute_once(now[op.origin.id], _converted(op, target, time_zone))
        return {op.slot.id: F.coalesce(now[op.slot.id], F.when(within, made))}
    if isinstance(op, Forget) and op.slot.id in columns and forget:
        return {op.slot.id: F.when(~within, now[op.slot.id])}
    return {}


def _converted(op: Convert, target: DataType, time_zone: str) -> Callable[[Column], Column]:
    def convert(value: Column) -> Column:
        made = converted(value, op.old, op.new, target, time_zone)
        return F.lit(None).cast(target) if made is None else made

    return convert
