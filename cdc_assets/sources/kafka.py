"""Kafka topics as a bounded snapshot: the plan of the offsets that a run reads, and the records at these offsets."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Kafka
from cdc_assets.sources.broker import Broker, BrokerError, spark_options
from cdc_assets.sources.offsets import (
    DELETED_TOPIC,
    DataLossError,
    IngestedOffsets,
    Loss,
    OffsetRange,
    TopicPartition,
    TopicSnapshot,
    find_losses,
    share_limit,
)

# Several tasks a core, as tasks of partitions of different sizes end at different times. A small task is not worth its own
# consumer and file, so a task reads at least some thousand records.
_TASKS_PER_CORE = 4
_MIN_TASK_RECORDS, _MAX_TASK_RECORDS = 10_000, 50_000
# All planned records are on the broker. But at the end of a partition the consumer asks for more, and this wait delays the
# consumer's next partition on the same broker.
_FETCH_OPTIONS = {"kafka.fetch.max.wait.ms": "10"}

_T = TypeVar("_T")


@dataclass(frozen=True)
class ReadPlan:
    """The offsets that a run reads; it is committed before the run reads a record, so that a retry reads the same.

    Attributes:
        ranges: the offsets of every partition; empty ranges are included.
        ids: topic -> its id, for every topic that was ever read.
        restarted: topics whose offsets begin again, because they were created again.
        left: how many offsets `max_records_per_run` leaves for later runs.
        fixed_at: when the plan was made; ISO 8601.
    """

    ranges: Mapping[TopicPartition, OffsetRange]
    ids: Mapping[str, str | None]
    restarted: frozenset[str] = frozenset()
    left: int = 0
    fixed_at: str = ""

    @property
    def size(self) -> int:
        """Number of offsets in the plan; not every offset has a record."""
        return sum(end - start for start, end in self.ranges.values())

    def to_json(self) -> dict[str, Any]:
        """Return the plan in the form in which a cursor stores it."""
        ranges = nest_by_topic({partition: list(offsets) for partition, offsets in self.ranges.items()})
        return vars(self) | {"ranges": ranges, "restarted": sorted(self.restarted)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ReadPlan":
        """Return the plan that a cursor stores."""
        ranges = {
            TopicPartition(topic, int(number)): OffsetRange(*offsets)
            for topic, partitions in stored["ranges"].items()
            for number, offsets in partitions.items()
        }
        return cls(**{**stored, "ranges": ranges, "restarted": frozenset(stored["restarted"])})


def nest_by_topic(values: Mapping[TopicPartition, _T]) -> dict[str, dict[str, _T]]:
    """Return the values of partitions as topic -> partition -> value, with keys as JSON needs them."""
    nested: dict[str, dict[str, _T]] = {}
    for partition, value in sorted(values.items()):
        nested.setdefault(partition.topic, {})[str(partition.partition)] = value
    return nested


def plan_read(
    broker: Broker, kafka: Kafka, ingested: IngestedOffsets, *, first: bool, turn: int
) -> tuple[ReadPlan, list[Loss]]:
    """Plan the offsets that a run reads: of each partition from its next offset to its present end.

    Args:
        broker: the connection.
        kafka: the feed's source.
        ingested: what raw_records has ingested.
        first: whether the feed has never read from a broker. `starting_offsets` applies to the first run; a partition that
            is added later is read from its beginning.
        turn: a number that grows with each run; see `share_limit`.

    Returns:
        The plan, and the losses that the feed accepts.

    Raises:
        BrokerError: the broker does not answer, or a topic that the feed names never existed.
        DataLossError: records were lost before they were read, and the feed does not accept losses.
    """
    topics = broker.snapshot()
    _check_topics_exist(kafka, topics, ingested)
    reappeared = {topic for topic in topics if ingested.topic_ids.get(topic) == DELETED_TOPIC}
    next_offsets = {
        partition: offset
        for partition, offset in ingested.next_offsets.items()
        if ingested.topic_ids.get(partition.topic) != DELETED_TOPIC and broker.reads(partition.topic)
    }
    partitions = {TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions}
    next_offsets |= _first_offsets(broker, kafka, sorted(partitions - next_offsets.keys()), topics, first=first)
    losses = find_losses(next_offsets, ingested, topics)
    if losses and kafka.on_data_loss == "fail":
        raise DataLossError(losses)
    starts = next_offsets | {loss.partition: loss.resume_offset for loss in losses}
    ranges = {
        partition: OffsetRange(start, max(start, topics[partition.topic].partitions[partition.partition].latest))
        for partition in sorted(partitions)
        if (start := starts[partition]) is not None
    }
    limited = share_limit(ranges, kafka.max_records_per_run, turn)
    recreated = {loss.partition.topic for loss in losses if loss.is_recreated}
    plan = ReadPlan(
        limited,
        _topic_ids(ingested, topics, losses),
        frozenset(reappeared | recreated),
        fixed_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return replace(plan, left=sum(end - start for start, end in ranges.values()) - plan.size), losses


def _check_topics_exist(kafka: Kafka, topics: TopicSnapshot, ingested: IngestedOffsets) -> None:
    """Raise a BrokerError for topics that the feed names and that never existed."""
    missing = [topic for topic in kafka.topics or () if topic not in topics and topic not in ingested.topic_ids]
    if missing:
        raise BrokerError(
            f"Kafka at {kafka.bootstrap_servers} has no topic {', '.join(missing)} (source.kafka.topics in the feeds file): "
            "create it, or correct the name; a topic_pattern takes in topics as they appear"
        )


def _topic_ids(ingested: IngestedOffsets, topics: TopicSnapshot, losses: Iterable[Loss]) -> dict[str, str | None]:
    """Return topic -> its id, for every topic that was ever read; `DELETED_TOPIC` for a topic that was lost."""
    deleted = {loss.partition.topic for loss in losses if loss.partition.topic not in topics}
    present = {name: topic.id for name, topic in topics.items()}
    return {**ingested.topic_ids, **present, **dict.fromkeys(deleted, DELETED_TOPIC)}


def _first_offsets(
    broker: Broker, kafka: Kafka, partitions: Iterable[TopicPartition], topics: TopicSnapshot, *, first: bool
) -> dict[TopicPartition, int]:
    """Return the offsets at which reading of partitions begins that the feed has never read."""
    starting = kafka.starting_offsets
    bounds = {each: topics[each.topic].partitions[each.partition] for each in partitions}
    earliest = {partition: each.earliest for partition, each in bounds.items()}
    if isinstance(starting, dict):
        return {each: starting.get(each.topic, {}).get(each.partition, offset) for each, offset in earliest.items()}
    if not first or starting == "earliest":
        return earliest
    latest = {partition: each.latest for partition, each in bounds.items()}
    if starting == "latest":
        return latest
    return latest | {each: offset for each, offset in broker.offsets_at(bounds, starting).items() if offset >= 0}


def resume_plan(broker: Broker, kafka: Kafka, plan: ReadPlan) -> tuple[ReadPlan, list[Loss]]:
    """Return a plan that an earlier run made and did not complete, without records that have been lost since.

    Returns:
        The plan, and the losses that the feed accepts.

    Raises:
        BrokerError: the broker does not answer.
        DataLossError: records were lost before they were read, and the feed does not accept losses.
    """
    next_offsets = {partition: start for partition, (start, end) in plan.ranges.items() if start < end}
    losses = find_losses(next_offsets, IngestedOffsets({}, plan.ids), broker.snapshot())
    if losses and kafka.on_data_loss == "fail":
        raise DataLossError(losses)
    ranges = dict(plan.ranges)
    for loss in losses:
        end = ranges[loss.partition].end
        # A topic that was created again has new offsets: the next run plans them, and recognises the topic by its id.
        start = end if loss.resume_offset is None or loss.is_recreated else min(loss.resume_offset, end)
        ranges[loss.partition] = OffsetRange(start, end)
    return replace(plan, ranges=ranges), losses


def read_records(spark: SparkSession, kafka: Kafka, ranges: Mapping[TopicPartition, OffsetRange]) -> DataFrame:
    """Return the records at these offsets.

    Returns:
        topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,
        headers ARRAY<STRUCT<key STRING, value BINARY>>, never null.
    """
    sizes = {partition: end - start for partition, (start, end) in ranges.items() if start < end}
    tasks = _TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    task_records = min(max(_MIN_TASK_RECORDS, sum(sizes.values()) // tasks), _MAX_TASK_RECORDS)
    reader = spark.read.format("kafka").options(**_FETCH_OPTIONS | spark_options(kafka))
    reader = reader.options(
        assign=json.dumps({topic: [int(n) for n in numbers] for topic, numbers in nest_by_topic(sizes).items()}),
        startingOffsets=json.dumps(nest_by_topic({partition: ranges[partition].start for partition in sizes})),
        endingOffsets=json.dumps(nest_by_topic({partition: ranges[partition].end for partition in sizes})),
        includeHeaders="true",
        failOnDataLoss="true",
        maxRecordsPerPartition=str(task_records),
    )
    headers = F.coalesce("headers", F.array().cast("array<struct<key: string, value: binary>>"))
    columns = ["topic", "partition", "offset", "timestamp", "key", "value"]
    return reader.load().select(*columns, headers.alias("headers"))
