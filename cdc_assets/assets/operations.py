"""The jobs of the person who runs the feeds, with typed configuration: maintenance, rebuild, replay, acknowledge, why."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from dagster import (
    AssetObservation,
    Config,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    ResourceParam,
    job,
    op,
)
from pydantic import Field

from cdc_assets.assets.common import Stopwatch
from cdc_assets.assets.known_tables import known_tables, refresh
from cdc_assets.assets.resources import LakehouseResource, SparkResource
from cdc_assets.assets.table_assets import each_alone, table_asset
from cdc_assets.config import Feed
from cdc_assets.lakehouse.decisions import DecisionVerdict
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.operations.acknowledge import AcknowledgeError, build_decision, record_decision
from cdc_assets.operations.diff import Difference, format_diff_text
from cdc_assets.operations.maintenance.files import compact_tables, vacuum_tables
from cdc_assets.operations.maintenance.retention import trim_changes, trim_events, trim_records
from cdc_assets.operations.rebuild import compare_with_rebuild, rebuild_feed
from cdc_assets.operations.replay_quarantine import ReplayReport, replay_quarantine
from cdc_assets.operations.why.explain import ExplainError, explain_row
from cdc_assets.operations.why.text import format_markdown, format_text
from cdc_assets.tso import parse_position


class MaintenanceConfig(Config):
    """What maintenance does."""

    feeds: list[str] = Field([], description="Names of feeds; none: all.")
    compact: bool = Field(default=True, description="Whether small files are put together (OPTIMIZE).")
    vacuum_hours: float | None = Field(
        168,
        description="Remove files that no version younger than this needs (VACUUM); null: none. Delta wants 168 or more.",
    )
    raw_retention_days: float | None = Field(
        None,
        description="Delete raw records older than this, by Kafka's time, once they are released; only of feeds that read "
        "from a broker. null: none. After it the feed cannot be rebuilt.",
    )
    events_retention_days: float | None = Field(
        None,
        description="Delete change events older than this, by Kafka's time, that every stage is done with. null: none.",
    )
    changes_retention_days: float | None = Field(
        None,
        description="Delete released changes older than this, by their position in the source, that every history has; "
        "null: none. A feed without watermarks tells repeats by them: choose more than records may be late.",
    )


class FeedConfig(Config):
    """Which feed it is about."""

    feed: str = Field(description="The feed's name.")


class AcknowledgeConfig(FeedConfig):
    """What is decided about a DDL statement that tables wait at."""

    statement_id: str = Field(description="Which statement: the failing check ddl_applied tells.")
    verdict: DecisionVerdict = Field(description="apply: do as it says; ignore: do nothing; as: do as read_as says.")
    read_as: str | None = Field(None, description="The statement in whose place it stands; only with as.")


class RebuildConfig(FeedConfig):
    """Which feed is rebuilt, or only compared with what a rebuild would make of it."""

    check: bool = Field(default=False, description="Only tell what would change: the run fails if anything would.")


class WhyConfig(FeedConfig):
    """Which row it is about."""

    table: str = Field(description="The source's table, as database.table.")
    key: list[str] = Field(description="The key's values, in the order of its columns; as `cdc-assets why` takes them.")
    at: str | None = Field(None, description="Only what happened up to then: a commit_ts, or a time in ISO 8601.")


def _chosen(feeds: Mapping[str, Feed], names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in feeds]
    if unknown:
        raise Failure(
            f"no feed {', '.join(unknown)} in the feeds file; its feeds: {', '.join(feeds)}", allow_retries=False
        )
    return names or list(feeds)


def _ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def _maintain(lake: Lakehouse, feed: Feed, config: MaintenanceConfig) -> Iterator[str]:
    """Maintain one feed; a line of the log for each thing done."""
    if config.raw_retention_days is not None and feed.source.kafka is None:
        yield "raw records stay, as recorded files may be read again and would bring them back"
    elif config.raw_retention_days is not None:
        before = _ago(config.raw_retention_days)
        yield f"{trim_records(lake, feed, before)} raw records from before {before:%Y-%m-%d %H:%M} UTC deleted"
    if config.events_retention_days is not None:
        before = _ago(config.events_retention_days)
        yield f"{trim_events(lake, feed, before)} change events from before {before:%Y-%m-%d %H:%M} UTC deleted"
    if config.changes_retention_days is not None:
        before = _ago(config.changes_retention_days)
        yield f"{trim_changes(lake, before)} released changes from before {before:%Y-%m-%d %H:%M} UTC deleted"
    if config.compact:
        for done in compact_tables(lake):
            yield f"{done.table}: {done.removed} files put together into {done.added}"
    if config.vacuum_hours is not None:
        vacuum_tables(lake, config.vacuum_hours)
        yield f"files that no version of the last {config.vacuum_hours:g} hours needs removed"


def _warn_of_passed(context: OpExecutionContext, report: ReplayReport) -> None:
    for r in report.passed:
        context.log.warning(
            f"{r['topic']} partition {r['partition']} offset {r['offset']} now decodes, but {r['database']}.{r['table']} "
            f"has been released past its commit_ts {r['commit_ts']}: the job rebuild puts it in its place"
        )


def _fail_if_changed(context: OpExecutionContext, compared: Iterable[tuple[str, Difference | None]]) -> None:
    changed = []
    for name, found in compared:
        context.log.info(format_diff_text(found) if found else f"{name}: is there only before, or only after")
        changed += [] if found and found.is_equal else [name]
    if changed:
        raise Failure(f"a rebuild would change {', '.join(changed)}: the log has how", allow_retries=False)


def build(feeds: Mapping[str, Feed]) -> list[JobDefinition]:
    """The jobs `maintenance`, `rebuild`, `replay_quarantine`, `acknowledge` and `why` over these feeds."""

    @op
    def maintain(
        context: OpExecutionContext,
        config: MaintenanceConfig,
        lakehouse: ResourceParam[LakehouseResource],
        pyspark: SparkResource,
    ) -> None:
        for name in _chosen(feeds, config.feeds):
            watch = Stopwatch()
            for line in _maintain(lakehouse.feed(name, pyspark), feeds[name], config):
                context.log.info(f"{name}: {line}, {watch.seconds} s")

    @op
    def try_again(
        context: OpExecutionContext,
        config: FeedConfig,
        lakehouse: ResourceParam[LakehouseResource],
        pyspark: SparkResource,
    ) -> None:
        (name,) = _chosen(feeds, [config.feed])
        report = replay_quarantine(lakehouse.feed(name, pyspark), feeds[name])
        context.log.info(
            f"{name}: {report.tried} records tried again, {report.replayed} go into the pipeline's next run"
        )
        _warn_of_passed(context, report)

    @job(
        name="maintenance",
        description="Compact and vacuum the tables of feeds; delete old raw records that are released, if told so.",
    )
    def maintenance_job() -> None:
        maintain()

    @job(
        name="replay_quarantine",
        description="Try again the records of one feed that could not be decoded; the pipeline's next run takes those that "
        "now can, unless their table has moved past them.",
    )
    def replay_job() -> None:
        try_again()

    return [maintenance_job, _rebuild_job(feeds), replay_job, _acknowledge_job(feeds), _why_job(feeds)]


def _rebuild_job(feeds: Mapping[str, Feed]) -> JobDefinition:
    @op
    def derive_again(
        context: OpExecutionContext,
        config: RebuildConfig,
        lakehouse: ResourceParam[LakehouseResource],
        pyspark: SparkResource,
    ) -> None:
        (name,) = _chosen(feeds, [config.feed])
        watch, lake = Stopwatch(), lakehouse.feed(name, pyspark)
        if config.check:
            _fail_if_changed(context, compare_with_rebuild(lake, feeds[name]))
            return
        for done in rebuild_feed(lake, feeds[name]):
            context.log.info(f"{done.table}: replaced, {done.rows} rows, {watch.seconds} s")
        refresh(context, lake)

    @job(
        name="rebuild",
        description="Derive change_events, released_changes and the history of one feed again from raw_records, and put "
        "them in the place of what is there. The pipeline of that feed refuses to run meanwhile.",
    )
    def rebuild_job() -> None:
        derive_again()

    return rebuild_job


def _acknowledge_job(feeds: Mapping[str, Feed]) -> JobDefinition:
    @op
    def decide(
        context: OpExecutionContext,
        config: AcknowledgeConfig,
        lakehouse: ResourceParam[LakehouseResource],
        pyspark: SparkResource,
    ) -> None:
        (name,) = _chosen(feeds, [config.feed])
        try:
            decision = build_decision(config.verdict, config.read_as)
            held = record_decision(lakehouse.feed(name, pyspark), config.statement_id, decision)
        except AcknowledgeError as error:
            raise Failure(str(error), allow_retries=False) from None
        tables = ", ".join(".".join(table) for table in held.tables)
        context.log.info(f"{name}: {config.verdict} decided; the pipeline's next run goes on with {tables}")

    @job(
        name="acknowledge",
        description="Decide about a DDL statement that tables wait at; the pipeline's next run goes by it. A decision is "
        "kept, also when the feed is rebuilt, and cannot be taken back.",
    )
    def acknowledge_job() -> None:
        decide()

    return acknowledge_job


def _why_job(feeds: Mapping[str, Feed]) -> JobDefinition:
    @op
    def tell_why(
        context: OpExecutionContext,
        config: WhyConfig,
        lakehouse: ResourceParam[LakehouseResource],
        pyspark: SparkResource,
    ) -> None:
        (name,) = _chosen(feeds, [config.feed])
        try:
            at = None if config.at is None else parse_position(config.at)
            told = explain_row(lakehouse.feed(name, pyspark), feeds[name], config.table, config.key, at)
        except (ExplainError, ValueError) as error:
            raise Failure(str(error), allow_retries=False) from None
        context.log.info(format_text(told))
        alone = each_alone(feeds[name], known_tables(lakehouse.root, name))
        asset = table_asset(name, told.database, told.table, alone=alone)
        shown = {"why": MetadataValue.md(format_markdown(told))}
        context.log_event(AssetObservation(asset.key, partition=asset.partition, metadata=shown))

    @job(
        name="why",
        description="Tell why a row of a history table looks so, or is not there: its versions, what changed, the records "
        "and runs that they came by, and what was not taken, and why. The answer is on the table's asset.",
    )
    def why_job() -> None:
        tell_why()

    return why_job
