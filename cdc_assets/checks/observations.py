"""The mapping checks: what messages say of each column's type, held against the reference of their protocol.

The events are boiled down to distinct *observations* first (a table's column, its type, its code, the class of its value),
which are few; pandera schemas are run on those.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import pandera.pandas as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.mysql_types.types import parsed

ANY, NULL, OUTSIDE = "any", "null", "outside every range"
NOT_NULL, TOO_LONG = "null in a column that is NOT NULL", "too long"
OTHER = "other"  # a JSON value of no type that any column's value has
OK = "ok"
# Of every observation: what it is about; in how many events and where it was seen, with the first's value as a sample.
WHERE = ["database", "table", "column"]
SEEN = ["events", "first_batch", "first", "last", "sample_value"]
# What of an event is needed for these.
PLACE = ["commit_ts", "topic", "partition", "offset", "record_timestamp", "batch"]
Observed = dict[str, Any]  # `WHERE`, `mysql_type`, columns of the protocol's own, `SEEN`


class Rules(NamedTuple):
    """What a protocol prescribes.

    Attributes:
        observe: change events, and the rows of table_schemas -> observations.
        codes: the schema that observations keep to.
        what: the columns that make up an observation.
        expected: an observation -> what is shown beside it: what the reference has.
    """

    observe: Callable[[DataFrame, Sequence[Mapping[str, Any]]], list[Observed]]
    codes: pa.DataFrameSchema
    what: tuple[str, ...]
    expected: Callable[[Mapping[str, Any]], str]


def range_name(low: int, high: int) -> str:
    """The class of the values from `low` to `high`."""
    return f"{low}..{high}"


def mysql_type_schema() -> pa.DataFrameSchema:
    """Every type text is one that MySQL has."""
    known = pa.Check(
        lambda s: s.map(lambda t: parsed(t) is not None), name="known_mysql_type", error="not a MySQL type"
    )
    return pa.DataFrameSchema({"mysql_type": pa.Column(str, known, nullable=True)})


def value_class(
    text: Column, ranges: Column, too_long: Column | None = None, *, nullable: Column | None = None
) -> Column:
    """The class of a value, STRING: the range that it lies in, NULL, or what is wrong with it.

    Args:
        text: the value's text, STRING.
        ranges: ARRAY<ARRAY<STRING>>, [low, high] each, both included; empty or NULL: its type has none.
        too_long: whether it is longer than its type allows, BOOLEAN.
        nullable: whether it may be NULL, BOOLEAN; None: it may.
    """
    whole = F.when(text.rlike(r"^-?[0-9]+\z"), text)  # a cast would round 1.5
    number = whole.try_cast("decimal(38,0)")
    hit = F.filter(ranges, lambda r: number.between(r[0].cast("decimal(38,0)"), r[1].cast("decimal(38,0)")))
    null = NULL if nullable is None else F.when(nullable, NULL).otherwise(NOT_NULL)
    classed = F.when(text.isNull(), null).when(F.size(hit) > 0, F.concat_ws("..", F.get(hit, F.lit(0))))
    classed = classed.when(F.size(ranges) > 0, OUTSIDE)
    return (classed if too_long is None else classed.when(too_long, TOO_LONG)).otherwise(ANY)


def json_type(value: Column) -> Column:
    """What a VARIANT is in JSON, STRING: null, string, number, object, or other."""
    schema = F.schema_of_variant(value)
    numbers = schema.isin("BIGINT", "DOUBLE", "FLOAT") | schema.startswith("DECIMAL")
    return (
        F.when(value.isNull() | (schema == "VOID"), NULL)
        .when(schema == "STRING", "string")
        .when(numbers, "number")
        .when(schema.startswith("OBJECT"), "object")
        .otherwise(OTHER)
    )


def seen(sample: Column | None = None) -> list[Column]:
    """What is kept of the events of an observation, as aggregates; `sample`: a value of theirs, STRING."""
    place = [F.col(name) for name in ("commit_ts", "topic", "partition", "offset")]
    time = F.unix_millis("record_timestamp").alias("record_ms")
    value = (F.lit(None).cast("string") if sample is None else sample).alias("sample_value")
    return [
        F.count("*").alias("events"),
        F.min("batch").alias("first_batch"),
        F.min(F.struct(*place, time, value)).alias("first"),
        F.max(F.struct(*place)).alias("last"),
    ]


def seen_of(row: Row) -> Observed:
    """`SEEN`, out of a row of these aggregates."""
    first = row["first"].asDict()
    sample = first.pop("sample_value")
    return {
        "events": row["events"],
        "first_batch": row["first_batch"],
        "first": first,
        "last": row["last"].asDict(),
        "sample_value": sample,
    }


def added(one: Observed | None, other: Observed) -> Observed:
    """`SEEN` of the events of both."""
    if one is None:
        return other
    first = min(one, other, key=lambda o: _order(o["first"]))
    return {
        "events": one["events"] + other["events"],
        "first_batch": min(one["first_batch"], other["first_batch"]),
        "first": first["first"],
        "last": max(one["last"], other["last"], key=_order),
        "sample_value": first["sample_value"],
    }


def _order(place: Mapping[str, Any]) -> tuple[Any, ...]:
    return place["commit_ts"] or 0, place["topic"], place["partition"], place["offset"]


def broken_rules(observed: Sequence[Observed], what: Sequence[str], schema: pa.DataFrameSchema) -> list[str]:
    """Run a schema over observations, their columns `what`: for each of them `OK`, or what of the schema it breaks."""
    if not observed:
        return []
    frame = pd.DataFrame([[row.get(name) for name in what] for row in observed], columns=list(what))
    broken: dict[int, list[str]] = {}
    try:
        schema.validate(frame, lazy=True)
    except pa.errors.SchemaErrors as errors:
        for failure in errors.failure_cases.to_dict("records"):
            broken.setdefault(int(failure["index"]), []).append(str(failure["check"]))
    return ["; ".join(dict.fromkeys(broken.get(n, [OK]))) for n in range(len(observed))]
