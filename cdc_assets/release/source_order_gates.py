"""The gates of feeds without watermarks: they release the events of a run, deduplicated, key by key in Kafka's order."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
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
from cdc_assets.release.transactions import Bounds, HeldTransactions, is_held_back


class SourceOrderGate(Gate):
    """Releases all new events; of a held table those of the batches before its hold."""

    group_columns = ()
    axis = "batch"
    moves_changes = True

    def __init__(self, new: NewEvents, retried: Sequence[Hold], seen: PartitionWatermarks) -> None:
        self.new, self.retried, self._seen = new, retried, seen

    def select_files(self) -> list[DataFile]:
        """Return the new files and those with events of the holds that are retried."""
        return [f for f in self.new.row_files if f.high["batch"] >= self._oldest_batch()]

    def _oldest_batch(self) -> int:
        """Return the oldest batch whose events may be released."""
        return min([self.new.cursor.batch + 1, *(h.batch for h in self.retried)])

    def classify(self, before: HoldPositions, after: HoldPositions) -> Column:
        """Return the `Part` of a row event: new and formerly held events are inside unless they are held now."""
        is_candidate = (F.col("batch") > self.new.cursor.batch) | is_in_held_batch(before)
        inside = F.when(is_in_held_batch(after), str(Part.PENDING)).otherwise(str(Part.INSIDE))
        return F.when(is_candidate, inside).otherwise(str(Part.PROCESSED))

    def releases_statement(
        self,
        statement: Mapping[str, Any],
        tables: AbstractSet[QualifiedName],
        before: HoldPositions,
        after: HoldPositions,
    ) -> bool:
        """Return whether a DDL event is new or was held, and is not held now."""
        return _is_new_or_held(statement, tables, self.new, before) and not _is_held(statement, tables, after)

    def build_changes(
        self, events: DataFrame, read_released: ReadReleased, facts: WindowFacts
    ) -> tuple[DataFrame, LateEvents | None]:
        """Keep the events that are no duplicates, one change each."""
        has_places = self._has_places(facts)
        # Binlog positions tell equal rows of a table without a key apart; without them, passes must be numbered.
        split = number_passes(split_key_changes(events), has_unkeyed=facts.has_unkeyed and not has_places)
        lowest = self._lowest_commit_ts()
        prior = None if lowest is None or lowest > self.new.cursor.highest else read_released(lowest)
        trimmed = self.new.cursor.trimmed.highest
        return deduplicate(split, prior, by_position=has_places, trimmed=trimmed, row_ends=facts.row_ends)

    def build_single_changes(self, events: DataFrame) -> DataFrame:
        """Return one change for each event."""
        return select_changes(events, F.lit(0), F.col("before"))

    def compares_with_released(self) -> bool:
        """Return whether events lie at or below the highest commit_ts so far: only those can be duplicates."""
        lowest = self._lowest_commit_ts()
        return lowest is not None and lowest <= self.new.cursor.highest

    def build_cursor_fields(self, facts: WindowFacts) -> dict[str, Any]:
        """Return the partitions, and whether changes state their binlog position."""
        return {"partition_watermarks": self._seen, "placed": self._has_places(facts)}

    def _has_places(self, facts: WindowFacts) -> bool:
        return facts.has_places or self.new.cursor.placed

    def _lowest_commit_ts(self) -> int | None:
        """Return the lowest commit_ts in the files that the run reads; None without files."""
        return min((f.low["commit_ts"] for f in self.select_files()), default=None)


class TransactionGate(SourceOrderGate):
    """Releases as `SourceOrderGate`, but complete transactions only; the other events are pending."""

    def __init__(
        self, new: NewEvents, retried: Sequence[Hold], seen: PartitionWatermarks, held_back: HeldTransactions
    ) -> None:
        super().__init__(new, retried, seen)
        self._before, self._after = new.cursor.transactions, held_back

    def _oldest_batch(self) -> int:
        return min([super()._oldest_batch(), *([self._before.oldest] if self._before.bounds else [])])

    def classify(self, before: HoldPositions, after: HoldPositions) -> Column:
        """Return the `Part` of a row event: new, formerly held and held-back ones are inside unless they are so now."""
        is_new = F.col("batch") > self.new.cursor.batch
        is_candidate = is_new | is_held_back(self._before.bounds) | is_in_held_batch(before)
        is_pending = is_held_back(self._after.bounds) | is_in_held_batch(after)
        inside = F.when(is_pending, str(Part.PENDING)).otherwise(str(Part.INSIDE))
        return F.when(is_candidate, inside).otherwise(str(Part.PROCESSED))

    def releases_statement(
        self,
        statement: Mapping[str, Any],
        tables: AbstractSet[QualifiedName],
        before: HoldPositions,
        after: HoldPositions,
    ) -> bool:
        """Return whether a DDL event is new, was held or was held back, and is neither held nor held back now."""
        is_candidate = _is_new_or_held(statement, tables, self.new, before)
        is_candidate = is_candidate or _is_at_or_after(statement, self._before.bounds)
        return is_candidate and not (
            _is_at_or_after(statement, self._after.bounds) or _is_held(statement, tables, after)
        )

    def build_cursor_fields(self, facts: WindowFacts) -> dict[str, Any]:
        """Return the fields of `SourceOrderGate` and the transactions that are held back."""
        tables = {tuple(t) for t in self._before.tables} | facts.tables
        transactions = Transactions(marked=True, tables=[list(t) for t in sorted(tables)], **self._after._asdict())
        return super().build_cursor_fields(facts) | {"transactions": transactions}


def _is_new_or_held(
    statement: Mapping[str, Any], tables: AbstractSet[QualifiedName], new: NewEvents, before: HoldPositions
) -> bool:
    return bool(statement["batch"] > new.cursor.batch) or _is_held(statement, tables, before)


def _is_held(statement: Mapping[str, Any], tables: AbstractSet[QualifiedName], held: HoldPositions) -> bool:
    return any(statement["batch"] >= held[name] for name in tables if name in held)


def _is_at_or_after(statement: Mapping[str, Any], bounds: Bounds) -> bool:
    """Return whether a DDL event's offset is at or after the bound of its partition."""
    bound = bounds.get(statement["topic"], {}).get(str(statement["partition"]))
    return bound is not None and statement["offset"] >= bound
