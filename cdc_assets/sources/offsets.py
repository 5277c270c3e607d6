"""Which offsets a run reads: pure arithmetic over what is held already and what the broker has.

Offsets are Kafka's: of a partition, `earliest` is the first that the broker still has, `latest` the one after the last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Of a topic that is gone, and whose loss was accepted (`on_data_loss: skip`), instead of its id.
GONE = ""


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Bounds(NamedTuple):
    """The offsets [earliest, latest) that a broker has of one partition."""

    earliest: int
    latest: int


@dataclass(frozen=True)
class Topic:
    """A topic as the broker has it: `id` is its own alone (a topic created again has another); None: the broker has none."""

    id: str | None
    partitions: Mapping[int, Bounds]


Snapshot = Mapping[str, Topic]


class Range(NamedTuple):
    """The offsets [start, end) that a run reads of one partition."""

    start: int
    end: int


@dataclass(frozen=True)
class Held:
    """What the table holds: the next offset of every partition known, and the id of every topic read from a broker."""

    following: Mapping[Place, int]
    ids: Mapping[str, str | None]


@dataclass(frozen=True)
class Loss:
    """Offsets that were to be read and that the broker no longer has."""

    place: Place
    wanted: int
    available: Bounds | None  # None: the topic is gone
    why: str
    resume: int | None  # where `on_data_loss: skip` goes on; None: nowhere
    created_again: bool = False  # the topic under this name is another one

    def __str__(self) -> str:
        there = (
            f"available: {self.available.earliest} to {self.available.latest}" if self.available else "none available"
        )
        return f"{self.place.topic} partition {self.place.partition}: wanted from offset {self.wanted}, {there} ({self.why})"


class DataLossError(RuntimeError):
    """Records were deleted on the broker before they were read, and the feed says `on_data_loss: fail`."""

    def __init__(self, losses: Iterable[Loss]) -> None:
        told = [str(loss) for loss in losses]
        more = f"; and {len(told) - 10} partitions more" if len(told) > 10 else ""
        super().__init__(
            f"Records are lost: {'; '.join(told[:10])}{more}. Nothing was taken in. Two ways on: restore the records on the "
            "broker, if that can be done, and run again; or set on_data_loss: skip under source.kafka in the feeds file, "
            "which goes on with what is available and writes what is missing into quarantine."
        )


class Different:
    """Offsets of one partition, in any order and any number of times: the first, the last, and how many different ones.

    What is kept are the ranges that they fill: a few, unless they lie scattered.
    """

    def __init__(self) -> None:
        self._starts: list[npt.NDArray[np.int64]] = []
        self._ends: list[npt.NDArray[np.int64]] = []

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """Add at least one."""
        ordered = np.unique(offsets)
        jumps = np.flatnonzero(np.diff(ordered) > 1)
        self._starts.append(ordered[np.append(0, jumps + 1)])
        self._ends.append(ordered[np.append(jumps, -1)] + 1)

    def bounds(self) -> list[int]:
        """The lowest and the highest."""
        return [int(min(each[0] for each in self._starts)), int(max(each[-1] for each in self._ends)) - 1]

    def __len__(self) -> int:
        starts, ends = np.concatenate(self._starts), np.concatenate(self._ends)
        order = np.argsort(starts)
        starts, ends = starts[order], ends[order]
        # Of each range what none before it reaches.
        reached = np.append(starts[0], np.maximum.accumulate(ends)[:-1])
        return int(np.maximum(ends - np.maximum(starts, reached), 0).sum())


def losses(wanted: Mapping[Place, int], held: Held, there: Snapshot) -> list[Loss]:
    """Compare the offset wanted next of each partition with what the broker has, and the topics' ids with those held."""
    found = []
    for place, offset in sorted(wanted.items()):
        topic, known = there.get(place.topic), held.ids.get(place.topic)
        bounds = topic.partitions.get(place.partition) if topic else None
        if topic is None:
            found.append(Loss(place, offset, None, "the topic was deleted", None))
        elif bounds is None or (known and topic.id and known != topic.id):
            resume = bounds.earliest if bounds else None
            found.append(
                Loss(place, offset, bounds, "the topic was deleted and created again", resume, created_again=True)
            )
        elif offset < bounds.earliest:
            found.append(Loss(place, offset, bounds, "the records before have expired", bounds.earliest))
        elif offset > bounds.latest and known and topic.id:
            found.append(Loss(place, offset, bounds, "the log was cut off", bounds.latest))
        elif offset > bounds.latest:
            why = "the log ends before: the topic was created again, or starting_offsets is wrong"
            found.append(Loss(place, offset, bounds, why, bounds.earliest, created_again=True))
    return found


def fair(ranges: Mapping[Place, Range], limit: int | None, turn: int) -> dict[Place, Range]:
    """Cut the ends so that all ranges together have at most `limit` offsets; None: as many as there are.

    Every partition gets the same share, and what one does not need goes to the others. Where there are fewer offsets than
    partitions, `turn`, a number that grows with each run, says whose turn it is.
    """
    sizes = {place: end - start for place, (start, end) in ranges.items() if end > start}
    if limit is None or sum(sizes.values()) <= limit:
        return dict(ranges)
    waiting = sorted(sizes)
    first = turn % len(waiting)
    waiting = [*waiting[first:], *waiting[:first]][:limit]
    shares, left = dict.fromkeys(ranges, 0), limit
    for n, place in enumerate(sorted(waiting, key=lambda place: sizes[place])):
        shares[place] = min(sizes[place], left // (len(waiting) - n))
        left -= shares[place]
    return {place: Range(start, start + shares[place]) for place, (start, _) in ranges.items()}
