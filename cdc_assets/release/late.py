"""Row events that come after their time: repeats of what was released, or never seen."""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.release.changes import pieces
from cdc_assets.spark.session import checkpointed

LATE_SAMPLE = 50


@dataclass(frozen=True)
class Late:
    """Row events that came after their time."""

    repeated: int = 0
    unseen: int = 0
    sample: list[dict[str, Any]] = field(default_factory=list)


NO_LATE = Late()


def late_events(late: DataFrame, released: DataFrame) -> Late:
    """Of row events below what was released, how many had been released, and how many were never seen, with a sample.

    In: row events with `key` and `key_before`; the row changes released before, which hold those of the same times.
    """
    split = checkpointed(pieces(late).where("weight = 1"))
    bounds = split.agg(F.min("commit_ts"), F.max("commit_ts"), F.count("*")).head() or (0, 0, 0)
    change = ["database", "table", "key", "commit_ts"]
    changed = (F.col("kind") == str(ReleasedKind.ROW)) & F.col("commit_ts").between(bounds[0], bounds[1])
    before = released.where(changed).select(*change)
    same = [F.col(f"late.{c}").eqNullSafe(F.col(f"released.{c}")) for c in change]
    unseen = split.alias("late").join(before.alias("released"), on=same, how="left_anti")
    shown = ["topic", "partition", "offset", "database", "table", "op", "commit_ts", "key"]
    # A copy of a late event that was never seen is a repeat, not another event: shown is the first in Kafka.
    distinct = checkpointed(
        unseen.groupBy(*change, "piece_op").agg(F.min(F.struct(*shown)).alias("first")).select("first.*")
    )
    count = distinct.count()
    sample = [r.asDict() for r in distinct.orderBy(*shown[:3]).limit(LATE_SAMPLE).collect()]
    return Late(repeated=bounds[2] - count, unseen=count, sample=sample)
