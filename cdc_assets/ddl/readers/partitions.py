"""Read partitioning: PARTITION BY, and the alterations of a table's partitions."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cdc_assets.ddl.actions import Action, MoveRows
from cdc_assets.ddl.readers.options import expect_option
from cdc_assets.ddl.readers.tokens import expect_word, read_table_name
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
        is_value = token.kind in {TokenKind.NUMBER, TokenKind.STRING} or token.text in {"=", ","}
        if cursor.sees_symbol("("):
            cursor.skip_group()
        elif is_value or cursor.word() in _PARTITIONING_WORDS:
            cursor.next()
        else:
            raise SqlSyntaxError(f"{token.text!r} is not expected in PARTITION BY")


def skip_partition_clause(cursor: TokenCursor) -> None:
    """Skip to the end of the statement: servers accept no other alteration after one of partitions."""
    while not cursor.done:
        if cursor.sees_symbol("("):
            cursor.skip_group()
        else:
            cursor.next()


def read_exchange(cursor: TokenCursor, how: str) -> MoveRows:
    """Read an alteration that moves the rows of a partition from or to a table, and return it with that table.

    It is EXCHANGE PARTITION p WITH TABLE t, or MariaDB's CONVERT PARTITION p TO TABLE t or CONVERT TABLE t TO PARTITION p.
    """
    while not cursor.take("TABLE"):
        cursor.next()
    other = read_table_name(cursor)
    skip_partition_clause(cursor)
    return MoveRows(how, other)


def _read_exchange_partition(cursor: TokenCursor) -> list[Action]:
    """Read EXCHANGE PARTITION from after its first word."""
    expect_word(cursor, "PARTITION")
    return [read_exchange(cursor, "EXCHANGE PARTITION")]


def _read_partition(cursor: TokenCursor) -> list[Action]:
    """Skip PARTITION BY ..., or TiDB's option of one partition (PARTITION p ATTRIBUTES ...); no action."""
    if cursor.take("BY"):
        skip_partitioning(cursor)
    else:
        cursor.name()
        expect_option(cursor)
    return []


def _skip_maintenance(cursor: TokenCursor) -> list[Action]:
    """Skip an alteration that keeps the rows of all partitions (REBUILD PARTITION ...), or TiDB's REMOVE TTL; no action."""
    expect_word(cursor, "PARTITION", "PARTITIONING", "FIRST", "MAXVALUE", "TTL")
    skip_partition_clause(cursor)
    return []


def _moving_rows(alteration: str) -> Callable[[TokenCursor], list[Action]]:
    """Return the reader of an alteration that adds or deletes rows without row events, from after its first word."""

    def read(cursor: TokenCursor) -> list[Action]:
        if alteration.endswith("PARTITION"):
            expect_word(cursor, "PARTITION")
        skip_partition_clause(cursor)
        return [MoveRows(alteration)]

    return read


# The readers of alterations of partitions, by first word.
PARTITION_ALTERATIONS: Mapping[str, Callable[[TokenCursor], list[Action]]] = MappingProxyType(
    {
        "PARTITION": _read_partition,
        "TRUNCATE": _moving_rows("TRUNCATE PARTITION"),
        "EXCHANGE": _read_exchange_partition,
        # TiDB's FIRST PARTITION LESS THAN drops the partitions below that value.
        "FIRST": _moving_rows("FIRST PARTITION"),
        # Of the table, or of partitions.
        "DISCARD": _moving_rows("DISCARD TABLESPACE"),
        "IMPORT": _moving_rows("IMPORT TABLESPACE"),
        **dict.fromkeys(
            (
                "REORGANIZE", "REBUILD", "ANALYZE", "CHECK", "OPTIMIZE", "REPAIR", "REMOVE", "UPGRADE", "COALESCE", "SPLIT",
                "MERGE", "LAST",
            ),
            _skip_maintenance,
        ),
    }
)  # fmt: skip
