"""The gate of feeds with watermarks: what lies below its topic's watermark is complete, and is released."""

import functools
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import Hold, PartitionWatermarks, TopicWatermarks
from cdc_assets.release.base import Facts, Gate, Held, Name, Part, Released, held_since
from cdc_assets.release.changes import alone, net, pieces, row_before, with_copies
from cdc_assets.release.late import Late
from cdc_assets.release.news import News


class WatermarkGate(Gate):
    """The window [watermark released before, watermark) by commit_ts, of each topic; a table that is held ends it earlier.

    Attributes:
        news: what has come.
        retried: the holds whose reason may have gone.
        seen: the largest watermark of every partition.
        marks: the watermarks to release up to.
        ungated: the batches up to here were released before the first watermark.
        joins_pairs: whether a delete and an insert of a key at one commit_ts are one update.
    """

    by = ("commit_ts",)
    axis = "commit_ts"

    def __init__(
        self,
        news: News,
        retried: Sequence[Hold],
        seen: PartitionWatermarks,
        marks: TopicWatermarks,
        ungated: int,
        *,
        joins_pairs: bool,
    ) -> None:
        self.news, self.retried, self.seen, self.marks, self.ungated = news, retried, seen, marks, ungated
        self._joins_pairs = joins_pairs

    def files(self) -> list[DataFile]:
        """The new ones; of those with pending events the ones that reach into a window that has moved."""
        cursor, before = self.news.cursor, self.news.cursor.watermarks
        moved = {t: m for t, m in self.marks.items() if m > before.get(t, 0)}
        starts = [*(before.get(t, 0) for t in moved), *(h.since for h in self.retried)]
        old = [
            f
            for f in self.news.row_files
            if max(cursor.oldest_pending, self.ungated + 1) <= f.high["batch"] <= cursor.batch
            and cursor.pending
            and starts
            and f.high["commit_ts"] >= min(starts)
            and f.low["commit_ts"] < max(self.marks.values(), default=0)
        ]
        return [*old, *self.news.new_rows]

    def part(self, before: Held, after: Held) -> Column:
        """By commit_ts."""
        commit_ts, new = F.col("commit_ts"), F.col("batch") > self.news.cursor.batch
        start, end = bound(self.news.cursor.watermarks, before), bound(self.marks, after)
        past = F.when(new, str(Part.LATE)).otherwise(str(Part.SETTLED))
        return (
            F.when(F.col("batch") <= self.ungated, str(Part.SETTLED))
            .when(commit_ts < start, past)
            .when(commit_ts < end, str(Part.INSIDE))
            .otherwise(str(Part.PENDING))
        )

    def releases(self, statement: Mapping[str, Any], tables: AbstractSet[Name], before: Held, after: Held) -> bool:
        """By commit_ts."""
        topic, at = statement["topic"], statement["commit_ts"]
        start = min([self.news.cursor.watermarks.get(topic, 0), *(before[name] for name in tables if name in before)])
        end = min([self.marks.get(topic, 0), *(after[name] for name in tables if name in after)])
        return bool(statement["batch"] > self.ungated and start <= at < end)

    def changes(self, events: DataFrame, released: Released, facts: Facts) -> tuple[DataFrame, Late | None]:  # noqa: ARG002
        """One change a key and commit_ts."""
        return net(with_copies(pieces(events), unkeyed=facts.unkeyed), joined=self._joins_pairs), None

    def alone(self, events: DataFrame) -> DataFrame:
        """Each event as it is."""
        # As `net` numbers them: the delete of a pair comes first.
        ordinal = F.when(F.col("op") == str(Op.DELETE), F.lit(0)).otherwise(F.lit(1))
        return alone(events, ordinal, row_before(F.col("op")))

    def judges_alone(self) -> bool:
        """Below the watermark nothing was released before: that would be late."""
        return False

    def state(self, facts: Facts) -> dict[str, Any]:  # noqa: ARG002
        """The watermarks."""
        return {
            "partition_watermarks": self.seen,
            "watermarks": self.marks,
            "ungated": self.ungated,
            "placed": False,
        }


def bound(marks: TopicWatermarks, held: Held) -> Column:
    """The commit_ts below which an event's table is released: its topic's watermark, or where it is held. BIGINT."""
    nothing = F.lit(0).cast("bigint")
    mark = functools.reduce(
        lambda when, each: when.when(F.col("topic") == each[0], F.lit(each[1])),
        marks.items(),
        F.when(F.lit(False), nothing),
    ).otherwise(nothing)
    return F.least(mark, held_since(held)) if held else mark  # of NULL and another, the other
