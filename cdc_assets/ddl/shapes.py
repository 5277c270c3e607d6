"""The tables after a DDL statement: their columns and keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from cdc_assets.ddl.actions import (
    Action,
    AddColumn,
    AddKey,
    Column,
    DdlKind,
    DropColumn,
    DropKey,
    ModifyColumn,
    MoveRows,
    RenameColumn,
    RenameKey,
    RenameTable,
    SetDefault,
    Statement,
    TableName,
)
from cdc_assets.ddl.readers import read_statement
from cdc_assets.ddl.resolve import KnownTables, UnresolvedNameError, resolve
from cdc_assets.mysql_types.tokens import SqlSyntaxError
from cdc_assets.mysql_types.types import parsed


@dataclass(frozen=True)
class TableSchema:
    """What is known of a table.

    Attributes:
        database: its database.
        table: its name.
        columns: in the table's order.
        primary_key: in the key's order; empty when there is none.
        unique_keys: each in its own order, in the order of their creation.
        unique_names: their names, parallel to `unique_keys`.
        index_names: names of all other indexes.
    """

    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    unique_names: tuple[str, ...] = ()
    index_names: tuple[str, ...] = ()

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row: the primary key, else the first unique key without nullable columns."""
        if self.primary_key:
            return self.primary_key
        required = {column.name for column in self.columns if not column.nullable}
        return next((key for key in self.unique_keys if required.issuperset(key)), ())


@dataclass(frozen=True)
class DdlEffect:
    """What a DDL statement does to the tables.

    Attributes:
        kind: the statement's kind.
        affected: the tables it changes; for a rename the old and the new name; for DROP DATABASE those known in it.
        tables: all tables known after it.
        statement: what it does, on the tables that it means; None: it is not understood.
        error: why the statement could not be read or applied; the tables are unchanged then.
    """

    kind: DdlKind
    affected: tuple[TableName, ...]
    tables: Mapping[tuple[str, str], TableSchema]
    statement: Statement | None = None
    error: str | None = None


def apply_ddl(tables: Mapping[tuple[str, str], TableSchema], text: str, database: str) -> DdlEffect:
    """Read a DDL statement, and apply it to the tables known.

    Args:
        tables: by database and table name.
        text: its SQL.
        database: of names without one.

    Returns:
        The effect. SQL that cannot be read gives an effect with an `error`; nothing is raised.
    """
    try:
        statement = resolve(read_statement(text), database, KnownTables(tables.keys(), ignores_case=True))
    except (SqlSyntaxError, UnresolvedNameError) as error:
        return DdlEffect("other", (), tables, error=f"{error}, in: {text}")
    effect = apply_statement(tables, statement)
    return replace(effect, error=effect.error and f"{effect.error}, in: {text}")


def apply_statement(tables: Mapping[tuple[str, str], TableSchema], statement: Statement) -> DdlEffect:
    """Apply a statement whose names are resolved to the tables known.

    A change of a table that is not known is reported, and changes nothing in `tables`.
    """
    affected = tuple(dict.fromkeys((*statement.names, *statement.new_names)))
    effect = DdlEffect(statement.kind, affected, tables, statement)
    try:
        after = _CHANGES.get(statement.kind, _unchanged)(tables, statement)
    except _NotApplicable as error:
        return replace(effect, statement=None, error=str(error))
    if statement.kind == "drop_database":
        effect = replace(effect, affected=tuple(TableName(*name) for name in tables if name not in after))
    return replace(effect, tables=after)


class _NotApplicable(Exception):  # noqa: N818 -- becomes DdlEffect.error
    """The statement does not fit what is known of the table."""


_Tables = dict[tuple[str, str], TableSchema]


def _unchanged(tables: Mapping[tuple[str, str], TableSchema], statement: Statement) -> _Tables:  # noqa: ARG001
    return dict(tables)


def _create_table(tables: Mapping[tuple[str, str], TableSchema], statement: Statement) -> _Tables:
    ((name, actions),) = statement.changes
    after = dict(tables)
    if statement.tolerant and not statement.replaces and name in after:
        return after
    table = TableSchema(name.database, name.table, ())
    if statement.like is not None:
        pattern = after.get(statement.like)
        if pattern is None:
            raise _NotApplicable(f"{'.'.join(statement.like)} is not known")
        table = replace(pattern, database=name.database, table=name.table)
    after[name] = _changed(table, actions)
    return after


