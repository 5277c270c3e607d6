"""A broker asked by Kafka's Java client, in a small JVM of its own: for options that no other client understands."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from cdc_assets.feeds import Kafka
from cdc_assets.jvm import ensure_jars, java
from cdc_assets.sources.broker import NO_ID, PREFIX, Broker, BrokerError, UnknownTopicError, censored, options
from cdc_assets.sources.offsets import Place

# What the client library's classes need beside the jars of `cdc_assets.jvm`, of the jars that pyspark brings along.
_BESIDE_THE_CLIENT = ("slf4j-api-*.jar", "lz4-java-*.jar", "snappy-java-*.jar", "zstd-jni-*.jar", "jackson-*.jar")


@contextlib.contextmanager
def client_jvm() -> Iterator[Any]:
    """A small JVM with Kafka's client alone, for those who have no Spark session; it ends with the context."""
    beside = Path(pyspark.__file__).parent / "jars"
    jars = [*ensure_jars(), *(jar for name in _BESIDE_THE_CLIENT for jar in beside.glob(name))]
    port, token = launch_gateway(
        classpath=os.pathsep.join(map(str, jars)),
        javaopts=["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        java_path=java(),
        enable_auth=True,
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()


class JavaBroker(Broker):
    """A connection through Kafka's Java client."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka, self._running = kafka, contextlib.ExitStack()
        self._isolation = options(kafka)[f"{PREFIX}isolation.level"].upper()

    def __enter__(self) -> Self:
        self._jvm = self._running.enter_context(client_jvm())
        given = self._jvm.java.util.HashMap()
        for name, value in options(self._kafka).items():
            given.put(name.removeprefix(PREFIX), value)
        pattern = self._kafka.topic_pattern
        self._pattern: Any = None
        if pattern is not None:
            self._pattern = self._asked(lambda: self._jvm.java.util.regex.Pattern.compile(pattern))
        self._admin = self._asked(lambda: self._jvm.org.apache.kafka.clients.admin.AdminClient.create(given))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(5))
        self._running.close()

    def reads(self, topic: str) -> bool:
        """Whether the feed reads a topic of this name."""
        if self._pattern is None:
            return topic in (self._kafka.topics or ())
        return bool(self._pattern.matcher(topic).matches())

    def earliest(self, places: Iterable[Place]) -> dict[Place, int]:
        """The first offset that each partition still has."""
        return self._offsets(places, "earliest")

    def latest(self, places: Iterable[Place]) -> dict[Place, int]:
        """The offset that the next record of each partition gets."""
        return self._offsets(places, "latest")

    def offsets_at(self, places: Iterable[Place], instant: datetime) -> dict[Place, int]:
        """Per partition the offset of the first record at or after the instant; -1 where there is none."""
        return self._offsets(places, "forTimestamp", int(instant.timestamp() * 1000))

    def create(self, topics: Mapping[str, int]) -> None:
        """Create topics, name -> number of partitions, with the broker's own settings for the rest."""
        wanted = self._jvm.java.util.ArrayList()
        for name, partitions in topics.items():
            empty = self._jvm.java.util.Optional.empty()
            wanted.add(
                self._jvm.org.apache.kafka.clients.admin.NewTopic(
                    name, self._jvm.java.util.Optional.of(partitions), empty
                )
            )
        self._asked(lambda: self._admin.createTopics(wanted).all().get())
        self.snapshot()  # returns when they can be used

    def topics(self) -> dict[str, tuple[str | None, int]]:
        """The feed's topics that are there: name -> id, None where the broker has none, and number of partitions."""
        listed = self._asked(lambda: self._admin.listTopics().listings().get())
        names = self._jvm.java.util.ArrayList()
        for topic in self._jvm.java.util.ArrayList(listed):
            if self.reads(topic.name()):
                names.add(topic.name())
        described = self._asked(lambda: self._admin.describeTopics(names).allTopicNames().get())
        found = {}
        for name in sorted(described):
            topic_id = described[name].topicId().toString()
            found[name] = (None if topic_id == NO_ID else topic_id, described[name].partitions().size())
        return found

    def _offsets(self, places: Iterable[Place], which: str, *arguments: int) -> dict[Place, int]:
        admin = self._jvm.org.apache.kafka.clients.admin
        asked, at = self._jvm.java.util.HashMap(), {}
        for place in places:
            at[place] = self._jvm.org.apache.kafka.common.TopicPartition(place.topic, place.partition)
            asked.put(at[place], getattr(admin.OffsetSpec, which)(*arguments))
        levels = self._jvm.org.apache.kafka.common.IsolationLevel
        chosen = self._asked(lambda: admin.ListOffsetsOptions(levels.valueOf(self._isolation)))
        found = self._asked(lambda: self._admin.listOffsets(asked, chosen).all().get())
        return {place: found.get(partition).offset() for place, partition in at.items()}

    def _asked(self, ask: Any) -> Any:  # noqa: ANN401 -- whatever the client answers
        try:
            return ask()
        except Py4JJavaError as error:
            cause = error.java_exception
            while cause.getCause() is not None:
                cause = cause.getCause()
            told = f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
        # Outside the except block: the exception has the client's own words, and must not be chained.
        kind = UnknownTopicError if told.startswith("UnknownTopicOrPartitionException") else BrokerError
        raise kind(
            f"Kafka at {self._kafka.bootstrap_servers}: {censored(told, self._kafka)} "
            "(look at source.kafka in the feeds file, and whether the broker is up)"
        )
