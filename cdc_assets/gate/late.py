"""Row events that come after their time: repeats of what was released, or never seen."""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.gate.changes import pieces
from cdc_assets.lakehouse import LakeTable
from cdc_assets.protocols.events import Kind

LATE_SAMPLE = 50


@dataclass(frozen=True)
class Late:
    """Row events that came after their time."""

    repeated: int = 0  # feeds without watermarks only; with them it is what remains of the late ones
    unseen: int = 0
    sample: list[dict[str, Any]] = field(default_factory=list)


NO_LATE = Late()


def late_events(late: DataFrame, table: LakeTable) -> Late:
    """How many late row events were never seen, and a sample of them; what was released before is read by commit_ts.

    In: row events, `keyed`.
    """
    split = pieces(late).where("weight = 1").persist()
    try:
        bounds = split.agg(F.min("commit_ts"), F.max("commit_ts")).head()
        before = table.read().where((F.col("kind") == str(Kind.ROW)) & F.col("commit_ts").between(*bounds or (0, 0)))
        change = ["database", "table", "key", "commit_ts"]
        same = [F.col(f"late.{c}").eqNullSafe(F.col(f"released.{c}")) for c in change]
        unseen = split.alias("late").join(before.select(*change).alias("released"), on=same, how="left_anti").persist()
        shown = ["topic", "partition", "offset", "database", "table", "op", "commit_ts", "key"]
        # A copy of a late event that was never seen is a repeat, not another event.
        distinct = unseen.dropDuplicates([*change, "piece_op"])
        sample = [r.asDict() for r in distinct.select(*shown).orderBy(*shown[:3]).limit(LATE_SAMPLE).collect()]
        return Late(unseen=distinct.count() if len(sample) == LATE_SAMPLE else len(sample), sample=sample)
    finally:
        split.unpersist()


def too_late(judged: DataFrame) -> Late:
    """Of groups of which nothing counts the repeats, and of all those never seen. Only asked for when some may be."""
    repeats = F.when(F.size("kept") == 0, F.col("copies") - F.col("unseen"))
    found = judged.agg(F.sum(repeats), F.sum("unseen")).head()
    repeated, unseen = (found[0] or 0, found[1] or 0) if found else (0, 0)
    if not unseen:
        return Late(repeated=repeated)
    first = F.get("pieces", F.get("lost", F.lit(0)))
    shown = [first[c].alias(c) for c in ("topic", "partition", "offset", "op")]
    sample = judged.where("unseen > 0").select(*shown, "database", "table", "commit_ts", "key").limit(LATE_SAMPLE)
    return Late(repeated, unseen, [r.asDict() for r in sample.collect()])
