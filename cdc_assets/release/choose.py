"""Which gate a feed has, for what has come."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, PartitionWatermarks
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.release.base import Gate
from cdc_assets.release.news import News
from cdc_assets.release.source_order import SourceOrderGate, TransactionGate
from cdc_assets.release.transactions import HeldBack, bounds_of, held_back
from cdc_assets.release.watermark import WatermarkGate
from cdc_assets.release.watermarks import advance, merge, topic_watermarks


def has_watermarks(feed: Feed, seen: PartitionWatermarks) -> bool:
    """Whether the feed has watermarks, as known from those seen."""
    promise = protocol_of(feed).watermarks(feed)
    shown = any(mark is not None for partitions in seen.values() for mark in partitions.values())
    return promise is Watermarks.ALWAYS or (promise is Watermarks.IF_SHOWN and shown)


def may_have_watermarks(feed: Feed) -> bool:
    """Whether there is any point in looking for watermarks."""
    return protocol_of(feed).watermarks(feed) is not Watermarks.NEVER


def gate_for(
    lake: Lakehouse, feed: Feed, news: News, retried: Sequence[Hold], session: Callable[[int], SparkSession]
) -> Gate:
    """The gate for these news.

    Args:
        lake: the feed's tables.
        feed: the feed.
        news: what has come.
        retried: the holds whose reason may have gone.
        session: gives one for plans over so many rows.
    """
    cursor, protocol = news.cursor, protocol_of(feed)
    seen: PartitionWatermarks = {}
    if may_have_watermarks(feed):
        seen = merge(merge(cursor.partition_watermarks, _partitions_held(lake)), news.watermarks)
    if has_watermarks(feed, seen):
        first = not has_watermarks(feed, cursor.partition_watermarks)
        if first and cursor.holds:
            # What was held by its batch goes its way first; later watermarks say the same as these.
            return SourceOrderGate(news, retried, {})
        marks = advance(cursor.watermarks, topic_watermarks(seen, feed.source.partitions, feed.gate_scope))
        ungated = cursor.batch if first else cursor.ungated
        return WatermarkGate(news, retried, seen, marks, ungated, joins_pairs=protocol.joins_pairs)
    if protocol.marks_transactions and (news.marked or cursor.transactions.marked):
        return TransactionGate(news, retried, seen, _whole_transactions(lake, news, session))
    return SourceOrderGate(news, retried, seen)


def _partitions_held(lake: Lakehouse) -> PartitionWatermarks:
    """Every partition that raw_records knows, without a watermark: a broker tells of those, too, that have no record yet."""
    raw = lake.raw_records.cursor()
    return {topic: dict.fromkeys(partitions) for topic, partitions in raw.offsets.items()} if raw else {}


def _whole_transactions(lake: Lakehouse, news: News, session: Callable[[int], SparkSession]) -> HeldBack:
    """How far the transactions are whole."""
    cursor, log = news.cursor, lake.change_events.log()
    kinds = [str(Kind.ROW), str(Kind.TRANSACTION)]
    files = [f for kind in kinds for f in (log.files(kind=kind) if log else [])]
    before = cursor.transactions
    start = before.oldest if before.bounds else cursor.batch + 1
    spark = session(sum(f.rows for f in files if f.high["batch"] >= start))

    def events_since(batch: int) -> DataFrame:
        wanted = F.col("kind").isin(kinds) & F.col("batch").between(batch, news.through)
        return lake.change_events.read(spark).where(wanted)

    there = (F.col("batch") > cursor.batch) | held_back(before.bounds)
    known = {(d, t) for d, t in before.tables}
    return bounds_of(events_since(start).where(there), lambda: events_since(0), known)
