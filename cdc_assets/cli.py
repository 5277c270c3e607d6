"""The commands of `cdc-assets`: record, replay, holds, acknowledge."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cdc_assets.feeds import Feed, FeedsError, FeedsFile, Kafka, load_feeds
from cdc_assets.operations.acknowledge import AcknowledgeError, acknowledge, decision_of
from cdc_assets.places import PlaceError, canonical
from cdc_assets.session import spark_session
from cdc_assets.sources.broker import Broker, BrokerError, broker_of
from cdc_assets.sources.offsets import Place, Range
from cdc_assets.sources.snapshots import SnapshotError, parse_range, record, replay
from cdc_assets.storage import Store
from cdc_assets.tables.decisions import Verdict
from cdc_assets.tables.lakehouse import Lakehouse, lakehouse_root
from cdc_assets.tables.table import ConcurrentRunError

_ANY_FEED = "a feed of the feeds file (CDC_FEEDS, else data/feeds.yaml)"
_FEED = f"{_ANY_FEED} with source.kafka: its broker and options are used"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code: 0, or 1 with one line about what is wrong."""
    given = _parser().parse_args(arguments)
    try:
        print(given.run(load_feeds(), given), flush=True)
    except (
        AcknowledgeError,
        BrokerError,
        ConcurrentRunError,
        FeedsError,
        FileNotFoundError,
        PlaceError,
        SnapshotError,
    ) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("cdc-assets", description="What the person who runs the feeds does by hand.")
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
    to_broker.add_argument("folder", type=canonical, help="the folder of the files *.jsonl and *.jsonl.gz, or its URI")
    to_broker.add_argument("--prefix", default="", help="put this in front of each topic's name")
    to_broker.add_argument("--create", action="store_true", help="create topics that are not there")
    to_broker.set_defaults(run=_replay)
    held = commands.add_parser(
        "holds",
        help="tell which tables wait, and for what",
        description="Tell which tables of a feed wait, from which position on, and for what.",
    )
    held.add_argument("feed", help=_ANY_FEED)
    held.set_defaults(run=_holds)
    decide = commands.add_parser(
        "acknowledge",
        help="decide about a DDL statement that tables wait at",
        description="Decide about a DDL statement that tables wait at; the pipeline's next run goes by it. A decision is "
        "kept, also when the feed is rebuilt, and cannot be taken back.",
    )
    decide.add_argument("feed", help=_ANY_FEED)
    decide.add_argument("statement_id", help="which: `cdc-assets holds` and the failing check ddl_applied tell")
    verdict = decide.add_mutually_exclusive_group(required=True)
    verdict.add_argument("--apply", action="store_true", help="do as it says")
    verdict.add_argument("--ignore", action="store_true", help="do nothing")
    verdict.add_argument("--as", dest="read_as", metavar="STATEMENT", help="do as this other statement says")
    decide.set_defaults(run=_acknowledge)
    return parser


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _lakehouse(file: FeedsFile, name: str) -> Lakehouse:
    if name not in file.feeds:
        raise FeedsError(f"{name}: no such feed in the feeds file; its feeds: {', '.join(file.feeds)}")
    root = lakehouse_root()
    store = Store.of(file, root)
    return Lakehouse(partial(spark_session, file.spark, store), root, name, store)


def _holds(file: FeedsFile, given: argparse.Namespace) -> str:
    released = _lakehouse(file, given.feed).released_changes.cursor()
    rows = [h.row() for h in released.holds] if released else []
    return "\n".join("  ".join(f"{k}={v}" for k, v in row.items()) for row in rows) or "no table waits"


def _acknowledge(file: FeedsFile, given: argparse.Namespace) -> str:
    verdict = Verdict.APPLY if given.apply else Verdict.IGNORE if given.ignore else Verdict.AS
    held = acknowledge(_lakehouse(file, given.feed), given.statement_id, decision_of(verdict, given.read_as))
    tables = ", ".join(".".join(name) for name in held.tables)
    return f"{tables}: the pipeline's next run goes on from {held.statement}"


def _broker_of(feeds: Mapping[str, Feed], name: str) -> Kafka:
    kafka = feeds[name].source.kafka if name in feeds else None
    if kafka is None:
        raise FeedsError(f"{name}: no feed with source.kafka in the feeds file; its feeds: {', '.join(feeds)}")
    return kafka


def _record(file: FeedsFile, given: argparse.Namespace) -> str:
    kafka = _broker_of(file.feeds, given.feed)
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
    count = record(spark_session(file.spark), kafka, wanted, given.file)
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


def _replay(file: FeedsFile, given: argparse.Namespace) -> str:
    kafka = _broker_of(file.feeds, given.feed)
    store = Store(file.storage, (given.folder,))
    spark = spark_session(file.spark, store)
    sent = replay(spark, kafka, given.folder, store, prefix=given.prefix, create=given.create)
    return "\n".join(f"{count} records to {topic}" for topic, count in sent.items()) or "no records there"
