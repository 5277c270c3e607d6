"""From where on a history is complete: what was there before its first change is known, or was nothing."""

from dataclasses import dataclass
from functools import cached_property

from cdc_assets.history.evolution import Arrive, Step
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.tso import time_text

NEVER = -1
# After these the source's table is empty.
_EMPTYING = ("create_table", "drop_table", "drop_database", "truncate_table")
_REMEDY = "Begin the table with a dump: initial_load in the feeds file."


@dataclass(frozen=True)
class Complete:
    """From where on a history has every row that the source had, for people.

    Attributes:
        position: the commit_ts from which on it has; `NEVER`: nothing tells.
        met: how many rows were met first by an UPDATE or a DELETE since.
        reason: both in words, and what to do.
    """

    position: int
    met: int
    reason: str

    @property
    def holds(self) -> bool:
        """Whether there is such a position, and nothing that came since speaks against it."""
        return self.position != NEVER and not self.met


def complete(position: int, met: int) -> Complete:
    """What the two say that a history's cursor has."""
    late = f"{met} rows were met first by an UPDATE or a DELETE"
    if position == NEVER:
        said = (
            "No load, end of a connector's snapshot, CREATE TABLE or TRUNCATE tells from where on the history is complete; "
            f"{late}. Rows that have not"
        )
        return Complete(position, met, f"{said} been touched since the feed began are missing. {_REMEDY}")
    said = f"The history is complete from {position} ({time_text(position)}) on"
    return Complete(position, met, f"{said}, but {late} since: others may be missing. {_REMEDY}" if met else f"{said}.")


def complete_from(lake: Lakehouse, database: str, table: str) -> Complete:
    """From where on a history table is complete, as far as it is applied."""
    cursor = lake.history(database, table).cursor()
    return complete(NEVER, 0) if cursor is None else complete(cursor.complete, cursor.met)


@dataclass(frozen=True)
class Completeness:
    """What a part of a run knows before it looks at its rows.

    Attributes:
        lake: the feed's tables.
        work: the part.
    """

    lake: Lakehouse
    work: TablePlan

    @cached_property
    def since(self) -> int:
        """The commit_ts from which on the history is complete, after the part; `NEVER`: nothing tells."""
        work, known = self.work, self.work.cursor.complete
        lost = any(self._loses(step) for step in work.steps)
        # A load after a statement that has left the history wrong is where it is right again.
        if known != NEVER and not work.cursor.met and not (work.reload_positions and work.cursor.reload) and not lost:
            return known
        told, lost_at = list[int](), NEVER
        for step in work.evolution.steps[: work.eras[1]]:
            if self._loses(step):
                told, lost_at = [], step.spot.commit_ts
            elif self._tells(step):
                told.append(step.spot.commit_ts)
        known = NEVER if lost else known
        loads = [*work.dumps, *(s.until for s in work.snapshots), *([] if work.loaded is None else [work.loaded])]
        if known == NEVER:  # else they may be sent again
            loads += work.read
        told += [at for at in loads if at > lost_at]
        # Rows that were met too late were there at the first of them; at the last they may have gone.
        return (max if known != NEVER else min)(told, default=known)

    def _tells(self, step: Step) -> bool:
        arrivals = [op for op in step.ops if isinstance(op, Arrive)]
        return bool(arrivals) or step.ddl.kind in _EMPTYING

    def _loses(self, step: Step) -> bool:
        """Whether rows come in, with a statement, of which not all are known."""
        return any(isinstance(op, Arrive) and not self._are_known(op, step) for op in step.ops)

    def _are_known(self, arrive: Arrive, step: Step) -> bool:
        if not arrive.is_taken or arrive.is_known:
            return arrive.is_taken
        origin = self.lake.history(*arrive.origin).cursor()
        return origin is not None and NEVER != origin.complete <= step.spot.commit_ts

    def after(self, met: int) -> tuple[int, int]:
        """From where on the history is complete, and how many rows were met first by an UPDATE or a DELETE since.

        Args:
            met: how many of the part's rows.
        """
        cursor, since = self.work.cursor, self.since
        before = cursor.met if since == cursor.complete else 0
        # What is applied anew is met once more.
        return since, met + before if self.work.replay is None else max(met, before)
