"""released_changes/<feed>: the gate."""

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
from cdc_assets.assets.common import Stopwatch, Told, check_result, described, rows_metadata, told_of
from cdc_assets.assets.names import asset_key
from cdc_assets.assets.page import picture
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.operations.holds import describe_hold
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.release.gate_choice import may_have_watermarks
from cdc_assets.stages import RELEASE
from cdc_assets.stages.release import ReleaseReport
from cdc_assets.tso import time_of, time_text


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, RELEASE.name)


def spec(name: str, feed: Feed) -> AssetSpec:
    """The asset of one feed."""
    return AssetSpec(
        key_of(name),
        deps=[upstream.key_of(name), table_schemas.key_of(name), type_observations.key_of(name)],
        skippable=True,
        kinds={"pyspark", "deltalake"},
        description="The changes below the watermark: each once, one a key and commit_ts.",
        # Beside the check watermark_freshness, which a run tells of: this one notices that there are no runs. Watermarks are
        # news, so that a feed whose tables nobody changes is released from, too; without them it has no news then.
        freshness_policy=FreshnessPolicy.time_window(fail_window=timedelta(minutes=feed.freshness_minutes))
        if feed.freshness_minutes is not None and protocol_of(feed).watermarks(feed) is Watermarks.ALWAYS
        else None,
        **described(name, feed),
    )


def check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:
    """Its checks, those that its protocol and settings have."""
    key = key_of(name)
    checks = [
        AssetCheckSpec(
            "conservation",
            asset=key,
            blocking=True,
            description="Every row event is exactly one of released, duplicate, late, pending, covered by a load or "
            "excluded; each change stands once. If not, the feed stops here: run the job audit, and tell the maintainers.",
        ),
        AssetCheckSpec(
            "late_events_seen_before",
            asset=key,
            description="An event below the released watermark is a repeat of one that was released. If not, the "
            "source broke its promise, and the event is in no history: it is in change_events at the coordinates shown; "
            "begin its table anew.",
        ),
    ]
    if may_have_watermarks(feed):
        told = (
            "Every partition shows a watermark, and the released one moves when events come. If not, look at the "
            "changefeed, and at partitions: in the feeds file."
        )
        checks.append(AssetCheckSpec("watermark_progress", asset=key, description=told))
    if feed.freshness_minutes is not None:
        told = (
            f"No topic's released watermark, or else the newest event, is older than {feed.freshness_minutes} minutes. "
            "If one is, look at the changefeed, and how often the pipeline runs."
        )
        checks.append(AssetCheckSpec("watermark_freshness", asset=key, description=told))
    if protocol_of(feed).numbers_schemas:
        told = (
            "No event waits for its table's schema; one may, until the next BOOTSTRAP brings it. If none comes, see "
            "that the changefeed sends them."
        )
        checks.append(AssetCheckSpec("schema_known", asset=key, description=told))
    return checks


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> Told:
    """Run the stage."""
    key, watch = key_of(lake.feed), Stopwatch()
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
    metadata = on_call(report, lake.feed, datetime.now(UTC)) | {
        "watermarks": rows_metadata(watermarks),
        "partition_watermarks": rows_metadata(list_partition_watermarks(report)),
        "duplicate": report.duplicate,
        "late_repeated": report.late_repeated,
        "late_unseen": report.late_unseen,
        "excluded": report.excluded,
        "covered_by_a_load": report.covered,
        "loaded_tables": rows_metadata(asdict(each) for each in report.loaded),
        "ddl_statements": report.ddl,
        **({"incremental_snapshots": rows_metadata(each.row() for each in report.scans)} if report.scans else {}),
        **(picture(context, lake) if report.release is not None else {}),
        "since_the_feed_began": report.total,
        "seconds": watch.seconds,
    }
    checks = [check_result("conservation", key, events_placed(report))]
    if may_have_watermarks(feed):
        progress = watermark_progress(report, feed.source.partitions)
        checks.append(check_result("watermark_progress", key, progress, AssetCheckSeverity.WARN))
    if protocol_of(feed).numbers_schemas:
        known, overdue = schemas_arrived(report, feed.bootstrap_interval)
        severity = AssetCheckSeverity.ERROR if overdue else AssetCheckSeverity.WARN
        checks.append(check_result("schema_known", key, known, severity))
    checks.append(check_result("late_events_seen_before", key, late_events_seen_before(report)))
    of_time = []
    if feed.freshness_minutes is not None:
        fresh = watermark_freshness(report, feed.freshness_minutes, datetime.now(UTC))
        of_time.append(check_result("watermark_freshness", key, fresh))
    return told_of(lake.released_changes, metadata, checks, of_time)


def on_call(report: ReleaseReport, feed: str, now: datetime) -> dict[str, Any]:
    """What somebody on call asks first, in that order: how far it is, how late, how much waits, for what, and what to do.

    `lag_seconds` is from the oldest of the topics' released watermarks to `now`; there is none without watermarks.
    """
    oldest = min(report.watermarks.values(), default=None)
    reached = f"released up to {time_text(oldest)}" if oldest else "what has come is released: there are no watermarks"
    waits = [f"{h.database}.{h.table}: {describe_hold(h, feed)}" for h in report.holds]
    late = {} if oldest is None else {"lag_seconds": round((now - time_of(oldest)).total_seconds(), 1)}
    return {
        "state": f"{reached}; row events that wait: {report.pending}; tables that are held: {len(waits)}",
        **late,
        "released": report.released,
        "pending": report.pending,
        "held_tables": rows_metadata(h.row() for h in report.holds),
        "next_step": "; ".join(waits) or "none",
    }
