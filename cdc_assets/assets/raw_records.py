"""raw_records/<feed>: the Kafka records, verbatim."""

from typing import Any

from dagster import AssetCheckSpec, AssetExecutionContext, AssetKey, AssetSpec

from cdc_assets.assets.checks.conservation import records_taken
from cdc_assets.assets.common import Stopwatch, Told, check_result, described, offsets_metadata, told_of
from cdc_assets.assets.names import asset_key
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages import INGEST
from cdc_assets.stages.ingest import IngestReport


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, INGEST.name)


def spec(name: str, feed: Feed) -> AssetSpec:
    """The asset of one feed."""
    return AssetSpec(
        key_of(name),
        skippable=True,
        kinds={"kafka", "deltalake"},
        description="Kafka records as they came: each (topic, partition, offset) once, key and value untouched.",
        **described(name, feed),
    )


def check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:  # noqa: ARG001 -- all stages have one signature
    """Its checks."""
    return [
        AssetCheckSpec(
            "conservation",
            asset=key_of(name),
            blocking=True,
            description="Every record read, and every line of a snapshot file, is a record that the table holds once, "
            "or is in quarantine. If not, the feed stops here: somebody has written to the table by hand, or it is a "
            "bug; run the job audit.",
        )
    ]


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> Told:
    """Run the stage."""
    key, watch = key_of(lake.feed), Stopwatch()
    report = INGEST.run(lake, feed)
    context.log.info(f"raw_records/{lake.feed}: {_line(report, feed)}, {watch.seconds} s")
    for loss in report.lost:
        context.log.warning(f"raw_records/{lake.feed}: lost, and skipped: {loss}")
    metadata = on_call(report, lake.feed) | {
        **(_from_files(report) if feed.source.recorded else _from_broker(report)),
        "offsets_of_this_run": offsets_metadata(report.offsets),
        "seconds": watch.seconds,
    }
    return told_of(lake.raw_records, metadata, [check_result("conservation", key, records_taken(report))])


def on_call(report: IngestReport, feed: str) -> dict[str, Any]:
    """What somebody on call asks first, in that order: what is taken in, what is left, what was lost, and what to do."""
    steps = [
        *([f"run the feed again: {report.left} offsets are left by max_records_per_run"] if report.left else []),
        *([f"look into quarantine/{feed}: {report.quarantined} lines are no records"] if report.quarantined else []),
        *report.lost,
    ]
    partitions = sum(len(each) for each in report.held.values())
    state = f"{partitions} partitions of {len(report.held)} topics are held up to their offsets"
    return {
        "state": f"{state}; offsets left for later runs: {report.left}; losses: {len(report.lost)}",
        "records_taken_in": report.taken,
        "offsets_held": offsets_metadata(report.held),
        "next_step": "; ".join(steps) or "none",
    }


def _line(report: IngestReport, feed: Feed) -> str:
    """What the run did, for the log."""
    if feed.source.recorded:
        return (
            f"{len(report.files)} files, {report.lines} lines, {report.taken} records taken in, "
            f"{report.quarantined} lines quarantined"
        )
    left = f", {report.left} offsets left for later runs" if report.left else ""
    return f"{report.taken} records taken in up to the offsets of {report.fixed_at or 'the last run'}{left}"


def _from_files(report: IngestReport) -> dict[str, int]:
    return {
        "files": len(report.files),
        "lines": report.lines,
        "records_held_before": report.held_before,
        "lines_quarantined": report.quarantined,
    }


def _from_broker(report: IngestReport) -> dict[str, int | str]:
    return {
        "offsets_without_record": report.without_record,
        "offsets_left": report.left,
        "partitions_with_losses": len(report.lost),
        "offsets_fixed_at": report.fixed_at or "no new offsets",
    }
