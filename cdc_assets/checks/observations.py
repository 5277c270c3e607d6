"""The mapping checks: what messages say of each column's type, held against the reference of their protocol.

The events are boiled down to distinct *observations* first (a table's column, its type, its code, the class of its value),
which are few; pandera schemas are run on those.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import pandas as pd
import pandera.pandas as pa
from pyspark.sql import DataFrame

from cdc_assets.checks.verdict import SHOWN, Verdict
from cdc_assets.mysql_types.types import MySQLType, UnknownType, parse_type

ANY, NULL, OUTSIDE = "any", "null", "outside every range"
# Of every observation: what it is about, and how often and where it was seen, with one value as a sample.
WHERE = ["database", "table", "column"]
SEEN = ["events", "topic", "partition", "offset", "sample_value"]


class Rules(NamedTuple):
    """What a protocol prescribes.

    Attributes:
        observe: change events -> observations: `WHERE`, `mysql_type`, columns of the protocol's own, `SEEN`.
        codes: the schema that observations keep to.
        called: what the codes are called.
        what: the columns that make up an observation.
        expected: an observation -> what is shown beside it: what the reference has.
    """

    observe: Callable[[DataFrame], pd.DataFrame]
    codes: pa.DataFrameSchema
    called: str
    what: tuple[str, ...]
    expected: Callable[[Mapping[str, Any]], dict[str, Any]]


def parsed(text: str | None) -> MySQLType | None:
    """The MySQL type of a text; None when it is none."""
    try:
        return parse_type(text or "")
    except UnknownType:
        return None


def range_name(low: int, high: int) -> str:
    """The class of the values from `low` to `high`."""
    return f"{low}..{high}"


def mysql_type_schema() -> pa.DataFrameSchema:
    """Every type text is one that MySQL has."""
    known = pa.Check(
        lambda s: s.map(lambda t: parsed(t) is not None), name="known_mysql_type", error="not a MySQL type"
    )
    return pa.DataFrameSchema({"mysql_type": pa.Column(str, known, nullable=True)})


def judge(observed: pd.DataFrame, schema: pa.DataFrameSchema, rules: Rules, what: str) -> Verdict:
    """Run a schema over observations; each broken row is shown with its coordinates and what was expected."""
    broken: dict[int, list[str]] = {}
    try:
        schema.validate(observed, lazy=True)
    except pa.errors.SchemaErrors as errors:
        for failure in errors.failure_cases.to_dict("records"):
            broken.setdefault(int(failure["index"]), []).append(str(failure["check"]))
    report = [_reported(row, broken.get(n, ["ok"]), rules) for n, row in enumerate(observed.to_dict("records"))]
    wrong = [row for n, row in enumerate(report) if n in broken]
    told = f"{len(report)} distinct observations, all as the reference has them." if not wrong else (
        f"{len(wrong)} of {len(report)} observations break the {what} mapping, in {sum(r['events'] for r in wrong)} events."
    )  # fmt: skip
    return Verdict(not wrong, told, wrong[:SHOWN], {"observations": report[: SHOWN * 10]})


def _reported(row: Mapping[Hashable, Any], verdict: list[str], rules: Rules) -> dict[str, Any]:
    """One observation as people read it: what it is, what is wrong with it, then where it was seen."""
    shown: dict[str, Any] = {str(k): None if pd.isna(v) else v for k, v in row.items()}
    what = {name: shown.pop(name) for name in rules.what}
    return what | rules.expected(what) | {"verdict": "; ".join(dict.fromkeys(verdict))} | shown
