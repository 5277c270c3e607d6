"""Check that the comparison of a history with the model can fail: a right history, written by hand, is damaged."""

from typing import Any

import pytest

from cdc_assets_tests.laws.evolution import positions_of, wrong_states, wrong_versions
from cdc_assets_tests.laws.mysql_model import ID, INT, Add, Column, Model, Modify, Rename, not_null, varchar

T = ("shop", "t")


def life() -> tuple[Model, list[dict[str, Any]]]:
    """Return a model of two rows and three statements, and its right history."""
    m = Model()
    m.create("t", [ID, Column("a", INT)])
    one, two = m.insert("t", id=1, a=1), m.insert("t", id=2, a=2)
    m.alter("t", Add(not_null("b", INT, "5")))
    changed = m.update("t", 1, b=6)
    modified = m.alter("t", Modify(Column("a", varchar(9))))
    m.alter("t", Rename("b", "c"))
    text, deleted = m.update("t", 1, a="x"), m.delete("t", 2)
    until = f"a__until_{modified}"

    def row(of: tuple[int, int | None, str, str | None], **values: Any) -> dict[str, Any]:
        named = zip(("_cdc_from_ts", "_cdc_to_ts", "_cdc_op", "_cdc_closed_by"), of, strict=True)
        return {"id": None, "a": None, until: None, "c": None} | values | dict(named)

    return m, [
        row((one, changed, "insert", "update"), id=1, c=5, **{until: 1}),
        row((changed, text, "update", "update"), id=1, c=6, a="1", **{until: 1}),
        row((text, None, "update", None), id=1, c=6, a="x"),
        row((two, deleted, "insert", "delete"), id=2, c=5, a="2", **{until: 2}),
    ]


def find_differences(model: Model, rows: list[dict[str, Any]]) -> list[str]:
    below = model.states[-1][0] + 2
    return wrong_states(model, T, rows, positions_of(model, below)) + wrong_versions(model, T, rows, below)


def test_the_right_history_is_right() -> None:
    assert find_differences(*life()) == []


@pytest.mark.parametrize("row", range(4))
def test_a_missing_version_is_reported(row: int) -> None:
    model, rows = life()
    assert find_differences(model, rows[:row] + rows[row + 1 :])


@pytest.mark.parametrize("row", range(4))
def test_an_extra_version_is_reported(row: int) -> None:
    model, rows = life()
    cut = rows[row]["_cdc_from_ts"] + 1
    halves = [rows[row] | {"_cdc_to_ts": cut}, rows[row] | {"_cdc_from_ts": cut}]
    assert find_differences(model, rows[:row] + halves + rows[row + 1 :])


@pytest.mark.parametrize("row", range(4))
def test_a_wrong_value_is_reported(row: int) -> None:
    """The value is wrong at a position at which a reader sees it."""
    model, rows = life()
    seen = 0
    for column, value in rows[row].items():
        if value is not None:
            others = [value + 1] if isinstance(value, int) else [value + "x"]
            for other in others + [None] * (column != "_cdc_from_ts"):
                spoilt = [*rows[:row], rows[row] | {column: other}, *rows[row + 1 :]]
                assert find_differences(model, spoilt), (column, other)
                seen += 1
    assert seen >= 8


def test_a_type_changed_in_place_is_reported() -> None:
    """As text the values are equal, but the table had numbers at that position."""
    model, rows = life()
    in_place = [
        {c: v for c, v in r.items() if "__until" not in c}
        | {"a": r["a"] or str(r[next(c for c in r if "__until" in c)])}
        for r in rows
    ]
    assert find_differences(model, in_place)
