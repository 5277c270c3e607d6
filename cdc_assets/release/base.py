"""The interface of the gates, and the types that they share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.expressions import first_true
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import Hold
from cdc_assets.release.late import LateEvents
from cdc_assets.release.new_events import NewEvents

QualifiedName = tuple[str, str]  # database, table
# The column that a hold's position is of: commit_ts, or the raw batch where commit_ts does not give the order.
Axis = Literal["commit_ts", "batch"]
HoldPositions = Mapping[QualifiedName, int]  # held table -> the position on the gate's axis from which on it is held


class Part(StrEnum):
    """What becomes of a row event in a run, by its position and the release window."""

    INSIDE = "inside"  # in the window: released, or a duplicate of a released event
    PENDING = "pending"  # at or above the watermark, or from its table's hold on
    LATE = "late"  # new, and below the window
    PROCESSED = "processed"  # below the window, and counted by an earlier release
    COVERED = "covered"  # inside or late, and at or below the position of its table's dump


@dataclass(frozen=True)
class EventGroup:
    """The row events of one table that agree in all fields from `part` to `reached`, and in `read`.

    Attributes:
        part: their `Part`.
        taken: whether the feed takes the table.
        new: whether the events came after the release before.
        database: the source's database.
        table: the source's table.
        layout_id: the hash of their column layout.
        unkeyed: whether their messages have no key.
        placed: whether their messages state a binlog position.
        reached: whether they would be in the window without the table's hold, and the hold has not counted them yet; False
            without holds.
        count: how many events.
        first: the lowest commit_ts.
        last: the highest commit_ts.
        batch: the oldest raw batch.
        moved: how many of them change their key.
        keys: hashes of each event's key and the columns `Gate.group_columns`; empty in a run with many events.
        sample: the layout, JDBC codes, key columns, table id, schema version, coordinates and Kafka time of the event with
            the lowest commit_ts.
        read: of a connector snapshot's reads: topic, binlog file and position; None for other events.
        markers: of a protocol with connector snapshots: the distinct values of `detail`.
        first_ms: with `markers`: the lowest Kafka time, in milliseconds.
        last_ms: with `markers`: the highest Kafka time, in milliseconds.
    """

    part: str
    taken: bool
    new: bool
    database: str
    table: str
    layout_id: int | None
    unkeyed: bool
    placed: bool
    reached: bool
    count: int
    first: int
    last: int
    batch: int
    moved: int
    keys: Sequence[int]
    sample: Mapping[str, Any]
    read: Mapping[str, Any] | None = None
    markers: Sequence[str] = ()
    first_ms: int = 0
    last_ms: int = 0


# Table -> the first records of the statements that ended all its rows or gave it other columns: topic, partition, offset,
# the offset of the last record in this partition that repeats the statement, and whether it ended the rows.
RowEnds = Mapping[QualifiedName, Sequence[tuple[str, int, int, int, bool]]]
NO_ROW_ENDS: RowEnds = MappingProxyType({})


@dataclass(frozen=True)
class WindowFacts:
    """Properties of the row events of a window, from their groups.

    Attributes:
        has_unkeyed: whether messages without a key are among them, so that tables may have no key.
        has_distinct_keys: whether no two events have the same key and the same values of `Gate.group_columns`.
        has_places: whether messages that state a binlog position are among them.
        tables: their tables.
        row_ends: the statements so far that ended all rows of one of these tables or gave it other columns; empty if
            watermarks or places in the binlog identify changes.
    """

    has_unkeyed: bool = False
    has_distinct_keys: bool = False
    has_places: bool = False
    tables: frozenset[QualifiedName] = frozenset()
    row_ends: RowEnds = field(default_factory=dict)


# Reads the changes of earlier releases at or above a commit_ts.
ReadReleased = Callable[[int], DataFrame]


class Gate(ABC):
    """Decides what a run releases.

    Attributes:
        group_columns: the columns that, beside the key, group the events that must be compared with each other.
        axis: the column that the positions of holds are of.
        moves_changes: whether a change may have a larger commit_ts than its event.
        new: the run's input.
        cursor: the cursor of the release before.
        retried: the holds whose reason may be gone.
        held_before: the hold positions until this run.
    """

    group_columns: ClassVar[tuple[str, ...]]
    axis: ClassVar[Axis]
    moves_changes: ClassVar[bool] = False

    def __init__(self, new: NewEvents, retried: Sequence[Hold]) -> None:
        self.new, self.cursor, self.retried = new, new.cursor, retried
        self.held_before = self.hold_positions(self.cursor.holds)

    def hold_positions(self, holds: Iterable[Hold]) -> HoldPositions:
        """Return the position from which on each table of a list of holds is held."""
        return find_hold_positions(holds, self.axis)

    @abstractmethod
    def select_files(self) -> list[DataFile]:
        """Return the files of change_events with row events that may be in the window."""

    @abstractmethod
    def classify(self, before: HoldPositions, after: HoldPositions) -> Column:
        """Return the `Part` of a row event, STRING.

        Args:
            before: the hold positions until this run.
            after: the hold positions from this run on.
        """

    @abstractmethod
    def releases_statement(
        self, statement: Mapping[str, Any], tables: AbstractSet[QualifiedName], after: HoldPositions
    ) -> bool:
        """Return whether a DDL event is in the window.

        Args:
            statement: the DDL event.
            tables: the tables that it names.
            after: the hold positions from this run on.
        """

    @abstractmethod
    def build_changes(
        self, events: DataFrame, read_released: ReadReleased, facts: WindowFacts
    ) -> tuple[DataFrame, LateEvents | None]:
        """Return the changes of the row events of the window, without duplicates, with the columns of `merge_changes`.

        Args:
            events: row events with `key`, `key_before` and `key_columns`.
            read_released: reads the changes of earlier releases.
            facts: properties of the events.

        Returns:
            The changes; and the late events, if only the comparison with released changes shows them, else None.
        """

    @abstractmethod
    def build_single_changes(self, events: DataFrame) -> DataFrame:
        """Return one change for each event, with the columns of `build_changes`.

        In: events of which no two have the same key and the same values of `group_columns`.
        """

    @abstractmethod
    def compares_with_released(self) -> bool:
        """Return whether an event may be a duplicate of a change that an earlier release has."""

    @abstractmethod
    def build_cursor_fields(self, facts: WindowFacts) -> dict[str, Any]:
        """Return the fields of the release cursor that this gate sets."""


def hold_position(held: HoldPositions) -> Column:
    """Return the position from which on an event's table is held, BIGINT; NULL if the table is not held."""
    cases = [((F.col("database") == d) & (F.col("table") == t), F.lit(position)) for (d, t), position in held.items()]
    return first_true((F.lit(False), F.lit(0).cast("bigint")), *cases)


def find_hold_positions(holds: Iterable[Hold], axis: Axis) -> HoldPositions:
    """Return the position on an axis from which on each table of a list of holds is held."""
    return {(h.database, h.table): position_of(h, axis) for h in holds}


def position_of(hold: Hold, axis: Axis) -> int:
    """Return the position of a hold on an axis."""
    return hold.since if axis == "commit_ts" else hold.batch


def is_in_held_batch(held: HoldPositions) -> Column:
    """Return whether an event's table is held from the event's batch, or an earlier one, on. BOOLEAN, never NULL."""
    return F.coalesce(F.col("batch") >= hold_position(held), F.lit(False)) if held else F.lit(False)
