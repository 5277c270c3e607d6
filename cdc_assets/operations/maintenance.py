"""Maintenance: small files into larger ones, files that no version needs removed, and old raw records deleted."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.gate.window import gate_of, waiting_tables
from cdc_assets.lakehouse import Lakehouse, LakeTable, history_tables, next_sequence
from cdc_assets.protocols import has_watermarks
from cdc_assets.protocols.events import Kind


@dataclass(frozen=True)
class Compaction:
    """What OPTIMIZE did to one table."""

    table: str
    removed: int  # files
    added: int


def tables(lake: Lakehouse) -> list[LakeTable]:
    """Every table of the feed that is there."""
    stages = [lake.raw_records, lake.change_events, lake.table_schemas, lake.released_changes, lake.quarantine]
    every = [*stages, *(lake.history(*name) for name in history_tables(lake.root, lake.feed))]
    return [table for table in every if table.exists()]


def compact(lake: Lakehouse) -> Iterator[Compaction]:
    """OPTIMIZE each table of the feed: the rows stay, and so do the cursors."""
    for table in tables(lake):
        done = table.delta().optimize().executeCompaction().select("metrics.*").head()
        yield Compaction(table.name, done["numFilesRemoved"] if done else 0, done["numFilesAdded"] if done else 0)


def vacuum(lake: Lakehouse, hours: float) -> None:
    """VACUUM each table of the feed: remove the files that no version younger than so many hours needs.

    Delta refuses fewer hours than the table's `delta.deletedFileRetentionDuration`, a week.
    """
    for table in tables(lake):
        table.delta().vacuum(hours)


def trim(lake: Lakehouse, feed: Feed, before: datetime) -> int:
    """Delete old raw records, a batch whole or not at all: the oldest batches, up to one that is still needed.

    Needed is a batch with a record whose Kafka time is not before the instant, with an event that is not released yet, or
    that the gate has not looked at. Audits begin after what is deleted, and a rebuild is no longer possible.

    Args:
        lake: the feed's tables.
        feed: a feed of a broker; recorded files may be read again, and would bring back what is deleted.
        before: only records older than that.

    Returns:
        How many records were deleted.

    Raises:
        ValueError: the feed reads recorded files.
        ConcurrentRunError: a run committed to raw_records meanwhile.
    """
    if feed.source.kafka is None:
        raise ValueError("Only of a feed with source.kafka: recorded files may be read again.")
    released, cursor = lake.released_changes.cursor(), lake.raw_records.cursor()
    if released is None or cursor is None:
        return 0
    records = lake.raw_records.read()
    young = records.where(F.col("timestamp") >= F.lit(before)).agg(F.min("batch")).head()
    bounds = [released["batch"] + 1, young[0] if young else None]
    if has_watermarks(feed, released["partition_watermarks"]):
        mark = gate_of(released["watermarks"], waiting_tables(released))
        changes = F.col("kind").isin(str(Kind.ROW), str(Kind.DDL))
        pending = lake.change_events.read().where(changes & (F.col("commit_ts") >= mark)).agg(F.min("batch")).head()
        bounds.append(pending[0] if pending else None)
    elif released["pending"]:
        return 0  # held back until their transaction is whole; where they begin, a later run tells
    through = min(bound for bound in bounds if bound is not None) - 1
    old = F.col("batch") <= through
    count = records.where(old).count()
    if count:
        with lake.raw_records.transaction(cursor | {"sequence": next_sequence(cursor), "trimmed": through}):
            lake.raw_records.delta().delete(old)
    return count
