"""Which tables names mean, what IF [NOT] EXISTS did, and in which order statements took effect."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from cdc_assets.ddl.renames import UnorderedError, in_order
from cdc_assets.ddl.replay import Outcome, SentStatement, TableRows, in_effect_order, replay
from cdc_assets.ddl.resolve import Name

pytestmark = pytest.mark.fast


def outcomes(
    *statements: tuple[str, str],
    rows: Mapping[Name, TableRows] | None = None,
    ignores_case: bool = False,
    shown: Any = None,
) -> list[Outcome]:
    """What becomes of statements, (database of the message, text), each at ten times its number, the first at 10."""
    sent = [SentStatement(10 * n, database, None, text) for n, (database, text) in enumerate(statements, start=1)]
    if shown is not None:
        sent[-1] = SentStatement(sent[-1].position, sent[-1].database, None, sent[-1].text, carried=shown)
    found, _ = replay(sent, rows or {}, exact=True, ignores_case=ignores_case)
    return [outcome for _, outcome in sorted(found, key=lambda each: each[0])]


def tables(outcome: Outcome) -> list[str]:
    return [".".join(name) for name in outcome.affected]


CREATE = ("app", "CREATE TABLE log (id INT PRIMARY KEY, v INT)")
# What stands before, the statement, the tables that it is about; None: it cannot be said.
NAMES = {
    "session": ([CREATE], ("app", "ALTER TABLE log ADD w INT"), ["app.log"]),
    "none told": ([CREATE], ("", "ALTER TABLE log ADD w INT"), ["app.log"]),
    "none told, two there": ([CREATE, ("b", "CREATE TABLE log (id INT)")], ("", "TRUNCATE log"), None),
    "none told, unknown": ([CREATE], ("", "ALTER TABLE other ADD w INT"), [".other"]),
    "of the new name": ([CREATE], ("arch", "RENAME TABLE log TO arch.old"), ["app.log", "arch.old"]),
    "of the new name, by ALTER": ([CREATE], ("arch", "ALTER TABLE log RENAME arch.old"), ["app.log", "arch.old"]),
    "of the first name": ([CREATE, ("b", "CREATE TABLE x (id INT)")], ("b", "DROP TABLE b.x, log"), ["b.x", "app.log"]),
    "of the pattern": ([CREATE], ("b", "CREATE TABLE b.x LIKE log"), ["b.x"]),
    "of the new name, two there": (
        [CREATE, ("arch", "CREATE TABLE log (id INT)")], ("arch", "RENAME TABLE log TO arch.old"), None
    ),
    "another case": ([CREATE], ("APP", "DROP TABLE Log"), ["app.log"]),
    "another case, two there": (
        [CREATE, ("app", "CREATE TABLE LOG (id INT)")], ("app", "TRUNCATE Log"), ["app.Log"]
    ),
    "exactly, two there": ([CREATE, ("app", "CREATE TABLE LOG (id INT)")], ("app", "TRUNCATE LOG"), ["app.LOG"]),
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
        assert set(tables(last)) & {"app.log", "app.LOG", "b.log", "arch.log"}, "the tables that it may be about"
    else:
        assert (last.error, tables(last)) == (None, expected)


def test_rows_tell_how_the_server_spells_names() -> None:
    rows = {("shop", "ord1"): TableRows(15), ("shop", "old"): TableRows(35)}
    texts = (
        "CREATE TABLE Ord1 (id INT)",
        "ALTER TABLE ORD1 ADD v INT",
        "RENAME TABLE Ord1 TO Old",
        "RENAME TABLE Old TO Next",
    )
    found = outcomes(*(("Shop", text) for text in texts), rows=rows)
    assert [tables(each) for each in found] == [
        ["shop.ord1"], ["shop.ord1"], ["shop.ord1", "shop.old"], ["shop.old", "shop.next"]
    ]  # fmt: skip


def test_a_table_alike_that_is_there_is_another_one() -> None:
    (made,) = outcomes(("shop", "CREATE TABLE Orders (id INT)"), rows={("shop", "orders"): TableRows(5)})
    assert tables(made) == ["shop.Orders"]


MADE = ("shop", "CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY k (a))")


@pytest.mark.parametrize(
    ("text", "does"),
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
def test_if_exists_that_changes_nothing(text: str, does: int) -> None:
    before, after = outcomes(MADE, ("shop", text))
    assert after.statement is not None
    assert len([action for _, actions in after.statement.changes for action in actions]) == does
    if not does:
        assert after.shapes.get(("shop", "t"), before.shapes["shop", "t"]) == before.shapes["shop", "t"]


def test_dropped_and_added_if_not_exists_at_once_is_not_understood() -> None:
    _, after = outcomes(MADE, ("shop", "ALTER TABLE t DROP COLUMN a, ADD COLUMN IF NOT EXISTS a INT"))
    assert (after.statement, tables(after)) == (None, ["shop.t"])


COLUMNS = {"id": "bigint(20)", "note": "varchar(20)"}
CAME = {
    "before": (TableRows(5), False),
    "as stated": (TableRows(15, COLUMNS, frozenset({"id"})), True),
    "without what the message tells": (TableRows(15), True),
    "another column": (TableRows(15, COLUMNS | {"extra": "int(11)"}, frozenset({"id"})), False),
    "another key": (TableRows(15, COLUMNS, frozenset({"note"})), False),
    "another type": (TableRows(15, COLUMNS | {"note": "int(11)"}, frozenset({"id"})), False),
}


@pytest.mark.parametrize("kind", CAME)
def test_create_table_if_not_exists_of_a_table_that_only_rows_know(kind: str) -> None:
    came, is_made = CAME[kind]
    text = "CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY, note VARCHAR(20))"
    (made,) = outcomes(("shop", text), rows={("shop", "t"): came})
    assert made.statement is not None
    assert (made.statement.kind == "create_table", ("shop", "t") in made.shapes) == (is_made, is_made)


RENAMES = {
    # renames, tables that are there, whether they are one statement, the order
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
    "not as they stand": ([("b", "c"), ("a", "b")], {"a", "b"}, False, [0, 1]),
    "of no concern": ([("x", "y"), ("a", "b")], {"a", "x"}, True, [0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("kind", RENAMES)
def test_the_order_of_renames(kind: str) -> None:
    renames, there, together, order = RENAMES[kind]
    named = [(("d", old), ("d", new)) for old, new in renames]
    assert in_order(named, lambda name: name[1] in there, together=together) == order


def test_a_circle_of_which_nothing_tells_the_order() -> None:
    circle = [(("d", old), ("d", new)) for old, new in (("a", "b"), ("b", "a"))]
    with pytest.raises(UnorderedError):
        in_order(circle, lambda _: True, together=True)


def ordered(rows: Iterable[tuple[int, str, int, int | None]], *, exact: bool = False) -> list[tuple[int, int]]:
    """Numbers and positions of statements (commit_ts, topic, offset, place in the binlog), in order."""
    statements = [
        {"commit_ts": ts, "topic": topic, "partition": 0, "offset": offset, "n": n}
        | {"source": place and {"file": "b.1", "position": place}}
        for n, (ts, topic, offset, place) in enumerate(rows)
    ]
    return [(s["n"], s["position"]) for s in in_effect_order(statements, exact=exact)]


def test_offsets_tell_the_order_within_a_partition() -> None:
    assert ordered([(10, "a", 1, None), (9, "a", 2, None)]) == [(0, 10), (1, 10)]
    assert ordered([(10, "a", 2, None), (10, "a", 1, None)]) == [(1, 10), (0, 10)]
    assert ordered([(10, "a", 1, None), (9, "a", 2, None)], exact=True) == [(1, 9), (0, 10)]


def test_the_place_in_the_binlog_tells_it_between_partitions() -> None:
    assert ordered([(10, "a", 1, 900), (10, "b", 7, 800)]) == [(1, 10), (0, 10)]
    # A server that begins anew counts from the start again.
    assert ordered([(10, "a", 1, 900), (10, "a", 2, 4)]) == [(0, 10), (1, 10)]


def test_the_shape_that_a_message_carries_must_be_that_of_the_statement() -> None:
    def carried(text: str) -> Any:
        (made,) = outcomes(("shop", text))
        return lambda _: made.shapes

    statement = ("shop", "ALTER TABLE t ADD b INT")
    *_, same = outcomes(MADE, statement, shown=carried("CREATE TABLE t (id INT(11) PRIMARY KEY, a INT, b INT)"))
    assert same.error is None
    *_, other = outcomes(MADE, statement, shown=carried("CREATE TABLE t (id INT PRIMARY KEY, c INT, b BIGINT)"))
    assert other.error == "shop.t: by the statement it has a int, b int, by its message c int, b bigint"
    assert [c.name for c in other.shapes["shop", "t"].columns] == ["id", "c", "b"], "the message is right"
