"""Read statements that create, drop, rename, empty or recover tables, databases and indexes."""

from cdc_assets.ddl.actions import AddKey, DropKey, RenameTable, Statement
from cdc_assets.ddl.readers.columns import read_columns_and_keys
from cdc_assets.ddl.readers.keys import INDEX_KINDS, read_key_columns, skip_index_options
from cdc_assets.ddl.readers.options import expect_option, skip_algorithm_and_lock
from cdc_assets.ddl.readers.other import read_other, read_other_object
from cdc_assets.ddl.readers.partitions import skip_partitioning
from cdc_assets.ddl.readers.tokens import expect_word, read_table_name, skip_lock_wait
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor


def read_create(cursor: TokenCursor) -> Statement:
    """Read a statement from after CREATE.

    Raises:
        SqlSyntaxError: a part of it is not understood.
    """
    replaces = cursor.take("OR", "REPLACE")
    if cursor.take("TABLE"):
        return _read_create_table(cursor, replaces=replaces)
    if cursor.take_any("DATABASE", "SCHEMA"):
        return _read_create_database(cursor, replaces=replaces)
    cursor.take_any("ONLINE", "OFFLINE")
    if cursor.sees("INDEX") or (cursor.word() in INDEX_KINDS and cursor.word(1) == "INDEX"):
        return _read_create_index(cursor, replaces=replaces)
    # A view, a trigger, a user; or a temporary table, of which sources write no events.
    return read_other_object(cursor)


def _read_create_database(cursor: TokenCursor, *, replaces: bool) -> Statement:
    """Read CREATE DATABASE from after that word. OR REPLACE is a DROP DATABASE: the new database is empty."""
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.name()
    while not cursor.done:
        expect_option(cursor)
    return Statement("drop_database" if replaces else "create_database", tolerant=tolerant, database=name)


def _read_create_index(cursor: TokenCursor, *, replaces: bool) -> Statement:
    """Read CREATE INDEX from the index's kind, or INDEX, on."""
    is_unique = cursor.take_any(*INDEX_KINDS) == "UNIQUE"
    expect_word(cursor, "INDEX")
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.name()
    skip_index_options(cursor)
    expect_word(cursor, "ON")
    table = read_table_name(cursor)
    skip_lock_wait(cursor)
    skip_index_options(cursor)
    columns = read_key_columns(cursor)
    skip_lock_wait(cursor)
    is_key = not skip_index_options(cursor) and is_unique
    key = AddKey("unique" if is_key else "index", columns, name, only_if_missing=tolerant)
    skip_algorithm_and_lock(cursor)
    dropped_keys = (DropKey(name, if_exists=True),) if replaces else ()
    return Statement("create_index", ((table, (*dropped_keys, key)),), tolerant=tolerant)


def _read_create_table(cursor: TokenCursor, *, replaces: bool) -> Statement:
    """Read CREATE TABLE from after TABLE."""
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    table = read_table_name(cursor)
    in_parentheses = cursor.symbol("(")
    if cursor.take("LIKE"):
        like = read_table_name(cursor)
        if in_parentheses:
            cursor.expect_symbol(")")
        return Statement("create_table", ((table, ()),), like=like, tolerant=tolerant, replaces=replaces)
    if not in_parentheses:
        raise SqlSyntaxError(f"CREATE TABLE {table.table} does not list the columns")
    actions = read_columns_and_keys(cursor)
    while not cursor.done and not cursor.sees("PARTITION", "BY"):
        expect_option(cursor)
        cursor.symbol(",")
    if cursor.take("PARTITION", "BY"):
        skip_partitioning(cursor)
    return Statement("create_table", ((table, tuple(actions)),), tolerant=tolerant, replaces=replaces)


def read_drop(cursor: TokenCursor) -> Statement:
    """Read a statement from after DROP.

    Raises:
        SqlSyntaxError: a part of it is not understood.
    """
    if cursor.take_any("TABLE", "TABLES"):
        tolerant = cursor.take("IF", "EXISTS")
        tables = [read_table_name(cursor)]
        while cursor.symbol(","):
            tables.append(read_table_name(cursor))
        skip_lock_wait(cursor)
        cursor.take_any("RESTRICT", "CASCADE")
        return Statement("drop_table", tuple((table, ()) for table in tables), tolerant=tolerant)
    if cursor.take_any("DATABASE", "SCHEMA"):
        tolerant = cursor.take("IF", "EXISTS")
        return Statement("drop_database", tolerant=tolerant, database=cursor.name())
    cursor.take_any("ONLINE", "OFFLINE")
    if not cursor.take("INDEX"):
        return read_other_object(cursor)
    tolerant = cursor.take("IF", "EXISTS")
    key = DropKey(cursor.name(), if_exists=tolerant)
    expect_word(cursor, "ON")
    table = read_table_name(cursor)
    skip_lock_wait(cursor)
    skip_algorithm_and_lock(cursor)
    return Statement("drop_index", ((table, (key,)),), tolerant=tolerant)


def read_rename(cursor: TokenCursor) -> Statement:
    """Read a statement from after RENAME; RENAME USER is of kind `other`.

    Raises:
        SqlSyntaxError: a part of it is not understood.
    """
    if cursor.take("USER"):
        return read_other(cursor)
    if not cursor.take_any("TABLE", "TABLES"):
        raise SqlSyntaxError(f"RENAME {cursor.peek().text} is not known")
    tolerant = cursor.take("IF", "EXISTS")
    changes = []
    while True:
        old_name = read_table_name(cursor)
        skip_lock_wait(cursor)
        expect_word(cursor, "TO")
        changes.append((old_name, (RenameTable(read_table_name(cursor)),)))
        if not cursor.symbol(","):
            return Statement("rename_table", tuple(changes), tolerant=tolerant)


def read_truncate(cursor: TokenCursor) -> Statement:
    """Read a statement from after TRUNCATE.

    Raises:
        SqlSyntaxError: no table's name follows.
    """
    cursor.take("TABLE")
    table = read_table_name(cursor)
    skip_lock_wait(cursor)
    return Statement("truncate_table", ((table, ()),))


def read_recover(cursor: TokenCursor) -> Statement:
    """Read a statement from after RECOVER or FLASHBACK.

    Raises:
        SqlSyntaxError: the statement does not only name a table, but a job, a time or a new name.
    """
    if cursor.take("TABLE") and not cursor.sees("BY"):
        table = read_table_name(cursor)
        if cursor.done:
            return Statement("recover_table", ((table, ()),))
    raise SqlSyntaxError("RECOVER and FLASHBACK are understood only of one table, without a job, a time or a new name")