def _alter_tables(tables: Mapping[tuple[str, str], TableSchema], statement: Statement) -> _Tables:
    """ALTER TABLE, RENAME TABLE, CREATE INDEX and DROP INDEX; renames happen one after the other."""
    after = dict(tables)
    for name, actions in statement.changes:
        table = after.pop(name, None)
        if table is not None:
            table = _changed(table, actions)
            after[TableName(table.database, table.table)] = table
    return after


def _drop_tables(tables: Mapping[tuple[str, str], TableSchema], statement: Statement) -> _Tables:
    dropped = {name for name, _ in statement.changes}
    return {name: table for name, table in tables.items() if name not in dropped}


def _drop_database(tables: Mapping[tuple[str, str], TableSchema], statement: Statement) -> _Tables:
    return {name: table for name, table in tables.items() if name[0] != statement.database}


_CHANGES: Mapping[DdlKind, Callable[[Mapping[tuple[str, str], TableSchema], Statement], _Tables]] = MappingProxyType(
    {
        "create_table": _create_table,
        "alter_table": _alter_tables,
        "rename_table": _alter_tables,
        "create_index": _alter_tables,
        "drop_index": _alter_tables,
        "drop_table": _drop_tables,
        "drop_database": _drop_database,
    }
)


def _changed(table: TableSchema, actions: tuple[Action, ...]) -> TableSchema:
    table, actions = _set_free(table, actions)
    for action in actions:
        table = _APPLIERS[type(action)](table, action)
    required = {name.lower() for name in table.primary_key}
    return replace(
        table,
        columns=tuple(
            replace(column, nullable=column.nullable and column.name.lower() not in required)
            for column in table.columns
        ),
    )


def _set_free(table: TableSchema, actions: tuple[Action, ...]) -> tuple[TableSchema, tuple[Action, ...]]:
    """Columns that a statement renames, under names that no other has meanwhile: they may swap theirs."""
    freed: list[Action] = []
    for number, action in enumerate(actions):
        if isinstance(action, RenameColumn | ModifyColumn):
            new = action.new_name if isinstance(action, RenameColumn) else action.column.name
            if new.lower() != action.old_name.lower() and _place(table, action.old_name) is not None:
                table = _rename_column(table, RenameColumn(action.old_name, f"\0{number}"))
                freed.append(replace(action, old_name=f"\0{number}"))
                continue
        freed.append(action)
    return table, tuple(freed)


def _place(table: TableSchema, name: str) -> int | None:
    """Where a column stands; MySQL compares column names without regard to case."""
    return next((at for at, column in enumerate(table.columns) if column.name.lower() == name.lower()), None)


def _required_place(table: TableSchema, name: str) -> int:
    at = _place(table, name)
    if at is None:
        raise _NotApplicable(f"{table.database}.{table.table} has no column {name}")
    return at


def _put(table: TableSchema, column: Column, position: str | None, at: int) -> TableSchema:
    """Put a column into its place: before the first, after another, or (None) to index `at`."""
    columns = list(table.columns)
    if position == "":
        at = 0
    elif position is not None:
        at = _required_place(table, position) + 1
    columns.insert(at, column)
    return replace(table, columns=tuple(columns))


def _add_column(table: TableSchema, action: AddColumn) -> TableSchema:
    at = _place(table, action.column.name)
    if at is None:
        return _put(table, action.column, action.position, len(table.columns))
    if action.only_if_missing:
        return table
    # The same statement again (a restarted changefeed repeats DDL): the same result.
    return replace(table, columns=(*table.columns[:at], action.column, *table.columns[at + 1 :]))


def _modify_column(table: TableSchema, action: ModifyColumn) -> TableSchema:
    if action.if_exists and _place(table, action.old_name) is None:
        return table
    at = _required_place(table, action.old_name)
    # MODIFY names the column in any case, and does not rename it; CHANGE does.
    same = action.old_name == action.column.name
    column = replace(action.column, name=table.columns[at].name) if same else action.column
    table = _with_names(table, table.columns[at].name, column.name)
    without = replace(table, columns=(*table.columns[:at], *table.columns[at + 1 :]))
    return _put(without, column, action.position, at)


