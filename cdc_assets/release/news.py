"""What is new to the gate since its last release: told by the log and the small files of change_events, without Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import PartitionWatermarks, ReleaseCursor
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.tso import TSO_LOGICAL_BITS

_DDL = [
    "topic", "partition", "offset", "index", "batch", "database", "table", "commit_ts", "source_ms", "ddl_type",
    "ddl_statement", "schema_version", "table_id", "source",
]  # fmt: skip

_NOTIFICATION = ["topic", "partition", "offset", "record_timestamp", "commit_ts", "detail"]


@dataclass(frozen=True)
class News:
    """What has come since a release.

    Attributes:
        cursor: of that release.
        through: the newest batch of change_events.
        row_files: all files of row events; `new_rows` are those with later batches.
        ddl: the statements that are new, or were pending.
        watermarks: the largest new one of each partition; None for a partition that has shown none.
        marked: whether there are new markers of transactions.
        newest: the newest Kafka time of any record, in milliseconds.
        source: the newest time of the source that any record tells, in milliseconds; never later than Kafka's.
        notifications: all that a connector tells of its snapshots, if there are new ones.
    """

    cursor: ReleaseCursor
    through: int
    row_files: Sequence[DataFile]
    ddl: list[dict[str, Any]]
    watermarks: PartitionWatermarks
    marked: bool
    newest: int
    source: int
    notifications: list[dict[str, Any]]

    @property
    def new_rows(self) -> list[DataFile]:
        """The files with row events of later batches."""
        return [f for f in self.row_files if f.high["batch"] > self.cursor.batch]

    @property
    def rows(self) -> int:
        """How many row events the new files hold."""
        return sum(f.rows for f in self.new_rows)

    @property
    def highest(self) -> int:
        """The highest commit_ts of new row events."""
        return max((f.high["commit_ts"] for f in self.new_rows), default=-1)


def news_of(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor) -> News | None:
    """What is new; None when there are no events."""
    events = lake.change_events.at_current_version()
    decoded = events.cursor()
    if decoded is None:
        return None
    files = events.files()
    new = [f for f in files if f.high["batch"] > cursor.batch]

    def of(kind: Kind) -> list[DataFile]:
        return [f for f in files if f.partition["kind"] == kind]

    promised = protocol_of(feed).watermarks(feed) is not Watermarks.NEVER
    return News(
        cursor=cursor,
        through=decoded.batch,
        row_files=of(Kind.ROW),
        ddl=_statements(lake, of(Kind.DDL), cursor),
        watermarks=_watermarks(lake, [f for f in new if f.partition["kind"] == Kind.WATERMARK], cursor)
        if promised
        else {},
        marked=any(f.partition["kind"] == Kind.TRANSACTION for f in new),
        newest=max(map(kafka_time, new), default=0),
        source=max(map(_source_time, new), default=0),
        notifications=_notifications(lake, of(Kind.NOTIFICATION), cursor) if feed.snapshots == "whole" else [],
    )


def kafka_time(file: DataFile) -> int:
    """The newest Kafka time of a file's events, in milliseconds."""
    told: datetime = file.high["record_timestamp"]
    return round(told.timestamp() * 1000)


def _source_time(file: DataFile) -> int:
    """A time that lies ahead, as a broken record may tell one, is not believed: with it a feed would be fresh for ever."""
    told, known = int(file.high.get("commit_ts") or 0) >> TSO_LOGICAL_BITS, kafka_time(file)
    return min(told, known) if known > 0 else told


def _statements(lake: Lakehouse, files: list[DataFile], cursor: ReleaseCursor) -> list[dict[str, Any]]:
    """The statements of later batches, and those at or above what was released of any topic or table."""
    lowest = min([*cursor.watermarks.values(), *(h.since for h in cursor.holds)], default=0)
    held_back = [cursor.transactions.oldest] if cursor.transactions.bounds else []
    oldest = min([cursor.batch + 1, *held_back, *(h.batch for h in cursor.holds if h.batch)])
    wanted = [f for f in files if f.high["batch"] >= oldest or f.high["commit_ts"] >= lowest]
    statements: list[dict[str, Any]] = lake.change_events.fetch(wanted, *_DDL).to_pylist()
    return statements


def _notifications(lake: Lakehouse, files: list[DataFile], cursor: ReleaseCursor) -> list[dict[str, Any]]:
    """All of them, if there are new ones: what ends now may have begun long before."""
    if not any(f.high["batch"] > cursor.batch for f in files):
        return []
    found: list[dict[str, Any]] = lake.change_events.fetch(files, *_NOTIFICATION).to_pylist()
    return found


def _watermarks(lake: Lakehouse, files: list[DataFile], cursor: ReleaseCursor) -> PartitionWatermarks:
    found = lake.change_events.fetch(files, "topic", "partition", "batch", "commit_ts")
    if not found.num_rows:
        return {}
    new = found.filter(pc.greater(found["batch"], pa.scalar(cursor.batch)))
    largest = new.group_by(["topic", "partition"]).aggregate([("commit_ts", "max")])
    marks: PartitionWatermarks = {}
    for r in largest.to_pylist():
        marks.setdefault(r["topic"], {})[str(r["partition"])] = r["commit_ts_max"]
    return marks
