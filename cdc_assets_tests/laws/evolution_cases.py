"""Define one short life of a table for each kind of DDL, with the columns that its history must have in the end.

Each case changes only tables of its own, which have its name, so that all cases make one stream. The model has the
rows. A case returns the Spark types of the source's columns in the histories, for each table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cdc_assets_tests.laws.mysql_model import (
    BIGINT,
    BIGINT_UNSIGNED,
    DATE,
    DATETIME,
    DOUBLE,
    ID,
    INT,
    INT_UNSIGNED,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TINYINT,
    Add,
    AddIndex,
    Change,
    Column,
    Default,
    Drop,
    DropIndex,
    Model,
    Modify,
    Rekey,
    Rename,
    Verbatim,
    char,
    datetime_,
    decimal,
    enum,
    not_null,
    set_,
    varbinary,
    varchar,
)

Columns = dict[str, dict[str, str]]  # of histories: table -> column -> Spark type
Script = Callable[[Model, str], Columns]

V = Column("v", varchar(80))
# These columns may stand beside `__until_` columns or not (signs, fractions of seconds, order of labels, no rows).
OPEN = "..."
PLAIN = {"id": "bigint", "v": "string"}


@dataclass(frozen=True)
class Case:
    """A case.

    Attributes:
        name: its name, and that of its table.
        run: what happens.
        everywhere: whether it is for every protocol: what is not is the same in all of them, or should be.
        databases: whether it needs DDL of databases.
    """

    name: str
    run: Script
    everywhere: bool = False
    databases: bool = False

    def __str__(self) -> str:
        return self.name


CASES: list[Case] = []


def case(*, everywhere: bool = False, databases: bool = False) -> Callable[[Script], Script]:
    """Add a case with a table of its own."""

    def kept(script: Script) -> Script:
        CASES.append(Case(script.__name__, script, everywhere, databases))
        return script

    return kept


def _fill(m: Model, t: str, *columns: Column, rows: Sequence[dict[str, str | int | None]] = ()) -> None:
    """Make a table with `v`, more columns and three rows, of which one is deleted and one is in its second version."""
    m.create(t, [ID, V, *columns])
    inserted = rows or [{}, {}, {}]
    for key, row in enumerate(inserted, 1):
        m.insert(t, id=key, v=f"{t} {key}", **row)
    m.update(t, 1, v="changed before")
    m.delete(t, 3)


def _go_on(m: Model, t: str, **values: str | int | None) -> None:
    """Send each kind of row event once: a new row, a change and a delete of old rows, a new row of an old key."""
    m.insert(t, id=4, v="new", **values)
    m.update(t, 1, v="changed after")
    m.update(t, 4, v="new, changed")
    m.delete(t, 2)
    m.insert(t, id=3, v="back", **values)


# --- columns come and go


@case()
def add_column(m: Model, t: str) -> Columns:
    _fill(m, t)
    m.alter(t, Add(Column("a", INT)))
    _go_on(m, t, a=7)
    return {t: PLAIN | {"a": "int"}}


@case(everywhere=True)
def add_column_with_default(m: Model, t: str) -> Columns:
    """Open rows get the default at once, in place."""
    _fill(m, t)
    m.alter(t, Add(not_null("price", decimal(10, 2), "9.99")))
    m.alter(t, Add(Column("state", varchar(10), default="it's new")))
    _go_on(m, t, price="1.5")
    m.update(t, 1, state=None)
    return {t: PLAIN | {"price": "decimal(10,2)", "state": "string"}}


@case(everywhere=True)
def add_not_null_column_without_default(m: Model, t: str) -> Columns:
    """Rows from before get MySQL's implicit default."""
    _fill(m, t)
    m.alter(t, Add(not_null("n", INT)), Add(not_null("w", varchar(5))), Add(not_null("e", enum("x", "y"))))
    _go_on(m, t, n=1, w="w", e="y")
    return {t: PLAIN | {"n": "int", "w": "string", "e": "string"}}


