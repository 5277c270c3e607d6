"""Append unusable input to the quarantine exactly once, also if a run repeats an earlier run's work."""

import threading
from collections import Counter

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.quarantine import MESSAGES, QUARANTINE, QuarantineCursor
from cdc_assets.lakehouse.schema import conform
from cdc_assets.lakehouse.table import LakeTable, Staged
from cdc_assets.spark.session import checkpointed

_IDENTITY = ["batch", "reason", "topic", "partition", "offset", "index", "file", "line", "database", "table", "column"]
# Several threads write history tables, and each commit of the quarantine builds on the one before.
_COMMIT_LOCK = threading.Lock()


def message_of(reason: Column) -> Column:
    """Return STRING: the message of a reason code; NULL for NULL."""
    return F.try_element_at(_messages(), reason)


def _messages() -> Column:
    return F.create_map(*[F.lit(str(each)) for pair in MESSAGES.items() for each in pair])


def quarantine(lake: Lakehouse, rows: DataFrame, stage: str, after: int, through: int) -> int:
    """Append the input that `stage` could not use from the batches in (after, through], unless the quarantine holds it.

    A stage calls this before it commits these batches. If the run dies in between, the next run finds the rows in quarantine
    and adds only those that it sees for the first time.

    Args:
        lake: the feed's tables.
        rows: `reason` STRING, optionally `detail` STRING, and any other columns of the quarantine but `stage` and `message`.
        stage: the stage's name.
        after: the last batch before those that the stage works on.
        through: the last batch that the stage works on.

    Returns:
        the number of rows of that stage and those batches in quarantine.
    """
    message = message_of(F.col("reason"))
    if "detail" in rows.columns:
        message = F.concat_ws(" ", message, F.concat(F.lit("("), F.col("detail"), F.lit(")")))
    new = conform(rows.withColumns({"stage": F.lit(stage), "message": message}), QUARANTINE.columns)
    table = lake.quarantine
    with _COMMIT_LOCK:
        present_rows = 0
        if any(_may_hold(f, stage, after, through) for f in table.files()):
            of_batches = (F.col("stage") == stage) & (F.col("batch") > after) & (F.col("batch") <= through)
            present = checkpointed(table.read(rows.sparkSession).where(of_batches))
            same = [F.col(f"new.{c}").eqNullSafe(F.col(f"old.{c}")) for c in _IDENTITY]
            new = new.alias("new").join(present.alias("old"), on=same, how="left_anti")
            present_rows = present.count()
        staged = table.stage(new)
        reasons = _reasons(table, staged)
        if reasons:
            before = table.cursor() or QuarantineCursor(sequence=0)
            cursor = QuarantineCursor(
                sequence=before.sequence + 1,
                rows=before.rows + reasons.total(),
                reasons=dict(Counter(before.reasons) + reasons),
            )
            table.commit(staged, cursor)
    return present_rows + reasons.total()


def _may_hold(file: DataFile, stage: str, after: int, through: int) -> bool:
    """Return whether the file may have rows of the stage and of the batches in (after, through]."""
    low, high = file.low, file.high
    return bool(low["stage"] <= stage <= high["stage"] and high["batch"] > after and low["batch"] <= through)


def _reasons(table: LakeTable[QuarantineCursor], staged: Staged) -> Counter[str]:
    """Return the number of staged rows by reason."""
    counts = Counter[str]()
    for rows in table.fetch_parts(staged.files, "reason"):
        for each in rows["reason"].value_counts().to_pylist():
            counts[each["values"]] += each["counts"]
    return counts
