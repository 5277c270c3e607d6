"""Read the keys and foreign keys of a table, and skip other constraints."""

from dataclasses import replace
from typing import Literal

from cdc_assets.ddl.actions import Action, AddForeignKey, AddKey, ForeignKey
from cdc_assets.ddl.readers.options import skip_named_option, skip_value
from cdc_assets.ddl.readers.tokens import expect_word, read_table_name
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor

INDEX_KINDS = ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")


def read_key(cursor: TokenCursor) -> list[Action] | None:
    """Read a key or another constraint if one comes next.

    Returns:
        The key or foreign key; nothing for a constraint that makes no key, or a key over expressions. None if a column comes
        next.

    Raises:
        SqlSyntaxError: the constraint is not understood.
    """
    symbol = ""
    if cursor.take("CONSTRAINT"):
        cursor.take("IF", "NOT", "EXISTS")
        if cursor.word() not in {"PRIMARY", "UNIQUE", "FOREIGN", "CHECK"}:
            symbol = cursor.name()
    if cursor.take("PRIMARY", "KEY"):
        return _read_rest_of_key(cursor, "primary", symbol)
    if cursor.take("UNIQUE"):
        cursor.take_any("INDEX", "KEY")
        return _read_rest_of_key(cursor, "unique", symbol)
    if cursor.word() in {"INDEX", "KEY", "FULLTEXT"} or (
        cursor.word() in INDEX_KINDS and (cursor.word(1) in {"INDEX", "KEY"} or cursor.word() == "SPATIAL")
    ):
        cursor.take_any(*INDEX_KINDS)
        cursor.take_any("INDEX", "KEY")
        return _read_rest_of_key(cursor, "index", "")
    if cursor.take("FOREIGN", "KEY"):
        return [_read_foreign_key(cursor, symbol)]
    if _skip_constraint(cursor):
        return []
    if symbol:
        raise SqlSyntaxError(f"CONSTRAINT {symbol} {cursor.peek().text} is not known")
    return None


def _skip_constraint(cursor: TokenCursor) -> bool:
    """Skip a check or a period if it comes next, and return whether it does."""
    if cursor.take("CHECK"):
        cursor.take("IF", "NOT", "EXISTS")
        skip_check(cursor)
    elif cursor.take("PERIOD", "FOR"):
        cursor.take("IF", "NOT", "EXISTS")
        cursor.name()
        read_key_columns(cursor)
    else:
        return False
    return True


def _read_rest_of_key(cursor: TokenCursor, kind: Literal["primary", "unique", "index"], symbol: str) -> list[Action]:
    """Read a key from its name on. A key without a name gets `symbol`, the name of its CONSTRAINT.

    Returns:
        The key; nothing for a key over expressions.
    """
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    name = symbol
    if not cursor.sees_symbol("(") and cursor.word() not in {"USING", "TYPE"}:
        name = cursor.name()
    if kind == "primary":
        name = "PRIMARY"  # MySQL ignores another name.
    skip_index_options(cursor)
    columns = read_key_columns(cursor)
    is_partial = skip_index_options(cursor)
    return [AddKey("index" if is_partial else kind, columns, name, only_if_missing=tolerant)] if columns else []


def skip_index_options(cursor: TokenCursor) -> bool:
    """Skip the options of an index, and return whether one is TiDB's WHERE, by which the index lacks some rows."""
    is_partial = False
    while True:
        if cursor.take_any("USING", "TYPE", "COMMENT") or cursor.take("WITH", "PARSER"):
            skip_value(cursor)
        elif cursor.take("NOT", "IGNORED") or cursor.take_any(*_INDEX_FLAGS):
            continue
        elif cursor.take("WHERE"):
            is_partial = True
            _skip_condition(cursor)
        elif cursor.word() in _AFTER_INDEX or not skip_named_option(cursor, _INDEX_OPTIONS):
            return is_partial


_INDEX_FLAGS = (
    "VISIBLE", "INVISIBLE", "IGNORED", "CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL", "ADD_COLUMNAR_REPLICA_ON_DEMAND",
)  # fmt: skip
_AFTER_INDEX = ("ALGORITHM", "LOCK")
_INDEX_OPTIONS = frozenset({"KEY_BLOCK_SIZE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "PRE_SPLIT_REGIONS"})


def _skip_condition(cursor: TokenCursor) -> None:
    """Skip the condition of a partial index, and the index options after it, from after WHERE."""
    while not (cursor.done or cursor.sees_symbol(",") or cursor.sees_symbol(")") or cursor.word() in _AFTER_INDEX):
        if cursor.sees_symbol("("):
            cursor.skip_group()
        else:
            cursor.next()


def _read_foreign_key(cursor: TokenCursor, symbol: str) -> AddForeignKey:
    """Read a foreign key, from after FOREIGN KEY; `symbol`: the name of its CONSTRAINT."""
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    index_name = cursor.name() if not cursor.sees_symbol("(") else ""
    columns = read_key_columns(cursor)
    expect_word(cursor, "REFERENCES")
    key = replace(read_reference(cursor, columns), name=symbol, index_name=index_name)
    return AddForeignKey(key, only_if_missing=tolerant)


def read_reference(cursor: TokenCursor, columns: tuple[str, ...]) -> ForeignKey:
    """Read the table and columns that a foreign key refers to and its options, from after REFERENCES.

    Args:
        cursor: after REFERENCES.
        columns: the columns of the foreign key.

    Returns:
        The foreign key, without a name.
    """
    parent = read_table_name(cursor)
    parent_columns = read_key_columns(cursor) if cursor.sees_symbol("(") else ()
    if cursor.take("MATCH"):
        expect_word(cursor, "FULL", "PARTIAL", "SIMPLE")
    actions: dict[str, str | None] = {}
    while cursor.sees("ON", "DELETE") or cursor.sees("ON", "UPDATE"):
        event = cursor.word(1)
        cursor.at += 2
        actions[event] = _read_reference_action(cursor)
    return ForeignKey("", columns, parent, parent_columns, actions.get("DELETE"), actions.get("UPDATE"))


def _read_reference_action(cursor: TokenCursor) -> str | None:
    """Read what a foreign key does to rows, from after ON DELETE or ON UPDATE; None for an action that changes no row."""
    if cursor.take("SET"):
        return f"SET {expect_word(cursor, 'NULL', 'DEFAULT')}"
    if cursor.take("CASCADE"):
        return "CASCADE"
    if not cursor.take("NO", "ACTION"):
        expect_word(cursor, "RESTRICT")
    return None


def skip_check(cursor: TokenCursor) -> None:
    """Skip the expression of a check and whether the server enforces it, from after CHECK.

    Raises:
        SqlSyntaxError: no expression in parentheses comes next.
    """
    if not cursor.sees_symbol("("):
        raise SqlSyntaxError(f"expected '(', found {cursor.peek().text!r}")
    cursor.skip_group()
    if not cursor.take("NOT", "ENFORCED"):
        cursor.take("ENFORCED")


def read_key_columns(cursor: TokenCursor) -> tuple[str, ...]:
    """Read the columns of a key in parentheses; no column if a part of the key is an expression."""
    cursor.expect_symbol("(")
    columns: list[str] = []
    only_columns = True
    while True:
        if cursor.sees_symbol("("):
            only_columns = False
        else:
            columns.append(cursor.name())
        cursor.skip_group()  # The expression, or the length of a column prefix.
        cursor.take_any("ASC", "DESC")
        if not cursor.symbol(","):
            break
    cursor.expect_symbol(")")
    return tuple(columns) if only_columns else ()
