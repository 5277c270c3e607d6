"""Limit the values of a column that may have one of several types."""

import pytest

from cdc_assets.mysql_types.types import parsed
from cdc_assets.type_checks.values import Limits, TextForm, limits_of, widest_limits


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["varchar(20)", "varchar(5)"], Limits(TextForm.TEXT, length=20)),
        (["tinyint", "smallint unsigned"], Limits(TextForm.INTEGER, ranges=(-128, 65535, -128, 65535))),
        (["decimal(10,0)", "decimal(10,4) unsigned"], Limits(TextForm.DECIMAL, length=10, scale=4)),
        (["decimal(10,0)", "decimal"], Limits(TextForm.DECIMAL)),
        (["enum('a','b')", "enum('b','c')"], Limits(TextForm.LABEL, ranges=(0, 2, 0, 2), labels=("a", "b", "c"))),
        (["varchar(20)", "int"], Limits()),
    ],
)
def test_values_of_any_of_the_types_are_right(types: list[str], expected: Limits) -> None:
    assert widest_limits([limits_of(parsed(text)) for text in types]) == expected
