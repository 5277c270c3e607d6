"""Recording of broker records as snapshot files, and replay of snapshot files to a broker."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Kafka
from cdc_assets.sources.broker import Broker, spark_options
from cdc_assets.sources.kafka import read_records
from cdc_assets.sources.offsets import OffsetRange, TopicPartition
from cdc_assets.sources.recorded import read_lines, snapshot_files
from cdc_assets.stores.storage import Store


class SnapshotError(ValueError):
    """A snapshot cannot be recorded or replayed as requested; the message is one line."""


def record_snapshot(spark: SparkSession, kafka: Kafka, ranges: Mapping[TopicPartition, OffsetRange], file: Path) -> int:
    """Write the records at these offsets to one snapshot file, ordered by topic, partition and offset.

    Args:
        spark: the session.
        kafka: the broker.
        ranges: the offsets of each partition.
        file: the file, which is written atomically; compressed if its name ends in `.gz`.

    Returns:
        The number of records; without records no file is written.

    Raises:
        SnapshotError: the file exists.
    """
    if file.exists():
        raise SnapshotError(f"{file}: the file exists; name another one")
    if all(start >= end for start, end in ranges.values()):
        return 0
    text = F.struct(
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        _text(F.col("key")).alias("key"),
        _text(F.col("value")).alias("value"),
        F.transform("headers", lambda h: F.struct(h["key"].alias("key"), _text(h["value"]).alias("value"))).alias(
            "headers"
        ),
    )
    lines = read_records(spark, kafka, ranges).coalesce(1).sortWithinPartitions("topic", "partition", "offset")
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".recording-") as folder:
        written = lines.select(F.to_json(text, {"ignoreNullFields": "false"}).alias("value"))
        compression = "gzip" if file.name.endswith(".gz") else "none"
        written.write.mode("overwrite").text(folder, compression=compression)
        (part,) = Path(folder).glob("part-*")
        count = spark.read.text(str(part)).count()
        if count:
            os.link(part, file)  # unlike a rename, a link does not replace a file that was created meanwhile
    return count


def _text(content: Column) -> Column:
    """Return BINARY as base64 in one line; Spark's function breaks lines after 76 characters."""
    return F.translate(F.base64(content), "\r\n", "")


def replay_snapshot(
    spark: SparkSession, kafka: Kafka, folder: str, store: Store, *, prefix: str = "", create: bool = False
) -> dict[str, int]:
    """Send the records of snapshot files to a broker, with their partitions, order, keys, values and headers.

    The broker assigns offsets and timestamps. A record that the files contain twice is sent once.

    Args:
        spark: the session.
        kafka: the broker; the topics are those of the records, not those of this source.
        folder: the folder of the snapshot files.
        store: access to the folder.
        prefix: a text in front of each topic's name.
        create: whether to create missing topics.

    Returns:
        Topic -> the number of records sent.

    Raises:
        FileNotFoundError: the folder does not exist.
        SnapshotError: a line is not a record; a topic is missing or has too few partitions. No record was sent.
        BrokerError: the broker does not answer.
    """
    lines = read_lines(spark, folder, snapshot_files(folder, store)).withColumn(
        "topic", F.concat(F.lit(prefix), "topic")
    )
    records = lines.dropDuplicates(["topic", "partition", "offset"])
    counts = records.groupBy("topic").agg(F.max("partition").alias("highest"), F.count("*").alias("records")).collect()
    if any(r["topic"] is None for r in counts):
        raise SnapshotError(
            f"{folder}: some lines are not records; run a feed on this folder to list them in its quarantine table"
        )
    needed = {r["topic"]: r["highest"] + 1 for r in counts}
    if not needed:
        return {}
    target = kafka.model_copy(update={"topics": tuple(needed), "topic_pattern": None})
    with Broker(target) as broker:
        _provide_topics(broker, needed, create=create)
    by_partition = records.where(F.col("topic").isNotNull()).repartition(len(needed), "topic", "partition")
    ordered = by_partition.sortWithinPartitions("topic", "partition", "offset")
    columns = ["topic", "partition", "key", "value", "headers"]
    ordered.select(*columns).write.format("kafka").options(**spark_options(target)).save()
    return {r["topic"]: r["records"] for r in sorted(counts, key=lambda r: str(r["topic"]))}


def _provide_topics(broker: Broker, needed: Mapping[str, int], *, create: bool) -> None:
    """Create missing topics if `create` is set.

    Args:
        broker: the connection.
        needed: topic -> the number of partitions that it must have at least.
        create: whether to create missing topics.

    Raises:
        SnapshotError: a topic is missing, or has too few partitions.
    """
    existing = {name: len(topic.partitions) for name, topic in broker.snapshot().items()}
    too_small = [
        f"{name} ({existing[name]} of {n} partitions)" for name, n in needed.items() if existing.get(name, n) < n
    ]
    missing = {name: n for name, n in needed.items() if name not in existing}
    if too_small or (missing and not create):
        names = ", ".join([*too_small, *([] if create else missing)])
        raise SnapshotError(f"topics that do not exist, or have too few partitions: {names}; create them first")
    broker.create_topics(missing)


def parse_range(text: str) -> tuple[TopicPartition, OffsetRange]:
    """Return the partition and offsets of a text `topic:partition:start-end`; `end` is excluded.

    Raises:
        SnapshotError: the text has another form.
    """
    topic, _, rest = text.partition(":")
    number, _, bounds = rest.partition(":")
    start, _, end = bounds.partition("-")
    if not (topic and number.isdecimal() and start.isdecimal() and end.isdecimal() and int(start) <= int(end)):
        raise SnapshotError(f"{json.dumps(text)} is not a range of the form topic:partition:start-end")
    return TopicPartition(topic, int(number)), OffsetRange(int(start), int(end))