@case()
def add_column_and_no_row_after_it(m: Model, t: str) -> Columns:
    """The history gets the column although all its values are NULL."""
    _fill(m, t)
    m.alter(t, Add(Column("a", DATE)))
    m.create(f"{t}_2", [ID, V, Column("a", DATETIME)])
    m.insert(f"{t}_2", id=1, v="one", a="2024-02-29 00:00:00")
    at = m.alter(f"{t}_2", Drop("a"), Add(Column("a", DATE)))
    m.drop(f"{t}_2")
    added = {f"a__until_{at}": "timestamp_ntz", "a": "date"}
    return {t: PLAIN | {"a": "date"}, f"{t}_2": PLAIN | added}


@case()
def add_columns_at_places(m: Model, t: str) -> Columns:
    _fill(m, t)
    m.alter(t, Add(Column("a", INT, default="1"), first=True), Add(Column("b", TEXT), after="id"))
    m.alter(t, Add(Column("c", TINYINT, default="3"), after="b"))
    _go_on(m, t, a=2, b="text", c=4)
    return {t: PLAIN | {"a": "int", "b": "string", "c": "tinyint"}}


@case()
def add_column_with_a_default_only_the_source_knows(m: Model, t: str) -> Columns:
    _fill(m, t)
    m.alter(t, Add(Column("at", DATETIME, nullable=False, now=True)))
    _go_on(m, t)
    return {t: PLAIN | {"at": "timestamp_ntz"}}


@case()
def add_the_first_column_of_datetime(m: Model, t: str) -> Columns:
    """A Delta table with such a column needs a feature that the table does not have yet."""
    _fill(m, t)
    m.alter(t, Add(Column("at", datetime_(3), default="2024-02-29 12:00:00.5")))
    m.alter(t, Add(Column("seen", TIMESTAMP)))
    _go_on(m, t, seen="2024-03-01 00:00:01")
    return {t: PLAIN | {"at": "timestamp_ntz", "seen": "timestamp"}}


@case()
def add_column_and_change_the_default_at_once(m: Model, t: str) -> Columns:
    """Open rows get the default of the ADD; the later default is for later rows."""
    _fill(m, t)
    m.alter(t, Add(Column("a", INT, default="1")))
    m.alter(t, Default("a", "2"))
    _go_on(m, t)
    return {t: PLAIN | {"a": "int"}}


