"""The schemas of tables, and what schema actions do to the schema of one table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from cdc_assets.ddl.actions import (
    Action,
    AddColumn,
    AddForeignKey,
    AddKey,
    Column,
    DropColumn,
    DropForeignKey,
    DropKey,
    ForeignKey,
    ModifyColumn,
    MoveRows,
    RenameColumn,
    RenameKey,
    RenameTable,
    SetDefault,
)
from cdc_assets.ddl.foreign_keys import (
    add_foreign_key,
    drop_foreign_key,
    rename_column_in_foreign_keys,
    rename_table_in_foreign_keys,
)
from cdc_assets.mysql_types.types import parsed


@dataclass(frozen=True)
class TableSchema:
    """The columns and keys of a table.

    Attributes:
        database: its database.
        table: its name.
        columns: in the table's order.
        primary_key: its columns in the key's order; empty: the table has no primary key.
        unique_keys: the columns of each unique key in the key's order; the keys in the order of their creation.
        unique_names: the names of the unique keys, parallel to `unique_keys`.
        index_names: the names of all other indexes.
        foreign_keys: the foreign keys, also those that change no row.
    """

    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    unique_names: tuple[str, ...] = ()
    index_names: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row: the primary key, else a unique key without nullable and virtual columns.

        Of several it is the first one with the fewest columns, as TiCDC chooses its handle key: a DELETE may have no others.
        """
        if self.primary_key:
            return self.primary_key
        required = {column.name for column in self.columns if not (column.nullable or column.virtual)}
        return min((key for key in self.unique_keys if required.issuperset(key)), key=len, default=())


class NotApplicable(Exception):  # noqa: N818 -- becomes `DdlEffect.error`
    """The statement does not fit the schema of the table."""


def apply_actions(table: TableSchema, actions: tuple[Action, ...]) -> TableSchema:
    """Return the schema of a table after the actions of one statement. Columns of its primary key become NOT NULL."""
    table, actions = _free_old_names(table, actions)
    for action in sorted(actions, key=_rank):
        table = _APPLIERS[type(action)](table, action)
    required = {name.lower() for name in table.primary_key}
    return replace(
        table,
        columns=tuple(
            replace(column, nullable=column.nullable and column.name.lower() not in required)
            for column in table.columns
        ),
    )


def _rank(action: Action) -> int:
    """Return when an action takes effect within its statement, as the server does not follow the order of the text.

    What a statement drops has the names before it, and what it adds may have the same names. AFTER and new keys name
    columns by the names after it.
    """
    match action:
        case DropColumn() | DropKey() | DropForeignKey():
            return 0
        case AddColumn() | ModifyColumn(position=str()):
            return 2
        case AddKey() | AddForeignKey():
            return 3
    return 1


def _free_old_names(table: TableSchema, actions: tuple[Action, ...]) -> tuple[TableSchema, tuple[Action, ...]]:
    """Give columns that a statement renames temporary names, because columns may swap their names in one statement.

    Returns:
        The table with the temporary names, and the actions on these names.
    """
    changed_actions: list[Action] = []
    for number, action in enumerate(actions):
        if isinstance(action, RenameColumn | ModifyColumn):
            new = action.new_name if isinstance(action, RenameColumn) else action.column.name
            if new.lower() != action.old_name.lower() and _place(table, action.old_name) is not None:
                table = _rename_column(table, RenameColumn(action.old_name, f"\0{number}"))
                changed_actions.append(replace(action, old_name=f"\0{number}"))
                continue
        changed_actions.append(action)
    return table, tuple(changed_actions)


def _place(table: TableSchema, name: str) -> int | None:
    """Return the index of a column; None: the table has no such column. MySQL ignores the letter case of column names."""
    return next((at for at, column in enumerate(table.columns) if column.name.lower() == name.lower()), None)


def _required_place(table: TableSchema, name: str) -> int:
    """Return the index of a column.

    Raises:
        NotApplicable: the table has no such column.
    """
    at = _place(table, name)
    if at is None:
        raise NotApplicable(f"{table.database}.{table.table} has no column {name}")
    return at


def _put(table: TableSchema, column: Column, position: str | None, at: int) -> TableSchema:
    """Return the table with a column more: first (`position` is empty), after column `position`, or (None) at index `at`."""
    columns = list(table.columns)
    if position == "":
        at = 0
    elif position is not None:
        at = _required_place(table, position) + 1
    columns.insert(at, column)
    return replace(table, columns=tuple(columns))


def _replace_column(table: TableSchema, at: int, *columns: Column) -> TableSchema:
    """Return the table with these columns in place of the one at index `at`."""
    return replace(table, columns=(*table.columns[:at], *columns, *table.columns[at + 1 :]))


def _add_column(table: TableSchema, action: AddColumn) -> TableSchema:
    """Return the table after ADD COLUMN."""
    at = _place(table, action.column.name)
    if at is None:
        return _put(table, action.column, action.position, len(table.columns))
    # A restarted changefeed sends a DDL statement again: the result must be the same.
    return table if action.only_if_missing else _replace_column(table, at, action.column)


def _modify_column(table: TableSchema, action: ModifyColumn) -> TableSchema:
    """Return the table after MODIFY or CHANGE."""
    if action.if_exists and _place(table, action.old_name) is None:
        return table
    at = _required_place(table, action.old_name)
    # MODIFY may name the column in another letter case, and does not rename it; CHANGE does.
    keeps_name = action.old_name == action.column.name
    column = replace(action.column, name=table.columns[at].name) if keeps_name else action.column
    table = _rename_in_keys(table, table.columns[at].name, column.name)
    return _put(_replace_column(table, at), column, action.position, at)


