"""Where and how often an observation was seen."""

from collections.abc import Mapping
from typing import Any


def merge_occurrences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the occurrences of one observation in two sets of events.

    Args:
        one: `events` (how many), `first_batch`, `first` and `last` (coordinates with `commit_ts`), `sample_value`.
        other: the same, of other events.

    Returns:
        The same fields for both sets; the sample is the value of the first event.
    """
    first = min(one, other, key=lambda occurrences: _order(occurrences["first"]))
    return {
        "events": one["events"] + other["events"],
        "first_batch": min(one["first_batch"], other["first_batch"]),
        "first": first["first"],
        "last": max(one["last"], other["last"], key=_order),
        "sample_value": first["sample_value"],
    }


def _order(place: Mapping[str, Any]) -> tuple[Any, ...]:
    return place["commit_ts"] or 0, place["topic"], place["partition"], place["offset"]
