"""Topics, partitions and offsets of a Kafka broker, read with librdkafka, which needs no JVM.

A feed's options may hold secrets: no message shows the value of an option that may be one.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, OffsetSpec

from cdc_assets.config import Kafka
from cdc_assets.config.kafka_options import PREFIX, QUOTED, TIMEOUT, is_public, librdkafka_options, unescape
from cdc_assets.sources.offsets import OffsetBounds, Topic, TopicPartition, TopicSnapshot

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # the id of every topic on brokers before Kafka 2.8
# After a topic is created or deleted, some brokers of the cluster may not know it yet.
_METADATA_SECONDS = 10
_MASK = "***"
_DEFAULT_TIMEOUT_MS = 60_000  # the Java client's default.api.timeout.ms
_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)  # noqa: SLF001
# Errors of a partition while the cluster elects its leader.
_NO_LEADER = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
_SILENT_LOGGER = logging.getLogger(f"{__name__}.client")
_SILENT_LOGGER.addHandler(logging.NullHandler())
_SILENT_LOGGER.propagate = False

_T = TypeVar("_T")


class BrokerError(RuntimeError):
    """The broker did not answer, or refused a request."""


class UnknownTopicError(BrokerError):
    """A topic or partition does not exist, or some brokers do not know it yet."""


class _NoLeaderError(BrokerError):
    """A partition has no leader at the moment."""


def spark_options(kafka: Kafka) -> dict[str, str]:
    """Return the options of Spark's Kafka reader and writer, including secrets: never show them.

    Records of aborted transactions are not read, unless the feed sets another isolation level.
    """
    return {
        f"{PREFIX}bootstrap.servers": kafka.bootstrap_servers,
        f"{PREFIX}isolation.level": "read_committed",
    } | {name: value.get_secret_value() for name, value in kafka.options.items()}


def client_settings(kafka: Kafka) -> dict[str, str]:
    """Return librdkafka's settings for listing topics and offsets, including secrets: never show them."""
    client_options = {name: value.get_secret_value() for name, value in kafka.client_options.items()}
    settings = librdkafka_options(spark_options(kafka), client_options)
    del settings["isolation.level"]  # an option of consumers only
    return settings


def mask_secrets(text: str, kafka: Kafka) -> str:
    """Return a text as one line, with the value of each feed option that may be a secret replaced by `***`."""
    for name, value in (kafka.options | kafka.client_options).items():
        if is_public(name.removeprefix(PREFIX)):
            continue
        secret = value.get_secret_value()
        # A JAAS configuration has secrets in quotes; a message may contain one of them without the rest.
        quoted = QUOTED.findall(secret)
        parts = {secret, *quoted, *map(unescape, quoted)} - {""}
        for part in sorted(parts, key=len, reverse=True):
            text = text.replace(part, _MASK)
    return " ".join(text.split())


