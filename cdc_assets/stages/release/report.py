"""What one run of the stage did."""

from dataclasses import dataclass, field
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.lakehouse.released_changes import (
    Hold,
    LoadedTable,
    PartitionWatermarks,
    ReleaseCursor,
    TableScan,
    TopicWatermarks,
)
from cdc_assets.release.watermarks import has_watermarks
from cdc_assets.release.window import EventCounts


@dataclass(frozen=True)
class ReleaseReport(EventCounts):
    """What one run of the stage did. Counts are of row events."""

    release: int | None = None  # number of the release; None: the run made no commit
    released: int = 0
    duplicate: int = 0
    late_repeated: int = 0  # late duplicates of released changes, which are harmless
    late_unseen: int = 0  # late and never seen before
    pending_before: int = 0
    ddl: int = 0
    tables: int = 0  # tables with changes
    watermarks: TopicWatermarks = field(default_factory=dict)
    watermarks_before: TopicWatermarks = field(default_factory=dict)
    partition_watermarks: PartitionWatermarks = field(default_factory=dict)
    late_sample: list[dict[str, Any]] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    newest: int = 0  # as `ReleaseCursor.newest`
    source: int = 0  # as `ReleaseCursor.source`
    loaded: list[LoadedTable] = field(default_factory=list)  # tables that this run loaded from a dump
    total: dict[str, int] = field(default_factory=dict)  # as `ReleaseCursor.totals`
    scans: list[TableScan] = field(default_factory=list)  # as `ReleaseCursor.scans`
    overtaken: list[dict[str, Any]] = field(default_factory=list)  # pending DDL events that other topics have passed


def report_state(feed: Feed, before: ReleaseCursor, after: ReleaseCursor) -> ReleaseReport:
    """Return a report with the gate's state before and after a run, without the run's counts."""
    marks = after.partition_watermarks
    return ReleaseReport(
        watermarks=after.watermarks,
        watermarks_before=before.watermarks,
        partition_watermarks=marks if has_watermarks(feed, marks) else {},
        pending=after.pending,
        pending_before=before.pending,
        holds=after.holds,
        newest=after.newest,
        source=after.source,
        total=after.totals,
        scans=after.scans,
    )
