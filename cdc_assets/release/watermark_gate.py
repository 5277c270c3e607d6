"""The gate of feeds with watermarks: it releases the events below their topic's watermark."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.expressions import first_true
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import Hold, PartitionWatermarks, ReleaseCursor, TopicWatermarks
from cdc_assets.release.base import (
    Gate,
    HoldPositions,
    Part,
    QualifiedName,
    ReadReleased,
    WindowFacts,
    find_hold_positions,
    hold_position,
)
from cdc_assets.release.changes import add_copies, merge_changes, row_before, select_changes, split_key_changes
from cdc_assets.release.late import LateEvents
from cdc_assets.release.new_events import NewEvents


class WatermarkGate(Gate):
    """Releases, in each topic, the events from the released watermark (included) to the new watermark (excluded).

    The window of a held table ends at its hold.

    Attributes:
        seen: the largest watermark of every partition.
        marks: the watermarks to release up to.
        ungated: the batches up to this one were released before the first watermark came.
    """

    group_columns = ("commit_ts",)
    axis = "commit_ts"

    def __init__(
        self,
        new: NewEvents,
        retried: Sequence[Hold],
        seen: PartitionWatermarks,
        marks: TopicWatermarks,
        ungated: int,
        *,
        joins_pairs: bool,
    ) -> None:
        super().__init__(new, retried)
        self.seen, self.marks, self.ungated, self._joins_pairs = seen, marks, ungated, joins_pairs

    def select_files(self) -> list[DataFile]:
        """Return the new files, and those whose pending events may be below a watermark that has risen."""
        cursor, before = self.cursor, self.cursor.watermarks
        risen = {t: m for t, m in self.marks.items() if m > before.get(t, 0)}
        starts = [*(before.get(t, 0) for t in risen), *(h.since for h in self.retried)]
        old = [
            f
            for f in self.new.row_files
            if max(cursor.oldest_pending, self.ungated + 1) <= f.high["batch"] <= cursor.batch
            and cursor.pending
            and starts
            and f.high["commit_ts"] >= min(starts)
            and f.low["commit_ts"] < max(self.marks.values(), default=0)
        ]
        return [*old, *self.new.new_row_files]

    def classify(self, before: HoldPositions, after: HoldPositions) -> Column:
        """Return the `Part` of a row event, by its commit_ts."""
        commit_ts, is_new = F.col("commit_ts"), F.col("batch") > self.cursor.batch
        start, end = release_bound(self.cursor.watermarks, before), release_bound(self.marks, after)
        below = F.when(is_new, str(Part.LATE)).otherwise(str(Part.PROCESSED))
        return (
            F.when(F.col("batch") <= self.ungated, str(Part.PROCESSED))
            .when(commit_ts < start, below)
            .when(commit_ts < end, str(Part.INSIDE))
            .otherwise(str(Part.PENDING))
        )

    def releases_statement(
        self, statement: Mapping[str, Any], tables: AbstractSet[QualifiedName], after: HoldPositions
    ) -> bool:
        """Return whether a DDL event is in the window, by its commit_ts."""
        start = _statement_bound(self.cursor.watermarks, statement, tables, self.held_before)
        end = _statement_bound(self.marks, statement, tables, after)
        return bool(statement["batch"] > self.ungated and start <= statement["commit_ts"] < end)

    def build_changes(
        self,
        events: DataFrame,
        read_released: ReadReleased,  # noqa: ARG002 -- below the watermark nothing is released twice
        facts: WindowFacts,
    ) -> tuple[DataFrame, LateEvents | None]:
        """Return one change for each key and commit_ts, or a delete and an insert."""
        split = add_copies(split_key_changes(events), has_unkeyed=facts.has_unkeyed)
        return merge_changes(split, joins_pairs=self._joins_pairs), None

    def build_single_changes(self, events: DataFrame) -> DataFrame:
        """Return one change for each event."""
        # `merge_changes` gives the delete of a pair the ordinal 0, too.
        ordinal = F.when(F.col("op") == str(Op.DELETE), F.lit(0)).otherwise(F.lit(1))
        return select_changes(events, ordinal, row_before(F.col("op")))

    def compares_with_released(self) -> bool:
        """Return False: no earlier release has events of the window."""
        return False

    def build_cursor_fields(self, facts: WindowFacts) -> dict[str, Any]:  # noqa: ARG002 -- other gates use the facts
        """Return the watermarks."""
        return {
            "partition_watermarks": self.seen,
            "watermarks": self.marks,
            "ungated": self.ungated,
            "placed": False,
        }


def release_bound(marks: TopicWatermarks, held: HoldPositions) -> Column:
    """Return the commit_ts below which an event is released: its topic's watermark, or its table's hold. BIGINT."""
    zero = F.lit(0).cast("bigint")
    by_topic = [(F.col("topic") == topic, F.lit(mark)) for topic, mark in marks.items()]
    mark = F.coalesce(first_true((F.lit(False), zero), *by_topic), zero)
    # `least` ignores the NULL of a table that is not held.
    return F.least(mark, hold_position(held)) if held else mark


def waits_for_watermark(cursor: ReleaseCursor) -> Column:
    """Return whether an event of the batches up to `cursor.batch` waits for a watermark or a hold. BOOLEAN, never NULL."""
    above = F.col("commit_ts") >= release_bound(cursor.watermarks, find_hold_positions(cursor.holds, "commit_ts"))
    return F.coalesce(above, F.lit(False)) & (F.col("batch") > cursor.ungated)


def statement_waits_for_watermark(
    cursor: ReleaseCursor, statement: Mapping[str, Any], tables: AbstractSet[QualifiedName]
) -> bool:
    """Return whether a DDL event waits as in `waits_for_watermark`."""
    bound = _statement_bound(cursor.watermarks, statement, tables, find_hold_positions(cursor.holds, "commit_ts"))
    return bool(statement["batch"] > cursor.ungated and statement["commit_ts"] >= bound)


def _statement_bound(
    marks: TopicWatermarks, statement: Mapping[str, Any], tables: AbstractSet[QualifiedName], held: HoldPositions
) -> int:
    """Return the commit_ts below which a DDL event on these tables is released."""
    return min([marks.get(statement["topic"], 0), *(held[name] for name in tables if name in held)])
