"""Read TiDB's RECOVER TABLE and FLASHBACK TABLE."""

from cdc_assets.ddl.actions import Statement
from cdc_assets.ddl.readers.tokens import read_table_name
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor


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
