"""Steps that check history tables apart from the pipeline: a run may select some of a step's checks.

A source table and its asset key may have any name. But Dagster derives the names of a step's inputs and outputs from asset
keys, and allows only ASCII letters, digits and `_` in them. With Dagster's own derivation a table called `注文` would stop
the definitions from loading, and so would the two tables `a.b` and `a_b`.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence

import dagster as dg

from cdc_assets.assets.resources import LakehouseResource, SparkResource
from cdc_assets.lakehouse.lakehouse import Lakehouse

EvaluateChecks = Callable[[dg.AssetCheckExecutionContext, Lakehouse], Iterator[dg.AssetCheckResult]]

_PLAIN_NAME = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")
_WITH_DIGEST = re.compile(r".*_[0-9a-f]{16}")


def _build_identifier(key: dg.AssetKey) -> str:
    """Return a unique name for a key, of ASCII letters, digits and `_`."""
    joined = "__".join(key.path)
    is_plain = all(_PLAIN_NAME.fullmatch(part) for part in key.path) and not _WITH_DIGEST.fullmatch(joined)
    if is_plain:
        return joined
    digest = hashlib.sha256("\0".join(key.path).encode()).hexdigest()[:16]
    return f"{re.sub('[^A-Za-z0-9_]', '_', joined)}_{digest}"


class CheckSpec(dg.AssetCheckSpec):
    """A check whose output has a valid and unique name for every asset key."""

    def get_python_identifier(self) -> str:
        """Return the name of the check's output; Dagster calls this method."""
        return f"{_build_identifier(self.asset_key)}__check__{self.name}"


def build_check_step(
    name: str, step: str, specs: Sequence[CheckSpec], evaluate: EvaluateChecks, *, pool: str | None = None
) -> dg.AssetChecksDefinition:
    """Return a step with checks of one feed.

    It does what @multi_asset_check does, which names the inputs after the asset keys.

    Args:
        name: the feed's name.
        step: the step's name after the feed's.
        specs: the checks.
        evaluate: yields the results of the checks that the run selects.
        pool: the pool that limits how many such steps run at a time; None: there is none.
    """
    inputs = {_build_identifier(spec.asset_key): spec.asset_key for spec in specs}
    outputs = {spec.get_python_identifier(): spec for spec in specs}

    @dg.op(
        name=f"{name}__{step}",
        ins={each: dg.In(dg.Nothing) for each in inputs},
        out={each: dg.Out(None, is_required=False) for each in outputs},
        pool=pool,
    )
    def evaluate_selected(
        context: dg.AssetCheckExecutionContext, lakehouse: dg.ResourceParam[LakehouseResource], pyspark: SparkResource
    ) -> Iterator[dg.AssetCheckResult]:
        yield from evaluate(context, lakehouse.feed(name, pyspark))

    checks: dg.AssetChecksDefinition = dg.AssetChecksDefinition.create(
        keys_by_input_name=inputs, node_def=evaluate_selected, check_specs_by_output_name=outputs, can_subset=True
    )
    return checks
