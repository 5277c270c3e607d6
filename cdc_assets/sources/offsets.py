"""Offset arithmetic of Kafka partitions: lost offsets, shares of a limit, counts of distinct offsets.

Offsets are Kafka's: `earliest` is the first offset that the broker still has, `latest` is the offset after the last record.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Stands in place of a topic's id once the topic was deleted and its loss was accepted (`on_data_loss: skip`).
DELETED_TOPIC = ""

_SHOWN_LOSSES = 10


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class OffsetBounds(NamedTuple):
    """The offsets [earliest, latest) that a broker has of one partition."""

    earliest: int
    latest: int


@dataclass(frozen=True)
class Topic:
    """A topic on the broker.

    Attributes:
        id: the topic's id; a topic that is created again gets another id. None: the broker has no topic ids.
        partitions: partition number -> its offsets.
    """

    id: str | None
    partitions: Mapping[int, OffsetBounds]


TopicSnapshot = Mapping[str, Topic]  # by name


class OffsetRange(NamedTuple):
    """The offsets [start, end) that a run reads of one partition."""

    start: int
    end: int


@dataclass(frozen=True)
class IngestedOffsets:
    """How far raw_records has ingested a feed's topics.

    Attributes:
        next_offsets: partition -> the offset after the last ingested one.
        topic_ids: topic -> its id, None if its broker has no ids, `DELETED_TOPIC` after an accepted loss.
    """

    next_offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str | None]


@dataclass(frozen=True)
class Loss:
    """Offsets of one partition that the broker deleted before they were read.

    Attributes:
        partition: the partition.
        next_offset: the offset at which reading was to continue.
        available: the offsets that the broker has; None: the topic or partition is deleted.
        reason: a text for people.
        resume_offset: the offset at which `on_data_loss: skip` continues; None: there is nothing to read.
        is_recreated: whether the topic is another one with the same name.
    """

    partition: TopicPartition
    next_offset: int
    available: OffsetBounds | None
    reason: str
    resume_offset: int | None
    is_recreated: bool = False

    def __str__(self) -> str:
        bounds = self.available
        available = f"available: {bounds.earliest} to {bounds.latest}" if bounds else "none available"
        topic, partition = self.partition
        return f"{topic} partition {partition}: needed from offset {self.next_offset}, {available} ({self.reason})"


class DataLossError(RuntimeError):
    """Records were deleted on the broker before they were read, and the feed has `on_data_loss: fail`."""

    def __init__(self, losses: Iterable[Loss]) -> None:
        texts = [str(loss) for loss in losses]
        more = f"; and {len(texts) - _SHOWN_LOSSES} more partitions" if len(texts) > _SHOWN_LOSSES else ""
        super().__init__(
            f"Records are lost: {'; '.join(texts[:_SHOWN_LOSSES])}{more}. Nothing was ingested. Either restore the records "
            "on the broker and run again, or set on_data_loss: skip under source.kafka in the feeds file: then the run "
            "ingests the available records and writes a row for each partition with lost records into quarantine."
        )


class DistinctOffsets:
    """The distinct offsets of one partition among offsets that are added in any order, with repeats.

    It stores ranges of consecutive offsets, so its size follows the number of gaps.
    """

    def __init__(self) -> None:
        self._starts: list[npt.NDArray[np.int64]] = []
        self._ends: list[npt.NDArray[np.int64]] = []

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """Add one offset or more."""
        ordered = np.unique(offsets)
        jumps = np.flatnonzero(np.diff(ordered) > 1)
        self._starts.append(ordered[np.append(0, jumps + 1)])
        self._ends.append(ordered[np.append(jumps, -1)] + 1)

    def bounds(self) -> list[int]:
        """Return the lowest and the highest offset."""
        return [int(min(each[0] for each in self._starts)), int(max(each[-1] for each in self._ends)) - 1]

    def __len__(self) -> int:
        starts, ends = np.concatenate(self._starts), np.concatenate(self._ends)
        order = np.argsort(starts)
        starts, ends = starts[order], ends[order]
        # Count of each range only the offsets that no earlier range contains.
        covered_to = np.append(starts[0], np.maximum.accumulate(ends)[:-1])
        return int(np.maximum(ends - np.maximum(starts, covered_to), 0).sum())


def find_losses(
    next_offsets: Mapping[TopicPartition, int], ingested: IngestedOffsets, topics: TopicSnapshot
) -> list[Loss]:
    """Return the partitions whose next offset the broker no longer has.

    Args:
        next_offsets: partition -> the offset at which reading continues.
        ingested: what raw_records has ingested; its topic ids are compared with the broker's.
        topics: the topics on the broker.
    """
    losses = []
    for partition, offset in sorted(next_offsets.items()):
        topic, ingested_id = topics.get(partition.topic), ingested.topic_ids.get(partition.topic)
        bounds = topic.partitions.get(partition.partition) if topic else None
        if topic is None:
            losses.append(Loss(partition, offset, None, "the topic was deleted", None))
        elif bounds is None or (ingested_id and topic.id and ingested_id != topic.id):
            resume = bounds.earliest if bounds else None
            reason = "the topic was deleted and created again"
            losses.append(Loss(partition, offset, bounds, reason, resume, is_recreated=True))
        elif offset < bounds.earliest:
            losses.append(Loss(partition, offset, bounds, "the records before have expired", bounds.earliest))
        elif offset > bounds.latest and ingested_id and topic.id:
            losses.append(Loss(partition, offset, bounds, "the log was truncated", bounds.latest))
        elif offset > bounds.latest:
            reason = "the log ends before: the topic was created again, or starting_offsets is wrong"
            losses.append(Loss(partition, offset, bounds, reason, bounds.earliest, is_recreated=True))
    return losses


def share_limit(
    ranges: Mapping[TopicPartition, OffsetRange], limit: int | None, turn: int
) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges, with their ends reduced so that together they have at most `limit` offsets.

    Every partition gets an equal share, and what one partition does not need goes to the others.

    Args:
        ranges: the offsets to read of each partition.
        limit: the highest number of offsets; None: no limit.
        turn: a number that grows with each run; it selects the partitions to read if there are more than `limit`.
    """
    sizes = {partition: end - start for partition, (start, end) in ranges.items() if end > start}
    if limit is None or sum(sizes.values()) <= limit:
        return dict(ranges)
    selected = sorted(sizes)
    first = turn % len(selected)
    selected = [*selected[first:], *selected[:first]][:limit]
    shares, left = dict.fromkeys(ranges, 0), limit
    for n, partition in enumerate(sorted(selected, key=lambda each: sizes[each])):
        shares[partition] = min(sizes[partition], left // (len(selected) - n))
        left -= shares[partition]
    return {partition: OffsetRange(start, start + shares[partition]) for partition, (start, _) in ranges.items()}
