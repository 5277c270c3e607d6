"""How the columns and the rows of history tables go with DDL: from statements to steps, without any rows.

A history table outlives what its source table is at any time: columns are renamed, dropped and added again, the table is
dropped and made anew with another shape, another takes its name. What the history keeps is a column for each of these that
must not be mixed, a *slot*; a *step* is what one statement does to the table: which slot each name of the source stands for
from then on, and what becomes of the rows that are open then.

The rules are those of the design, "Schema evolution"; everything in here is a pure function of statements and layouts.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pyspark.sql.types import BinaryType, StringType

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
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl, Spot
from cdc_assets.lakehouse.history import history_name
from cdc_assets.mysql_types.casting import spark_type, widen
from cdc_assets.mysql_types.reference import TYPES, Family
from cdc_assets.mysql_types.types import INTEGERS, MySQLType, parsed

# Where a column begins that no statement made: the first part of its slot's id.
SEEN = "seen"


@dataclass(eq=False)
class Slot:
    """A column of the history table.

    Attributes:
        id: of where it began; the same in each run.
        name: in the source; of a column that is gone: as it was called last.
        type: its newest type; None: unknown.
        virtual: whether the source sends no values of it.
        added: whether an ALTER TABLE made it, so that the history has it before any row does.
        gone: the commit_ts of the statement since which the source has it no more.
        aside: whether its name has passed to another.
    """

    id: str
    name: str
    type: MySQLType | None
    virtual: bool = False
    added: bool = False
    gone: int | None = None
    aside: bool = False

    @property
    def seen(self) -> bool:
        """Whether no statement made it."""
        return self.id.startswith(f"{SEEN}:")

    @property
    def column(self) -> str:
        """Its name in the history table."""
        own = history_name(self.name)
        return f"{own}__until_{self.gone}" if self.aside else own


@dataclass(frozen=True)
class Close:
    """All rows end here."""

    reason: str


@dataclass(frozen=True)
class Fill:
    """Open rows get a value: a default's text; None: only the source knows it."""

    slot: Slot
    type: MySQLType
    text: str | None


@dataclass(frozen=True)
class Convert:
    """Open rows get in one column what MySQL makes of another's value."""

    slot: Slot
    origin: Slot
    old: MySQLType
    new: MySQLType


@dataclass(frozen=True)
class Forget:
    """Rows after this have no value of a column; those before keep theirs."""

    slot: Slot


@dataclass(frozen=True)
class Replaced:
    """A table of which another takes the name at the commit_ts at which it goes: no row of the source sees the name free.

    Attributes:
        commit_ts: that position.
        era: of the rows that are open when the table goes.
        reason: with which they end: `Close.reason`.
        columns: those that both tables have.
    """

    commit_ts: int
    era: int
    reason: str
    columns: frozenset[Slot]


@dataclass(frozen=True)
class Arrive:
    """Rows that were open in another table come in.

    Attributes:
        origin: that table.
        columns: for each of this table's columns that one's.
        since: the commit_ts of the statement before with which that one's rows went elsewhere; -1: there was none.
        is_taken: whether the feed takes that table.
        is_known: whether a statement before, with which that table was empty, tells that all of its rows are known.
        replaced: the table whose name the rows come to; None: at that position there was none.
        origin_is_replaced: whether at the same position a third table takes the name of the origin: versions of the origin
            may go on there, though their rows come here.
    """

    origin: Name
    columns: Mapping[Slot, Slot]
    since: int
    is_taken: bool = True
    is_known: bool = False
    replaced: Replaced | None = None
    origin_is_replaced: bool = False


@dataclass(frozen=True)
class Recover:
    """Rows that ended with a DROP TABLE come back: its commit_ts."""

    dropped: int


@dataclass(frozen=True)
class Rekey:
    """Rows that ended with this statement go on under another key.

    Attributes:
        columns: they make the key; none: the whole row does.
        by_row: whether the whole row was the key before; None: of some it was.
    """

    columns: tuple[Slot, ...]
    by_row: bool | None


@dataclass(frozen=True)
class Flag:
    """What the statement does to rows is not known: why, and whether the table must be loaded anew."""

    why: str
    reload: bool = False


