"""raw_records: the Kafka records, verbatim, each (topic, partition, offset) once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, BINARY, INT, STRING, TIMESTAMP, array, column, struct
from cdc_assets.lakehouse.table import Definition, LakeTable

Offsets = dict[str, dict[str, list[int]]]  # topic -> partition -> [lowest, highest]


class RecordPlace(NamedTuple):
    """The coordinates of a Kafka record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"


def record_place(row: Mapping[str, Any]) -> RecordPlace:
    """Return the coordinates of the record that a row comes from, by its columns topic, partition and offset."""
    return RecordPlace(row["topic"], row["partition"], row["offset"])


@dataclass(frozen=True, kw_only=True)
class RawCursor(Cursor):
    """How far the source has been read; `sequence` is the number of the batch.

    Attributes:
        files: of recorded snapshots: name -> [size, modification time in ns] of the files that were ingested.
        offsets: topic -> partition -> [lowest, highest] ingested offset, for every partition that has records.
        records: how many records were ingested before this batch.
        ids: of a broker: topic -> its id; None if the broker has no topic ids, "" if the topic was deleted.
        recreated: topic -> the batches that begin with a new topic of the same name, which has another id.
        plan: the offsets that a run has decided to read and not yet read (`sources.kafka.Plan`).
        trimmed: the batch up to which maintenance has deleted the records.
        rebuilding: whether a rebuild of the feed is under way.
    """

    files: dict[str, list[int]] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    records: int = 0
    ids: dict[str, str | None] | None = None
    recreated: dict[str, list[int]] = field(default_factory=dict)
    plan: dict[str, Any] | None = None
    trimmed: int = 0
    rebuilding: bool = False


RAW_RECORDS = Definition(
    columns=StructType(
        [
            column("topic", STRING, "The Kafka record's topic."),
            column("partition", INT, "The Kafka record's partition."),
            column("offset", BIGINT, "The Kafka record's offset."),
            column("timestamp", TIMESTAMP, "Kafka's time of the record."),
            column("batch", BIGINT, "Number of the commit that ingested the record: later stages read by it."),
            column("key", BINARY, "The Kafka record's key, byte for byte."),
            column("value", BINARY, "The Kafka record's value, byte for byte."),
            column("headers", array(struct(key=STRING, value=BINARY)), "The Kafka record's headers."),
            # An INT, because Delta keeps no statistics of a BOOLEAN.
            column("compressed", INT, "1 if the value may be compressed; else null."),
        ]
    ),
    cursor=RawCursor,
    statistics=("topic", "partition", "offset", "batch", "compressed"),
)


def cursor_to_continue(table: LakeTable[RawCursor]) -> RawCursor | None:
    """Return the newest cursor with the records of its own commit added, for the next commit; None without a commit."""
    newest = table.cursor_with_commit()
    return replace(newest.cursor, records=newest.cursor.records + newest.commit.rows) if newest else None
