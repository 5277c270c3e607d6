"""What a check found, before Dagster hears of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# A failing check shows this many of the rows that broke it, and says how many there are.
SHOWN = 50


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check: `violations` are the rows that broke it (at most `SHOWN`), `metadata` what else to see."""

    passed: bool
    description: str
    violations: Sequence[Mapping[str, Any]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


def balance(description: str, **sides: tuple[int, int]) -> Verdict:
    """A conservation check: each named pair of counts, taken in two ways, must be equal."""
    broken = [{"count": name, "expected": want, "found": got} for name, (want, got) in sides.items() if want != got]
    told = "; ".join(f"{b['count']}: expected {b['expected']}, found {b['found']}" for b in broken)
    counts = {name: got for name, (_, got) in sides.items()}
    return Verdict(not broken, told or description, broken, counts)
