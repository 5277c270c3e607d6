"""Keep one table's columns, its key, and what is known of its rows, after some of the feed's DDL statements.

This module is long because all kinds of statements change the same state of a table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cdc_assets.ddl.actions import (
    Action,
    AddColumn,
    AddKey,
    Column,
    DropColumn,
    DropKey,
    ModifyColumn,
    MoveRows,
    RenameColumn,
)
from cdc_assets.ddl.stated_schemas import is_other_type
from cdc_assets.history.evolution import (
    SEEN,
    Close,
    Convert,
    Evolution,
    Fill,
    Flag,
    Forget,
    Recover,
    Rekey,
    Replaced,
    Restrict,
    Slot,
    Step,
    StepOp,
)
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl
from cdc_assets.history.type_changes import (
    KEY_TYPES,
    ZERO_DATE_TYPES,
    adds_digits,
    fits_history_column,
    keeps_key_text,
    keeps_values,
    may_exclude,
)
from cdc_assets.mysql_types.descriptors import INTEGERS
from cdc_assets.mysql_types.types import MySQLType, parsed

_BARE_TIMESTAMP = "with explicit_defaults_for_timestamp=OFF the server has given them another value"
# Names of columns with their types; None if a type is unknown.
NamedTypes = Sequence[tuple[str, MySQLType | None]]


@dataclass(frozen=True)
class TableBefore:
    """A table before a statement that renames it, or gives its name to another table.

    Attributes:
        columns: column, in lower case -> its slot, and a copy of the slot as it was then.
        removed_columns: the columns that only the history still had.
        is_keyed_by_row: `EvolvingTable.is_keyed_by_row`.
        has_all_rows: `EvolvingTable.has_all_rows`.
        was_seen: whether statements or rows have shown columns of the table.
    """

    columns: Mapping[str, tuple[Slot, Slot]] = field(default_factory=dict)
    removed_columns: Sequence[Slot] = ()
    is_keyed_by_row: bool = False
    has_all_rows: bool = False
    was_seen: bool = False


class EvolvingTable:
    """One table after some of the statements. Its methods apply the next statement.

    Attributes:
        evolution: the table's steps so far.
        is_keyed_by_row: whether the whole row, as the history has it, is the key: the table has lost its key, or it has no
            key and its columns have changed.
        has_all_rows: whether a statement left the table empty, so that all of its rows are known.
    """

    def __init__(
        self,
        name: Name,
        overridden: Callable[[Name, str], bool],
        changes_key_text: Callable[[MySQLType], bool],
        *,
        of_tidb: bool,
        is_keyed_by_messages: bool,
    ) -> None:
        self.evolution = Evolution(name)
        self._is_keyed_by_messages = is_keyed_by_messages
        self.is_keyed_by_row = False
        self.has_all_rows = False
        self._overridden, self._changes_key_text, self._of_tidb = overridden, changes_key_text, of_tidb
        self._live: dict[str, Slot] = {}
        self._removed_columns: list[Slot] = []  # columns that only the history of this table still has
        # The last DROP TABLE and the one before it, and the columns that the last one removed.
        self._dropped: tuple[Recover, dict[str, Slot]] | None = None
        self._removed: Replaced | None = None  # the table before its last RENAME or DROP, if another takes its name
        self._key: tuple[Slot, ...] | None = None
        self._has_old_keys = False  # rows of the table stay under an earlier key
        self._is_in_rows = False  # rows, or the history, have shown columns

    def copy_state(self) -> TableBefore:
        """Return the table as it is now. Later statements change slots in place, so copy them."""
        return TableBefore(
            columns={lower: (slot, replace(slot)) for lower, slot in self._live.items()},
            removed_columns=list(self._removed_columns),
            is_keyed_by_row=self.is_keyed_by_row,
            has_all_rows=self.has_all_rows,
            was_seen=self._is_in_rows or bool(self._live),
        )

    def show(self, columns: NamedTypes) -> None:
        """Add columns that rows show, where no statement has named them."""
        if columns:
            self._is_in_rows = True
        for column, mysql_type in columns:
            named = self._find_named(column.lower())
            if named is None:
                self._show_slot(column.lower(), self._add_slot(SEEN, column, mysql_type))
            elif not self._was_live(named):
                # The rows that a RENAME brought had a column of this name before, and it was dropped.
                if not fits_history_column(named.type, mysql_type):
                    self._put_aside(named, self.evolution.steps[-1].ddl)
                    named = self._add_slot(SEEN, column, mysql_type)
                named.type = mysql_type or named.type
                self._show_slot(column.lower(), named)

    def _was_live(self, slot: Slot) -> bool:
        """Return whether a column of the history has been one of the source's table."""
        return any(slot in self.evolution.live(era).values() for era in range(len(self.evolution.steps) + 1))

    def _show_slot(self, lower: str, slot: Slot) -> None:
        """Add a column to the table since its last step, where no statement has added it."""
        slot.removed_at = None
        self._removed_columns = [each for each in self._removed_columns if each is not slot]
        self._live[lower] = slot
        if not self.evolution.steps:
            self.evolution.base[lower] = slot
        else:
            last = self.evolution.steps[-1]
            self.evolution.steps[-1] = replace(last, live=MappingProxyType({**last.live, lower: slot}))

    def add_step(self, ddl: Ddl, ops: Sequence[StepOp]) -> None:
        """Add the step of a statement, with the table's columns as they are now."""
        live = MappingProxyType(dict(self._live))
        self.evolution.steps.append(Step(ddl, live, tuple(ops), self.is_keyed_by_row, self._list_labelled()))

    def _list_labelled(self) -> Mapping[str, str]:
        """Return the columns, in lower case, whose type has labels -> that type."""
        return {lower: str(slot.type) for lower, slot in self._live.items() if slot.type and slot.type.labels}

    # --- Statements about the whole table.

    def create(self, actions: Sequence[Action], ddl: Ddl) -> None:
        """Create the table; a table that exists only gets types that were not known (CREATE TABLE IF NOT EXISTS)."""
        existing = dict(self._live)
        for action in actions:
            if not isinstance(action, AddColumn):
                continue
            column, lower = action.column, action.column.name.lower()
            mysql_type = parsed(column.type)
            if not existing:
                slot = self._take_name(lower, column.name, mysql_type, ddl)
                _set_attributes(slot, column)
            elif lower in existing and existing[lower].type is None:
                existing[lower].type = mysql_type

    def drop(self, ddl: Ddl) -> list[StepOp]:
        """Remove the table with a DROP, which a RECOVER TABLE may undo; return the operations on open rows."""
        since = -1 if self._dropped is None else self._dropped[0].dropped
        self._dropped = Recover(ddl.spot.commit_ts, since), dict(self._live)
        return self.remove(ddl, "drop")

    def recover(self, ddl: Ddl) -> None:
        """Undo the last DROP of the table."""
        if self._dropped is not None:
            rows, columns = self._dropped
            for lower, slot in columns.items():
                self._take_name(lower, slot.name, slot.type, ddl)
            self.add_step(ddl, [rows])

    def remove(self, ddl: Ddl, reason: str) -> list[StepOp]:
        """Remove the table's columns and key, as it is dropped or renamed; return the operations on open rows."""
        era, columns = len(self.evolution.steps), frozenset(self._live.values())
        self._removed = Replaced(ddl.spot.commit_ts, era, reason, columns)
        for slot in self._live.values():
            slot.removed_at = ddl.spot.commit_ts
        self._live, self._removed_columns = {}, []
        self._key = None
        self.is_keyed_by_row = False
        self._has_old_keys = False
        return [Close(reason)]

    def replaced_by(self, ddl: Ddl) -> Replaced | None:
        """Return the table that had this name until the statement's position; None if there was none."""
        removed = self._removed
        return removed if removed is not None and removed.commit_ts == ddl.spot.commit_ts else None

    def take_columns(self, origin: TableBefore, ddl: Ddl, replaced: Replaced | None) -> dict[Slot, Slot]:
        """Give this table the columns of a table that gets its name, also those that only the history of that one has.

        Args:
            origin: that table before the statement.
            ddl: the statement.
            replaced: the table that had the name until this position.

        Returns:
            The columns of this table -> the columns of the origin.
        """
        taken = {}
        for lower, (slot, before) in origin.columns.items():
            if replaced is not None and (old := self._find_named(lower)) not in replaced.columns:
                # A version that continues may have a value of a column that was dropped earlier.
                self._put_aside(old, ddl)
            own = self._take_name(lower, before.name, before.type, ddl)
            own.virtual, own.expression, own.not_null = before.virtual, before.expression, before.not_null
            taken[own] = slot
        for slot in origin.removed_columns:
            named = self._find_named(slot.name.lower())
            own = self._add_slot(ddl.id, slot.name, slot.type)
            own.removed_at = slot.removed_at
            if slot.is_put_aside or named is not None:
                self._put_aside(own, ddl)
            self._removed_columns.append(own)
            taken[own] = slot
        return taken

    # --- Statements about columns.

    def alter(self, ddl: Ddl, actions: Sequence[Action]) -> None:
        """Apply a statement's actions on columns and keys, and add its step if it changes anything."""
        labelled_before = self._list_labelled()
        columns_before = {slot.id: (slot.name, slot.type) for slot in self._live.values()}
        renames = [(a.old_name, a.new_name) for a in actions if isinstance(a, RenameColumn)]
        renames += [
            (a.old_name, a.column.name)
            for a in actions
            if isinstance(a, ModifyColumn) and a.old_name.lower() != a.column.name.lower()
        ]
        # All names in a statement are names before it. So first drop columns, then rename, then apply the rest by the new
        # names.
        ops = [op for a in actions if isinstance(a, DropColumn) for op in self._drop_column(a, ddl)]
        self._rename_columns(renames, ddl)
        ops += [op for a in actions for op in self._apply(a, ddl)]
        ops = [*self._change_key(ddl, changes_texts=self._changes_texts(columns_before, ops)), *ops]
        if self.evolution.name in ddl.shapes:
            # Binlog places, not clocks, say which statement came before a row: so each statement begins an era.
            begins_era = ddl.spot.place is not None
        else:
            # Only steps have the labels of a table whose schema is not known.
            begins_era = ddl.kind == "create_table" or self._list_labelled() != labelled_before
        if begins_era or ops or dict(self.evolution.live(len(self.evolution.steps))) != self._live:
            self.add_step(ddl, ops)

    def is_changed_by(self, action: Action, seen_at: Sequence[NamedTypes]) -> bool:
        """Return whether an action changes the table; IF [NOT] EXISTS makes that depend on the table's columns.

        Args:
            action: the action.
            seen_at: the columns that rows of the statement's commit_ts show.
        """
        if isinstance(action, DropColumn) and action.if_exists:
            return action.name.lower() in self._live
        if isinstance(action, ModifyColumn | RenameColumn) and action.if_exists:
            return action.old_name.lower() in self._live
        if isinstance(action, AddColumn) and action.only_if_missing:
            lower = action.column.name.lower()
            # Rows without the column show that the statement has added it.
            names_of_rows = [{name.lower() for name, _ in columns} for columns in seen_at]
            if self._is_in_rows or not names_of_rows or not all(lower in names for names in names_of_rows):
                return lower not in self._live
            return False
        return True

    def compare_columns(self, shape: Sequence[Column]) -> tuple[Action, ...]:
        """Return what a statement that could not be read has done, by the table's columns in its message."""
        now, after = self._live, {c.name.lower(): c for c in shape}
        added = [AddColumn(c) for lower, c in after.items() if lower not in now]
        dropped = [DropColumn(slot.name) for lower, slot in now.items() if lower not in after]
        changed = [
            ModifyColumn(c.name, c)
            for lower, c in after.items()
            if lower in now and now[lower].type is not None and now[lower].type != parsed(c.type)
        ]
        return (*added, *dropped, *changed)

    def compare_description(self, shape: Sequence[Column]) -> tuple[Action, ...]:
        """Return what lost statements have done, by a connector's snapshot, which describes the table with CREATE TABLE.

        Nothing if only rows have shown columns of the table. The description may name a replaceable type otherwise.
        """
        if not self._live or any(slot.id.startswith(f"{SEEN}:") for slot in self._live.values()):
            return ()

        def is_change(action: Action) -> bool:
            if not isinstance(action, ModifyColumn):
                return True
            before, after = self._live[action.old_name.lower()].type, parsed(action.column.type)
            has_same_base = before is not None and after is not None and before.base == after.base
            return has_same_base or is_other_type(str(before), action.column.type)

        return tuple(action for action in self.compare_columns(shape) if is_change(action))

    def _apply(self, action: Action, ddl: Ddl) -> list[StepOp]:
        """Add or change what an action names, after all drops and renames; return the operations on open rows."""
        match action:
            case AddColumn():
                return self._add_column(action, ddl)
            case ModifyColumn():
                return self._modify_column(action, ddl)
            case MoveRows():
                return [Flag(f"{action.how}: it adds or removes rows, and no row event says so", reload=True)]
        return []

    def _add_column(self, action: AddColumn, ddl: Ddl) -> list[StepOp]:
        column, lower = action.column, action.column.name.lower()
        mysql_type = parsed(column.type)
        slot = self._live.get(lower)
        if slot is not None and not slot.id.startswith(f"{SEEN}:"):
            return []  # IF NOT EXISTS
        if slot is None:
            self._put_aside(self._find_named(lower), ddl)
            slot = self._live[lower] = self._add_slot(ddl.id, column.name, mysql_type)
        # Otherwise rows that came after the statement have an earlier commit_ts, and have shown the column.
        slot.type, slot.added = mysql_type or slot.type, True
        _set_attributes(slot, column)
        if mysql_type is None:
            is_filled = (column.computed_default or not column.nullable) and not column.generated
            why = f"{slot.column} is NULL in earlier rows: the value that they got as {column.type} is not known"
            return [Flag(why)] if is_filled else []
        if column.is_filled:
            return [Fill(slot, mysql_type, column.fill)]
        if column.bare_timestamp and not self._of_tidb:
            return [Fill(slot, mysql_type, None, _BARE_TIMESTAMP)]
        return []

    def _drop_column(self, action: DropColumn, ddl: Ddl) -> list[StepOp]:
        slot = self._named_slot(action.name)
        del self._live[action.name.lower()]
        slot.removed_at = ddl.spot.commit_ts
        self._removed_columns.append(slot)
        return [Forget(slot)]

    def _rename_columns(self, renames: Sequence[tuple[str, str]], ddl: Ddl) -> None:
        """Give columns their new names, all at once: columns may swap their names."""
        slots = {new: self._named_slot(old) for old, new in renames}
        for old, _ in renames:
            self._live.pop(old.lower(), None)
        for new in slots:
            named = self._find_named(new.lower())
            if named is not None and named not in slots.values():
                self._put_aside(named, ddl)
        for new, slot in slots.items():
            slot.name = new
            self._live[new.lower()] = slot

    def _modify_column(self, action: ModifyColumn, ddl: Ddl) -> list[StepOp]:
        """Change a column's type. If the action changes the name, too, the column already has its new name."""
        column = action.column
        slot, new = self._named_slot(column.name), parsed(column.type)
        has_same_expression = column.expression is not None and column.expression == slot.expression
        if column.generated and not (has_same_expression and new == slot.type):
            return self._recompute_column(slot, column, ddl)
        old, was_not_null = slot.type, slot.not_null
        _set_attributes(slot, column)
        # Histories have no zero dates, which a NOT NULL column may have.
        may_be_zero = new is not None and new.base in ZERO_DATE_TYPES
        not_null = not (column.nullable or was_not_null or column.generated or may_be_zero)
        restricted: list[StepOp] = [Restrict(slot, None, not_null)] if not_null else []
        if new is None or old is None or old == new or self._overridden(self.evolution.name, column.name):
            slot.type = new or old
            return restricted
        if fits_history_column(old, new) and keeps_values(old, new):
            slot.type = new
            if may_exclude(old, new):
                restricted = [Restrict(slot, new, not_null)]
            if adds_digits(old, new):
                restricted.append(Convert(slot, slot, old, new))
            return [*restricted, *self._keep_key(slot, old, new)]
        recomputed = self._flag_computed_from(slot) if not {old.base, new.base} <= INTEGERS else []
        # Rows that are open before and after the statement have a value in each of the two columns.
        self._put_aside(slot, ddl)
        self._removed_columns.append(slot)
        converted = self._live[column.name.lower()] = self._add_slot(ddl.id, column.name, new)
        converted.not_null = slot.not_null
        return [Convert(converted, slot, old, new), Forget(slot), *restricted, *recomputed]

    def _flag_computed_from(self, slot: Slot) -> list[StepOp]:
        """Report the stored generated columns that the server computes again, as the values of `slot` may have changed."""
        name = f" {slot.name.lower()} "
        computed = [s for s in self._live.values() if s.expression and not s.virtual and name in f" {s.expression} "]
        why = "the server has computed its values again, from those of"
        return [Flag(f"{s.column}: {why} {slot.name}, and no row event says so", reload=True) for s in computed]

    def _recompute_column(self, slot: Slot, column: Column, ddl: Ddl) -> list[StepOp]:
        """Add a column for the values that the server computes for all rows, without row events; put the old one aside."""
        self._put_aside(slot, ddl)
        self._removed_columns.append(slot)
        computed = self._live[column.name.lower()] = self._add_slot(ddl.id, column.name, parsed(column.type))
        _set_attributes(computed, column)
        return [Fill(computed, computed.type, None), Forget(slot), *self._flag_computed_from(slot)]

    # --- Keys.

    def _keep_key(self, slot: Slot, old: MySQLType, new: MySQLType) -> list[StepOp]:
        """Return what a column's new type means for the keys of open rows: nothing, or that they keep the old text."""
        has_same_text = keeps_key_text(old, new) and self._changes_key_text(old) == self._changes_key_text(new)
        if slot not in (self._key or ()) or has_same_text:
            return []
        self._has_old_keys = True
        return [Flag(f"open rows keep their old key: it has values of {slot.name} as {old}", reload=True)]

    def _changes_texts(self, columns_before: Mapping[str, tuple[str, MySQLType | None]], ops: Sequence[StepOp]) -> bool:
        """Return whether a statement changes the text of open rows, by their columns or by a new column with a value.

        Args:
            columns_before: ids of the table's columns before the statement -> name and type.
            ops: what happens to open rows.
        """
        if any(isinstance(op, Fill) and not op.slot.virtual for op in ops):
            return True
        now = {slot.id: slot for slot in self._live.values()}
        kept = [(name, old, now[key]) for key, (name, old) in columns_before.items() if key in now]
        return len(kept) < len(columns_before) or any(
            slot.name != name or not (old is None or slot.type is None or keeps_key_text(old, slot.type))
            for name, old, slot in kept
        )

    def _change_key(self, ddl: Ddl, *, changes_texts: bool) -> list[StepOp]:
        """Change the key if the statement does so: close open rows, and open them under the new key where that is known.

        Args:
            ddl: the statement.
            changes_texts: whether the texts of rows change, which are the keys of a table without a key.
        """
        name = self.evolution.name
        if name not in ddl.keys:
            return self._change_unknown_key(ddl)
        before = self._key
        self._key = after = tuple(self._live[c.lower()] for c in ddl.keys[name] if c.lower() in self._live)
        # Messages may state a key of a table without one (Debezium's message.key.columns).
        has_key = bool(after) or (self._is_keyed_by_messages and not self.is_keyed_by_row)
        stays = before == after and (has_key or not changes_texts)
        if before is None or stays or ddl.kind not in ("alter_table", "create_index", "drop_index"):
            return []
        return self._rekey_rows(ddl, after, None if self._has_old_keys else not before)

    def _change_unknown_key(self, ddl: Ddl) -> list[StepOp]:
        """Change the key of a table whose earlier key no statement or message has stated."""
        actions = [a for name, each in ddl.changes if name == self.evolution.name for a in each]
        added = [a.columns for a in actions if isinstance(a, AddKey) and a.kind == "primary"]
        if added and len(added[0]) == 1:
            return self._rekey_rows(ddl, (self._named_slot(added[0][0]),), None)
        if added or any(isinstance(a, DropKey) and a.name.upper() == "PRIMARY" for a in actions):
            self._has_old_keys = True
            return [Flag("open rows keep their old key: the table's CREATE has not been read", reload=True)]
        return []

    def _rekey_rows(self, ddl: Ddl, after: tuple[Slot, ...], by_row: bool | None) -> list[StepOp]:  # noqa: FBT001
        """Close the open rows and open them under a key of the columns `after`; `by_row`: `Rekey.by_row`."""
        self.is_keyed_by_row = False
        if not all(self._gives_key(s.type) and s.id.split(":")[0] != ddl.id for s in after):
            self._has_old_keys = True
            return [Flag("open rows keep their old key: their columns do not give the new one", reload=True)]
        self.add_step(ddl, [Close("ddl")])
        self._has_old_keys = False
        if not after:
            self.is_keyed_by_row = True
        return [Rekey(after, by_row)]

    def _gives_key(self, mysql_type: MySQLType | None) -> bool:
        """Return whether the history's values of a type have the text that they have in keys of messages."""
        return mysql_type is not None and mysql_type.base in KEY_TYPES and not self._changes_key_text(mysql_type)

    # --- Slots.

    def _add_slot(self, began: str, column: str, mysql_type: MySQLType | None) -> Slot:
        """Add a column to the history; `began`: the first part of its id."""
        key = f"{began}:{column.lower()}"
        while any(s.id == key for s in self.evolution.slots):
            key += "'"
        slot = Slot(key, column, mysql_type)
        self.evolution.slots.append(slot)
        return slot

    def _take_name(self, lower: str, column: str, mysql_type: MySQLType | None, ddl: Ddl) -> Slot:
        """Add a column to the source's columns: the history's column of this name if it can hold the type, or a new one."""
        old = self._find_named(lower)
        if old is not None and (old in self._live.values() or fits_history_column(old.type, mysql_type)):
            slot = old
            slot.removed_at, slot.name, slot.type = None, column, mysql_type or slot.type
        else:
            self._put_aside(old, ddl)
            slot = self._add_slot(ddl.id, column, mysql_type)
        self._live[lower] = slot
        return slot

    def _find_named(self, lower: str) -> Slot | None:
        """Return the history's column that now has a name, whether the source still has the column or not."""
        named = [s for s in self.evolution.slots if s.name.lower() == lower and not s.is_put_aside]
        return self._live.get(lower) or (named[-1] if named else None)

    def _named_slot(self, column: str) -> Slot:
        """Return the column that a statement names. The table must have it, even if nothing has shown the column before."""
        lower = column.lower()
        if lower not in self._live:
            self._show_slot(lower, self._find_named(lower) or self._add_slot(SEEN, column, None))
        return self._live[lower]

    def _put_aside(self, slot: Slot | None, ddl: Ddl) -> None:
        """Give a column of the history a name with the suffix `__until_...`, as another column takes its name."""
        if slot is not None:
            slot.removed_at = ddl.spot.commit_ts if slot.removed_at is None else slot.removed_at
            names = {each.column.lower() for each in self.evolution.slots if each is not slot}
            slot.is_put_aside = True
            while slot.column.lower() in names:
                slot.aside_number += 1


def _set_attributes(slot: Slot, column: Column) -> None:
    """Set what a statement says about a column besides its name and type."""
    slot.virtual, slot.expression, slot.not_null = column.virtual, column.expression, not column.nullable
