"""Names of a history table's columns, and their names in the source."""

import pytest

from cdc_assets.assets.checks.history import column_schema_change
from cdc_assets.lakehouse.history import history_name, source_name

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("column", ["id", "v", "_cdc_op", "_CDC_x", "_source", "source_cdc_x"])
def test_a_columns_source_name_follows_from_its_history_name(column: str) -> None:
    assert source_name(history_name(column)) == column
    # docs/schema-evolution.md gives this name to a column whose name a new column has now.
    assert source_name(f"{history_name(column)}__until_449611344921600000") == column


def test_changed_columns_are_listed() -> None:
    before = {"id": "int", "v": "string", "gone": "date"}
    assert column_schema_change(None, before).passed
    assert column_schema_change(before, dict(before)).passed
    verdict = column_schema_change(before, {"id": "bigint", "v": "string", "new": "double"})
    assert not verdict.passed
    assert verdict.violations == [
        {"column": "id", "before": "int", "now": "bigint"},
        {"column": "gone", "before": "date", "now": None},
        {"column": "new", "before": None, "now": "double"},
    ]
