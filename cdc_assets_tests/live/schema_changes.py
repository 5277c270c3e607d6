"""DDL as people write it: a production for each row of docs/schema-evolution.md that MariaDB has."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cdc_assets_tests.live.catalog import TOUCHED, Name, Table
from cdc_assets_tests.live.changes import insert_ignored
from cdc_assets_tests.live.names import COLUMNS, PLAIN, STRANGE, quoted, written
from cdc_assets_tests.live.sessions import Statement, Step
from cdc_assets_tests.live.types import KINDS, UNKNOWN_TYPES, Column, Kind, default, quote

DATABASES = ("lq_one", "lq_two")
HIDDEN = "lq_hidden"  # which Debezium does not capture
ODD = "lq_odd"  # its tables stay blocked: they have types that MySQL does not have
# Rows of the page that no MariaDB has, or that Debezium 3.5 cannot read.
NOT_HERE = {
    "RECOVER TABLE, FLASHBACK TABLE (TiDB)": "TiDB",
    "DISCARD, IMPORT TABLESPACE; ENGINE = BLACKHOLE, which deletes all rows; FIRST PARTITION (TiDB); CONVERT PARTITION "
    "(MariaDB)": "asks for the server's files or plugins",
    "MODIFY, CHANGE to a generated column, unless its type and expression stay": "no generated columns are made",
    "a statement that is not understood: text after `;`, words that are not known": "no server accepts it",
    "ADD or DROP SYSTEM VERSIONING (MariaDB)": "Debezium's parser stops at it",
    "a statement whose message carries other columns than it gives, or another default of a new column": "no server does so",
    "statements that are lost, after which a connector's snapshot describes the table with other columns (Debezium)": "the "
    "connector reads every statement",
    "a statement that changes names or values of rows (ADD COLUMN with a default, DROP, RENAME, MODIFY) in a table without "
    "a key, which finds rows by their text": "a table that has lost its key is dropped",
    "ADD or DROP FOREIGN KEY": "a cascade changes rows without row events, and is reported",
}
# Rows that several productions make on their way.
FOLLOWS = frozenset({"names without a database", "several statements of one second"})


@dataclass(frozen=True)
class Production:
    """A rule of the grammar.

    Attributes:
        row: the row of docs/schema-evolution.md.
        make: the step that it makes of a state; None: it cannot now.
        allowed: the checks that the page lets fail then.
        ends_comparison: whether the table cannot be compared until it is dropped.
        reported: the checks of which one must fail then; none: no check need fail.
    """

    row: str
    make: "Callable[[State], Step | None]"
    allowed: frozenset[str] = frozenset()
    ends_comparison: bool = False
    reported: tuple[str, ...] = ()


@dataclass
class State:
    """What a production chooses from.

    Attributes:
        rng: the source of all choices.
        tables: the tables of the server.
        exempt: tables that cannot be compared: these are dropped or truncated next.
    """

    rng: random.Random
    tables: dict[Name, Table]
    exempt: set[Name]

    def pick(self, condition: Callable[[Table], bool] = lambda _: True, *, keyless: bool = False) -> Table | None:
        """Return a table that can be compared."""
        free_names = [
            table
            for name, table in self.tables.items()
            if name[0] in DATABASES and name not in self.exempt and (table.key or keyless) and condition(table)
        ]
        return self.rng.choice(free_names) if free_names else None

    def free_name(self, database: str | None = None) -> Name:
        """Return a name that no table has."""
        databases = [database] if database else DATABASES
        names = [(d, n) for d in databases for n in (*PLAIN, *STRANGE) if (d, n) not in self.tables]
        return self.rng.choice(names) if names else (self.rng.choice(databases), f"t{self.rng.randrange(10**6)}")

    def new_column(self, table: Table | None = None, taken: Sequence[str] = ()) -> str:
        """Return a name that no column of a table has."""
        used = {name.lower() for name in (*taken, *(c.name for c in (table.columns if table else ())))}
        return self.rng.choice([name for name in COLUMNS if name.lower() not in used])


PRODUCTIONS: list[Production] = []


def production(
    row: str, *allowed: str, ends_comparison: bool = False, reported: tuple[str, ...] = ()
) -> "Callable[[Callable[[State], Step | None]], Callable[[State], Step | None]]":
    """Register a function that makes a step."""

    def kept(make: "Callable[[State], Step | None]") -> "Callable[[State], Step | None]":
        PRODUCTIONS.append(Production(row, make, frozenset({*allowed, *reported}), ends_comparison, reported))
        return make

    return kept


# --- pieces of statements


def _statements(state: State, table: Table, form: str) -> tuple[Statement, ...]:
    """Return a statement about a table, `{t}` in its text, with or without the database in its name."""
    if state.rng.random() < 0.4:
        name = written(state.rng, table.name[1])
        return Statement(f"USE {quoted(table.name[0])}"), Statement(form.replace("{t}", name))
    return (Statement(form.replace("{t}", table.sql)),)


def _alter(state: State, table: Table, *clauses: str, row: str) -> Step:
    form = "ALTER TABLE {t} " + ", ".join(clauses)
    statements = _statements(state, table, form)
    rows = (row, "names without a database") if len(statements) > 1 else (row,)
    if state.rng.random() < 0.12:
        statements = _waiting(state, table, statements)
    return Step(rows, (table.name,), statements)


def _waiting(state: State, table: Table, statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """Return statements of which the last waits for a transaction, and so has an older time than the row before it."""
    before = (Statement("BEGIN", 1), Statement(insert_ignored(state.rng, table), 1))
    waiting = [*statements[:-1], Statement(statements[-1].sql, waits=True)]
    after = (
        Statement(insert_ignored(state.rng, table), 1, seconds=state.rng.choice([0.2, 1.1])),
        Statement("COMMIT", 1),
    )
    return (*before, *waiting, *after)


def _declaration(state: State, *, nullable: bool | None = None, with_default: bool = False) -> str | None:
    """Return the type, NULL or NOT NULL, and perhaps the default of a new column."""
    sql = state.rng.choice(KINDS).declare(state.rng)
    value = default(state.rng, sql) if with_default else None
    if with_default and value is None:
        return None
    if nullable is not None:
        sql = sql.removesuffix(" NULL") + (" NULL" if nullable else " NOT NULL")
    return sql + (f" DEFAULT {value}" if value is not None else "")


def _place(state: State, table: Table) -> str:
    return state.rng.choice([" FIRST", f" AFTER {quoted(state.rng.choice(table.columns).name)}"])


def redeclare(column: Column, type_sql: str | None = None, charset: str | None = None) -> str:
    """Return the declaration that a column has, with another type if one is given."""
    text = type_sql or column.type
    if (charset or column.charset) and not (type_sql and not charset):
        text += f" CHARACTER SET {charset or column.charset}"
    return text + (" NULL" if column.nullable else " NOT NULL")


def _create(state: State, name: Name, *, keyless: bool = False, words: str = "CREATE TABLE", ending: str = "") -> Step:
    rng = state.rng
    keys = [(column, rng.choice([k for k in KINDS if k.as_key])) for column in rng.choice([["id"], ["id", "k2"]])]
    if ending:
        keys = [("id", Kind("int", lambda _: "int"))]
    columns = [f"{quoted(column)} {kind.declare(rng)} NOT NULL" for column, kind in keys]
    if len(keys) == 1 and keys[0][1].name in ("int", "bigint") and rng.random() < 0.3 and not keyless:
        columns[0] += " AUTO_INCREMENT"
    columns.append(f"{TOUCHED} int NOT NULL DEFAULT 0")
    for column in rng.sample(COLUMNS, rng.randint(2, 9)):
        declared = _declaration(state, nullable=rng.choice([True, True, False]), with_default=rng.random() < 0.3)
        columns.append(f"{quoted(column)} {declared or 'int'}")
    if not keyless:
        columns.append(f"PRIMARY KEY ({', '.join(quoted(column) for column, _ in keys)})")
    options = rng.choice(["", " CHARACTER SET utf8mb4", " CHARACTER SET latin1", " COMMENT 'it''s; a -- table'"])
    table = Table(name)
    statements = _statements(state, table, f"{words} {{t}} ({', '.join(columns)}){options}{ending}")
    return Step(("CREATE TABLE",), (name,), statements)


# --- columns


@production("ADD COLUMN, nullable, without a default")
def _add_nullable(state: State) -> Step | None:
    if not (table := state.pick()):
        return None
    column = f"ADD COLUMN {quoted(state.new_column(table))} {_declaration(state, nullable=True)}"
    return _alter(state, table, column, row="ADD COLUMN, nullable, without a default")


@production("ADD COLUMN with a default", "ddl_applied")
def _add_default(state: State) -> Step | None:
    table, declared = state.pick(), _declaration(state, nullable=state.rng.random() < 0.5, with_default=True)
    if not table or not declared:
        return None
    return _alter(state, table, f"ADD {quoted(state.new_column(table))} {declared}", row="ADD COLUMN with a default")


@production("ADD COLUMN, NOT NULL, without a default")
def _add_not_null(state: State) -> Step | None:
    kinds = [k for k in KINDS if k.name not in ("date", "datetime", "timestamp", "point", "json")]
    if not (table := state.pick()):
        return None
    declared = state.rng.choice(kinds).declare(state.rng)
    return _alter(
        state,
        table,
        f"ADD COLUMN {quoted(state.new_column(table))} {declared} NOT NULL",
        row="ADD COLUMN, NOT NULL, without a default",
    )


_ONLY_SOURCE = (
    "ADD COLUMN whose value only the source knows: CURRENT_TIMESTAMP, an expression, a generated column, a literal of which "
    "the [value is not known](#defaults), a NOT NULL date without a default, a TIMESTAMP without NULL, NOT NULL and DEFAULT "
    "unless `explicit_defaults_for_timestamp` [is certainly ON](#defaults)"
)


@production(_ONLY_SOURCE, "ddl_applied")
def _add_unknown(state: State) -> Step | None:
    if not (table := state.pick()):
        return None
    declared = state.rng.choice(
        [
            "datetime NOT NULL DEFAULT CURRENT_TIMESTAMP",
            "timestamp(3) NULL DEFAULT CURRENT_TIMESTAMP(3)",
            "varchar(40) DEFAULT (concat('a', 'b'))",
            "varchar(36) DEFAULT (uuid())",
            f"int AS ({TOUCHED} + 1) STORED",
            f"bigint AS ({TOUCHED} * 2) VIRTUAL",
            "double DEFAULT 1.5e0",
            "double DEFAULT (1 / 3)",
        ]
    )
    return _alter(state, table, f"ADD COLUMN {quoted(state.new_column(table))} {declared}", row=_ONLY_SOURCE)


@production("ADD COLUMN FIRST, AFTER")
def _add_at_place(state: State) -> Step | None:
    if not (table := state.pick()):
        return None
    column = f"ADD {quoted(state.new_column(table))} {_declaration(state, nullable=True)}{_place(state, table)}"
    return _alter(state, table, column, row="ADD COLUMN FIRST, AFTER")


_UNKNOWN_TYPE = "ADD COLUMN of a type that MySQL does not have (UUID, VECTOR)"


@production(_UNKNOWN_TYPE, reported=("type_mapping",))
def _add_unknown_type(state: State) -> Step | None:
    # A table of its own, as it stays blocked, and so does what a RENAME links to it.
    table = Table((ODD, f"t{state.rng.randrange(10**6)}"))
    statements = (
        f"CREATE TABLE {table.sql} (id int PRIMARY KEY)",
        f"INSERT INTO {table.sql} VALUES (1)",
        f"ALTER TABLE {table.sql} ADD COLUMN `u` {state.rng.choice(UNKNOWN_TYPES)}",
        f"INSERT INTO {table.sql} VALUES (2, uuid())",
    )
    return Step((_UNKNOWN_TYPE,), (table.name,), tuple(map(Statement, statements)))


@production("DROP COLUMN")
def _drop(state: State) -> Step | None:
    if not (table := state.pick(lambda t: bool(t.free_columns))):
        return None
    columns = state.rng.sample(table.free_columns, state.rng.randint(1, min(2, len(table.free_columns))))
    clauses = [f"DROP {state.rng.choice(['COLUMN ', ''])}{quoted(c.name)}" for c in columns]
    return _alter(state, table, *clauses, row="DROP COLUMN")


@production("DROP COLUMN, then ADD COLUMN of that name", "ddl_applied")
def _drop_and_add(state: State) -> Step | None:
    if not (table := state.pick(lambda t: bool(t.free_columns))):
        return None
    name = quoted(state.rng.choice(table.free_columns).name)
    declared = _declaration(state, nullable=True, with_default=state.rng.random() < 0.5) or "int"
    row = "DROP COLUMN, then ADD COLUMN of that name"
    if state.rng.random() < 0.5:
        return _alter(state, table, f"DROP COLUMN {name}", f"ADD COLUMN {name} {declared}", row=row)
    statements = [
        f"ALTER TABLE {table.sql} DROP COLUMN {name}",
        f"ALTER TABLE {table.sql} ADD COLUMN {name} {declared}",
    ]
    return Step((row,), (table.name,), tuple(map(Statement, statements)))


@production("RENAME COLUMN, CHANGE to another name")
def _rename_column(state: State) -> Step | None:
    if not (table := state.pick(lambda t: any(not c.is_filled for c in t.free_columns))):
        return None
    column = state.rng.choice([c for c in table.free_columns if not c.is_filled])
    name, new = quoted(column.name), quoted(state.new_column(table))
    clause = state.rng.choice([f"RENAME COLUMN {name} TO {new}", f"CHANGE COLUMN {name} {new} {redeclare(column)}"])
    return _alter(state, table, clause, row="RENAME COLUMN, CHANGE to another name")


@production("columns that swap their names")
def _swap_columns(state: State) -> Step | None:
    if not (table := state.pick(lambda t: sum(not c.is_filled for c in t.free_columns) > 1)):
        return None
    one, other = state.rng.sample([c for c in table.free_columns if not c.is_filled], 2)
    a, b = quoted(one.name), quoted(other.name)
    row = "columns that swap their names"
    # In three statements: Debezium 3.5 loses a column in one statement.
    pairs = [(a, "`third`"), (b, a), ("`third`", b)]
    statements = [f"ALTER TABLE {table.sql} RENAME COLUMN {old} TO {new}" for old, new in pairs]
    return Step((row,), (table.name,), tuple(map(Statement, statements)))


@production("RENAME COLUMN to another letter case")
def _recase(state: State) -> Step | None:
    def has_letters(column: Column) -> bool:
        return column.name.isascii() and column.name.swapcase() != column.name and not column.is_filled

    if not (table := state.pick(lambda t: any(map(has_letters, t.free_columns)))):
        return None
    column = state.rng.choice([c for c in table.free_columns if has_letters(c)])
    clause = f"CHANGE {quoted(column.name)} {quoted(column.name.swapcase())} {redeclare(column)}"
    return _alter(state, table, clause, row="RENAME COLUMN to another letter case")


_WIDER = "MODIFY to a wider type (INT to BIGINT, more digits, FLOAT to DOUBLE)"
_NEXT = {"tinyint": "smallint", "smallint": "mediumint", "mediumint": "int", "int": "bigint"}


def _widened(column: Column, rng: random.Random) -> str | None:
    if column.base in _NEXT and "zerofill" not in column.type:
        sign = " unsigned" if "unsigned" in column.type else ""
        return rng.choice([_NEXT[column.base], "bigint"]) + sign
    if column.base == "decimal" and column.sizes[0] < 60:
        more = rng.randint(1, 5)
        return f"decimal({column.sizes[0] + more},{column.sizes[1]})" + (
            " unsigned" if "unsigned" in column.type else ""
        )
    return "double" if column.type == "float" else None


@production(_WIDER, "ddl_applied")
def _widen(state: State) -> Step | None:
    def is_narrow(column: Column) -> bool:
        return not column.is_filled and _widened(column, random.Random(0)) is not None

    if not (table := state.pick(lambda t: any(map(is_narrow, t.free_columns)))):
        return None
    column = state.rng.choice([c for c in table.free_columns if is_narrow(c)])
    wider = redeclare(column, _widened(column, state.rng))
    clause = state.rng.choice(
        [f"MODIFY {quoted(column.name)} {wider}", f"CHANGE {quoted(column.name)} {quoted(column.name)} {wider}"]
    )
    return _alter(state, table, clause, row=_WIDER)


_SAME = "MODIFY that leaves values as they are (longer texts, character sets, other ENUM labels)"


@production(_SAME)
def _modify_text(state: State) -> Step | None:
    def is_text(column: Column) -> bool:
        return column.base in ("varchar", "char", "enum", "text") and not column.is_filled

    if not (table := state.pick(lambda t: any(map(is_text, t.free_columns)))):
        return None
    column = state.rng.choice([c for c in table.free_columns if is_text(c)])
    if column.base == "enum":
        labels = [*column.labels, *(label for label in ("new", "Neu") if label not in column.labels)]
        if state.rng.random() < 0.5:
            labels.reverse()
        declared = redeclare(column, f"enum({','.join(map(quote, labels))})", column.charset)
    elif column.base == "text":
        declared = redeclare(column, state.rng.choice(["mediumtext", "longtext"]), "utf8mb4")
    else:
        longer = f"{column.base}({min(column.sizes[0] + 10, 255)})" if column.sizes[0] < 200 else column.type
        declared = redeclare(column, longer, state.rng.choice([column.charset, "utf8mb4"]))
    return _alter(state, table, f"MODIFY COLUMN {quoted(column.name)} {declared}", row=_SAME)


_OTHER = "any other MODIFY (INT to VARCHAR, DATE to DATETIME, fewer digits, members of a SET in another order)"
_CONVERTED = {
    "tinyint": ("varchar(20)", "decimal(30,2)", "double", "tinyint unsigned", "bit(8)", "text", "year"),
    "int": ("varchar(40)", "decimal(30,2)", "double", "int unsigned", "char(30)", "bigint unsigned", "varbinary(40)"),
    "bigint": ("varchar(40)", "decimal(40,0)", "bigint unsigned", "int"),
    "decimal": ("varchar(80)", "decimal(20,1)", "double", "bigint", "decimal(65,30)"),
    "double": ("varchar(60)", "decimal(30,5)", "bigint", "float", "double(30,2)"),
    "float": ("varchar(60)", "decimal(30,5)", "int"),
    "date": ("datetime", "datetime(3)", "varchar(30)", "timestamp", "int", "char(10)"),
    "datetime": ("date", "datetime", "datetime(6)", "varchar(40)", "timestamp(6)", "time"),
    "timestamp": ("datetime(6)", "timestamp", "varchar(40)", "date"),
    "time": ("time", "time(6)", "varchar(40)", "int"),
    "year": ("int", "varchar(10)", "smallint"),
    "enum": ("varchar(30) CHARACTER SET utf8mb4", "int", "char(20) CHARACTER SET utf8mb4"),
    "set": ("varchar(60) CHARACTER SET utf8mb4", "text CHARACTER SET utf8mb4"),
    "bit": ("bigint", "varbinary(20)", "bigint unsigned"),
    "varchar": ("varbinary(2000)", "blob", "int", "date", "enum('a','b','')", "json"),
    "char": ("varchar(40) CHARACTER SET utf8mb4", "binary(80)", "varbinary(200)"),
    "text": ("blob", "varchar(400) CHARACTER SET utf8mb4", "longblob"),
    "varbinary": ("blob", "binary(200)", "varchar(600) CHARACTER SET latin1"),
    "binary": ("varbinary(40)", "blob", "binary(30)", "binary(90)"),
    "blob": ("text CHARACTER SET latin1", "longblob", "varbinary(400)"),
}


@production(_OTHER, "ddl_applied")
def _convert(state: State) -> Step | None:
    def converts(column: Column) -> bool:
        return column.base in _CONVERTED and not column.is_filled

    if not (table := state.pick(lambda t: any(map(converts, t.free_columns)))):
        return None
    column = state.rng.choice([c for c in table.free_columns if converts(c)])
    name = quoted(column.name)
    clause = f"MODIFY {name} {redeclare(column, state.rng.choice(_CONVERTED[column.base]))}"
    if state.rng.random() < 0.3:
        # Few values, which more conversions allow.
        update = f"UPDATE {table.sql} SET {name} = {state.rng.choice(['1', '0', 'DEFAULT'])}"
        return Step((_OTHER,), (table.name,), (Statement(update), Statement(f"ALTER TABLE {table.sql} {clause}")))
    return _alter(state, table, clause, row=_OTHER)


@production("several changes in one ALTER TABLE", "ddl_applied")
def _several(state: State) -> Step | None:
    if not (table := state.pick(lambda t: sum(not c.is_filled for c in t.free_columns) > 2)):
        return None
    columns = [c for c in table.free_columns if not c.is_filled]
    dropped, renamed, other = state.rng.sample(columns, 3)
    new = state.new_column(table)
    newer = state.new_column(table, (new,))
    clauses = [
        f"DROP COLUMN {quoted(dropped.name)}",
        f"CHANGE {quoted(renamed.name)} {quoted(new)} {redeclare(renamed)}",
        f"ADD COLUMN {quoted(newer)} {_declaration(state, nullable=True, with_default=True) or 'int DEFAULT 3'}",
        f"MODIFY {quoted(other.name)} {redeclare(other, _widened(other, state.rng))}",
        "COMMENT = 'several'",
    ]
    chosen = state.rng.sample(clauses, state.rng.randint(2, len(clauses)))
    return _alter(state, table, *chosen, row="several changes in one ALTER TABLE")


# --- defaults, keys, indexes, options

_EXCLUDING = (
    "MODIFY to NOT NULL, to CHAR, to a shorter text, a narrower number or fewer labels, "
    "where open rows have a value that it excludes"
)


@production(_EXCLUDING, ends_comparison=True, reported=("reload_required", "changes_continue"))
def _exclude(state: State) -> Step | None:
    def can_exclude(column: Column) -> bool:
        return column.base in ("int", "varchar") and column.nullable and not column.is_filled

    if not (table := state.pick(lambda t: bool(t.key) and any(map(can_exclude, t.free_columns)))):
        return None
    column = state.rng.choice([c for c in table.free_columns if can_exclude(c)])
    name = quoted(column.name)
    choices = {
        "varchar": [("'ab'", "varchar(1) NULL"), ("'a '", "char(9) NULL")],
        "int": [("-1", "int unsigned NULL"), ("9", "bit(3) NULL")],
    }
    value, declared = state.rng.choice([("NULL", f"{column.type} NOT NULL"), *choices[column.base]])
    statements = (
        Statement(insert_ignored(state.rng, table)),
        Statement(f"UPDATE {table.sql} SET {name} = {value}"),
        Statement("SET SESSION sql_mode = ''"),
        Statement(f"ALTER TABLE {table.sql} MODIFY {name} {declared}", seconds=1.1),
        Statement("SET SESSION sql_mode = DEFAULT"),
    )
    return Step((_EXCLUDING,), (table.name,), statements)


_DEFAULTS_AND_INDEXES = "ALTER COLUMN SET or DROP DEFAULT; CREATE, DROP, RENAME INDEX"


@production(_DEFAULTS_AND_INDEXES)
def _defaults_and_indexes(state: State) -> Step | None:
    if not (table := state.pick(lambda t: any(c.base in ("int", "varchar") for c in t.free_columns))):
        return None
    column = state.rng.choice([c for c in table.free_columns if c.base in ("int", "varchar")])
    name, rng = quoted(column.name), state.rng
    statements = [
        f"ALTER TABLE {table.sql} ALTER COLUMN {name} SET DEFAULT {rng.choice(['7', chr(39) + '8' + chr(39)])}",
        f"ALTER TABLE {table.sql} ALTER {name} DROP DEFAULT",
        f"CREATE INDEX {quoted(f'i{rng.randrange(99)}')} ON {table.sql} ({name})",
        f"ALTER TABLE {table.sql} ADD INDEX ({TOUCHED}, {name})",
    ]
    if table.indexes:
        index = quoted(rng.choice(table.indexes))
        statements += [
            f"DROP INDEX {index} ON {table.sql}",
            f"ALTER TABLE {table.sql} RENAME INDEX {index} TO `renamed`",
        ]
    return Step((_DEFAULTS_AND_INDEXES,), (table.name,), (Statement(rng.choice(statements)),))


_KEYS = "ADD or DROP PRIMARY KEY, if the new key's columns are integers, CHAR or VARCHAR"
_KEY_BASES = ("tinyint", "smallint", "mediumint", "int", "bigint", "varchar", "char")


def _can_be_key(column: Column) -> bool:
    is_changed = column.base == "bigint" and "unsigned" in column.type  # Debezium writes it in other ways in keys
    return (
        not is_changed
        and column.base in _KEY_BASES
        and not column.nullable
        and not column.is_filled
        and (column.sizes or (0,))[0] < 100
    )


@production(_KEYS)
def _change_key(state: State) -> Step | None:
    def is_fit(table: Table) -> bool:
        named = {c.name: c for c in table.columns}
        return all(_can_be_key(named[k]) for k in table.key)

    if not (table := state.pick(is_fit)):
        return None
    more = [c.name for c in table.columns if _can_be_key(c) and c.name not in table.key]
    key = [*table.key, *state.rng.sample(more, min(1, len(more)))] if len(table.key) < 3 else [*table.key[:-1]]
    if len(table.key) > 1 and state.rng.random() < 0.4:
        key = list(reversed(table.key))
    columns = ", ".join(map(quoted, key))
    return _alter(state, table, "DROP PRIMARY KEY", f"ADD PRIMARY KEY ({columns})", row=_KEYS)


@production("DROP PRIMARY KEY that leaves no key", "late_events_seen_before", ends_comparison=True)
def _drop_key(state: State) -> Step | None:
    if not (table := state.pick(lambda t: not any(c.is_filled for c in t.columns))):
        return None
    return _alter(state, table, "DROP PRIMARY KEY", row="DROP PRIMARY KEY that leaves no key")


_RELOAD_KEY = "ADD PRIMARY KEY of other columns, or in a table whose CREATE TABLE was not seen"


@production(_RELOAD_KEY, ends_comparison=True, reported=("reload_required",))
def _other_key(state: State) -> Step | None:
    def dates(table: Table) -> list[str]:
        return [c.name for c in table.free_columns if c.base in ("date", "datetime", "decimal") and not c.is_filled]

    if not (table := state.pick(lambda t: bool(dates(t)))):
        return None
    column = quoted(state.rng.choice(dates(table)))
    statements = (
        Statement(f"DELETE FROM {table.sql} WHERE {column} IS NULL"),
        Statement(
            f"ALTER TABLE {table.sql} DROP PRIMARY KEY, ADD PRIMARY KEY ({', '.join(map(quoted, table.key))}, {column})"
        ),
    )
    return Step((_RELOAD_KEY,), (table.name,), statements)


_OPTIONS = (
    "comments, engines, character sets, partitions that move no row, and all other clauses that change no column, key or "
    "row"
)


@production(_OPTIONS)
def _options(state: State) -> Step | None:
    if not (table := state.pick()):
        return None
    clause = state.rng.choice(
        ["COMMENT = 'a `b` -- c'", "ENGINE = InnoDB", "ROW_FORMAT = DYNAMIC", "DEFAULT CHARACTER SET latin1", "FORCE",
         "AUTO_INCREMENT = 1000", "ADD CONSTRAINT CHECK (touched >= -1)", "DISABLE KEYS", "STATS_PERSISTENT = 1",
         "CONVERT TO CHARACTER SET utf8mb4", "ORDER BY touched", "ALGORITHM = COPY, COMMENT 'x'"]
    )  # fmt: skip
    return _alter(state, table, clause, row=_OPTIONS)


@production("WAIT, NOWAIT, SET STATEMENT ... FOR (MariaDB)")
def _words(state: State) -> Step | None:
    if not (table := state.pick()):
        return None
    column = f"{quoted(state.new_column(table))} int"
    sql = state.rng.choice(
        [
            f"ALTER TABLE {table.sql} WAIT 5 ADD COLUMN {column}",
            f"ALTER TABLE {table.sql} NOWAIT ADD COLUMN {column}",
            f"SET STATEMENT max_statement_time=60 FOR ALTER TABLE {table.sql} ADD COLUMN {column}",
            f"TRUNCATE TABLE {table.sql} WAIT 3",
            f"/* why */ ALTER /*!50000 ONLINE */ TABLE {table.sql} ADD COLUMN {column} -- end",
        ]
    )
    return Step(("WAIT, NOWAIT, SET STATEMENT ... FOR (MariaDB)",), (table.name,), (Statement(sql),))


# --- tables


@production("CREATE TABLE")
def _create_table(state: State) -> Step | None:
    return _create(state, state.free_name())


@production("CREATE TABLE LIKE")
def _create_like(state: State) -> Step | None:
    if not (table := state.pick()):
        return None
    name = state.free_name()
    like = f"CREATE TABLE {Table(name).sql} LIKE {table.sql}"
    copy = f"INSERT INTO {Table(name).sql} ({_columns(table)}) SELECT {_columns(table)} FROM {table.sql}"
    return Step(("CREATE TABLE LIKE",), (name, table.name), (Statement(like), Statement(copy)))


def _columns(table: Table) -> str:
    return ", ".join(quoted(c.name) for c in table.columns if not c.is_filled or c.name in table.key)


@production("CREATE OR REPLACE TABLE (MariaDB)")
def _or_replace(state: State) -> Step | None:
    # Of a new name: Debezium 3.5 keeps the columns of a table that exists, and a table that ALTER TABLE ... RENAME renamed.
    name = state.rng.choice(DATABASES), f"replacing {state.rng.randrange(10**6)}"
    step = _create(state, name, words="CREATE OR REPLACE TABLE")
    return Step(("CREATE OR REPLACE TABLE (MariaDB)",), step.tables, step.statements)


@production("TRUNCATE TABLE")
def _truncate(state: State) -> Step | None:
    if not (table := state.pick(keyless=True)):
        return None
    statements = _statements(state, table, state.rng.choice(["TRUNCATE TABLE {t}", "truncate {t}"]))
    if state.rng.random() < 0.3:
        statements = _waiting(state, table, statements)
    return Step(("TRUNCATE TABLE",), (table.name,), statements)


@production("DROP TABLE")
def _drop_table(state: State) -> Step | None:
    if not (table := state.pick(keyless=True)):
        return None
    statements = _statements(state, table, state.rng.choice(["DROP TABLE {t}", "DROP TABLE IF EXISTS {t} CASCADE"]))
    if state.rng.random() < 0.3:
        statements = _waiting(state, table, statements)
    return Step(("DROP TABLE",), (table.name,), statements)


@production("DROP DATABASE")
def _drop_database(state: State) -> Step | None:
    if state.rng.random() < 0.5:
        return None
    database = state.rng.choice(DATABASES)
    tables = tuple(name for name in state.tables if name[0] == database)
    statements = (
        Statement(f"DROP DATABASE {database}"),
        Statement(f"CREATE DATABASE {database} CHARACTER SET utf8mb4"),
    )
    return Step(("DROP DATABASE",), tables, statements)


@production("DROP TABLE, then CREATE TABLE")
def _drop_and_create(state: State) -> Step | None:
    if not (table := state.pick(keyless=True)):
        return None
    step = _create(state, table.name)
    row = "DROP TABLE, then CREATE TABLE"
    return Step((row,), (table.name,), (Statement(f"DROP TABLE {table.sql}"), *step.statements))


def _rename(state: State, *pairs: tuple[str, str]) -> str:
    return "RENAME TABLE " + ", ".join(f"{old} TO {new}" for old, new in pairs)


@production("RENAME TABLE")
def _rename_table(state: State) -> Step | None:
    if not (table := state.pick()):
        return None
    new = Table(state.free_name(None if state.rng.random() < 0.3 else table.name[0]))
    column = quoted(state.new_column(table))
    clause = state.rng.choice(["", f"RENAME TO {new.sql}", f"ADD COLUMN {column} int DEFAULT 4, RENAME {new.sql}"])
    if clause:
        # Debezium 3.5 keeps the old name in its schemas, and a later CREATE TABLE does not replace it.
        sqls = [f"ALTER TABLE {table.sql} {clause}", f"DROP TABLE IF EXISTS {table.sql}"]
        return Step(("RENAME TABLE",), (table.name, new.name), tuple(map(Statement, sqls)))
    rename = Statement(_rename(state, (table.sql, new.sql)))
    statements = _waiting(state, table, [rename]) if state.rng.random() < 0.3 else (rename,)
    return Step(("RENAME TABLE",), (table.name, new.name), statements)


@production("RENAME TABLE, then CREATE TABLE of the old name")
def _rename_and_create(state: State) -> Step | None:
    if not (table := state.pick()):
        return None
    new = Table(state.free_name(table.name[0]))
    made = _create(state, table.name)
    row = "RENAME TABLE, then CREATE TABLE of the old name"
    return Step((row,), (table.name, new.name), (Statement(_rename(state, (table.sql, new.sql))), *made.statements))


def _new_table(state: State, table: Table) -> tuple[Table, Table, list[Statement]]:
    """Return names for the new and the old table, and statements that fill the new one."""
    database, name = table.name
    short = name[:50]
    new, old = Table((database, f"_{short}_gho")), Table((database, f"_{short}_del"))
    columns = _columns(table)
    statements = [
        f"DROP TABLE IF EXISTS {new.sql}, {old.sql}",
        f"CREATE TABLE {new.sql} LIKE {table.sql}",
        f"ALTER TABLE {new.sql} ADD COLUMN {quoted(state.new_column(table))} {_declaration(state, nullable=True)}",
        f"INSERT IGNORE INTO {new.sql} ({columns}) SELECT {columns} FROM {table.sql}",
        insert_ignored(state.rng, table),
        f"REPLACE INTO {new.sql} ({columns}) SELECT {columns} FROM {table.sql}",
    ]
    # Not twice in one second: which of two such RENAMEs moved a row, its history does not show.
    return new, old, [Statement(sql, seconds=1.1 * (n == 0)) for n, sql in enumerate(statements)]


_REPLACED = (
    "RENAME TABLE `t` TO `_t_del`, `_t_gho` TO `t`: another table [replaces](#one-table-replaces-another) this one (gh-ost, "
    "pt-online-schema-change)"
)


@production(_REPLACED)
def _ghost(state: State) -> Step | None:
    if not (table := state.pick(lambda t: not t.name[1].startswith("_"))):
        return None
    new, old, statements = _new_table(state, table)
    statements.append(
        Statement(_rename(state, (table.sql, old.sql), (new.sql, table.sql)), seconds=state.rng.choice([0, 1.1]))
    )
    if state.rng.random() < 0.5:
        statements.append(Statement(f"DROP TABLE {old.sql}"))
    return Step((_REPLACED,), (table.name, new.name, old.name), tuple(statements))


_TWO_STEPS = (
    "the same in two statements at one position: ALTER TABLE `t` RENAME `_t_del`, ALTER TABLE `_t_gho` RENAME `t` (gh-ost's "
    "two-step cut-over), or DROP TABLE `t`, RENAME TABLE `_t_new` TO `t` (pt-online-schema-change with drop_swap)"
)


@production(_TWO_STEPS)
def _two_steps(state: State) -> Step | None:
    if not (table := state.pick(lambda t: not t.name[1].startswith("_"))):
        return None
    new, old, statements = _new_table(state, table)
    first = state.rng.choice([f"ALTER TABLE {table.sql} RENAME {old.sql}", f"DROP TABLE {table.sql}"])
    last = [first, f"ALTER TABLE {new.sql} RENAME TO {table.sql}"]
    return Step((_TWO_STEPS,), (table.name, new.name, old.name), (*statements, *map(Statement, last)))


@production("the same in two statements with time between")
def _two_steps_apart(state: State) -> Step | None:
    step = _two_steps(state)
    if not step:
        return None
    *first, last = step.statements
    row = "the same in two statements with time between"
    return Step((row,), step.tables, (*first, Statement(last.sql, seconds=1.2)))


_CIRCLES = (
    "RENAME TABLE that swaps tables, or moves them in a circle; TiCDC sends one message a table, in any order and "
    "topics"
)


@production(_CIRCLES)
def _circle(state: State) -> Step | None:
    tables = [t for name, t in state.tables.items() if name[0] in DATABASES and t.key and name not in state.exempt]
    if len(tables) < 3:
        return None
    chosen = state.rng.sample(tables, state.rng.choice([2, 3]))
    third = Table((chosen[0].name[0], "in the way"))
    pairs = [(chosen[0].sql, third.sql)]
    pairs += [(chosen[n].sql, chosen[n - 1].sql) for n in range(1, len(chosen))]
    pairs.append((third.sql, chosen[-1].sql))
    return Step((_CIRCLES,), (*(t.name for t in chosen), third.name), (Statement(_rename(state, *pairs)),))


_UNCAPTURED = "RENAME TABLE of a table that the feed does not capture to this name"


@production(_UNCAPTURED, ends_comparison=True, reported=("reload_required",))
def _from_hidden(state: State) -> Step | None:
    hidden = Table((HIDDEN, "outside"))
    name = state.free_name()
    made = _create(state, hidden.name)
    fill = Statement(f"INSERT IGNORE INTO {hidden.sql} (id) VALUES (1)")
    move = Statement(_rename(state, (hidden.sql, Table(name).sql)))
    return Step(
        (_UNCAPTURED,),
        (name, hidden.name),
        (Statement(f"DROP TABLE IF EXISTS {hidden.sql}"), *made.statements, fill, move),
    )


_PARTITIONS = "TRUNCATE, DROP, EXCHANGE PARTITION"


@production(_PARTITIONS, ends_comparison=True, reported=("reload_required",))
def _partition(state: State) -> Step | None:
    table = state.pick(lambda t: len(t.partitions) > 1)
    if not table:
        ending = " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN MAXVALUE)"
        name = state.free_name()
        made = _create(state, name, ending=ending)
        return Step(("CREATE TABLE",), (name,), made.statements)
    clause = f"{state.rng.choice(['TRUNCATE', 'DROP'])} PARTITION {table.partitions[0]}"
    return _alter(state, table, clause, row=_PARTITIONS)


_IGNORE = "ALTER IGNORE TABLE with a unique key, which deletes rows (MariaDB)"


@production(_IGNORE, ends_comparison=True, reported=("reload_required",))
def _ignore(state: State) -> Step | None:
    if not (table := state.pick()):
        return None
    return Step((_IGNORE,), (table.name,), (Statement(f"ALTER IGNORE TABLE {table.sql} ADD UNIQUE ({TOUCHED})"),))


# --- any statement


@production("IF EXISTS, IF NOT EXISTS that changed nothing at the source")
def _no_effect(state: State) -> Step | None:
    if not (table := state.pick()):
        return None
    # No ADD COLUMN IF NOT EXISTS: Debezium 3.5 takes the column to be of the new type.
    missing = quoted(state.new_column(table))
    sql = state.rng.choice(
        [
            f"CREATE TABLE IF NOT EXISTS {table.sql} (other int PRIMARY KEY)",
            f"ALTER TABLE {table.sql} DROP COLUMN IF EXISTS {missing}",
            f"DROP TABLE IF EXISTS {Table(state.free_name()).sql}",
            f"CREATE DATABASE IF NOT EXISTS {table.name[0]}",
            f"ALTER TABLE IF EXISTS {Table(state.free_name()).sql} ADD COLUMN z int",
            f"RENAME TABLE IF EXISTS {Table(state.free_name()).sql} TO {Table((table.name[0], 'nowhere')).sql}",
        ]
    )
    return Step(("IF EXISTS, IF NOT EXISTS that changed nothing at the source",), (table.name,), (Statement(sql),))


@production("names in another letter case")
def _other_case(state: State) -> Step | None:
    def has_letters(column: Column) -> bool:
        return column.name.isascii() and column.name.swapcase() != column.name

    if not (table := state.pick(lambda t: any(map(has_letters, t.free_columns)))):
        return None
    column = state.rng.choice([c for c in table.free_columns if has_letters(c)])
    row = "names in another letter case"
    return _alter(state, table, f"drop column {quoted(column.name.swapcase())}", row=row)


def choose_production(rng: random.Random, times_used: Mapping[str, int]) -> Production:
    """Return a production by chance: the less often a production was carried out, the likelier it is."""
    return rng.choices(PRODUCTIONS, [1 / (1 + times_used[production.row]) for production in PRODUCTIONS])[0]
