"""Release complete transactions only, for feeds with a connector's transaction markers (topic `<prefix>.transaction`).

The END marker of a transaction states how many events it has in each table. A connector sends one transaction after
the other, and all markers are in one partition, so the markers are in the order of the binlog. A release ends
before the first transaction that is incomplete. In each partition of the tables this is an offset, and all events
from this offset on are held back, so that no key gets a later change before an earlier one.

A release waits for a transaction with a BEGIN and no END only until a later transaction ends, because connectors
begin some for DDL and never end them. It waits for the events that an END counts only until each partition of their
table has events of a later transaction: an event that has not come by then was compacted away or is in quarantine.
It stops waiting for a transaction without markers when a partition has, after its events, events of a transaction
that has ended: Kafka has deleted the markers.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.released_changes import Transactions
from cdc_assets.spark.session import checkpointed

Bounds = dict[str, dict[str, int]]  # topic -> partition -> the first offset that is held back

_COLLECTIONS = "ARRAY<STRUCT<data_collection: STRING, event_count: BIGINT>>"


def is_held_back(bounds: Bounds) -> Column:
    """Return whether an event's offset is at or after the bound of its partition. BOOLEAN, never NULL."""
    held = F.lit(False)
    for topic, partitions in bounds.items():
        for partition, offset in partitions.items():
            is_in_partition = (F.col("topic") == topic) & (F.col("partition") == int(partition))
            held = held | (is_in_partition & (F.col("offset") >= offset))
    return held


def find_held_transactions(
    candidates: DataFrame, read_all: Callable[[], DataFrame], before: Transactions
) -> Transactions:
    """Return the events from the first incomplete transaction on.

    Args:
        candidates: change events, markers included: the new ones and those that were held back before.
        read_all: reads all change events, for transactions of which the connector has sent a part again.
        before: the transactions before this run. A marker may name tables that are not in `before.tables`, because no topic
            of the feed has them.
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
    last_end = _last_end(transactions)
    waiting = _find_waiting(transactions, rows, read_all, before.tables)
    # A transaction without END is incomplete if no later transaction has one.
    is_open = F.col("collections").isNull() & (F.col("at").isNull() | (F.col("at") > F.lit(last_end)))
    first = min(waiting, default=None)
    is_held = is_open if first is None else is_open | (F.col("at") >= first)
    held = transactions.where(is_held).select("id", "at", "marked", "batch")
    unmarked = transactions.where("at IS NULL")
    if not unmarked.isEmpty():
        held = held.join(_find_without_markers(unmarked, transactions, rows), on="id", how="left_anti")
    return replace(_bound_partitions(held, rows), tables=before.tables)


def _last_end(transactions: DataFrame) -> int:
    """Return the offset of the last END marker; -1 without one."""
    newest = transactions.where("collections IS NOT NULL").agg(F.max("last")).head()
    return newest[0] if newest and newest[0] is not None else -1


def _find_without_markers(unmarked: DataFrame, transactions: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the `id` of those of `unmarked` whose markers Kafka has deleted: a later transaction has ended.

    Markers are in the order of the binlog. So a transaction whose markers are still to come is after all that have ended.
    """
    events = rows.select("transaction.id", "topic", "partition", "offset")
    ended = events.join(transactions.where("collections IS NOT NULL").select("id"), on="id")
    # A restarted connector may send an ended transaction again, so its first event counts.
    first_events = ended.groupBy("topic", "partition", "id").agg(F.min("offset").alias("first"))
    last_ended = first_events.groupBy("topic", "partition").agg(F.max("first").alias("first"))
    unmarked_events = events.join(unmarked.select("id"), on="id").join(last_ended, on=["topic", "partition"])
    return unmarked_events.where("offset < first").select("id").distinct()


