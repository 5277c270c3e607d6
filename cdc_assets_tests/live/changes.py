"""Changes of rows: single statements, transactions of several sessions, and statements that wait for locks."""

import random
from collections.abc import Callable, Sequence

from cdc_assets_tests.live.catalog import TOUCHED, Table
from cdc_assets_tests.live.names import quoted
from cdc_assets_tests.live.sessions import Statement, Step
from cdc_assets_tests.live.types import Column, literal, quote

_KEY_NUMBERS = 12  # so few that keys come back
_KEY_TEXTS = ("a", "A", "b", "é", "x y", "漢", "", "0", "a.b", "per%cent", '"q"', "back`t")


def touch(table: Table) -> Step:
    """Change every row of a table, so that what only the source knows arrives."""
    return Step(
        (), (table.name,), (Statement(f"UPDATE {table.sql} SET {TOUCHED} = {TOUCHED} + 1 ORDER BY {TOUCHED} DESC"),)
    )


def key_literal(rng: random.Random, column: Column) -> str:
    """Return one of few values of a key's column."""
    if column.base in ("char", "varchar"):
        return quote(rng.choice(_KEY_TEXTS))
    if column.base == "date":
        return quote(f"2024-01-{rng.randint(1, _KEY_NUMBERS):02}")
    return str(rng.randint(1, _KEY_NUMBERS))


def _value(rng: random.Random, table: Table, column: Column) -> str:
    if column.name == TOUCHED:
        return str(rng.randint(0, 3))
    if column.has_default and rng.random() < 0.2:
        return "DEFAULT"
    return key_literal(rng, column) if column.name in table.key else literal(rng, column)


def insert(rng: random.Random, table: Table, verb: str = "INSERT") -> str:
    """Return an INSERT, or another verb, of some rows."""
    columns = [c for c in table.columns if not (c.is_filled and c.name not in table.key)]
    if rng.random() < 0.2:  # those with a default are left out
        columns = [c for c in columns if not c.has_default] or columns
    rows = ", ".join(f"({', '.join(_value(rng, table, c) for c in columns)})" for _ in range(rng.choice([1, 1, 2, 5])))
    return f"{verb} INTO {table.sql} ({', '.join(quoted(c.name) for c in columns)}) VALUES {rows}"


def insert_ignored(rng: random.Random, table: Table) -> str:
    """Return an INSERT that is never refused."""
    return insert(rng, table, "INSERT IGNORE")


def where(rng: random.Random, table: Table) -> str:
    """Return a WHERE clause that matches a few rows."""
    named = {c.name: c for c in table.columns}
    if not table.key:
        return f" WHERE {TOUCHED} = {rng.randint(0, 3)} LIMIT {rng.randint(1, 2)}"
    if rng.random() < 0.2:
        return f" WHERE {TOUCHED} % 3 = {rng.randint(0, 2)}"
    column = rng.choice(table.key)
    return f" WHERE {quoted(column)} = {key_literal(rng, named[column])}"


def update(rng: random.Random, table: Table) -> str:
    """Return an UPDATE of some columns."""
    free = [c for c in table.free_columns if not c.is_filled]
    columns = rng.sample(free, min(len(free), rng.randint(1, 3)))
    assignments = [f"{quoted(c.name)} = {_value(rng, table, c)}" for c in columns]
    assignments += [f"{TOUCHED} = {TOUCHED} + 1"] if not columns or rng.random() < 0.3 else []
    return f"UPDATE {table.sql} SET {', '.join(assignments)}{where(rng, table)}"


def update_key(rng: random.Random, table: Table) -> str:
    """Return an UPDATE that gives a row another key."""
    if not table.key:
        return update(rng, table)
    named = {c.name: c for c in table.columns}
    column = rng.choice(table.key)
    value = key_literal(rng, named[column])
    return f"UPDATE {table.sql} SET {quoted(column)} = {value}{where(rng, table)}"


def delete(rng: random.Random, table: Table) -> str:
    """Return a DELETE of a few rows."""
    return f"DELETE FROM {table.sql}{where(rng, table)}"


def upsert(rng: random.Random, table: Table) -> str:
    """Return an INSERT ... ON DUPLICATE KEY UPDATE."""
    return f"{insert(rng, table)} ON DUPLICATE KEY UPDATE {TOUCHED} = {TOUCHED} + 1"


def change(rng: random.Random, table: Table) -> str:
    """Return any statement that changes rows."""
    kinds: Sequence[Callable[[random.Random, Table], str]] = (insert, update, update_key, delete, upsert)
    made = rng.choices(kinds, (5, 4, 2, 2, 1))[0](rng, table)
    return insert(rng, table, "REPLACE") if rng.random() < 0.05 else made


def single(rng: random.Random, tables: Sequence[Table]) -> Step:
    """Return a statement of its own."""
    table = rng.choice(tables)
    return Step((), (table.name,), (Statement(change(rng, table), rng.randrange(3)),))


def transaction(rng: random.Random, tables: Sequence[Table]) -> Step:
    """Return a transaction of some tables, which is committed, rolled back, or rolled back in part."""
    chosen = [rng.choice(tables) for _ in range(rng.randint(2, 8))]
    session = rng.randrange(3)
    statements = [change(rng, table) for table in chosen]
    if rng.random() < 0.3:
        middle = rng.randrange(len(statements))
        statements[middle:middle] = ["SAVEPOINT s", change(rng, chosen[0]), "ROLLBACK TO SAVEPOINT s"]
    end = "ROLLBACK" if rng.random() < 0.1 else "COMMIT"
    return Step(
        (),
        tuple(dict.fromkeys(table.name for table in chosen)),
        tuple(Statement(sql, session) for sql in ("BEGIN", *statements, end)),
    )


def lock_wait(rng: random.Random, tables: Sequence[Table]) -> Step:
    """Return a transaction for which a statement of another session waits: its time is older, its place is later."""
    table = rng.choice(tables)
    first = change(rng, table)
    statements = [Statement("BEGIN"), Statement(f"UPDATE {table.sql} SET {TOUCHED} = {TOUCHED} + 1"), Statement(first)]
    statements.append(Statement(f"UPDATE {table.sql} SET {TOUCHED} = {TOUCHED} + 2{where(rng, table)}", 1, waits=True))
    if rng.random() < 0.5:
        statements.append(Statement(delete(rng, table), 2, waits=True, seconds=0.1))
    statements.append(Statement(change(rng, table), 0, seconds=rng.choice([0.1, 0.6, 1.2])))
    statements.append(Statement("COMMIT"))
    return Step((), (table.name,), tuple(statements))


def to_and_fro(rng: random.Random, tables: Sequence[Table]) -> Step:
    """Return changes of the same rows to one value and back, several times within a second."""
    table = rng.choice(tables)
    clause = where(rng, table)
    values = [0, 1] * rng.randint(1, 3)
    statements = tuple(Statement(f"UPDATE {table.sql} SET {TOUCHED} = {value}{clause}", value) for value in values)
    return Step((), (table.name,), statements)


def any_change(rng: random.Random, tables: Sequence[Table]) -> Step:
    """Return a step that changes rows only."""
    kinds = (single, transaction, lock_wait, to_and_fro)
    return rng.choices(kinds, (12, 5, 1, 1))[0](rng, tables)
