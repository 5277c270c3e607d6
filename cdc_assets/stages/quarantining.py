"""Putting something into quarantine, once, whichever run it was that first tried to."""

import threading
from collections import Counter

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.quarantine import MESSAGES, QUARANTINE, QuarantineCursor
from cdc_assets.lakehouse.schema import conform
from cdc_assets.lakehouse.table import LakeTable, Staged
from cdc_assets.spark.session import settled

_IDENTITY = ["batch", "reason", "topic", "partition", "offset", "index", "file", "line", "database", "table", "column"]
# The history's tables are written by several threads, and each commit of the quarantine goes on from the one before.
_ONE_AT_A_TIME = threading.Lock()


def message_of(reason: Column) -> Column:
    """STRING reason code -> STRING message; NULL for NULL."""
    return F.try_element_at(_messages(), reason)


def _messages() -> Column:
    return F.create_map(*[F.lit(str(each)) for pair in MESSAGES.items() for each in pair])


def quarantine(lake: Lakehouse, rows: DataFrame, stage: str, after: int, through: int) -> int:
    """Append what `stage` could not use of the batches in (after, through], as far as it is not there yet.

    Called before the stage commits those batches, or, where it has, again by the next run: a run that dies in between and
    one that repeats the work find the rows there, and rows that a retry sees for the first time are still taken in.

    In: `reason`, maybe a `detail`, and any other columns of the table but `stage` and `message`.

    Returns:
        How many rows of that stage and those batches are in quarantine now.
    """
    message = message_of(F.col("reason"))
    if "detail" in rows.columns:
        message = F.concat_ws(" ", message, F.concat(F.lit("("), F.col("detail"), F.lit(")")))
    new = conform(rows.withColumns({"stage": F.lit(stage), "message": message}), QUARANTINE.columns)
    table = lake.quarantine
    with _ONE_AT_A_TIME:
        there = 0
        if any(_may_hold(f, stage, after, through) for f in table.files()):
            of_batches = (F.col("stage") == stage) & (F.col("batch") > after) & (F.col("batch") <= through)
            present = settled(table.read(rows.sparkSession).where(of_batches))
            same = [F.col(f"new.{c}").eqNullSafe(F.col(f"old.{c}")) for c in _IDENTITY]
            new = new.alias("new").join(present.alias("old"), on=same, how="left_anti")
            there = present.count()
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
    return there + reasons.total()


def _may_hold(file: DataFile, stage: str, after: int, through: int) -> bool:
    """Whether rows of a stage and of batches in (after, through] may be in a file."""
    low, high = file.low, file.high
    return bool(low["stage"] <= stage <= high["stage"] and high["batch"] > after and low["batch"] <= through)


def _reasons(table: LakeTable[QuarantineCursor], staged: Staged) -> Counter[str]:
    """Reason -> rows of these files."""
    found = Counter[str]()
    for rows in table.fetch_parts(staged.files, "reason"):
        for each in rows["reason"].value_counts().to_pylist():
            found[each["values"]] += each["counts"]
    return found
