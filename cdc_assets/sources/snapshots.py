"""From a broker to a recorded snapshot, and back: a problem of production becomes a test case."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Kafka
from cdc_assets.sources.broker import Broker, options
from cdc_assets.sources.kafka import read
from cdc_assets.sources.offsets import Place, Range
from cdc_assets.sources.recorded import read_lines, snapshot_files
from cdc_assets.stores.storage import Store


class SnapshotError(ValueError):
    """A snapshot cannot be recorded or replayed as asked; the message is one line."""


def record(spark: SparkSession, kafka: Kafka, ranges: Mapping[Place, Range], file: Path) -> int:
    """Write the records at these offsets as one snapshot file, partition by partition in their order.

    Args:
        spark: the session.
        kafka: the broker.
        ranges: which offsets of which partitions.
        file: what is to be written, whole or not at all; packed if its name ends in `.gz`.

    Returns:
        How many records there were. No file is written when there are none.

    Raises:
        SnapshotError: the file is there already.
    """
    if file.exists():
        raise SnapshotError(f"{file}: is there already")
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
    lines = read(spark, kafka, ranges).coalesce(1).sortWithinPartitions("topic", "partition", "offset")
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".recording-") as folder:
        written = lines.select(F.to_json(text, {"ignoreNullFields": "false"}).alias("value"))
        compression = "gzip" if file.name.endswith(".gz") else "none"
        written.write.mode("overwrite").text(folder, compression=compression)
        (part,) = Path(folder).glob("part-*")
        count = spark.read.text(str(part)).count()
        if count:
            os.link(part, file)  # unlike a renaming, it replaces no file that has come meanwhile
    return count


def _text(content: Column) -> Column:
    """BINARY -> STRING, base64; Spark's own has a line break after every 76 characters."""
    return F.translate(F.base64(content), "\r\n", "")


def replay(
    spark: SparkSession, kafka: Kafka, folder: str, store: Store, *, prefix: str = "", create: bool = False
) -> dict[str, int]:
    """Produce the records of a folder of snapshot files: the same partitions, order, keys, values and headers.

    Offsets and times are the broker's own. A record that the files have twice is produced once.

    Args:
        spark: the session.
        kafka: the broker; its topics are those of the records.
        folder: the snapshot files.
        store: how the folder is reached.
        prefix: what each topic's name gets in front.
        create: whether topics that are not there are created.

    Returns:
        How many records each topic got.

    Raises:
        FileNotFoundError: the folder does not exist.
        SnapshotError: a line is no record; a topic is not there, or has too few partitions. Nothing was produced.
        BrokerError: the broker does not answer.
    """
    lines = read_lines(spark, folder, snapshot_files(folder, store)).withColumn(
        "topic", F.concat(F.lit(prefix), "topic")
    )
    records = lines.dropDuplicates(["topic", "partition", "offset"])
    found = records.groupBy("topic").agg(F.max("partition").alias("highest"), F.count("*").alias("records")).collect()
    if any(r["topic"] is None for r in found):
        raise SnapshotError(
            f"{folder}: has lines that are no records; a run of a feed on it tells which, in quarantine"
        )
    needed = {r["topic"]: r["highest"] + 1 for r in found}
    if not needed:
        return {}
    chosen = kafka.model_copy(update={"topics": tuple(needed), "topic_pattern": None})
    with Broker(chosen) as broker:
        there = {name: len(topic.partitions) for name, topic in broker.snapshot().items()}
        few = [f"{name} ({there[name]} of {n} partitions)" for name, n in needed.items() if there.get(name, n) < n]
        absent = {name: n for name, n in needed.items() if name not in there}
        if few or (absent and not create):
            told = ", ".join([*few, *([] if create else absent)])
            raise SnapshotError(f"topics that are not there, or have too few partitions: {told}; create them first")
        broker.create(absent)
    writer = records.where(F.col("topic").isNotNull()).repartition(len(needed), "topic", "partition")
    ordered = writer.sortWithinPartitions("topic", "partition", "offset")
    columns = ["topic", "partition", "key", "value", "headers"]
    ordered.select(*columns).write.format("kafka").options(**options(chosen)).save()
    return {r["topic"]: r["records"] for r in sorted(found, key=lambda r: str(r["topic"]))}


def parse_range(text: str) -> tuple[Place, Range]:
    """Read `topic:partition:start-end`; `end` is excluded.

    Raises:
        SnapshotError: it is none.
    """
    topic, _, rest = text.partition(":")
    number, _, bounds = rest.partition(":")
    start, _, end = bounds.partition("-")
    if not (topic and number.isdecimal() and start.isdecimal() and end.isdecimal() and int(start) <= int(end)):
        raise SnapshotError(f"{json.dumps(text)} is no range topic:partition:start-end")
    return Place(topic, int(number)), Range(int(start), int(end))
