"""table_schemas/<feed>: what the DDL says of each source table."""

from dagster import AssetCheckSpec, AssetExecutionContext, AssetKey, AssetSpec

from cdc_assets.assets import change_events as upstream
from cdc_assets.assets.common import Stopwatch, Told, described, rows_metadata, told_of
from cdc_assets.assets.names import asset_key
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages import SCHEMAS


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, SCHEMAS.name)


def spec(name: str, feed: Feed) -> AssetSpec:
    """The asset of one feed."""
    return AssetSpec(
        key_of(name),
        deps=[upstream.key_of(name)],
        skippable=True,
        kinds={"sql", "deltalake"},
        description="The DDL statements that went by, the shape of each source table after them, and schemas by number.",
        **described(name, feed),
    )


def check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:  # noqa: ARG001 -- all stages have one signature
    """It has none of its own: what statements did is the history tables' to tell."""
    return []


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> Told:
    """Run the stage."""
    watch = Stopwatch()
    report = SCHEMAS.run(lake, feed)
    context.log.info(
        f"table_schemas/{lake.feed}: {report.statements} new DDL statements, "
        f"{report.schemas} new numbered schemas, {watch.seconds} s"
    )
    for error in report.errors:
        context.log.warning(f"table_schemas/{lake.feed}: {error['error']}")
    shown = ["commit_ts", "ddl_type", "database", "table", "ddl_statement"]
    statements = [r for r in lake.schema_rows() if r["ddl_statement"] is not None]
    latest = sorted(statements, key=lambda r: r["commit_ts"], reverse=True)[:20]
    unreadable = len(report.errors)
    metadata = {
        "state": f"DDL statements that went by: {len(statements)}; of this run that cannot be read: {unreadable}",
        "new_statements": report.statements,
        "new_numbered_schemas": report.schemas,
        "next_step": "decide about them: ddl_applied of their tables says how" if unreadable else "none",
        "unreadable_statements": rows_metadata(report.errors),
        "latest_statements": rows_metadata({c: r[c] for c in shown} for r in latest),
        "seconds": watch.seconds,
    }
    return told_of(lake.table_schemas, metadata)
