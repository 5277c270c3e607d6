"""initial_load/<feed>: which dumped tables the histories begin with. Of feeds with `initial_load` alone."""

from dagster import AssetCheckSpec, AssetExecutionContext, AssetKey, AssetSpec

from cdc_assets.assets import change_events as upstream
from cdc_assets.assets.common import Told, described, rows_metadata, told_of
from cdc_assets.assets.names import asset_key
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages import LOAD
from cdc_assets.tso import time_text


def key_of(name: str) -> AssetKey:
    """The asset's key."""
    return asset_key(name, LOAD.name)


def spec(name: str, feed: Feed) -> AssetSpec:
    """The asset of one feed."""
    return AssetSpec(
        key_of(name),
        deps=[upstream.key_of(name)],
        skippable=True,
        kinds={"sql", "deltalake"},
        description="The tables of dumps that the histories begin with, and the positions at which the dumps were taken.",
        **described(name, feed),
    )


def check_specs(name: str, feed: Feed) -> list[AssetCheckSpec]:  # noqa: ARG001 -- all stages have one signature
    """It has none: that a dump cannot be loaded, the check `history_complete` of its table tells."""
    return []


def run(context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> Told:
    """Run the stage."""
    done = LOAD.run(lake, feed)
    for refused in done.refused:
        context.log.warning(f"initial_load/{lake.feed}: {refused.database}.{refused.table}: not loaded: {refused.why}")
    for row in done.planned:
        size = sum(file["size"] for file in row["files"])
        context.log.info(
            f"initial_load/{lake.feed}: {row['database']}.{row['table']} at {row['position']} "
            f"({time_text(row['position'])}), {len(row['files'])} files, {size} bytes"
        )
    shown = ["database", "table", "position", "path", "format"]
    released = lake.released_changes.cursor()
    loaded = released.loaded if released else set()
    tables = [
        {c: r[c] for c in shown}
        | {"time": time_text(r["position"]), "loaded": (r["database"], r["table"], r["position"]) in loaded}
        for r in lake.load_rows()
    ]
    return told_of(lake.loads, {"tables": rows_metadata(tables)})
