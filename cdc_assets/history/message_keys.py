"""Report changes of keys that only messages state, as those of tables whose CREATE TABLE was not seen."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from cdc_assets.ddl.actions import AddColumn, AddKey, DropColumn, DropKey, ModifyColumn, RenameColumn, SetDefault
from cdc_assets.history.effects import UnappliedStatement
from cdc_assets.history.evolution import Convert, Fill, Forget, Step
from cdc_assets.history.evolving_table import NamedTypes
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl
from cdc_assets.history.type_changes import keeps_key_text
from cdc_assets.mysql_types.types import parsed


def report_other_key(
    layouts: Iterable[Mapping[str, Any]], statements: Sequence[Ddl], is_new: Callable[[int], bool]
) -> list[UnappliedStatement]:
    """Return the report of the first rows that have a key where those before have none, or the reverse, without a statement.

    Args:
        layouts: rows of released_changes of kind layout.
        statements: the table's statements.
        is_new: returns whether this run applies the rows of a release first; else an earlier run has reported them.
    """
    ordered = sorted(layouts, key=lambda r: (r["commit_ts"], r["last_ts"]))
    may_change = [d.spot.commit_ts for d in statements if _may_change_key(d)]
    for before, after in pairwise(ordered):
        is_explained = any(before["commit_ts"] <= at <= after["last_ts"] for at in may_change)
        if bool(before["key_columns"]) == bool(after["key_columns"]) or is_explained:
            continue
        if not is_new(after["release"]):
            return []
        key = ", ".join(after["key_columns"]) or "none"
        why = f"messages state another key than before ({key}): open rows keep their old key, and no statement says why"
        return [{"commit_ts": after["commit_ts"], "statement": "", "why": why, "reload": True}]
    return []


def _may_change_key(ddl: Ddl) -> bool:
    actions = [a for _, each in ddl.changes for a in each]
    return ddl.kind != "alter_table" or not all(isinstance(a, AddColumn | SetDefault) for a in actions)


def may_change_unstated_key(name: Name, ddl: Ddl) -> bool:
    """Return whether a statement drops or changes columns of a table, and no statement has stated the table's key.

    Statements about the key itself do not count: `EvolvingTable` reports them.
    """
    actions = [action for table, each in ddl.changes if table == name for action in each]
    of_key = any(isinstance(a, AddKey | DropKey) and a.name == "PRIMARY" for a in actions)
    of_columns = any(isinstance(a, DropColumn | ModifyColumn) for a in actions)
    return name not in ddl.keys and ddl.kind == "alter_table" and of_columns and not of_key


def report_key_column(
    name: Name, ddl: Ddl, layouts: Iterable[Mapping[str, Any]], types_of: Callable[[str], NamedTypes]
) -> list[UnappliedStatement]:
    """Return the report of a statement that drops a column of a key, or gives it a type with another text in keys.

    Args:
        name: the table.
        ddl: a statement for which `may_change_unstated_key` is true.
        layouts: rows of released_changes of kind layout.
        types_of: returns the columns of a layout and their types.
    """
    earlier = [r for r in layouts if r["key_columns"] and r["commit_ts"] <= ddl.spot.commit_ts]
    if not earlier:
        return []
    latest = max(earlier, key=lambda r: r["commit_ts"])
    key = {column.lower() for column in latest["key_columns"]}
    types = {column.lower(): mysql_type for column, mysql_type in types_of(latest["layout"])}
    for action in (a for table, each in ddl.changes if table == name for a in each):
        match action:
            case DropColumn(column):
                keeps_key = column.lower() not in key
            case ModifyColumn(column, definition):
                old, new = types.get(column.lower()), parsed(definition.type)
                has_same_text = old is None or new is None or keeps_key_text(old, new)
                keeps_key = has_same_text or column.lower() not in key
            case _:
                continue
        if not keeps_key:
            why = f"open rows keep their old key: the statement changes {column}, which messages state as a part of the key"
            return [{"commit_ts": ddl.spot.commit_ts, "statement": ddl.text, "why": why, "reload": True}]
    return []


def report_other_texts(name: Name, steps: Iterable[Step], first: int | None) -> list[UnappliedStatement]:
    """Return the reports of statements after which rows without a key are not found, because their texts are other ones.

    In a table whose key is known such a statement opens its rows under their new texts (`EvolvingTable`).

    Args:
        name: the table.
        steps: the statements that this run applies first.
        first: the commit_ts of the first row without a key; None: there is none.
    """
    why = "rows without a key are found by their text, which it changes, and the table's CREATE has not been read"
    return [
        {"commit_ts": step.spot.commit_ts, "statement": step.ddl.text, "why": why, "reload": True}
        for step in steps
        if first is not None and first < step.spot.commit_ts
        if name not in step.ddl.keys and _changes_texts(name, step)
    ]


def _changes_texts(name: Name, step: Step) -> bool:
    """Return whether a statement changes names or values of open rows."""
    actions = [a for table, each in step.ddl.changes for a in each if table == name]
    return any(isinstance(op, Convert | Fill | Forget) for op in step.ops) or any(
        isinstance(a, RenameColumn) or (isinstance(a, ModifyColumn) and a.old_name != a.column.name) for a in actions
    )
