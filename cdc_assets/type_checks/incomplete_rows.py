"""Judge the observations of columns that row images lack: left out of every row by a filter, or lost in some rows."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.type_checks.row_images import Name, Observation
from cdc_assets.type_checks.values import DESCRIBED, LEFT_OUT, ValueClass

# The verdict on a column that rows lack, as long as no row of the table has it.
LEFT_OUT_OF_ALL = "ok: no row of the table has the column"
# The classes of observations of such columns, each with its verdict.
LACKING: Mapping[str, str] = {LEFT_OUT: LEFT_OUT_OF_ALL, ValueClass.NO_KEY: str(ValueClass.NO_KEY)}
# The classes of observations that have no value in a row.
_NO_VALUE = frozenset({*LACKING, DESCRIBED, ValueClass.MISSING, ValueClass.CORRUPTED})
# What to do about a table that such a column blocks.
ADVICE = (
    "Have the source send complete rows (MySQL: binlog_row_image=FULL, for every session), and load the table again from a "
    "dump that is taken after that; or set type_mapping: warn for the table, which turns the missing values into NULL"
)


def columns_in_rows(observations: Iterable[Observation]) -> dict[Name, dict[str, int]]:
    """Return the columns that rows of each table had, in the form of `row_images.Earlier`."""
    first_commit_ts: dict[Name, dict[str, int]] = {}
    for o in observations:
        if _class_of(o) not in _NO_VALUE:
            of_table = first_commit_ts.setdefault(_table_of(o), {})
            column, at = o["column"].lower(), o["first"]["commit_ts"]
            of_table[column] = min(at, of_table.get(column, at))
    return first_commit_ts


def lacks_column(observation: Observation) -> bool:
    """Return whether an observation is of a column that rows lack."""
    return _class_of(observation) in LACKING


def refuse_incomplete_columns(
    observations: list[Observation],
    schema_rows: Iterable[Mapping[str, Any]],
    before: Callable[[Iterable[Name]], list[Observation]],
) -> list[Observation]:
    """Refuse the columns that some rows of a table lack and others have.

    Args:
        observations: the observations of this run.
        schema_rows: rows of table_schemas.
        before: names of tables -> their observations of earlier runs.

    Returns:
        The observations, with the verdict on such columns. An observation of an earlier run is added, without events, if
        rows of this run have the column.
    """
    earlier = before({_table_of(o) for o in observations})
    if not any(_class_of(o) == LEFT_OUT for o in (*observations, *earlier)):
        return observations
    dump_positions = {_table_of(r): r["commit_ts"] for r in schema_rows if r["topic"] == LOAD_TOPIC}
    in_rows = {(_table_of(o), o["column"].lower()) for o in (*observations, *earlier) if _class_of(o) not in _NO_VALUE}

    def is_incomplete(o: Observation) -> bool:
        has_value = (_table_of(o), o["column"].lower()) in in_rows
        # A dump contains the outcome of the events until its position.
        is_after_dump = o["last"]["commit_ts"] > dump_positions.get(_table_of(o), -1)
        return _class_of(o) == LEFT_OUT and has_value and is_after_dump

    def refuse(o: Observation) -> Observation:
        since = o["first"]["commit_ts"]
        return o | {
            "code_verdict": f"not in the row, though other rows of the table have it, from commit_ts {since} on"
        }

    refused_again = [refuse(o) | {"events": 0} for o in earlier if is_incomplete(o)]
    return [refuse(o) if is_incomplete(o) else o for o in observations] + refused_again


def _table_of(row: Mapping[str, Any]) -> Name:
    return row["database"], row["table"]


def _class_of(observation: Observation) -> Any:  # noqa: ANN401 -- JSON
    return json.loads(observation["stated"]).get("value_class")
