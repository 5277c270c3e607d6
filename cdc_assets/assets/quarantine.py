"""quarantine/<feed>: what could not be read, decoded or typed."""

from collections.abc import Iterator

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    MaterializeResult,
    asset,
)

from cdc_assets.assets import history, raw_records
from cdc_assets.assets import released_changes as gate
from cdc_assets.assets.common import check_result, described, materialized
from cdc_assets.assets.names import asset_key
from cdc_assets.checks.quarantine import nothing_quarantined
from cdc_assets.feeds import Feed
from cdc_assets.resources import LakehouseResource
from cdc_assets.tables.quarantine import Reason


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, "quarantine")


def build(name: str, feed: Feed) -> AssetsDefinition:
    """The asset of one feed. The stages write it; this step, the run's last, tells what is in it."""
    key = key_of(name)
    check = AssetCheckSpec("nothing_quarantined", asset=key, description="The quarantine is empty.")

    @asset(
        key=key,
        deps=[raw_records.key_of(name), gate.key_of(name), history.list_key(name)],
        kinds={"deltalake"},
        check_specs=[check],
        description="Lines, records and values that the other stages could not use, each with its coordinates, a reason "
        "and what to do about it.",
        **described(name, feed),
    )
    def quarantine(
        context: AssetExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[MaterializeResult[None] | AssetCheckResult]:
        lake = lakehouse.feed(name)
        verdict = nothing_quarantined(lake)
        context.log.info(f"quarantine/{name}: {verdict.description}")
        yield materialized(key, lake.quarantine, {})
        # A zero date is MySQL's own; anything else is a change, or a value, that the history lacks.
        only_dates = all(row["reason"] == Reason.ZERO_DATE for row in verdict.metadata.get("by_reason", ()))
        severity = AssetCheckSeverity.WARN if only_dates else AssetCheckSeverity.ERROR
        yield check_result("nothing_quarantined", key, verdict, severity)

    return quarantine
