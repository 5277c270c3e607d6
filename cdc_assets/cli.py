"""The commands of `cdc-assets`, which people run who operate feeds; `cli_arguments` describes their arguments."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from cdc_assets import read
from cdc_assets.cli_arguments import build_parser
from cdc_assets.config import Feed, FeedsError, FeedsFile, Kafka, load_feeds, validate_feeds
from cdc_assets.config.jdbc import JdbcUrlError, ServerAddress
from cdc_assets.config.locations import LocationError
from cdc_assets.errors import OperationError
from cdc_assets.lakehouse.cursor import CursorError
from cdc_assets.lakehouse.decisions import Decision, DecisionVerdict
from cdc_assets.lakehouse.lakehouse import Lakehouse, lakehouse_root
from cdc_assets.lakehouse.table import ConcurrentRunError
from cdc_assets.operations import diff
from cdc_assets.operations.acknowledge import record_decision
from cdc_assets.operations.finality import find_final_position
from cdc_assets.operations.formatting import format_json
from cdc_assets.operations.inspect import shown
from cdc_assets.operations.inspect.debezium_avro import read_avro
from cdc_assets.operations.inspect.project import write_project
from cdc_assets.operations.inspect.samples import TopicSample, sample_broker, sample_folder
from cdc_assets.operations.inspect.topics import TopicReport, inspect_topics
from cdc_assets.operations.rebuild_table import compare_table_with_rebuild, format_outcome, rebuild_table
from cdc_assets.operations.verify import text as verify_text
from cdc_assets.operations.verify.compare import verify_history
from cdc_assets.operations.views import register_histories
from cdc_assets.operations.why import text as why_text
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.sources.broker import Broker, BrokerError
from cdc_assets.sources.mysql import SourceError
from cdc_assets.sources.offsets import OffsetRange, TopicPartition
from cdc_assets.sources.schema_registry import RegistryError
from cdc_assets.sources.snapshots import SnapshotError, parse_range, record_snapshot, replay_snapshot
from cdc_assets.spark.session import spark_session
from cdc_assets.stages.history.progress_file import blocked_tables, list_holds, retry_tables
from cdc_assets.stores.storage import Store

_ERRORS = (
    BrokerError,
    ConcurrentRunError,
    CursorError,
    FeedsError,
    FileNotFoundError,
    JdbcUrlError,
    LocationError,
    OperationError,
    RegistryError,
    SnapshotError,
    SourceError,
    read.NoTableError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 1 if it fails, with one line on standard error.

    A command that prints its output itself returns its own exit code.
    """
    parsed = build_parser().parse_args(arguments)
    try:
        output = _COMMANDS[parsed.command](parsed)
    except _ERRORS as error:
        print(error, file=sys.stderr)
        return 1
    if isinstance(output, int):
        return output
    print(output, flush=True)
    return 0


def _require_feed(file: FeedsFile, name: str) -> None:
    """Raise `FeedsError` if the feeds file has no feed of this name."""
    if name not in file.feeds:
        raise FeedsError(f"{name}: the feeds file has no such feed; its feeds: {', '.join(file.feeds)}")


def _open_feed(name: str, root: str | None = None) -> tuple[Lakehouse, Feed]:
    """Return the tables and the settings of a feed; Spark starts at the first use of it."""
    file, location = load_feeds(), lakehouse_root(root)
    _require_feed(file, name)
    store = Store.of(file, location)
    return Lakehouse(partial(spark_session, file.spark, store), location, name, store), file.feeds[name]


def _build_source(arguments: Namespace) -> dict[str, Any]:
    """Return the setting `source` of a feed without its topics."""
    if arguments.recorded is not None:
        return {"recorded": str(arguments.recorded)}
    options = _parse_options("--kafka-option", arguments.kafka_option)
    return {"kafka": {"bootstrap_servers": arguments.kafka} | options}


