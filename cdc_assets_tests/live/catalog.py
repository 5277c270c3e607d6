"""What tables the server has: read from the server itself after each statement that may change it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cdc_assets_tests.live.names import quoted
from cdc_assets_tests.live.types import Column

Name = tuple[str, str]  # database, table
TOUCHED = "touched"  # a column that no statement changes, to change every row of a table by

_COLUMNS = """
SELECT table_name, column_name, column_type, character_set_name, collation_name, is_nullable = 'YES',
    column_default IS NOT NULL, extra LIKE '%%GENERATED%%' OR extra LIKE '%%auto_increment%%' FROM information_schema.columns
WHERE table_schema = %s ORDER BY table_name, ordinal_position"""
_KEYS = """
SELECT table_name, column_name FROM information_schema.statistics
WHERE table_schema = %s AND index_name = 'PRIMARY' ORDER BY table_name, seq_in_index"""
_INDEXES = """
SELECT DISTINCT table_name, index_name FROM information_schema.statistics
WHERE table_schema = %s AND index_name <> 'PRIMARY' ORDER BY 1, 2"""
_PARTITIONS = """
SELECT table_name, partition_name FROM information_schema.partitions
WHERE table_schema = %s AND partition_name IS NOT NULL ORDER BY 1, 2"""


@dataclass(frozen=True)
class Table:
    """A table of the server.

    Attributes:
        name: its database and its name.
        columns: in their order.
        key: the columns of its primary key; empty: it has none.
        indexes: the names of its other indexes.
        partitions: the names of its partitions.
    """

    name: Name
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """Its name with its database, in backticks."""
        return ".".join(map(quoted, self.name))

    @property
    def free_columns(self) -> list[Column]:
        """The columns that statements may change: neither of the key nor `touched`."""
        return [column for column in self.columns if column.name not in (*self.key, TOUCHED)]


def read_tables(cursor: Any, databases: Sequence[str]) -> dict[Name, Table]:
    """Return the tables of some databases."""
    tables: dict[Name, Table] = {}
    for database in databases:
        for field, sql in (("columns", _COLUMNS), ("key", _KEYS), ("indexes", _INDEXES), ("partitions", _PARTITIONS)):
            cursor.execute(sql, (database,))
            for name, *values in cursor.fetchall():
                table = tables.setdefault((database, name), Table((database, name)))
                value = Column(*values[:4], *map(bool, values[4:])) if field == "columns" else values[0]
                tables[database, name] = replace(table, **{field: (*getattr(table, field), value)})
    return tables
