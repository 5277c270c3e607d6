"""Turn DDL statements into the evolution of each history table, by statements and columns, without rows."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from cdc_assets.ddl.actions import Action, AddColumn
from cdc_assets.history.evolution import EMPTYING_KINDS, Arrive, Close, Evolution, Flag, SeenColumns, StepOp
from cdc_assets.history.evolving_table import EvolvingTable, NamedTypes, TableBefore
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl
from cdc_assets.mysql_types.types import MySQLType

# Why no row of a renamed table is known, by whether the feed takes the table.
_NO_ROWS = {True: "none of them has come through the feed", False: "the feed does not take that table (`tables:`)"}


def evolve_tables(
    ddls: Sequence[Ddl],
    seen: Mapping[Name, Sequence[SeenColumns]],
    overridden: Callable[[Name, str], bool] = lambda *_: False,
    loaded: Mapping[Name, int] = MappingProxyType({}),
    taken: Callable[[Name], bool] = lambda _: True,
    changes_key_text: Callable[[MySQLType], bool] = lambda _: False,
    *,
    of_tidb: bool = False,
    keyed_by_messages: Collection[Name] = (),
) -> dict[Name, Evolution]:
    """Return the evolution of each table that statements or rows name.

    Args:
        ddls: the statements, in order.
        seen: for each table, the columns that its rows and its history show.
        overridden: returns whether the feeds file gives the type of a column.
        loaded: the loaded tables and the positions of their loads: a dump has the rows that an earlier RENAME moved.
        taken: returns whether the feed takes a table.
        changes_key_text: as `Protocol.changes_key_text`.
        of_tidb: whether the source is TiDB.
        keyed_by_messages: the tables whose rows have a key by their messages, whatever statements say.
    """
    database = _EvolvingTables(
        lambda name: EvolvingTable(
            name, overridden, changes_key_text, of_tidb=of_tidb, is_keyed_by_messages=name in keyed_by_messages
        ),
        loaded,
        taken,
    )
    end = (1 << 63) - 1
    waiting = {name: sorted(each, key=lambda s: end if s.since is None else s.since) for name, each in seen.items()}

    def show(until: int | None) -> None:
        """Show the tables the columns of rows below a commit_ts; None: of all rows."""
        for name, each in waiting.items():
            while each and (until is None or (each[0].since is not None and each[0].since < until)):
                database.table(name).show(each.pop(0).columns)

    for ddl in ddls:
        at = ddl.spot.commit_ts
        show(at)
        database.apply(
            ddl, {name: [s.columns for s in each if s.since == at] for name, each in waiting.items() if each}
        )
    show(None)
    evolutions = {name: table.evolution for name, table in database.tables.items()}
    _mark_later_statements(evolutions)
    return evolutions


def _mark_later_statements(tables: Mapping[Name, Evolution]) -> None:
    """Set `Arrive.next` and `Arrive.origin_is_replaced`, which depend on later statements about the origin."""
    replaced = {
        (name, step.spot.commit_ts) for name, table in tables.items() for step in table.steps if step.replaces_table
    }
    renamed = {
        name: [step.spot.commit_ts for step in table.steps if Close("rename") in step.ops]
        for name, table in tables.items()
    }

    def mark(op: StepOp, at: int) -> StepOp:
        if not isinstance(op, Arrive):
            return op
        later = min((ts for ts in renamed.get(op.origin, ()) if ts > at), default=None)
        return replace(op, next=later, origin_is_replaced=(op.origin, at) in replaced)

    for table in tables.values():
        for n, step in enumerate(table.steps):
            table.steps[n] = replace(step, ops=tuple(mark(op, step.spot.commit_ts) for op in step.ops))


class _EvolvingTables:
    """The tables of a feed as they are after some of the statements."""

    def __init__(
        self, make: Callable[[Name], EvolvingTable], loaded: Mapping[Name, int], taken: Callable[[Name], bool]
    ) -> None:
        self.tables: dict[Name, EvolvingTable] = {}
        self._make, self._loaded, self._taken = make, loaded, taken

    def table(self, name: Name) -> EvolvingTable:
        """Return the table of a name; it has no columns if neither statements nor rows have named it before."""
        if name not in self.tables:
            self.tables[name] = self._make(name)
        return self.tables[name]

    def apply(self, ddl: Ddl, seen_at: Mapping[Name, Sequence[NamedTypes]]) -> None:
        """Apply one statement.

        Args:
            ddl: the statement.
            seen_at: for each table, the columns that rows of the statement's commit_ts show, before or after it.
        """
        moving = {*ddl.moved, *ddl.moved.values()}
        before = {name: self.tables[name].copy_state() for name in moving if name in self.tables}
        in_dropped_database = {name for name in self.tables if name[0] == ddl.database}
        for name in sorted(ddl.tables if ddl.database is None else in_dropped_database):
            table = self.table(name)
            if ddl.kind in EMPTYING_KINDS or name in ddl.moved.values():
                table.has_all_rows = True
            ops = _remove_rows(table, ddl)
            if ops is not None:
                table.add_step(ddl, ops)
            if name in ddl.moved and ddl.spot.commit_ts > self._loaded.get(name, -1):
                self._move_rows(table, ddl, before)
        if ddl.kind is None and not ddl.shapes:
            for name in sorted(ddl.possible_tables):
                self.table(name).add_step(ddl, [Flag("the statement could not be read")])
        for name, actions in self._list_alterations(ddl, seen_at):
            self.table(name).alter(ddl, actions)

    def _move_rows(self, table: EvolvingTable, ddl: Ddl, before: Mapping[Name, TableBefore]) -> None:
        """Bring the rows of another table into a table, with a RENAME that gives the other one this table's name.

        Args:
            table: the table.
            ddl: the statement.
            before: the tables that the statement renames, and those whose names they get, as they were before it.
        """
        name, origin = table.evolution.name, ddl.moved[table.evolution.name]
        origin_before, name_before = before.get(origin, TableBefore()), before.get(name, TableBefore())
        is_taken, is_complete = self._taken(origin), origin_before.has_all_rows
        replaced = table.replaced_by(ddl) if is_taken else None
        columns = table.take_columns(origin_before, ddl, replaced)
        if origin_before.is_keyed_by_row:
            table.is_keyed_by_row = True
        table.has_all_rows = is_taken and is_complete
        of_both = replaced and replace(replaced, columns=replaced.columns & columns.keys())
        arrive = Arrive(origin, columns, self._last_rename(origin, ddl), is_taken, is_complete, of_both)
        # Of a table that the feed does not take no row is known. Else the earlier rows of this name are removed, and it
        # is not known which rows replace them.
        is_unseen = not is_taken or not (is_complete or origin_before.was_seen)
        why = f"the rows of {'.'.join(origin)} came in, and {_NO_ROWS[is_taken]}: load the table again"
        flags = [Flag(why, reload=True)] if not is_taken or (is_unseen and name_before.was_seen) else []
        at_once = [op for s in table.evolution.steps if s.spot.commit_ts == ddl.spot.commit_ts for op in s.ops]
        if any(isinstance(op, Arrive) and op.origin == origin for op in at_once):
            why = (
                f"two RENAMEs of {'.'.join(origin)} to this name have one commit_ts: which rows each moved is not known"
            )
            flags.append(Flag(why, reload=True))
        table.add_step(ddl, [arrive, *flags])

    def _last_rename(self, name: Name, ddl: Ddl) -> int:
        """Return the commit_ts of the last statement before `ddl` that renamed a table of this name; -1 without one."""
        steps = [s for s in self.tables[name].evolution.steps if s.ddl is not ddl] if name in self.tables else []
        return max((s.spot.commit_ts for s in steps for op in s.ops if op == Close("rename")), default=-1)

    def _list_alterations(
        self, ddl: Ddl, seen_at: Mapping[Name, Sequence[NamedTypes]]
    ) -> list[tuple[Name, tuple[Action, ...]]]:
        """Return what the statement does to the columns of tables, under the tables' names after the statement.

        Creates and recovers tables, which need no actions on columns, unless a snapshot describes an existing table.
        """
        if ddl.kind == "create_table":
            ((name, actions),) = ddl.changes
            from_shape = tuple(AddColumn(c) for c in ddl.shapes.get(name, ()))
            has_columns = any(isinstance(a, AddColumn) for a in actions)
            is_of_snapshot = ddl.spot.place is not None and ddl.spot.place.is_of_snapshot
            lost = self.table(name).compare_description(ddl.shapes.get(name, ())) if is_of_snapshot else ()
            self.table(name).create(actions if has_columns else from_shape, ddl)
            return [(name, lost)]
        if ddl.kind is None:
            return [(name, self.table(name).compare_columns(shape)) for name, shape in ddl.shapes.items()]
        if ddl.kind == "recover_table":
            for name, _ in ddl.changes:
                self.table(name).recover(ddl)
            return []
        renamed = {old: new for new, old in ddl.moved.items()}
        alterations = [(renamed.get(name, name), actions) for name, actions in ddl.changes if actions]
        return [
            (name, tuple(a for a in actions if self.table(name).is_changed_by(a, seen_at.get(name, ()))))
            for name, actions in alterations
        ]


def _remove_rows(table: EvolvingTable, ddl: Ddl) -> list[StepOp] | None:
    """Remove all rows of the table if the statement does so; return the operations on open rows, None if it does not."""
    if table.evolution.name in ddl.moved.values():
        return table.remove(ddl, "rename")
    if ddl.kind in ("drop_table", "drop_database") or ddl.replaces:
        return table.drop(ddl)
    if ddl.kind == "truncate_table":
        return [Close("truncate")]
    return None
