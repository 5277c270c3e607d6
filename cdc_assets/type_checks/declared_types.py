"""The columns and types that table_schemas declares for a table, beside what its messages state."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc_assets.mysql_types.types import MySQLType

SchemaRows = Sequence[Mapping[str, Any]]  # rows of table_schemas
SchemaColumns = Mapping[str, Mapping[str, Any]]  # name -> column, as table_schemas has it
SchemaLookup = Callable[[str, str, tuple[int, int]], list[SchemaColumns]]


def make_schema_lookup(schemas: SchemaRows) -> SchemaLookup:
    """Return a function from (database, table, (lowest, highest commit_ts)) to the table's columns during that span.

    The function returns the columns before the span and after each schema change in it, in order; none where they are
    unknown. Of several schema changes of one commit_ts before the span it returns the columns after each.
    """
    by_table: dict[tuple[str, str], list[tuple[int, SchemaColumns]]] = defaultdict(list)
    for row in schemas:
        if row["columns"] is not None:
            columns = {column["name"]: column for column in row["columns"]}
            by_table[row["database"], row["table"]].append((row["commit_ts"], columns))

    def find_columns(database: str, table: str, span: tuple[int, int]) -> list[SchemaColumns]:
        ordered = sorted(by_table[database, table], key=lambda since_and_columns: since_and_columns[0])
        last = max((since for since, _ in ordered if since < span[0]), default=None)
        return [columns for since, columns in ordered if since == last or span[0] <= since <= span[1]]

    return find_columns


def complete_decimal(mysql_type: MySQLType | None, declared_types: Sequence[MySQLType]) -> MySQLType | None:
    """Return a DECIMAL without parameters with the widest that its declared types have; any other type unchanged."""
    if mysql_type is None or mysql_type.base != "decimal" or mysql_type.length is not None:
        return mysql_type
    sizes = [
        (t.length - (t.scale or 0), t.scale or 0)
        for t in declared_types
        if t.base == "decimal" and t.length is not None
    ]
    if not sizes:
        return mysql_type
    scale = max(scale for _, scale in sizes)
    return replace(mysql_type, length=max(before_point for before_point, _ in sizes) + scale, scale=scale)
