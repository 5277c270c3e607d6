"""Steps that check history tables apart from the pipeline: a run may select some of a step's checks."""

from collections.abc import Callable, Iterator, Sequence

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    In,
    Nothing,
    Out,
    ResourceParam,
    op,
)

from cdc_assets.assets.names import CheckSpec, build_output_name
from cdc_assets.assets.resources import LakehouseResource, SparkResource
from cdc_assets.lakehouse.lakehouse import Lakehouse

EvaluateChecks = Callable[[AssetCheckExecutionContext, Lakehouse], Iterator[AssetCheckResult]]


def build_check_step(
    name: str, step: str, specs: Sequence[CheckSpec], evaluate: EvaluateChecks, *, pool: str | None = None
) -> AssetChecksDefinition:
    """Return a step with checks of one feed.

    It does what @multi_asset_check does, which names the inputs after the asset keys: a table's name may be no valid input
    name.

    Args:
        name: the feed's name.
        step: the step's name after the feed's.
        specs: the checks.
        evaluate: yields the results of the checks that the run selects.
        pool: the pool that limits how many such steps run at a time; None: there is none.
    """
    inputs = {build_output_name(spec.asset_key): spec.asset_key for spec in specs}
    outputs = {spec.get_python_identifier(): spec for spec in specs}

    @op(
        name=f"{name}__{step}",
        ins={each: In(Nothing) for each in inputs},
        out={each: Out(None, is_required=False) for each in outputs},
        pool=pool,
    )
    def evaluate_selected(
        context: AssetCheckExecutionContext, lakehouse: ResourceParam[LakehouseResource], pyspark: SparkResource
    ) -> Iterator[AssetCheckResult]:
        yield from evaluate(context, lakehouse.feed(name, pyspark))

    checks: AssetChecksDefinition = AssetChecksDefinition.create(
        keys_by_input_name=inputs, node_def=evaluate_selected, check_specs_by_output_name=outputs, can_subset=True
    )
    return checks
