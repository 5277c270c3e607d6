"""Reads what Debezium or Canal has sent: markers that show how far it has come, and all records.

A file of the records has the form of a recorded snapshot.
"""

import base64
import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

_SECONDS = 240


def wait_for_marker(servers: str, topic: str, table: str, number: int) -> None:
    """Wait until a record of the table of markers has this id.

    Args:
        servers: the broker's address.
        topic: the topic that has the table's records.
        table: the name of the table of markers.
        number: the id.

    Raises:
        TimeoutError: it does not come.
    """
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "marker", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        end = time.monotonic() + _SECONDS
        while not (partitions := consumer.list_topics(topic).topics[topic].partitions) and time.monotonic() < end:
            time.sleep(0.5)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while time.monotonic() < end:
            message = consumer.poll(0.5)
            value = message.value() if message and not message.error() else None
            if value and number in _markers(json.loads(value), table):
                return
    finally:
        consumer.close()
    raise TimeoutError(f"marker {number} does not come")


def _markers(message: dict[str, Any], table: str) -> list[int]:
    """Return the ids of the rows of the table of markers that a message of Canal or Debezium has."""
    if "isDdl" in message:  # Canal's
        return [int(row["id"]) for row in message["data"] or () if message["table"] == table]
    row = message.get("payload", message).get("after")
    return [row["id"]] if row else []


def save(servers: str, prefix: str, file: Path) -> int:
    """Write all records of topics whose names begin so to a file, as lines of a recorded snapshot; return their number."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "save", "enable.auto.commit": False, "log_level": 0})
    topics = [t for t in consumer.list_topics().topics.values() if t.topic.startswith(prefix)]
    places = [TopicPartition(t.topic, number, 0) for t in topics for number in t.partitions]
    ends = {(p.topic, p.partition): consumer.get_watermark_offsets(p)[1] for p in places}
    left = {place for place, end in ends.items() if end}
    consumer.assign(places)
    count = 0
    with file.open("w") as lines:
        while left:
            message = consumer.poll(5)
            if message is None or message.error():
                continue
            line = _line(message)
            lines.write(json.dumps(line) + "\n")
            count += 1
            place = line["topic"], line["partition"]
            if line["offset"] + 1 >= ends[place]:
                left.discard(place)
    consumer.close()
    return count


def _line(message: Any) -> dict[str, Any]:
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _packed(message.key()),
        "value": _packed(message.value()),
        "headers": [{"key": key, "value": _packed(value)} for key, value in message.headers() or ()],
    }


def _packed(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
