"""raw_records/<feed>: the Kafka records, verbatim."""

from typing import Any

import dagster as dg

from cdc_assets.assets.checks.conservation import records_taken
from cdc_assets.assets.common import StageAsset, StageResult, Stopwatch, build_stage_result, format_offsets
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages import INGEST
from cdc_assets.stages.ingest import IngestReport


def _describe_checks(_: Feed) -> dict[str, str]:
    """Return the descriptions of the checks that the feed's protocol and settings have, by name."""
    return {
        "conservation": "Every record read, and every line of a snapshot file, is in the table once or in quarantine. If "
        "not, the feed stops here: the table was written by hand, or the pipeline has a bug. Run the job audit."
    }


def _run(context: dg.AssetExecutionContext, lake: Lakehouse, feed: Feed) -> StageResult:
    """Run the stage and return what to report."""
    watch = Stopwatch()
    report = INGEST.run(lake, feed)
    context.log.info(f"raw_records/{lake.feed}: {_format_counts(report, feed)}, {watch.seconds} s")
    for loss in report.lost:
        context.log.warning(f"raw_records/{lake.feed}: records lost and skipped: {loss}")
    metadata = describe_status(report, lake.feed) | {
        **(_describe_files(report) if feed.source.recorded else _describe_offsets(report)),
        "offsets_of_this_run": format_offsets(report.offsets),
        "seconds": watch.seconds,
    }
    return build_stage_result(lake.raw_records, metadata, {"conservation": records_taken(report)})


def describe_status(report: IngestReport, feed: str) -> dict[str, Any]:
    """Return the first metadata entries, for a person on call: ingested offsets, offsets left, losses, and what to do."""
    steps = [
        *([f"run the feed again: {report.left} offsets are left by max_records_per_run"] if report.left else []),
        *([f"look into quarantine/{feed}: {report.quarantined} lines cannot be used"] if report.quarantined else []),
        *report.lost,
    ]
    partitions = sum(len(each) for each in report.held.values())
    state = f"{partitions} partitions of {len(report.held)} topics are held up to their offsets"
    return {
        "state": f"{state}; offsets left for later runs: {report.left}; losses: {len(report.lost)}",
        "records_taken_in": report.taken,
        "offsets_held": format_offsets(report.held),
        "next_step": "; ".join(steps) or "none",
    }


def _format_counts(report: IngestReport, feed: Feed) -> str:
    """Return what the run did, as text for the log."""
    if feed.source.recorded:
        return (
            f"{len(report.files)} files, {report.lines} lines, {report.taken} records ingested, "
            f"{report.quarantined} lines quarantined"
        )
    left = f", {report.left} offsets left for later runs" if report.left else ""
    return f"{report.taken} records ingested up to the offsets of {report.fixed_at or 'the last run'}{left}"


def _describe_files(report: IngestReport) -> dict[str, int]:
    return {
        "files": len(report.files),
        "lines": report.lines,
        "records_held_before": report.held_before,
        "lines_quarantined": report.quarantined,
    }


def _describe_offsets(report: IngestReport) -> dict[str, int | str]:
    return {
        "offsets_without_record": report.without_record,
        "offsets_left": report.left,
        "partitions_with_losses": len(report.lost),
        "offsets_fixed_at": report.fixed_at or "no new offsets",
    }


ASSET = StageAsset(
    name=INGEST.name,
    upstream=(),
    kinds={"kafka", "deltalake"},
    description="Kafka records as they came: each (topic, partition, offset) once, key and value unchanged.",
    describe_checks=_describe_checks,
    run=_run,
)
