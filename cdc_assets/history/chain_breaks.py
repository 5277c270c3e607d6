"""Changes that found another row than the history has: an event before them is lost, or was dropped wrongly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import Convert, Fill, Forget
from cdc_assets.history.versions import DDL, Effects, found_another_row, with_previous
from cdc_assets.history.work import Work
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.protocols.messages import field_names

SHOWN = 50
# A connector's snapshot and a dump may print these in another form than the binlog.
_PRINTED_OTHERWISE = frozenset({"json", "float", "double"})

# Ids of columns -> the statements that change their values in rows of before: the era that each ends, and its commit_ts.
ValueChanges = Mapping[str, Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class ChainBreaks:
    """Updates and deletes whose message has another row before the change than the history.

    Attributes:
        count: how many.
        sample: of some the coordinates, the key, and the columns that differ.
    """

    count: int = 0
    sample: list[dict[str, Any]] = field(default_factory=list)


NO_BREAKS = ChainBreaks()


def value_changes(work: Work) -> ValueChanges:
    """Return the statements of a table that change values in its open rows."""
    found: dict[str, list[tuple[int, int]]] = {}
    for era, step in enumerate(work.evolution.steps):
        for op in step.ops:
            if isinstance(op, Fill | Convert | Forget):
                found.setdefault(op.slot.id, []).append((era, step.spot.commit_ts))
    return found


def chain_breaks(
    line: DataFrame, columns: Sequence[SourceColumn], effects: Effects, changed: ValueChanges, *, exact: bool
) -> ChainBreaks:
    """Return the breaks in the chains of changes. Only asked for when there seem to be some.

    Compared are the columns that both rows have: a message may leave out columns of the row before a change, and a DELETE
    all but the key. Where a clock tells which of a row and a statement came first, rows are not compared across one.

    Args:
        line: `versions.timeline`.
        columns: of the history.
        effects: what statements do to rows.
        changed: `value_changes`.
        exact: whether commit_ts orders rows and statements; else it is a clock.
    """
    differing = F.array_compact(
        F.array(*[_differs(each, changed.get(each.id, ())) for each in columns if each.readings])
    )
    names = F.transform(field_names(F.col("image")), F.lower)
    found = (
        with_previous(line, effects)
        .where(found_another_row() & (F.lit(exact) | (F.col("before")["era"] == F.col("era"))))
        .withColumn("names", names)
        .select("topic", "partition", "offset", "op", "commit_ts", "key", differing.alias("columns"))
        .where(F.size("columns") > 0)
    )
    count = found.count()
    rows = found.orderBy("topic", "partition", "offset").limit(SHOWN).collect() if count else []
    return ChainBreaks(count, [r.asDict() for r in rows])


def _differs(column: SourceColumn, changed: Sequence[tuple[int, int]]) -> Column:
    """The column's name where it has another value before the change than in the chain, else NULL."""
    value, other = (F.col(row).getField(column.column) for row in ("before_row", "previous"))
    before = F.col("before")
    sent = F.arrays_overlap("names", F.array(*[F.lit(n) for n in {r.column.name.lower() for r in column.readings}]))
    # An image of a DELETE may have NULL in place of all that is no key.
    stated = (F.col("op") != str(Op.DELETE)) | value.isNotNull()
    # A dump has no generated columns, and only the source may know what a statement made of the rows that it found.
    read = before["op"].isin(str(Op.SNAPSHOT), DDL)
    older = (
        (F.col("era") > era) & ((before["era"] <= era) | (before["commit_ts"] <= commit_ts))
        for era, commit_ts in changed
    )
    known = other.isNotNull() | ~reduce(or_, older, read)
    printed = column.type is not None and column.type.base in _PRINTED_OTHERWISE
    alike = ~read if printed else F.lit(True)
    return F.when(~value.eqNullSafe(other) & sent & stated & known & alike, F.lit(column.column))
