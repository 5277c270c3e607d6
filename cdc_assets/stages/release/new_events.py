"""Read the events that came since the last release, from the log and the small files of change_events, without Spark."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import PartitionWatermarks, ReleaseCursor
from cdc_assets.release.new_events import NewEvents, kafka_time
from cdc_assets.release.watermarks import may_have_watermarks
from cdc_assets.tso import TSO_LOGICAL_BITS

_DDL = [
    "topic", "partition", "offset", "index", "batch", "database", "table", "commit_ts", "source_ms", "sent_ms",
    "ddl_type", "ddl_statement", "schema_version", "table_id", "source",
]  # fmt: skip

_NOTIFICATION = ["topic", "partition", "offset", "record_timestamp", "commit_ts", "detail"]


def read_new_events(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor) -> NewEvents | None:
    """Return the events since a release; None if change_events has never had a commit."""
    events = lake.change_events.at_current_version()
    decoded = events.cursor()
    if decoded is None:
        return None
    files = events.files()
    new = [f for f in files if f.high["batch"] > cursor.batch]

    def select_kind(kind: Kind) -> list[DataFile]:
        return [f for f in files if f.partition["kind"] == kind]

    return NewEvents(
        cursor=cursor,
        last_batch=decoded.batch,
        row_files=select_kind(Kind.ROW),
        ddl=_read_statements(lake, select_kind(Kind.DDL), cursor),
        watermarks=_read_watermarks(lake, [f for f in new if f.partition["kind"] == Kind.WATERMARK], cursor)
        if may_have_watermarks(feed)
        else {},
        has_markers=any(f.partition["kind"] == Kind.TRANSACTION for f in new),
        newest=max(map(kafka_time, new), default=0),
        source=max(map(_source_time, new), default=0),
        notifications=_read_notifications(lake, select_kind(Kind.NOTIFICATION), cursor)
        if feed.snapshots == "whole"
        else [],
    )


def _source_time(file: DataFile) -> int:
    """Return the newest source time of a file's events, at most their Kafka time, in milliseconds.

    A broken record may state a time in the future, and with such a time the feed would count as fresh forever.
    """
    source, kafka = int(file.high.get("commit_ts") or 0) >> TSO_LOGICAL_BITS, kafka_time(file)
    return min(source, kafka) if kafka > 0 else source


def _read_statements(lake: Lakehouse, files: list[DataFile], cursor: ReleaseCursor) -> list[dict[str, Any]]:
    """Read the DDL events of the files that may have new or pending ones."""
    lowest = min([*cursor.watermarks.values(), *(h.since for h in cursor.holds)], default=0)
    held_back = [cursor.transactions.oldest] if cursor.transactions.bounds else []
    oldest = min([cursor.batch + 1, *held_back, *(h.batch for h in cursor.holds if h.batch)])
    may_be_pending = [f for f in files if f.high["batch"] >= oldest or f.high["commit_ts"] >= lowest]
    return lake.change_events.fetch_rows(may_be_pending, *_DDL)


def _read_notifications(lake: Lakehouse, files: list[DataFile], cursor: ReleaseCursor) -> list[dict[str, Any]]:
    """Read all notifications if some are new: a snapshot that ends now may have begun long before."""
    has_new = any(f.high["batch"] > cursor.batch for f in files)
    return lake.change_events.fetch_rows(files, *_NOTIFICATION) if has_new else []


def _read_watermarks(lake: Lakehouse, files: list[DataFile], cursor: ReleaseCursor) -> PartitionWatermarks:
    """Return the largest new watermark of each partition that has one."""
    rows = lake.change_events.fetch(files, "topic", "partition", "batch", "commit_ts")
    if not rows.num_rows:
        return {}
    new = rows.filter(pc.greater(rows["batch"], pa.scalar(cursor.batch)))
    largest = new.group_by(["topic", "partition"]).aggregate([("commit_ts", "max")])
    marks: PartitionWatermarks = {}
    for r in largest.to_pylist():
        marks.setdefault(r["topic"], {})[str(r["partition"])] = r["commit_ts_max"]
    return marks
