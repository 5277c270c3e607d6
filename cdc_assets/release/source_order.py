"""The gates of feeds without watermarks: what a run took in is released, each change once, per key in Kafka's order.

`deduplication` says what the repeats are.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import Hold, PartitionWatermarks, Transactions
from cdc_assets.release.base import Facts, Gate, Held, Name, Part, Released, in_held_batch
from cdc_assets.release.changes import alone, pieces
from cdc_assets.release.deduplication import deduplicate, with_passes
from cdc_assets.release.late import Late
from cdc_assets.release.news import News
from cdc_assets.release.transactions import Bounds, HeldBack, held_back


class SourceOrderGate(Gate):
    """The window is what is new; of a table that is held, what came in batches before its hold begins."""

    by = ()
    axis = "batch"
    moves_changes = True

    def __init__(self, news: News, retried: Sequence[Hold], seen: PartitionWatermarks) -> None:
        self.news, self.retried, self._seen = news, retried, seen

    def files(self) -> list[DataFile]:
        """The new ones, and those with what was held and may be so no longer."""
        return [f for f in self.news.row_files if f.high["batch"] >= self._oldest()]

    def _oldest(self) -> int:
        """The oldest batch that may have something to release."""
        return min([self.news.cursor.batch + 1, *(h.batch for h in self.retried)])

    def part(self, before: Held, after: Held) -> Column:
        """All that is new, or was held, is inside unless it is held now."""
        there = (F.col("batch") > self.news.cursor.batch) | in_held_batch(before)
        inside = F.when(in_held_batch(after), str(Part.PENDING)).otherwise(str(Part.INSIDE))
        return F.when(there, inside).otherwise(str(Part.SETTLED))

    def releases(self, statement: Mapping[str, Any], tables: AbstractSet[Name], before: Held, after: Held) -> bool:
        """All that is new, or was held, unless it is held now."""
        return _there(statement, tables, self.news, before) and not _held(statement, tables, after)

    def changes(self, events: DataFrame, released: Released, facts: Facts) -> tuple[DataFrame, Late | None]:
        """Those that are no repeats, each a change of its own."""
        placed = self._placed(facts)
        # Where changes tell their place in the binlog, equal rows of a table without a key are told apart by it.
        split = with_passes(pieces(events), unkeyed=facts.unkeyed and not placed)
        lowest = self._lowest()
        prior = None if lowest is None or lowest > self.news.cursor.highest else released(lowest)
        return deduplicate(split, prior, by_place=placed, trimmed=self.news.cursor.trimmed.highest)

    def alone(self, events: DataFrame) -> DataFrame:
        """Each event as it is."""
        return alone(events, F.lit(0), F.col("before"))

    def judges_alone(self) -> bool:
        """Only above all that was released can none of them be a repeat."""
        lowest = self._lowest()
        return lowest is not None and lowest <= self.news.cursor.highest

    def state(self, facts: Facts) -> dict[str, Any]:
        """Whether changes tell their places."""
        return {"partition_watermarks": self._seen, "placed": self._placed(facts)}

    def _placed(self, facts: Facts) -> bool:
        return facts.placed or self.news.cursor.placed

    def _lowest(self) -> int | None:
        """The lowest commit_ts of what is to come, or of others in the same files."""
        return min((f.low["commit_ts"] for f in self.files()), default=None)


class TransactionGate(SourceOrderGate):
    """As `SourceOrderGate`, but whole transactions only: the rest is pending."""

    def __init__(
        self,
        news: News,
        retried: Sequence[Hold],
        seen: PartitionWatermarks,
        back: HeldBack,
    ) -> None:
        super().__init__(news, retried, seen)
        self._before, self._back = news.cursor.transactions, back

    def _oldest(self) -> int:
        return min([super()._oldest(), *([self._before.oldest] if self._before.bounds else [])])

    def part(self, before: Held, after: Held) -> Column:
        """What is new, or was held or held back, is inside unless it is so now."""
        new = F.col("batch") > self.news.cursor.batch
        there = new | held_back(self._before.bounds) | in_held_batch(before)
        pending = held_back(self._back.bounds) | in_held_batch(after)
        inside = F.when(pending, str(Part.PENDING)).otherwise(str(Part.INSIDE))
        return F.when(there, inside).otherwise(str(Part.SETTLED))

    def releases(self, statement: Mapping[str, Any], tables: AbstractSet[Name], before: Held, after: Held) -> bool:
        """What is new, or was held or held back, unless it is so now."""
        there = _there(statement, tables, self.news, before) or _behind(statement, self._before.bounds)
        return there and not (_behind(statement, self._back.bounds) or _held(statement, tables, after))

    def state(self, facts: Facts) -> dict[str, Any]:
        """What is held back."""
        known = {tuple(t) for t in self._before.tables} | facts.tables
        kept = Transactions(marked=True, tables=[list(t) for t in sorted(known)], **self._back._asdict())
        return super().state(facts) | {"transactions": kept}


def _there(statement: Mapping[str, Any], tables: AbstractSet[Name], news: News, before: Held) -> bool:
    """Whether a statement is new, or was held."""
    return bool(statement["batch"] > news.cursor.batch) or _held(statement, tables, before)


def _held(statement: Mapping[str, Any], tables: AbstractSet[Name], held: Held) -> bool:
    return any(statement["batch"] >= held[name] for name in tables if name in held)


def _behind(statement: Mapping[str, Any], bounds: Bounds) -> bool:
    bound = bounds.get(statement["topic"], {}).get(str(statement["partition"]))
    return bound is not None and statement["offset"] >= bound
