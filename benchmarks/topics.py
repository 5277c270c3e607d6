"""Run a real broker with the generated stream in its topics."""

import base64
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cdc_assets_tests.broker import TestBroker

_QUEUE = 100_000


@dataclass
class Topic:
    """A topic, and the produced partitions: partition -> the next offset."""

    servers: str
    name: str
    offsets: Counter[int] = field(default_factory=Counter)

    def produce(self, lines: Iterable[str]) -> None:
        """Produce recorded records: keys, values, partitions and their order stay.

        Raises:
            KafkaException: the broker did not take a record.
        """
        producer = Producer({"bootstrap.servers": self.servers, "queue.buffering.max.messages": _QUEUE, "acks": "all"})
        refused: list[object] = []

        def taken(error: object, _: object) -> None:
            if error is not None:
                refused.append(error)

        for number, line in enumerate(lines):
            record = json.loads(line)
            value, key = base64.b64decode(record["value"]), base64.b64decode(record["key"] or "")
            producer.produce(self.name, value, key, record["partition"], on_delivery=taken)
            self.offsets[record["partition"]] += 1
            if number % (_QUEUE // 2) == 0:
                producer.flush()
        producer.flush()
        if refused:
            raise KafkaException(refused[0])

    def source(self) -> dict[str, object]:
        """Return the feed's source."""
        return {"kafka": {"bootstrap_servers": self.servers, "topics": [self.name]}}


class Topics:
    """A broker in a new folder."""

    def __init__(self, folder: Path) -> None:
        self._broker = TestBroker(folder)
        self._admin = AdminClient({"bootstrap.servers": self._broker.servers})

    def create(self, name: str, partitions: int) -> Topic:
        """Create a topic."""
        for done in self._admin.create_topics([NewTopic(name, partitions, 1)]).values():
            done.result()
        return Topic(self._broker.servers, name)

    def close(self) -> None:
        """End the broker."""
        self._broker.kill()
