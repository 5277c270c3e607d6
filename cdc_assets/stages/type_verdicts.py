"""Observations of column types: check events against the type rules of their protocol, and read the verdicts."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cdc_assets.config import Feed
from cdc_assets.mysql_types.jdbc import jdbc_text
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import UnprovenSetting
from cdc_assets.type_checks.incomplete_rows import (
    ADVICE,
    LACKING,
    LEFT_OUT_OF_ALL,
    columns_in_rows,
    lacks_column,
    refuse_incomplete_columns,
)
from cdc_assets.type_checks.occurrences import OCCURRENCE_FIELDS
from cdc_assets.type_checks.row_images import Name, Observation
from cdc_assets.type_checks.values import ValueClass

# The columns of type_observations that identify an observation, and those that have a mapping's verdict.
IDENTITY = ("database", "table", "column", "mysql_type", "stated")
VERDICTS = ("mysql_type_verdict", "code_verdict")
_OK, _ACCEPTED = "ok", "accepted: the feeds file gives the column's type"
# The classes of values that the assumed setting of the connector cannot have written.
_NOT_AS_WRITTEN = frozenset({ValueClass.OUTSIDE, ValueClass.UNREADABLE, ValueClass.TOO_LONG})
# The verdicts that break no mapping.
PASSING_VERDICTS = frozenset({_OK, _ACCEPTED, LEFT_OUT_OF_ALL})


def check_event_types(
    events: DataFrame,
    schema_rows: Sequence[Mapping[str, Any]],
    feed: Feed,
    before: Callable[[Iterable[Name]], list[Observation]] = lambda _: [],
) -> list[Observation]:
    """Return what events state of their columns' types, with the verdicts of their protocol's type rules.

    Args:
        events: rows of change_events.
        schema_rows: rows of table_schemas.
        feed: the feed of the events.
        before: names of tables -> their observations of earlier runs.

    Returns:
        Rows of type_observations without the column `batch`.
    """
    # pandera is slow to import, and a run without events does not need it.
    from cdc_assets.type_checks.rules import MySQLTypes  # noqa: PLC0415
    from cdc_assets.type_checks.validation import find_broken_rules  # noqa: PLC0415

    rules, columns = protocol_of(feed).type_rules(feed), feed.columns
    observed = rules.observe(events, schema_rows, columns, lambda names: columns_in_rows(before(names)))
    own_fields = [name for name in rules.fields if name not in IDENTITY]
    of_values = [row for row in observed if row["value_class"] not in LACKING]
    verdicts = [find_broken_rules(of_values, model) for model in (MySQLTypes, rules.model)]
    checked = [
        _make_observation(
            row, own_fields, rules.expected(row), [_accept_given_type(row, verdict, columns) for verdict in both]
        )
        for row, *both in zip(of_values, *verdicts, strict=True)
    ]
    lacking = [
        _make_observation(row, own_fields, "complete rows", [_OK, LACKING[row["value_class"]]])
        for row in observed
        if row["value_class"] in LACKING
    ]
    return refuse_incomplete_columns([*checked, *lacking], schema_rows, before)


def _make_observation(
    row: Observation, own_fields: Sequence[str], expected: str, verdicts: Sequence[str]
) -> Observation:
    """Return a row of type_observations; `row`: as the protocol's rules return it, with the protocol's own fields."""
    columns = {name: row[name] for name in ("database", "table", "column", "mysql_type", *OCCURRENCE_FIELDS)}
    own = {"stated": json.dumps({name: row.get(name) for name in own_fields}), "expected": expected}
    return columns | own | dict(zip(VERDICTS, verdicts, strict=True))


def _accept_given_type(row: Observation, verdict: str, columns: Mapping[str, str]) -> str:
    """Return the verdict on a column; a type from the feeds file overrides what messages state, if it holds the value."""
    is_given = ".".join(row[name] for name in ("database", "table", "column")) in columns
    return _ACCEPTED if is_given and verdict != _OK and row["value_class"] not in set(ValueClass) else verdict


def identity_of(observation: Observation) -> tuple[Any, ...]:
    """Return the values that identify an observation."""
    return tuple(observation[name] for name in IDENTITY)


def breaks_mapping(observation: Observation, verdict: str) -> bool:
    """Return whether an observation breaks the mapping whose verdict is in the column `verdict`."""
    return observation[verdict] not in PASSING_VERDICTS


def breaks_any_mapping(observation: Observation) -> bool:
    """Return whether an observation breaks one of the two mappings."""
    return any(breaks_mapping(observation, verdict) for verdict in VERDICTS)


def advice_on(observation: Observation) -> str | None:
    """Return what to do about an observation that breaks a mapping; None: give the column's type, as for most of them."""
    if lacks_column(observation):
        return ADVICE
    stated = json.loads(observation["stated"])
    setting, _, mode = (stated.get("assumed") or "").partition("=")
    if not setting or stated["value_class"] not in _NOT_AS_WRITTEN:
        return None
    return (
        f"Messages do not state how the connector writes values, and {setting}={mode} does not fit them: state the "
        f"connector's own {setting} under connector_settings: of the feed in the feeds file"
    )


def find_unproven_settings(feed: Feed, stored: pa.Table, new: list[Observation]) -> list[UnprovenSetting]:
    """Return the connector's settings by which values may have been read wrongly, because nothing proves them.

    Args:
        feed: the feed.
        stored: the observations of earlier runs.
        new: the observations of this run.
    """
    protocol = protocol_of(feed)
    if not protocol.assumes_settings:
        return []
    # Most observations are of columns whose messages state everything.
    earlier = stored.filter(pc.match_substring(stored["stated"], '"assumed": "')).to_pylist() if stored.num_rows else []
    taken = (o for o in [*earlier, *new] if feed.takes(o["database"], o["table"]))
    return protocol.find_unproven_settings(taken)


def describe_observation(observation: Observation, verdict: str, events_in_run: int = 0) -> dict[str, Any]:
    """Return an observation as checks show it to people: the column, its types, the verdict, the first and last event.

    Args:
        observation: a row of type_observations.
        verdict: the column whose verdict is shown.
        events_in_run: the number of events of the latest run that show it.
    """
    column = {name: observation[name] for name in ("database", "table", "column", "mysql_type")}
    stated = {name: value for name, value in json.loads(observation["stated"]).items() if value is not None}
    if "jdbc_code" in stated:
        stated["jdbc_code"] = jdbc_text(stated["jdbc_code"])
    first, last = observation["first"], observation["last"]
    return (
        column
        | stated
        | {"expected": observation["expected"], "verdict": observation[verdict]}
        | {"events": observation["events"], "events_in_this_run": events_in_run}
        | {name: first[name] for name in ("topic", "partition", "offset", "commit_ts")}
        | {"sample_value": observation["sample_value"]}
        | {f"last_{name}": last[name] for name in ("topic", "partition", "offset", "commit_ts")}
    )
