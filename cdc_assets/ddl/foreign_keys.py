"""The foreign keys of a table after statements: on the table itself, and on the parent tables that the keys refer to."""

import re
from dataclasses import replace

from cdc_assets.ddl.actions import (
    AddForeignKey,
    ForeignKey,
    ModifyColumn,
    RenameColumn,
    RenameTable,
    Statement,
)

ForeignKeys = tuple[ForeignKey, ...]


def add_foreign_key(keys: ForeignKeys, action: AddForeignKey, table: str) -> ForeignKeys:
    """Return a table's foreign keys with one more. A key of the same name is replaced: a feed may repeat statements.

    Args:
        keys: the foreign keys.
        action: the key to add.
        table: the table's name.
    """
    key, given_name = action.key, (action.key.name or action.key.index_name).lower()
    has_name = bool(given_name) and any(given_name in _names(each) for each in keys)
    if (action.only_if_missing and has_name) or any(replace(each, name=key.name) == key for each in keys):
        return keys
    if not key.name:
        key = replace(key, name=_choose_name(keys, table))
    return (*(each for each in keys if each.name.lower() != key.name.lower()), key)


def _names(key: ForeignKey) -> set[str]:
    """Return the names that a statement may call a foreign key by, in lower case."""
    return {key.name.lower(), key.index_name.lower()}


def _choose_name(keys: ForeignKeys, table: str) -> str:
    """Return the name that InnoDB gives a foreign key without one: `<table>_ibfk_<number>`, above the highest number."""
    pattern = re.compile(rf"{re.escape(table)}_ibfk_(\d+)", re.IGNORECASE)
    numbers = [int(match[1]) for key in keys if (match := pattern.fullmatch(key.name))]
    return f"{table}_ibfk_{max(numbers, default=0) + 1}"


def drop_foreign_key(keys: ForeignKeys, name: str) -> ForeignKeys:
    """Return a table's foreign keys without the one of this name."""
    kept = tuple(key for key in keys if key.name.lower() != name.lower())
    # MySQL before 8.0.16 gives a key without a name the name of its index.
    return tuple(key for key in keys if key.index_name.lower() != name.lower()) if kept == keys else kept


def rename_column_in_foreign_keys(keys: ForeignKeys, old: str, new: str) -> ForeignKeys:
    """Return a table's foreign keys with a new name of one of the table's columns."""
    return tuple(replace(key, columns=_rename(key.columns, {old.lower(): new})) for key in keys)


def rename_table_in_foreign_keys(keys: ForeignKeys, old: str, new: str) -> ForeignKeys:
    """Return the foreign keys of a table that gets a new name.

    MySQL's manual ("ALTER TABLE"): names that begin with `<table>_ibfk_` get the new name of the table.
    """
    prefix = f"{old}_ibfk_"
    return tuple(
        replace(key, name=f"{new}_ibfk_{key.name[len(prefix) :]}") if key.name.startswith(prefix) else key
        for key in keys
    )


def follow_parent(key: ForeignKey, statement: Statement) -> ForeignKey:
    """Return a foreign key after a statement that may rename its parent table or columns of it."""
    for name, actions in statement.changes:
        if name == key.parent:
            renames = {a.old_name.lower(): a.new_name for a in actions if isinstance(a, RenameColumn)}
            renames |= {a.old_name.lower(): a.column.name for a in actions if isinstance(a, ModifyColumn)}
            *_, parent = name, *(a.new_name for a in actions if isinstance(a, RenameTable))
            key = replace(key, parent=parent, parent_columns=_rename(key.parent_columns, renames))
    return key


def gives_names(statement: Statement) -> bool:
    """Return whether a statement may rename a table or a column, so that foreign keys follow it."""
    return any(
        isinstance(action, RenameTable | RenameColumn | ModifyColumn)
        for _, actions in statement.changes
        for action in actions
    )


def _rename(columns: tuple[str, ...], renames: dict[str, str]) -> tuple[str, ...]:
    """Return columns with new names; `renames`: the old name in lower case -> the new name."""
    return tuple(renames.get(name.lower(), name) for name in columns)
