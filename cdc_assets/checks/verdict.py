"""What a check found, before Dagster hears of it."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

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


_T = TypeVar("_T")
_U = TypeVar("_U")


def together(one: Callable[[], _T], other: Callable[[], _U]) -> tuple[_T, _U]:
    """Run two questions to Spark at once: on small tables each of them waits for its planning most of its time."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        later = pool.submit(one)
        second = other()
        return later.result(), second
