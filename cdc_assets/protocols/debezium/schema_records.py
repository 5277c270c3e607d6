"""The tables that Debezium's schema-change records describe."""

import json
from functools import cached_property

from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.protocols.debezium.semantics import ConnectorObject, column_type


class DescribedColumn(ConnectorObject):
    """A column as a schema-change record describes it."""

    name: str
    type_name: str
    jdbc_type: int | None = None
    length: int | None = None
    scale: int | None = None
    enum_values: list[str] | None = None
    optional: bool | None = None
    generated: bool | None = None

    @cached_property
    def type(self) -> MySQLType | None:
        """The column's MySQL type; None if MySQL has no such type."""
        return column_type(self.type_name, self.length, self.scale, self.enum_values or ())


def described_tables(table_changes: str | None) -> dict[tuple[str, str], tuple[list[DescribedColumn], tuple[str, ...]]]:
    """Return (database, table) -> columns and primary key, from the `tableChanges` of a schema-change record.

    Without dropped tables, and without entries that do not have the connector's form.
    """
    tables = {}
    for entry in json.loads(table_changes or "[]"):
        try:
            change = _TableChange.model_validate(entry)
            # "database"."table", with quotes in a name doubled
            database, table = (part.replace('""', '"') for part in change.id[1:-1].split('"."'))
        except ValueError:
            continue
        if change.table and change.table.columns:
            tables[database, table] = change.table.columns, tuple(change.table.primary_key_column_names or ())
    return tables


class _TableDescription(ConnectorObject):
    columns: list[DescribedColumn]
    primary_key_column_names: list[str] | None = None


class _TableChange(ConnectorObject):
    id: str
    table: _TableDescription | None = None
