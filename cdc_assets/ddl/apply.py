"""Apply DDL statements to the schemas of all known tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cdc_assets.ddl.actions import DdlKind, Statement, TableName
from cdc_assets.ddl.foreign_keys import follow_parent, gives_names
from cdc_assets.ddl.readers import read_statement
from cdc_assets.ddl.resolve import TableNames, UnresolvedNameError, resolve
from cdc_assets.ddl.shapes import NotApplicable, TableSchema, apply_actions
from cdc_assets.mysql_types.tokens import SqlSyntaxError


@dataclass(frozen=True)
class DdlEffect:
    """What a DDL statement does to table schemas.

    Attributes:
        kind: the statement's kind.
        affected: the tables that it changes: for a RENAME the old and the new name, for DROP DATABASE its known tables.
        tables: the schemas of all known tables after it.
        statement: its schema actions on resolved tables; None: it is not understood.
        error: why it could not be read or applied. The tables are unchanged then.
    """

    kind: DdlKind
    affected: tuple[TableName, ...]
    tables: Mapping[tuple[str, str], TableSchema]
    statement: Statement | None = None
    error: str | None = None


def apply_ddl(tables: Mapping[tuple[str, str], TableSchema], text: str, database: str) -> DdlEffect:
    """Read a DDL statement, and apply it to the known tables.

    Args:
        tables: their schemas, by database and table name.
        text: the SQL of the statement.
        database: the database of names without one.

    Returns:
        The effect. SQL that cannot be read gives an effect with an `error`; nothing is raised.
    """
    try:
        statement = resolve(read_statement(text), database, TableNames(tables.keys(), ignores_case=True))
    except (SqlSyntaxError, UnresolvedNameError) as error:
        return DdlEffect("other", (), tables, error=f"{error}, in: {text}")
    effect = apply_statement(tables, statement)
    return replace(effect, error=effect.error and f"{effect.error}, in: {text}")


def apply_statement(tables: Mapping[tuple[str, str], TableSchema], statement: Statement) -> DdlEffect:
    """Apply a statement whose names are resolved to the known tables.

    A table that is not among `tables` is among the `affected` of the effect, and not among its `tables`.
    """
    affected = tuple(dict.fromkeys((*statement.names, *statement.new_names)))
    effect = DdlEffect(statement.kind, affected, tables, statement)
    try:
        after = _change_tables(tables, statement)
    except NotApplicable as error:
        return replace(effect, statement=None, error=str(error))
    if statement.kind == "drop_database":
        effect = replace(effect, affected=tuple(TableName(*name) for name in tables if name not in after))
    return replace(effect, tables=after)


_Tables = dict[tuple[str, str], TableSchema]


def _change_tables(tables: Mapping[tuple[str, str], TableSchema], statement: Statement) -> _Tables:
    """Return the tables after a statement."""
    match statement.kind:
        case "create_table":
            return _create_table(tables, statement)
        case "alter_table" | "rename_table" | "create_index" | "drop_index":
            return _alter_tables(tables, statement)
        case "drop_table":
            return {name: table for name, table in tables.items() if name not in statement.names}
        case "drop_database":
            return {name: table for name, table in tables.items() if name[0] != statement.database}
        case _:
            return dict(tables)


def _create_table(tables: Mapping[tuple[str, str], TableSchema], statement: Statement) -> _Tables:
    """Return the tables after CREATE TABLE. The schema of a table like one that is not among `tables` is not known."""
    ((name, actions),) = statement.changes
    after = dict(tables)
    if statement.tolerant and not statement.replaces and name in after:
        return after
    table = TableSchema(name.database, name.table, ())
    if statement.like is not None:
        pattern = after.get(statement.like)
        if pattern is None:
            after.pop(name, None)
            return after
        table = replace(pattern, database=name.database, table=name.table, foreign_keys=())
    after[name] = apply_actions(table, actions)
    return after


def _alter_tables(tables: Mapping[tuple[str, str], TableSchema], statement: Statement) -> _Tables:
    """Return the tables after ALTER TABLE, RENAME TABLE, CREATE INDEX or DROP INDEX. Renames take effect in order."""
    after = dict(tables)
    for name, actions in statement.changes:
        table = after.pop(name, None)
        if table is not None:
            table = apply_actions(table, actions)
            after[TableName(table.database, table.table)] = table
    return _follow_parents(after, statement) if gives_names(statement) else after


def _follow_parents(tables: _Tables, statement: Statement) -> _Tables:
    """Return tables whose foreign keys have the names that a statement gives their parent tables and columns."""
    return {
        name: replace(table, foreign_keys=tuple(follow_parent(key, statement) for key in table.foreign_keys))
        if table.foreign_keys
        else table
        for name, table in tables.items()
    }