Op = Close | Fill | Convert | Forget | Arrive | Recover | Rekey | Flag


@dataclass(frozen=True)
class Step:
    """What one statement does to one table.

    Attributes:
        ddl: the statement.
        live: from then on: the source's columns, in lower case -> their slots.
        ops: what becomes of the rows that are open.
        by_row: whether from then on the whole row, as the history has it, is the key: the table has lost its own.
    """

    ddl: Ddl
    live: Mapping[str, Slot]
    ops: tuple[Op, ...]
    by_row: bool = False

    @property
    def spot(self) -> Spot:
        """Where the statement stands."""
        return self.ddl.spot

    @property
    def replaces_table(self) -> bool:
        """Whether rows come in that may be equal to those that the table had until then."""
        return any(isinstance(op, Arrive) and op.replaced is not None for op in self.ops)


@dataclass
class Evolution:
    """A table's steps.

    An *era* is a number of steps: rows of era n came after the n-th step, and before the next.
    """

    name: Name
    base: dict[str, Slot] = field(default_factory=dict)  # before the first step
    steps: list[Step] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)

    def live(self, era: int) -> Mapping[str, Slot]:
        """The source's columns in an era, in lower case -> their slots."""
        return self.steps[era - 1].live if era else self.base

    def by_row(self, era: int) -> bool:
        """Whether the whole row, as the history has it, is the key in an era."""
        return era > 0 and self.steps[era - 1].by_row

    def slot(self, era: int, name: str) -> Slot | None:
        """Which column of the history a name stands for in rows of an era.

        A statement may be stamped a little later, or a little earlier, than the rows beside it: a name that the era does not
        have is that of the next one that has it, else of the last.
        """
        lower = name.lower()
        for each in (*range(era, len(self.steps) + 1), *range(era - 1, -1, -1)):
            if (found := self.live(each).get(lower)) is not None:
                return found
        return None

    def between(self, first: int, last: int) -> tuple[int, int]:
        """The eras that rows from one commit_ts to another may be of."""
        times = [step.spot.commit_ts for step in self.steps]
        return bisect_left(times, first), bisect_right(times, last)

    @property
    def placed(self) -> bool:
        """Whether statements tell their place in the binlog: their clock may be that of the connector."""
        return any(step.spot.place is not None for step in self.steps)

    def span(self, era: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The places (`Spot.order`) between which an era's rows lie."""
        begin = self.steps[era - 1].spot.order if era else (-1, -1)
        return begin, self.steps[era].spot.order if era < len(self.steps) else ((1 << 63) - 1, 0)


@dataclass(frozen=True)
class Seen:
    """Columns that a table has, as rows or its history show: they may be in no statement.

    Attributes:
        since: the commit_ts from which on; None: after all statements.
        columns: name and type.
    """

    since: int | None
    columns: Sequence[tuple[str, MySQLType | None]]


_Columns = Sequence[tuple[str, MySQLType | None]]


def evolve(
    ddls: Sequence[Ddl],
    seen: Mapping[Name, Sequence[Seen]],
    overridden: Callable[[Name, str], bool] = lambda *_: False,
    loaded: Mapping[Name, int] = MappingProxyType({}),
    taken: Callable[[Name], bool] = lambda _: True,
) -> dict[Name, Evolution]:
    """The evolution of each table that statements or rows name.

    Args:
        ddls: the statements, in order.
        seen: what is seen of each table.
        overridden: whether the feeds file says what type a column has.
        loaded: the tables that were loaded, and the positions at which they were: what was renamed into one before is in
            its dump.
        taken: whether the feed takes a table.
    """
    walk = _Walk(overridden, loaded, taken)
    end = (1 << 63) - 1
    waiting = {name: sorted(each, key=lambda s: end if s.since is None else s.since) for name, each in seen.items()}

    def show(until: int | None) -> None:
        for name, each in waiting.items():
            while each and (until is None or (each[0].since is not None and each[0].since < until)):
                walk.show(name, each.pop(0).columns)

    for ddl in ddls:
        at = ddl.spot.commit_ts
        show(at)
        walk.apply(ddl, {name: [s.columns for s in each if s.since == at] for name, each in waiting.items() if each})
    show(None)
    _mark_replaced_origins(walk.tables)
    return walk.tables


def _mark_replaced_origins(tables: Mapping[Name, Evolution]) -> None:
    """Set `Arrive.origin_is_replaced`; a later statement of the same position may be the one that replaces the origin."""
    replaced = {
        (name, step.spot.commit_ts) for name, table in tables.items() for step in table.steps if step.replaces_table
    }
    for table in tables.values():
        for n, step in enumerate(table.steps):
            ops = tuple(
                replace(op, origin_is_replaced=True)
                if isinstance(op, Arrive) and (op.origin, step.spot.commit_ts) in replaced
                else op
                for op in step.ops
            )
            table.steps[n] = replace(step, ops=ops)


class _Walk:
    """The tables as they are after some of the statements."""

    def __init__(
        self, overridden: Callable[[Name, str], bool], loaded: Mapping[Name, int], taken: Callable[[Name], bool]
    ) -> None:
        self.tables: dict[Name, Evolution] = {}
        self._now: dict[Name, dict[str, Slot]] = {}
        self._kept: dict[Name, list[Slot]] = {}  # what the table of this name had, and only its history still has
        self._dropped: dict[Name, tuple[int, dict[str, Slot]]] = {}
        self._emptied: dict[Name, Replaced] = {}  # tables that have gone: as they were, if another takes the name
        self._keys: dict[Name, tuple[Slot, ...]] = {}
        self._by_row: set[Name] = set()  # tables that have lost their key
        self._left: set[Name] = set()  # tables of which rows stay under a key of before
        self._met: set[Name] = set()  # tables of which rows, or the history, have shown columns
        self._beside: Mapping[Name, Sequence[_Columns]] = {}
        self._known_rows: set[Name] = set()  # tables that were empty with a statement: all of their rows are known
        self._overridden, self._loaded, self._taken = overridden, loaded, taken

    def show(self, name: Name, columns: _Columns) -> None:
        """The table has these columns, whatever statements say."""
        self._begin(name)
        if columns:
            self._met.add(name)
        table, now = self.tables[name], self._now[name]
        for column, mysql_type in columns:
            lower = column.lower()
            if lower in now or any(s.name.lower() == lower and not s.aside for s in table.slots):
                continue
            now[lower] = self._new(name, SEEN, column, mysql_type)
            if not table.steps:
                table.base[lower] = now[lower]
            else:
                last = table.steps[-1]
                table.steps[-1] = replace(last, live=MappingProxyType(dict(now)))

    def apply(self, ddl: Ddl, beside: Mapping[Name, Sequence[_Columns]]) -> None:
        """Go on by one statement; `beside`: the columns that rows of its commit_ts show, before or after it."""
        self._beside = beside
        # Beside each column as it is then: another that takes its name may change its type.
        before = {
            name: {lower: (slot, replace(slot)) for lower, slot in live.items()} for name, live in self._now.items()
        }
        kept = {name: list(slots) for name, slots in self._kept.items()}
        by_row, known_rows, met = set(self._by_row), set(self._known_rows), set(self._met)
        for name in sorted(self._touched(ddl)):
            self._begin(name)
            if ddl.kind in _EMPTYING or name in ddl.moved.values():
                self._known_rows.add(name)
            ops = self._leave(name, ddl)
            if ops is not None:
                self._step(name, ddl, ops)
            origin = ddl.moved.get(name)
            if origin is not None and ddl.spot.commit_ts > self._loaded.get(name, -1):
                is_taken, is_known = self._taken(origin), origin in known_rows
                replaced = self._replaced(name, ddl) if is_taken else None
                taken = self._arrive(name, before.get(origin, {}), kept.get(origin, []), ddl, replaced)
                if origin in by_row:
                    self._by_row.add(name)
                (self._known_rows.add if is_taken and is_known else self._known_rows.discard)(name)
                of_both = replaced and replace(replaced, columns=replaced.columns & taken.keys())
                arrive = Arrive(origin, taken, self._left_before(origin, ddl), is_taken, is_known, of_both)
                # What the table had is gone, and of what it has now nothing is known.
                unseen = not is_taken or not (is_known or origin in met or before.get(origin))
                why = f"the rows of {'.'.join(origin)} came in, and {_NO_ROWS[is_taken]}: load the table anew"
                lost = [Flag(why, reload=True)] if unseen and (name in met or before.get(name)) else []
                self._step(name, ddl, [arrive, *lost])
        if ddl.kind is None and not ddl.shapes:
            for name in sorted(ddl.maybe):
                self._step(name, ddl, [Flag("the statement could not be read")])
        for name, actions in self._altered(ddl):
            ops = [op for action in _at_once(actions) for op in self._alter(name, action, ddl)]
            ops = [*self._rekeyed(name, ddl), *ops]
            # Where the clock says nothing, rows are told apart by each statement that tells the table's shape.
            placed = ddl.spot.place is not None and name in ddl.shapes
            if placed or ops or dict(self.tables[name].live(len(self.tables[name].steps))) != self._now[name]:
                self._step(name, ddl, ops)

    def _left_before(self, name: Name, ddl: Ddl) -> int:
        steps = [s for s in self.tables[name].steps if s.ddl is not ddl] if name in self.tables else []
        return max((s.spot.commit_ts for s in steps for op in s.ops if op == Close("rename")), default=-1)

    def _rekeyed(self, name: Name, ddl: Ddl) -> list[Op]:
        """What a change of the key does to open rows: they end, and go on under the new one where their columns tell it."""
        if name not in ddl.keys:
            return self._rekeyed_unseen(name, ddl)
        before, now = self._keys.get(name), self._now[name]
        self._keys[name] = after = tuple(now[c.lower()] for c in ddl.keys[name] if c.lower() in now)
        if before is None or before == after or ddl.kind != "alter_table":
            return []
        return self._under_key(name, ddl, after, None if name in self._left else not before)

    def _rekeyed_unseen(self, name: Name, ddl: Ddl) -> list[Op]:
        """As `_rekeyed`, of a table of which no statement or message has told the shape."""
        actions = [a for of, each in ddl.changes if of == name for a in each]
        added = [a.columns for a in actions if isinstance(a, AddKey) and a.kind == "primary"]
        if added and len(added[0]) == 1:
            return self._under_key(name, ddl, (self._known(name, added[0][0]),), None)
        if added or any(isinstance(a, DropKey) and a.name.upper() == "PRIMARY" for a in actions):
            self._left.add(name)
            return [Flag("open rows stay under the key of before: the table's CREATE has not been seen", reload=True)]
        return []

    def _under_key(self, name: Name, ddl: Ddl, after: tuple[Slot, ...], by_row: bool | None) -> list[Op]:  # noqa: FBT001
        """Rows end, and go on under a key of these columns; `by_row`: as `Rekey` has it."""
        self._by_row.discard(name)
        if not all(s.type and s.type.base in _KEY_TYPES and s.id.split(":")[0] != ddl.id for s in after):
            self._left.add(name)
            return [Flag("open rows stay under the key of before: their columns do not tell the new one", reload=True)]
        self._step(name, ddl, [Close("ddl")])
        self._left.discard(name)
        if not after:
            self._by_row.add(name)
        return [Rekey(after, by_row)]

    def _touched(self, ddl: Ddl) -> set[Name]:
        if ddl.database is not None:
            return {name for name in self.tables if name[0] == ddl.database}
        return ddl.tables

    def _begin(self, name: Name) -> None:
        if name not in self.tables:
            self.tables[name], self._now[name], self._kept[name] = Evolution(name), {}, []

    def _step(self, name: Name, ddl: Ddl, ops: Sequence[Op]) -> None:
        live = MappingProxyType(dict(self._now[name]))
        self.tables[name].steps.append(Step(ddl, live, tuple(ops), name in self._by_row))

    def _new(self, name: Name, began: str, column: str, mysql_type: MySQLType | None) -> Slot:
        key = f"{began}:{column.lower()}"
        while any(s.id == key for s in self.tables[name].slots):
            key += "'"
        slot = Slot(key, column, mysql_type)
        self.tables[name].slots.append(slot)
        return slot

    def _leave(self, name: Name, ddl: Ddl) -> list[Op] | None:
        """What ends all rows of the table; None when the statement does not."""
        if name in ddl.moved.values():
            return self._empty(name, ddl, "rename")
        if ddl.kind in ("drop_table", "drop_database") or ddl.replaces:
            self._dropped[name] = ddl.spot.commit_ts, dict(self._now[name])
            return self._empty(name, ddl, "drop")
        if ddl.kind == "truncate_table":
            return [Close("truncate")]
        return None

    def _empty(self, name: Name, ddl: Ddl, reason: str) -> list[Op]:
        era, columns = len(self.tables[name].steps), frozenset(self._now[name].values())
        self._emptied[name] = Replaced(ddl.spot.commit_ts, era, reason, columns)
        for slot in self._now[name].values():
            slot.gone = ddl.spot.commit_ts
        self._now[name], self._kept[name] = {}, []
        self._keys.pop(name, None)
        self._by_row.discard(name)
        self._left.discard(name)
        return [Close(reason)]

    def _replaced(self, name: Name, ddl: Ddl) -> Replaced | None:
        """The table that had a name until the position at which another takes it; None: there was none."""
        found = self._emptied.get(name)
        return found if found is not None and found.commit_ts == ddl.spot.commit_ts else None

    def _arrive(
        self,
        name: Name,
        columns: Mapping[str, tuple[Slot, Slot]],
        kept: Sequence[Slot],
        ddl: Ddl,
        replaced: Replaced | None,
    ) -> dict[Slot, Slot]:
        """Another table takes this name, with its columns, and with those that only its history still has.

        `columns`: each, and as it was before the statement.
        """
        taken = {}
        for lower, (slot, then) in columns.items():
            if replaced is not None and (old := self._standing(name, lower)) not in replaced.columns:
                # A version that goes on may have a value of a column that was dropped before.
                self._put_aside(old, ddl)
            mine = self._take(name, lower, then.name, then.type, ddl)
            mine.virtual = then.virtual
            taken[mine] = slot
        for slot in kept:
            standing = self._standing(name, slot.name.lower())
            mine = self._new(name, ddl.id, slot.name, slot.type)
            mine.gone, mine.aside = slot.gone, slot.aside or standing is not None
            self._kept[name].append(mine)
            taken[mine] = slot
        return taken

    def _take(self, name: Name, lower: str, column: str, mysql_type: MySQLType | None, ddl: Ddl) -> Slot:
        """A column of a table that has come to this name: that of the table before, where its type is the same or grows."""
        old = self._standing(name, lower)
        if old is not None and (old in self._now[name].values() or _fits(old.type, mysql_type)):
            slot = old
            slot.gone, slot.name, slot.type = None, column, mysql_type or slot.type
        else:
            self._put_aside(old, ddl)
            slot = self._new(name, ddl.id, column, mysql_type)
        self._now[name][lower] = slot
        return slot

    def _standing(self, name: Name, lower: str) -> Slot | None:
        """The column of the history table that has a name now, whether the source still has it or not."""
        found = self._now[name].get(lower)
        mine = [s for s in self.tables[name].slots if s.name.lower() == lower and not s.aside]
        return found or (mine[-1] if mine else None)

    def _put_aside(self, slot: Slot | None, ddl: Ddl) -> None:
        if slot is not None:
            slot.aside = True
            slot.gone = ddl.spot.commit_ts if slot.gone is None else slot.gone

    def _altered(self, ddl: Ddl) -> list[tuple[Name, tuple[Action, ...]]]:
        """What happens to columns, under the name that the table has after the statement."""
        renamed = {old: new for new, old in ddl.moved.items()}
        if ddl.kind == "create_table":
            ((name, actions),) = ddl.changes
            told = tuple(AddColumn(c) for c in ddl.shapes.get(name, ()))
            self._create(name, actions if any(isinstance(a, AddColumn) for a in actions) else told, ddl)
            return [(name, ())]
        if ddl.kind is None:
            return [(name, self._difference(name, shape)) for name, shape in ddl.shapes.items()]
        if ddl.kind == "recover_table":
            for name, _ in ddl.changes:
                self._recover(name, ddl)
            return []
        altered = [(renamed.get(name, name), actions) for name, actions in ddl.changes if actions]
        return [(name, tuple(a for a in actions if self._happens(name, a))) for name, actions in altered]

    def _happens(self, name: Name, action: Action) -> bool:
        """Whether an action changes anything, where IF [NOT] EXISTS leaves it to what the table has."""
        now = self._now[name]
        if isinstance(action, DropColumn) and action.if_exists:
            return action.name.lower() in now
        if isinstance(action, ModifyColumn | RenameColumn) and action.if_exists:
            return action.old_name.lower() in now
        if isinstance(action, AddColumn) and action.only_if_missing:
            lower = action.column.name.lower()
            # Rows that lack the column show that the statement has added it.
            beside = [{c.lower() for c, _ in columns} for columns in self._beside.get(name, ())]
            if name in self._met or not beside or not all(lower in columns for columns in beside):
                return lower not in now
            return False
        return True

    def _create(self, name: Name, actions: Sequence[Action], ddl: Ddl) -> None:
        """A table comes to be; one that is there already is described again, or the statement has IF NOT EXISTS."""
        there = dict(self._now[name])
        for action in actions:
            if not isinstance(action, AddColumn):
                continue
            column, lower = action.column, action.column.name.lower()
            mysql_type = parsed(column.type)
            if not there:
                self._take(name, lower, column.name, mysql_type, ddl).virtual = column.virtual
            elif lower in there and there[lower].type is None:
                there[lower].type = mysql_type

    def _recover(self, name: Name, ddl: Ddl) -> None:
        if name in self._dropped:
            dropped, columns = self._dropped[name]
            for lower, slot in columns.items():
                self._take(name, lower, slot.name, slot.type, ddl)
            self._step(name, ddl, [Recover(dropped)])

    def _difference(self, name: Name, shape: Sequence[Column]) -> tuple[Action, ...]:
        """What a statement that cannot be read has done, by the table that its message carries."""
        self._begin(name)
        now, there = self._now[name], {c.name.lower(): c for c in shape}
        added = [AddColumn(c) for lower, c in there.items() if lower not in now]
        gone = [DropColumn(slot.name) for lower, slot in now.items() if lower not in there]
        changed = [
            ModifyColumn(c.name, c)
            for lower, c in there.items()
            if lower in now and now[lower].type is not None and now[lower].type != parsed(c.type)
        ]
        return (*added, *gone, *changed)

    def _alter(self, name: Name, action: "Action | _Renames", ddl: Ddl) -> list[Op]:
        if isinstance(action, AddColumn):
            return self._add(name, action, ddl)
        if isinstance(action, DropColumn):
            return self._drop(name, action, ddl)
        if isinstance(action, ModifyColumn):
            return self._modify(name, action, ddl)
        if isinstance(action, _Renames):
            self._rename(name, action, ddl)
        if isinstance(action, MoveRows):
            return [Flag(f"{action.how}: rows come and go, and no row event tells of them", reload=True)]
        return []

    def _known(self, name: Name, column: str) -> Slot:
        """A column that a statement names: the table has it, even if nothing told so before."""
        lower = column.lower()
        if lower not in self._now[name]:
            old = self._standing(name, lower)
            self._now[name][lower] = old or self._new(name, SEEN, column, None)
            self._now[name][lower].gone = None
        return self._now[name][lower]

    def _add(self, name: Name, action: AddColumn, ddl: Ddl) -> list[Op]:
        column, lower = action.column, action.column.name.lower()
        mysql_type = parsed(column.type)
        slot = self._now[name].get(lower)
        if slot is not None and not slot.seen:
            return []  # IF NOT EXISTS
        if slot is None:
            self._put_aside(self._standing(name, lower), ddl)
            slot = self._now[name][lower] = self._new(name, ddl.id, column.name, mysql_type)
        # Else rows of after the statement are stamped before it.
        slot.type, slot.virtual, slot.added = mysql_type or slot.type, column.virtual, True
        if mysql_type is None:
            filled = (column.computed_default or not column.nullable) and not column.generated
            why = f"{slot.column} is NULL in rows of before: what they got as {column.type} is not known"
            return [Flag(why)] if filled else []
        if not column.is_filled:
            return []
        return [Fill(slot, mysql_type, column.fill)]

    def _drop(self, name: Name, action: DropColumn, ddl: Ddl) -> list[Op]:
        slot = self._known(name, action.name)
        del self._now[name][action.name.lower()]
        slot.gone = ddl.spot.commit_ts
        self._kept[name].append(slot)
        return [Forget(slot)]

    def _rename(self, name: Name, action: "_Renames", ddl: Ddl) -> None:
        slots = {new: self._known(name, old) for old, new in action.names}
        for old, _ in action.names:
            self._now[name].pop(old.lower(), None)
        for new in slots:
            standing = self._standing(name, new.lower())
            if standing is not None and standing not in slots.values():
                self._put_aside(standing, ddl)
        for new, slot in slots.items():
            slot.name = new
            self._now[name][new.lower()] = slot

    def _modify(self, name: Name, action: ModifyColumn, ddl: Ddl) -> list[Op]:
        """A column of another type; its name, where that changes too, has been changed already."""
        column = action.column
        old, new = self._known(name, column.name), parsed(column.type)
        was, old.virtual = old.type, column.virtual
        if new is None or was is None or was == new or self._overridden(name, column.name):
            old.type = new or was
            return []
        if _fits(was, new) and _keeps_values(was, new):
            old.type = new
            return []
        # Rows that are open before and after have a value of each.
        self._put_aside(old, ddl)
        self._kept[name].append(old)
        slot = self._now[name][column.name.lower()] = self._new(name, ddl.id, column.name, new)
        return [Convert(slot, old, was, new), Forget(old)]


# With these a table of the source is empty.
_EMPTYING = ("create_table", "drop_table", "drop_database", "truncate_table")
# By whether the feed takes the table.
_NO_ROWS = {True: "none of them has come through the feed", False: "the feed does not take that table (`tables:`)"}


@dataclass(frozen=True)
class _Renames:
    """Columns that one statement renames, all at once: they may swap their names."""

    names: tuple[tuple[str, str], ...]


def _at_once(actions: Sequence[Action]) -> list[Any]:
    """The actions of one statement in an order in which they can be done one after the other.

    All names in it are those of before the statement: first what is renamed, then the rest under the new names.
    """
    renames = [(a.old_name, a.new_name) for a in actions if isinstance(a, RenameColumn)]
    renames += [
        (a.old_name, a.column.name)
        for a in actions
        if isinstance(a, ModifyColumn) and a.old_name.lower() != a.column.name.lower()
    ]
    dropped = [a for a in actions if isinstance(a, DropColumn)]
    others = [a for a in actions if not isinstance(a, DropColumn | RenameColumn)]
    return [*dropped, *([_Renames(tuple(renames))] if renames else []), *others]


def _fits(old: MySQLType | None, new: MySQLType | None) -> bool:
    """Whether values of the new type go into the history column of the old one, which may grow."""
    if old is None or new is None:
        return True
    if "decimal" in (old.base, new.base) and (old.base, old.length and 1) != (new.base, new.length and 1):
        return old.base == new.base  # of a decimal without digits only the values tell the type
    before, after = spark_type(old), spark_type(new)
    return before == after or widen(before, after) == after


def _keeps_values(old: MySQLType, new: MySQLType) -> bool:
    """Whether values stay as the history has them when the column, which need not be another, gets the new type."""
    before, after = TYPES[old.base].family, TYPES[new.base].family
    if before is after is Family.SET:
        return _in_order(old.labels or (), new.labels or ())
    if before in _LABELS or after in _LABELS:
        return after is Family.TEXT or before is after is Family.ENUM
    if before in _FRACTIONS:
        return before is after and (new.length or 0) >= (old.length or 0)
    return before is after or spark_type(old) != spark_type(new) or spark_type(new) not in (StringType(), BinaryType())


def _in_order(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether members of a set stand in the same order as before."""
    places = [new.index(label) for label in old if label in new]
    return places == sorted(places)


# Types whose values make a key's text as they stand in the history.
_KEY_TYPES = INTEGERS | {"char", "varchar"}
_LABELS = {Family.ENUM, Family.SET}
# Of these a shorter type rounds.
_FRACTIONS = {Family.DATETIME, Family.TIMESTAMP, Family.TIME}