def _drop_column(table: TableSchema, action: DropColumn) -> TableSchema:
    """Return the table after DROP COLUMN. Keys lose the column, and a unique key without columns is dropped."""
    at = _place(table, action.name)
    if at is None:
        return table
    dropped = table.columns[at].name
    keys = [
        (tuple(name for name in key if name != dropped), key_name)
        for key, key_name in zip(table.unique_keys, _unique_names(table), strict=True)
    ]
    table = _with_unique_keys(_replace_column(table, at), [(key, key_name) for key, key_name in keys if key])
    return replace(table, primary_key=tuple(name for name in table.primary_key if name != dropped))


def _with_unique_keys(table: TableSchema, keys: Sequence[tuple[tuple[str, ...], str]]) -> TableSchema:
    """Return the table with these unique keys: the columns and the name of each."""
    return replace(table, unique_keys=tuple(key for key, _ in keys), unique_names=tuple(name for _, name in keys))


def _rename_column(table: TableSchema, action: RenameColumn) -> TableSchema:
    """Return the table after RENAME COLUMN."""
    if action.if_exists and _place(table, action.old_name) is None:
        return table
    at = _required_place(table, action.old_name)
    table = _rename_in_keys(table, table.columns[at].name, action.new_name)
    return _replace_column(table, at, replace(table.columns[at], name=action.new_name))


def _rename_in_keys(table: TableSchema, old: str, new: str) -> TableSchema:
    """Return the table with a column's new name in its keys."""

    def renamed(key: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in key)

    return replace(
        table,
        primary_key=renamed(table.primary_key),
        unique_keys=tuple(renamed(key) for key in table.unique_keys),
        foreign_keys=rename_column_in_foreign_keys(table.foreign_keys, old, new),
    )


def _set_default(table: TableSchema, action: SetDefault) -> TableSchema:
    """Return the table after ALTER COLUMN ... SET DEFAULT or DROP DEFAULT."""
    at = _required_place(table, action.name)
    column = action.default.apply_to(table.columns[at], parsed(table.columns[at].type))
    return _replace_column(table, at, column)


def _add_key(table: TableSchema, action: AddKey) -> TableSchema:
    """Return the table with a key more."""
    columns = tuple(_column_name(table, name) for name in action.columns)
    if action.kind == "primary":
        if action.only_if_missing and table.primary_key:
            return table
        return replace(table, primary_key=columns)
    used_names = {name.lower() for name in (*_unique_names(table), *table.index_names)}
    if action.name.lower() in used_names:
        return table  # A restarted changefeed sends a DDL statement again.
    name = action.name or _choose_key_name(columns, used_names)
    if action.kind == "index" or not columns:
        return replace(table, index_names=(*table.index_names, name))
    return replace(table, unique_keys=(*table.unique_keys, columns), unique_names=(*_unique_names(table), name))


def _column_name(table: TableSchema, name: str) -> str:
    """Return a column's name in the letter case of the table, which may define the column after the key."""
    at = _place(table, name)
    return name if at is None else table.columns[at].name


def _choose_key_name(columns: tuple[str, ...], used_names: set[str]) -> str:
    """Return the name that MySQL gives a key without one: that of its first column, with _2, _3, ... if it is used."""
    first = columns[0] if columns else "functional_index"
    if first.lower() not in used_names and first.lower() != "primary":
        return first
    number = 2
    while f"{first}_{number}".lower() in used_names:
        number += 1
    return f"{first}_{number}"


def _unique_names(table: TableSchema) -> tuple[str, ...]:
    """Return the names of the unique keys, those that a message left out as MySQL chooses them."""
    names = list(table.unique_names)
    for key in table.unique_keys[len(names) :]:
        names.append(_choose_key_name(key, {name.lower() for name in (*names, *table.index_names)}))
    return tuple(names)


def _drop_key(table: TableSchema, action: DropKey) -> TableSchema:
    """Return the table after DROP PRIMARY KEY, DROP INDEX or DROP CONSTRAINT."""
    dropped = action.name.lower()
    if dropped == "primary":
        return replace(table, primary_key=())
    kept = [
        (key, name)
        for key, name in zip(table.unique_keys, _unique_names(table), strict=True)
        if name.lower() != dropped
    ]
    index_names = tuple(name for name in table.index_names if name.lower() != dropped)
    return replace(_with_unique_keys(table, kept), index_names=index_names)


def _rename_key(table: TableSchema, action: RenameKey) -> TableSchema:
    """Return the table after RENAME INDEX."""

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(action.new_name if name.lower() == action.old_name.lower() else name for name in names)

    return replace(table, unique_names=renamed(_unique_names(table)), index_names=renamed(table.index_names))


def _add_foreign_key(table: TableSchema, action: AddForeignKey) -> TableSchema:
    """Return the table after ADD FOREIGN KEY."""
    return replace(table, foreign_keys=add_foreign_key(table.foreign_keys, action, table.table))


def _drop_foreign_key(table: TableSchema, action: DropForeignKey) -> TableSchema:
    """Return the table after DROP FOREIGN KEY or DROP CONSTRAINT."""
    return replace(table, foreign_keys=drop_foreign_key(table.foreign_keys, action.name))


def _rename_table(table: TableSchema, action: RenameTable) -> TableSchema:
    """Return the table after RENAME."""
    keys = rename_table_in_foreign_keys(table.foreign_keys, table.table, action.new_name.table)
    return replace(table, database=action.new_name.database, table=action.new_name.table, foreign_keys=keys)


# The function of each kind of action. A function takes only its own kind, which mypy cannot see: hence `Any`.
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
        AddForeignKey: _add_foreign_key,
        DropForeignKey: _drop_foreign_key,
        RenameTable: _rename_table,
        MoveRows: lambda table, _: table,
    }
)
