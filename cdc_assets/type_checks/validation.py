"""pandera over observations: which rules of a model each observation breaks."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

# pandera's import sets environment variables for Spark, which a session and every process started later would obey.
_VARIABLES_BEFORE = dict(os.environ)
import pandera.pandas as pa  # noqa: E402

for _name in os.environ.keys() - _VARIABLES_BEFORE.keys():
    del os.environ[_name]

__all__ = ["FAILING_VALUE", "OK", "find_broken_rules", "is_in_table", "make_rule_table", "pa"]

OK = "ok"
# The error of a check whose failing values say themselves what is wrong.
FAILING_VALUE = "what is wrong with it"


def find_broken_rules(rows: Sequence[Mapping[str, Any]], model: type[pa.DataFrameModel]) -> list[str]:
    """Check rows by a model.

    Args:
        rows: a column that a row lacks is None.
        model: the rules.

    Returns:
        For each row `OK`, or the errors of the checks that it breaks.
    """
    if not rows:
        return []
    names = list(model.to_schema().columns)
    frame = pd.DataFrame([[row.get(name) for name in names] for row in rows], columns=names)
    errors_by_row: dict[int, list[str]] = {}
    try:
        model.validate(frame, lazy=True)
    except pa.errors.SchemaErrors as errors:
        for failure in errors.failure_cases.to_dict("records"):
            # A failure of the whole frame has no index.
            failing = range(len(rows)) if pd.isna(failure["index"]) else [int(failure["index"])]
            for number in failing:
                errors_by_row.setdefault(number, []).append(_describe_failure(failure))
    return ["; ".join(dict.fromkeys(errors_by_row.get(number, [OK]))) for number in range(len(rows))]


def _describe_failure(failure: Mapping[str, Any]) -> str:
    """Return the error of a row of pandera's `failure_cases`."""
    if failure["check"] == "not_nullable":
        return f"no {failure['column']}"
    return str(failure["failure_case"] if failure["check"] == FAILING_VALUE else failure["check"])


def make_rule_table(rows: Iterable[tuple[Any, ...]]) -> pd.MultiIndex:
    """Return a rule that lists the allowed combinations of values, for `is_in_table`."""
    return pd.MultiIndex.from_tuples(sorted(rows, key=repr))


def is_in_table(frame: pd.DataFrame, columns: Sequence[str], rule_table: pd.MultiIndex) -> pd.Series:
    """Return, for each row of a frame, whether the table has the values of these columns. BOOLEAN.

    The table never has a row with a None in one of the columns: a rule that allows a missing value says so itself.
    """
    is_complete = frame[list(columns)].notna().all(axis=1)
    is_listed = pd.MultiIndex.from_frame(frame[list(columns)].astype(object)).isin(rule_table)
    return pd.Series(is_listed, index=frame.index) & is_complete
