"""type_observations/<feed>: what messages say of columns' types, and the two checks that hold it against the mappings."""

from typing import Any

from dagster import AssetCheckSeverity, AssetCheckSpec, AssetExecutionContext, AssetKey, AssetSpec

from cdc_assets.assets import change_events as upstream
from cdc_assets.assets import table_schemas
from cdc_assets.assets.checks import types
from cdc_assets.assets.common import Stopwatch, Told, check_result, described, told_of
from cdc_assets.assets.names import asset_key
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages import TYPES
from cdc_assets.stages.types import TypesReport


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, TYPES.name)


def spec(name: str, feed: Feed) -> AssetSpec:
    """The asset of one feed."""
    return AssetSpec(
        key_of(name),
        deps=[upstream.key_of(name), table_schemas.key_of(name)],
        skippable=True,
        kinds={"pandera", "deltalake"},
        description="What messages say of each column's type, once, held against the mappings of the protocol.",
        **described(name, feed),
    )


def check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:  # noqa: ARG001 -- all stages have one signature
    """Its checks."""
    key = key_of(name)
    return [
        AssetCheckSpec(
            "mysql_type_mapping",
            asset=key,
            description="Every column's type is one that MySQL has. If not, its table waits: give the type under "
            "columns: in the feeds file, or set type_mapping: warn.",
        ),
        AssetCheckSpec(
            "jdbc_type_mapping",
            asset=key,
            description="Every column's type code is the one that its MySQL type and value prescribe. If not, its "
            "table waits: compare the record at the coordinates with its producer's version; type_mapping: warn lets "
            "it through.",
        ),
    ]


def on_call(report: TypesReport) -> dict[str, Any]:
    """What somebody on call asks first, in that order: how far types are judged, what is wrong with them, what to do."""
    wrong = len(report.wrong)
    return {
        "state": f"types judged up to raw batch {report.through}; observations that break a mapping: {wrong}; tables that "
        f"wait for it: {len(report.refused)}",
        "observations": report.distinct,
        "new_observations": len(report.new),
        "breaking_a_mapping": wrong,
        "refused_tables": len(report.refused),
        "raw_batches": f"({report.after}, {report.through}]",
        "next_step": "look at the check that fails: it has the columns, the records, and what to do"
        if wrong
        else "none",
    }


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> Told:
    """Run the stage."""
    key, watch = key_of(lake.feed), Stopwatch()
    report = TYPES.run(lake, feed)
    context.log.info(
        f"type_observations/{lake.feed}: {report.distinct} distinct observations, "
        f"{len(report.new)} new, {len(report.wrong)} break a mapping, {len(report.refused)} tables refused, "
        f"{watch.seconds} s"
    )
    metadata = on_call(report) | {"seconds": watch.seconds}
    checks = [
        check_result(
            check, key, verdict, AssetCheckSeverity.ERROR if types.blocks_tables(verdict) else AssetCheckSeverity.WARN
        )
        for check, verdict in (
            ("mysql_type_mapping", types.mysql_type_mapping(report)),
            ("jdbc_type_mapping", types.jdbc_type_mapping(report)),
        )
    ]
    return told_of(lake.type_observations, metadata, checks)
