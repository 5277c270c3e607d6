"""The choice of a feed's gate, by its protocol and the watermarks and transaction markers that have come."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import RawCursor
from cdc_assets.lakehouse.released_changes import Hold, PartitionWatermarks, Transactions
from cdc_assets.protocols import protocol_of
from cdc_assets.release.base import Gate
from cdc_assets.release.new_events import NewEvents
from cdc_assets.release.source_order_gate import SourceOrderGate
from cdc_assets.release.transactions import find_held_transactions, is_held_back
from cdc_assets.release.watermark_gate import WatermarkGate
from cdc_assets.release.watermarks import (
    advance_watermarks,
    compute_topic_watermarks,
    has_watermarks,
    may_have_watermarks,
    merge_watermarks,
)


def choose_gate(
    lake: Lakehouse, feed: Feed, new: NewEvents, retried: Sequence[Hold], open_session: Callable[[int], SparkSession]
) -> Gate:
    """Return the gate for a run.

    Args:
        lake: the feed's tables.
        feed: the feed.
        new: the run's input.
        retried: the holds whose reason may be gone.
        open_session: returns a session for plans over so many rows.
    """
    cursor, protocol = new.cursor, protocol_of(feed)
    seen: PartitionWatermarks = {}
    if may_have_watermarks(feed):
        raw = lake.raw_records.last_cursor()
        before = _drop_lost_partitions(cursor.partition_watermarks, raw)
        seen = merge_watermarks(merge_watermarks(before, _list_partitions(raw)), new.watermarks)
    if has_watermarks(feed, seen):
        is_first = not has_watermarks(feed, cursor.partition_watermarks)
        if is_first and cursor.holds:
            # Holds by batch must end first. This run ignores the watermarks; later ones state the same.
            return SourceOrderGate(new, retried, {}, Transactions())
        complete = compute_topic_watermarks(seen, feed.source.partitions, feed.gate_scope)
        ungated = cursor.batch if is_first else cursor.ungated
        marks = advance_watermarks(cursor.watermarks, complete)
        return WatermarkGate(new, retried, seen, marks, ungated, joins_pairs=protocol.joins_pairs)
    if protocol.marks_transactions and (new.has_markers or cursor.transactions.marked):
        return SourceOrderGate(new, retried, seen, _find_held_transactions(lake, new, open_session))
    had_watermarks = not may_have_watermarks(feed) and bool(cursor.partition_watermarks)
    return SourceOrderGate(new, retried, seen, Transactions(), had_watermarks=had_watermarks)


def _list_partitions(raw: RawCursor) -> PartitionWatermarks:
    """Return every partition of raw_records with the watermark None; a broker lists those without records, too."""
    return {topic: dict.fromkeys(partitions) for topic, partitions in raw.offsets.items()}


def _drop_lost_partitions(seen: PartitionWatermarks, raw: RawCursor) -> PartitionWatermarks:
    """Return the watermarks without partitions that a topic no longer has since it was created again.

    These will never send a watermark.
    """
    return {
        topic: {p: mark for p, mark in marks.items() if topic not in raw.recreated or p in raw.offsets.get(topic, {})}
        for topic, marks in seen.items()
    }


def _find_held_transactions(
    lake: Lakehouse, new: NewEvents, open_session: Callable[[int], SparkSession]
) -> Transactions:
    """Return the events that belong to incomplete transactions or to later ones."""
    cursor, log = new.cursor, lake.change_events.log()
    kinds = [str(Kind.ROW), str(Kind.TRANSACTION)]
    files = [f for kind in kinds for f in (log.files(kind=kind) if log else [])]
    before = cursor.transactions
    start = before.oldest if before.bounds else cursor.batch + 1
    spark = open_session(sum(f.rows for f in files if f.high["batch"] >= start))

    def read_since(batch: int) -> DataFrame:
        in_batches = F.col("kind").isin(kinds) & F.col("batch").between(batch, new.last_batch)
        return lake.change_events.read(spark).where(in_batches)

    is_candidate = (F.col("batch") > cursor.batch) | is_held_back(before.bounds)
    return find_held_transactions(read_since(start).where(is_candidate), lambda: read_since(0), before)
