"""Validate observations with pandera: which rules each row breaks."""

import subprocess
import sys

import pandas as pd
import pytest

from cdc_assets.type_checks.validation import FAILING_VALUE, OK, find_broken_rules, is_in_table, make_rule_table, pa

pytestmark = pytest.mark.fast


def test_its_import_leaves_the_environment_unchanged() -> None:
    """pandera's import sets SPARK_LOCAL_IP and another variable, which Spark and processes started later would obey."""
    program = (
        "import os; before = dict(os.environ); import cdc_assets.type_checks.rules as o; "
        "assert dict(os.environ) == before, set(os.environ) ^ set(before); print(o.pa.__name__)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.strip() == "pandera.pandas", ended.stderr[-1000:]


PAIRS = make_rule_table({("int", 4), ("bigint", -5)})


class Pairs(pa.DataFrameModel):
    """A model with rules of a column, of each row, and of the whole frame."""

    kind: object = pa.Field(nullable=True)
    code: pd.Int64Dtype = pa.Field(coerce=True)

    @pa.check("kind", name="kind_is_short", error=FAILING_VALUE)
    def kind_is_short(cls, kinds: pd.Series) -> pd.Series:  # noqa: N805 -- pandera's form
        return kinds.str.len() < 7

    @pa.dataframe_check(name="pair", error="no pair")
    def pair(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        return is_in_table(frame, ["kind", "code"], PAIRS)

    @pa.dataframe_check(name="not_too_many", error="too many")
    def not_too_many(cls, frame: pd.DataFrame) -> bool:  # noqa: N805
        return len(frame) < 9


def test_each_row_has_the_rules_that_it_breaks() -> None:
    rows: list[dict[str, object]] = [
        {"kind": "int", "code": 4},
        {"kind": "int", "code": -5},
        {"kind": "bigint"},
        {"code": 4},
    ]
    rows += [{"kind": "smallint", "code": 4}]
    assert find_broken_rules(rows, Pairs) == [OK, "no pair", "no pair; no code", "no pair", "no pair; smallint"]
    assert find_broken_rules([], Pairs) == []


def test_a_rule_of_the_frame_is_broken_by_every_row() -> None:
    assert find_broken_rules([{"kind": "int", "code": 4}] * 9, Pairs) == ["too many"] * 9
