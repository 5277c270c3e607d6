"""Find columns that rows begin to have although no statement has added them.

The statement was lost, or a filter keeps it from the feed, or a filter now lets the column through. The source's
values of the column in earlier rows are not known: these rows may have got a default.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import SEEN
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.change_events import Op

# A column that no statement has added, and that earlier rows lack: `column` (its name in the history), topic, partition,
# offset and commit_ts of the first row that has it.
UnstatedColumn = dict[str, Any]


def list_unstated_columns(plan: TablePlan, columns: Sequence[SourceColumn], changes: DataFrame) -> list[UnstatedColumn]:
    """Return the columns that the commit adds to the history because rows have them, where earlier rows lack them.

    Runs one query, and only if the commit adds such columns to open rows, or has several layouts.

    Args:
        plan: the commit.
        columns: the columns of the history.
        changes: the changes of the commit, as `changes.read_changes` returns them.
    """
    added = [c for c in columns if c.id.startswith(f"{SEEN}:") and c.id not in plan.naming and c.readings]
    has_open_rows = plan.present is not None and plan.cursor.current > 0
    if not added or not (has_open_rows or len({layout.layout_id for layout in plan.layouts}) > 1):
        return []
    first_rows = _find_first_rows(changes)
    unstated = []
    for column in added:
        layout_ids = {plan.layouts[n].layout_id for reading in column.readings for n in reading.layouts}
        places = [place for layout_id, place in first_rows.items() if layout_id in layout_ids]
        without = [place for layout_id, place in first_rows.items() if layout_id not in layout_ids]
        # Rows that lack the column only later come after a statement that has dropped it.
        if places and (has_open_rows or (without and min(without) < min(places))):
            first = min(places)
            place = {name: first[name] for name in ("topic", "partition", "offset", "commit_ts")}
            unstated.append({"column": column.column} | place)
    return unstated


def _find_first_rows(changes: DataFrame) -> dict[int, Row]:
    """Return layout_id -> commit_ts, topic, partition and offset of its first row after a change."""
    place = F.min(F.struct("commit_ts", "topic", "partition", "offset")).alias("place")
    rows = changes.where(F.col("op") != str(Op.DELETE)).groupBy("layout_id").agg(place).collect()
    return {row["layout_id"]: row["place"] for row in rows}
