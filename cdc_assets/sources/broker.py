"""A Kafka broker's own account of its topics: which there are, with how many partitions, and which offsets they have.

It is asked by librdkafka, which needs no JVM. What a feed's options hold may be a secret, and no message shows it.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, OffsetSpec

from cdc_assets.config import Kafka
from cdc_assets.config.kafka_options import PREFIX, QUOTED, TIMEOUT, is_public, librdkafka_options, unescape
from cdc_assets.sources.offsets import Bounds, Place, Snapshot, Topic

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of topics on brokers before Kafka 2.8
# How long a topic that was just created or deleted may be known to some of the brokers only.
_SETTLING_SECONDS = 10
_SHOWN = "***"
_DEFAULT_TIMEOUT_MS = 60_000  # of the Java client's API
_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)  # noqa: SLF001
# While a partition gets a leader, or another one. It gets one soon.
_UNSETTLED = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
_QUIET = logging.getLogger(f"{__name__}.client")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False

_T = TypeVar("_T")


class BrokerError(RuntimeError):
    """The broker did not answer, or not with what was asked for."""


class UnknownTopicError(BrokerError):
    """A topic is not there any more, or not yet everywhere."""


class _UnsettledError(BrokerError):
    """A partition has no leader at this moment."""


def options(kafka: Kafka) -> dict[str, str]:
    """Return Spark's options of the connection, secrets and all: never to be shown.

    Records of transactions that were aborted are not read, unless the feed says so itself.
    """
    return {
        f"{PREFIX}bootstrap.servers": kafka.bootstrap_servers,
        f"{PREFIX}isolation.level": "read_committed",
    } | {name: value.get_secret_value() for name, value in kafka.options.items()}


def client_settings(kafka: Kafka) -> dict[str, str]:
    """Return librdkafka's options of a connection that lists topics and offsets, secrets and all: never to be shown."""
    own = {name: value.get_secret_value() for name, value in kafka.client_options.items()}
    settings = librdkafka_options(options(kafka), own)
    del settings["isolation.level"]  # of consumers
    return settings


def censored(text: str, kafka: Kafka) -> str:
    """The text in one line, without what may be a secret in the feed's options: those that are not known to be none."""
    for name, value in (kafka.options | kafka.client_options).items():
        if is_public(name.removeprefix(PREFIX)):
            continue
        secret = value.get_secret_value()
        # A JAAS configuration has its secrets in quotes, and a message may have one of them.
        quoted = QUOTED.findall(secret)
        parts = {secret, *quoted, *map(unescape, quoted)} - {""}
        for part in sorted(parts, key=len, reverse=True):
            text = text.replace(part, _SHOWN)
    return " ".join(text.split())