class Broker:
    """A connection to the Kafka cluster of one feed; a context manager.

    Raises:
        BrokerError: every method raises it if the broker does not answer or refuses the request.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._pattern = re.compile(kafka.topic_pattern) if kafka.topic_pattern is not None else None
        options = spark_options(kafka)
        self._timeout = int(options.get(f"{PREFIX}{TIMEOUT}", _DEFAULT_TIMEOUT_MS)) / 1000
        committed = options[f"{PREFIX}isolation.level"].lower() == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._errors: list[str] = []
        self._login_is_refused = False
        self._poll: Callable[[float], object] = lambda _: 0

    def __enter__(self) -> Self:
        settings = client_settings(self._kafka)
        callbacks: dict[str, Any] = {"error_cb": self._on_connection_error}
        self._admin = self._call(lambda: AdminClient({**settings, **callbacks}, logger=_SILENT_LOGGER))
        self._poll = self._admin.poll
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        del self._admin, self._poll  # librdkafka closes the connections when the client is deleted

    def reads(self, topic: str) -> bool:
        """Return whether the feed reads the topic with this name."""
        if self._pattern is None:
            return topic in (self._kafka.topics or ())
        return bool(self._pattern.fullmatch(topic))

    def snapshot(self) -> TopicSnapshot:
        """Return the existing topics that the feed reads, with the offsets of every partition at this moment."""
        topics, deadline = self.list_topics(), time.monotonic() + _METADATA_SECONDS
        while True:
            partitions = [
                TopicPartition(name, number) for name, (_, count) in topics.items() for number in range(count)
            ]
            offsets = None
            try:
                offsets = (
                    self._offsets(partitions, OffsetSpec.earliest()),
                    self._offsets(partitions, OffsetSpec.latest()),
                )
            except UnknownTopicError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            # List again: a partition that was added meanwhile may hold events below a watermark of the other partitions.
            topics_after = self.list_topics()
            if topics_after == topics and offsets is not None:
                break
            topics = topics_after
        earliest, latest = offsets
        bounds: dict[str, dict[int, OffsetBounds]] = {name: {} for name in topics}
        for each in partitions:
            bounds[each.topic][each.partition] = OffsetBounds(earliest[each], latest[each])
        return {name: Topic(topic_id, bounds[name]) for name, (topic_id, _) in topics.items()}

    def offsets_at(self, partitions: Iterable[TopicPartition], instant: datetime) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record at or after an instant; -1 if there is no such record."""
        return self._offsets(partitions, OffsetSpec.for_timestamp(int(instant.timestamp() * 1000)))

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics, and return when they can be used.

        Args:
            topics: name -> number of partitions; all other settings are the broker's defaults.
        """
        if not topics:
            return
        new_topics = [NewTopic(name, partitions, -1) for name, partitions in topics.items()]
        self._results(self._call(lambda: self._admin.create_topics(new_topics, request_timeout=self._timeout)))
        self.snapshot()  # waits until the brokers know the topics

    def list_topics(self) -> dict[str, tuple[str | None, int]]:
        """Return the existing topics that the feed reads: name -> (id, number of partitions).

        The id is None if the broker has no topic ids.
        """
        metadata = self._call(self._cluster_metadata)
        names = sorted(name for name in metadata.topics if self.reads(name))
        if not names:
            return {}
        futures = self._call(lambda: self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout))
        topics = {}
        for name in names:
            try:
                description = self._call(futures[name].result)
            except UnknownTopicError:
                continue  # deleted since it was listed
            # In the form in which Kafka's own tools print ids.
            topic_id = str(description.topic_id).translate(str.maketrans("+/", "-_")).rstrip("=")
            topics[name] = (None if topic_id == _NO_ID else topic_id, len(description.partitions))
        return topics

    def _cluster_metadata(self) -> ClusterMetadata:
        """Return the metadata of the cluster, with every topic.

        librdkafka retries a refused login until the timeout, and reports the refusal only between two calls. So this method
        makes calls with a short timeout first, and stops at a refusal.
        """
        deadline, timeout = time.monotonic() + self._timeout, 1.0
        while True:
            try:
                return self._admin.list_topics(timeout=min(timeout, max(deadline - time.monotonic(), 0)))
            except KafkaException:
                self._poll(0)
                if self._login_is_refused or time.monotonic() >= deadline:
                    raise
            timeout *= 2

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        request = {ClientPartition(each.topic, each.partition): spec for each in partitions}
        if not request:
            return {}
        deadline = time.monotonic() + _METADATA_SECONDS
        while True:
            futures = self._call(
                lambda: self._admin.list_offsets(
                    request, isolation_level=self._isolation, request_timeout=self._timeout
                )
            )
            try:
                results = self._results(futures)
                return {TopicPartition(each.topic, each.partition): result.offset for each, result in results.items()}
            except _NoLeaderError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _results(self, futures: Mapping[Any, "Future[_T]"]) -> dict[Any, _T]:
        return {key: self._call(future.result) for key, future in futures.items()}

    def _on_connection_error(self, error: KafkaError) -> None:
        """Keep a connection error without its duration, so that repeated errors are equal."""
        self._errors.append(error.str().partition(" (after ")[0])
        self._login_is_refused |= error.code() == KafkaError._AUTHENTICATION  # noqa: SLF001

    def _call(self, call: Callable[[], _T]) -> _T:
        """Return the result of a call of librdkafka; raise its error as `BrokerError` without secrets."""
        try:
            return call()
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            self._poll(0)  # librdkafka now calls `_on_connection_error` for errors of its background threads
            message = "; ".join(dict.fromkeys([error.str(), *self._errors]))
        # Outside the except block, so that the exception is not chained: its text may contain secrets.
        error_types = {_UNKNOWN_TOPIC: UnknownTopicError, _NO_LEADER: _NoLeaderError}
        error_type = next((each for codes, each in error_types.items() if error.code() in codes), BrokerError)
        raise error_type(
            f"Kafka at {self._kafka.bootstrap_servers}: {mask_secrets(message, self._kafka)} "
            "(check source.kafka in the feeds file, and whether the broker is running)"
        )
