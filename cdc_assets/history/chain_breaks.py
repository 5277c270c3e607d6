"""Find changes whose message states another row before the change than the history has.

An event was lost, or was dropped wrongly. An INSERT states no row before it, so an INSERT of an open row is such a
change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import Convert, Fill, Forget
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.versions import DDL, Effects, add_previous, differs_from_chain
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.protocols.messages import field_names

SHOWN = 50
# The text of these types in a dump or a connector's snapshot may differ from their text in the binlog.
_TYPES_WITH_OTHER_TEXTS = frozenset({"json", "float", "double"})


@dataclass(frozen=True)
class ChainBreaks:
    """Changes whose message has another row before the change than the history.

    Attributes:
        count: how many there are.
        sample: some of them: the coordinates, the key, and the columns that differ (none for an INSERT).
    """

    count: int = 0
    sample: list[dict[str, Any]] = field(default_factory=list)


NO_BREAKS = ChainBreaks()


def find_chain_breaks(
    plan: TablePlan,
    line: DataFrame,
    columns: Sequence[SourceColumn],
    effects: Effects,
    *,
    distinguishes_inserts: bool,
) -> ChainBreaks:
    """Return the changes whose row before is not the row in the chain.

    Only columns that both rows have are compared: a message may leave out columns of the row before, and a DELETE all
    columns but the key. Where it is not certain which statements came before a row, by a commit_ts that is not a clock or by
    places in the binlog, rows before and after a statement are not compared with each other.

    Args:
        plan: the commit.
        line: the frame of `versions.build_timeline`.
        columns: the columns of the history.
        effects: what statements do to rows.
        distinguishes_inserts: as `Protocol.distinguishes_inserts`.
    """
    changes = _list_value_changes(plan)
    names = [_name_if_different(each, changes.get(each.id, ())) for each in columns if each.readings]
    has_places = any(step.spot.place is not None for step in plan.evolution.steps)
    is_insert, differing = F.col("op") == str(Op.INSERT), F.array_compact(F.array(*names))
    is_comparable = F.lit(plan.has_exact_order or has_places)
    breaks = (
        add_previous(line, effects)
        .where(differs_from_chain(distinguishes_inserts=distinguishes_inserts))
        .where(is_comparable | (F.col("before")["era"] == F.col("era")))
        .withColumn("names", F.transform(field_names(F.col("image")), F.lower))
        .withColumn("columns", F.when(is_insert, F.array().cast("array<string>")).otherwise(differing))
        .where(is_insert | (F.size("columns") > 0))
        .select("topic", "partition", "offset", "op", "commit_ts", "key", "columns")
    )
    count = breaks.count()
    rows = breaks.orderBy("topic", "partition", "offset").limit(SHOWN).collect() if count else []
    return ChainBreaks(count, [r.asDict() for r in rows])


def _list_value_changes(plan: TablePlan) -> dict[str, list[tuple[int, int]]]:
    """Return the statements that change values in open rows: ids of columns -> the era that each ends, and its commit_ts."""
    by_column: dict[str, list[tuple[int, int]]] = {}
    for era, step in enumerate(plan.evolution.steps):
        for op in step.ops:
            if isinstance(op, Fill | Convert | Forget):
                by_column.setdefault(op.slot.id, []).append((era, step.spot.commit_ts))
    return by_column


def _name_if_different(column: SourceColumn, value_changes: Sequence[tuple[int, int]]) -> Column:
    """Return the column's name if its value before the change is not its value in the chain, else NULL. STRING."""
    value, other = (F.col(row).getField(column.column) for row in ("before_row", "previous"))
    before = F.col("before")
    sent = F.arrays_overlap("names", F.array(*[F.lit(n) for n in {r.column.name.lower() for r in column.readings}]))
    # The image of a DELETE may have NULL in all columns outside of the key.
    is_stated = (F.col("op") != str(Op.DELETE)) | value.isNotNull()
    # NULL in the chain may mean an unknown value: a dump lacks generated columns, and some values that statements give to
    # existing rows are known to the source only.
    is_loaded = before["op"].isin(str(Op.SNAPSHOT), DDL)
    is_older = (
        (F.col("era") > era) & ((before["era"] <= era) | (before["commit_ts"] <= commit_ts))
        for era, commit_ts in value_changes
    )
    has_value = other.isNotNull() | ~reduce(or_, is_older, is_loaded)
    may_have_other_text = column.type is not None and column.type.base in _TYPES_WITH_OTHER_TEXTS
    is_comparable = ~is_loaded if may_have_other_text else F.lit(True)
    if column.type is not None and column.type.base == "decimal":
        value, other = _without_last_zeros(value), _without_last_zeros(other)
    differs = ~value.eqNullSafe(other) & sent & is_stated & has_value & is_comparable
    return F.when(differs, F.lit(column.column))


def _without_last_zeros(number: Column) -> Column:
    """Return a number's text without zeros at its end.

    More than 38 digits are kept as text. A MODIFY to more digits after the point does not rewrite open rows.
    """
    text = F.regexp_replace(number.cast("string"), r"([.][0-9]*?)0+$", "$1")
    return F.regexp_replace(text, r"[.]$", "")
