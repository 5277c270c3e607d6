"""quarantine/<feed>: what could not be read, decoded or typed."""

from dagster import AssetCheckSeverity, AssetCheckSpec, AssetExecutionContext, AssetKey, AssetSpec

from cdc_assets.assets import history, raw_records
from cdc_assets.assets import released_changes as gate
from cdc_assets.assets.checks.quarantine import nothing_quarantined
from cdc_assets.assets.common import Told, check_result, described, rows_metadata, told_of
from cdc_assets.assets.names import asset_key
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import Reason


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, "quarantine")


def spec(name: str, feed: Feed) -> AssetSpec:
    """The asset of one feed."""
    return AssetSpec(
        key_of(name),
        deps=[raw_records.key_of(name), gate.key_of(name), history.key_of(name)],
        skippable=True,
        kinds={"deltalake"},
        description="Lines, records and values that the other stages could not use, each with its coordinates, a "
        "reason and what to do about it.",
        **described(name, feed),
    )


def check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:  # noqa: ARG001 -- all stages have one signature
    """Its check."""
    return [
        AssetCheckSpec(
            "nothing_quarantined",
            asset=key_of(name),
            description="The quarantine is empty. If not, each row says why it is there and what to do; the job "
            "replay_quarantine tries whole records again.",
        )
    ]


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> Told:  # noqa: ARG001
    """Tell what is in it: the stages before have written it."""
    verdict = nothing_quarantined(lake)
    context.log.info(f"quarantine/{lake.feed}: {verdict.description}")
    # A zero date is MySQL's own; anything else is a change, or a value, that the history lacks.
    only_dates = all(row["reason"] == Reason.ZERO_DATE for row in verdict.metadata.get("by_reason", ()))
    severity = AssetCheckSeverity.WARN if only_dates else AssetCheckSeverity.ERROR
    by_reason = verdict.metadata.get("by_reason", [])
    metadata = {
        "state": verdict.description,
        "rows": sum(row["count"] for row in by_reason),
        "next_step": "do what the messages of these reasons say" if by_reason else "none",
        "by_reason": rows_metadata(by_reason),
    }
    return told_of(
        lake.quarantine, metadata, [check_result("nothing_quarantined", key_of(lake.feed), verdict, severity)]
    )
