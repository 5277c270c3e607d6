"""Compare what statements state about columns with the column layouts of rows, which may contradict it."""

import pytest

from cdc_assets.ddl.actions import Action, AddColumn, Column, DropColumn, ModifyColumn, RenameColumn
from cdc_assets.history.contradictions import (
    Suspicion,
    collect_stated_columns,
    collect_undeclared_columns,
    find_suspicions,
    fits,
)
from cdc_assets.history.statements import Ddl, Spot
from cdc_assets.mysql_types.types import parse_type
from cdc_assets.protocols.base import WireColumn

pytestmark = pytest.mark.fast

HAVE, LACK, TYPE = "rows have the column", "rows lack the column", "rows have another type"
T = ("shop", "t")
ID, V, N = Column("id", "bigint"), Column("v", "varchar(20)"), Column("n", "int")


def created(at: int, *columns: Column) -> Ddl:
    changes = ((T, tuple(AddColumn(c) for c in columns)),)
    return Ddl(f"create {at}", Spot(at), "CREATE", "create_table", changes=changes, shapes={T: columns})


def altered(at: int, *columns: Column) -> Ddl:
    return Ddl(f"alter {at}", Spot(at), "ALTER", "alter_table", changes=((T, ()),), shapes={T: columns})


def kind_of(suspicion: Suspicion) -> str:
    if suspicion.wire_type is None:
        return LACK
    return HAVE if suspicion.stated.column is None else TYPE


def suspected(statements: list[Ddl], last: int, **types: str) -> set[tuple[str, str, int]]:
    """Return what rows up to `last` may contradict: the kind, the column, and the statement's commit_ts."""
    layout = [WireColumn(name, type_text) for name, type_text in types.items()], last
    suspicions = find_suspicions({1: layout}, collect_stated_columns(T, statements), lambda _: False)
    return {(kind_of(each), each.stated.name, each.stated.ddl.spot.commit_ts) for each in suspicions}


def test_rows_that_fit_the_table_contradict_nothing() -> None:
    statements = [created(1, ID, V), altered(2, ID, V, N)]
    assert suspected(statements, 9, id="bigint", v="varchar", n="int") == set()


def test_a_dropped_column_still_comes() -> None:
    assert suspected([created(1, ID, V, N), altered(2, ID, V)], 9, id="bigint", v="varchar", N="int") == {
        (HAVE, "n", 2)
    }


def test_rows_up_to_the_statement_do_not_count() -> None:
    assert suspected([created(1, ID, V, N), altered(2, ID, V)], 2, id="bigint", v="varchar", n="int") == set()


def test_an_added_column_comes_in_no_row() -> None:
    assert suspected([created(1, ID, V), altered(2, ID, V, N)], 9, id="bigint", v="varchar") == {(LACK, "n", 2)}


def test_a_filter_may_leave_out_an_added_column() -> None:
    assert suspected([created(1, ID, V), altered(2, ID, V, N)], 9, id="bigint") == set()


def test_a_generated_column_need_not_come() -> None:
    generated = Column("n", "int", generated=True, virtual=True)
    assert suspected([created(1, ID, V), altered(2, ID, V, generated)], 9, id="bigint", v="varchar") == set()


def test_a_statement_counts_until_the_next_about_the_column() -> None:
    stated = collect_stated_columns(
        T, [created(1, ID, V, N), altered(2, ID, V), altered(3, ID, V, Column("n", "date"))]
    )
    spans = {(s.name, s.ddl.spot.commit_ts, s.until.spot.commit_ts if s.until else None) for s in stated}
    assert spans == {("id", 1, None), ("v", 1, None), ("n", 1, 2), ("n", 2, 3), ("n", 3, None)}


def test_a_table_that_is_created_again_has_no_earlier_columns() -> None:
    statements = [created(1, ID, V, N), altered(2, ID, V), created(3, ID, V, N)]
    spans = {
        (s.name, s.ddl.spot.commit_ts, s.until.spot.commit_ts if s.until else None)
        for s in collect_stated_columns(T, statements)
    }
    assert ("n", 2, 3) in spans
    assert {name for name, since, until in spans if (since, until) == (3, None)} == {"id", "v", "n"}


def test_actions_state_the_columns_of_a_table_without_its_create() -> None:
    dropped = Ddl("drop", Spot(2), "ALTER", "alter_table", changes=((T, (DropColumn("N"),)),))
    added = Ddl("add", Spot(2), "ALTER", "alter_table", changes=((T, (AddColumn(V),)),))
    drop_if_exists = Ddl("drop", Spot(2), "ALTER", "alter_table", changes=((T, (DropColumn("N", if_exists=True),)),))
    assert suspected([dropped], 9, id="bigint", n="int") == {(HAVE, "n", 2)}
    assert suspected([drop_if_exists], 9, id="bigint", n="int") == set()
    assert suspected([added], 9, id="bigint") == set(), "a filter may leave it out"
    assert suspected([added], 9, id="bigint", v="date") == {(TYPE, "v", 2)}


