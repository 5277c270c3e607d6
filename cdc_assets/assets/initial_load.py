"""initial_load/<feed>: the dumped tables that histories begin with, in feeds with `initial_load`."""

import dagster as dg

from cdc_assets.assets.common import StageAsset, StageResult, build_stage_result, format_rows
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages import DECODE, LOAD
from cdc_assets.tso import time_text


def _run(context: dg.AssetExecutionContext, lake: Lakehouse, feed: Feed) -> StageResult:
    """Run the stage and return what to report."""
    report = LOAD.run(lake, feed)
    for refused in report.refused:
        context.log.warning(f"initial_load/{lake.feed}: {refused.database}.{refused.table}: not loaded: {refused.why}")
    for row in report.planned:
        size = sum(file["size"] for file in row["files"])
        context.log.info(
            f"initial_load/{lake.feed}: {row['database']}.{row['table']} at {row['position']} "
            f"({time_text(row['position'])}), {len(row['files'])} files, {size} bytes"
        )
    columns = ["database", "table", "position", "path", "format"]
    released = lake.released_changes.cursor()
    loaded = released.loaded if released else set()
    tables = [
        {c: r[c] for c in columns}
        | {"time": time_text(r["position"]), "loaded": (r["database"], r["table"], r["position"]) in loaded}
        for r in lake.load_rows()
    ]
    return build_stage_result(lake.loads, {"tables": format_rows(tables)})


# A dump that cannot be loaded fails the check `history_complete` of its history table.
ASSET = StageAsset(
    name=LOAD.name,
    upstream=(DECODE.name,),
    kinds={"sql", "deltalake"},
    description="The tables of dumps that the histories begin with, and the positions at which the dumps were taken.",
    run=_run,
)
