"""Columns that rows begin to have although no statement has added them.

The statement was lost, or a filter keeps it from the feed, or lets the column through since then. What the earlier rows have
in the column at the source is not known: they may have got a default.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import SEEN
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.change_events import Op


@dataclass(frozen=True)
class UnstatedColumn:
    """A column that no statement has added, and that earlier rows lack.

    Attributes:
        column: its name in the history.
        topic: topic of the first row that has it.
        partition: partition of that row's record.
        offset: offset of that row's record.
        commit_ts: commit_ts of that row.
    """

    column: str
    topic: str
    partition: int
    offset: int
    commit_ts: int


def list_unstated_columns(plan: TablePlan, columns: Sequence[SourceColumn], changes: DataFrame) -> list[UnstatedColumn]:
    """Return the columns that the commit adds to the history because rows have them, where earlier rows lack them.

    Runs queries only if the commit adds such columns to open rows, or has layouts without them.

    Args:
        plan: the commit.
        columns: the columns of the history.
        changes: the changes of the commit, as `changes.read_changes` returns them.
    """
    rows = changes.where(F.col("op") != str(Op.DELETE))
    unstated = []
    for column in columns:
        if not column.id.startswith(f"{SEEN}:") or column.id in plan.naming or not column.readings:
            continue
        layout_ids = {plan.layouts[n].layout_id for reading in column.readings for n in reading.layouts}
        others = {layout.layout_id for layout in plan.layouts} - layout_ids
        has_open_rows = plan.present is not None and plan.cursor.current > 0
        if has_open_rows or (others and not rows.where(F.col("layout_id").isin(*others)).isEmpty()):
            place = F.min(F.struct("commit_ts", "topic", "partition", "offset"))
            (first,) = rows.where(F.col("layout_id").isin(*layout_ids)).agg(place).head() or (None,)
            if first is not None:
                unstated.append(UnstatedColumn(column.column, **first.asDict()))
    return unstated
