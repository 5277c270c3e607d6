"""type_observations/<feed>: the types that messages declare, and the checks that compare them with the type mappings."""

from typing import Any

import dagster as dg

from cdc_assets.assets.checks import types
from cdc_assets.assets.common import StageAsset, StageResult, Stopwatch, build_stage_result
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.protocols import protocol_of
from cdc_assets.stages import DECODE, SCHEMAS, TYPES
from cdc_assets.stages.types import TypesReport


def _describe_checks(feed: Feed) -> dict[str, str]:
    """Return the descriptions of the checks that the feed's protocol and settings have, by name."""
    checks = {
        "mysql_type_mapping": "Every column's type is a MySQL type. If not, its table is blocked: give the type under "
        "columns: in the feeds file, or set type_mapping: warn.",
        "jdbc_type_mapping": "Every column's type code is the one that its MySQL type and value prescribe. If not, its "
        "table is blocked: compare the record at the coordinates with the producer's version, or set type_mapping: warn.",
    }
    if protocol_of(feed).assumes_settings:
        checks["connector_settings"] = (
            "Each value is read as its message, the feeds file or other values prove that the connector writes it. If not, "
            "state the connector's settings under connector_settings: in the feeds file, and run the job rebuild."
        )
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


def _run(context: dg.AssetExecutionContext, lake: Lakehouse, feed: Feed) -> StageResult:
    """Run the stage and return what to report."""
    watch = Stopwatch()
    report = TYPES.run(lake, feed)
    context.log.info(
        f"type_observations/{lake.feed}: {report.distinct} distinct observations, "
        f"{len(report.new)} new, {len(report.wrong)} break a mapping, {len(report.refused)} tables refused, "
        f"{watch.seconds} s"
    )
    mappings = {
        "mysql_type_mapping": types.mysql_type_mapping(report),
        "jdbc_type_mapping": types.jdbc_type_mapping(report),
    }
    verdicts = {
        check: verdict if verdict.metadata["refused_tables"] else verdict.as_warning()
        for check, verdict in mappings.items()
    }
    verdicts["connector_settings"] = types.connector_settings(report)
    metadata = describe_status(report) | {"seconds": watch.seconds}
    return build_stage_result(lake.type_observations, metadata, verdicts)


ASSET = StageAsset(
    name=TYPES.name,
    upstream=(DECODE.name, SCHEMAS.name),
    kinds={"pandera", "deltalake"},
    description="The distinct types that messages declare for each column, compared with the protocol's type mappings.",
    describe_checks=_describe_checks,
    run=_run,
)
