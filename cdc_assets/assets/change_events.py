"""change_events/<feed>: one protocol-neutral event per change."""

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

from cdc_assets.assets import raw_records as upstream
from cdc_assets.assets.common import Stopwatch, check_result, data_version, described, table_metadata
from cdc_assets.assets.names import asset_key
from cdc_assets.checks.conservation import records_decoded
from cdc_assets.checks.type_mapping import check_types, unjudged
from cdc_assets.feeds import Feed
from cdc_assets.protocols import carries_schemas
from cdc_assets.protocols.decode import decode
from cdc_assets.resources import LakehouseResource
from cdc_assets.session import together


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, "change_events")


def build(name: str, feed: Feed) -> AssetsDefinition:
    """The asset of one feed."""
    key = key_of(name)
    blocking = feed.type_mapping == "block"
    severity = AssetCheckSeverity.ERROR if blocking else AssetCheckSeverity.WARN
    checks = [
        AssetCheckSpec(
            "conservation",
            asset=key,
            blocking=True,
            description="Every raw record is decoded, or is in quarantine.",
        ),
        AssetCheckSpec(
            "mysql_type_mapping",
            asset=key,
            blocking=blocking,
            description="Every column's type is one that MySQL has.",
        ),
        AssetCheckSpec(
            "jdbc_type_mapping",
            asset=key,
            blocking=blocking,
            description="Every column's type code is the one that its MySQL type and value prescribe.",
        ),
    ]

    @asset(
        key=key,
        deps=[upstream.key_of(name)],
        kinds={"pyspark", "deltalake"},
        check_specs=checks,
        description=f"One event a change, decoded from {feed.protocol} into one schema for all protocols.",
        **described(name, feed),
    )
    def change_events(
        context: AssetExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[MaterializeResult[None] | AssetCheckResult]:
        lake, watch = lakehouse.feed(name), Stopwatch()
        report = decode(lake, feed)
        counts = ", ".join(f"{n} {kind}" for kind, n in report.events.items()) or "nothing new"
        context.log.info(f"change_events/{name}: {counts}, {watch.seconds} s")
        yield MaterializeResult(
            asset_key=key,
            data_version=data_version(lake.change_events),
            metadata=table_metadata(lake.change_events)
            | {f"events_{kind}": n for kind, n in report.events.items()}
            | {"raw_batches": f"({report.after}, {report.through}]", "seconds": watch.seconds},
        )
        known = lake.table_schemas.read() if carries_schemas(feed) and lake.table_schemas.exists() else None
        conserved, found = together(
            lambda: records_decoded(lake, report.after, report.through),
            lambda: check_types(unjudged(lake), feed, known),
        )
        context.log.info(
            f"change_events/{name}: {found.observations} distinct type observations checked, {watch.seconds} s"
        )
        yield check_result("conservation", key, conserved)
        yield check_result("mysql_type_mapping", key, found.mysql_types, severity)
        yield check_result("jdbc_type_mapping", key, found.codes, severity)

    return change_events
