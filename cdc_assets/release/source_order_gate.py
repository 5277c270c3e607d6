"""The gate of feeds without watermarks: it releases the events of a run, deduplicated, key by key in Kafka's order."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import Hold, PartitionWatermarks, Transactions
from cdc_assets.release.base import (
    Gate,
    HoldPositions,
    Part,
    QualifiedName,
    ReadReleased,
    WindowFacts,
    is_in_held_batch,
)
from cdc_assets.release.changes import select_changes, split_key_changes
from cdc_assets.release.deduplication import deduplicate, number_passes
from cdc_assets.release.late import LateEvents
from cdc_assets.release.new_events import NewEvents
from cdc_assets.release.transactions import Bounds, is_held_back
from cdc_assets.release.watermark_gate import statement_waits_for_watermark, waits_for_watermark


class SourceOrderGate(Gate):
    """Releases all new events; of a held table those of the batches before its hold.

    In a feed with transaction markers, it releases complete transactions only. If the feed had watermarks until now, it also
    releases the events that waited for one.
    """

    group_columns = ()
    axis = "batch"
    moves_changes = True

    def __init__(
        self,
        new: NewEvents,
        retried: Sequence[Hold],
        seen: PartitionWatermarks,
        held_back: Transactions,
        *,
        had_watermarks: bool = False,
    ) -> None:
        super().__init__(new, retried)
        self._seen, self._held_back, self._had_watermarks = seen, held_back, had_watermarks

    def select_files(self) -> list[DataFile]:
        """Return the new files, and those with events that were held back or whose holds are retried."""
        before = self.cursor.transactions
        held_back = [before.oldest] if before.bounds else []
        waiting = [self.cursor.oldest_pending] if self._had_watermarks and self.cursor.pending else []
        oldest = min([self.cursor.batch + 1, *held_back, *waiting, *(h.batch for h in self.retried if h.batch)])
        return [f for f in self.new.row_files if f.high["batch"] >= oldest]

    def classify(self, before: HoldPositions, after: HoldPositions) -> Column:
        """Return the `Part` of a row event: new and formerly held events are inside unless they are held now."""
        cursor = self.cursor
        is_new = F.col("batch") > cursor.batch
        waited = waits_for_watermark(cursor) if self._had_watermarks else is_held(cursor.transactions.bounds, before)
        is_candidate = is_new | waited
        inside = F.when(is_held(self._held_back.bounds, after), str(Part.PENDING)).otherwise(str(Part.INSIDE))
        return F.when(is_candidate, inside).otherwise(str(Part.PROCESSED))

    def releases_statement(
        self, statement: Mapping[str, Any], tables: AbstractSet[QualifiedName], after: HoldPositions
    ) -> bool:
        """Return whether a DDL event is new or was held, and is not held now."""
        is_new = statement["batch"] > self.cursor.batch
        if self._had_watermarks:
            was_held = statement_waits_for_watermark(self.cursor, statement, tables)
        else:
            was_held = _is_statement_held(statement, tables, self.cursor.transactions.bounds, self.held_before)
        return (is_new or was_held) and not _is_statement_held(statement, tables, self._held_back.bounds, after)

    def build_changes(
        self, events: DataFrame, read_released: ReadReleased, facts: WindowFacts
    ) -> tuple[DataFrame, LateEvents | None]:
        """Keep the events that are no duplicates, one change each."""
        has_places = self._has_places(facts)
        # Binlog positions tell equal rows of a table without a key apart; without them, passes must be numbered.
        split = number_passes(split_key_changes(events), has_unkeyed=facts.has_unkeyed and not has_places)
        lowest = self._lowest_commit_ts()
        prior = None if lowest is None or lowest > self.cursor.highest else read_released(lowest)
        trimmed = self.cursor.trimmed.highest
        return deduplicate(split, prior, by_position=has_places, trimmed=trimmed, row_ends=facts.row_ends)

    def build_single_changes(self, events: DataFrame) -> DataFrame:
        """Return one change for each event."""
        return select_changes(events, F.lit(0), F.col("before"))

    def compares_with_released(self) -> bool:
        """Return whether events lie at or below the highest commit_ts so far: only those can be duplicates."""
        lowest = self._lowest_commit_ts()
        return lowest is not None and lowest <= self.cursor.highest

    def build_cursor_fields(self, facts: WindowFacts) -> dict[str, Any]:
        """Return the partitions, whether changes state their binlog position, and the transactions that are held back."""
        transactions = self._held_back
        if transactions.marked:
            transactions = replace(transactions, tables=sorted({*transactions.tables, *facts.tables}))
        return {
            "partition_watermarks": self._seen,
            "placed": self._has_places(facts),
            "transactions": transactions,
        }

    def _has_places(self, facts: WindowFacts) -> bool:
        return facts.has_places or self.cursor.placed

    def _lowest_commit_ts(self) -> int | None:
        """Return the lowest commit_ts in the files that the run reads; None without files."""
        return min((f.low["commit_ts"] for f in self.select_files()), default=None)


def is_held(bounds: Bounds, held: HoldPositions) -> Column:
    """Return whether an event waits for its transaction, or its table is held. BOOLEAN, never NULL."""
    return is_held_back(bounds) | is_in_held_batch(held)


def _is_statement_held(
    statement: Mapping[str, Any], tables: AbstractSet[QualifiedName], bounds: Bounds, held: HoldPositions
) -> bool:
    """Return whether a DDL event comes after an incomplete transaction, or one of its tables is held."""
    bound = bounds.get(statement["topic"], {}).get(str(statement["partition"]))
    is_in_held_table = any(statement["batch"] >= held[name] for name in tables if name in held)
    return is_in_held_table or (bound is not None and statement["offset"] >= bound)
