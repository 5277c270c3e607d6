"""Take the tokens that several readers expect: words, a table's name, the end of a statement."""

from cdc_assets.ddl.actions import TableName
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor, TokenKind


def read_table_name(cursor: TokenCursor) -> TableName:
    """Take and return a table's name, with an empty database where none is written."""
    cursor.symbol(".")
    first = cursor.name()
    return TableName(first, cursor.name()) if cursor.symbol(".") else TableName("", first)


def read_column_name(cursor: TokenCursor) -> str:
    """Take and return the name of a column or foreign key, without its table's, which MySQL up to 5.7 and MariaDB accept."""
    name = read_table_name(cursor).table
    return cursor.name() if cursor.symbol(".") else name


def expect_word(cursor: TokenCursor, *words: str) -> str:
    """Take one of these words, and return it.

    Raises:
        SqlSyntaxError: another token comes next.
    """
    if not (word := cursor.take_any(*words)):
        raise SqlSyntaxError(f"expected {' or '.join(words)}, found {cursor.peek().text!r}")
    return word


def expect_kind(cursor: TokenCursor, kind: TokenKind) -> None:
    """Take a token of this kind.

    Raises:
        SqlSyntaxError: a token of another kind comes next.
    """
    if cursor.peek().kind is not kind:
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not expected here")
    cursor.next()


def expect_end(cursor: TokenCursor) -> None:
    """Take the semicolons after a statement.

    Raises:
        SqlSyntaxError: another token follows.
    """
    while cursor.symbol(";"):
        pass
    if not cursor.at_end:
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not expected here")


def skip_lock_wait(cursor: TokenCursor) -> None:
    """Skip MariaDB's WAIT n or NOWAIT, which says how long the statement waits for a lock."""
    if cursor.take("WAIT"):
        expect_kind(cursor, TokenKind.NUMBER)
    else:
        cursor.take("NOWAIT")
