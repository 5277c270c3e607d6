"""The gates of feeds without watermarks: what a run took in is released, each change once, per key in Kafka's order.

What the repeats are is for `contents` or `places` to say.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import ModuleType
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.gate import contents, places
from cdc_assets.gate.base import Facts, Gate, Held, Name, Part, Released, in_held_batch
from cdc_assets.gate.changes import STATE, alone, pieces, with_copies
from cdc_assets.gate.late import NO_LATE, Late, too_late
from cdc_assets.gate.news import News
from cdc_assets.gate.transactions import Bounds, HeldBack, held_back
from cdc_assets.spark.session import settled
from cdc_assets.tables.change_events import Op
from cdc_assets.tables.log import DataFile
from cdc_assets.tables.released_changes import Hold, PartitionWatermarks, Transactions

_DELETE, _UPDATE = str(Op.DELETE), str(Op.UPDATE)


class SourceOrderGate(Gate):
    """The window is what is new; of a table that is held, what came in batches before its hold begins."""

    axis = "batch"

    def __init__(self, news: News, retried: Sequence[Hold], seen: PartitionWatermarks, by: tuple[str, ...]) -> None:
        self.news, self.retried, self._seen, self.by = news, retried, seen, by

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
        split = with_copies(pieces(events), unkeyed=facts.unkeyed and not placed)
        lowest = self._lowest()
        prior = None if lowest is None or lowest > self.news.cursor.highest else released(lowest)
        return in_order(split, prior, places if placed else contents)

    def alone(self, events: DataFrame) -> DataFrame:
        """Each event as it is."""
        return alone(events, F.lit(0), "before")

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
        by: tuple[str, ...],
        back: HeldBack,
    ) -> None:
        super().__init__(news, retried, seen, by)
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


def in_order(split: DataFrame, prior: DataFrame | None, rules: ModuleType) -> tuple[DataFrame, Late]:
    """The changes among pieces (with `copy`), and what came too late.

    Without watermarks a run may end between any two records: a delete and an insert at one commit_ts stay two changes, as
    they would be if a run ended between them (the chop law).
    """
    # Done once, for two uses; and a plan that went on from such expressions would take seconds to make.
    judged = settled(rules.group(split, prior), eager=False)
    return kept(judged), NO_LATE if prior is None else too_late(judged)


def kept(judged: DataFrame) -> DataFrame:
    """The pieces that count, each a change of its own.

    In: database, table, key, copy; `pieces` ARRAY<STRUCT>; `kept` ARRAY<STRUCT<at INT, commit_ts BIGINT>>, the indices of
    those that count; `copies` and `unseen` INT (row events among all, and among those that came too late).
    Out: as `changes.net`, with `before`, and `ordinal` INT: the place among the changes of the key in this run.
    """
    counted = F.aggregate("kept", F.lit(0), lambda n, k: n + F.get("pieces", k["at"])["weight"])
    flat = judged.withColumn("repeats", F.col("copies") - F.col("unseen") - counted).select(
        "database", "table", "key", "repeats", "pieces", F.posexplode("kept").alias("ordinal", "k")
    )
    piece = flat.withColumn("p", F.get("pieces", F.col("k.at")))
    op = F.col("p.op")
    return piece.select(
        "database",
        "table",
        "key",
        F.col("k.commit_ts").alias("commit_ts"),
        *[F.col(f"p.{c}").alias(c) for c in STATE if c != "after"],
        op.alias("op"),
        # Half of a change of the key has its event's other image, too.
        F.when(op.isin(_DELETE, _UPDATE), F.col("p.before")).alias("before"),
        F.when(op != _DELETE, F.col("p.after")).alias("after"),
        "ordinal",
        F.col("p.weight").alias("events"),
        F.when(F.col("ordinal") == 0, F.col("repeats")).otherwise(F.lit(0)).cast("bigint").alias("repeats"),
    )
