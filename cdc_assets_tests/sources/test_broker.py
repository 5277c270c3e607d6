"""Connections to a broker: Kafka's options in librdkafka's words, and what librdkafka says of a broker."""

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
    """A source with these options; double underscores stand for dots."""
    topics = {"topic_pattern": pattern} if pattern is not None else {"topics": ["t"]}
    named = {f"kafka.{name.replace('__', '.')}": value for name, value in given.items()}
    return Kafka.model_validate({"bootstrap_servers": "h:1", "options": named} | topics)


def of(given: dict[str, str]) -> Kafka:
    return kafka(**{name.replace(".", "__"): value for name, value in given.items()})


# What a feed says -> what librdkafka is told beside the servers and the isolation level.
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
    # Java's way to say that a host's name is not compared.
    ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
    ({"ssl.endpoint.identification.algorithm": "https"}, {"ssl.endpoint.identification.algorithm": "https"}),
    # These are about reading records, which is Spark's.
    ({"max.poll.records": "10", "group.id": "g", "default.api.timeout.ms": "4000", "fetch.max.bytes": "1000"}, {}),
]


@pytest.mark.fast
@pytest.mark.parametrize(("given", "expected"), TRANSLATED)
def test_options_in_librdkafkas_words(given: dict[str, str], expected: dict[str, str]) -> None:
    source = of(given)
    settings = client_settings(source)
    assert settings == {"bootstrap.servers": "h:1"} | expected
    if "ssl.ca.pem" not in settings and "ssl.ca.location" not in settings:
        with Broker(source):  # librdkafka itself takes them
            pass


@pytest.mark.fast
def test_each_client_has_its_own_options() -> None:
    """Spark's consumer gets `options`; librdkafka gets `client_options` too, which count where both say something."""
    jks = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/t.jks", "kafka.client.id": "spark"}
    own = {"ssl.ca.location": "/ca.pem", "client.id": "list", "socket.keepalive.enable": "true"}
    source = Kafka.model_validate({"bootstrap_servers": "h:1", "topics": ["t"], "options": jks, "client_options": own})
    assert client_settings(source) == {"bootstrap.servers": "h:1", "security.protocol": "SSL"} | own
    always = {"kafka.bootstrap.servers": "h:1", "kafka.isolation.level": "read_committed"}
    assert spark_options(source) == always | jks


@pytest.mark.fast
def test_a_pattern_of_topics_matches_whole_names() -> None:
    broker = Broker(kafka(r"shop\..*"))
    assert [broker.reads(t) for t in ("shop.orders", "shop", "a.shop.orders", "shop.")] == [True, False, False, True]


@pytest.mark.fast
def test_what_may_be_a_secret_is_not_shown() -> None:
    """Passwords, keys, logins in each of their forms, and whatever nobody knows; names and limits may be."""
    source = of(
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
    told = f'plainly 12345 PRIVATE hunter2 annie a"b-c a\\"b-c unknown {login}'
    assert mask_secrets(told, source) == "plainly 12345 *** *** *** *** *** *** ***"


@pytest.mark.fast
def test_no_message_of_librdkafka_shows_a_secret() -> None:
    """Not what it says of a key that it cannot read, nor of a broker that is not there."""
    wrong = of({"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "hunter2"})
    nobody = of(LOGIN | {"sasl.jaas.config": jaas("u-ser", "hunter2") + ";", "default.api.timeout.ms": "500"})
    for source in (wrong, nobody.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})):
        with pytest.raises(BrokerError) as raised, Broker(source) as broker:
            broker.snapshot()
        assert "hunter2" not in repr(raised.value)
        assert "hunter2" not in repr(raised.value.__context__)
        assert "hunter2" not in repr(source)
        assert "\n" not in str(raised.value)
        assert raised.value.__cause__ is None


def test_a_snapshot_of_topics(client: Client, feeding: Callable[..., Chain], topic: str) -> None:
    """Of partitions with and without records, expired ones, and transactions: aborted, committed, and under way."""
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
            found = broker.snapshot()
            assert {name: dict(t.partitions) for name, t in found.items()} == {
                expiring: {0: OffsetBounds(2, 5), 1: OffsetBounds(0, 4)},
                transacted: {0: OffsetBounds(0, end)},
                empty: dict.fromkeys(range(3), OffsetBounds(0, 0)),
            }
            assert all(t.id for t in found.values())
            places = [TopicPartition(expiring, 0), TopicPartition(expiring, 1), TopicPartition(empty, 0)]
            for ms, offsets in ((0, [2, 0, -1]), (4, [2, 2, -1]), (5, [3, 2, -1]), (9, [-1, -1, -1])):
                instant = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=ms)
                assert broker.offsets_at(places, instant) == dict(zip(places, offsets, strict=True))


def test_topics_are_created(feeding: Callable[..., Chain], topic: str) -> None:
    """They can be used at once; and one that is there already is not made again."""
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
    """In the place of librdkafka's client: it is asked for the topics, and does not get them while there are `problems`."""

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


def test_a_login_that_is_refused_is_not_tried_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Refusing(KafkaError._AUTHENTICATION)
    monkeypatch.setattr("cdc_assets.sources.broker.AdminClient", admin)
    with pytest.raises(BrokerError, match="what went wrong"), Broker(kafka()) as broker:
        broker.snapshot()
    assert len(admin.asked) == 1


def test_a_broker_that_does_not_answer_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more patience each time, and with none that goes beyond the time that there is."""
    admin = Refusing(KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TRANSPORT)
    monkeypatch.setattr("cdc_assets.sources.broker.AdminClient", admin)
    with Broker(kafka(default__api__timeout__ms="3500")) as broker:
        assert broker.list_topics() == {}
    assert admin.asked[:2] == [1, 2]
    assert [0 < each <= 3.5 for each in admin.asked[2:]] == [True, True]


def test_a_login(tmp_path: Path) -> None:
    """A broker that wants a user and a password; a wrong one is one line, which does not show it."""
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
