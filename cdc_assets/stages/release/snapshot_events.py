"""Read the events of a connector's snapshots, and whether undecodable records may hide some of them."""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import SourceSnapshot, TableScan
from cdc_assets.release.new_events import kafka_time
from cdc_assets.release.table_scans import SLACK, ScanEvents, summarize_scans
from cdc_assets.spark.session import session_for
from cdc_assets.tso import TSO_LOGICAL_BITS

# The source's clock has seconds.
_SECOND = 1000


def find_scan_events(
    lake: Lakehouse, scans: Sequence[TableScan], row_files: Iterable[DataFile], part: Column, deleted: int
) -> list[ScanEvents | None]:
    """Return the events of each scan, in order; None if maintenance may have deleted events or changes of it.

    Args:
        lake: the feed's tables.
        scans: the scans.
        row_files: all files of row events.
        part: the `Part` of a row event after the release.
        deleted: the commit_ts up to which maintenance has deleted changes.
    """
    first = min(s.first for s in scans) - SLACK
    files = [f for f in row_files if kafka_time(f) >= first]
    spark = session_for(lake.spark, sum(f.rows for f in files))
    through = max((f.high["batch"] for f in files), default=0)
    since = (F.col("batch") <= through) & (F.col("record_timestamp") >= F.timestamp_millis(F.lit(first)))
    events = lake.change_events.read(spark).where((F.col("kind") == str(Kind.ROW)) & since)
    decoded = lake.change_events.cursor()
    deleted_ms = decoded.trimmed_newest if decoded else 0
    result: list[ScanEvents | None] = []
    for scan, of_scan in zip(scans, summarize_scans(events, scans, part), strict=True):
        low, high = scan.first - SLACK, scan.last + SLACK
        has_undecodable = has_undecodable_records(lake, of_scan.begun, low, high)
        is_kept = low > deleted_ms and of_scan.since > deleted
        has_unreleased = of_scan.has_unreleased or has_undecodable
        result.append(of_scan._replace(has_unreleased=has_unreleased) if is_kept else None)
    return result


def may_lack_reads(lake: Lakehouse, snapshot: SourceSnapshot) -> bool:
    """Return whether undecodable records came between a snapshot's reads, so that reads may be in quarantine."""
    begin = min(snapshot.first, snapshot.at >> TSO_LOGICAL_BITS) - _SECOND
    return has_undecodable_records(lake, snapshot.topics, begin, snapshot.last)


def has_undecodable_records(lake: Lakehouse, topics: Collection[str], first_ms: int, last_ms: int) -> bool:
    """Return whether topics have undecodable records with Kafka times from `first_ms` to `last_ms`."""
    low, high = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (first_ms, last_ms))
    files = [f for f in lake.change_events.files(kind=str(Kind.UNDECODABLE)) if f.high["record_timestamp"] >= low]
    undecodable = lake.change_events.fetch(files, "topic", "record_timestamp").to_pylist()
    return any(r["topic"] in topics and low <= r["record_timestamp"] <= high for r in undecodable)
