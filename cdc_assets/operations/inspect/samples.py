"""Samples of Kafka records, from a broker or from recorded snapshot files, read without a JVM."""

import gzip
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from pydantic import ConfigDict, NonNegativeInt, TypeAdapter, ValidationError

from cdc_assets.config import Kafka
from cdc_assets.lakehouse.raw_records import RecordPlace
from cdc_assets.sources.broker import Broker, BrokerError, client_settings, mask_secrets
from cdc_assets.sources.offsets import TopicPartition
from cdc_assets.sources.snapshots import SnapshotError

_IDLE_SECONDS = 10.0
# Topics of Kafka itself. Debezium's heartbeats begin with two underscores, too.
_INTERNAL = re.compile(r"__(consumer_offsets|transaction_state|share_group_state|cluster_metadata)$")


@dataclass(frozen=True)
class SampledHeader:
    """One header of a Kafka record; its value is None where it has none."""

    key: str
    value: bytes | None

    __pydantic_config__: ClassVar = ConfigDict(strict=True, val_json_bytes="base64")


@dataclass(frozen=True)
class SampledRecord:
    """One Kafka record.

    Attributes:
        topic: name of its topic.
        partition: number of its partition.
        offset: its offset in the partition.
        key: bytes of the key; None where there is none.
        value: bytes of the value; None for a tombstone.
        headers: its headers; None where a snapshot file states none.
    """

    topic: str
    partition: NonNegativeInt
    offset: NonNegativeInt
    key: bytes | None
    value: bytes | None
    headers: tuple[SampledHeader, ...] | None = None

    __pydantic_config__: ClassVar = ConfigDict(strict=True, val_json_bytes="base64")

    @property
    def place(self) -> RecordPlace:
        """Where the record lies."""
        return RecordPlace(self.topic, self.partition, self.offset)


_RECORD = TypeAdapter(SampledRecord)


@dataclass(frozen=True)
class TopicSample:
    """The sampled records of one topic.

    Attributes:
        topic: its name.
        partitions: how many partitions the topic has; of recorded files, how many they show.
        records: from the beginning and the end of each partition, in the order of partitions and offsets.
        unreadable: lines of recorded files that hold no record, as `file:line`.
    """

    topic: str
    partitions: int
    records: tuple[SampledRecord, ...]
    unreadable: tuple[str, ...] = ()


def sample_folder(folder: Path, limit: int, topics: Sequence[str], pattern: str | None) -> list[TopicSample]:
    """Return samples of the topics in a folder of recorded snapshots (`*.jsonl`, `*.jsonl.gz`).

    Args:
        folder: a local folder.
        limit: how many records of each partition are kept: the first half from its beginning, the others from its end.
        topics: only these; empty: all.
        pattern: only topics that match this regular expression as a whole.

    Raises:
        SnapshotError: the folder does not exist or has no such files.
    """
    files = sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")])
    if not files:
        raise SnapshotError(f"{folder}: no files *.jsonl or *.jsonl.gz there: name a folder of recorded snapshots.")
    kept: defaultdict[str, defaultdict[int, list[SampledRecord]]] = defaultdict(lambda: defaultdict(list))
    unreadable: list[str] = []
    for file in files:
        for number, line in enumerate(_lines(file), start=1):
            record = _record(line)
            if record is None:
                unreadable.append(f"{file.name}:{number}")
            elif _is_selected(record.topic, topics, pattern):
                records = kept[record.topic][record.partition]
                records.append(record)
                if len(records) > limit:
                    del records[(limit + 1) // 2]
    samples = [
        TopicSample(
            name,
            max(partitions) + 1,
            tuple(r for number in sorted(partitions) for r in sorted(partitions[number], key=lambda r: r.offset)),
        )
        for name, partitions in sorted(kept.items())
    ]
    if unreadable:  # these lines belong to no topic: the first one states them
        samples[:1] = [replace(next(iter(samples), TopicSample("", 0, ())), unreadable=tuple(unreadable))]
    return samples


def sample_broker(kafka: Kafka, limit: int) -> list[TopicSample]:
    """Return samples of the topics of a broker.

    Args:
        kafka: the broker with its options, and the topics.
        limit: how many records of each partition are read: half from its beginning, the others from its end.

    Raises:
        BrokerError: the broker does not answer, or it has no such topic.
    """
    with Broker(kafka) as broker:
        snapshot = {name: topic for name, topic in broker.snapshot().items() if not _INTERNAL.match(name)}
    missing = sorted(set(kafka.topics or ()) - set(snapshot))
    if missing or not snapshot:
        named = ", ".join(missing) or f"that matches {kafka.topic_pattern}"
        raise BrokerError(f"Kafka at {kafka.bootstrap_servers} has no topic {named}")
    settings = client_settings(kafka) | {"group.id": "cdc-assets-inspect", "enable.auto.commit": "false"}
    consumer = Consumer({**settings, "enable.partition.eof": "true"})
    try:
        return [
            TopicSample(
                name,
                len(topic.partitions),
                tuple(
                    record
                    for number, bounds in sorted(topic.partitions.items())
                    for start, end in _ranges(*bounds, limit)
                    for record in _read(consumer, TopicPartition(name, number), start, end)
                ),
            )
            for name, topic in sorted(snapshot.items())
        ]
    except KafkaException as error:
        cause = mask_secrets(str(error.args[0]), kafka)
    finally:
        consumer.close()
    # Outside the except block: the exception has the client's own words, and must not be chained.
    raise BrokerError(f"Kafka at {kafka.bootstrap_servers}: {cause}")


def _ranges(start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Return the offsets of the sample of one partition: its beginning, and its end where that is another part."""
    middle = min(end, start + (limit + 1) // 2)
    yield start, middle
    if end > middle:
        yield max(middle, end - limit // 2), end


def _read(consumer: Consumer, place: TopicPartition, start: int, end: int) -> Iterator[SampledRecord]:
    if start >= end:
        return
    consumer.assign([ClientPartition(place.topic, place.partition, start)])
    while (message := consumer.poll(_IDLE_SECONDS)) is not None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name of the end
                return
            raise KafkaException(error)
        offset = message.offset() or 0
        if offset < end:
            headers = tuple(SampledHeader(*header) for header in message.headers() or ())
            yield SampledRecord(place.topic, place.partition, offset, message.key(), message.value(), headers)
        if offset >= end - 1:
            return


def _is_selected(topic: str, topics: Sequence[str], pattern: str | None) -> bool:
    return (not topics or topic in topics) and (pattern is None or re.fullmatch(pattern, topic) is not None)


def _lines(file: Path) -> Iterable[bytes]:
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        yield from (line for line in lines if line.strip())


def _record(line: bytes) -> SampledRecord | None:
    """Return the record of one line of a snapshot file; None where the line holds none."""
    try:
        return _RECORD.validate_json(line)
    except ValidationError:
        return None
