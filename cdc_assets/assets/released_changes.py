"""released_changes/<feed>: the changes that passed the gate."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from dagster import AssetCheckSeverity, AssetCheckSpec, AssetExecutionContext, AssetKey, AssetSpec, FreshnessPolicy

from cdc_assets.assets import change_events as upstream
from cdc_assets.assets import table_schemas, type_observations
from cdc_assets.assets.checks.conservation import events_placed
from cdc_assets.assets.checks.gate import (
    late_events_seen_before,
    list_partition_watermarks,
    schemas_arrived,
    watermark_freshness,
    watermark_progress,
)
from cdc_assets.assets.common import (
    StageResult,
    Stopwatch,
    build_check_result,
    build_common_spec,
    build_stage_result,
    format_rows,
)
from cdc_assets.assets.names import asset_key
from cdc_assets.assets.page import draw_releases
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.operations.holds import describe_hold
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.release.watermarks import may_have_watermarks
from cdc_assets.stages import RELEASE
from cdc_assets.stages.release.report import ReleaseReport
from cdc_assets.tso import time_of, time_text


def build_key(name: str) -> AssetKey:
    """Return the key of the asset."""
    return asset_key(name, RELEASE.name)


def build_spec(name: str, feed: Feed) -> AssetSpec:
    """Return the spec of a feed's asset."""
    return AssetSpec(
        build_key(name),
        deps=[upstream.build_key(name), table_schemas.build_key(name), type_observations.build_key(name)],
        skippable=True,
        kinds={"pyspark", "deltalake"},
        description="The changes below the watermark, deduplicated: one a key and commit_ts.",
        # The check watermark_freshness needs a run, and this policy notices that there is none. It fits feeds with
        # watermarks only: new watermarks materialize the asset even if no row changes.
        freshness_policy=FreshnessPolicy.time_window(fail_window=timedelta(minutes=feed.freshness_minutes))
        if feed.freshness_minutes is not None and protocol_of(feed).watermarks(feed) is Watermarks.ALWAYS
        else None,
        **build_common_spec(name, feed),
    )


def build_check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:
    """Return the specs of the checks that the feed's protocol and settings have."""
    key = build_key(name)
    checks = [
        AssetCheckSpec(
            "conservation",
            asset=key,
            blocking=True,
            description="Every row event is exactly one of released, duplicate, late, pending, covered by a load, or "
            "excluded; each change is there once. If not, the feed stops here: run the job audit, and report its result.",
        ),
        AssetCheckSpec(
            "late_events_seen_before",
            asset=key,
            description="Every event below the released watermark repeats a released event. If not, the source broke the "
            "promise of its watermark, and no history has the event. It is in change_events at the coordinates shown: "
            "rebuild the feed, or load its table again.",
        ),
    ]
    if may_have_watermarks(feed):
        description = (
            "Every partition has a watermark, and the released watermark moves when events arrive. If not, look at the "
            "changefeed, and at partitions: in the feeds file."
        )
        checks.append(AssetCheckSpec("watermark_progress", asset=key, description=description))
    if feed.freshness_minutes is not None:
        description = (
            f"No topic's released watermark (without watermarks: not the newest event) is older than "
            f"{feed.freshness_minutes} minutes. "
            "If one is, look at the changefeed, and how often the pipeline runs."
        )
        checks.append(AssetCheckSpec("watermark_freshness", asset=key, description=description))
    if protocol_of(feed).numbers_schemas:
        description = (
            "No event waits for its table's schema longer than until the next BOOTSTRAP message. If none arrives, "
            "make the changefeed send BOOTSTRAP messages, which have the schemas."
        )
        checks.append(AssetCheckSpec("schema_known", asset=key, description=description))
    return checks


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> StageResult:
    """Run the stage and return what to report."""
    key, watch = build_key(lake.feed), Stopwatch()
    report = RELEASE.run(lake, feed)
    context.log.info(
        f"released_changes/{lake.feed}: {report.released} released, {report.duplicate} duplicate, "
        f"{report.late_repeated + report.late_unseen} late, {report.pending} pending, {report.ddl} DDL, "
        f"{watch.seconds} s"
    )
    for each in report.loaded:
        context.log.info(
            f"released_changes/{lake.feed}: {each.rows} rows of {each.database}.{each.table} loaded, as of "
            f"{each.position} ({time_text(each.position)})"
        )
    watermarks = [
        {"topic": topic, "watermark": mark, "time": time_text(mark)}
        for topic, mark in sorted(report.watermarks.items())
    ]
    metadata = describe_status(report, lake.feed, datetime.now(UTC)) | {
        "watermarks": format_rows(watermarks),
        "partition_watermarks": format_rows(list_partition_watermarks(report)),
        "duplicate": report.duplicate,
        "late_repeated": report.late_repeated,
        "late_unseen": report.late_unseen,
        "excluded": report.excluded,
        "covered_by_a_load": report.covered,
        "loaded_tables": format_rows(asdict(each) for each in report.loaded),
        "ddl_statements": report.ddl,
        **({"incremental_snapshots": format_rows(each.row() for each in report.scans)} if report.scans else {}),
        **(draw_releases(context, lake) if report.release is not None else {}),
        "since_the_feed_began": report.total,
        "seconds": watch.seconds,
    }
    checks = [build_check_result("conservation", key, events_placed(report))]
    if may_have_watermarks(feed):
        progress = watermark_progress(report, feed.source.partitions)
        checks.append(build_check_result("watermark_progress", key, progress, AssetCheckSeverity.WARN))
    if protocol_of(feed).numbers_schemas:
        schemas, is_overdue = schemas_arrived(report, feed.bootstrap_interval)
        severity = AssetCheckSeverity.ERROR if is_overdue else AssetCheckSeverity.WARN
        checks.append(build_check_result("schema_known", key, schemas, severity))
    checks.append(build_check_result("late_events_seen_before", key, late_events_seen_before(report)))
    timed_checks = []
    if feed.freshness_minutes is not None:
        fresh = watermark_freshness(report, feed.freshness_minutes, datetime.now(UTC))
        timed_checks.append(build_check_result("watermark_freshness", key, fresh))
    return build_stage_result(lake.released_changes, metadata, checks, timed_checks)


def describe_status(report: ReleaseReport, feed: str, now: datetime) -> dict[str, Any]:
    """Return the first metadata entries, for a person on call: progress, lag, pending events, held tables, and what to do.

    `lag_seconds` is the time from the oldest released watermark of a topic to `now`. Feeds without watermarks have no
    such entry.
    """
    oldest = min(report.watermarks.values(), default=None)
    reached = f"released up to {time_text(oldest)}" if oldest else "no watermarks: every ingested event is released"
    steps = [f"{h.database}.{h.table}: {describe_hold(h, feed)}" for h in report.holds]
    lag = {} if oldest is None else {"lag_seconds": round((now - time_of(oldest)).total_seconds(), 1)}
    return {
        "state": f"{reached}; pending row events: {report.pending}; held tables: {len(steps)}",
        **lag,
        "released": report.released,
        "pending": report.pending,
        "held_tables": format_rows(h.row() for h in report.holds),
        "next_step": "; ".join(steps) or "none",
    }
