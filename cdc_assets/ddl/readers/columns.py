"""Read the definition of a column: its type, attributes, default and position, and the keys that it declares."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from cdc_assets.ddl.actions import Action, AddColumn, AddForeignKey, AddKey, Column, Default
from cdc_assets.ddl.literals import read_literal
from cdc_assets.ddl.readers.keys import read_key, read_reference, skip_check, skip_index_options
from cdc_assets.ddl.readers.options import skip_charset, skip_named_option
from cdc_assets.ddl.readers.tokens import expect_word, read_column_name, read_table_name
from cdc_assets.mysql_types.tokens import SqlSyntaxError, Token, TokenCursor, TokenKind
from cdc_assets.mysql_types.types import MySQLType, NoSuchTypeError, declared, parsed, read_type

# Words of alterations that may follow the last of the others without a comma.
PARTITION_WORDS = ("PARTITION", "REMOVE")


def read_columns_and_keys(cursor: TokenCursor, *, only_if_missing: bool = False) -> list[Action]:
    """Read the columns and keys of a table, from after the opening parenthesis to the closing one."""
    actions: list[Action] = []
    while True:
        key = read_key(cursor)
        actions += read_column(cursor, only_if_missing=only_if_missing) if key is None else key
        if not cursor.symbol(","):
            break
    cursor.expect_symbol(")")
    return actions


def read_column(cursor: TokenCursor, *, only_if_missing: bool = False) -> list[Action]:
    """Read the definition of a column from its name on.

    Returns:
        An `AddColumn`, then an `AddKey` or `AddForeignKey` for each key that the definition declares.

    Raises:
        SqlSyntaxError: an attribute is not understood.
    """
    name = read_column_name(cursor)
    is_serial = cursor.sees("SERIAL")
    text = _read_type(cursor)
    mysql_type = parsed(text)
    column, start = Column(name, text), cursor.at
    keys: list[Action] = []
    if is_serial:  # MySQL's short form of BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE.
        column = replace(column, nullable=False, computed_default=True)
        keys.append(AddKey("unique", (name,), only_if_missing=only_if_missing))
    position: str | None = None
    while not _is_at_end_of_definition(cursor):
        if cursor.take("FIRST"):
            position = ""
        elif cursor.take("AFTER"):
            position = cursor.name()
        elif cursor.take("UNIQUE"):
            cursor.take("KEY")
            skip_index_options(cursor)
            keys.append(AddKey("unique", (name,), only_if_missing=only_if_missing))
        elif cursor.take("PRIMARY", "KEY") or cursor.take("KEY"):
            skip_index_options(cursor)
            keys.append(AddKey("primary", (name,), "PRIMARY", only_if_missing=only_if_missing))
            column = replace(column, nullable=False)
        elif cursor.take("REFERENCES"):
            # MariaDB since 10.5 and MySQL since 9.0 make a foreign key of it; earlier servers ignore it.
            keys.append(AddForeignKey(read_reference(cursor, (name,)), only_if_missing=only_if_missing))
        else:
            column = _read_attribute(cursor, column, mysql_type)
    words = {token.text.upper() for token in cursor.tokens[start : cursor.at] if token.kind is TokenKind.WORD}
    if mysql_type is not None and mysql_type.base == "timestamp" and words.isdisjoint({"NULL", "DEFAULT", "AS"}):
        column = replace(column, bare_timestamp=True)
    return [AddColumn(column, position, only_if_missing), *keys]


def _is_at_end_of_definition(cursor: TokenCursor) -> bool:
    """Return whether no attribute of the column comes next."""
    return cursor.done or cursor.sees_symbol(",") or cursor.sees_symbol(")") or cursor.word() in PARTITION_WORDS


def _read_type(cursor: TokenCursor) -> str:
    """Read a type, and return its canonical text.

    A type that MySQL does not have (UUID, INET6) is returned as written, because the feed's `columns:` may name another type
    for the column.

    Raises:
        SqlSyntaxError: no type comes next.
    """
    start = cursor.at
    if cursor.word() in {"MARIADB_SCHEMA", "ORACLE_SCHEMA"} and cursor.sees_symbol(".", 1):
        cursor.at += 2
    try:
        return str(declared(read_type(cursor)))
    except NoSuchTypeError:
        cursor.at = start
    name = cursor.next()
    if name.kind is not TokenKind.WORD:
        raise SqlSyntaxError(f"expected a type, found {name.text!r}")
    group_start = cursor.at
    cursor.skip_group()
    return name.text.lower() + "".join(token.text for token in cursor.tokens[group_start : cursor.at])


# Attributes without a value, and what they change in the column. A generated column is virtual unless STORED follows.
_ATTRIBUTE_CHANGES: Mapping[tuple[str, ...], Callable[[Column], Column]] = MappingProxyType(
    {
        ("NOT", "NULL"): lambda column: replace(column, nullable=False),
        ("NULL",): lambda column: replace(column, nullable=True),
        ("SERIAL", "DEFAULT", "VALUE"): lambda column: replace(column, nullable=False, computed_default=True),
        ("AUTO_INCREMENT",): lambda column: replace(column, computed_default=True),
        ("STORED",): lambda column: replace(column, virtual=False),
        ("PERSISTENT",): lambda column: replace(column, virtual=False),
        ("VIRTUAL",): lambda column: column,
        ("VISIBLE",): lambda column: column,
        ("INVISIBLE",): lambda column: column,
        ("NOT", "SECONDARY"): lambda column: column,
        ("WITH", "SYSTEM", "VERSIONING"): lambda column: column,
        ("WITHOUT", "SYSTEM", "VERSIONING"): lambda column: column,
    }
)


def _read_attribute(cursor: TokenCursor, column: Column, mysql_type: MySQLType | None) -> Column:
    """Read one attribute, and return the column with it.

    Args:
        cursor: at the attribute.
        column: as read so far.
        mysql_type: the column's type, which the default's value depends on; None: MySQL has no such type.

    Raises:
        SqlSyntaxError: the attribute is not understood.
    """
    for words, change in _ATTRIBUTE_CHANGES.items():
        if cursor.take(*words):
            return change(column)
    if cursor.take("DEFAULT"):
        return read_default(cursor).apply_to(column, mysql_type)
    if cursor.take("GENERATED"):
        if not cursor.take("BY", "DEFAULT"):
            expect_word(cursor, "ALWAYS")
        if not cursor.sees("AS"):
            raise SqlSyntaxError(f"expected AS, found {cursor.peek().text!r}")
    if cursor.take("AS"):
        return _read_generated(cursor, column)
    _skip_attribute(cursor)
    return column


def _read_generated(cursor: TokenCursor, column: Column) -> Column:
    """Read how the server computes a column, from after AS, and return the column with it."""
    if cursor.take("ROW"):  # MariaDB's columns of a system-versioned table.
        expect_word(cursor, "START", "END")
        return replace(column, computed_default=True)
    if cursor.take("IDENTITY"):
        return replace(column, nullable=False, computed_default=True)
    if not cursor.sees_symbol("("):
        raise SqlSyntaxError(f"expected an expression, found {cursor.peek().text!r}")
    start = cursor.at
    cursor.skip_group()
    expression = " ".join(_normalize(token) for token in cursor.tokens[start : cursor.at])
    return replace(column, generated=True, virtual=True, expression=expression)


def _normalize(token: Token) -> str:
    """Return the text of a token of an expression: names and words are equal in any letter case, literals are not."""
    is_literal = token.kind not in {TokenKind.WORD, TokenKind.QUOTED, TokenKind.OTHER}
    return f"{token.kind.name} {token.text!r}" if is_literal else token.text.lower()


def _skip_attribute(cursor: TokenCursor) -> None:
    """Skip an attribute that changes neither the column nor a key.

    Raises:
        SqlSyntaxError: the attribute is not known.
    """
    if cursor.take("ON", "UPDATE"):
        expect_word(cursor, "CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")
        cursor.skip_group()
    elif cursor.take("CONSTRAINT"):
        if not cursor.sees("CHECK"):
            cursor.name()
    elif cursor.take("CHECK"):
        skip_check(cursor)
    elif cursor.take("AUTO_RANDOM"):
        cursor.skip_group()
    elif cursor.sees("COMPRESSED") and not cursor.sees_symbol("=", 1):
        cursor.next()
    elif not skip_charset(cursor) and not skip_named_option(cursor, _COLUMN_OPTIONS):
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not known as an attribute of a column")


_COLUMN_OPTIONS = frozenset(
    {"COMMENT", "COLUMN_FORMAT", "STORAGE", "SRID", "COLLATE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"}
)


def read_default(cursor: TokenCursor) -> Default:
    """Read a default, from after DEFAULT: a literal, or an expression, which may be in parentheses.

    Raises:
        SqlSyntaxError: no default comes next.
    """
    start = cursor.at
    is_in_parentheses = cursor.symbol("(")
    literal = read_literal(cursor)
    if literal is not None and (not is_in_parentheses or cursor.symbol(")")):
        return Default(literal)
    if is_in_parentheses:  # An expression that only the server computes.
        cursor.at = start
        cursor.skip_group()
        return Default(computed=True)
    token = cursor.next()
    if token.kind is not TokenKind.WORD:
        raise SqlSyntaxError(f"{token.text!r} is not a default")
    if token.text.upper() == "NULL":
        return Default()
    if token.text.upper() in {"NEXT", "PREVIOUS"} and cursor.take("VALUE", "FOR"):  # A value of a MariaDB sequence.
        read_table_name(cursor)
    cursor.skip_group()
    return Default(computed=True)
