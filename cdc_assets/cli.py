"""The commands `cdc-assets record` and `cdc-assets replay`."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_assets.feeds import Feed, FeedsError, Kafka, load_feeds
from cdc_assets.session import spark_session
from cdc_assets.sources.broker import Broker, BrokerError, broker_of
from cdc_assets.sources.offsets import Place, Range
from cdc_assets.sources.snapshots import SnapshotError, parse_range, record, replay

_FEED = "a feed of the feeds file (CDC_FEEDS, else data/feeds.yaml) with source.kafka: its broker and options are used"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code: 0, or 1 with one line about what is wrong."""
    given = _parser().parse_args(arguments)
    try:
        file = load_feeds()
        kafka = _broker_of(file.feeds, given.feed)
        spark = spark_session(file.spark)
        print(given.run(spark, kafka, given), flush=True)
    except (FeedsError, BrokerError, SnapshotError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("cdc-assets", description="Recorded snapshots of Kafka topics.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    to_file = commands.add_parser(
        "record",
        help="write records of a broker as a snapshot file",
        description="Write records of a broker as a recorded snapshot, one JSON object a line, which a feed with "
        "source.recorded reads, and which `cdc-assets replay` produces again.",
    )
    to_file.add_argument("feed", help=_FEED)
    to_file.add_argument("file", type=Path, help="the file to write, *.jsonl or *.jsonl.gz; it must not be there")
    to_file.add_argument(
        "--topic", action="append", help="only this topic; may come several times; default: the feed's"
    )
    to_file.add_argument(
        "--from", dest="start", type=_instant, help="only records at or after this instant, in ISO 8601"
    )
    to_file.add_argument("--to", dest="end", type=_instant, help="only records before this instant, in ISO 8601")
    to_file.add_argument(
        "--range",
        action="append",
        metavar="TOPIC:PARTITION:START-END",
        help="only these offsets, the end excluded (may come several times); instead of the options above",
    )
    to_file.set_defaults(run=_record)
    to_broker = commands.add_parser(
        "replay",
        help="produce a folder of snapshot files into a broker",
        description="Produce recorded snapshots into a broker: topics, partitions, order, keys, values and headers stay. "
        "Offsets and times are the broker's own.",
    )
    to_broker.add_argument("feed", help=_FEED)
    to_broker.add_argument("folder", type=Path, help="the folder of the files *.jsonl and *.jsonl.gz")
    to_broker.add_argument("--prefix", default="", help="put this in front of each topic's name")
    to_broker.add_argument("--create", action="store_true", help="create topics that are not there")
    to_broker.set_defaults(run=_replay)
    return parser


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _broker_of(feeds: Mapping[str, Feed], name: str) -> Kafka:
    kafka = feeds[name].source.kafka if name in feeds else None
    if kafka is None:
        raise FeedsError(f"{name}: no feed with source.kafka in the feeds file; its feeds: {', '.join(feeds)}")
    return kafka


def _record(spark: SparkSession, kafka: Kafka, given: argparse.Namespace) -> str:
    ranges = dict(map(parse_range, given.range or ()))
    topics = sorted({place.topic for place in ranges}) or given.topic
    if topics:
        kafka = kafka.model_copy(update={"topics": tuple(topics), "topic_pattern": None})
    with broker_of(kafka) as broker:
        there = {
            Place(name, number): Range(*bounds)
            for name, topic in broker.snapshot().items()
            for number, bounds in topic.partitions.items()
        }
        wanted = ranges or _between(broker, there, given.start, given.end)
    absent = sorted({*(topics or kafka.topics or ())} - {place.topic for place in there})
    if absent:
        raise SnapshotError(f"Kafka at {kafka.bootstrap_servers} has no topic {', '.join(absent)}")
    for place, (start, end) in wanted.items():
        first, last = there.get(place, Range(0, 0))
        if start < first or end > last:
            raise SnapshotError(
                f"{place.topic} partition {place.partition}: {start} to {end} asked for, {first} to {last} available"
            )
    count = record(spark, kafka, wanted, given.file)
    return f"{count} records written to {given.file}" if count else "no records there: nothing was written"


def _between(
    broker: Broker, there: Mapping[Place, Range], start: datetime | None, end: datetime | None
) -> dict[Place, Range]:
    """The offsets of each partition from the first record at or after `start` to the first at or after `end`."""
    starts = broker.offsets_at(there, start) if start else {place: first for place, (first, _) in there.items()}
    ends = broker.offsets_at(there, end) if end else {}
    found = {}
    for place, (_, last) in there.items():
        first = starts[place] if starts[place] >= 0 else last
        until = ends.get(place, -1)
        found[place] = Range(first, max(first, until if until >= 0 else last))
    return found


def _replay(spark: SparkSession, kafka: Kafka, given: argparse.Namespace) -> str:
    sent = replay(spark, kafka, given.folder, prefix=given.prefix, create=given.create)
    return "\n".join(f"{count} records to {topic}" for topic, count in sent.items()) or "no records there"
