"""How many row events a release took, and left: for its report, and for the totals since the feed began."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.release.base import Group, Part
from cdc_assets.release.late import Late


@dataclass(frozen=True)
class Counts:
    """How many row events a release took, and left."""

    rows: int  # new to the gate
    window: int  # released, or repeats of what is
    excluded: int  # of tables that the feeds file leaves out
    covered: int  # at or below the position at which their table was loaded
    pending: int  # in all, after the release
    pending_new: int  # of those that were new
    oldest_pending: int  # the oldest batch that may hold one of them; 0: there is none

    def totals(self, before: dict[str, int], late: Late) -> dict[str, int]:
        """The totals since the feed began: those of `before`, and these."""
        more = {"rows": self.rows, "window": self.window, "excluded": self.excluded, "covered": self.covered}
        more |= {"late_repeated": late.repeated, "late_unseen": late.unseen}
        return {name: before.get(name, 0) + count for name, count in more.items()}


def counted(groups: Sequence[Group], late_inside: Late, rows: int | None, cursor: ReleaseCursor) -> Counts:
    """Count what groups of row events say.

    Args:
        groups: of all row events that the release looked at.
        late_inside: which of those in the window came too late, where that showed only when they were released.
        rows: how many were new, if that is known of their files; None: as the groups say.
        cursor: that of the release before.
    """
    inside = [g for g in groups if g.part == Part.INSIDE]
    covered = [g for g in groups if g.part == Part.COVERED]
    waiting = [g for g in groups if g.part == Part.PENDING]
    pending_new = _events(g for g in waiting if g.new)
    pending = cursor.pending - _events(g for g in (*inside, *covered) if not g.new) + pending_new
    unseen = pending - _events(waiting)
    batches = [g.batch for g in waiting] + [cursor.oldest_pending or 1] * (unseen > 0)
    return Counts(
        rows=_events(g for g in groups if g.new) if rows is None else rows,
        window=_events(g for g in inside if g.taken) - late_inside.unseen - late_inside.repeated,
        excluded=_events(g for g in inside if not g.taken),
        covered=_events(covered),
        pending=pending,
        pending_new=pending_new,
        oldest_pending=min(batches) if pending else 0,
    )


def _events(groups: Iterable[Group]) -> int:
    return sum(g.count for g in groups)
