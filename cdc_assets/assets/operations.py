"""The jobs that operate feeds: `maintenance`, `rebuild`, `replay_quarantine`, `acknowledge` and `why`.

The names of the ops are part of the run configuration that people write.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

import dagster as dg
from pydantic import Field

from cdc_assets.assets.common import Stopwatch
from cdc_assets.assets.table_assets import build_table_asset, has_asset_per_table
from cdc_assets.assets.table_list import read_table_list, refresh_table_list
from cdc_assets.config import Feed
from cdc_assets.errors import OperationError
from cdc_assets.lakehouse.decisions import Decision, DecisionVerdict
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.operations.acknowledge import record_decision
from cdc_assets.operations.diff import Difference, VersionDifference, format_diff_text, format_versions_text
from cdc_assets.operations.maintenance.files import compact_tables, vacuum_tables
from cdc_assets.operations.maintenance.retention import trim_changes, trim_events, trim_records
from cdc_assets.operations.rebuild import compare_with_rebuild, rebuild_feed
from cdc_assets.operations.rebuild_table import compare_table_with_rebuild, format_outcome, rebuild_table
from cdc_assets.operations.replay_quarantine import replay_quarantine
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.operations.why.text import format_markdown, format_text
from cdc_assets.read import NoTableError, find_history
from cdc_assets.tso import parse_position


class MaintenanceConfig(dg.Config):
    """The configuration of the job `maintenance`."""

    feeds: list[str] = Field([], description="Names of feeds; empty: all feeds.")
    compact: bool = Field(default=True, description="Whether to compact small files (OPTIMIZE).")
    vacuum_hours: float | None = Field(
        168,
        description="Delete files that no table version of the last so many hours needs (VACUUM); null: none. "
        "Delta requires 168 or more.",
    )
    raw_retention_days: float | None = Field(
        None,
        description="Delete released raw records older than this, by Kafka's time; only in feeds that read from a broker. "
        "null: none. A feed without all of its raw records cannot be rebuilt.",
    )
    events_retention_days: float | None = Field(
        None,
        description="Delete change events older than this, by Kafka's time, that no later stage needs. null: none.",
    )
    changes_retention_days: float | None = Field(
        None,
        description="Delete released changes older than this, by commit_ts, that every history has applied. null: none. "
        "A feed without watermarks recognizes duplicates by released changes: choose more than records may be late.",
    )


class FeedConfig(dg.Config):
    """The configuration of a job on one feed."""

    feed: str = Field(description="The name of the feed.")


class AcknowledgeConfig(FeedConfig):
    """The configuration of the job `acknowledge`: a decision about a DDL statement that blocks tables."""

    statement_id: str = Field(description="The statement's id, as the failing check ddl_applied shows it.")
    verdict: DecisionVerdict = Field(
        description="apply: apply the statement; ignore: do nothing; as: apply read_as instead."
    )
    read_as: str | None = Field(None, description="The statement to apply instead; only with as.")


class RebuildConfig(FeedConfig):
    """The configuration of the job `rebuild`: rebuild a feed or one table, or only compare with a rebuild."""

    check: bool = Field(
        default=False, description="Only report what a rebuild would change: the run fails if anything would."
    )
    table: str | None = Field(
        None,
        description="Derive only the history of this source table again, database.table, from released_changes; null: all "
        "tables, from raw_records.",
    )
    start: str | None = Field(
        None,
        description="With table: fail if the history would change below this position, a commit_ts or a time in ISO 8601.",
    )


class WhyConfig(FeedConfig):
    """The configuration of the job `why`: a row, and up to when."""

    table: str = Field(description="The source table, as database.table.")
    key: list[str] = Field(
        description="The values of the key in the order of its columns, in the form that `cdc-assets why` accepts."
    )
    at: str | None = Field(
        None, description="Show only events up to this position: a commit_ts, or a time in ISO 8601."
    )


_ConfigT = TypeVar("_ConfigT", MaintenanceConfig, FeedConfig, AcknowledgeConfig, RebuildConfig, WhyConfig)


def build(feeds: Mapping[str, Feed]) -> list[dg.JobDefinition]:
    """Return the jobs that operate these feeds."""
    return [
        _build_job(
            feeds,
            "maintenance",
            maintain,
            MaintenanceConfig,
            "Compact and vacuum the tables of feeds; delete old records, events and changes if configured.",
        ),
        _build_job(
            feeds,
            "rebuild",
            derive_again,
            RebuildConfig,
            "Derive change_events, released_changes and the histories of one feed again from raw_records, and replace the "
            "present tables. The pipeline of that feed refuses to run meanwhile. With `table` derive only the history of "
            "one table again, from released_changes.",
        ),
        _build_job(
            feeds,
            "replay_quarantine",
            try_again,
            FeedConfig,
            "Decode the quarantined records of one feed again. The pipeline's next run takes those that decode now, unless "
            "their table has been released past them.",
        ),
        _build_job(
            feeds,
            "acknowledge",
            decide,
            AcknowledgeConfig,
            "Decide about a DDL statement that blocks tables; the pipeline's next run follows the decision. A decision "
            "stays, also when the feed is rebuilt, and cannot be revoked.",
        ),
        _build_job(
            feeds,
            "why",
            tell_why,
            WhyConfig,
            "Explain a row of a history table, or why it is missing: its versions, what changed, their records and runs, "
            "and the events that had no effect, with the reason. The table's asset shows the answer.",
        ),
    ]


def _build_job(
    feeds: Mapping[str, Feed],
    name: str,
    operate: Callable[[dg.OpExecutionContext, _ConfigT, Lakehouse, Feed], None],
    config_type: type[_ConfigT],
    description: str,
) -> dg.JobDefinition:
    """Return the job `name`, whose one op calls `operate`, and has its name, for each feed that the configuration names."""

    @dg.op(
        name=operate.__name__,
        config_schema=config_type.to_config_schema().as_field(),
        required_resource_keys={"lakehouse", "pyspark"},
    )
    def operate_feeds(context: dg.OpExecutionContext) -> None:
        config, resources = config_type(**context.op_config), context.resources
        for feed in _select_feeds(feeds, config):
            operate(context, config, resources.lakehouse.feed(feed, resources.pyspark), feeds[feed])

    return dg.GraphDefinition(name, node_defs=[operate_feeds]).to_job(description=description)


def _select_feeds(feeds: Mapping[str, Feed], config: MaintenanceConfig | FeedConfig) -> list[str]:
    """Return the names of the feeds that a configuration names; all feeds if its list is empty.

    Raises:
        Failure: the feeds file has no feed of a name.
    """
    names = [config.feed] if isinstance(config, FeedConfig) else config.feeds
    unknown = [name for name in names if name not in feeds]
    if unknown:
        raise dg.Failure(
            f"The feeds file has no feed {', '.join(unknown)}; its feeds: {', '.join(feeds)}", allow_retries=False
        )
    return names or list(feeds)


def maintain(context: dg.OpExecutionContext, config: MaintenanceConfig, lake: Lakehouse, feed: Feed) -> None:
    """Maintain the tables of one feed, and log each thing done."""
    watch = Stopwatch()
    for line in _maintain_tables(config, lake, feed):
        context.log.info(f"{lake.feed}: {line}, {watch.seconds} s")


def _maintain_tables(config: MaintenanceConfig, lake: Lakehouse, feed: Feed) -> Iterator[str]:
    """Maintain the tables of one feed, and yield a line for the log for each thing done."""

    def trim(trim_before: Callable[[datetime], int], days: float | None, subject: str) -> Iterator[str]:
        if days is not None:
            before = datetime.now(UTC) - timedelta(days=days)
            yield f"{trim_before(before)} {subject} from before {before:%Y-%m-%d %H:%M} UTC deleted"

    if config.raw_retention_days is not None and feed.source.kafka is None:
        yield "raw records stay: the feed reads recorded files, which would be ingested again"
    else:
        yield from trim(partial(trim_records, lake, feed), config.raw_retention_days, "raw records")
    yield from trim(partial(trim_events, lake, feed), config.events_retention_days, "change events")
    yield from trim(partial(trim_changes, lake), config.changes_retention_days, "released changes")
    if config.compact:
        for compaction in compact_tables(lake):
            yield f"{compaction.table}: {compaction.removed} files compacted into {compaction.added}"
    if config.vacuum_hours is not None:
        vacuum_tables(lake, config.vacuum_hours)
        yield f"deleted the files that no table version of the last {config.vacuum_hours:g} hours needs"


def derive_again(context: dg.OpExecutionContext, config: RebuildConfig, lake: Lakehouse, feed: Feed) -> None:
    """Rebuild a feed or one table, or only compare with a rebuild.

    Raises:
        Failure: `start` is set without `table`, or as `_rebuild_one_table` and `_fail_if_changed` raise it.
    """
    watch = Stopwatch()
    if config.start is not None and config.table is None:
        raise dg.Failure("start is set without table: set table, too, or leave start out", allow_retries=False)
    if config.table is not None:
        _rebuild_one_table(context, config, lake, feed, config.table)
    elif config.check:
        _fail_if_changed(context, compare_with_rebuild(lake, feed))
    else:
        for rebuilt in rebuild_feed(lake, feed):
            context.log.info(f"{rebuilt.table}: replaced, {rebuilt.rows} rows, {watch.seconds} s")
        refresh_table_list(context, lake)


def _rebuild_one_table(
    context: dg.OpExecutionContext, config: RebuildConfig, lake: Lakehouse, feed: Feed, table: str
) -> None:
    """Rebuild one table, or only compare its history with a rebuild.

    Raises:
        Failure: the table cannot be rebuilt, or `check` is set and a rebuild would change the history.
    """

    def log_difference(difference: VersionDifference) -> None:
        context.log.info(format_versions_text(difference))

    try:
        name = find_history(lake, table)
        start = None if config.start is None else parse_position(config.start)
        if config.check:
            difference = compare_table_with_rebuild(lake, feed, name, start)
            log_difference(difference)
            if not difference.is_equal:
                raise _would_change([table])
            return
        replaced = rebuild_table(lake, feed, name, start, log_difference)
    except (NoTableError, ValueError) as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    context.log.info(format_outcome(replaced))


def _fail_if_changed(context: dg.OpExecutionContext, compared: Iterable[tuple[str, Difference | None]]) -> None:
    """Log how each table differs from a rebuild; a table without a difference object exists on one side only.

    Raises:
        Failure: any table differs.
    """
    changed = []
    for name, difference in compared:
        context.log.info(
            format_diff_text(difference)
            if difference
            else f"{name}: the table exists only before or only after a rebuild"
        )
        changed += [] if difference and difference.is_equal else [name]
    if changed:
        raise _would_change(changed)


def _would_change(tables: Sequence[str]) -> dg.Failure:
    return dg.Failure(f"A rebuild would change {', '.join(tables)}: the log shows how", allow_retries=False)


def try_again(context: dg.OpExecutionContext, _: FeedConfig, lake: Lakehouse, feed: Feed) -> None:
    """Decode quarantined records again; warn of those that decode now, but whose table is released past their position."""
    report = replay_quarantine(lake, feed)
    context.log.info(
        f"{lake.feed}: decoded {report.tried} records again; the pipeline's next run takes {report.replayed} of them"
    )
    for r in report.passed:
        context.log.warning(
            f"{r['topic']} partition {r['partition']} offset {r['offset']} now decodes, but {r['database']}.{r['table']} "
            f"has been released past its commit_ts {r['commit_ts']}: the job rebuild puts the record in its place"
        )


def decide(context: dg.OpExecutionContext, config: AcknowledgeConfig, lake: Lakehouse, _: Feed) -> None:
    """Record a decision about a DDL statement.

    Raises:
        Failure: the decision cannot be recorded.
    """
    try:
        decision = Decision(config.verdict, config.read_as)
        held = record_decision(lake, config.statement_id, decision)
    except OperationError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    tables = ", ".join(".".join(table) for table in held.tables)
    context.log.info(f"{lake.feed}: decided {config.verdict}; the pipeline's next run continues with {tables}")


def tell_why(context: dg.OpExecutionContext, config: WhyConfig, lake: Lakehouse, feed: Feed) -> None:
    """Explain a row in the log and on the page of its table's asset.

    Raises:
        Failure: the row cannot be explained.
    """
    try:
        at = None if config.at is None else parse_position(config.at)
        life = explain_row(lake, feed, config.table, config.key, at)
    except ValueError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    context.log.info(format_text(life))
    per_table = has_asset_per_table(feed, read_table_list(lake.root, lake.feed))
    asset = build_table_asset(lake.feed, life.database, life.table, per_table=per_table)
    metadata = {"why": dg.MetadataValue.md(format_markdown(life))}
    context.log_event(dg.AssetObservation(asset.key, partition=asset.partition, metadata=metadata))
