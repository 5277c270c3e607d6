"""Kafka topics as a bounded snapshot: which offsets a run reads of every partition, and the records there."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Kafka
from cdc_assets.sources.broker import Broker, BrokerError, options
from cdc_assets.sources.offsets import GONE, DataLossError, Held, Loss, Place, Range, Snapshot, fair, losses

# With a task a partition, three of them keep two cores busy for as long as four would: a core gets several. But a task of
# fewer records is not worth a consumer, and a file, of its own; nor does one of more make anything faster.
_TASKS_A_CORE = 4
_FEWEST, _MOST = 10_000, 50_000
# What is read is there already. But behind the last record of a partition the consumer asks for more, and its next partition
# on that broker has to wait until the broker has answered. (Measured: 4,000 records of 3 partitions took 1.3 s with Kafka's
# 500 ms, 0.2 s with this.)
_WAIT = {"kafka.fetch.max.wait.ms": "10"}

_T = TypeVar("_T")


@dataclass(frozen=True)
class Plan:
    """What a run reads, fixed and committed before it reads the first record: a retry reads the same."""

    ranges: Mapping[Place, Range]  # of every partition, the empty ones too
    ids: Mapping[str, str | None]  # of every topic ever read
    restarted: frozenset[str] = frozenset()  # topics whose offsets begin anew
    left: int = 0  # offsets left for later runs by max_records_per_run
    fixed_at: str = ""

    @property
    def size(self) -> int:
        """How many offsets there are to read; not every offset has a record."""
        return sum(end - start for start, end in self.ranges.values())

    def to_json(self) -> dict[str, Any]:
        """The plan as it stands in a cursor."""
        return {
            "ranges": nested({place: list(range_) for place, range_ in self.ranges.items()}),
            "ids": dict(self.ids),
            "restarted": sorted(self.restarted),
            "left": self.left,
            "fixed_at": self.fixed_at,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "Plan":
        """The plan that a cursor holds."""
        ranges = {
            Place(topic, int(number)): Range(*bounds)
            for topic, partitions in said["ranges"].items()
            for number, bounds in partitions.items()
        }
        return cls(ranges, said["ids"], frozenset(said["restarted"]), said["left"], said["fixed_at"])


def nested(by_place: Mapping[Place, _T]) -> dict[str, dict[str, _T]]:
    """Topic -> partition -> value, as JSON has it."""
    found: dict[str, dict[str, _T]] = {}
    for place, value in sorted(by_place.items()):
        found.setdefault(place.topic, {})[str(place.partition)] = value
    return found


def fix(broker: Broker, kafka: Kafka, held: Held, *, first: bool, turn: int) -> tuple[Plan, list[Loss]]:
    """Fix what this run reads: from what is held, or where partitions that are new begin, to the ends of this moment.

    Args:
        broker: the connection.
        kafka: the feed's source.
        held: what raw_records holds.
        first: whether the feed has never read from a broker: `starting_offsets` is about that moment, and a partition that
            comes later is read from its beginning.
        turn: a number that grows with each run.

    Returns:
        The plan, and the losses that it accepts.

    Raises:
        BrokerError: the broker does not answer, or a topic that the feed names has never been there.
        DataLossError: records were lost before they were read, and the feed does not accept it.
    """
    there = broker.snapshot()
    unknown = [topic for topic in kafka.topics or () if topic not in there and topic not in held.ids]
    if unknown:
        raise BrokerError(
            f"Kafka at {kafka.bootstrap_servers} has no topic {', '.join(unknown)} (source.kafka.topics in the feeds file): "
            "create it, or correct the name; a topic_pattern takes in topics as they appear"
        )
    back = {topic for topic in there if held.ids.get(topic) == GONE}
    wanted = {
        place: offset
        for place, offset in held.following.items()
        if held.ids.get(place.topic) != GONE and broker.reads(place.topic)
    }
    every = {Place(name, number) for name, topic in there.items() for number in topic.partitions}
    wanted |= _initial(broker, kafka, sorted(every - wanted.keys()), there, first=first)
    lost = losses(wanted, held, there)
    if lost and kafka.on_data_loss == "fail":
        raise DataLossError(lost)
    starts = wanted | {loss.place: loss.resume for loss in lost}
    ranges = {
        place: Range(start, max(start, there[place.topic].partitions[place.partition].latest))
        for place in sorted(every)
        if (start := starts[place]) is not None
    }
    cut = fair(ranges, kafka.max_records_per_run, turn)
    gone = {loss.place.topic for loss in lost if loss.place.topic not in there}
    ids = dict(held.ids) | {name: topic.id for name, topic in there.items()} | dict.fromkeys(gone, GONE)
    anew = {loss.place.topic for loss in lost if loss.created_again}
    plan = Plan(cut, ids, frozenset(back | anew), fixed_at=datetime.now(UTC).isoformat(timespec="seconds"))
    return replace(plan, left=sum(end - start for start, end in ranges.values()) - plan.size), lost


def _initial(
    broker: Broker, kafka: Kafka, places: Iterable[Place], there: Snapshot, *, first: bool
) -> dict[Place, int]:
    """Where partitions that the feed has never seen are read from."""
    chosen, bounds = kafka.starting_offsets, {p: there[p.topic].partitions[p.partition] for p in places}
    begin = {place: each.earliest for place, each in bounds.items()}
    if isinstance(chosen, dict):
        return {place: chosen.get(place.topic, {}).get(place.partition, offset) for place, offset in begin.items()}
    if not first or chosen == "earliest":
        return begin
    end = {place: each.latest for place, each in bounds.items()}
    if chosen == "latest":
        return end
    return end | {p: offset for p, offset in broker.offsets_at(bounds, chosen).items() if offset >= 0}


def resume(broker: Broker, kafka: Kafka, plan: Plan) -> tuple[Plan, list[Loss]]:
    """A plan that a run before has fixed and not read: the same, unless some of it has been lost since.

    Raises:
        BrokerError: the broker does not answer.
        DataLossError: records were lost before they were read, and the feed does not accept it.
    """
    wanted = {place: start for place, (start, end) in plan.ranges.items() if start < end}
    lost = losses(wanted, Held({}, plan.ids), broker.snapshot())
    if lost and kafka.on_data_loss == "fail":
        raise DataLossError(lost)
    ranges = dict(plan.ranges)
    for loss in lost:
        end = ranges[loss.place].end
        # What was created again is another log: the next run begins it, and knows by its id that it is another.
        start = end if loss.resume is None or loss.created_again else min(loss.resume, end)
        ranges[loss.place] = Range(start, end)
    return replace(plan, ranges=ranges), lost


def read(spark: SparkSession, kafka: Kafka, ranges: Mapping[Place, Range]) -> DataFrame:
    """The records at these offsets of partitions.

    Out: topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,
    headers ARRAY<STRUCT<key STRING, value BINARY>>, never null.
    """
    sizes = {place: end - start for place, (start, end) in ranges.items() if start < end}
    tasks = _TASKS_A_CORE * spark.sparkContext.defaultParallelism
    reader = spark.read.format("kafka").options(**_WAIT | options(kafka))
    reader = reader.options(
        assign=json.dumps({topic: [int(n) for n in numbers] for topic, numbers in nested(sizes).items()}),
        startingOffsets=json.dumps(nested({place: ranges[place].start for place in sizes})),
        endingOffsets=json.dumps(nested({place: ranges[place].end for place in sizes})),
        includeHeaders="true",
        failOnDataLoss="true",
        maxRecordsPerPartition=str(min(max(_FEWEST, sum(sizes.values()) // tasks), _MOST)),
    )
    headers = F.coalesce("headers", F.array().cast("array<struct<key: string, value: binary>>"))
    columns = ["topic", "partition", "offset", "timestamp", "key", "value"]
    return reader.load().select(*columns, headers.alias("headers"))
