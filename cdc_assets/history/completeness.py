"""From where on a history is complete: what was there before its first change is known, or was nothing."""

from dataclasses import dataclass
from functools import cached_property

from cdc_assets.history.evolution import Arrive, Step
from cdc_assets.history.plan import Work
from cdc_assets.tables.lakehouse import Lakehouse

NEVER = -1
# After these the source's table is empty.
_EMPTYING = ("create_table", "drop_table", "drop_database", "truncate_table")


@dataclass(frozen=True)
class Completeness:
    """What a part of a run knows before it looks at its rows.

    Attributes:
        lake: the feed's tables.
        work: the part.
    """

    lake: Lakehouse
    work: Work

    @cached_property
    def since(self) -> int:
        """The commit_ts from which on the history is complete, after the part; `NEVER`: nothing tells."""
        work, known = self.work, self.work.cursor.complete
        if known != NEVER and not work.cursor.met:
            return known
        told = [step.spot.commit_ts for step in work.evolution.steps[: work.eras[1]] if self._tells(step)]
        if work.loaded is not None:
            told.append(work.loaded)
        # Rows that were met too late were there at the first of them; at the last they may have gone.
        return (max if known != NEVER else min)(told, default=known)

    def _tells(self, step: Step) -> bool:
        if step.ddl.kind in _EMPTYING and not any(isinstance(op, Arrive) for op in step.ops):
            return True
        origins = [self.lake.history(*op.origin).cursor() for op in step.ops if isinstance(op, Arrive)]
        return any(origin is not None and origin.complete != NEVER for origin in origins)

    def after(self, met: int, read: int | None) -> tuple[int, int]:
        """From where on the history is complete, and how many rows were met first by an UPDATE or a DELETE since.

        Args:
            met: how many of the part's rows.
            read: the highest commit_ts of a row that the source's own snapshot has read; None: there is none.
        """
        cursor, since = self.work.cursor, self.since
        if since == NEVER and read is not None:
            return read, met
        before = cursor.met if since == cursor.complete else 0
        # What is applied anew is met once more.
        return since, met + before if self.work.replay is None else max(met, before)
