"""Which columns a table had during a span."""

import pytest

from cdc_assets.type_checks.declared_types import make_schema_lookup


def row(commit_ts: int, column: str | None) -> dict[str, object]:
    columns = None if column is None else [{"name": column}]
    return {"database": "shop", "table": "t", "commit_ts": commit_ts, "columns": columns}


SCHEMAS = [row(10, "a"), row(20, "b"), row(20, None), row(20, "c"), row(30, "d")]


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((5, 9), []),
        ((11, 19), ["a"]),
        ((15, 20), ["a", "b", "c"]),
        # A clock of seconds does not show which of two statements came last: tables that swap their names.
        ((25, 29), ["b", "c"]),
        ((25, 30), ["b", "c", "d"]),
        ((31, 40), ["d"]),
    ],
)
def test_the_columns_of_a_span(span: tuple[int, int], expected: list[str]) -> None:
    lookups = make_schema_lookup(SCHEMAS)("shop", "t", span)
    assert [name for columns in lookups for name in columns] == expected
