"""Group the row events of a run in one aggregation, and count them by what a release made of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.release.base import EventGroup, Part, QualifiedName
from cdc_assets.release.changes import hash_group
from cdc_assets.release.late import LateEvents
from cdc_assets.release.source_snapshots import snapshot_aggregates, snapshot_read

# What the first event without a schema shows to people, beside its Kafka time.
_NAMED_SCHEMA = ("table_id", "schema_version", "topic", "partition", "offset")


def group_events(
    events: DataFrame, group_columns: Sequence[str], batch: int, *, has_snapshots: bool, collects_keys: bool
) -> list[EventGroup]:
    """Count row events in groups.

    Args:
        events: row events with `part` STRING, `taken` BOOLEAN and `reached` BOOLEAN.
        group_columns: as `Gate.group_columns`.
        batch: the newest raw batch of the release before.
        has_snapshots: whether the protocol has connector snapshots.
        collects_keys: whether to collect the hash of each event's key; for few events only.
    """
    keys: list[Column | str] = [
        *("part", "taken", "reached", "database", "table", "layout_id"),
        (F.col("batch") > batch).alias("new"),
        F.col("key").isNull().alias("unkeyed"),
        F.col("source").isNotNull().alias("placed"),
        *([snapshot_read().alias("read")] if has_snapshots else []),
    ]
    record_ms = F.unix_millis("record_timestamp").alias("record_ms")
    sample = F.struct("layout", "jdbc_types", "key_columns", *_NAMED_SCHEMA, record_ms)
    hashes = F.collect_list(hash_group(*group_columns)) if collects_keys else F.array().cast("array<bigint>")
    groups = events.groupBy(*keys).agg(
        F.count("*").alias("count"),
        F.min("commit_ts").alias("first"),
        F.max("commit_ts").alias("last"),
        F.min("batch").alias("batch"),
        F.count("key_before").alias("moved"),
        hashes.alias("keys"),
        F.min_by(sample, "commit_ts").alias("sample"),
        *(snapshot_aggregates() if has_snapshots else []),
    )
    return [EventGroup(**r) for r in groups.toArrow().to_pylist()]


def have_distinct_keys(groups: Sequence[EventGroup]) -> bool:
    """Return whether no event of groups with `keys` changes its key, and no two events have the same hash."""
    keys = [key for g in groups for key in g.keys]
    return len(set(keys)) == len(keys) and not any(g.moved for g in groups)


def count_by_table(groups: Iterable[EventGroup]) -> dict[QualifiedName, int]:
    """Return (database, table) -> the number of row events."""
    counts: dict[QualifiedName, int] = {}
    for g in groups:
        counts[g.database, g.table] = counts.get((g.database, g.table), 0) + g.count
    return counts


def find_first_events(groups: Iterable[EventGroup]) -> dict[QualifiedName, dict[str, Any]]:
    """Return (database, table) -> the coordinates, schema number and Kafka time of the first event of the groups."""
    first = {(g.database, g.table): g.sample for g in sorted(groups, key=lambda g: g.first, reverse=True)}
    return {name: {field: sample[field] for field in (*_NAMED_SCHEMA, "record_ms")} for name, sample in first.items()}


@dataclass(frozen=True)
class EventCounts:
    """How many row events a release has processed, and how many are pending after it."""

    rows: int = 0  # new since the release before
    window: int = 0  # in the release window, as counted before the deduplication
    excluded: int = 0  # of tables that the feeds file leaves out
    covered: int = 0  # at or below the position of their table's dump
    pending: int = 0  # all pending ones after the release
    oldest_pending: int = 0  # the oldest raw batch that may have a pending event; 0 without one

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
        oldest_pending=min(batches) if pending else 0,
    )


def _sum_counts(groups: Iterable[EventGroup]) -> int:
    return sum(g.count for g in groups)
