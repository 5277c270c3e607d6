"""Read DROP TABLE, DROP DATABASE and DROP INDEX."""

from cdc_assets.ddl.actions import DropKey, Statement
from cdc_assets.ddl.readers.options import skip_algorithm_and_lock
from cdc_assets.ddl.readers.other import read_other_object
from cdc_assets.ddl.readers.tokens import expect_word, read_table_name, skip_lock_wait
from cdc_assets.mysql_types.tokens import TokenCursor


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
