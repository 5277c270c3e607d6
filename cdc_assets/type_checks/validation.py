"""pandera over observations: what of a model's rules each of them breaks."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

# Its import sets variables that a Spark session, and every process started later, would go by.
_BEFORE = dict(os.environ)
import pandera.pandas as pa  # noqa: E402

for _name in os.environ.keys() - _BEFORE.keys():
    del os.environ[_name]

__all__ = ["CASE", "OK", "among", "broken_rules", "pa", "table"]

OK = "ok"
# Of a check with this error the value that failed it tells what is wrong.
CASE = "what is wrong with it"


def broken_rules(rows: Sequence[Mapping[str, Any]], model: type[pa.DataFrameModel]) -> list[str]:
    """Hold rows against a model: for each of them `OK`, or the errors of the checks that it breaks.

    A column that a row lacks is None there.
    """
    if not rows:
        return []
    names = list(model.to_schema().columns)
    frame = pd.DataFrame([[row.get(name) for name in names] for row in rows], columns=names)
    broken: dict[int, list[str]] = {}
    try:
        model.validate(frame, lazy=True)
    except pa.errors.SchemaErrors as errors:
        for failure in errors.failure_cases.to_dict("records"):
            # What is wrong with the whole has no row.
            of = range(len(rows)) if pd.isna(failure["index"]) else [int(failure["index"])]
            for n in of:
                broken.setdefault(n, []).append(_told(failure))
    return ["; ".join(dict.fromkeys(broken.get(n, [OK]))) for n in range(len(rows))]


def _told(failure: Mapping[str, Any]) -> str:
    if failure["check"] == "not_nullable":
        return f"no {failure['column']}"
    return str(failure["failure_case"] if failure["check"] == CASE else failure["check"])


def table(rows: Iterable[tuple[Any, ...]]) -> pd.MultiIndex:
    """A rule that is a table, for `among`."""
    return pd.MultiIndex.from_tuples(sorted(rows, key=repr))


def among(frame: pd.DataFrame, columns: Sequence[str], rule: pd.MultiIndex) -> pd.Series:
    """Return whether the values of these columns are a row of a table, BOOLEAN a row.

    A row with a None in one of the columns is none of the table: a rule that permits a missing value says so itself.
    """
    complete = frame[list(columns)].notna().all(axis=1)
    is_row = pd.MultiIndex.from_frame(frame[list(columns)].astype(object)).isin(rule)
    return pd.Series(is_row, index=frame.index) & complete
