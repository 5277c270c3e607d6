"""change_events/<feed>: one protocol-neutral event per change."""

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

from cdc_assets.assets import raw_records as upstream
from cdc_assets.assets.common import Stopwatch, check_result, described, materialized
from cdc_assets.assets.names import asset_key
from cdc_assets.checks.conservation import records_decoded
from cdc_assets.feeds import Feed
from cdc_assets.resources import LakehouseResource
from cdc_assets.stages import DECODE


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, DECODE.name)


def build(name: str, feed: Feed) -> AssetsDefinition:
    """The asset of one feed."""
    key = key_of(name)
    conservation = AssetCheckSpec(
        "conservation",
        asset=key,
        blocking=True,
        description="Every raw record is decoded, or is in quarantine.",
    )

    @asset(
        key=key,
        deps=[upstream.key_of(name)],
        kinds={"pyspark", "deltalake"},
        check_specs=[conservation],
        description=f"One event a change, decoded from {feed.protocol} into one schema for all protocols.",
        **described(name, feed),
    )
    def change_events(
        context: AssetExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[MaterializeResult[None] | AssetCheckResult]:
        lake, watch = lakehouse.feed(name), Stopwatch()
        report = DECODE.run(lake, feed)
        counts = ", ".join(f"{n} {kind}" for kind, n in report.events.items()) or "nothing new"
        context.log.info(f"change_events/{name}: {counts}, {watch.seconds} s")
        metadata = {f"events_{kind}": n for kind, n in report.events.items()} | {
            "raw_batches": f"({report.after}, {report.through}]",
            "seconds": watch.seconds,
        }
        yield materialized(key, lake.change_events, metadata)
        yield check_result("conservation", key, records_decoded(report))

    return change_events
