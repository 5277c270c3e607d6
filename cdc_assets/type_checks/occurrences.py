"""Where and how often an observation was seen."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

OCCURRENCE_FIELDS = ["events", "first_batch", "first", "last", "sample_value"]
# A place as one number, commit_ts before offset, whose minimum and maximum Spark finds without sorting. Both have at most
# 19 digits.
_OFFSETS = 10**19
PLACE_NUMBER = f"CAST(CAST(commit_ts AS DECIMAL(19,0)) * CAST('{_OFFSETS}' AS DECIMAL(20,0)) + offset AS DECIMAL(38,0))"
PLACE_COLUMNS = ["topic", "partition", "offset", "commit_ts", "batch"]


def occurrence_aggregates() -> list[Column]:
    """Return the aggregates over `PLACE_COLUMNS` of the events of one partition that `read_occurrences` reads."""
    place = F.expr(PLACE_NUMBER)
    return [
        F.count("*").alias("events"),
        F.min("batch").alias("first_batch"),
        F.min(place).alias("lowest"),
        F.max(place).alias("highest"),
    ]


def read_occurrences(row: Mapping[str, Any], sample: str | None = None) -> dict[str, Any]:
    """Return the `OCCURRENCE_FIELDS` of a row of aggregates and its partition; `sample`: the value of the first event."""
    places = {"first": _read_place(row["lowest"], row), "last": _read_place(row["highest"], row)}
    return {"events": row["events"], "first_batch": row["first_batch"], **places, "sample_value": sample}


def _read_place(number: Decimal, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the coordinates of a place, as a number, in the partition of a row of aggregates."""
    commit_ts, offset = divmod(int(number), _OFFSETS)
    return {"commit_ts": commit_ts, "topic": row["topic"], "partition": row["partition"], "offset": offset}


def merge_occurrences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the occurrences of one observation in two sets of events.

    Args:
        one: `OCCURRENCE_FIELDS`; `first` and `last` are coordinates with `commit_ts`.
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
