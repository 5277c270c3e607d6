"""What became of the events of one key that opened no version and closed none, and why."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.released_changes import Hold, ReleaseCursor
from cdc_assets.operations.finality import find_applied_release, has_shown_watermark
from cdc_assets.operations.formatting import format_position
from cdc_assets.operations.holds import describe_hold
from cdc_assets.operations.why.evidence import EventPlace, Evidence, event_place
from cdc_assets.operations.why.life import Fate, Row
from cdc_assets.stages.history.progress_file import blocked_tables

FateWithReason = tuple[Fate, str]


def format_place(place: Sequence[Any]) -> str:
    """Return the coordinates of a record; `place`: topic, partition, offset, and whatever follows."""
    return f"{place[0]} partition {place[1]} offset {place[2]}"


@dataclass(frozen=True)
class EventFates:
    """Decides what became of events.

    Attributes:
        evidence: what the tables hold about the key.
    """

    evidence: Evidence

    @cached_property
    def applied_release(self) -> int:
        """The newest release whose changes the history has."""
        return find_applied_release(self.evidence.lake, *self.evidence.name)

    def find_change(self, event: Row) -> Row | None:
        """Return the released change that an event made; None: it made none, or maintenance has deleted it."""
        return self._changes.get(event_place(event))

    def may_be_trimmed(self, event: Row) -> bool:
        """Return whether an event may have made a change that maintenance has deleted."""
        return self.find_change(event) is None and event["commit_ts"] <= self._cursor.trimmed.highest

    def decide_fate(self, event: Row) -> FateWithReason:
        """Return the fate and its reason of an event that made no released change."""
        if not self.evidence.feed.takes(*self.evidence.name):
            return Fate.NO_EFFECT, "The feed's setting `tables` leaves the table out."
        cause = self._explain_wait(event)
        if cause is not None:
            return Fate.PENDING, cause
        loaded_at = self._cursor.loaded_at.get(self.evidence.name)
        if loaded_at is not None and event["commit_ts"] <= loaded_at:
            dump = f"the dump that the table was loaded from, as of {format_position(loaded_at)}"
            return Fate.NO_EFFECT, f"Its outcome is contained in {dump}."
        return self._compare_with_changes(event)

    def decide_fate_of_change(self, change: Row) -> FateWithReason:
        """Return the fate and its reason of a released change that opened no version and closed none."""
        if change["release"] > self.applied_release:
            hold = blocked_tables(self.evidence.lake).get(self.evidence.name)
            cause = describe_hold(hold, self.evidence.lake.feed) if hold else "the next run applies it to the history"
            return Fate.PENDING, f"It is released, and not in the history yet: {cause}."
        if change["op"] == Op.DELETE:
            return Fate.NO_EFFECT, "There was no row to delete."
        return Fate.NO_EFFECT, "The row had these values already."

    def _explain_wait(self, event: Row) -> str | None:
        """Return what an event waits for before the gate releases it; None: the gate is done with it."""
        topic, cursor = event["topic"], self._cursor
        transaction_start = cursor.transactions.bounds.get(topic, {}).get(str(event["partition"]))
        if event["batch"] > cursor.batch:
            return "It was ingested after the last release: the next run looks at it."
        if self._hold is not None and _is_held(event, self._hold):
            return f"It waits, as {describe_hold(self._hold, self.evidence.lake.feed)}."
        if self._is_gated_by_watermark(event) and event["commit_ts"] >= cursor.watermarks.get(topic, 0):
            return self._explain_missing_watermark(event)
        if transaction_start is not None and event["offset"] >= transaction_start:
            start = format_place((topic, event["partition"], transaction_start))
            return f"It waits for the rest of a transaction that begins at {start}."
        return None

    def _explain_missing_watermark(self, event: Row) -> str:
        """Return which watermark an event waits for, and in which partitions it has not come."""
        topic, commit_ts = event["topic"], event["commit_ts"]
        watermarks = self._cursor.partition_watermarks.get(topic, {})
        behind = [
            f"partition {partition} has shown {'none' if mark is None else format_position(mark)}"
            for partition, mark in sorted(watermarks.items(), key=lambda each: int(each[0]))
            if mark is None or mark <= commit_ts
        ]
        cause = "; ".join(behind) or "a partition of the topic has shown none, or another topic of the feed is behind"
        return f"It waits for a watermark above its commit_ts in every partition of topic {topic}: {cause}."

    def _compare_with_changes(self, event: Row) -> FateWithReason:
        """Return the fate of an event that the gate has dropped, by what it released of the key."""
        commit_ts, is_gated = event["commit_ts"], self._is_gated_by_watermark(event)
        same = self._find_same_changes(event)
        if is_gated and same:
            return self._compare_with_change(event, same[0])
        if commit_ts <= self._cursor.trimmed.highest:
            return Fate.NO_EFFECT, (
                "Maintenance has deleted the released changes of that time: whether the event was a duplicate or late is "
                "not known any more."
            )
        if is_gated:
            watermark = self._find_watermark_before(event["batch"], event["topic"])
            released = "" if watermark is None else f", {format_position(watermark)}"
            return Fate.LATE, f"It came below the watermark released before{released}, and was never seen before."
        if same:
            return Fate.DUPLICATE, f"The key has this change already, from {format_place(event_place(same[0]))}."
        return Fate.LATE, (
            "It was never seen before, and does not continue the row's state at that time: a change of this or a later time "
            "was applied before it, from another partition, or, without a key, from an equal row."
        )

    def _find_same_changes(self, event: Row) -> list[Row]:
        """Return the released changes that say the same as an event: with watermarks, those of its commit_ts."""
        if self._is_gated_by_watermark(event):
            return [change for change in self.evidence.changes if change["commit_ts"] == event["commit_ts"]]
        content = _content(event)
        return [change for change in self.evidence.changes if _content(change) == content]

    def _compare_with_change(self, event: Row, change: Row) -> FateWithReason:
        """Return the fate of an event with the commit_ts of a released change, in a feed with watermarks."""
        same_place = format_place(event_place(change))
        if change["events"] > 1 and _is_delete(event):
            deletes = [e for e in self.evidence.events if e["commit_ts"] == event["commit_ts"] and _is_delete(e)]
            if deletes[0] is event:
                return Fate.NO_EFFECT, f"It is one update with {same_place}: a delete and an insert at one commit_ts."
            return Fate.DUPLICATE, f"It repeats {format_place(event_place(deletes[0]))}."
        return Fate.DUPLICATE, f"It repeats {same_place}, which was released."

    def _find_watermark_before(self, batch: int, topic: str) -> int | None:
        """Return the released watermark of a topic when a raw batch arrived; None: there was none."""
        cursors = self.evidence.lake.released_changes.cursors()
        before = next((cursor for cursor in cursors if cursor.batch < batch), None)
        return before.watermarks.get(topic) if before else None

    def _is_gated_by_watermark(self, event: Row) -> bool:
        return has_shown_watermark(self._cursor) and event["batch"] > self._cursor.ungated

    @property
    def _cursor(self) -> ReleaseCursor:
        return self.evidence.release_cursor

    @cached_property
    def _hold(self) -> Hold | None:
        return next((hold for hold in self._cursor.holds if (hold.database, hold.table) == self.evidence.name), None)

    @cached_property
    def _changes(self) -> dict[EventPlace, Row]:
        return {event_place(change): change for change in self.evidence.changes}


def _is_held(event: Row, hold: Hold) -> bool:
    return bool(event["batch"] >= hold.batch if hold.batch else event["commit_ts"] >= hold.since)


def _is_delete(event: Row) -> bool:
    return bool(event["op"] == str(Op.DELETE))


def _content(row: Row) -> tuple[Any, ...]:
    """Return what duplicates have in common without watermarks: the source's time, the operation, and place or images.

    The place is that in the binlog. Only the image that the operation has counts, as a changed key is two changes.
    """
    time = row.get("event_ts") or row["commit_ts"]
    if row.get("source"):
        return time, row["op"], row["source"]
    without_before, without_after = {str(Op.INSERT), str(Op.SNAPSHOT)}, {str(Op.DELETE)}
    images = [
        json.loads(row[image]) if row.get(image) and row["op"] not in without else None
        for image, without in (("before", without_before), ("after", without_after))
    ]
    return time, row["op"], images