class Broker:
    """A connection to the brokers of one feed; a context manager.

    Raises:
        BrokerError: from every method, when the broker does not answer, or refuses.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._pattern = re.compile(kafka.topic_pattern) if kafka.topic_pattern is not None else None
        given = options(kafka)
        self._timeout = int(given.get(f"{PREFIX}{TIMEOUT}", _DEFAULT_TIMEOUT_MS)) / 1000
        committed = given[f"{PREFIX}isolation.level"].lower() == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._errors: list[str] = []
        self._refused = False  # the login
        self._poll: Callable[[float], object] = lambda _: 0

    def __enter__(self) -> Self:
        settings = client_settings(self._kafka)
        callbacks: dict[str, Any] = {"error_cb": self._failed}
        self._admin = self._asked(lambda: AdminClient({**settings, **callbacks}, logger=_QUIET))
        self._poll = self._admin.poll
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        del self._admin, self._poll  # its connections end with it

    def reads(self, topic: str) -> bool:
        """Whether the feed reads a topic of this name."""
        if self._pattern is None:
            return topic in (self._kafka.topics or ())
        return bool(self._pattern.fullmatch(topic))

    def snapshot(self) -> Snapshot:
        """The topics that the feed reads and that are there, with the offsets that every partition has at this moment."""
        topics, until = self.topics(), time.monotonic() + _SETTLING_SECONDS
        while True:
            places = [Place(name, number) for name, (_, count) in topics.items() for number in range(count)]
            found = None
            try:
                found = self.earliest(places), self.latest(places)
            except UnknownTopicError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            # A partition that came meanwhile may hold what a watermark in the others, read up to now, says to be complete.
            again = self.topics()
            if again == topics and found is not None:
                break
            topics = again
        earliest, latest = found
        bounds: dict[str, dict[int, Bounds]] = {name: {} for name in topics}
        for place in places:
            bounds[place.topic][place.partition] = Bounds(earliest[place], latest[place])
        return {name: Topic(topic_id, bounds[name]) for name, (topic_id, _) in topics.items()}

    def earliest(self, places: Iterable[Place]) -> dict[Place, int]:
        """The first offset that each partition still has."""
        return self._offsets(places, OffsetSpec.earliest())

    def latest(self, places: Iterable[Place]) -> dict[Place, int]:
        """The offset that the next record of each partition gets."""
        return self._offsets(places, OffsetSpec.latest())

    def offsets_at(self, places: Iterable[Place], instant: datetime) -> dict[Place, int]:
        """Per partition the offset of the first record at or after the instant; -1 where there is none."""
        return self._offsets(places, OffsetSpec.for_timestamp(int(instant.timestamp() * 1000)))

    def create(self, topics: Mapping[str, int]) -> None:
        """Create topics, name -> number of partitions, with the broker's own settings for the rest."""
        if not topics:
            return
        wanted = [NewTopic(name, partitions, -1) for name, partitions in topics.items()]
        self._results(self._asked(lambda: self._admin.create_topics(wanted, request_timeout=self._timeout)))
        self.snapshot()  # returns when they can be used

    def topics(self) -> dict[str, tuple[str | None, int]]:
        """The feed's topics that are there: name -> id, None where the broker has none, and number of partitions."""
        listed = self._asked(self._listed)
        names = sorted(name for name in listed.topics if self.reads(name))
        if not names:
            return {}
        asked = self._asked(lambda: self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout))
        found = {}
        for name in names:
            try:
                described = self._asked(asked[name].result)
            except UnknownTopicError:
                continue  # deleted since it was listed
            # As Java writes it.
            topic_id = str(described.topic_id).translate(str.maketrans("+/", "-_")).rstrip("=")
            found[name] = (None if topic_id == _NO_ID else topic_id, len(described.partitions))
        return found

    def _listed(self) -> ClusterMetadata:
        """Every topic that is there.

        Librdkafka tries a login that is refused again and again, until the time is over, and tells of it between two calls.
        """
        until, patience = time.monotonic() + self._timeout, 1.0
        while True:
            try:
                return self._admin.list_topics(timeout=min(patience, max(until - time.monotonic(), 0)))
            except KafkaException:
                self._poll(0)
                if self._refused or time.monotonic() >= until:
                    raise
            patience *= 2

    def _offsets(self, places: Iterable[Place], which: OffsetSpec) -> dict[Place, int]:
        asked = {TopicPartition(p.topic, p.partition): which for p in places}
        if not asked:
            return {}
        until = time.monotonic() + _SETTLING_SECONDS
        while True:
            found = self._asked(
                lambda: self._admin.list_offsets(asked, isolation_level=self._isolation, request_timeout=self._timeout)
            )
            try:
                return {Place(p.topic, p.partition): told.offset for p, told in self._results(found).items()}
            except _UnsettledError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def _results(self, futures: Mapping[Any, "Future[_T]"]) -> dict[Any, _T]:
        return {key: self._asked(future.result) for key, future in futures.items()}

    def _failed(self, problem: KafkaError) -> None:
        """Keep what is told of connections, but for how long they took: they are tried again and again."""
        self._errors.append(problem.str().partition(" (after ")[0])
        self._refused |= problem.code() == KafkaError._AUTHENTICATION  # noqa: SLF001

    def _asked(self, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except KafkaException as error:
            problem: KafkaError = error.args[0]
            self._poll(0)  # now it tells what went wrong in the background
            told = "; ".join(dict.fromkeys([problem.str(), *self._errors]))
        # Outside the except block: the exception has the client's own words, and must not be chained.
        settling = {_UNKNOWN_TOPIC: UnknownTopicError, _UNSETTLED: _UnsettledError}
        kind = next((kind for codes, kind in settling.items() if problem.code() in codes), BrokerError)
        raise kind(
            f"Kafka at {self._kafka.bootstrap_servers}: {censored(told, self._kafka)} "
            "(look at source.kafka in the feeds file, and whether the broker is up)"
        )
