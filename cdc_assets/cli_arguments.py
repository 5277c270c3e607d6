"""The arguments of the commands of `cdc-assets`, with their help."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from cdc_assets.config.jdbc import PASSWORD, USER
from cdc_assets.config.locations import canonical_location
from cdc_assets.operations import diff
from cdc_assets.operations.formatting import format_json
from cdc_assets.tso import parse_position

_FEED = "a feed of the feeds file (CDC_FEEDS, else data/feeds.yaml, else feeds.yaml)"
_KAFKA_FEED = f"{_FEED} with source.kafka: its broker and options are used"
_TABLE = "the source table, as database.table"
_POSITION = "a commit_ts, or a time in ISO 8601"
_FINAL = "final"
_FINAL_HELP = f"{_FINAL}: the last position up to which the history can no longer change"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; it stores the command's name as `command`."""
    parser = argparse.ArgumentParser("cdc-assets", description="Run and operate feeds, and ask their tables.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_inspect_commands(commands)
    _add_pipeline_commands(commands)
    _add_snapshot_commands(commands)
    _add_hold_commands(commands)
    _add_row_commands(commands)
    _add_verify_command(commands)
    _add_rebuild_command(commands)
    _add_feed_commands(commands)
    return parser


def _add_inspect_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands that need no feeds file."""
    inspect = commands.add_parser(
        "inspect",
        help="show what topics contain: protocol, settings, tables",
        description="Read a sample of each topic; a JVM starts only with --schema-registry. Show its protocol with the "
        "evidence, the settings for the feeds file, switches of the sender, watermarks, tables with keys and columns, and "
        "problems with what to do.",
    )
    inspect.add_argument("--json", action="store_true", help="print JSON")
    init = commands.add_parser(
        "init",
        help="write the feeds file, and Dagster's two files, for what topics contain",
        description="Inspect topics and write feeds.yaml, workspace.yaml and dagster.yaml into the current folder. Existing "
        "files are never overwritten.",
    )
    for command in (inspect, init):
        source = command.add_mutually_exclusive_group(required=True)
        source.add_argument("--kafka", metavar="HOST:PORT", help="a broker")
        source.add_argument("--recorded", type=Path, metavar="FOLDER", help="a folder of recorded snapshots")
        command.add_argument(
            "--kafka-option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="an option of the connection, such as kafka.security.protocol=SSL (repeatable); ${NAME} in the value comes "
            "from the environment",
        )
        command.add_argument(
            "--schema-registry",
            metavar="URL",
            help="the schema registry of records that a Debezium connector writes in Avro, as url of schema_registry",
        )
        command.add_argument(
            "--schema-registry-option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="an option of schema_registry, such as basic.auth.user.info=${NAME} (repeatable)",
        )
        topics = command.add_mutually_exclusive_group()
        topics.add_argument("--topic", action="append", help="only this topic (repeatable); default: all topics")
        topics.add_argument("--topic-pattern", metavar="RE", help="only topics that match this regular expression")
        command.add_argument(
            "--records",
            type=_parse_count,
            default=1000,
            help="how many records to read of each partition, half of them from its end; default: %(default)s",
        )


def _add_pipeline_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands that run the pipeline and Dagster."""
    run = commands.add_parser(
        "run",
        help="run the pipeline once",
        description="Run the pipeline once, with a line for each stage and table, and a summary. The exit code is not 0 if "
        "a stage or a blocking check fails. Dagster's home is the current folder unless DAGSTER_HOME is set.",
    )
    run.add_argument("feed", nargs="*", help=f"{_FEED}; default: all feeds")
    run.add_argument("--strict", action="store_true", help="end with exit code 1 if a check of severity ERROR fails")
    ui = commands.add_parser(
        "ui",
        help="serve Dagster on 127.0.0.1",
        description="Serve Dagster on 127.0.0.1: the web server, and the daemon that starts the runs of schedules and "
        "sensors. Dagster's home is the current folder unless DAGSTER_HOME is set.",
    )
    ui.add_argument("--port", type=_parse_count, default=3000, help="default: %(default)s")


def _add_snapshot_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands that record topics as files, and replay them."""
    record = commands.add_parser(
        "record",
        help="write records of a broker as a snapshot file",
        description="Write records of a broker as a recorded snapshot, one JSON object a line. A feed with source.recorded "
        "reads such files, and `cdc-assets replay` produces their records again.",
    )
    record.add_argument("feed", help=_KAFKA_FEED)
    record.add_argument("file", type=Path, help="the file to write, *.jsonl or *.jsonl.gz; it must not exist")
    record.add_argument("--topic", action="append", help="only this topic (repeatable); default: the feed's topics")
    record.add_argument(
        "--from", dest="start", type=_parse_instant, help="only records at or after this instant, in ISO 8601"
    )
    record.add_argument("--to", dest="end", type=_parse_instant, help="only records before this instant, in ISO 8601")
    record.add_argument(
        "--range",
        action="append",
        metavar="TOPIC:PARTITION:START-END",
        help="only these offsets, the end excluded (repeatable); instead of the options above",
    )
    replay = commands.add_parser(
        "replay",
        help="produce a folder of snapshot files into a broker",
        description="Produce recorded snapshots into a broker. Topics, partitions, order, keys, values and headers stay the "
        "same; offsets and times are the broker's.",
    )
    replay.add_argument("feed", help=_KAFKA_FEED)
    replay.add_argument(
        "folder", type=canonical_location, help="the folder of the files *.jsonl and *.jsonl.gz, or its URI"
    )
    replay.add_argument("--prefix", default="", help="put this before the name of each topic")
    replay.add_argument("--create", action="store_true", help="create missing topics")


def _add_hold_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands about blocked tables."""
    holds = commands.add_parser(
        "holds",
        help="list the blocked tables, and why they are blocked",
        description="List the blocked tables of a feed, from which position on they are blocked, and why.",
    )
    holds.add_argument("feed", help=_FEED)
    retry = commands.add_parser(
        "retry",
        help="make the next run try tables again that could not be written",
        description="Make the pipeline's next run try blocked tables again that could not be written, after the cause is "
        "mended. Without this command the pipeline tries a table again when it releases changes of the table, when the "
        "settings or the version change, and from time to time.",
    )
    retry.add_argument("feed", help=_FEED)
    retry.add_argument("table", nargs="?", help="`database.table`; default: all tables that could not be written")
    acknowledge = commands.add_parser(
        "acknowledge",
        help="decide about a DDL statement that blocks tables",
        description="Decide about a DDL statement that blocks tables; the pipeline's next run follows the decision. A "
        "decision stays, also when the feed is rebuilt, and cannot be revoked.",
    )
    acknowledge.add_argument("feed", help=_FEED)
    acknowledge.add_argument(
        "statement_id", help="the statement's id, which `cdc-assets holds` and the failing check ddl_applied show"
    )
    decision = acknowledge.add_mutually_exclusive_group(required=True)
    for verdict, effect in (("apply", "apply the statement"), ("ignore", "do nothing")):
        decision.add_argument(
            f"--{verdict}", dest="verdict", action="store_const", const=verdict, default="as", help=effect
        )
    decision.add_argument("--as", dest="read_as", metavar="STATEMENT", help="apply this statement instead")


def _add_row_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands that explain a row, and compare rows of the lakehouse."""
    why = commands.add_parser(
        "why",
        help="explain a row of a history, or why it is missing",
        description="Explain a row, newest version first: its versions, what changed, their records and runs, and the "
        "events that had no effect, with the reason.",
    )
    why.add_argument("feed", help=_FEED)
    why.add_argument("table", help=_TABLE)
    why.add_argument(
        "key",
        nargs="+",
        help="the values of the key in the order of its columns, bytes as 0x...; or all values as one JSON array; or, for a "
        "table without a key, the row as one JSON object",
    )
    why.add_argument(
        "--at", type=_parse_position, metavar="POSITION", help=f"show only events up to this position: {_POSITION}"
    )
    why.add_argument("--records", action="store_true", help="show the decoded messages, too")
    why.add_argument("--json", action="store_true", help="print JSON")
    compare = commands.add_parser(
        "diff",
        help="compare the rows of a table at two positions, or in two lakehouses",
        description="Show how the rows of a table differ between two positions, by column, with samples.",
    )
    compare.add_argument("feed", help=_FEED)
    compare.add_argument("table", help=_TABLE)
    for name in ("before", "after"):
        compare.add_argument(name, type=_parse_position_or_final, help=f"{_POSITION}; or {_FINAL_HELP}")
    compare.add_argument("--other", metavar="ROOT", help="the lakehouse of the second position; default: the same")
    compare.add_argument(
        "--samples", type=int, default=diff.DEFAULT_SAMPLES, help="how many of each kind; default: %(default)s"
    )
    form = compare.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const=format_json, help="print JSON")
    form.add_argument(
        "--html", dest="form", action="store_const", const=diff.format_diff_html, help="print an HTML page"
    )


def _add_verify_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command that compares a history with the source."""
    verify = commands.add_parser(
        "verify",
        help="compare a history with the source's rows",
        description="Compare the rows of a history as of a position with the source's rows: TiDB's as of the same position, "
        "MySQL's and MariaDB's as they are now. The exit code is 1 if they differ. The source's user and password come "
        f"from the variables {USER} and {PASSWORD}.",
    )
    verify.add_argument("feed", help=_FEED)
    verify.add_argument("table", help=_TABLE)
    verify.add_argument(
        "--jdbc", required=True, metavar="URL", help="the source: jdbc:mysql://HOST:PORT/[?sslMode=...]"
    )
    verify.add_argument(
        "--at",
        type=_parse_position_or_final,
        default=_FINAL,
        metavar="POSITION",
        help=f"{_POSITION}; or {_FINAL_HELP}, the default",
    )
    verify.add_argument(
        "--samples", type=int, default=diff.DEFAULT_SAMPLES, help="how many rows of each kind; default: %(default)s"
    )
    verify.add_argument("--json", action="store_true", help="print JSON")


def _add_rebuild_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command that derives one history again."""
    rebuild = commands.add_parser(
        "rebuild",
        help="derive the history of one table again, and replace it",
        description="Derive the history of one table again from the feed's released changes, show how it differs from the "
        "existing history, and replace this in one commit. No other table changes. If the command dies, run it again. The "
        "job rebuild does the same for all tables of a feed, from the raw records.",
    )
    rebuild.add_argument("feed", help=_FEED)
    rebuild.add_argument("--table", required=True, metavar="DATABASE.TABLE", help=_TABLE)
    rebuild.add_argument(
        "--from",
        dest="start",
        type=_parse_position,
        metavar="POSITION",
        help=f"change nothing below this position: {_POSITION}; the command fails if the histories differ below it",
    )
    rebuild.add_argument(
        "--check", action="store_true", help="only show the difference; the exit code is 1 if there is one"
    )


def _add_feed_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands about all tables of a feed."""
    report = commands.add_parser(
        "report",
        help="write one page about a feed: state, tables, volumes, types, DDL, quarantine",
        description="Write one static HTML page about a feed: what needs attention, its tables and partitions, what its "
        "releases did, the types of its columns, its DDL, and its quarantine with samples. The page loads nothing from a "
        "server or the network.",
    )
    report.add_argument("feed", help=_FEED)
    report.add_argument("file", type=Path, nargs="?", help="the file to write; default: FEED.html")
    views = commands.add_parser(
        "views",
        help="register the histories in Spark's catalog",
        description="Register each history of a feed in Spark's catalog, in the schema that the setting `views` of the feed "
        "names, with a view of its current rows, TABLE__current, and a function of its rows as of a position, "
        "TABLE__as_of(commit_ts). The pipeline does the same for the tables that it changes.",
    )
    views.add_argument("feed", help=_FEED)


def _parse_position(text: str) -> int:
    try:
        return parse_position(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parse_position_or_final(text: str) -> int | None:
    """Return a position; None for the final position."""
    return None if text == _FINAL else _parse_position(text)


def _parse_count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of 1 or more")
    return number


def _parse_instant(text: str) -> datetime:
    """Return an instant; a text without a time zone is UTC."""
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
