"""Read the keys and foreign keys of a table, and skip other constraints."""

from dataclasses import replace
from typing import Literal

from cdc_assets.ddl.actions import AddForeignKey, AddKey, ForeignKey
from cdc_assets.ddl.readers.options import skip_named_option, skip_value
from cdc_assets.ddl.readers.tokens import expect_word, read_table_name
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor, TokenKind

INDEX_KINDS = ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")


def read_key(cursor: TokenCursor) -> AddKey | AddForeignKey | None:
    """Read a key or another constraint if one comes next.

    Returns:
        The key or foreign key; a key without columns for a constraint that makes no key; None if a column comes next.

    Raises:
        SqlSyntaxError: the constraint is not understood.
    """
    symbol = ""
    if cursor.take("CONSTRAINT"):
        cursor.take("IF", "NOT", "EXISTS")
        if cursor.word() not in {"PRIMARY", "UNIQUE", "FOREIGN", "CHECK"}:
            symbol = cursor.name()
    if cursor.take("PRIMARY", "KEY"):
        return _read_primary_key(cursor)
    if cursor.take("UNIQUE"):
        cursor.take_any("INDEX", "KEY")
        return _read_named_key(cursor, "unique", symbol)
    if cursor.word() in {"INDEX", "KEY", "FULLTEXT"} or (
        cursor.word() in INDEX_KINDS and (cursor.word(1) in {"INDEX", "KEY"} or cursor.word() == "SPATIAL")
    ):
        cursor.take_any(*INDEX_KINDS)
        cursor.take_any("INDEX", "KEY")
        return _read_named_key(cursor, "index", "")
    if cursor.take("FOREIGN", "KEY"):
        return _read_foreign_key(cursor, symbol)
    if _skip_constraint(cursor):
        return AddKey("index", ())
    if symbol:
        raise SqlSyntaxError(f"CONSTRAINT {symbol} {cursor.peek().text} is not known")
    return None


def _read_primary_key(cursor: TokenCursor) -> AddKey:
    """Read a primary key, from after PRIMARY KEY."""
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    if cursor.peek() != (TokenKind.OTHER, "(") and cursor.word() != "USING":
        cursor.name()  # MySQL accepts a name here, and ignores it.
    skip_index_options(cursor)
    key = AddKey("primary", read_key_columns(cursor), "PRIMARY", only_if_missing=tolerant)
    skip_index_options(cursor)
    return key


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


def _read_named_key(cursor: TokenCursor, kind: Literal["unique", "index"], symbol: str) -> AddKey:
    """Read a key from its name on. A key without a name gets `symbol`, the name of its CONSTRAINT."""
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    name = symbol
    if cursor.peek() != (TokenKind.OTHER, "(") and cursor.word() not in {"USING", "TYPE"}:
        name = cursor.name()
    skip_index_options(cursor)
    key = AddKey(kind, read_key_columns(cursor), name, only_if_missing=tolerant)
    skip_index_options(cursor)
    return key


def skip_index_options(cursor: TokenCursor) -> None:
    """Skip the options of an index."""
    while True:
        if cursor.take_any("USING", "TYPE", "COMMENT") or cursor.take("WITH", "PARSER"):
            skip_value(cursor)
        elif cursor.take("NOT", "IGNORED") or cursor.take_any(*_INDEX_FLAGS):
            continue
        elif cursor.word() in {"ALGORITHM", "LOCK"} or not skip_named_option(cursor, _INDEX_OPTIONS):
            return


_INDEX_FLAGS = (
    "VISIBLE", "INVISIBLE", "IGNORED", "CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL", "ADD_COLUMNAR_REPLICA_ON_DEMAND",
)  # fmt: skip
_INDEX_OPTIONS = frozenset({"KEY_BLOCK_SIZE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "PRE_SPLIT_REGIONS"})


def _read_foreign_key(cursor: TokenCursor, symbol: str) -> AddForeignKey:
    """Read a foreign key, from after FOREIGN KEY; `symbol`: the name of its CONSTRAINT."""
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    index_name = cursor.name() if cursor.peek() != (TokenKind.OTHER, "(") else ""
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
    parent_columns = read_key_columns(cursor) if cursor.peek() == (TokenKind.OTHER, "(") else ()
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
    if cursor.peek() != (TokenKind.OTHER, "("):
        raise SqlSyntaxError(f"expected '(', found {cursor.peek().text!r}")
    cursor.skip_group()
    if cursor.sees("NOT", "ENFORCED"):
        cursor.at += 2
    else:
        cursor.take("ENFORCED")


def read_key_columns(cursor: TokenCursor) -> tuple[str, ...]:
    """Read the columns of a key in parentheses; no column if a part of the key is an expression."""
    cursor.expect_symbol("(")
    columns: list[str] = []
    only_columns = True
    while True:
        if cursor.peek() == (TokenKind.OTHER, "("):
            only_columns = False
        else:
            columns.append(cursor.name())
        cursor.skip_group()  # The expression, or the length of a column prefix.
        cursor.take_any("ASC", "DESC")
        if not cursor.symbol(","):
            break
    cursor.expect_symbol(")")
    return tuple(columns) if only_columns else ()
