"""Connections to a broker: translated options, masked secrets, topics and offsets."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata
from pydantic import SecretStr

from cdc_assets.config import Kafka
from cdc_assets.sources.broker import Broker, BrokerError, client_settings, mask_secrets, spark_options
from cdc_assets.sources.offsets import OffsetBounds, TopicPartition
from cdc_assets_tests.broker import Client, TestBroker, jaas
from cdc_assets_tests.support import Chain, record

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


def kafka(pattern: str | None = None, **given: str) -> Kafka:
    """Return a source with these options; double underscores stand for dots."""
    topics = {"topic_pattern": pattern} if pattern is not None else {"topics": ["t"]}
    named = {f"kafka.{name.replace('__', '.')}": value for name, value in given.items()}
    return Kafka.model_validate({"bootstrap_servers": "h:1", "options": named} | topics)


def kafka_with(given: dict[str, str]) -> Kafka:
    return kafka(**{name.replace(".", "__"): value for name, value in given.items()})


# Options of the Java client -> librdkafka's settings, without the servers.
TRANSLATED: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {}),
    ({"client.id": "me"}, {"client.id": "me"}),
    (
        LOGIN | {"sasl.jaas.config": jaas("ann", "secret") + ";"},
        LOGIN | {"sasl.username": "ann", "sasl.password": "secret"},
    ),
    (
        LOGIN
        | {"sasl.mechanism": "SCRAM-SHA-512"}
        | {"sasl.jaas.config": f'\n{SCRAM} required\n  password="a \\"b\\\\;"\n  username="ann"\n;\n'},
        LOGIN | {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": 'a "b\\;'},
    ),
    (
        {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"},
        {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem"},
    ),
    (
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "CA",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "KEY",
            "ssl.key.password": "P",
        },
        {"ssl.ca.pem": "CA", "ssl.certificate.pem": "CHAIN", "ssl.key.pem": "KEY", "ssl.key.password": "P"},
    ),
    # An empty text turns off the comparison of host names in the Java client.
    ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
    ({"ssl.endpoint.identification.algorithm": "https"}, {"ssl.endpoint.identification.algorithm": "https"}),
    # Options for reading records, which librdkafka does not do here.
    ({"max.poll.records": "10", "group.id": "g", "default.api.timeout.ms": "4000", "fetch.max.bytes": "1000"}, {}),
]


@pytest.mark.fast
@pytest.mark.parametrize(("given", "expected"), TRANSLATED)
def test_options_are_translated_for_librdkafka(given: dict[str, str], expected: dict[str, str]) -> None:
    source = kafka_with(given)
    settings = client_settings(source)
    assert settings == {"bootstrap.servers": "h:1"} | expected
    if "ssl.ca.pem" not in settings and "ssl.ca.location" not in settings:
        with Broker(source):  # librdkafka accepts the settings
            pass


@pytest.mark.fast
def test_each_client_has_its_own_options() -> None:
    """Spark's consumer gets `options`; librdkafka gets both, and `client_options` override."""
    jks = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/t.jks", "kafka.client.id": "spark"}
    own = {"ssl.ca.location": "/ca.pem", "client.id": "list", "socket.keepalive.enable": "true"}
    source = Kafka.model_validate({"bootstrap_servers": "h:1", "topics": ["t"], "options": jks, "client_options": own})
    assert client_settings(source) == {"bootstrap.servers": "h:1", "security.protocol": "SSL"} | own
    always = {"kafka.bootstrap.servers": "h:1", "kafka.isolation.level": "read_committed"}
    assert spark_options(source) == always | jks


@pytest.mark.fast
def test_a_topic_pattern_must_match_the_complete_name() -> None:
    broker = Broker(kafka(r"shop\..*"))
    assert [broker.reads(t) for t in ("shop.orders", "shop", "a.shop.orders", "shop.")] == [True, False, False, True]


@pytest.mark.fast
def test_possible_secrets_are_masked() -> None:
    """Masked: passwords, keys, logins in each form, and values of unknown options. Shown: names and limits."""
    source = kafka_with(
        {
            "client.id": "plainly",
            "max.poll.records": "12345",
            "ssl.keystore.key": "PRIVATE",
            "ssl.key.password": "hunter2",
            "sasl.jaas.config": f'{SCRAM} required username="annie" password="a\\"b-c";',
        }
    ).model_copy(
        update={"client_options": {"my.own.option": SecretStr("unknown"), "ssl.keystore.password": SecretStr("")}}
    )
    login = source.options["kafka.sasl.jaas.config"].get_secret_value()
    message = f'plainly 12345 PRIVATE hunter2 annie a"b-c a\\"b-c unknown {login}'
    assert mask_secrets(message, source) == "plainly 12345 *** *** *** *** *** *** ***"


@pytest.mark.fast
def test_no_message_of_librdkafka_shows_a_secret() -> None:
    """Neither for a key that it cannot read, nor for an unreachable broker."""
    wrong = kafka_with(
        {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "hunter2"}
    )
    nobody = kafka_with(LOGIN | {"sasl.jaas.config": jaas("u-ser", "hunter2") + ";", "default.api.timeout.ms": "500"})
    for source in (wrong, nobody.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})):
        with pytest.raises(BrokerError) as raised, Broker(source) as broker:
            broker.snapshot()
        assert "hunter2" not in repr(raised.value)
        assert "hunter2" not in repr(raised.value.__context__)
        assert "hunter2" not in repr(source)
        assert "\n" not in str(raised.value)
        assert raised.value.__cause__ is None


