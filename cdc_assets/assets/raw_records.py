"""raw_records/<feed>: the Kafka records, verbatim."""

from collections.abc import Iterator

from dagster import (
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    MaterializeResult,
    asset,
)

from cdc_assets.assets.common import (
    Stopwatch,
    check_result,
    described,
    materialized,
    offsets_metadata,
)
from cdc_assets.assets.names import asset_key
from cdc_assets.checks.conservation import records_taken
from cdc_assets.feeds import Feed
from cdc_assets.resources import LakehouseResource
from cdc_assets.stages import INGEST
from cdc_assets.stages.ingest import IngestReport
from cdc_assets.tables.upgrade import upgrade


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, INGEST.name)


def _told(report: IngestReport, feed: Feed) -> str:
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


def build(name: str, feed: Feed) -> AssetsDefinition:
    """The asset of one feed."""
    key = key_of(name)
    conservation = AssetCheckSpec(
        "conservation",
        asset=key,
        blocking=True,
        description="Every record read, and every line of a snapshot file, is a record that the table holds once, or is in "
        "quarantine.",
    )

    @asset(
        key=key,
        kinds={"kafka", "deltalake"},
        check_specs=[conservation],
        description="Kafka records as they came: each (topic, partition, offset) once, key and value untouched.",
        **described(name, feed),
    )
    def raw_records(
        context: AssetExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[MaterializeResult[None] | AssetCheckResult]:
        lake, watch = lakehouse.feed(name), Stopwatch()
        for table in upgrade(lake, feed):
            context.log.info(f"{table}: brought to the shape of this version, {watch.seconds} s")
        report = INGEST.run(lake, feed)
        context.log.info(f"raw_records/{name}: {_told(report, feed)}, {watch.seconds} s")
        for loss in report.lost:
            context.log.warning(f"raw_records/{name}: lost, and skipped: {loss}")
        yield materialized(
            key,
            lake.raw_records,
            {
                "records_taken_in": report.taken,
                **(_from_files(report) if feed.source.recorded else _from_broker(report)),
                "offsets_of_this_run": offsets_metadata(report.offsets),
                "offsets_held": offsets_metadata(report.held),
                "seconds": watch.seconds,
            },
        )
        yield check_result("conservation", key, records_taken(report))

    return raw_records