def _find_waiting(
    transactions: DataFrame, rows: DataFrame, read_all: Callable[[], DataFrame], tables: list[tuple[str, str]]
) -> list[int]:
    """Return the marker offsets of the ended transactions that lack events which may still come."""
    ended = transactions.where("collections IS NOT NULL")
    counts = ended.select("id", "at", F.inline(F.from_json("collections", _COLLECTIONS)))
    counted = rows.groupBy("transaction.id", _marker_table()).agg(
        F.count_distinct("transaction.total_order").alias("event_orders")
    )
    # The tables of the feed: those that had events before, and those that have some now.
    present = counted.select("data_collection").distinct().withColumn("present", F.lit(True))
    had_events = F.col("data_collection").isin(*{f"{d}.{t}" for d, t in tables}) if tables else F.lit(False)
    lacking = (
        counts.join(counted, on=["id", "data_collection"], how="left")
        .join(present, on="data_collection", how="left")
        .where(
            (F.col("present").isNotNull() | had_events) & (F.coalesce("event_orders", F.lit(0)) < F.col("event_count"))
        )
    )
    missing = [r.asDict() for r in lacking.select("id", "data_collection", "event_count", "at").collect()]
    missing = [r for r in missing if not _has_come(read_all(), r)]
    passed = _find_passed(transactions, rows, read_all()) if missing else {}
    return [r["at"] for r in missing if passed.get(r["data_collection"], -1) <= r["at"]]


def _bound_partitions(held: DataFrame, rows: DataFrame) -> Transactions:
    """Return the first offset of transactions in each partition of rows and markers.

    In: `held` with `id`, `at` (the offset of the first marker), `marked` (topic and partition of the markers) and `batch`;
    `rows`, the row events.
    """
    of_rows = rows.join(held.select("id"), on=F.col("transaction.id") == F.col("id"), how="left_semi")
    of_markers = held.where("at IS NOT NULL").select("marked.*", F.col("at").alias("offset"), "batch")
    partitions = (
        of_rows.select("topic", "partition", "offset", "batch")
        .unionByName(of_markers)
        .groupBy("topic", "partition")
        .agg(F.min("offset").alias("offset"), F.min("batch").alias("batch"))
        .collect()
    )
    bounds: Bounds = {}
    for r in partitions:
        bounds.setdefault(r["topic"], {})[str(r["partition"])] = r["offset"]
    return Transactions(marked=True, bounds=bounds, oldest=min((r["batch"] for r in partitions), default=0))


def _marker_table() -> Column:
    """Return a table's name as markers have it, STRING `data_collection`."""
    return F.concat_ws(".", "database", "table").alias("data_collection")


def _find_passed(transactions: DataFrame, rows: DataFrame, events: DataFrame) -> dict[str, int]:
    """Return the transaction that all partitions of a table have reached: table -> the offset of its first marker."""
    # A transaction without markers comes after all that have some.
    place = F.coalesce("at", F.lit((1 << 63) - 1)).alias("at")
    is_same = F.col("transaction.id") == F.col("id")
    reached = rows.join(transactions, on=is_same).select(_marker_table(), "topic", "partition", place)
    existing = events.where(F.col("kind") == str(Kind.ROW)).select(
        _marker_table(), "topic", "partition", F.lit(-1).cast("bigint").alias("at")
    )
    partitions = (
        existing.unionByName(reached).groupBy("data_collection", "topic", "partition").agg(F.max("at").alias("at"))
    )
    return {r[0]: r[1] for r in partitions.groupBy("data_collection").agg(F.min("at")).collect()}


def _has_come(events: DataFrame, lacking: dict[str, Any]) -> bool:
    """Return whether all events of a transaction in one table have come: a restarted connector may send a part again.

    Args:
        events: all change events.
        lacking: the transaction's `id`, the table as `data_collection`, and its `event_count`.
    """
    is_of_transaction = (F.col("kind") == str(Kind.ROW)) & (F.col("transaction.id") == lacking["id"])
    is_of_table = _marker_table() == lacking["data_collection"]
    orders = events.where(is_of_transaction & is_of_table).select("transaction.total_order").distinct()
    return orders.count() >= int(lacking["event_count"])
