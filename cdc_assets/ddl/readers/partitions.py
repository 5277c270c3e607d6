"""Read partitioning: PARTITION BY, and the alterations of a table's partitions."""

from cdc_assets.ddl.actions import Action, MoveRows
from cdc_assets.ddl.readers.options import expect_option
from cdc_assets.ddl.readers.tokens import expect_any_word, expect_word
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor, TokenKind

# Words that may follow PARTITION BY outside of parentheses.
_PARTITIONING_WORDS = frozenset({
    "LINEAR", "HASH", "KEY", "ALGORITHM", "RANGE", "LIST", "COLUMNS", "SYSTEM_TIME", "INTERVAL", "LIMIT", "STARTS",
    "AUTO", "PARTITIONS", "SUBPARTITION", "SUBPARTITIONS", "BY", "CURRENT_TIMESTAMP", "TIMESTAMP", "NOW", "UPDATE",
    "INDEXES", "GLOBAL", "LOCAL", "FIRST", "LAST", "PARTITION", "LESS", "THAN", "MAXVALUE", "NULL", "MICROSECOND",
    "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR",
})  # fmt: skip


def skip_partitioning(cursor: TokenCursor) -> None:
    """Skip the partitioning of a table, from after PARTITION BY to the end of the statement.

    Raises:
        SqlSyntaxError: a word follows that is no part of a partitioning.
    """
    while not cursor.done:
        token = cursor.peek()
        if token == (TokenKind.OTHER, "("):
            cursor.skip_group()
        elif (
            cursor.word() in _PARTITIONING_WORDS
            or token.kind in {TokenKind.NUMBER, TokenKind.STRING}
            or token.text in {"=", ","}
        ):
            cursor.next()
        else:
            raise SqlSyntaxError(f"{token.text!r} is not expected in PARTITION BY")


def skip_partition_clause(cursor: TokenCursor) -> None:
    """Skip to the end of the statement: servers accept no other alteration after one of partitions."""
    while not cursor.done:
        if cursor.peek() == (TokenKind.OTHER, "("):
            cursor.skip_group()
        else:
            cursor.next()


def read_partition(cursor: TokenCursor) -> list[Action]:
    """Skip PARTITION BY ..., or TiDB's option of one partition (PARTITION p ATTRIBUTES ...); no action."""
    if cursor.take("BY"):
        skip_partitioning(cursor)
    else:
        cursor.name()
        expect_option(cursor)
    return []


def read_partition_maintenance(cursor: TokenCursor) -> list[Action]:
    """Skip an alteration that keeps the rows of all partitions (REBUILD PARTITION ...), or TiDB's REMOVE TTL; no action."""
    expect_any_word(cursor, "PARTITION", "PARTITIONING", "FIRST", "MAXVALUE", "TTL")
    skip_partition_clause(cursor)
    return []


def read_truncate_partition(cursor: TokenCursor) -> list[Action]:
    """Read TRUNCATE PARTITION, which deletes rows without row events."""
    expect_word(cursor, "PARTITION")
    skip_partition_clause(cursor)
    return [MoveRows("TRUNCATE PARTITION")]


def read_exchange_partition(cursor: TokenCursor) -> list[Action]:
    """Read EXCHANGE PARTITION, which swaps rows with another table without row events."""
    expect_word(cursor, "PARTITION")
    skip_partition_clause(cursor)
    return [MoveRows("EXCHANGE PARTITION")]


def read_first_partition(cursor: TokenCursor) -> list[Action]:
    """Read TiDB's FIRST PARTITION LESS THAN, which drops the partitions below that value."""
    expect_word(cursor, "PARTITION")
    skip_partition_clause(cursor)
    return [MoveRows("FIRST PARTITION")]


def read_discard_tablespace(cursor: TokenCursor) -> list[Action]:
    """Read DISCARD TABLESPACE, also of partitions, which deletes rows without row events."""
    skip_partition_clause(cursor)
    return [MoveRows("DISCARD TABLESPACE")]


def read_import_tablespace(cursor: TokenCursor) -> list[Action]:
    """Read IMPORT TABLESPACE, also of partitions, which adds rows without row events."""
    skip_partition_clause(cursor)
    return [MoveRows("IMPORT TABLESPACE")]
