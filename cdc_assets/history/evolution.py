"""The evolution of a history table: what each DDL statement does to its columns and rows.

A history table outlives the forms of its source table: columns are renamed, or dropped and added again; the table is dropped
and created with other columns; another table takes its name. The history keeps one column, a *slot*, for each column of the
source whose values must not be mixed with those of another. A *step* is what one statement does to the table: which slot
each name of the source stands for from then on, and what happens to the rows that are open.

`schema_evolution` makes these values from statements. docs/schema-evolution.md has the rules.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl, Spot
from cdc_assets.lakehouse.history import history_name
from cdc_assets.mysql_types.types import MySQLType

# The first part of the id of a slot that no statement created: rows, or the history table, have shown the column.
SEEN = "seen"
# After a statement of one of these kinds the source's table is empty.
EMPTYING_KINDS = ("create_table", "drop_table", "drop_database", "truncate_table")


@dataclass(eq=False)
class Slot:
    """A column of the history table.

    Attributes:
        id: the statement that created the column, or `SEEN`, and the column's first name; the same in each run.
        name: the column's name in the source; its last name if the source no longer has the column.
        type: its newest type; None if it is unknown.
        virtual: whether it is a virtual generated column, of which the source sends no values.
        expression: the expression of a generated column, if a statement has shown it.
        not_null: whether a statement has declared it NOT NULL.
        added: whether an ALTER TABLE created the column, so that the history has it before any row does.
        removed_at: the commit_ts of the statement that removed the column from the source's table.
        is_put_aside: whether another column now has its name.
        aside_number: which of the columns put aside with one name and one `removed_at` it is, from 1 on: statements of one
            second may have one commit_ts.
    """

    id: str
    name: str
    type: MySQLType | None
    virtual: bool = False
    expression: str | None = None
    not_null: bool = False
    added: bool = False
    removed_at: int | None = None
    is_put_aside: bool = False
    aside_number: int = 1

    @property
    def column(self) -> str:
        """The column's name in the history table."""
        own = history_name(self.name)
        if not self.is_put_aside:
            return own
        return f"{own}__until_{self.removed_at}" + (f"_{self.aside_number}" if self.aside_number > 1 else "")


@dataclass(frozen=True)
class Close:
    """Close all open versions; `reason` is their `_cdc_closed_by`."""

    reason: str


@dataclass(frozen=True)
class Fill:
    """Set a column of open rows to its default.

    Attributes:
        slot: the column.
        type: the column's type; None: MySQL has no such type, so there is no text either.
        text: the default's text; None if only the source knows the value: then open rows get NULL.
        why: why the value is not known, if it is not.
    """

    slot: Slot
    type: MySQLType | None
    text: str | None
    why: str = "only the source knows their values"


@dataclass(frozen=True)
class Convert:
    """Set a column of open rows to MySQL's conversion of a value.

    Attributes:
        slot: the column.
        origin: the column that has the value: another one, or `slot` itself, if the value stays the same in another text.
        old: the type of `origin`.
        new: the type of `slot`.
    """

    slot: Slot
    origin: Slot
    old: MySQLType
    new: MySQLType

    @property
    def is_in_place(self) -> bool:
        """Whether the value stays in its column."""
        return self.slot.id == self.origin.id


@dataclass(frozen=True)
class Forget:
    """Give rows no value in a column from the statement on; closed versions keep their values."""

    slot: Slot


@dataclass(frozen=True)
class Replaced:
    """A table whose name another table takes at the same commit_ts at which the table is removed.

    Attributes:
        commit_ts: that position.
        era: the era of the rows that are open when the table is removed.
        reason: the `Close.reason` of these rows.
        columns: the columns that both tables have.
    """

    commit_ts: int
    era: int
    reason: str
    columns: frozenset[Slot]


@dataclass(frozen=True)
class Arrive:
    """Open the moved rows that a RENAME brings from another table, the origin.

    Attributes:
        origin: the name of the origin.
        columns: the columns of this table -> the columns of the origin.
        since: the commit_ts of the origin's earlier RENAME, with which its earlier rows moved elsewhere; -1 without one.
        is_taken: whether the feed takes the origin.
        is_complete: whether an earlier statement left the origin empty, so that all rows of the origin are known.
        replaced: the table that had this name until the same position; None if there was none.
        origin_is_replaced: whether a third table takes the origin's name at the same position. Versions of the origin may
            then continue in that table, though their rows move here.
        next: the commit_ts of the origin's later RENAME; None without one.
    """

    origin: Name
    columns: Mapping[Slot, Slot]
    since: int
    is_taken: bool = True
    is_complete: bool = False
    replaced: Replaced | None = None
    origin_is_replaced: bool = False
    next: int | None = None


