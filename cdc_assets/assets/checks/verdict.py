"""The outcome of a check, independent of Dagster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

# A failing check shows at most this many of the rows that break it, and says how many rows there are.
SHOWN = 50


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check.

    Attributes:
        passed: whether the check passes.
        description: one line for people; of a failing check, what is wrong, where, and what to do.
        violations: the rows that break the check, at most `SHOWN`.
        metadata: more values to show beside the check, by name.
        only_warns: whether the check, if it fails, is a warning and no error.
    """

    passed: bool
    description: str
    violations: Sequence[Mapping[str, Any]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    only_warns: bool = False

    def as_warning(self) -> "Verdict":
        """Return the verdict of a check that only warns."""
        return replace(self, only_warns=True)


def compare_counts(description: str, **counts: tuple[int, int]) -> Verdict:
    """Return the verdict of a conservation check: the two values of each count must be equal.

    Args:
        description: of the passing check.
        counts: name -> (expected, actual). The two come from independent sources, such as a report and a table's log.
    """
    unequal = [
        {"count": name, "expected": expected, "actual": actual}
        for name, (expected, actual) in counts.items()
        if expected != actual
    ]
    if unequal:
        differences = "; ".join(f"{row['count']}: {row['expected']} expected, {row['actual']} found" for row in unequal)
        description = (
            f"The counts do not add up: {differences}. A table of the feed was changed by hand, or the pipeline has a bug: "
            "run the job audit, and report its result with these counts."
        )
    return Verdict(not unequal, description, unequal, {name: actual for name, (_, actual) in counts.items()})
