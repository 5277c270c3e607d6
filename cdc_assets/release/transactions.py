"""Whole transactions only, for feeds that hold a connector's transaction markers (Debezium's topic `<prefix>.transaction`).

The END marker of a transaction says how many events it has in each table. A connector sends one transaction after the
other, and so the markers, which lie in one partition, are in the order of the binlog: what is released ends before the
first transaction that is not all there. In the partitions of the tables that is an offset each, and everything from it on
is held back, so that no key gets a later change before an earlier one.

A transaction that has begun and was never ended is waited for only until a later one ends: connectors open some for DDL,
and never end them. And events that an END counts are waited for only until each partition of their table has got some of a
later transaction: what has not come by then was compacted away, or is in quarantine.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.spark.session import checkpointed

Bounds = dict[str, dict[str, int]]  # topic -> partition -> the first offset that is held back

_COLLECTIONS = "ARRAY<STRUCT<data_collection: STRING, event_count: BIGINT>>"


def held_back(bounds: Bounds) -> Column:
    """Whether an event lies at or behind the bound of its partition. BOOLEAN, never NULL."""
    held = F.lit(False)
    for topic, partitions in bounds.items():
        for partition, offset in partitions.items():
            here = (F.col("topic") == topic) & (F.col("partition") == int(partition))
            held = held | (here & (F.col("offset") >= offset))
    return held


class HeldBack(NamedTuple):
    """What is held back: from which offset on, the lowest commit_ts of it, and the oldest batch; 0 where nothing is."""

    bounds: Bounds
    lowest: int
    oldest: int


def bounds_of(candidates: DataFrame, every: Callable[[], DataFrame], known: set[tuple[str, str]]) -> HeldBack:
    """How far the transactions are whole.

    Args:
        candidates: change events: those that are new, and those held back before; markers among them.
        every: all change events, for transactions of which only a part came again.
        known: the tables of which the feed has got events before; a marker may name others, which no topic of it carries.
    """
    rows = candidates.where(F.col("kind") == str(Kind.ROW))
    marks = candidates.where(F.col("kind") == str(Kind.TRANSACTION)).groupBy("transaction.id").agg(
        F.min("offset").alias("at"),
        F.max("offset").alias("last"),
        F.min_by(F.struct("topic", "partition"), "offset").alias("marked"),
        F.min("batch").alias("batch"),
        F.max("transaction.collections").alias("collections"),
    )  # fmt: skip
    of_rows = rows.where(F.col("transaction.id").isNotNull()).select("transaction.id").distinct()
    transactions = checkpointed(of_rows.join(marks, on="id", how="full"))
    return _bounds(transactions, rows, every, known)


def _bounds(
    transactions: DataFrame, rows: DataFrame, every: Callable[[], DataFrame], known: set[tuple[str, str]]
) -> HeldBack:
    ended = transactions.where("collections IS NOT NULL")
    newest = ended.agg(F.max("last")).head()
    last_end = newest[0] if newest and newest[0] is not None else -1
    told = ended.select("id", "at", F.inline(F.from_json("collections", _COLLECTIONS)))
    table = _table()
    # The tables of the feed: those of which it has got events before, and those of which there are some now.
    counted = rows.groupBy("transaction.id", table).agg(F.count_distinct("transaction.total_order").alias("found"))
    present = counted.select("data_collection").distinct().withColumn("present", F.lit(True))
    before = F.col("data_collection").isin(*{f"{d}.{t}" for d, t in known}) if known else F.lit(False)
    lacking = (
        told.join(counted, on=["id", "data_collection"], how="left")
        .join(present, on="data_collection", how="left")
        .where((F.col("present").isNotNull() | before) & (F.coalesce("found", F.lit(0)) < F.col("event_count")))
    )
    missing = [r.asDict() for r in lacking.select("id", "data_collection", "event_count", "at").collect()]
    missing = [r for r in missing if not _seen(every(), r)]
    passed = _passed(transactions, rows, every()) if missing else {}
    waiting = [r["at"] for r in missing if passed.get(r["data_collection"], -1) <= r["at"]]
    # A transaction that has not ended, and after which none has.
    unended = F.col("collections").isNull() & (F.col("at").isNull() | (F.col("at") > F.lit(last_end)))
    first = min(waiting, default=None)
    late = unended if first is None else unended | (F.col("at") >= first)
    behind = transactions.where(late).select("id", "at", "marked", "batch")
    held = rows.join(behind.select("id"), on=F.col("transaction.id") == F.col("id"), how="left_semi")
    by_partition = held.groupBy("topic", "partition").agg(
        F.min("offset").alias("offset"), F.min("commit_ts").alias("ts"), F.min("batch").alias("batch")
    )
    held_rows = by_partition.collect()
    marked = (
        behind.where("at IS NOT NULL").groupBy("marked").agg(F.min("at").alias("at"), F.min("batch").alias("batch"))
    )
    held_marks = marked.collect()
    bounds: Bounds = {}
    for r in held_rows:
        bounds.setdefault(r["topic"], {})[str(r["partition"])] = r["offset"]
    for r in held_marks:
        bounds.setdefault(r["marked"]["topic"], {})[str(r["marked"]["partition"])] = r["at"]
    oldest = min((r["batch"] for r in [*held_rows, *held_marks]), default=0)
    return HeldBack(bounds, min((r["ts"] for r in held_rows), default=0), oldest)


def _table() -> Column:
    """A table's name as markers have it."""
    return F.concat_ws(".", "database", "table").alias("data_collection")


def _passed(transactions: DataFrame, rows: DataFrame, every: DataFrame) -> dict[str, int]:
    """Of each table the transaction (its marker's offset) up to which nothing more comes, from any of its partitions."""
    # The markers of a transaction without any come behind all others.
    place = F.coalesce("at", F.lit((1 << 63) - 1)).alias("at")
    own = F.col("transaction.id") == F.col("id")
    reached = rows.join(transactions, on=own).select(_table(), "topic", "partition", place)
    known = every.where(F.col("kind") == str(Kind.ROW)).select(
        _table(), "topic", "partition", F.lit(-1).cast("bigint").alias("at")
    )
    partitions = (
        known.unionByName(reached).groupBy("data_collection", "topic", "partition").agg(F.max("at").alias("at"))
    )
    return {r[0]: r[1] for r in partitions.groupBy("data_collection").agg(F.min("at")).collect()}


def _seen(every: DataFrame, lacking: dict[str, Any]) -> bool:
    """Whether all of a transaction has come at some time: a connector that starts again may repeat a part of it."""
    mine = (F.col("kind") == str(Kind.ROW)) & (F.col("transaction.id") == lacking["id"])
    here = _table() == lacking["data_collection"]
    found = every.where(mine & here).select("transaction.total_order").distinct().count()
    return found >= int(lacking["event_count"])
