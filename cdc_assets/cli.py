"""The commands of `cdc-assets`: what a person who runs feeds does by hand; `_parser` lists them."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cdc_assets import read
from cdc_assets.config import Feed, FeedsError, FeedsFile, Kafka, load_feeds, validate_feeds
from cdc_assets.config.locations import LocationError, canonical_location
from cdc_assets.history.progress import blocked_tables, list_holds, retry_tables
from cdc_assets.lakehouse.decisions import DecisionVerdict
from cdc_assets.lakehouse.lakehouse import Lakehouse, lakehouse_root
from cdc_assets.lakehouse.table import ConcurrentRunError
from cdc_assets.operations import diff
from cdc_assets.operations.acknowledge import AcknowledgeError, build_decision, record_decision
from cdc_assets.operations.finality import find_final_position
from cdc_assets.operations.formatting import format_json
from cdc_assets.operations.inspect import shown
from cdc_assets.operations.inspect.project import InspectedSource, ProjectError, write_project
from cdc_assets.operations.inspect.samples import sample_broker, sample_folder
from cdc_assets.operations.inspect.topics import TopicReport, inspect_topics
from cdc_assets.operations.verify import text as verify_text
from cdc_assets.operations.verify.compare import verify_history
from cdc_assets.operations.views import register_histories
from cdc_assets.operations.why import text as why_text
from cdc_assets.operations.why.explain import ExplainError, explain_row
from cdc_assets.sources.broker import Broker, BrokerError
from cdc_assets.sources.mysql import PASSWORD, USER, ServerAddress, SourceError
from cdc_assets.sources.offsets import OffsetRange, TopicPartition
from cdc_assets.sources.snapshots import SnapshotError, parse_range, record_snapshot, replay_snapshot
from cdc_assets.spark.session import spark_session
from cdc_assets.stores.storage import Store
from cdc_assets.tso import parse_position

_ANY_FEED = "a feed of the feeds file (CDC_FEEDS, else data/feeds.yaml, else feeds.yaml)"
_TABLE = "the source's table, as database.table"
_POSITION = "a commit_ts, or a time in ISO 8601"
_FINAL = "final"
_ERRORS = (
    AcknowledgeError,
    BrokerError,
    ConcurrentRunError,
    ExplainError,
    FeedsError,
    FileNotFoundError,
    LocationError,
    ProjectError,
    SnapshotError,
    SourceError,
    read.NoTableError,
)
_FEED = f"{_ANY_FEED} with source.kafka: its broker and options are used"


class _Differing(str):
    """An answer with which a command ends as one that failed."""

    __slots__ = ()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code: 0; or 1 with one line about what is wrong, or where two sides are to be equal.

    A command that prints by itself returns its exit code.
    """
    given = _parser().parse_args(arguments)
    try:
        told = given.run(given) if given.run in _WITHOUT_FEEDS else given.run(load_feeds(), given)
    except _ERRORS as error:
        print(error, file=sys.stderr)
        return 1
    if isinstance(told, int):
        return told
    print(told, flush=True)
    return int(isinstance(told, _Differing))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("cdc-assets", description="What the person who runs the feeds does by hand.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _begin(commands)
    _pipeline(commands)
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
    to_broker.add_argument(
        "folder", type=canonical_location, help="the folder of the files *.jsonl and *.jsonl.gz, or its URI"
    )
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
    again = commands.add_parser(
        "retry",
        help="have tables tried again that could not be written",
        description="Have the pipeline's next run try blocked tables again that could not be written, now that the cause is "
        "mended. Without it they are tried when changes of theirs are released, when the settings or the version change, "
        "and from time to time.",
    )
    again.add_argument("feed", help=_ANY_FEED)
    again.add_argument("table", nargs="?", help="`database.table`; default: all that are blocked so")
    again.set_defaults(run=_retry)
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
    _ask(commands)
    return parser


def _begin(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands that need no feeds file."""
    look = commands.add_parser(
        "inspect",
        help="tell what topics hold: protocol, settings, tables",
        description="Read a sample of each topic, without a JVM. Tell its protocol with the evidence, the settings of the "
        "feeds file, switches of the sender, watermarks, tables with keys and columns, and problems with what to do.",
    )
    look.add_argument("--json", action="store_true", help="as JSON")
    look.set_defaults(run=_inspect)
    begin = commands.add_parser(
        "init",
        help="write the feeds file, and Dagster's two files, for what topics hold",
        description="Inspect topics and write feeds.yaml, workspace.yaml and dagster.yaml into the current folder. Files "
        "that are there are never written over.",
    )
    begin.set_defaults(run=_init)
    for command in (look, begin):
        origin = command.add_mutually_exclusive_group(required=True)
        origin.add_argument("--kafka", metavar="HOST:PORT", help="a broker")
        origin.add_argument("--recorded", type=Path, metavar="FOLDER", help="a folder of recorded snapshots")
        command.add_argument(
            "--kafka-option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="an option of the connection, such as kafka.security.protocol=SSL (may come several times); ${NAME} in it "
            "comes from the environment",
        )
        topics = command.add_mutually_exclusive_group()
        topics.add_argument("--topic", action="append", help="only this topic; may come several times; default: all")
        topics.add_argument("--topic-pattern", metavar="RE", help="only topics that match this regular expression")
        command.add_argument(
            "--records",
            type=_count,
            default=1000,
            help="how many records of each partition are read, half of them from its end; default: %(default)s",
        )


def _pipeline(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands that run the pipeline."""
    once = commands.add_parser(
        "run",
        help="run the pipeline once",
        description="Run the pipeline once, with a line for each stage and table, and a summary. Ends with another code "
        "than 0 if a stage or a blocking check fails. Dagster's home is the current folder unless DAGSTER_HOME is set.",
    )
    once.add_argument("feed", nargs="*", help=f"{_ANY_FEED}; default: all")
    once.add_argument("--strict", action="store_true", help="end with 1 if a check of severity ERROR fails")
    once.set_defaults(run=_run)
    serve = commands.add_parser(
        "ui",
        help="serve Dagster on 127.0.0.1",
        description="Serve Dagster on 127.0.0.1: the web server, and the daemon that starts what schedules and sensors "
        "ask for. Dagster's home is the current folder unless DAGSTER_HOME is set.",
    )
    serve.add_argument("--port", type=_count, default=3000, help="default: %(default)s")
    serve.set_defaults(run=_ui)


def _ask(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The commands that ask."""
    why = commands.add_parser(
        "why",
        help="tell why a row looks so, or is not there",
        description="Tell the life of a row, newest first: its versions, what changed, the records and the runs that they "
        "came by; and what was not taken, and why.",
    )
    why.add_argument("feed", help=_ANY_FEED)
    why.add_argument("table", help=_TABLE)
    why.add_argument(
        "key",
        nargs="+",
        help="the key's values in the order of its columns, bytes as 0x...; or all as one JSON array; of a table without a "
        "key the row, as one JSON object",
    )
    why.add_argument("--at", type=_position, metavar="POSITION", help=f"only what happened up to then: {_POSITION}")
    why.add_argument("--records", action="store_true", help="show the decoded messages, too")
    why.add_argument("--json", action="store_true", help="as JSON")
    why.set_defaults(run=_why)
    compare = commands.add_parser(
        "diff",
        help="tell how the rows of a table differ between two positions, or two lakehouses",
        description="Tell how the rows of a table differ between two positions, by column, with samples.",
    )
    compare.add_argument("feed", help=_ANY_FEED)
    compare.add_argument("table", help=_TABLE)
    for name in ("before", "after"):
        compare.add_argument(
            name, type=_position_or_final, help=f"{_POSITION}; or {_FINAL}, the last that changes no more"
        )
    compare.add_argument(
        "--other", metavar="ROOT", help="the lakehouse that the second position is of; default: the same"
    )
    compare.add_argument(
        "--samples", type=int, default=diff.DEFAULT_SAMPLES, help="how many of each kind; default: %(default)s"
    )
    form = compare.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const=format_json, help="as JSON")
    form.add_argument(
        "--html", dest="form", action="store_const", const=diff.format_diff_html, help="as a page of HTML"
    )
    compare.set_defaults(run=_diff)
    against = commands.add_parser(
        "verify",
        help="tell whether a history is what the source has",
        description="Compare the rows of a history as of a position with the source's own: TiDB's as of the same position, "
        "MySQL's and MariaDB's as they are now. Ends with 1 where they differ. The source's user and password are taken "
        f"from {USER} and {PASSWORD}.",
    )
    against.add_argument("feed", help=_ANY_FEED)
    against.add_argument("table", help=_TABLE)
    against.add_argument(
        "--jdbc", required=True, metavar="URL", help="the source: jdbc:mysql://HOST:PORT/[?sslMode=...]"
    )
    against.add_argument(
        "--at",
        type=_position_or_final,
        default=_FINAL,
        metavar="POSITION",
        help=f"{_POSITION}; or {_FINAL}, the last that changes no more, the default",
    )
    against.add_argument(
        "--samples", type=int, default=diff.DEFAULT_SAMPLES, help="how many rows of each kind; default: %(default)s"
    )
    against.add_argument("--json", action="store_true", help="as JSON")
    against.set_defaults(run=_verify)
    page = commands.add_parser(
        "report",
        help="write one page about a feed: state, tables, volumes, types, DDL, quarantine",
        description="Write one static page of HTML about a feed: what needs somebody, its tables and partitions, what its "
        "releases did, the types of its columns, its DDL, and its quarantine with samples. It asks for nothing else: no "
        "server, no network.",
    )
    page.add_argument("feed", help=_ANY_FEED)
    page.add_argument("file", type=Path, nargs="?", help="the file to write; default: FEED.html")
    page.set_defaults(run=_report)
    views = commands.add_parser(
        "views",
        help="register the histories in Spark's catalog",
        description="Register each history of a feed in the schema of its setting `views` in Spark's catalog, with a view "
        "of its current rows, TABLE__current, and a function of its rows as of a position, TABLE__as_of(commit_ts). "
        "The pipeline does so for the tables that it touches.",
    )
    views.add_argument("feed", help=_ANY_FEED)
    views.set_defaults(run=_views)


def _position(text: str) -> int:
    try:
        return parse_position(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _position_or_final(text: str) -> int | None:
    return None if text == _FINAL else _position(text)


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number, 1 or more")
    return number


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _require_feed(file: FeedsFile, name: str) -> None:
    if name not in file.feeds:
        raise FeedsError(f"{name}: no such feed in the feeds file; its feeds: {', '.join(file.feeds)}")


def _lakehouse(file: FeedsFile, name: str, root: str | None = None) -> Lakehouse:
    _require_feed(file, name)
    place = lakehouse_root(root)
    store = Store.of(file, place)
    return Lakehouse(partial(spark_session, file.spark, store), place, name, store)


def _inspected(given: argparse.Namespace) -> list[TopicReport]:
    if given.recorded is not None:
        return inspect_topics(sample_folder(given.recorded, given.records, given.topic or (), given.topic_pattern))
    kafka = {"bootstrap_servers": given.kafka, "options": _options(given)}
    kafka |= {"topics": given.topic} if given.topic else {"topic_pattern": given.topic_pattern or ".*"}
    feed = {"protocol": "canal-json", "source": {"kafka": kafka}}  # the protocol is not asked for
    source = validate_feeds({"feeds": {"inspected": feed}}, Path("command line")).feeds["inspected"].source
    return inspect_topics(sample_broker(source.kafka, given.records)) if source.kafka else []


def _options(given: argparse.Namespace) -> dict[str, str]:
    pairs = {name: value for name, _, value in (text.partition("=") for text in given.kafka_option)}
    if wrong := [text for text in given.kafka_option if "=" not in text]:
        raise FeedsError(f"--kafka-option {wrong[0]}: expected NAME=VALUE")
    return pairs


def _inspect(given: argparse.Namespace) -> str:
    reports = _inspected(given)
    return shown.as_json(reports) if given.json else shown.as_text(reports)


def _init(given: argparse.Namespace) -> str:
    source = InspectedSource(given.recorded, given.kafka or "", tuple(_options(given).items()))
    written = write_project(Path.cwd(), _inspected(given), source)
    lines = [f"{path.name} written" for path in written]
    return "\n".join([*lines, "Next: look through feeds.yaml, then run `cdc-assets run`."])


def _run(file: FeedsFile, given: argparse.Namespace) -> int:
    for name in given.feed:
        _require_feed(file, name)
    _live_here()
    # Dagster takes a second to load, and only this command needs it.
    from cdc_assets.run import run  # noqa: PLC0415

    return run(file, list(dict.fromkeys(given.feed)), strict=given.strict)


def _ui(given: argparse.Namespace) -> int:
    _live_here()
    address = "127.0.0.1", str(given.port)
    os.environ |= {"PYTHONWARNINGS": "ignore:Function", "CDC_WEBSERVER": f"http://{':'.join(address)}"}
    command = ["-m", "dagster", "dev", "--workspace", "workspace.yaml", "--host", address[0], "--port", address[1]]
    os.execv(sys.executable, [sys.executable, *command])  # noqa: S606 -- so that signals reach Dagster


def _live_here() -> None:
    """Have the current folder be Dagster's home, unless the environment names another."""
    if not os.environ.get("DAGSTER_HOME"):
        os.environ["DAGSTER_HOME"] = str(Path.cwd())


_WITHOUT_FEEDS = (_inspect, _init, _ui)


def _holds(file: FeedsFile, given: argparse.Namespace) -> str:
    rows = [h.row() for h in list_holds(_lakehouse(file, given.feed))]
    return "\n".join("  ".join(f"{k}={v}" for k, v in row.items()) for row in rows) or "no table waits"


def _retry(file: FeedsFile, given: argparse.Namespace) -> str:
    lake = _lakehouse(file, given.feed)
    blocked = {".".join(name): name for name in blocked_tables(lake)}
    if given.table and given.table not in blocked:
        known = ", ".join(sorted(blocked)) or "none"
        raise FeedsError(
            f"{given.table}: no such table of {given.feed} is blocked as it could not be written; those are: {known}"
        )
    chosen = retry_tables(lake, [blocked[given.table]] if given.table else blocked.values())
    tables = ", ".join(".".join(name) for name in chosen) or "no table"
    return f"{tables}: the pipeline's next run tries again"


def _acknowledge(file: FeedsFile, given: argparse.Namespace) -> str:
    verdict = DecisionVerdict.APPLY if given.apply else DecisionVerdict.IGNORE if given.ignore else DecisionVerdict.AS
    decision = build_decision(verdict, given.read_as)
    held = record_decision(_lakehouse(file, given.feed), given.statement_id, decision)
    tables = ", ".join(".".join(name) for name in held.tables)
    return f"{tables}: the pipeline's next run goes on from {held.statement}"


def _why(file: FeedsFile, given: argparse.Namespace) -> str:
    lake = _lakehouse(file, given.feed)
    feed = file.feeds[given.feed]
    life = explain_row(lake, feed, given.table, given.key, given.at, with_messages=given.records)
    return format_json(life) if given.json else why_text.format_text(life)


def _diff(file: FeedsFile, given: argparse.Namespace) -> str:
    def side(root: str | None, position: int | None) -> diff.DiffSide:
        lake = _lakehouse(file, given.feed, root)
        name = read.find_history(lake, given.table)
        final = find_final_position(lake, *name).position if position is None else position
        return diff.DiffSide(lake, *name, final)

    difference = diff.compare_rows(side(None, given.before), side(given.other, given.after), given.samples)
    return str((given.form or diff.format_diff_text)(difference))


def _verify(file: FeedsFile, given: argparse.Namespace) -> str:
    address = ServerAddress.from_jdbc_url(given.jdbc)
    lake = _lakehouse(file, given.feed)
    name = read.find_history(lake, given.table)
    position = find_final_position(lake, *name).position if given.at is None else given.at
    verification = verify_history(lake, file.feeds[given.feed], name, address, position, given.samples)
    text = format_json(verification) if given.json else verify_text.format_text(verification)
    return text if verification.is_equal else _Differing(text)


def _report(file: FeedsFile, given: argparse.Namespace) -> str:
    # Only this command needs the libraries that draw.
    from cdc_assets.operations.report.collect import collect_report  # noqa: PLC0415
    from cdc_assets.operations.report.page import render_page  # noqa: PLC0415

    path = given.file or Path(f"{given.feed}.html")
    report = collect_report(_lakehouse(file, given.feed), file.feeds[given.feed])
    path.write_text(render_page(report), "utf-8")
    return f"{path} written"


def _views(file: FeedsFile, given: argparse.Namespace) -> str:
    lake = _lakehouse(file, given.feed)
    schema = file.feeds[given.feed].views
    if schema is None:
        raise FeedsError(f"{given.feed}: the feeds file has no views for it: name a schema of Spark's catalog there")
    return "\n".join(register_histories(lake, schema)) or "no history is there yet"


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
    with Broker(kafka) as broker:
        there = {
            TopicPartition(name, number): OffsetRange(*bounds)
            for name, topic in broker.snapshot().items()
            for number, bounds in topic.partitions.items()
        }
        wanted = ranges or _between(broker, there, given.start, given.end)
    absent = sorted({*(topics or kafka.topics or ())} - {place.topic for place in there})
    if absent:
        raise SnapshotError(f"Kafka at {kafka.bootstrap_servers} has no topic {', '.join(absent)}")
    for place, (start, end) in wanted.items():
        first, last = there.get(place, OffsetRange(0, 0))
        if start < first or end > last:
            raise SnapshotError(
                f"{place.topic} partition {place.partition}: {start} to {end} asked for, {first} to {last} available"
            )
    count = record_snapshot(spark_session(file.spark), kafka, wanted, given.file)
    return f"{count} records written to {given.file}" if count else "no records there: nothing was written"


def _between(
    broker: Broker, there: Mapping[TopicPartition, OffsetRange], start: datetime | None, end: datetime | None
) -> dict[TopicPartition, OffsetRange]:
    """The offsets of each partition from the first record at or after `start` to the first at or after `end`."""
    starts = broker.offsets_at(there, start) if start else {place: first for place, (first, _) in there.items()}
    ends = broker.offsets_at(there, end) if end else {}
    found = {}
    for place, (_, last) in there.items():
        first = starts[place] if starts[place] >= 0 else last
        until = ends.get(place, -1)
        found[place] = OffsetRange(first, max(first, until if until >= 0 else last))
    return found


def _replay(file: FeedsFile, given: argparse.Namespace) -> str:
    kafka = _broker_of(file.feeds, given.feed)
    store = Store(file.storage, (given.folder,))
    spark = spark_session(file.spark, store)
    sent = replay_snapshot(spark, kafka, given.folder, store, prefix=given.prefix, create=given.create)
    return "\n".join(f"{count} records to {topic}" for topic, count in sent.items()) or "no records there"
