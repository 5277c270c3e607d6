"""change_events/<feed>: decoded events, in one schema for all protocols."""

from typing import Any

import dagster as dg

from cdc_assets.assets.checks.conservation import records_decoded, settings_fit_records
from cdc_assets.assets.common import StageAsset, StageResult, Stopwatch, build_stage_result
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.protocols import protocol_of
from cdc_assets.stages import DECODE, INGEST
from cdc_assets.stages.decode import DecodeReport

_SETTINGS = "settings_fit_records"


def _describe_checks(feed: Feed) -> dict[str, str]:
    """Return the descriptions of the checks that the feed's protocol and settings have, by name."""
    checks = {
        "conservation": "Every raw record is decoded or in quarantine. If not, the feed stops here: run the job audit, and "
        "report its result with the counts below. The job rebuild derives the events again."
    }
    setting = protocol_of(feed).denied_setting(feed)
    if setting is not None:
        checks[_SETTINGS] = (
            f"No message contradicts the feed's settings. If one does, set {setting} for the feed, and rebuild it."
        )
    return checks


def describe_status(report: DecodeReport, feed: str) -> dict[str, Any]:
    """Return the first metadata entries, for a person on call: progress, events by kind, and what to do."""
    undecodable = report.undecodable
    return {
        "state": f"decoded up to raw batch {report.through}; undecodable events: {undecodable}",
        **{f"events_{kind}": n for kind, n in report.events.items()},
        "raw_batches": f"({report.after}, {report.through}]",
        "next_step": f"look into quarantine/{feed}: each row has a reason and what to do" if undecodable else "none",
    }


def _run(context: dg.AssetExecutionContext, lake: Lakehouse, feed: Feed) -> StageResult:
    """Run the stage and return what to report."""
    watch = Stopwatch()
    report = DECODE.run(lake, feed)
    counts = ", ".join(f"{n} {kind}" for kind, n in report.events.items()) or "nothing new"
    context.log.info(f"change_events/{lake.feed}: {counts}, {watch.seconds} s")
    metadata = describe_status(report, lake.feed) | {"seconds": watch.seconds}
    verdicts = {"conservation": records_decoded(report)}
    denied = protocol_of(feed).denied_setting(feed)
    if denied is not None:
        verdicts[_SETTINGS] = settings_fit_records(report, lake.feed, denied)
    return build_stage_result(lake.change_events, metadata, verdicts)


ASSET = StageAsset(
    name=DECODE.name,
    upstream=(INGEST.name,),
    kinds={"pyspark", "deltalake"},
    description="Row events, DDL events and watermarks, decoded from {protocol} into one schema for all protocols.",
    describe_checks=_describe_checks,
    run=_run,
)
