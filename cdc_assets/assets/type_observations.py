"""type_observations/<feed>: the types that messages declare, and the checks that compare them with the type mappings."""

from typing import Any

from dagster import AssetCheckSeverity, AssetCheckSpec, AssetExecutionContext, AssetKey, AssetSpec

from cdc_assets.assets import change_events as upstream
from cdc_assets.assets import table_schemas
from cdc_assets.assets.checks import types
from cdc_assets.assets.common import StageResult, Stopwatch, build_check_result, build_common_spec, build_stage_result
from cdc_assets.assets.names import asset_key
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.protocols import protocol_of
from cdc_assets.stages import TYPES
from cdc_assets.stages.types import TypesReport


def build_key(name: str) -> AssetKey:
    """Return the key of the asset."""
    return asset_key(name, TYPES.name)


def build_spec(name: str, feed: Feed) -> AssetSpec:
    """Return the spec of a feed's asset."""
    return AssetSpec(
        build_key(name),
        deps=[upstream.build_key(name), table_schemas.build_key(name)],
        skippable=True,
        kinds={"pandera", "deltalake"},
        description="The distinct types that messages declare for each column, compared with the protocol's type mappings.",
        **build_common_spec(name, feed),
    )


def build_check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:
    """Return the specs of the asset's checks."""
    key = build_key(name)
    checks = [
        AssetCheckSpec(
            "mysql_type_mapping",
            asset=key,
            description="Every column's type is a MySQL type. If not, its table is blocked: give the type under columns: in "
            "the feeds file, or set type_mapping: warn.",
        ),
        AssetCheckSpec(
            "jdbc_type_mapping",
            asset=key,
            description="Every column's type code is the one that its MySQL type and value prescribe. If not, its table is "
            "blocked: compare the record at the coordinates with the producer's version, or set type_mapping: warn.",
        ),
    ]
    if protocol_of(feed).assumes_settings:
        description = (
            "Each value is read as its message, the feeds file or other values prove that the connector writes it. If not, "
            "state the connector's settings under connector_settings: in the feeds file, and run the job rebuild."
        )
        checks.append(AssetCheckSpec("connector_settings", asset=key, description=description))
    return checks


def describe_status(report: TypesReport) -> dict[str, Any]:
    """Return the first metadata entries, for a person on call: progress, broken mappings, blocked tables, what to do."""
    wrong = len(report.wrong)
    return {
        "state": f"types checked up to raw batch {report.through}; observations that break a mapping: {wrong}; blocked "
        f"tables: {len(report.refused)}",
        "observations": report.distinct,
        "new_observations": len(report.new),
        "breaking_a_mapping": wrong,
        "refused_tables": len(report.refused),
        "raw_batches": f"({report.after}, {report.through}]",
        "next_step": "look at the failing check: it names the columns, the records, and what to do"
        if wrong or report.unproven
        else "none",
    }


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> StageResult:
    """Run the stage and return what to report."""
    key, watch = build_key(lake.feed), Stopwatch()
    report = TYPES.run(lake, feed)
    context.log.info(
        f"type_observations/{lake.feed}: {report.distinct} distinct observations, "
        f"{len(report.new)} new, {len(report.wrong)} break a mapping, {len(report.refused)} tables refused, "
        f"{watch.seconds} s"
    )
    metadata = describe_status(report) | {"seconds": watch.seconds}
    checks = [
        build_check_result(
            check, key, verdict, AssetCheckSeverity.ERROR if types.blocks_tables(verdict) else AssetCheckSeverity.WARN
        )
        for check, verdict in (
            ("mysql_type_mapping", types.mysql_type_mapping(report)),
            ("jdbc_type_mapping", types.jdbc_type_mapping(report)),
        )
    ]
    if protocol_of(feed).assumes_settings:
        checks.append(build_check_result("connector_settings", key, types.connector_settings(report)))
    return build_stage_result(lake.type_observations, metadata, checks)
