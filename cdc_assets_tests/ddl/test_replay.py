"""Replay statements: which tables names mean, what IF [NOT] EXISTS did, and in which order statements took effect."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cdc_assets.ddl.renames import UnorderedError, order_renames
from cdc_assets.ddl.replay import Outcome, SentStatement, TableRows, order_by_effect, replay
from cdc_assets.ddl.resolve import Name

pytestmark = pytest.mark.fast


def outcomes(
    *statements: tuple[str, str],
    rows: Mapping[Name, TableRows] | None = None,
    of_tidb: bool = False,
    read_stated: Any = None,
) -> list[Outcome]:
    """Return the outcomes of statements, (database of the message, text), at positions 10, 20, 30, ...

    The last one's message states the schemas that `read_stated` returns.
    """
    sent = [SentStatement(10 * n, database, None, text) for n, (database, text) in enumerate(statements, start=1)]
    if read_stated is not None:
        sent[-1] = replace(sent[-1], read_stated=read_stated)
    numbered, _ = replay(sent, rows or {}, exact=True, of_tidb=of_tidb)
    return [outcome for _, outcome in sorted(numbered, key=lambda each: each[0])]


def tables(outcome: Outcome) -> list[str]:
    return [".".join(name) for name in outcome.affected]


CREATE = ("app", "CREATE TABLE log (id INT PRIMARY KEY, v INT)")
# The statements before, the statement, the tables that it changes; None: not certain.
NAMES = {
    "session": ([CREATE], ("app", "ALTER TABLE log ADD w INT"), ["app.log"]),
    "no database": ([CREATE], ("", "ALTER TABLE log ADD w INT"), ["app.log"]),
    "no database, two tables": ([CREATE, ("b", "CREATE TABLE log (id INT)")], ("", "TRUNCATE log"), None),
    "no database, no such table": ([CREATE], ("", "ALTER TABLE other ADD w INT"), [".other"]),
    "of the new name": ([CREATE], ("arch", "RENAME TABLE log TO arch.old"), ["app.log", "arch.old"]),
    "of the new name, by ALTER": ([CREATE], ("arch", "ALTER TABLE log RENAME arch.old"), ["app.log", "arch.old"]),
    "of the first name": ([CREATE, ("b", "CREATE TABLE x (id INT)")], ("b", "DROP TABLE b.x, log"), ["b.x", "app.log"]),
    "of the pattern": ([CREATE], ("b", "CREATE TABLE b.x LIKE log"), ["b.x"]),
    "of the new name, two tables": (
        [CREATE, ("arch", "CREATE TABLE log (id INT)")], ("arch", "RENAME TABLE log TO arch.old"), None
    ),
    "another case": ([CREATE], ("APP", "DROP TABLE Log"), ["app.log"]),
    "another case, two tables": (
        [CREATE, ("app", "CREATE TABLE LOG (id INT)")], ("app", "TRUNCATE Log"), ["app.Log"]
    ),
    "exactly, two tables": ([CREATE, ("app", "CREATE TABLE LOG (id INT)")], ("app", "TRUNCATE LOG"), ["app.LOG"]),
    "IF EXISTS in another case": ([CREATE], ("app", "DROP TABLE IF EXISTS Log"), None),
    "IF EXISTS in another case, as before": (
        [CREATE, ("app", "TRUNCATE Log")], ("app", "DROP TABLE IF EXISTS LOG"), ["app.log"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", NAMES)
def test_names(kind: str) -> None:
    before, statement, expected = NAMES[kind]
    *_, last = outcomes(*before, statement)
    if expected is None:
        assert (last.statement, bool(last.error)) == (None, True)
        assert set(tables(last)) & {"app.log", "app.LOG", "b.log", "arch.log"}, "the tables that it may change"
    else:
        assert (last.error, tables(last)) == (None, expected)


@pytest.mark.parametrize(
    ("text", "affected"),
    [
        ("RENAME TABLE log TO arch.log", ["app.log", "arch.log"]),
        ("ALTER TABLE log RENAME Arch.Log", ["app.log", "arch.log"]),
        ("CREATE TABLE arch.log LIKE log", ["arch.log"]),
    ],
)
def test_no_table_gets_the_name_that_it_has(text: str, affected: list[str]) -> None:
    rows = {("app", "log"): TableRows(5), ("arch", "log"): TableRows(95)}
    *_, last = outcomes(CREATE, ("arch", text), rows=rows)
    assert (last.error, tables(last)) == (None, affected)
    if last.statement and last.statement.like:
        assert last.statement.like == ("app", "log")


def test_a_table_that_the_feed_does_not_have_gets_a_name_in_another_database() -> None:
    (renamed,) = outcomes(("arch", "RENAME TABLE log TO arch.log"), rows={("arch", "log"): TableRows(95)})
    assert renamed.error
    assert tables(renamed) == ["arch.log"]
    (created,) = outcomes(("arch", "CREATE TABLE arch.log LIKE log"), rows={("arch", "log"): TableRows(95)})
    assert (created.error, tables(created)) == (None, ["arch.log"])


def test_rows_show_the_letter_case_of_names() -> None:
    rows = {("shop", "ord1"): TableRows(15), ("shop", "old"): TableRows(35)}
    texts = (
        "CREATE TABLE Ord1 (id INT)",
        "ALTER TABLE ORD1 ADD v INT",
        "RENAME TABLE Ord1 TO Old",
        "RENAME TABLE Old TO Next",
    )
    results = outcomes(*(("Shop", text) for text in texts), rows=rows)
    assert [tables(each) for each in results] == [
        ["shop.ord1"], ["shop.ord1"], ["shop.ord1", "shop.old"], ["shop.old", "shop.next"]
    ]  # fmt: skip


def test_an_existing_table_in_another_letter_case_is_another_table() -> None:
    (created,) = outcomes(("shop", "CREATE TABLE Orders (id INT)"), rows={("shop", "orders"): TableRows(5)})
    assert tables(created) == ["shop.Orders"]


CREATE_T = ("shop", "CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY k (a))")


@pytest.mark.parametrize(
    ("text", "action_count"),
    [
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS a INT DEFAULT 5", 0),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS A INT DEFAULT 5, ADD COLUMN IF NOT EXISTS b INT", 1),
        ("ALTER TABLE t DROP COLUMN IF EXISTS b", 0),
        ("ALTER TABLE t MODIFY COLUMN IF EXISTS b BIGINT", 0),
        ("ALTER TABLE t CHANGE COLUMN IF EXISTS a b BIGINT", 1),
        ("ALTER TABLE t RENAME COLUMN IF EXISTS b TO c", 0),
        ("ALTER TABLE t ADD INDEX IF NOT EXISTS k (id)", 0),
        ("ALTER TABLE t ADD PRIMARY KEY IF NOT EXISTS (a)", 0),
        ("ALTER TABLE IF EXISTS t ADD b INT", 1),
        ("RENAME TABLE IF EXISTS u TO t", 0),
        ("CREATE TABLE IF NOT EXISTS t (x INT)", 0),
    ],
)
def test_if_exists_leaves_actions_out(text: str, action_count: int) -> None:
    before, after = outcomes(CREATE_T, ("shop", text))
    assert after.statement is not None
    assert len([action for _, actions in after.statement.changes for action in actions]) == action_count
    if not action_count:
        assert after.shapes.get(("shop", "t"), before.shapes["shop", "t"]) == before.shapes["shop", "t"]


def test_a_column_dropped_and_added_if_not_exists_is_not_understood() -> None:
    _, after = outcomes(CREATE_T, ("shop", "ALTER TABLE t DROP COLUMN a, ADD COLUMN IF NOT EXISTS a INT"))
    assert (after.statement, tables(after)) == (None, ["shop.t"])


@pytest.mark.parametrize(
    ("of_tidb", "table", "dropped"),
    [
        (True, "A", ["shop.a"]),
        (True, "b", ["shop.b"]),
        (True, None, ["shop.a", "shop.b"]),
        (True, "", ["shop.a", "shop.b"]),
        (False, "a", ["shop.a", "shop.b"]),
    ],
)
def test_tidb_drops_the_tables_of_a_statement_one_by_one(of_tidb: bool, table: str | None, dropped: list[str]) -> None:
    """TiCDC before version 6: a message for each table, with the text of the statement."""
    created = [SentStatement(10, "shop", name, f"CREATE TABLE {name} (id INT PRIMARY KEY)") for name in ("a", "b")]
    drop = SentStatement(20, "shop", table, "DROP TABLE `shop`.`a`, `shop`.`b`")
    done, _ = replay([*created, drop], {}, exact=True, of_tidb=of_tidb)
    assert tables(done[-1][1]) == dropped


def test_the_letter_case_of_a_database_after_a_rename_in_tidb() -> None:
    """TiCDC writes the database in lower case in the message of a RENAME TABLE, and in the rows after it."""
    rename = ("lager_db", "RENAME TABLE `Lager_db`.`Kunden` TO `Lager_db`.`neu`")
    texts = (("Lager_db", "CREATE TABLE Kunden (id INT)"), ("Lager_db", "CREATE TABLE Lager (id INT)"), rename)
    for rows in ({}, {("Lager_db", "Kunden"): TableRows(15), ("lager_db", "neu"): TableRows(35)}):
        *_, renamed, dropped = outcomes(*texts, ("Lager_db", "DROP DATABASE `Lager_db`"), rows=rows, of_tidb=True)
        assert tables(renamed) == ["Lager_db.Kunden", "lager_db.neu"]
        assert tables(dropped) == ["Lager_db.Lager", "lager_db.neu"]


@pytest.mark.parametrize("statement", ["ALTER TABLE neu ADD v INT", "CREATE INDEX k ON neu (id)"])
@pytest.mark.parametrize("with_rows", [True, False])
def test_the_letter_case_of_a_database_after_the_next_statement_in_tidb(statement: str, *, with_rows: bool) -> None:
    """TiCDC writes the database as it was created from the statement after a RENAME TABLE on."""
    created = SentStatement(10, "Lager_db", "Kunden", "CREATE TABLE Kunden (id INT)")
    renamed = SentStatement(20, "lager_db", "neu", "RENAME TABLE `Lager_db`.`Kunden` TO `Lager_db`.`neu`")
    changed = SentStatement(30, "Lager_db", "neu", statement)
    dropped = SentStatement(40, "Lager_db", "neu", "DROP TABLE neu")
    rows = {("lager_db", "neu"): TableRows(25), ("Lager_db", "neu"): TableRows(35)} if with_rows else {}
    done, _ = replay([created, renamed, changed, dropped], rows, exact=True, of_tidb=True)
    assert [(tables(outcome), outcome.error) for _, outcome in done[1:]] == [
        (["Lager_db.Kunden", "lager_db.neu"], None),
        (["lager_db.neu", "Lager_db.neu"], None),
        (["Lager_db.neu"], None),
    ]


COLUMNS = {"id": "bigint(20)", "note": "varchar(20)"}
FIRST_ROWS = {
    "before": (TableRows(5), False),
    "as stated": (TableRows(15, COLUMNS, frozenset({"id"})), True),
    "without the columns": (TableRows(15), True),
    "another column": (TableRows(15, COLUMNS | {"extra": "int(11)"}, frozenset({"id"})), False),
    "another key": (TableRows(15, COLUMNS, frozenset({"note"})), False),
    "another type": (TableRows(15, COLUMNS | {"note": "int(11)"}, frozenset({"id"})), False),
}


@pytest.mark.parametrize("kind", FIRST_ROWS)
def test_the_first_row_shows_whether_create_table_if_not_exists_took_effect(kind: str) -> None:
    rows, is_created = FIRST_ROWS[kind]
    text = "CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY, note VARCHAR(20))"
    (created,) = outcomes(("shop", text), rows={("shop", "t"): rows})
    assert created.statement is not None
    assert (created.statement.kind == "create_table", ("shop", "t") in created.shapes) == (is_created, is_created)


RENAMES = {
    # renames, existing tables, whether the renames are one statement, the order
    "swap": ([("new", "orders"), ("orders", "old")], {"orders", "new"}, True, [1, 0]),
    "unseen": ([("new", "orders"), ("orders", "old")], {"new"}, True, [1, 0]),
    "chain": ([("c", "b"), ("b", "a"), ("a", "d")], {"a", "b", "c"}, True, [2, 1, 0]),
    "circle": ([("tmp", "b"), ("b", "a"), ("a", "tmp")], {"a", "b"}, True, [2, 1, 0]),
    "two circles": (
        [("t1", "b"), ("b", "a"), ("a", "t1"), ("d", "c"), ("c", "t2"), ("t2", "d")],
        {"a", "b", "c", "d"}, True, [2, 1, 0, 4, 3, 5],
    ),
    "there and back": ([("b", "a"), ("a", "b")], {"a"}, False, [1, 0]),
    "one after the other": ([("a", "b"), ("b", "c")], {"a"}, False, [0, 1]),
    "in another order than the messages": ([("b", "c"), ("a", "b")], {"a", "b"}, False, [0, 1]),
    "of other tables": ([("x", "y"), ("a", "b")], {"a", "x"}, True, [0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("kind", RENAMES)
def test_the_order_of_renames(kind: str) -> None:
    renames, existing, from_one_statement, order = RENAMES[kind]
    names = [(("d", old), ("d", new)) for old, new in renames]
    assert order_renames(names, lambda name: name[1] in existing, from_one_statement=from_one_statement) == order


def test_tables_that_come_and_go_between_renames_free_and_take_names() -> None:
    """A table is renamed, and another of its name created, before both change places, all in one second."""
    texts = [
        "CREATE TABLE a (id INT PRIMARY KEY, b INT)",
        "CREATE TABLE c (id INT PRIMARY KEY, d INT)",
        "RENAME TABLE c TO e",
        "CREATE TABLE c (id INT PRIMARY KEY, f INT)",
        "RENAME TABLE c TO tmp",
        "RENAME TABLE e TO c",
        "RENAME TABLE a TO e",
        "RENAME TABLE tmp TO a",
    ]
    done, _ = replay([SentStatement(10, "shop", None, text) for text in texts], {}, exact=False, of_tidb=False)
    assert [outcome.error for _, outcome in done] == [None] * len(texts)
    columns = {
        name: outcome.shapes["shop", name].columns[-1].name
        for _, outcome in done
        for name in "ace"
        if ("shop", name) in outcome.shapes
    }
    assert columns == {"a": "f", "c": "d", "e": "b"}


def test_a_circle_without_a_free_name_has_no_order() -> None:
    circle = [(("d", old), ("d", new)) for old, new in (("a", "b"), ("b", "a"))]
    with pytest.raises(UnorderedError):
        order_renames(circle, lambda _: True, from_one_statement=True)


def ordered(rows: Iterable[tuple[int, str, int, int | None]], *, exact: bool = False) -> list[tuple[int, int]]:
    """Return the numbers and positions of statements (commit_ts, topic, offset, binlog position) in the order of effect."""
    statements = [
        {"commit_ts": ts, "topic": topic, "partition": 0, "offset": offset, "n": n}
        | {"source": place and {"server_id": 1, "file": "b.1", "position": place}}
        for n, (ts, topic, offset, place) in enumerate(rows)
    ]
    return [(s["n"], s["position"]) for s in order_by_effect(statements, exact=exact)]


def test_offsets_give_the_order_within_a_partition() -> None:
    assert ordered([(10, "a", 1, None), (9, "a", 2, None)]) == [(0, 10), (1, 10)]
    assert ordered([(10, "a", 2, None), (10, "a", 1, None)]) == [(1, 10), (0, 10)]
    assert ordered([(10, "a", 1, None), (9, "a", 2, None)], exact=True) == [(1, 9), (0, 10)]


def test_the_binlog_position_gives_the_order_between_partitions() -> None:
    assert ordered([(10, "a", 1, 900), (10, "b", 7, 800)]) == [(1, 10), (0, 10)]
    # After RESET MASTER the binlog positions begin again.
    assert ordered([(10, "a", 1, 900), (10, "a", 2, 4)]) == [(0, 10), (1, 10)]


def test_the_schema_that_a_message_states_must_be_that_of_the_statement() -> None:
    def stated_as(text: str) -> Any:
        (created,) = outcomes(("shop", text))
        return lambda _: created.shapes

    statement = ("shop", "ALTER TABLE t ADD b INT")
    *_, same = outcomes(
        CREATE_T, statement, read_stated=stated_as("CREATE TABLE t (id INT(11) PRIMARY KEY, a INT, b INT)")
    )
    assert same.error is None
    *_, other = outcomes(
        CREATE_T, statement, read_stated=stated_as("CREATE TABLE t (id INT PRIMARY KEY, c INT, b BIGINT)")
    )
    assert other.error == "shop.t: by the statement it has a int, b int, by its message c int, b bigint"
    assert [c.name for c in other.shapes["shop", "t"].columns] == ["id", "c", "b"], "the message is right"
