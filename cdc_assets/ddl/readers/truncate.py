"""Read TRUNCATE TABLE."""

from cdc_assets.ddl.actions import Statement
from cdc_assets.ddl.readers.tokens import read_table_name, skip_lock_wait
from cdc_assets.mysql_types.tokens import TokenCursor


def read_truncate(cursor: TokenCursor) -> Statement:
    """Read a statement from after TRUNCATE.

    Raises:
        SqlSyntaxError: no table's name follows.
    """
    cursor.take("TABLE")
    table = read_table_name(cursor)
    skip_lock_wait(cursor)
    return Statement("truncate_table", ((table, ()),))
