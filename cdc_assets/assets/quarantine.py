"""quarantine/<feed>: lines, records, events and values that the stages could not use."""

from dagster import AssetCheckSeverity, AssetCheckSpec, AssetExecutionContext, AssetKey, AssetSpec

from cdc_assets.assets import history, raw_records
from cdc_assets.assets import released_changes as gate
from cdc_assets.assets.checks.quarantine import nothing_quarantined
from cdc_assets.assets.common import StageResult, build_check_result, build_common_spec, build_stage_result, format_rows
from cdc_assets.assets.names import asset_key
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import Reason


def build_key(name: str) -> AssetKey:
    """Return the key of the asset."""
    return asset_key(name, "quarantine")


def build_spec(name: str, feed: Feed) -> AssetSpec:
    """Return the spec of a feed's asset."""
    return AssetSpec(
        build_key(name),
        deps=[raw_records.build_key(name), gate.build_key(name), history.build_key(name)],
        skippable=True,
        kinds={"deltalake"},
        description="Lines, records and values that the other stages could not use, each with its coordinates, a "
        "reason, and what to do.",
        **build_common_spec(name, feed),
    )


def build_check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:  # noqa: ARG001 -- all stages have one signature
    """Return the spec of the asset's check."""
    return [
        AssetCheckSpec(
            "nothing_quarantined",
            asset=build_key(name),
            description="The quarantine is empty. If not, each row says why it is there, and what to do. The job "
            "replay_quarantine decodes records again.",
        )
    ]


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> StageResult:  # noqa: ARG001
    """Report the rows by reason; the stages before have written them."""
    verdict = nothing_quarantined(lake)
    context.log.info(f"quarantine/{lake.feed}: {verdict.description}")
    # A zero date is NULL in the history by design. Any other row is a change or a value that the history lacks.
    has_only_zero_dates = all(row["reason"] == Reason.ZERO_DATE for row in verdict.metadata.get("by_reason", ()))
    severity = AssetCheckSeverity.WARN if has_only_zero_dates else AssetCheckSeverity.ERROR
    by_reason = verdict.metadata.get("by_reason", [])
    metadata = {
        "state": verdict.description,
        "rows": sum(row["count"] for row in by_reason),
        "next_step": "do what the messages of these reasons say" if by_reason else "none",
        "by_reason": format_rows(by_reason),
    }
    return build_stage_result(
        lake.quarantine, metadata, [build_check_result("nothing_quarantined", build_key(lake.feed), verdict, severity)]
    )
