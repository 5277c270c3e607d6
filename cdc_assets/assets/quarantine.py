"""quarantine/<feed>: lines, records, events and values that the stages could not use."""

import dagster as dg

from cdc_assets.assets.checks.quarantine import nothing_quarantined
from cdc_assets.assets.common import StageAsset, StageResult, build_stage_result, format_rows
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages import HISTORY, INGEST, RELEASE


def _describe_checks(_: Feed) -> dict[str, str]:
    """Return the descriptions of the checks that the feed's protocol and settings have, by name."""
    return {
        "nothing_quarantined": "The quarantine is empty. If not, each row says why it is there, and what to do. The job "
        "replay_quarantine decodes records again."
    }


def _run(context: dg.AssetExecutionContext, lake: Lakehouse, _: Feed) -> StageResult:
    """Report the rows by reason; the stages before have written them."""
    verdict = nothing_quarantined(lake)
    context.log.info(f"quarantine/{lake.feed}: {verdict.description}")
    by_reason = verdict.metadata.get("by_reason", [])
    metadata = {
        "state": verdict.description,
        "rows": sum(row["count"] for row in by_reason),
        "next_step": "do what the messages of these reasons say" if by_reason else "none",
        "by_reason": format_rows(by_reason),
    }
    return build_stage_result(lake.quarantine, metadata, {"nothing_quarantined": verdict})


ASSET = StageAsset(
    name="quarantine",
    upstream=(INGEST.name, RELEASE.name, HISTORY.name),
    kinds={"deltalake"},
    description="Lines, records and values that the other stages could not use, each with its coordinates, a reason, and "
    "what to do.",
    describe_checks=_describe_checks,
    run=_run,
)
