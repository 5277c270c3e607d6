"""A Kafka broker's own account of its topics: which there are, with how many partitions, and which offsets they have.

A feed's `kafka.*` options are those of Kafka's Java client, which Spark reads with. Here they are translated for librdkafka,
which needs no JVM; where one has no counterpart there, the Java client is asked instead. What an option holds may be a
secret, and no message shows it.
"""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self

from cdc_assets.feeds import Kafka
from cdc_assets.sources.offsets import Bounds, Place, Snapshot, Topic

PREFIX = "kafka."
TIMEOUT = "default.api.timeout.ms"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of topics on brokers before Kafka 2.8
# How long a topic that was just created or deleted may be known to some of the brokers only.
SETTLING_SECONDS = 10
_SHOWN = "***"

# Options that say nothing of how to connect: none is a secret, and none matters to who asks for offsets alone.
_OF_READING = frozenset(
    {
        "allow.auto.create.topics", "check.crcs", "client.dns.lookup", "client.rack", "connections.max.idle.ms",
        TIMEOUT, "enable.metrics.push", "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms",
        "fetch.min.bytes", "group.id", "group.instance.id", "heartbeat.interval.ms", "max.partition.fetch.bytes",
        "max.poll.interval.ms", "max.poll.records", "metadata.max.age.ms", "receive.buffer.bytes",
        "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms",
        "send.buffer.bytes", "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)  # fmt: skip
# Those that librdkafka has under the same name, or another, and that are no secrets.
_SAME = {
    "bootstrap.servers": "bootstrap.servers",
    "client.id": "client.id",
    "isolation.level": "isolation.level",
    "sasl.mechanism": "sasl.mechanism",
    "security.protocol": "security.protocol",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
}
_SECRETS = {
    "ssl.key.password": "ssl.key.password",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_LOGIN = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(plain\.PlainLoginModule|scram\.ScramLoginModule)\s+required\s+(?P<rest>.*?);\s*",
    re.DOTALL,
)
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_LOGIN_FIELD = re.compile(rf"\s*(username|password)\s*=\s*{_QUOTED}")
_ISOLATION = {"read_committed", "read_uncommitted"}


class BrokerError(RuntimeError):
    """The broker did not answer, or not with what was asked for."""


class UnknownTopicError(BrokerError):
    """A topic is not there any more, or not yet everywhere."""


class Broker(ABC):
    """A connection to the brokers of one feed; a context manager.

    Raises:
        BrokerError: from every method, when the broker does not answer, or refuses.
    """

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def reads(self, topic: str) -> bool:
        """Whether the feed reads a topic of this name."""

    def snapshot(self) -> Snapshot:
        """The topics that the feed reads and that are there, with the offsets that every partition has at this moment."""
        topics, until = self.topics(), time.monotonic() + SETTLING_SECONDS
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

    @abstractmethod
    def topics(self) -> dict[str, tuple[str | None, int]]:
        """The feed's topics that are there: name -> id, None where the broker has none, and number of partitions."""

    @abstractmethod
    def earliest(self, places: Iterable[Place]) -> dict[Place, int]:
        """The first offset that each partition still has."""

    @abstractmethod
    def latest(self, places: Iterable[Place]) -> dict[Place, int]:
        """The offset that the next record of each partition gets."""

    @abstractmethod
    def offsets_at(self, places: Iterable[Place], instant: datetime) -> dict[Place, int]:
        """Per partition the offset of the first record at or after the instant; -1 where there is none."""

    @abstractmethod
    def create(self, topics: Mapping[str, int]) -> None:
        """Create topics, name -> number of partitions, with the broker's own settings for the rest."""


def broker_of(kafka: Kafka) -> Broker:
    """A connection: without a JVM where the feed's options allow it."""
    from cdc_assets.sources.java_broker import JavaBroker  # noqa: PLC0415 -- either implements this module's interface
    from cdc_assets.sources.librdkafka_broker import LibrdkafkaBroker  # noqa: PLC0415

    return JavaBroker(kafka) if needs_java(kafka) else LibrdkafkaBroker(kafka)


def needs_java(kafka: Kafka) -> str:
    """Why only Kafka's Java client can be asked; empty where it need not."""
    try:
        translated(kafka)
        re.compile(kafka.topic_pattern or "")
    except Untranslatable as error:
        return f"librdkafka has no counterpart of {error}"
    except re.error:
        return "topic_pattern is a regular expression of Java's alone"
    return ""


class Untranslatable(ValueError):  # noqa: N818 -- it is caught, and never shown as an error
    """An option that librdkafka has no counterpart of; its name."""


def options(kafka: Kafka) -> dict[str, str]:
    """Spark's options of the connection, secrets and all: never to be shown.

    Records of transactions that were aborted are not read, unless the feed says so itself.
    """
    return {
        f"{PREFIX}bootstrap.servers": kafka.bootstrap_servers,
        f"{PREFIX}isolation.level": "read_committed",
    } | {name: value.get_secret_value() for name, value in kafka.options.items()}


def translated(kafka: Kafka) -> dict[str, str]:
    """The options as librdkafka has them, secrets and all: never to be shown.

    Raises:
        Untranslatable: it has no counterpart of one.
    """
    given = {name.removeprefix(PREFIX): value for name, value in options(kafka).items()}
    pem = {store: given.pop(f"ssl.{store}.type", "").upper() == "PEM" for store in ("truststore", "keystore")}
    found: dict[str, str] = {}
    for name, value in given.items():
        if other := (_SAME | _SECRETS).get(name):
            found[other] = value
        elif name == "sasl.jaas.config":
            found |= _login(value)
        elif name == "ssl.truststore.location" and pem["truststore"]:
            found["ssl.ca.location"] = value
        elif name not in _OF_READING:
            raise Untranslatable(f"{PREFIX}{name}")
    _refuse_values(given, found)
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _refuse_values(given: Mapping[str, str], found: Mapping[str, str]) -> None:
    """What is wrong, or of Java alone, is for the Java client to judge, in the words that its documentation has."""
    if given["isolation.level"].lower() not in _ISOLATION:
        raise Untranslatable(f"{PREFIX}isolation.level as it is")
    if not given.get(TIMEOUT, "0").isdecimal():
        raise Untranslatable(f"{PREFIX}{TIMEOUT} as it is")
    if given.get("security.protocol", "").upper().startswith("SASL") and "sasl.password" not in found:
        raise Untranslatable(f"{PREFIX}security.protocol without a user and a password")


def _login(jaas: str) -> dict[str, str]:
    """User and password out of a JAAS configuration of PLAIN or SCRAM."""
    login = _LOGIN.fullmatch(jaas)
    if not login:
        raise Untranslatable(f"{PREFIX}sasl.jaas.config as it is")
    found, rest = {}, login["rest"]
    for name, value in _LOGIN_FIELD.findall(rest):
        found[f"sasl.{name}"] = _unescaped(value)
    if len(found) != 2 or _LOGIN_FIELD.sub("", rest).strip():
        raise Untranslatable(f"{PREFIX}sasl.jaas.config as it is")
    return found


def _unescaped(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted)


def censored(text: str, kafka: Kafka) -> str:
    """The text in one line, without what may be a secret in the feed's options: those that are not known to be none."""
    for name, value in kafka.options.items():
        if name.removeprefix(PREFIX) in _OF_READING | _SAME.keys():
            continue
        secret = value.get_secret_value()
        # A JAAS configuration has its secrets in quotes, and a message may have one of them.
        quoted = re.findall(_QUOTED, secret)
        parts = {secret, *quoted, *map(_unescaped, quoted)} - {""}
        for part in sorted(parts, key=len, reverse=True):
            text = text.replace(part, _SHOWN)
    return " ".join(text.split())
