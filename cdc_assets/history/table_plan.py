"""The plan of one commit to one history table: `plan` makes it, `writer` carries it out."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.history.columns import Layout
from cdc_assets.history.contradictions import KeySuspicion, Suspicion
from cdc_assets.history.evolution import Arrive, Close, Convert, Evolution, Fill, Replaced, Step
from cdc_assets.history.progress import Name
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import ConnectorSnapshot, LoadedTable
from cdc_assets.lakehouse.table import LakeTable

# A commit rewrites all open versions of a table that has at most this many of them, or at most this many for each change,
# because one pass over them suffices. In other tables it rewrites only the versions that close, which a join has to find
# first; and a MERGE that closes versions all over a table rewrites nearly every file as well.
REWRITTEN = 20_000
REWRITTEN_A_CHANGE = 10


@dataclass(frozen=True)
class LoadToApply:
    """A load whose typed rows are applied as changes, because the history did not begin with a copy of them.

    Attributes:
        load: the load.
        release: the release that its rows belong to.
        layout_id: the column layout that its rows have as changes.
    """

    load: LoadedTable
    release: int
    layout_id: int


@dataclass(frozen=True)
class TablePlan:
    """What one commit applies to one history table. A run that needs several commits for a table has a plan for each.

    Attributes:
        name: database and table.
        table: the history table.
        after: the last release that is applied before the run.
        through: the last release that is applied when all commits of the run are made.
        changes: about how many row events these releases have.
        last: their highest commit_ts; None if there are none.
        files: files of released_changes with the table's changes, among others.
        layouts: column layouts of the changes, the newest last.
        keyless: whether rows of the table may have no key.
        evolution: what the table's statements do.
        base: the era of the versions that are open.
        eras: the first and the last era of the rows that the commit applies.
        among: the first and the last era that rows of the run may have.
        is_last_part: whether the table has all of these releases after the commit.
        replay: a commit_ts from which on all changes are applied again, because a change came late; None if none did.
        rewinds: whether the commit first takes the table back to `replay`.
        statements: ids of the statements that are applied after the commit, in order.
        loaded: position of the load with which the history begins; None if it begins with none.
        typed: the load whose typed rows are applied; None if there is none.
        dumps: positions at which a dump reloads the table, in order.
        snapshots: snapshots of the source's connector that have all rows of the table, in order.
        read: commit_ts of the last reads of the connector's snapshots of the table that have ended.
        planned_naming: ids of columns -> their names in the history table before the first commit of the run.
        suspicions: the rows that may contradict a statement before them.
        unreported_changes: where rows begin to have a key, or to have none, without a statement; and where changes are
            missing because the feed's settings left the table out.
        has_exact_order: whether commit_ts orders rows and statements. Otherwise commit_ts is a clock: places in the binlog
            order them, where messages state these, else offsets within a partition, else the clock.
    """

    name: Name
    table: LakeTable[HistoryCursor]
    after: int
    through: int
    changes: int
    last: int | None
    files: list[DataFile]
    layouts: list[Layout]
    keyless: bool
    evolution: Evolution
    base: int
    eras: tuple[int, int]
    among: tuple[int, int]
    is_last_part: bool
    replay: int | None
    rewinds: bool
    statements: list[str]
    loaded: int | None
    typed: LoadToApply | None
    dumps: tuple[int, ...]
    snapshots: tuple[ConnectorSnapshot, ...]
    read: tuple[int, ...]
    planned_naming: Mapping[str, str]
    suspicions: tuple[Suspicion | KeySuspicion, ...]
    unreported_changes: tuple[dict[str, Any], ...]
    has_exact_order: bool

    @property
    def reload_positions(self) -> tuple[int, ...]:
        """The positions of dumps and snapshots that have all rows of the table, in order: other rows have ended by then."""
        return tuple(sorted({*self.dumps, *(s.at for s in self.snapshots)}))

    @cached_property
    def _current_table(self) -> LakeTable[HistoryCursor]:
        """The history table at its version right before the commit."""
        return self.table.at_current_version()

    @cached_property
    def cursor(self) -> HistoryCursor:
        """The cursor of the history table."""
        return self._current_table.cursor() or HistoryCursor(sequence=0)

    @cached_property
    def present(self) -> StructType | None:
        """The columns of the history table; None if the table does not exist."""
        return self._current_table.schema()

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """The Delta properties of the history table."""
        log = self._current_table.log()
        return log.properties if log else {}

    @property
    def naming(self) -> Mapping[str, str]:
        """Ids of columns -> their names in the history table."""
        return self.planned_naming if self.cursor.naming is None else self.cursor.naming

    @property
    def steps(self) -> list[Step]:
        """The statements that the commit applies."""
        return self.evolution.steps[self.base : self.eras[1]]

    @property
    def evolves(self) -> bool:
        """Whether the commit applies statements."""
        return bool(self.steps)

    @property
    def changes_open_versions(self) -> bool:
        """Whether statements end open versions, open ended ones again, or give them other values."""
        ops = [op for step in self.steps for op in step.ops]
        return self.replacement is not None or any(isinstance(op, Close | Fill | Convert) for op in ops)

    @property
    def rewrites_all_open(self) -> bool:
        """Whether the commit rewrites all open versions: the table is small, or any of its open versions may change."""
        is_small = self.cursor.current <= max(REWRITTEN, REWRITTEN_A_CHANGE * self.changes)
        return is_small or self.rewinds or self.changes_open_versions or bool(self.reload_positions)

    @property
    def row_count(self) -> int:
        """About how many rows the commit computes: the changes, and the versions that it rewrites if it rewrites all."""
        rewritten = self.cursor.versions if self.reopens else self.cursor.current
        return self.changes + (rewritten if self.rewrites_all_open else 0)

    @property
    def replacement(self) -> tuple[int, Arrive, Replaced] | None:
        """The statement that gives this table's name to another table: its era, what it does, and this table before it.

        The versions that may go on have ended in an earlier commit, because a commit begins with each statement that brings
        rows into the table.
        """
        return next(((era, op, op.replaced) for era, op in self.arrivals if op.replaced is not None), None)

    @property
    def reopens(self) -> str | None:
        """A SQL condition for the ended versions that the commit rewrites, as they may go on; None if no version goes on."""
        if self.replacement is None:
            return None
        _, _, replaced = self.replacement
        at = replaced.commit_ts
        return f"(_cdc_to_ts = {at} AND _cdc_closed_by = '{replaced.reason}' AND _cdc_from_ts < {at})"

    @property
    def arrivals(self) -> list[tuple[int, Arrive]]:
        """The statements that bring in rows of other tables: the era before each, and what it does."""
        return [
            (era, op)
            for era, step in enumerate(self.steps, start=self.base)
            for op in step.ops
            if isinstance(op, Arrive)
        ]