def _parse_options(argument: str, texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return `options` with the options NAME=VALUE; nothing without options."""
    if wrong := [text for text in texts if "=" not in text]:
        raise FeedsError(f"{argument} {wrong[0]}: expected NAME=VALUE")
    return {"options": dict(text.split("=", 1) for text in texts)} if texts else {}


def _inspect_topics(arguments: Namespace) -> list[TopicReport]:
    options = _parse_options("--schema-registry-option", arguments.schema_registry_option)
    samples = _sample_topics(arguments)
    if arguments.schema_registry is None:
        return inspect_topics(samples)
    registry = {"url": arguments.schema_registry} | options
    feed = {"protocol": "debezium", "encoding": "avro", "schema_registry": registry, "source": {"recorded": "."}}
    file = validate_feeds({"feeds": {"inspected": feed}}, Path("command line"))
    return inspect_topics(samples, read_avro(spark_session, file.feeds["inspected"], samples), registry)


def _sample_topics(arguments: Namespace) -> list[TopicSample]:
    source = _build_source(arguments)
    if "recorded" in source:
        return sample_folder(arguments.recorded, arguments.records, arguments.topic or (), arguments.topic_pattern)
    chosen = {"topics": arguments.topic} if arguments.topic else {"topic_pattern": arguments.topic_pattern or ".*"}
    feed = {"protocol": "canal-json", "source": {"kafka": source["kafka"] | chosen}}  # inspecting ignores the protocol
    file = validate_feeds({"feeds": {"inspected": feed}}, Path("command line"))
    return sample_broker(_find_broker(file.feeds, "inspected"), arguments.records)


def _inspect(arguments: Namespace) -> str:
    reports = _inspect_topics(arguments)
    return shown.as_json(reports) if arguments.json else shown.as_text(reports)


def _init(arguments: Namespace) -> str:
    written = write_project(Path.cwd(), _inspect_topics(arguments), _build_source(arguments))
    lines = [f"{path.name} written" for path in written]
    return "\n".join([*lines, "Next: check feeds.yaml, then run `cdc-assets run`."])


def _run(arguments: Namespace) -> int:
    file = load_feeds()
    for name in arguments.feed:
        _require_feed(file, name)
    _set_dagster_home()
    # Import late: Dagster loads slowly, and only this command needs it.
    from cdc_assets.run import run  # noqa: PLC0415

    return run(file, list(dict.fromkeys(arguments.feed)), strict=arguments.strict)


def _ui(arguments: Namespace) -> int:
    _set_dagster_home()
    address = "127.0.0.1", str(arguments.port)
    os.environ |= {"PYTHONWARNINGS": "ignore:Function", "CDC_WEBSERVER": f"http://{':'.join(address)}"}
    command = ["-m", "dagster", "dev", "--workspace", "workspace.yaml", "--host", address[0], "--port", address[1]]
    os.execv(sys.executable, [sys.executable, *command])  # noqa: S606 -- replace this process, so that signals reach Dagster


def _set_dagster_home() -> None:
    """Make the current folder Dagster's home, unless the environment names another."""
    if not os.environ.get("DAGSTER_HOME"):
        os.environ["DAGSTER_HOME"] = str(Path.cwd())


def _holds(arguments: Namespace) -> str:
    lake, _ = _open_feed(arguments.feed)
    rows = [h.row() for h in list_holds(lake)]
    return "\n".join("  ".join(f"{k}={v}" for k, v in row.items()) for row in rows) or "No table is blocked."


def _retry(arguments: Namespace) -> str:
    lake, _ = _open_feed(arguments.feed)
    blocked = {".".join(name): name for name in blocked_tables(lake)}
    if arguments.table and arguments.table not in blocked:
        names = ", ".join(sorted(blocked)) or "none"
        raise FeedsError(
            f"{arguments.table}: not a table of {arguments.feed} that could not be written; those tables are: {names}"
        )
    chosen = retry_tables(lake, [blocked[arguments.table]] if arguments.table else blocked.values())
    tables = ", ".join(".".join(name) for name in chosen) or "no table"
    return f"{tables}: the pipeline's next run tries again"


def _acknowledge(arguments: Namespace) -> str:
    lake, _ = _open_feed(arguments.feed)
    decision = Decision(DecisionVerdict(arguments.verdict), arguments.read_as)
    held = record_decision(lake, arguments.statement_id, decision)
    tables = ", ".join(".".join(name) for name in held.tables)
    return f"{tables}: the pipeline's next run continues after the decision about {held.statement}"


def _why(arguments: Namespace) -> str:
    lake, feed = _open_feed(arguments.feed)
    life = explain_row(lake, feed, arguments.table, arguments.key, arguments.at, with_messages=arguments.records)
    return format_json(life) if arguments.json else why_text.format_text(life)


def _diff(arguments: Namespace) -> str:
    def side(root: str | None, position: int | None) -> diff.DiffSide:
        lake, _ = _open_feed(arguments.feed, root)
        name = read.find_history(lake, arguments.table)
        final = find_final_position(lake, *name).position if position is None else position
        return diff.DiffSide(lake, *name, final)

    difference = diff.compare_rows(
        side(None, arguments.before), side(arguments.other, arguments.after), arguments.samples
    )
    return str((arguments.form or diff.format_diff_text)(difference))


def _verify(arguments: Namespace) -> int:
    lake, feed = _open_feed(arguments.feed)
    address = ServerAddress.from_jdbc_url(arguments.jdbc)
    name = read.find_history(lake, arguments.table)
    position = find_final_position(lake, *name).position if arguments.at is None else arguments.at
    verification = verify_history(lake, feed, name, address, position, arguments.samples)
    print(format_json(verification) if arguments.json else verify_text.format_text(verification), flush=True)
    return int(not verification.is_equal)


def _rebuild(arguments: Namespace) -> str | int:
    lake, feed = _open_feed(arguments.feed)

    def show(difference: diff.VersionDifference) -> None:
        print(diff.format_versions_text(difference), flush=True)

    name = read.find_history(lake, arguments.table)
    if not arguments.check:
        return format_outcome(rebuild_table(lake, feed, name, arguments.start, show))
    difference = compare_table_with_rebuild(lake, feed, name, arguments.start)
    show(difference)
    return int(not difference.is_equal)


def _report(arguments: Namespace) -> str:
    lake, feed = _open_feed(arguments.feed)
    # Import late: only this command needs the drawing libraries.
    from cdc_assets.operations.report.collect import collect_report  # noqa: PLC0415
    from cdc_assets.operations.report.page import render_page  # noqa: PLC0415

    path = arguments.file or Path(f"{arguments.feed}.html")
    path.write_text(render_page(collect_report(lake, feed)), "utf-8")
    return f"{path} written"


def _views(arguments: Namespace) -> str:
    lake, feed = _open_feed(arguments.feed)
    if feed.views is None:
        raise FeedsError(
            f"{arguments.feed}: the setting views is missing in the feeds file; set it to a schema of Spark's catalog"
        )
    return "\n".join(register_histories(lake, feed.views)) or "There is no history yet."


def _find_broker(feeds: Mapping[str, Feed], name: str) -> Kafka:
    """Return the broker of a feed; raise `FeedsError` if the feed has none."""
    kafka = feeds[name].source.kafka if name in feeds else None
    if kafka is None:
        raise FeedsError(f"{name}: the feeds file has no such feed with source.kafka; its feeds: {', '.join(feeds)}")
    return kafka


def _record(arguments: Namespace) -> str:
    file = load_feeds()
    kafka = _find_broker(file.feeds, arguments.feed)
    ranges = dict(map(parse_range, arguments.range or ()))
    topics = sorted({partition.topic for partition in ranges}) or arguments.topic
    if topics:
        kafka = kafka.model_copy(update={"topics": tuple(topics), "topic_pattern": None})
    with Broker(kafka) as broker:
        snapshot = broker.snapshot()
        available = {
            TopicPartition(name, number): OffsetRange(*bounds)
            for name, topic in snapshot.items()
            for number, bounds in topic.partitions.items()
        }
        chosen = ranges or _find_ranges(broker, available, arguments.start, arguments.end)
    if absent := sorted({*(kafka.topics or ())} - snapshot.keys()):
        raise SnapshotError(f"Kafka at {kafka.bootstrap_servers} has no topic {', '.join(absent)}")
    for partition, (start, end) in chosen.items():
        first, last = available.get(partition, OffsetRange(0, 0))
        if start < first or end > last:
            raise SnapshotError(
                f"{partition.topic} partition {partition.partition}: offsets {start} to {end} are not available; available "
                f"are {first} to {last}"
            )
    count = record_snapshot(spark_session(file.spark), kafka, chosen, arguments.file)
    return (
        f"{count} records written to {arguments.file}" if count else "There are no such records; nothing was written."
    )


def _find_ranges(
    broker: Broker, available: Mapping[TopicPartition, OffsetRange], start: datetime | None, end: datetime | None
) -> dict[TopicPartition, OffsetRange]:
    """Return the offsets of each partition from the first record at or after `start` to the first at or after `end`."""
    starts = broker.offsets_at(available, start) if start else {}
    ends = broker.offsets_at(available, end) if end else {}
    ranges = {}
    for partition, (earliest, latest) in available.items():
        # -1 stands for the end of the partition.
        first, until = (
            latest if offset == -1 else offset for offset in (starts.get(partition, earliest), ends.get(partition, -1))
        )
        ranges[partition] = OffsetRange(first, max(first, until))
    return ranges


def _replay(arguments: Namespace) -> str:
    file = load_feeds()
    kafka = _find_broker(file.feeds, arguments.feed)
    store = Store(file.storage, (arguments.folder,))
    spark = spark_session(file.spark, store)
    sent = replay_snapshot(spark, kafka, arguments.folder, store, prefix=arguments.prefix, create=arguments.create)
    return "\n".join(f"{count} records to {topic}" for topic, count in sent.items()) or "There are no records."


_COMMANDS: Mapping[str, Callable[[Namespace], str | int]] = {
    "inspect": _inspect,
    "init": _init,
    "ui": _ui,
    "run": _run,
    "record": _record,
    "replay": _replay,
    "holds": _holds,
    "retry": _retry,
    "acknowledge": _acknowledge,
    "why": _why,
    "diff": _diff,
    "verify": _verify,
    "rebuild": _rebuild,
    "report": _report,
    "views": _views,
}
