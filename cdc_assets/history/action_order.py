"""The order in which the actions of one statement are applied to a table, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_assets.ddl.actions import Action, DropColumn, ModifyColumn, RenameColumn


@dataclass(frozen=True)
class RenameColumns:
    """All renames of columns in one statement: columns may swap their names."""

    names: tuple[tuple[str, str], ...]


def order_actions(actions: Sequence[Action]) -> list[Action | RenameColumns]:
    """Return the actions of one statement in an order in which they can be applied one after the other.

    All names in a statement are names before it. So first drop columns, then rename, then apply the rest by the new names.
    """
    renames = [(a.old_name, a.new_name) for a in actions if isinstance(a, RenameColumn)]
    renames += [
        (a.old_name, a.column.name)
        for a in actions
        if isinstance(a, ModifyColumn) and a.old_name.lower() != a.column.name.lower()
    ]
    dropped = [a for a in actions if isinstance(a, DropColumn)]
    others = [a for a in actions if not isinstance(a, DropColumn | RenameColumn)]
    return [*dropped, *([RenameColumns(tuple(renames))] if renames else []), *others]
