"""Classify late row events, which are below the released watermark: duplicates of released changes, or never seen."""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.release.changes import split_key_changes
from cdc_assets.spark.session import checkpointed

LATE_SAMPLE = 50


@dataclass(frozen=True)
class LateEvents:
    """The late row events of a run.

    Attributes:
        repeated: how many are duplicates of released changes.
        unseen: how many were never seen before.
        sample: some of the unseen ones.
    """

    repeated: int = 0
    unseen: int = 0
    sample: list[dict[str, Any]] = field(default_factory=list)


NO_LATE_EVENTS = LateEvents()


def find_late_events(late: DataFrame, released: DataFrame) -> LateEvents:
    """Count the late row events that are duplicates and those that were never seen, with a sample of the latter.

    Args:
        late: row events below the released watermark, with `key` and `key_before`.
        released: the changes of earlier releases, with all those at the commit_ts of the late events.
    """
    split = checkpointed(split_key_changes(late).where("weight = 1"))
    bounds = split.agg(F.min("commit_ts"), F.max("commit_ts"), F.count("*")).head() or (0, 0, 0)
    change = ["database", "table", "key", "commit_ts"]
    changed = (F.col("kind") == str(ReleasedKind.ROW)) & F.col("commit_ts").between(bounds[0], bounds[1])
    before = released.where(changed).select(*change)
    same = [F.col(f"late.{c}").eqNullSafe(F.col(f"released.{c}")) for c in change]
    unseen = split.alias("late").join(before.alias("released"), on=same, how="left_anti")
    shown = ["topic", "partition", "offset", "database", "table", "op", "commit_ts", "key"]
    # Copies of one unseen event count as duplicates of it, so the sample shows the first one in Kafka only.
    distinct = checkpointed(
        unseen.groupBy(*change, "piece_op").agg(F.min(F.struct(*shown)).alias("first")).select("first.*")
    )
    count = distinct.count()
    sample = [r.asDict() for r in distinct.orderBy(*shown[:3]).limit(LATE_SAMPLE).collect()]
    return LateEvents(repeated=bounds[2] - count, unseen=count, sample=sample)
