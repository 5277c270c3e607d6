"""Read RENAME TABLE."""

from cdc_assets.ddl.actions import RenameTable, Statement
from cdc_assets.ddl.readers.other import skip_other
from cdc_assets.ddl.readers.tokens import expect_word, read_table_name, skip_lock_wait
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor


def read_rename(cursor: TokenCursor) -> Statement:
    """Read a statement from after RENAME; RENAME USER is of kind `other`.

    Raises:
        SqlSyntaxError: a part of it is not understood.
    """
    if cursor.take("USER"):
        skip_other(cursor)
        return Statement("other")
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
