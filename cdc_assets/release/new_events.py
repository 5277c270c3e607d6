"""The events that came since the last release: the input of the gate."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import PartitionWatermarks, ReleaseCursor


@dataclass(frozen=True)
class NewEvents:
    """The input of one run of the gate.

    Attributes:
        cursor: the cursor of the release before.
        last_batch: the newest raw batch of change_events.
        row_files: all files of row events.
        ddl: the DDL events that are new or may be pending.
        watermarks: the largest new watermark of each partition.
        has_markers: whether new transaction markers are among the events.
        newest: the newest Kafka time of the new events, in milliseconds.
        source: the newest source time that the new events state, in milliseconds; never later than their Kafka time.
        notifications: all of a connector's snapshot notifications, if some are new; else none.
    """

    cursor: ReleaseCursor
    last_batch: int
    row_files: Sequence[DataFile]
    ddl: list[dict[str, Any]]
    watermarks: PartitionWatermarks
    has_markers: bool
    newest: int
    source: int
    notifications: list[dict[str, Any]]

    @property
    def new_row_files(self) -> list[DataFile]:
        """The files with row events of new batches."""
        return [f for f in self.row_files if f.high["batch"] > self.cursor.batch]

    @property
    def rows(self) -> int:
        """How many row events the files with new batches have."""
        return sum(f.rows for f in self.new_row_files)

    @property
    def highest(self) -> int:
        """The highest commit_ts of a new row event; -1 without one."""
        return max((f.high["commit_ts"] for f in self.new_row_files), default=-1)


def kafka_time(file: DataFile) -> int:
    """Return the newest Kafka time of a file's events, in milliseconds."""
    newest: datetime = file.high["record_timestamp"]
    return round(newest.timestamp() * 1000)
