"""Report statements that change a key which only messages state."""

import pytest

from cdc_assets.ddl.actions import Action, AddColumn, AddKey, Column, DropColumn, DropKey, ModifyColumn
from cdc_assets.history.message_keys import may_change_unstated_key, report_key_column
from cdc_assets.history.statements import Ddl, Spot
from cdc_assets.mysql_types.types import parse_type

pytestmark = pytest.mark.fast

T = ("shop", "t")
TYPES = {
    "earlier": [("v", parse_type("varchar(20)"))],
    "latest": [("a", parse_type("date")), ("b", parse_type("int(11)")), ("v", parse_type("varchar(20)"))],
    "later": [("v", parse_type("int"))],
}
KEYS = {"earlier": (1, ["v"]), "latest": (4, ["a", "b"]), "later": (6, ["v"])}
LAYOUTS = [{"layout": text, "commit_ts": at, "key_columns": key} for text, (at, key) in KEYS.items()]


def altered(*actions: Action, key: dict[tuple[str, str], tuple[str, ...]] | None = None) -> Ddl:
    return Ddl("alter", Spot(5), "ALTER", "alter_table", changes=((T, actions),), keys=key or {})


@pytest.mark.parametrize(
    ("action", "column"),
    [
        (DropColumn("B"), "B"),
        (DropColumn("v"), None),
        (ModifyColumn("a", Column("a", "datetime")), "a"),
        (ModifyColumn("a", Column("d", "varchar(20)")), "a"),
        (ModifyColumn("a", Column("a", "date")), None),
        (ModifyColumn("b", Column("b", "bigint")), None),
        (ModifyColumn("v", Column("v", "int")), None),
    ],
)
def test_a_statement_changes_a_column_of_the_key(action: Action, column: str | None) -> None:
    ddl = altered(action)
    assert may_change_unstated_key(T, ddl)
    reports = report_key_column(T, ddl, LAYOUTS, TYPES.__getitem__)
    assert [(r["commit_ts"], r["reload"], f"changes {column}," in r["why"]) for r in reports] == (
        [(5, True, True)] if column else []
    )
    assert report_key_column(T, ddl, LAYOUTS[2:], TYPES.__getitem__) == []


@pytest.mark.parametrize(
    "action", [AddKey("primary", ("a",), "PRIMARY"), DropKey("PRIMARY"), AddColumn(Column("x", "int"))]
)
def test_what_is_reported_otherwise(action: Action) -> None:
    assert not may_change_unstated_key(T, altered(action))
    assert may_change_unstated_key(T, altered(DropColumn("b"), action)) == isinstance(action, AddColumn)
    assert not may_change_unstated_key(T, altered(DropColumn("b"), key={T: ("a", "b")}))
    assert not may_change_unstated_key(("shop", "u"), altered(DropColumn("b")))
