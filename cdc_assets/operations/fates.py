"""What became of the row events of one key: released, or not, and why. Without Spark."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, HoldReason, ReleaseCursor
from cdc_assets.lakehouse.table import CursorWithCommit
from cdc_assets.operations.finality import has_shown, hold_of
from cdc_assets.tso import time_text

Row = dict[str, Any]
Place = tuple[str, int, int, int]  # topic, partition, offset, index


class Fate(StrEnum):
    """What became of something that the source did to a row."""

    VERSION = "version"  # it opened a version
    END = "end"  # it ended one
    HALF = "half"  # with another event it is one change
    NOTHING = "nothing"  # it changed nothing
    REPEAT = "repeat"
    LATE = "late"
    PENDING = "pending"
    HELD = "held"
    UNAPPLIED = "unapplied"  # released, and not yet in the history
    EXCLUDED = "excluded"
    COVERED = "covered"  # by the dump that the table was loaded from
    UNKNOWN = "unknown"  # maintenance has deleted what would tell


@dataclass(frozen=True)
class Release:
    """The run that released a change.

    Attributes:
        number: of its commit to released_changes.
        committed_at: when that was; None: the log has it no longer.
        run: Dagster's id of the run; None: there was none, or as before.
        watermark: of the record's topic, that it released up to; None: there is none, or as before.
    """

    number: int
    committed_at: datetime | None = None
    run: str | None = None
    watermark: int | None = None


def place_of(row: Mapping[str, Any]) -> Place:
    """Where an event is in Kafka."""
    return row["topic"], row["partition"], row["offset"], row["index"]


def place_text(place: Sequence[Any]) -> str:
    """That for people."""
    return f"{place[0]} partition {place[1]} offset {place[2]}"


class Judge:
    """What became of the events of a key.

    Attributes:
        lake: the feed's tables.
        feed: the feed.
        database: of the table.
        table: its name.
        changes: the released changes of the key, oldest first.
        events: its row events, by commit_ts and place.
    """

    def __init__(
        self, lake: Lakehouse, feed: Feed, database: str, table: str, changes: Sequence[Row], events: Sequence[Row]
    ) -> None:
        self.lake, self.feed, self.database, self.table = lake, feed, database, table
        self.changes, self.events = changes, events
        self._released = {place_of(c): c for c in changes}
        self._cursor = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
        self._hold = hold_of(self._cursor, database, table)

    def change(self, event: Row) -> Row | None:
        """The released change that an event, by itself, makes."""
        return self._released.get(place_of(event))

    def trimmed(self, event: Row) -> bool:
        """Whether an event may have made a change that maintenance has deleted."""
        return self.change(event) is None and event["commit_ts"] <= self._cursor.trimmed.highest

    def missing(self, position: int) -> str:
        """Why a row ended at a position that no change ended: of what brought all rows of the table it was not one."""
        mine = [each for each in self._cursor.loads if (each.database, each.table) == (self.database, self.table)]
        if any(each.is_reload and each.position == position for each in mine):
            return "the table was loaded anew, and the dump does not have the row"
        return "the connector took a snapshot of the whole table, which does not have the row"

    def fate(self, event: Row) -> tuple[Fate, str]:
        """Of an event that makes no change by itself: what became of it, and why."""
        waits = self._waits(event)
        if waits is not None:
            return waits
        ts, gated = event["commit_ts"], self._gated(event)
        loaded = self._cursor.loaded_at.get((self.database, self.table))
        if loaded is not None and ts <= loaded:
            at = f"{loaded} ({time_text(loaded)})"
            return Fate.COVERED, f"the dump that the table was loaded from, as of {at}, has its outcome"
        same = [c for c in self.changes if c["commit_ts"] == ts] if gated else self._equal(event)
        if gated and same:
            return self._beside(event, same[0])
        if ts <= self._cursor.trimmed.highest:
            return Fate.UNKNOWN, "maintenance has deleted the released changes of that time"
        return self._past(event, same, gated=gated)

    def _gated(self, event: Row) -> bool:
        """Whether the gate goes by watermarks for it."""
        return has_shown(self._cursor) and event["batch"] > self._cursor.ungated

    def _waits(self, event: Row) -> tuple[Fate, str] | None:
        """Why the gate has not released it, and not dropped it either; None: it has."""
        topic, cursor = event["topic"], self._cursor
        bound = cursor.transactions.bounds.get(topic, {}).get(str(event["partition"]))
        said: tuple[Fate, str] | None = None
        if not self.feed.takes(self.database, self.table):
            said = Fate.EXCLUDED, "the feed's setting `tables` leaves this table out"
        elif event["batch"] > cursor.batch:
            said = Fate.PENDING, "it was taken in after the last release: the next run looks at it"
        elif self._hold is not None and self._is_held(event, self._hold):
            said = Fate.HELD, held_by(self._hold, self.lake.feed)
        elif self._gated(event) and event["commit_ts"] >= cursor.watermarks.get(topic, 0):
            said = Fate.PENDING, self._awaited(event)
        elif bound is not None and event["offset"] >= bound:
            said = Fate.PENDING, f"a transaction is not whole yet, from {topic} offset {bound} on"
        return said

    def _is_held(self, event: Row, hold: Hold) -> bool:
        return bool(event["batch"] >= hold.batch if hold.batch else event["commit_ts"] >= hold.since)

    def _awaited(self, event: Row) -> str:
        """Which watermark an event waits for."""
        topic, ts = event["topic"], event["commit_ts"]
        marks = self._cursor.partition_watermarks.get(topic, {})
        behind = [
            f"partition {p} has shown {'none' if mark is None else f'{mark} ({time_text(mark)})'}"
            for p, mark in sorted(marks.items(), key=lambda each: int(each[0]))
            if mark is None or mark <= ts
        ]
        told = "; ".join(behind) or "a partition of the topic has shown none, or another topic of the feed is behind"
        return f"it waits for a watermark above its commit_ts in every partition of {topic}: {told}"

    def _beside(self, event: Row, change: Row) -> tuple[Fate, str]:
        """Of an event of the same time as a released change, where there are watermarks."""
        alike = [e for e in self.events if e["commit_ts"] == event["commit_ts"] and (_gone(e) == _gone(event))]
        if change["events"] > 1 and _gone(event) and alike[0] is event:
            return (
                Fate.HALF,
                f"with {place_text(place_of(change))} it is one update: delete and insert of one commit_ts",
            )
        if change["events"] > 1 and _gone(event):
            return Fate.REPEAT, f"the same as {place_text(place_of(alike[0]))}"
        return Fate.REPEAT, f"the same as {place_text(place_of(change))}, which was released"

    def _past(self, event: Row, same: Sequence[Row], *, gated: bool) -> tuple[Fate, str]:
        """Of an event that the gate has left behind."""
        if gated:
            before = self._watermark_before(event["batch"], event["topic"])
            told = "" if before is None else f", {before} ({time_text(before)})"
            return (
                Fate.LATE,
                f"it came below the watermark that had been released already{told}, and was never seen before",
            )
        if same:
            return Fate.REPEAT, f"the key has that change already, by {place_text(place_of(same[0]))}"
        why = (
            "it was never seen before, and does not continue the row as it was then: a change out of another partition, of "
            "this time or a later one, was applied already; or an equal row of a table without a key was"
        )
        return Fate.LATE, why

    def _equal(self, event: Row) -> list[Row]:
        """The released changes that an event repeats where there are no watermarks."""
        return [c for c in self.changes if _what_happened(c) == _what_happened(event)]

    def release(self, number: int, topic: str) -> Release:
        """The run that released a change of a topic."""
        committed = self._releases.get(number)
        if committed is None:
            return Release(number)
        return Release(number, committed.commit.time, committed.run, committed.cursor.watermarks.get(topic))

    @cached_property
    def _releases(self) -> dict[int, CursorWithCommit[ReleaseCursor]]:
        """Those of the changes, and all since, as far as the log has them."""
        oldest = min((c["release"] for c in self.changes), default=self._cursor.sequence)
        found: dict[int, CursorWithCommit[ReleaseCursor]] = {}
        for each in self.lake.released_changes.cursors_with_commits():
            found[each.cursor.sequence] = each
            if each.cursor.sequence < oldest:
                break
        return found

    def _watermark_before(self, batch: int, topic: str) -> int | None:
        """The watermark that was released when a batch came."""
        for cursor in self.lake.released_changes.cursors():
            if cursor.batch < batch:
                return cursor.watermarks.get(topic)
        return None

    def undecoded(self, texts: Sequence[str]) -> list[Row]:
        """The records in quarantine that name the table and all these values."""
        table = self.lake.quarantine
        files = [f for f in table.files() if f.rows]
        if not files or not texts:
            return []
        columns = ("stage", "reason", "message", "topic", "partition", "offset", "database", "table", "column", "value")
        wanted = [_word(text) for text in (self.table, *texts)]
        return [
            {c: row[c] for c in columns[:6]}
            for row in table.fetch(files, *columns).to_pylist()
            if row["column"] is None and row["value"] and all(w.search(row["value"]) for w in wanted)
        ]


def _word(text: str) -> re.Pattern[bytes]:
    return re.compile(rb"(?<![A-Za-z0-9_])" + re.escape(text.encode()) + rb"(?![A-Za-z0-9_])")


def _what_happened(change: Row) -> tuple[Any, ...]:
    """By which a repeat is known: the source's own time, the operation, and the place in the binlog or the images.

    A change of the key is two changes, with an image each.
    """
    time = change.get("event_ts") or change["commit_ts"]
    if change.get("source"):
        return time, change["op"], change["source"]
    images = [
        json.loads(change[image]) if change.get(image) and change["op"] not in without else None
        for image, without in (("before", {str(Op.INSERT), str(Op.SNAPSHOT)}), ("after", {str(Op.DELETE)}))
    ]
    return time, change["op"], images


def _gone(event: Row) -> bool:
    return bool(event["op"] == str(Op.DELETE))


def held_by(hold: Hold, feed: str) -> str:
    """What a table waits for, in words."""
    at, first = f"the table is held from commit_ts {hold.since} ({time_text(hold.since)}) on", hold.first
    match hold.reason:
        case HoldReason.SCHEMA:
            brings = "a BOOTSTRAP or DDL message of the table brings it"
            why = f"the schema {first.get('schema_version')} of its rows has not come; {brings}"
        case HoldReason.TYPE:
            give = "give its type under columns: in the feeds file, or set type_mapping: warn for the table"
            advice = first.get("advice", give)
            why = f"a type mapping is broken in column {first.get('column')}: {first.get('told')}; {advice}"
        case HoldReason.LOAD:
            why = f"its dump cannot be loaded: {first.get('why')}"
        case HoldReason.LINKED:
            why = f"{first.get('why')}: {first.get('statement')}"
        case HoldReason.DDL:
            decide = f"cdc-assets acknowledge {feed} {first.get('statement_id')} ..."
            why = f"{first.get('why')}: {first.get('statement')}; decide with {decide}"
        case HoldReason.WRITE:
            again = f"cdc-assets retry {feed} {hold.database}.{hold.table}"
            why = (
                f"its history cannot be written, since {first.get('failing_since')}: {first.get('why')}; mend the cause, "
                f"and have it tried again with {again}; so it is when changes of it are released, when the feed's "
                "settings or the version of cdc-assets change, and from time to time"
            )
    return f"{at}: {why}"
