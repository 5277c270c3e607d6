"""Define a job of thirty assets that do nothing, to measure what Dagster itself takes."""

from dagster import (
    AssetsDefinition,
    AssetSelection,
    Definitions,
    MaterializeResult,
    asset,
    define_asset_job,
    in_process_executor,
)


def _empty(number: int) -> AssetsDefinition:
    @asset(name=f"empty_{number}")
    def empty() -> MaterializeResult[None]:
        return MaterializeResult(metadata={"rows": 0})

    return empty


defs = Definitions(
    assets=[_empty(number) for number in range(30)],
    jobs=[define_asset_job("empty", selection=AssetSelection.all())],
    executor=in_process_executor,
)
