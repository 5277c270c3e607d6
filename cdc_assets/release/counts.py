"""Counts of row events by what a release made of them, for its report and for the totals since the feed began."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.release.base import EventGroup, Part
from cdc_assets.release.late import LateEvents


@dataclass(frozen=True)
class EventCounts:
    """How many row events a release has processed, and how many are pending after it."""

    rows: int  # new since the release before
    window: int  # released, or duplicates of released ones
    excluded: int  # of tables that the feeds file leaves out
    covered: int  # at or below the position of their table's dump
    pending: int  # all pending ones after the release
    pending_new: int  # the new ones among them
    oldest_pending: int  # the oldest raw batch that may have a pending event; 0 without one

    def add_to_totals(self, before: dict[str, int], late: LateEvents) -> dict[str, int]:
        """Return the totals since the feed began: `before` plus the counts of this release."""
        more = {"rows": self.rows, "window": self.window, "excluded": self.excluded, "covered": self.covered}
        more |= {"late_repeated": late.repeated, "late_unseen": late.unseen}
        return {name: before.get(name, 0) + count for name, count in more.items()}


def count_events(
    groups: Sequence[EventGroup], late_inside: LateEvents, rows: int | None, cursor: ReleaseCursor
) -> EventCounts:
    """Count the row events of a release.

    Args:
        groups: all row events that the release has read.
        late_inside: the late events among those of the window, as only the deduplication shows.
        rows: how many events are new by the statistics of their files; None: count them in `groups`.
        cursor: the cursor of the release before.
    """
    inside = [g for g in groups if g.part == Part.INSIDE]
    covered = [g for g in groups if g.part == Part.COVERED]
    waiting = [g for g in groups if g.part == Part.PENDING]
    pending_new = _sum_counts(g for g in waiting if g.new)
    pending = cursor.pending - _sum_counts(g for g in (*inside, *covered) if not g.new) + pending_new
    not_read = pending - _sum_counts(waiting)
    batches = [g.batch for g in waiting] + [cursor.oldest_pending or 1] * (not_read > 0)
    return EventCounts(
        rows=_sum_counts(g for g in groups if g.new) if rows is None else rows,
        window=_sum_counts(g for g in inside if g.taken) - late_inside.unseen - late_inside.repeated,
        excluded=_sum_counts(g for g in inside if not g.taken),
        covered=_sum_counts(covered),
        pending=pending,
        pending_new=pending_new,
        oldest_pending=min(batches) if pending else 0,
    )


def _sum_counts(groups: Iterable[EventGroup]) -> int:
    return sum(g.count for g in groups)
