"""table_schemas/<feed>: what the DDL says of each source table."""

from dagster import AssetExecutionContext, AssetKey, AssetsDefinition, MaterializeResult, asset

from cdc_assets.assets import change_events as upstream
from cdc_assets.assets.common import Stopwatch, described, materialized, rows_metadata
from cdc_assets.assets.names import asset_key
from cdc_assets.feeds import Feed
from cdc_assets.resources import LakehouseResource
from cdc_assets.stages import SCHEMAS


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, SCHEMAS.name)


def build(name: str, feed: Feed) -> AssetsDefinition:
    """The asset of one feed."""
    key = key_of(name)

    @asset(
        key=key,
        deps=[upstream.key_of(name)],
        kinds={"sql", "deltalake"},
        description="The DDL statements that went by, the shape of each source table after them, and schemas by number.",
        **described(name, feed),
    )
    def table_schemas(context: AssetExecutionContext, lakehouse: LakehouseResource) -> MaterializeResult[None]:
        lake, watch = lakehouse.feed(name), Stopwatch()
        report = SCHEMAS.run(lake, feed)
        context.log.info(
            f"table_schemas/{name}: {report.statements} new DDL statements, "
            f"{report.schemas} new numbered schemas, {watch.seconds} s"
        )
        for error in report.errors:
            context.log.warning(f"table_schemas/{name}: {error['error']}")
        shown = ["commit_ts", "ddl_type", "database", "table", "ddl_statement"]
        statements = [r for r in lake.schema_rows() if r["ddl_statement"] is not None]
        latest = sorted(statements, key=lambda r: r["commit_ts"], reverse=True)[:20]
        return materialized(
            key,
            lake.table_schemas,
            {
                "new_statements": report.statements,
                "new_numbered_schemas": report.schemas,
                "unreadable_statements": rows_metadata(report.errors),
                "latest_statements": rows_metadata({c: r[c] for c in shown} for r in latest),
                "seconds": watch.seconds,
            },
        )

    return table_schemas
