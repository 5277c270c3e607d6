"""type_observations/<feed>: what messages say of columns' types, and the two checks that hold it against the mappings."""

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

from cdc_assets.assets import change_events as upstream
from cdc_assets.assets import table_schemas
from cdc_assets.assets.common import Stopwatch, check_result, described, materialized
from cdc_assets.assets.names import asset_key
from cdc_assets.checks import types
from cdc_assets.feeds import Feed
from cdc_assets.resources import LakehouseResource
from cdc_assets.stages import TYPES


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, TYPES.name)


def build(name: str, feed: Feed) -> AssetsDefinition:
    """The asset of one feed."""
    key = key_of(name)
    checks = [
        AssetCheckSpec("mysql_type_mapping", asset=key, description="Every column's type is one that MySQL has."),
        AssetCheckSpec(
            "jdbc_type_mapping",
            asset=key,
            description="Every column's type code is the one that its MySQL type and value prescribe.",
        ),
    ]

    @asset(
        key=key,
        deps=[upstream.key_of(name), table_schemas.key_of(name)],
        kinds={"pandera", "deltalake"},
        check_specs=checks,
        description="What messages say of each column's type, once, held against the mappings of the protocol.",
        **described(name, feed),
    )
    def type_observations(
        context: AssetExecutionContext, lakehouse: LakehouseResource
    ) -> Iterator[MaterializeResult[None] | AssetCheckResult]:
        lake, watch = lakehouse.feed(name), Stopwatch()
        report = TYPES.run(lake, feed)
        context.log.info(
            f"type_observations/{name}: {len(report.observations)} distinct observations, "
            f"{len(report.new)} new, {len(report.wrong)} break a mapping, {len(report.refused)} tables refused, "
            f"{watch.seconds} s"
        )
        yield materialized(
            key,
            lake.type_observations,
            {
                "observations": len(report.observations),
                "new_observations": len(report.new),
                "breaking_a_mapping": len(report.wrong),
                "refused_tables": len(report.refused),
                "raw_batches": f"({report.after}, {report.through}]",
                "seconds": watch.seconds,
            },
        )
        for check, verdict in (
            ("mysql_type_mapping", types.mysql_types(report)),
            ("jdbc_type_mapping", types.codes(report)),
        ):
            severity = AssetCheckSeverity.ERROR if types.blocks(verdict) else AssetCheckSeverity.WARN
            yield check_result(check, key, verdict, severity)

    return type_observations
