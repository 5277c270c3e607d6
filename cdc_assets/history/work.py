"""A part of what one history table has not seen: what `plan` makes, and `writer` does."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql.types import StructType

from cdc_assets.history.columns import Layout
from cdc_assets.history.contradictions import Suspicion
from cdc_assets.history.evolution import Arrive, Close, Convert, Evolution, Fill, Replaced, Step
from cdc_assets.history.progress import Name
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import ConnectorSnapshot, LoadedTable
from cdc_assets.lakehouse.table import LakeTable

# Of a table with fewer open versions than this, or than so many for each change, all of them are written anew, in one pass
# over them; of others only those that close, which have to be found first. (Measured with a MERGE: 40,000 changes to 300,000
# open versions took 9 s, and it wrote nearly every file anew, too.)
REWRITTEN = 20_000
REWRITTEN_A_CHANGE = 10


@dataclass(frozen=True)
class TypedRows:
    """The typed rows of a load that the history did not begin with.

    Attributes:
        load: the load.
        release: that they are of.
        layout_id: the layout that they have as changes.
    """

    load: LoadedTable
    release: int
    layout_id: int


@dataclass(frozen=True)
class Work:
    """A part of what one history table has not seen, for one commit.

    Attributes:
        after: the release that is applied.
        through: the release that is applied when the part is.
        changes: row events of these releases, about.
        last: the highest commit_ts of one; None: there is none.
        files: of released_changes, with the table's changes among others.
        layouts: of the changes, the newest last.
        keyless: whether rows of the table may have no key.
        evolution: the table's.
        base: the era of the versions that are open.
        eras: the rows of the part: from which era to which.
        among: the eras that the rows of all parts may be of.
        whole: whether the table has all of these releases after it.
        replay: a commit_ts from which on everything is applied anew, as something came late; None: nothing did.
        rewinds: whether the table is to be brought back to that first.
        statements: ids of those that the table has been through when the part is applied, in order.
        loaded: the position at which the table's history begins with a load; None: it does not.
        typed: those of the load that the part applies; None: there are none.
        dumps: the positions at which the part loads the table anew from a dump, in order.
        snapshots: those of the source's connector that have all rows of the table, in order.
        read: the commit_ts of the last reads of its snapshots of the table that have ended.
        planned_naming: ids of columns -> their names in the history table before the first part.
        suspicions: the rows that may contradict a statement before them.
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
    whole: bool
    replay: int | None
    rewinds: bool
    statements: list[str]
    loaded: int | None
    typed: TypedRows | None
    dumps: tuple[int, ...]
    snapshots: tuple[ConnectorSnapshot, ...]
    read: tuple[int, ...]
    planned_naming: Mapping[str, str]
    suspicions: tuple[Suspicion, ...]

    @property
    def anew(self) -> tuple[int, ...]:
        """The positions at which the part is told which rows there are, and so which are gone, in order."""
        return tuple(sorted({*self.dumps, *(s.at for s in self.snapshots)}))

    @cached_property
    def _standing(self) -> LakeTable[HistoryCursor]:
        """The history table as it is when the part's turn has come."""
        return self.table.at_current_version()

    @cached_property
    def cursor(self) -> HistoryCursor:
        """Its cursor."""
        return self._standing.cursor() or HistoryCursor(sequence=0)

    @cached_property
    def present(self) -> StructType | None:
        """Its columns; None: there is no table."""
        return self._standing.schema()

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """Delta's properties of it."""
        there = self._standing.log()
        return there.properties if there else {}

    @property
    def naming(self) -> Mapping[str, str]:
        """Ids of columns -> their names in it."""
        return self.planned_naming if self.cursor.naming is None else self.cursor.naming

    @property
    def steps(self) -> list[Step]:
        """The statements of the part."""
        return self.evolution.steps[self.base : self.eras[1]]

    @property
    def evolves(self) -> bool:
        """Whether there are statements."""
        return bool(self.steps)

    @property
    def changes_open(self) -> bool:
        """Whether statements end open versions, open ended ones again, or give them other values."""
        ops = [op for step in self.steps for op in step.ops]
        return self.replacement is not None or any(isinstance(op, Close | Fill | Convert) for op in ops)

    @property
    def takes_all(self) -> bool:
        """Whether the part takes all open versions and writes them anew: as they are few, or as any of them may change."""
        few = self.cursor.current <= max(REWRITTEN, REWRITTEN_A_CHANGE * self.changes)
        return few or self.rewinds or self.changes_open or bool(self.anew)

    @property
    def replacement(self) -> tuple[int, Arrive, Replaced] | None:
        """The statement with which another table takes the name of this one: its era, what it does, and this one then.

        A part before has ended the versions that may go on: a part begins with each statement that brings rows in.
        """
        return next(((era, op, op.replaced) for era, op in self.arrivals if op.replaced is not None), None)

    @property
    def reopens(self) -> str | None:
        """Which ended versions the part writes anew, as they may go on; a condition in SQL. None: no version goes on."""
        if self.replacement is None:
            return None
        _, _, replaced = self.replacement
        at = replaced.commit_ts
        return f"(_cdc_to_ts = {at} AND _cdc_closed_by = '{replaced.reason}' AND _cdc_from_ts < {at})"

    @property
    def arrivals(self) -> list[tuple[int, Arrive]]:
        """The tables whose rows come in: the step, and which."""
        return [
            (era, op)
            for era, step in enumerate(self.steps, start=self.base)
            for op in step.ops
            if isinstance(op, Arrive)
        ]