INT_V = ModifyColumn("n", Column("v", "int"))


@pytest.mark.parametrize(
    ("actions", "types", "expected"),
    [
        ([DropColumn("v"), RenameColumn("n", "V")], {"v": "int"}, set()),
        ([DropColumn("v"), RenameColumn("n", "V")], {"v": "int", "n": "int"}, {(HAVE, "n", 2)}),
        ([DropColumn("v"), INT_V], {"v": "int"}, set()),
        ([INT_V, DropColumn("v")], {"v": "date"}, {(TYPE, "v", 2)}),
        ([INT_V, DropColumn("v")], {"v": "int", "n": "int"}, {(HAVE, "n", 2)}),
        ([AddColumn(N), DropColumn("n")], {"n": "int"}, set()),
        ([RenameColumn("v", "n"), RenameColumn("n", "v")], {"v": "int", "n": "date"}, set()),
        ([ModifyColumn("v", N), INT_V], {"v": "int", "n": "int"}, set()),
    ],
)
def test_a_column_may_get_the_name_that_another_one_loses(
    actions: list[Action], types: dict[str, str], expected: set[tuple[str, str, int]]
) -> None:
    added = Ddl("add", Spot(1), "ALTER", "alter_table", changes=((T, (AddColumn(V),)),))
    altered = Ddl("alter", Spot(2), "ALTER", "alter_table", changes=((T, tuple(actions)),))
    assert {each for each in suspected([added, altered], 9, id="bigint", **types) if each[2] == 2} == expected
    earlier = [each for each in collect_stated_columns(T, [added, altered]) if each.name == "v" and each.ddl is added]
    assert [each.until for each in earlier] == [None if actions[0] == AddColumn(N) else altered]


def undeclared(statements: list[Ddl], *names: str) -> set[tuple[str, int, int | None]]:
    """Return the columns of a layout that no statement has added, each with the statements between which this holds."""
    columns = collect_undeclared_columns(T, statements, [[WireColumn(name, "int") for name in names]])
    return {(c.name, c.ddl.spot.commit_ts, c.until.spot.commit_ts if c.until else None) for c in columns}


def test_a_column_comes_that_no_statement_has_given_the_table() -> None:
    assert undeclared([created(1, ID, V)], "id", "V", "N") == {("n", 1, None)}
    assert undeclared([created(1, ID, V), altered(2, ID, V, N)], "id", "v", "n") == set()


def test_no_statement_gives_a_table_its_hidden_key() -> None:
    assert undeclared([created(1, V)], "v", "__#alibaba_rds_row_id#__", "_drds_implicit_id_") == set()


def test_a_column_that_a_statement_drops_was_given() -> None:
    assert undeclared([created(1, ID, V, N), altered(2, ID, V)], "id", "v", "n") == set()


def test_nothing_is_undeclared_where_no_statement_states_all_columns() -> None:
    added = Ddl("add", Spot(2), "ALTER", "alter_table", changes=((T, (AddColumn(V),)),))
    assert undeclared([added], "id", "v", "n") == set()


def test_each_table_of_a_name_has_columns_of_its_own() -> None:
    dropped = Ddl("drop", Spot(3), "DROP", "drop_table", changes=((T, ()),))
    assert undeclared([created(1, ID), dropped, created(5, ID, N)], "id", "n") == {("n", 1, 3)}


@pytest.mark.parametrize(
    ("wire", "declared", "before", "is_fit"),
    [
        ("int", "int", None, True),
        ("int(11)", "int", None, True),
        ("tinyint", "bool", None, True),
        ("int", "bigint", None, False),
        ("int", "int unsigned", None, False),
        ("decimal", "decimal(10,2)", None, True),
        ("decimal(10,2)", "decimal(12,2)", None, False),
        ("varchar", "varchar(40)", "varchar(20)", True),
        ("varchar", "text", "varchar(20)", False),  # the older type
        ("mediumtext", "varchar(70000)", None, True),  # MySQL changes the type so
        ("longtext", "json", None, True),  # MariaDB's type
        ("blob", "text", None, True),  # in the character set `binary`
        ("blob", "text", "blob", False),
        ("varchar", "varbinary(20)", None, False),
        ("date", "varchar(20)", None, False),
        ("enum('a','b')", "enum", None, True),
    ],
)
def test_which_types_of_messages_stand_for_a_declared_type(
    wire: str, declared: str, before: str | None, is_fit: bool
) -> None:
    assert fits(parse_type(wire), parse_type(declared), parse_type(before) if before else None) is is_fit
