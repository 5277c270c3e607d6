"""table_schemas/<feed>: DDL statements, their schema actions, and the table schemas after them."""

import dagster as dg

from cdc_assets.assets.common import StageAsset, StageResult, Stopwatch, build_stage_result, format_rows
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages import DECODE, SCHEMAS


def _run(context: dg.AssetExecutionContext, lake: Lakehouse, feed: Feed) -> StageResult:
    """Run the stage and return what to report."""
    watch = Stopwatch()
    report = SCHEMAS.run(lake, feed)
    context.log.info(
        f"table_schemas/{lake.feed}: {report.statements} new DDL statements, "
        f"{report.schemas} new numbered schemas, {watch.seconds} s"
    )
    for error in report.errors:
        context.log.warning(f"table_schemas/{lake.feed}: {error['error']}")
    columns = ["commit_ts", "ddl_type", "database", "table", "ddl_statement"]
    statements = [r for r in lake.schema_rows() if r["ddl_statement"] is not None]
    latest = sorted(statements, key=lambda r: r["commit_ts"], reverse=True)[:20]
    unreadable = len(report.errors)
    metadata = {
        "state": f"DDL statements: {len(statements)}; statements of this run that could not be read: {unreadable}",
        "new_statements": report.statements,
        "new_numbered_schemas": report.schemas,
        "next_step": "decide about them: the check ddl_applied of their tables says how" if unreadable else "none",
        "unreadable_statements": format_rows(report.errors),
        "latest_statements": format_rows({c: r[c] for c in columns} for r in latest),
        "seconds": watch.seconds,
    }
    return build_stage_result(lake.table_schemas, metadata)


# The check `ddl_applied` of each history table reports what statements did.
ASSET = StageAsset(
    name=SCHEMAS.name,
    upstream=(DECODE.name,),
    kinds={"sql", "deltalake"},
    description="DDL statements, their schema actions, the table schemas after them, and schemas by number.",
    run=_run,
)