@dataclass(frozen=True)
class Recover:
    """Open the rows again that the last DROP TABLE has closed.

    Attributes:
        dropped: the commit_ts of that DROP.
        since: the commit_ts of the DROP before it, whose rows stay closed; -1 without one.
    """

    dropped: int
    since: int


@dataclass(frozen=True)
class Rekey:
    """Open the rows that this statement has closed again, under another key.

    Attributes:
        columns: the columns of the new key; none if the whole row is the key.
        by_row: whether the whole row was the key before; None if that holds for some of the rows only.
    """

    columns: tuple[Slot, ...]
    by_row: bool | None


@dataclass(frozen=True)
class Flag:
    """Report that the statement's effect on rows is not known: why, and whether the table needs a reload."""

    why: str
    reload: bool = False


@dataclass(frozen=True)
class Restrict:
    """Report open rows with a value that the column cannot have after the statement.

    Attributes:
        slot: the column.
        type: its new type if this type holds fewer values; None: only NULL is excluded.
        not_null: whether the column takes no NULL from then on.
    """

    slot: Slot
    type: MySQLType | None
    not_null: bool


StepOp = Close | Fill | Convert | Forget | Arrive | Recover | Rekey | Flag | Restrict


@dataclass(frozen=True)
class Step:
    """What one statement does to one table.

    Attributes:
        ddl: the statement.
        live: the source's columns after the statement, in lower case -> their slots.
        ops: what happens to the rows that are open.
        by_row: whether the whole row, as the history has it, is the key after the statement.
        labelled: those of `live` whose type has labels, which not every message states -> that type.
    """

    ddl: Ddl
    live: Mapping[str, Slot]
    ops: tuple[StepOp, ...]
    by_row: bool = False
    labelled: Mapping[str, str] = field(default_factory=dict)

    @property
    def spot(self) -> Spot:
        """The position of the statement."""
        return self.ddl.spot

    @property
    def changes_rows(self) -> bool:
        """Whether the statement does more than to report rows."""
        return any(not isinstance(op, Restrict) for op in self.ops)

    @property
    def begins_table(self) -> bool:
        """Whether the table after the statement is another one than before it."""
        return self.ddl.kind == "create_table" or any(isinstance(op, Arrive) for op in self.ops)

    @property
    def replaces_table(self) -> bool:
        """Whether the statement replaces the table by another one, which may have equal rows."""
        return any(isinstance(op, Arrive) and op.replaced is not None for op in self.ops)


@dataclass
class Evolution:
    """The steps of one table, in order.

    An *era* is a number of steps: rows of era n came after the n-th step and before the next one.

    Attributes:
        name: the table's name.
        base: the source's columns before the first step, in lower case -> their slots.
        steps: the steps.
        slots: all columns that the history has ever had.
    """

    name: Name
    base: dict[str, Slot] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)

    def live(self, era: int) -> Mapping[str, Slot]:
        """Return the source's columns in an era, in lower case -> their slots."""
        return self.steps[era - 1].live if era else self.base

    def by_row(self, era: int) -> bool:
        """Return whether the whole row, as the history has it, is the key in an era."""
        return era > 0 and self.steps[era - 1].by_row

    def find_slot(self, era: int, name: str) -> Slot | None:
        """Return the slot that a name stands for in rows of an era; None if the table never had such a column.

        The clock of a statement may differ slightly from that of the rows around it. So a name that the era does not have
        stands for the slot in the next era that has the name, or else in the last earlier one.
        """
        lower = name.lower()
        for each in (*range(era, len(self.steps) + 1), *range(era - 1, -1, -1)):
            if (slot := self.live(each).get(lower)) is not None:
                return slot
        return None

    def eras_between(self, first: int, last: int) -> tuple[int, int]:
        """Return the first and the last era that rows from one commit_ts to another may be of."""
        times = [step.spot.commit_ts for step in self.steps]
        return bisect_left(times, first), bisect_right(times, last)

    def bounds(self, era: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the positions (`Spot.order`) of the statements before and after an era."""
        begin = self.steps[era - 1].spot.order if era else (-1, -1)
        return begin, self.steps[era].spot.order if era < len(self.steps) else ((1 << 63) - 1, 0)


@dataclass(frozen=True)
class SeenColumns:
    """Columns that rows, or the history table, show; there may be no statement that names them.

    Attributes:
        since: the commit_ts from which on the table has the columns; None: after all statements.
        columns: name and type of each; None if the type is unknown.
    """

    since: int | None
    columns: Sequence[tuple[str, MySQLType | None]]