@case()
def drop_column(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", INT), rows=[{"a": 1}, {"a": 2}, {"a": 3}])
    m.alter(t, Drop("a"))
    _go_on(m, t)
    return {t: PLAIN | {"a": "int"}}


@case(everywhere=True)
def drop_column_and_add_it_again(m: Model, t: str) -> Columns:
    """The added column is another column, whatever its type."""
    _fill(m, t, Column("a", INT), Column("b", INT), rows=[{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3}])
    dropped = m.alter(t, Drop("a"), Drop("b"))
    m.update(t, 1, v="without")
    m.alter(t, Add(Column("a", INT, default="5")))
    m.alter(t, Add(Column("b", varchar(5), default="five")))
    _go_on(m, t, a=6, b="six")
    return {t: PLAIN | {"a": "int", f"a__until_{dropped}": "int", "b": "string", f"b__until_{dropped}": "int"}}


@case()
def drop_column_and_add_it_in_one_statement(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", INT), rows=[{"a": 1}, {"a": 2}, {"a": 3}])
    at = m.alter(t, Drop("a"), Add(Column("a", varchar(5), default="five")))
    _go_on(m, t, a="six")
    return {t: PLAIN | {"a": "string", f"a__until_{at}": "int"}}


@case()
def several_changes_in_one_statement(m: Model, t: str) -> Columns:
    """The actions concern different columns; their names are those from before the statement."""
    _fill(m, t, Column("a", INT), Column("b", INT), rows=[{"a": 1, "b": 10}, {"a": 2, "b": 20}, {"a": 3, "b": 30}])
    added = Column("d", varchar(9), default="new")
    at = m.alter(t, Drop("a"), Rename("v", "w"), Modify(Column("b", varchar(9))), Add(added, first=True))
    m.update(t, 1, w="changed after")
    m.insert(t, id=4, w="new", b="text")
    return {t: {"id": "bigint", "w": "string", "a": "int", "b": "string", f"b__until_{at}": "int", "d": "string"}}


# --- names


@case(everywhere=True)
def rename_column(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", INT), rows=[{"a": 1}, {"a": 2}, {"a": 3}])
    m.alter(t, Rename("a", "b"))
    _go_on(m, t, b=4)
    return {t: PLAIN | {"b": "int"}}


@case()
def change_name_and_type(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", INT), rows=[{"a": 1}, {"a": 2}, {"a": 3}])
    m.alter(t, Change("a", Column("b", BIGINT)))
    _go_on(m, t, b=2**40)
    return {t: PLAIN | {"b": "bigint"}}


@case()
def rename_column_to_a_dropped_ones_name(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", INT), Column("b", INT), rows=[{"a": 1, "b": 10}, {"a": 2, "b": 20}, {"a": 3, "b": 30}])
    dropped = m.alter(t, Drop("b"))
    m.update(t, 1, v="between")
    m.alter(t, Rename("a", "b"))
    _go_on(m, t, b=4)
    return {t: PLAIN | {"b": "int", f"b__until_{dropped}": "int"}}


@case()
def swap_columns(m: Model, t: str) -> Columns:
    """One statement swaps the names: each column keeps its values under its new name."""
    _fill(m, t, Column("a", INT), Column("b", INT), rows=[{"a": 1, "b": 10}, {"a": 2, "b": 20}, {"a": 3, "b": 30}])
    m.alter(t, Change("a", Column("b", INT)), Change("b", Column("a", INT)))
    _go_on(m, t, a=40, b=4)
    return {t: PLAIN | {"a": "int", "b": "int"}}


@case(everywhere=True)
def swap_columns_by_a_third_name(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", INT), Column("b", INT), rows=[{"a": 1, "b": 10}, {"a": 2, "b": 20}, {"a": 3, "b": 30}])
    m.alter(t, Rename("a", "c"))
    m.alter(t, Rename("b", "a"))
    m.alter(t, Rename("c", "b"))
    _go_on(m, t, a=40, b=4)
    return {t: PLAIN | {"a": "int", "b": "int"}}


@case(everywhere=True)
def change_letter_case_only(m: Model, t: str) -> Columns:
    _fill(m, t, Column("amount", INT), rows=[{"amount": 1}, {"amount": 2}, {"amount": 3}])
    m.alter(t, Rename("amount", "Amount"))
    _go_on(m, t, Amount=4)
    return {t: PLAIN | {"Amount": "int"}}


# --- types


@case(everywhere=True)
def widen_types(m: Model, t: str) -> Columns:
    """The columns are widened in place; none becomes an `__until_` column."""
    columns = [Column("n", INT), Column("s", TINYINT), Column("w", varchar(3)), Column("d", decimal(6, 2))]
    _fill(m, t, *columns, rows=[{"n": k, "s": k, "w": "abc", "d": "1.25"} for k in (1, 2, 3)])
    m.alter(t, Modify(Column("n", BIGINT)))
    m.alter(t, Modify(Column("s", SMALLINT)), Modify(Column("w", varchar(30))))
    m.alter(t, Modify(Column("d", decimal(12, 2))))
    _go_on(m, t, n=2**40, s=1000, w="longer than three", d="1234567890.12")
    return {t: PLAIN | {"n": "bigint", "s": "smallint", "w": "string", "d": "decimal(12,2)"}}


@case(everywhere=True)
def modify_int_to_varchar(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", INT), rows=[{"a": 1}, {"a": -2}, {"a": None}])
    at = m.alter(t, Modify(Column("a", varchar(20))))
    _go_on(m, t, a="four")
    return {t: PLAIN | {"a": "string", f"a__until_{at}": "int"}}


@case()
def modify_varchar_to_int(m: Model, t: str) -> Columns:
    """MySQL takes the number at the beginning of the text."""
    _fill(m, t, Column("a", varchar(9)), rows=[{"a": "1"}, {"a": "-2"}, {"a": None}])
    at = m.alter(t, Modify(Column("a", INT)))
    _go_on(m, t, a=4)
    return {t: PLAIN | {"a": "int", f"a__until_{at}": "string"}}


@case()
def modify_date_to_datetime(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", DATE), rows=[{"a": "2024-02-29"}, {"a": "1999-12-31"}, {"a": None}])
    at = m.alter(t, Modify(Column("a", datetime_(3))))
    _go_on(m, t, a="2024-03-01 12:34:56.789")
    return {t: PLAIN | {"a": "timestamp_ntz", f"a__until_{at}": "date"}}


@case()
def modify_datetime_to_date(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", DATETIME), rows=[{"a": "2024-02-29 01:02:03"}, {"a": "1999-12-31 11:59:59"}, {}])
    at = m.alter(t, Modify(Column("a", DATE)))
    _go_on(m, t, a="2024-03-01")
    return {t: PLAIN | {"a": "date", f"a__until_{at}": "timestamp_ntz"}}


@case()
def modify_decimal_to_fewer_digits(m: Model, t: str) -> Columns:
    """MySQL rounds half away from zero."""
    _fill(m, t, Column("a", decimal(10, 4)), rows=[{"a": "1.2350"}, {"a": "-1.2350"}, {"a": None}])
    at = m.alter(t, Modify(Column("a", decimal(10, 2))))
    _go_on(m, t, a="4.5")
    return {t: PLAIN | {"a": "decimal(10,2)", f"a__until_{at}": "decimal(10,4)"}}


@case()
def modify_int_to_decimal_and_to_double(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", BIGINT), Column("b", BIGINT), rows=[{"a": 1, "b": 1}, {"a": -2, "b": -2}, {}])
    at = m.alter(t, Modify(Column("a", decimal(10, 2))), Modify(Column("b", DOUBLE)))
    _go_on(m, t, a="4.25", b="0.5")
    added = {"a": "decimal(10,2)", "b": "double", f"a__until_{at}": "bigint", f"b__until_{at}": "bigint"}
    return {t: PLAIN | added}


@case()
def modify_varchar_to_varbinary(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", varchar(9)), rows=[{"a": "é"}, {"a": ""}, {"a": None}])
    at = m.alter(t, Modify(Column("a", varbinary(30))))
    m.insert(t, id=4, v="binary", a="\u0001ÿ")
    m.update(t, 1, v="changed after")
    return {t: PLAIN | {"a": "binary", f"a__until_{at}": "string"}}


@case()
def modify_several_times(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", INT), rows=[{"a": 1}, {"a": 2}, {"a": 3}])
    m.alter(t, Modify(Column("a", BIGINT)))
    m.update(t, 1, a=2**40)
    first = m.alter(t, Modify(Column("a", varchar(20))))
    m.update(t, 2, v="as text")
    second = m.alter(t, Modify(Column("a", BIGINT)))
    _go_on(m, t, a=4)
    return {t: PLAIN | {"a": "bigint", f"a__until_{first}": "bigint", f"a__until_{second}": "string"}}


@case()
def modify_with_rows_sent_again(m: Model, t: str) -> Columns:
    """Rows that TiDB rewrites and sends again with equal values open no version."""
    _fill(m, t, Column("a", INT), rows=[{"a": 1}, {"a": 2}, {"a": 3}])
    m.alter(t, Modify(Column("a", BIGINT)))
    m.resend(t)
    at = m.alter(t, Modify(Column("a", varchar(20))))
    m.resend(t)
    _go_on(m, t, a="four")
    return {t: PLAIN | {"a": "string", f"a__until_{at}": "bigint"}}


@case(everywhere=True)
def relabel_enum_and_set(m: Model, t: str) -> Columns:
    """The numbers in messages mean other labels from then on; values keep their labels, a set in the new order."""
    columns = [Column("e", enum("in", "out")), Column("s", set_("a", "b", "c"))]
    _fill(m, t, *columns, rows=[{"e": "in", "s": "a,c"}, {"e": "out", "s": ""}, {"e": None, "s": "b"}])
    m.alter(t, Modify(Column("e", enum("out", "lost", "in"))), Modify(Column("s", set_("c", "b", "x", "a"))))
    _go_on(m, t, e="lost", s="b,x")
    return {t: PLAIN | {"e": "string", "s": "string", OPEN: ""}}  # the members of s stand in another order then


@case()
def modify_enum_to_varchar(m: Model, t: str) -> Columns:
    _fill(m, t, Column("e", enum("in", "out")), rows=[{"e": "in"}, {"e": "out"}, {"e": None}])
    m.alter(t, Modify(Column("e", varchar(10))))
    _go_on(m, t, e="neither")
    return {t: PLAIN | {"e": "string"}}


@case()
def texts_and_character_sets(m: Model, t: str) -> Columns:
    """All of these are text: nothing changes in the history."""
    _fill(m, t, Column("a", varchar(9)), Column("b", char(9)), rows=[{"a": "x", "b": "y"}, {"a": "é", "b": "ß"}, {}])
    m.alter(t, Modify(Column("a", TEXT)), Modify(Column("b", varchar(30))))
    m.alter(t, Verbatim("CONVERT TO CHARACTER SET UTF8MB4 COLLATE UTF8MB4_BIN"))
    m.alter(t, Verbatim("COMMENT = 'a comment'"))
    _go_on(m, t, a="longer than nine", b="longer than nine")
    return {t: PLAIN | {"a": "string", "b": "string"}}


@case()
def change_the_sign(m: Model, t: str) -> Columns:
    _fill(m, t, Column("a", INT), Column("b", BIGINT), rows=[{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 3}])
    m.alter(t, Modify(Column("a", INT_UNSIGNED)), Modify(Column("b", BIGINT_UNSIGNED)))
    _go_on(m, t, a=2**32 - 1, b=2**64 - 1)
    return {t: PLAIN | {"a": "bigint", "b": "decimal(20,0)", OPEN: ""}}


@case()
def lose_the_fraction_of_a_second(m: Model, t: str) -> Columns:
    """MySQL rounds; both types are the same type in Spark."""
    _fill(
        m, t, Column("a", datetime_(6)), rows=[{"a": "2024-02-29 01:02:03.500000"}, {"a": "1999-12-31 23:59:59.5"}, {}]
    )
    m.alter(t, Modify(Column("a", DATETIME)))
    _go_on(m, t, a="2024-03-01 00:00:00")
    return {t: PLAIN | {"a": "timestamp_ntz", OPEN: ""}}


# --- keys, indexes, defaults


@case()
def change_default_and_indexes(m: Model, t: str) -> Columns:
    """None of these statements changes a row."""
    _fill(m, t, Column("a", INT, default="1"))
    m.alter(t, Default("a", "2"))
    m.alter(t, AddIndex("by_a", ("a",)))
    m.alter(t, AddIndex("by_v", ("v",), unique=True))
    m.insert(t, id=5, v="five")
    m.alter(t, DropIndex("by_a"))
    m.alter(t, DropIndex("by_v"))
    m.alter(t, Default("a", None))
    _go_on(m, t)
    return {t: PLAIN | {"a": "int"}}


@case()
def change_the_key(m: Model, t: str) -> Columns:
    """Open versions end and begin again under the new key, whose columns have the order of the messages."""
    _fill(m, t, not_null("a", INT), rows=[{"a": 11}, {"a": 12}, {"a": 13}])
    m.alter(t, Rekey(("a", "id")))
    m.insert(t, id=1, v="same id", a=2)
    m.update(t, 11, 1, v="changed after")
    m.delete(t, 12, 2)
    return {t: PLAIN | {"a": "int"}}


@case(everywhere=True)
def change_the_key_of_rows(m: Model, t: str) -> Columns:
    """An UPDATE moves a row to another key, before and after a column is added."""
    _fill(m, t)
    m.update(t, 1, id=5)
    m.alter(t, Add(Column("a", INT, default="1")))
    m.update(t, 2, id=6, v="moved")
    m.update(t, 5, id=2)
    return {t: PLAIN | {"a": "int"}}


# --- tables come and go


@case(everywhere=True)
def truncate(m: Model, t: str) -> Columns:
    _fill(m, t)
    m.truncate(t)
    m.insert(t, id=1, v="again")
    m.update(t, 1, v="again, changed")
    m.truncate(t)
    m.insert(t, id=2, v="once more")
    return {t: PLAIN}


@case()
def drop_table(m: Model, t: str) -> Columns:
    _fill(m, t)
    m.drop(t)
    return {t: PLAIN}


@case()
def drop_and_create_the_same(m: Model, t: str) -> Columns:
    """The new table goes on in the same history."""
    _fill(m, t)
    m.drop(t)
    m.create(t, [ID, V])
    m.insert(t, id=1, v="again")
    m.update(t, 1, v="again, changed")
    return {t: PLAIN}


@case(everywhere=True)
def drop_and_create_another_shape(m: Model, t: str) -> Columns:
    """Columns whose types fit go on; the others become `__until_` columns at the DROP."""
    _fill(m, t, Column("a", INT), Column("b", INT), rows=[{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 3}])
    at = m.drop(t)
    m.create(t, [ID, Column("a", BIGINT), Column("b", varchar(9)), Column("c", DATE)])
    m.insert(t, id=1, a=2**40, b="text", c="2024-02-29")
    m.update(t, 1, b="other")
    return {t: PLAIN | {"a": "bigint", "b": "string", f"b__until_{at}": "int", "c": "date"}}


@case()
def drop_and_create_with_another_key(m: Model, t: str) -> Columns:
    _fill(m, t)
    m.drop(t)
    m.create(t, [not_null("code", varchar(9)), Column("v", varchar(20))], key=("code",))
    m.insert(t, code="one", v="again")
    m.update(t, "one", v="again, changed")
    m.insert(t, code="two", v="more")
    m.delete(t, "two")
    return {t: PLAIN | {"code": "string"}}


@case(everywhere=True)
def create_like(m: Model, t: str) -> Columns:
    _fill(m, t, Column("e", enum("in", "out"), default="out"), rows=[{"e": "in"}, {}, {}])
    m.create_like(f"{t}_2", t)
    m.insert(f"{t}_2", id=1, v="first", e="in")
    m.update(f"{t}_2", 1, v="second")
    return {t: PLAIN | {"e": "string"}, f"{t}_2": PLAIN | {"e": "string"}}


@case()
def rename_table(m: Model, t: str) -> Columns:
    _fill(m, t)
    m.rename((t, f"{t}_2"))
    _go_on(m, f"{t}_2")
    return {t: PLAIN, f"{t}_2": PLAIN}


@case(everywhere=True)
def rename_table_and_alter_it(m: Model, t: str) -> Columns:
    """The rows from before stay in the history of the old name, with the columns of that time."""
    _fill(m, t, Column("a", INT), rows=[{"a": 1}, {"a": 2}, {"a": 3}])
    m.alter(t, Add(Column("b", INT, default="5")))
    m.rename((t, f"{t}_2"))
    m.alter(f"{t}_2", Rename("a", "c"))
    m.alter(f"{t}_2", Drop("b"))
    _go_on(m, f"{t}_2", c=4)
    return {t: PLAIN | {"a": "int", "b": "int"}, f"{t}_2": PLAIN | {"c": "int", "b": "int"}}


@case()
def rename_table_and_make_a_new_one(m: Model, t: str) -> Columns:
    _fill(m, t)
    at = m.rename((t, f"{t}_old"))
    m.create(t, [ID, Column("v", INT)])
    m.insert(t, id=1, v=1)
    m.update(t, 1, v=2)
    m.update(f"{t}_old", 1, v="goes on")
    return {t: {"id": "bigint", "v": "int", f"v__until_{at}": "string"}, f"{t}_old": PLAIN}


@case()
def rename_table_to_a_name_used_before(m: Model, t: str) -> Columns:
    """The history also has the rows of the other table, which ended with its DROP."""
    _fill(m, t)
    m.create(f"{t}_2", [ID, V])
    m.insert(f"{t}_2", id=1, v="of the other")
    m.drop(f"{t}_2")
    m.rename((t, f"{t}_2"))
    _go_on(m, f"{t}_2")
    m.rename((f"{t}_2", t))
    m.update(t, 1, v="back home")
    return {t: PLAIN, f"{t}_2": PLAIN}


@case(everywhere=True)
def swap_tables_in_one_statement(m: Model, t: str) -> Columns:
    """The statement is gh-ost's: no row may be in the history of the other table."""
    _fill(m, t)
    _fill(m, f"{t}_new", Column("a", INT, default="1"))
    m.rename((t, f"{t}_tmp"), (f"{t}_new", t), (f"{t}_tmp", f"{t}_new"))
    _go_on(m, t, a=2)
    m.update(f"{t}_new", 1, v="goes on")
    # Nothing was ever committed under the third name.
    return {t: PLAIN | {"a": "int"}, f"{t}_new": PLAIN | {"a": "int"}}


@case(everywhere=True)
def replace_a_table_by_another(m: Model, t: str) -> Columns:
    """The statement is gh-ost's: row 1 goes on, row 2 differs, row 3 is in the new table alone."""
    _fill(m, t, Column("a", INT), Column("b", INT), rows=[{"a": 1, "b": 1}, {"a": 2, "b": 2}, {}])
    m.create(f"{t}_gho", [ID, V, Column("a", BIGINT), Column("c", INT, default="1")])
    m.insert(f"{t}_gho", id=1, v="changed before", a=1)
    m.insert(f"{t}_gho", id=2, v="another", a=2)
    m.insert(f"{t}_gho", id=3, v="only here", a=3, c=3)
    at = m.rename((t, f"{t}_del"), (f"{t}_gho", t))
    m.update(t, 1, v="changed after", c=4)
    m.delete(t, 3)
    m.update(f"{t}_del", 1, v="old, changed")
    m.drop(f"{t}_del")
    m.alter(t, Add(Column("b", INT, default="7")))
    return {
        t: PLAIN | {"a": "bigint", "b": "int", f"b__until_{at}": "int", "c": "int"},
        f"{t}_gho": PLAIN | {"a": "bigint", "c": "int"},
        f"{t}_del": PLAIN | {"a": "int", "b": "int"},
    }


@case()
def swap_tables_in_three_statements(m: Model, t: str) -> Columns:
    _fill(m, t)
    _fill(m, f"{t}_new", Column("a", INT, default="1"))
    m.rename((t, f"{t}_tmp"))
    m.rename((f"{t}_new", t))
    m.rename((f"{t}_tmp", f"{t}_new"))
    _go_on(m, t, a=2)
    m.update(f"{t}_new", 1, v="goes on")
    return {t: PLAIN | {"a": "int"}, f"{t}_new": PLAIN | {"a": "int"}, f"{t}_tmp": PLAIN}


@case()
def rename_two_tables_in_one_statement(m: Model, t: str) -> Columns:
    _fill(m, t)
    _fill(m, f"{t}_b")
    m.rename((t, f"{t}_c"), (f"{t}_b", f"{t}_d"))
    m.update(f"{t}_c", 1, v="goes on")
    m.update(f"{t}_d", 1, v="goes on, too")
    return {f"{t}{end}": PLAIN for end in ("", "_b", "_c", "_d")}


@case()
def add_column_to_an_empty_table(m: Model, t: str) -> Columns:
    m.create(t, [ID, V])
    m.alter(t, Add(Column("a", INT, default="1")))
    m.alter(t, Modify(Column("a", varchar(9))))
    m.insert(t, id=1, v="first")
    m.update(t, 1, v="second")
    return {t: PLAIN | {"a": "string", OPEN: ""}}


@case(databases=True)
def rename_table_into_another_database(m: Model, t: str) -> Columns:
    m.create_database(f"{t}_db")
    _fill(m, t)
    m.rename((t, f"{t}_db.{t}"))
    _go_on(m, f"{t}_db.{t}")
    return {t: PLAIN, f"{t}_db.{t}": PLAIN}


@case(everywhere=True, databases=True)
def drop_database(m: Model, t: str) -> Columns:
    m.create_database(f"{t}_db")
    _fill(m, f"{t}_db.one")
    m.create(f"{t}_db.two", [ID, V])
    m.insert(f"{t}_db.two", id=1, v="v")
    m.drop_database(f"{t}_db")
    return {f"{t}_db.one": PLAIN, f"{t}_db.two": PLAIN}
