"""The interface of the gates: which of the row events are released, and what changes they make."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import Hold
from cdc_assets.release.late import Late

Name = tuple[str, str]  # database, table
# What says where a hold begins: commit_ts, or the raw batch where commit_ts tell no order.
Axis = Literal["commit_ts", "batch"]
Held = Mapping[Name, int]  # where, on the gate's own axis, the events of a table begin that are held


class Part(StrEnum):
    """Where a row event stands to the window of a release."""

    INSIDE = "inside"  # released, or a repeat of what is
    PENDING = "pending"  # behind it
    LATE = "late"  # new, and before it
    SETTLED = "settled"  # looked at by a release before
    COVERED = "covered"  # inside, or late, and at or below the position at which its table was loaded


@dataclass(frozen=True)
class Group:
    """Row events of one table and layout that stand alike to the window."""

    part: str
    taken: bool
    new: bool
    database: str
    table: str
    layout_id: int | None
    unkeyed: bool
    placed: bool
    reached: bool  # in the window but for its table's hold, and not counted by it before; told where there are holds
    count: int
    first: int  # the lowest commit_ts
    last: int  # the highest
    batch: int  # the oldest
    moved: int  # of them those that change their key
    keys: Sequence[int]  # their keys with what the gate tells changes apart by, as hashes; of few events only
    sample: Mapping[str, Any]  # of one event: what it says of its layout
    # Where a connector takes snapshots. Of reads of one: topic, file, position. Of all: what events say of themselves (of
    # reads, which of the snapshot they are), and the lowest and highest Kafka time, in milliseconds.
    read: Mapping[str, Any] | None = None
    markers: Sequence[str] = ()
    first_ms: int = 0
    last_ms: int = 0


@dataclass(frozen=True)
class Facts:
    """What is known of the row events of a window before they are looked at one by one."""

    unkeyed: bool = False  # there may be tables without a key
    apart: bool = False  # no two have the same key, and what the gate tells changes apart by
    placed: bool = False  # they tell their place in the binlog
    tables: frozenset[Name] = frozenset()


# The row changes released before at or above a commit_ts.
Released = Callable[[int], DataFrame]


class Gate(ABC):
    """Decides what a run releases.

    Attributes:
        by: what, beside its key, tells the changes of a key apart that must be looked at together.
        axis: the column that says where a hold begins.
        moves_changes: whether a change may have a larger commit_ts than its event.
    """

    by: ClassVar[tuple[str, ...]]
    axis: ClassVar[Axis]
    moves_changes: ClassVar[bool] = False

    def held(self, holds: Iterable[Hold]) -> Held:
        """Where the tables of a hold list are held."""
        return positions(holds, self.axis)

    @abstractmethod
    def files(self) -> list[DataFile]:
        """The files of change_events with row events that may be in the window."""

    @abstractmethod
    def part(self, before: Held, after: Held) -> Column:
        """The `Part` of a row event, STRING; `before`, `after`: where tables were held until now, and are from now on."""

    @abstractmethod
    def releases(self, statement: Mapping[str, Any], tables: AbstractSet[Name], before: Held, after: Held) -> bool:
        """Whether a DDL event, which names these tables, is in the window."""

    @abstractmethod
    def changes(self, events: DataFrame, released: Released, facts: Facts) -> tuple[DataFrame, Late | None]:
        """The changes that row events of the window make, as `changes.net`.

        Args:
            events: with `key`, `key_before` and `key_columns`.
            released: the row changes released before.
            facts: what is known of the events.

        Returns:
            The changes; and, where only they tell what came too late, that.
        """

    @abstractmethod
    def alone(self, events: DataFrame) -> DataFrame:
        """The changes of events of which no other has the same key, and what `by` tells. Out: as `changes`."""

    @abstractmethod
    def judges_alone(self) -> bool:
        """Whether an event that is the only one of its key may still be a repeat of a change released before."""

    @abstractmethod
    def state(self, facts: Facts) -> dict[str, Any]:
        """The fields of the release's cursor that are the gate's own."""


def held_since(held: Held) -> Column:
    """Where an event's table is held. BIGINT; NULL where it is not."""
    return functools.reduce(
        lambda when, each: when.when(
            (F.col("database") == each[0][0]) & (F.col("table") == each[0][1]), F.lit(each[1])
        ),
        held.items(),
        F.when(F.lit(False), F.lit(0).cast("bigint")),
    )


def positions(holds: Iterable[Hold], axis: Axis) -> Held:
    """Where the tables of a hold list are held."""
    return {(h.database, h.table): h.since if axis == "commit_ts" else h.batch for h in holds}


def in_held_batch(held: Held) -> Column:
    """Whether an event's table is held from its batch, or one before it, on. BOOLEAN, never NULL."""
    return F.coalesce(F.col("batch") >= held_since(held), F.lit(False)) if held else F.lit(False)
