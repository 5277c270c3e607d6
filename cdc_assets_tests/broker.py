"""Run a real Kafka broker for tests: KRaft, one node, in a process of its own, on free ports of the loopback address.

Its jars come from Maven as the product's do (`cdc_assets.stores.jars`), each with its checksum; pyspark has the
others. The tests change topics through Kafka's own Java client, on Spark's JVM.
"""

import base64
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import KafkaError, Producer
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cdc_assets.config import Kafka
from cdc_assets.sources.broker import client_settings
from cdc_assets.stores.jars import Jar, ensure_jars, java
from cdc_assets_tests.ports import free_port
from cdc_assets_tests.support import SHORT_LIVED_OPTIONS, Record

# Organisation, module, revision, SHA-256.
_JARS = """
org.apache.kafka kafka_2.13 4.1.1 e89428126cc7630a802123ba27aac4442816840b66d60670226feaff65f24fd1
org.apache.kafka kafka-clients 4.1.1 00247122a572c3d3ae4eb60a50192a5811bc0181f51923d13018600f892e821d
org.apache.kafka kafka-coordinator-common 4.1.1 2072fc1ce7e0505149bba22a463a5909a899c6235c4fa696f15c21194a7baf60
org.apache.kafka kafka-group-coordinator 4.1.1 3eb5a673b69d5992cfa86c5436f39adbf4ce284046a4c999ec6af0a8e31c5589
org.apache.kafka kafka-group-coordinator-api 4.1.1 3d1801d2329dcf7d273796a034d61e6c7e0f851f384d0afbdd3a2e6cbd17a968
org.apache.kafka kafka-metadata 4.1.1 a689665751415b6456de1ecb013042cb7ba99ac68fd8c3e8bf28e098feb43218
org.apache.kafka kafka-raft 4.1.1 4810c93d93d1935dd54de61c5ba130f501c7fe11bc49ccd3ee05ec857818a72a
org.apache.kafka kafka-server 4.1.1 9f6aff422855491aad54326eca8d604163d6d3a6507cc48ffe3ce6de73caf79a
org.apache.kafka kafka-server-common 4.1.1 207edecd8322cf6c13d76d84addea7fd0ec441dc8d698cf69df43210ccdc0a94
org.apache.kafka kafka-share-coordinator 4.1.1 e6bec53428c77bf6579321836d482542a93575f7c08e860a26c9f2c7f6059dac
org.apache.kafka kafka-storage 4.1.1 1f85b82853eaec0143efbef7e3a4d4be8929ff83a386326431e0c2d0a557e58c
org.apache.kafka kafka-storage-api 4.1.1 8c0a712472185d706c6bf5ae24bf5d84a8e396fd4745c708e6146a415f7fa7f7
org.apache.kafka kafka-tools-api 4.1.1 542b08fe20cf872a2d866acdff61ea338b469219dc2ebfae727a1d9ea5737e1a
org.apache.kafka kafka-transaction-coordinator 4.1.1 a261b5730ac9e3205df7af5d45180d851e9d5f729ce1275c67511a6f51f73755
com.yammer.metrics metrics-core 2.2.0 6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c
com.typesafe.scala-logging scala-logging_2.13 3.9.5 87a3017d3f43e6ace7566fe4c3d615134c6914ff871c8d64bb32ca1d996d0545
net.sourceforge.argparse4j argparse4j 0.7.0 65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56
net.sf.jopt-simple jopt-simple 5.0.4 df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28
org.hdrhistogram HdrHistogram 2.2.2 22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8
org.pcollections pcollections 4.0.2 2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef
com.google.re2j re2j 1.8 7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7
commons-validator commons-validator 1.9.0 c3c14748e2d78db58df88808740711bd643b32c45ffa7b8a739f00fb467cd7d7
"""
JARS = tuple(Jar(*line.split()) for line in _JARS.strip().splitlines())
_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CLIENTS://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=CLIENTS://127.0.0.1:{port}
listener.security.protocol.map=CLIENTS:{security},CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENTS
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.ms=-1
log.message.timestamp.after.max.ms=9223372036854775807
message.max.bytes=16777216
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=500
log.cleaner.backoff.ms=500
log.cleaner.dedupe.buffer.size=4194304
log.segment.delete.delay.ms=100
metadata.max.idle.interval.ms=0
"""
_SASL = """
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.clients.plain.sasl.jaas.config={jaas} user_{user}="{password}";
"""


def jaas(user: str, password: str) -> str:
    """Return a client's login as `sasl.jaas.config` has it, without the closing semicolon."""
    return f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{password}"'


# librdkafka sends the records, because a call into the JVM for each takes many times as long.
_SENDING: dict[str, Any] = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "log_level": 0,
    "message.max.bytes": 1 << 24,
    "queue.buffering.max.messages": 0,
}
_PATIENCE = 120  # seconds: a broker that was killed may come back