def test_a_snapshot_of_topics(client: Client, feeding: Callable[..., Chain], topic: str) -> None:
    """Partitions with and without records, with expired records, and with aborted and committed transactions."""
    expiring, transacted, empty = f"{topic}.expiring", f"{topic}.transacted", f"{topic}.empty"
    client.create(expiring, 2)
    client.create(transacted)
    client.create(empty, 3)
    client.send([record(b"%d" % n, n % 2) | {"timestamp": 1_700_000_000_000 + n} for n in range(9)], topic=expiring)
    client.expire(expiring, 0, 2)
    client.send([record(b"aborted")], topic=transacted, transaction="abort")
    client.send([record(b"committed")], topic=transacted, transaction="commit")
    for level, end in (("read_committed", 4), ("read_uncommitted", 4)):
        source = feeding(topic_pattern=f"{topic}\\..*", options={"kafka.isolation.level": level}).feed.source.kafka
        assert source is not None
        with Broker(source) as broker:
            topics = broker.snapshot()
            assert {name: dict(t.partitions) for name, t in topics.items()} == {
                expiring: {0: OffsetBounds(2, 5), 1: OffsetBounds(0, 4)},
                transacted: {0: OffsetBounds(0, end)},
                empty: dict.fromkeys(range(3), OffsetBounds(0, 0)),
            }
            assert all(t.id for t in topics.values())
            places = [TopicPartition(expiring, 0), TopicPartition(expiring, 1), TopicPartition(empty, 0)]
            for ms, offsets in ((0, [2, 0, -1]), (4, [2, 2, -1]), (5, [3, 2, -1]), (9, [-1, -1, -1])):
                instant = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=ms)
                assert broker.offsets_at(places, instant) == dict(zip(places, offsets, strict=True))


def test_topics_are_created(feeding: Callable[..., Chain], topic: str) -> None:
    """New topics can be used at once; creating an existing topic fails."""
    source = feeding(f"{topic}.a", f"{topic}.b").feed.source.kafka
    assert source is not None
    with Broker(source) as broker:
        assert broker.snapshot() == {}
        broker.create_topics({})
        broker.create_topics({f"{topic}.a": 1, f"{topic}.b": 3})
        assert {name: len(t.partitions) for name, t in broker.snapshot().items()} == {f"{topic}.a": 1, f"{topic}.b": 3}
        with pytest.raises(BrokerError, match="already exists"):
            broker.create_topics({f"{topic}.a": 1})


class Refusing:
    """Stands for librdkafka's client: listing topics fails while there are `problems`."""

    def __init__(self, *problems: int) -> None:
        self.problems = list(problems)
        self.asked: list[float] = []

    def __call__(self, settings: dict[str, Any], logger: object) -> "Refusing":
        self.tell = settings["error_cb"]
        return self

    def list_topics(self, timeout: float) -> ClusterMetadata:
        self.asked.append(timeout)
        if self.problems:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no answer"))
        return ClusterMetadata()

    def poll(self, _: float) -> None:
        if self.problems:
            self.tell(KafkaError(self.problems.pop(0), "what went wrong"))


def test_a_refused_login_is_not_retried_until_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Refusing(KafkaError._AUTHENTICATION)
    monkeypatch.setattr("cdc_assets.sources.broker.AdminClient", admin)
    with pytest.raises(BrokerError, match="what went wrong"), Broker(kafka()) as broker:
        broker.snapshot()
    assert len(admin.asked) == 1


def test_a_broker_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call has a longer timeout, but never longer than the remaining time."""
    admin = Refusing(KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TRANSPORT)
    monkeypatch.setattr("cdc_assets.sources.broker.AdminClient", admin)
    with Broker(kafka(default__api__timeout__ms="3500")) as broker:
        assert broker.list_topics() == {}
    assert admin.asked[:2] == [1, 2]
    assert [0 < each <= 3.5 for each in admin.asked[2:]] == [True, True]


def test_a_login(tmp_path: Path) -> None:
    """A broker that requires a login; the error of a wrong password is one line without the password."""
    running = TestBroker(tmp_path / "secured", ("reader", "pass-word"))
    try:
        own = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "reader"}
        for password, passes in (("pass-word", True), ("hunter2", False)):
            quick = {"kafka.default.api.timeout.ms": "5000", "kafka.request.timeout.ms": "3000"}
            login = running.options | {"kafka.sasl.jaas.config": jaas("reader", password) + ";"}
            for given in (
                {"options": quick | login},
                {"options": quick, "client_options": own | {"sasl.password": password}},
            ):
                source = Kafka.model_validate({"bootstrap_servers": running.servers, "topics": ["t"]} | given)
                if passes:
                    with Broker(source) as broker:
                        assert broker.snapshot() == {}
                    continue
                with pytest.raises(BrokerError) as raised, Broker(source) as broker:
                    broker.snapshot()
                assert "uthentication failed" in str(raised.value)
                assert password not in repr(raised.value)
                assert "\n" not in str(raised.value)
    finally:
        running.kill()