def _drop_column(table: TableSchema, action: DropColumn) -> TableSchema:
    at = _place(table, action.name)
    if at is None:
        return table
    gone = table.columns[at].name
    keys = [
        (tuple(name for name in key if name != gone), key_name)
        for key, key_name in zip(table.unique_keys, _unique_names(table), strict=True)
    ]
    kept = [(key, key_name) for key, key_name in keys if key]
    return replace(
        table,
        columns=(*table.columns[:at], *table.columns[at + 1 :]),
        primary_key=tuple(name for name in table.primary_key if name != gone),
        unique_keys=tuple(key for key, _ in kept),
        unique_names=tuple(key_name for _, key_name in kept),
    )


def _rename_column(table: TableSchema, action: RenameColumn) -> TableSchema:
    if action.if_exists and _place(table, action.old_name) is None:
        return table
    old = table.columns[_required_place(table, action.old_name)].name
    table = _with_names(table, old, action.new_name)
    columns = (
        replace(column, name=action.new_name) if column.name == old else column  # one of them
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))


def _with_names(table: TableSchema, old: str, new: str) -> TableSchema:
    """The table whose keys call the column by its new name."""

    def renamed(key: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in key)

    return replace(
        table, primary_key=renamed(table.primary_key), unique_keys=tuple(renamed(key) for key in table.unique_keys)
    )


def _set_default(table: TableSchema, action: SetDefault) -> TableSchema:
    at = _required_place(table, action.name)
    column = action.default.given_to(table.columns[at], parsed(table.columns[at].type))
    return replace(table, columns=(*table.columns[:at], column, *table.columns[at + 1 :]))


def _add_key(table: TableSchema, action: AddKey) -> TableSchema:
    columns = tuple(_column_name(table, name) for name in action.columns)
    if action.kind == "primary":
        if action.only_if_missing and table.primary_key:
            return table
        return replace(table, primary_key=columns)
    taken = {name.lower() for name in (*_unique_names(table), *table.index_names)}
    if action.name.lower() in taken:
        return table  # the same statement again
    name = action.name or _free_name(columns, taken)
    if action.kind == "index" or not columns:
        return replace(table, index_names=(*table.index_names, name))
    return replace(table, unique_keys=(*table.unique_keys, columns), unique_names=(*_unique_names(table), name))


def _column_name(table: TableSchema, name: str) -> str:
    """The column's name as the table has it; a name that it has not stays (a CREATE TABLE may name keys first)."""
    at = _place(table, name)
    return name if at is None else table.columns[at].name


def _free_name(columns: tuple[str, ...], taken: set[str]) -> str:
    """The name that MySQL gives a key without one: its first column, then with _2, _3, ..."""
    first = columns[0] if columns else "functional_index"
    if first.lower() not in taken and first.lower() != "primary":
        return first
    number = 2
    while f"{first}_{number}".lower() in taken:
        number += 1
    return f"{first}_{number}"


def _unique_names(table: TableSchema) -> tuple[str, ...]:
    """The names of the unique keys; a schema that came from elsewhere may lack them."""
    names = list(table.unique_names)
    for key in table.unique_keys[len(names) :]:
        names.append(_free_name(key, {name.lower() for name in (*names, *table.index_names)}))
    return tuple(names)


def _drop_key(table: TableSchema, action: DropKey) -> TableSchema:
    gone = action.name.lower()
    if gone == "primary":
        return replace(table, primary_key=())
    kept = [
        (key, name) for key, name in zip(table.unique_keys, _unique_names(table), strict=True) if name.lower() != gone
    ]
    return replace(
        table,
        unique_keys=tuple(key for key, _ in kept),
        unique_names=tuple(name for _, name in kept),
        index_names=tuple(name for name in table.index_names if name.lower() != gone),
    )


def _rename_key(table: TableSchema, action: RenameKey) -> TableSchema:
    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(action.new_name if name.lower() == action.old_name.lower() else name for name in names)

    return replace(table, unique_names=renamed(_unique_names(table)), index_names=renamed(table.index_names))


def _rename_table(table: TableSchema, action: RenameTable) -> TableSchema:
    return replace(table, database=action.new_name.database, table=action.new_name.table)


# One function per kind of action, each for its own kind only; the key of the table is what makes the pair fit.
_APPLIERS: Mapping[type[Action], Callable[[TableSchema, Any], TableSchema]] = MappingProxyType(
    {
        AddColumn: _add_column,
        ModifyColumn: _modify_column,
        DropColumn: _drop_column,
        RenameColumn: _rename_column,
        SetDefault: _set_default,
        AddKey: _add_key,
        DropKey: _drop_key,
        RenameKey: _rename_key,
        RenameTable: _rename_table,
        MoveRows: lambda table, _: table,
    }
)
