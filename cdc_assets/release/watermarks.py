"""How far each topic is complete."""

from cdc_assets.lakehouse.released_changes import PartitionWatermarks, TopicWatermarks


def merge(seen: PartitionWatermarks, new: PartitionWatermarks) -> PartitionWatermarks:
    """The larger watermark of each partition: a lower one, which a restarted changefeed sends, is ignored."""
    merged = {topic: dict(partitions) for topic, partitions in seen.items()}
    for topic, partitions in new.items():
        into = merged.setdefault(topic, {})
        for partition, watermark in partitions.items():
            present = into.get(partition)
            into[partition] = watermark if present is None else max(present, watermark or present)
    return merged


def topic_watermarks(seen: PartitionWatermarks, partitions: int | None, scope: str) -> TopicWatermarks:
    """Each topic's watermark: the minimum over all its partitions; none while a partition has shown none.

    Args:
        seen: the largest watermark of every partition that has shown a record.
        partitions: how many partitions each topic has; None: those seen.
        scope: `topic`, or `feed` for the minimum over all topics.
    """
    complete: TopicWatermarks = {}
    for topic, by_partition in seen.items():
        wanted = set(by_partition) | {str(n) for n in range(partitions or 0)}
        marks = [by_partition.get(p) for p in wanted]
        known = [mark for mark in marks if mark is not None]
        if len(known) == len(wanted):
            complete[topic] = min(known)
    if scope == "feed":
        lowest = min(complete.values(), default=0)
        return dict.fromkeys(complete, lowest) if len(complete) == len(seen) else {}
    return complete


def advance(released: TopicWatermarks, complete: TopicWatermarks) -> TopicWatermarks:
    """The watermarks to release up to: never lower than what has been released."""
    return dict(released) | {t: max(w, released.get(t, 0)) for t, w in complete.items()}