class TestBroker:
    """The broker's process; with `login`, a user and a password, clients must log in (SASL/PLAIN)."""

    __test__ = False  # pytest: not a test

    def __init__(self, folder: Path, login: tuple[str, str] | None = None) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        port = free_port()
        self.servers = f"127.0.0.1:{port}"
        self.options: dict[str, str] = {}
        security, more = "PLAINTEXT", ""
        if login:
            security = "SASL_PLAINTEXT"
            more = _SASL.format(jaas=jaas(*login), user=login[0], password=login[1])
            self.options = {
                "kafka.security.protocol": security,
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": jaas(*login) + ";",
            }
        text = _PROPERTIES.format(controller=free_port(), port=port, security=security, data=folder / "data")
        (folder / "server.properties").write_text(text + more)
        self._java(
            "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(folder / "server.properties")
        ).wait()
        self.start()

    def _java(self, main: str, *arguments: str) -> "subprocess.Popen[bytes]":
        beside = Path(pyspark.__file__).parent / "jars" / "*"
        classes = os.pathsep.join([*map(str, ensure_jars(JARS)), str(beside)])
        memory = ["-Xmx256m", *SHORT_LIVED_OPTIONS]
        with (self.folder / "out.log").open("ab") as log:
            return subprocess.Popen(
                [java(), *memory, "-cp", classes, main, *arguments], stdout=log, stderr=subprocess.STDOUT
            )

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        self._process = broker = self._java("kafka.Kafka", str(self.folder / "server.properties"))
        host, port = self.servers.split(":")
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return
            assert broker.poll() is None, (self.folder / "out.log").read_text()[-3000:]
            time.sleep(0.1)
        raise AssertionError("the broker does not answer")

    def kill(self) -> None:
        """End the process as a power cut does."""
        if self._process:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


class Client:
    """Topics and records on a broker, by Kafka's own client."""

    def __init__(self, spark: SparkSession, broker: TestBroker) -> None:
        self.gateway: Any = spark.sparkContext._gateway
        self.jvm: Any = spark._jvm
        self.kafka = self.jvm.org.apache.kafka
        self.broker = broker
        self.admin = self.kafka.clients.admin.AdminClient.create(self._settings())
        kafka = Kafka.model_validate({"bootstrap_servers": broker.servers, "topics": ["-"], "options": broker.options})
        self._sending = client_settings(kafka) | _SENDING
        self.producer = Producer(self._sending)

    def _settings(self) -> Any:
        given = self.jvm.java.util.HashMap()
        given.put("bootstrap.servers", self.broker.servers)
        for name, value in self.broker.options.items():
            given.put(name.removeprefix("kafka."), value)
        return given

    def close(self) -> None:
        self.admin.close(self.jvm.java.time.Duration.ofSeconds(1))

    def create(self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        made = self.kafka.clients.admin.NewTopic(topic, partitions, 1)
        configs = self.jvm.java.util.HashMap()
        for name, value in (settings or {}).items():
            configs.put(name, value)
        made.configs(configs)
        self.admin.createTopics(self._list([made])).all().get()
        self._wait_for(topic, partitions)

    def delete(self, topic: str) -> None:
        self.admin.deleteTopics(self._list([topic])).all().get()
        while topic in set(self.admin.listTopics().names().get()):
            time.sleep(0.1)

    def grow(self, topic: str, partitions: int) -> None:
        """Give the topic the given number of partitions."""
        new_partitions = self.jvm.java.util.HashMap()
        new_partitions.put(topic, self.kafka.clients.admin.NewPartitions.increaseTo(partitions))
        self.admin.createPartitions(new_partitions).all().get()
        self._wait_for(topic, partitions)
        # A producer that has sent to the topic keeps its list of partitions until it refreshes the list.
        while len(self.producer.list_topics(topic).topics[topic].partitions) < partitions:
            time.sleep(0.05)

    def _wait_for(self, topic: str, partitions: int) -> None:
        """Wait until each partition has its log: an earlier producer waits for a new leader, and gives up."""
        asked = self.jvm.java.util.HashMap()
        for number in range(partitions):
            asked.put(self.kafka.common.TopicPartition(topic, number), self.kafka.clients.admin.OffsetSpec.latest())
        while True:
            try:
                self.admin.listOffsets(asked).all().get()
            except Py4JJavaError as error:
                if "UnknownTopicOrPartitionException" not in str(error.java_exception):
                    raise
                time.sleep(0.05)
            else:
                return

    def expire(self, topic: str, partition: int, before: int) -> None:
        """Delete the records below an offset, as retention does."""
        # By reflection: py4j does not distinguish a static method from another one of the same name.
        kinds = self.gateway.new_array(self.jvm.java.lang.Class, 1)
        kinds[0] = self.jvm.java.lang.Long.TYPE
        arguments = self.gateway.new_array(self.jvm.java.lang.Object, 1)
        arguments[0] = before
        method = self.jvm.java.lang.Class.forName("org.apache.kafka.clients.admin.RecordsToDelete").getMethod(
            "beforeOffset", kinds
        )
        offsets = self.jvm.java.util.HashMap()
        offsets.put(self.kafka.common.TopicPartition(topic, partition), method.invoke(None, arguments))
        self.admin.deleteRecords(offsets).all().get()

    def send(self, records: Iterable[Record], *, topic: str | None = None, transaction: str | None = None) -> None:
        """Send recorded records, in order, each to its topic (or `topic`) and partition.

        `transaction`: `commit` or `abort` puts all of them into one transaction with this end.
        """
        producer = self._transactional() if transaction else self.producer
        if transaction:
            producer.begin_transaction()
        failed: list[KafkaError] = []
        for each in records:
            producer.produce(
                topic or each["topic"],
                value=_bytes(each["value"]),
                key=_bytes(each["key"]),
                partition=each["partition"],
                timestamp=each["timestamp"],
                headers=[(h["key"], _bytes(h["value"])) for h in each.get("headers") or ()],
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(_PATIENCE) == 0
        assert not failed, failed[0]
        if transaction:
            (producer.commit_transaction if transaction == "commit" else producer.abort_transaction)()

    def _transactional(self) -> Producer:
        made = Producer(self._sending | {"transactional.id": f"test-{time.monotonic_ns()}"})
        made.init_transactions()
        return made

    def _list(self, items: Sequence[Any]) -> Any:
        made = self.jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
