"""change_events/<feed>: one protocol-neutral event per change."""

from typing import Any

from dagster import AssetCheckSpec, AssetExecutionContext, AssetKey, AssetSpec

from cdc_assets.assets import raw_records as upstream
from cdc_assets.assets.checks.conservation import records_decoded, settings_fit_records
from cdc_assets.assets.common import Stopwatch, Told, check_result, described, told_of
from cdc_assets.assets.names import asset_key
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.protocols import protocol_of
from cdc_assets.stages import DECODE
from cdc_assets.stages.decode import DecodeReport

_SETTINGS = "settings_fit_records"


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, DECODE.name)


def spec(name: str, feed: Feed) -> AssetSpec:
    """The asset of one feed."""
    return AssetSpec(
        key_of(name),
        deps=[upstream.key_of(name)],
        skippable=True,
        kinds={"pyspark", "deltalake"},
        description=f"One event a change, decoded from {feed.protocol} into one schema for all protocols.",
        **described(name, feed),
    )


def check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:
    """Its checks, those that its protocol and settings have."""
    checks = [
        AssetCheckSpec(
            "conservation",
            asset=key_of(name),
            blocking=True,
            description="Every raw record is decoded, or is in quarantine. If not, the feed stops here: compare the "
            "counts below, run the job audit, and tell the maintainers; `rebuild` derives the events again.",
        )
    ]
    setting = protocol_of(feed).denied_setting(feed)
    if setting is not None:
        told = (
            f"No message says what the feed's settings deny. If one does, set {setting} for the feed, and rebuild it."
        )
        checks.append(AssetCheckSpec(_SETTINGS, asset=key_of(name), description=told))
    return checks


def on_call(report: DecodeReport, feed: str) -> dict[str, Any]:
    """What somebody on call asks first, in that order: how far it is, how many events of which kind, and what to do."""
    lost = report.undecodable
    return {
        "state": f"decoded up to raw batch {report.through}; undecodable events: {lost}",
        **{f"events_{kind}": n for kind, n in report.events.items()},
        "raw_batches": f"({report.after}, {report.through}]",
        "next_step": f"look into quarantine/{feed}: each of them has its reason, and what to do" if lost else "none",
    }


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> Told:
    """Run the stage."""
    key, watch = key_of(lake.feed), Stopwatch()
    report = DECODE.run(lake, feed)
    counts = ", ".join(f"{n} {kind}" for kind, n in report.events.items()) or "nothing new"
    context.log.info(f"change_events/{lake.feed}: {counts}, {watch.seconds} s")
    metadata = on_call(report, lake.feed) | {"seconds": watch.seconds}
    checks = [check_result("conservation", key, records_decoded(report))]
    denied = protocol_of(feed).denied_setting(feed)
    if denied is not None:
        checks.append(check_result(_SETTINGS, key, settings_fit_records(report, lake.feed, denied)))
    return told_of(lake.change_events, metadata, checks)
