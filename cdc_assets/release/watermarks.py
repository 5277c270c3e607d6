"""Watermarks of partitions and topics."""

from cdc_assets.config import Feed
from cdc_assets.lakehouse.released_changes import PartitionWatermarks, TopicWatermarks
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks


def merge_watermarks(seen: PartitionWatermarks, new: PartitionWatermarks) -> PartitionWatermarks:
    """Return the larger watermark of each partition: a restarted changefeed sends lower ones, which are ignored."""
    merged = {topic: dict(partitions) for topic, partitions in seen.items()}
    for topic, partitions in new.items():
        into = merged.setdefault(topic, {})
        for partition, watermark in partitions.items():
            present = into.get(partition)
            into[partition] = watermark if present is None else max(present, watermark or present)
    return merged


def compute_topic_watermarks(seen: PartitionWatermarks, partitions: int | None, scope: str) -> TopicWatermarks:
    """Return each topic's watermark, the minimum over its partitions; a topic with a partition without one has none.

    Args:
        seen: the largest watermark of every partition that has had a record.
        partitions: how many partitions each topic has; None: those in `seen`.
        scope: `topic`, or `feed` for the minimum over all topics.
    """
    complete: TopicWatermarks = {}
    for topic, by_partition in seen.items():
        required = set(by_partition) | {str(n) for n in range(partitions or 0)}
        marks = [mark for p in required if (mark := by_partition.get(p)) is not None]
        if len(marks) == len(required):
            complete[topic] = min(marks)
    if scope == "feed":
        lowest = min(complete.values(), default=0)
        return dict.fromkeys(complete, lowest) if len(complete) == len(seen) else {}
    return complete


def advance_watermarks(released: TopicWatermarks, complete: TopicWatermarks) -> TopicWatermarks:
    """Return the watermarks to release up to, which are never lower than the released ones."""
    return dict(released) | {t: max(w, released.get(t, 0)) for t, w in complete.items()}


def has_watermarks(feed: Feed, seen: PartitionWatermarks) -> bool:
    """Return whether the feed has watermarks, by its protocol and the watermarks that have come."""
    promise = protocol_of(feed).watermarks(feed)
    shown = any(mark is not None for partitions in seen.values() for mark in partitions.values())
    return promise is Watermarks.ALWAYS or (promise is Watermarks.IF_SHOWN and shown)


def may_have_watermarks(feed: Feed) -> bool:
    """Return whether the feed's protocol can have watermarks."""
    return protocol_of(feed).watermarks(feed) is not Watermarks.NEVER
