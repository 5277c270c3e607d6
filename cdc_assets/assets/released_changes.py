"""released_changes/<feed>: the changes that passed the gate."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from cdc_assets.assets.checks import gate
from cdc_assets.assets.checks.conservation import events_placed
from cdc_assets.assets.common import StageAsset, StageResult, Stopwatch, build_stage_result, format_rows
from cdc_assets.assets.page import draw_releases
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.operations.holds import describe_hold
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.release.watermarks import may_have_watermarks
from cdc_assets.stages import DECODE, RELEASE, SCHEMAS, TYPES
from cdc_assets.stages.release.report import ReleaseReport
from cdc_assets.tso import time_of, time_text


def _choose_freshness(feed: Feed) -> dg.FreshnessPolicy | None:
    """Return the policy that notices that no run evaluates the check watermark_freshness.

    It fits feeds with watermarks only: new watermarks materialize the asset even if no row changes.
    """
    if feed.freshness_minutes is None or protocol_of(feed).watermarks(feed) is not Watermarks.ALWAYS:
        return None
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=feed.freshness_minutes))


def _describe_checks(feed: Feed) -> dict[str, str]:
    """Return the descriptions of the checks that the feed's protocol and settings have, by name."""
    checks = {
        "conservation": "Every row event is exactly one of released, duplicate, late, pending, covered by a load, or "
        "excluded; each change is there once. If not, the feed stops here: run the job audit, and report its result.",
        "late_events_seen_before": "Every event below the released watermark repeats a released event. If not, the source "
        "broke the promise of its watermark, and no history has the event. It is in change_events at the coordinates shown: "
        "rebuild the feed, or load its table again.",
    }
    if may_have_watermarks(feed):
        checks["watermark_progress"] = (
            "Every partition has a watermark, and the released watermark moves when events arrive. If not, look at the "
            "changefeed, and at partitions: in the feeds file."
        )
    if feed.freshness_minutes is not None:
        checks["watermark_freshness"] = (
            f"No topic's released watermark (without watermarks: not the newest event) is older than "
            f"{feed.freshness_minutes} minutes. If one is, look at the changefeed, and how often the pipeline runs."
        )
    if protocol_of(feed).numbers_schemas:
        checks["schema_known"] = (
            "No event waits for its table's schema longer than until the next BOOTSTRAP message. If none arrives, make the "
            "changefeed send BOOTSTRAP messages, which have the schemas."
        )
    return checks


def _run(context: dg.AssetExecutionContext, lake: Lakehouse, feed: Feed) -> StageResult:
    """Run the stage and return what to report."""
    watch = Stopwatch()
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
        "partition_watermarks": format_rows(gate.list_partition_watermarks(report)),
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
    verdicts = {
        "conservation": events_placed(report),
        "watermark_progress": gate.watermark_progress(report, feed.source.partitions).as_warning(),
        "schema_known": gate.schemas_arrived(report, feed.bootstrap_interval),
        "late_events_seen_before": gate.late_events_seen_before(report),
    }
    timed_verdicts = {}
    if feed.freshness_minutes is not None:
        timed_verdicts["watermark_freshness"] = gate.watermark_freshness(
            report, feed.freshness_minutes, datetime.now(UTC)
        )
    return build_stage_result(lake.released_changes, metadata, verdicts, timed_verdicts)


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


ASSET = StageAsset(
    name=RELEASE.name,
    upstream=(DECODE.name, SCHEMAS.name, TYPES.name),
    kinds={"pyspark", "deltalake"},
    description="The changes below the watermark, deduplicated: one a key and commit_ts.",
    describe_checks=_describe_checks,
    choose_freshness=_choose_freshness,
    run=_run,
)
