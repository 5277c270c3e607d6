"""commit_ts: a TiDB TSO, physical milliseconds << 18 | a logical counter. One axis for all sources."""

from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

TSO_LOGICAL_BITS = 18


def from_milliseconds(milliseconds: Column) -> Column:
    """The commit_ts of a source that has none: its own milliseconds."""
    return F.shiftleft(milliseconds, TSO_LOGICAL_BITS)


def to_milliseconds(commit_ts: Column) -> Column:
    """The physical part."""
    return F.shiftright(commit_ts, TSO_LOGICAL_BITS)


def instant(commit_ts: Column) -> Column:
    """The physical part, TIMESTAMP."""
    return F.timestamp_millis(to_milliseconds(commit_ts))


def at(time: datetime) -> int:
    """The first commit_ts of an instant."""
    return int(time.timestamp() * 1000) << TSO_LOGICAL_BITS


def time_of(commit_ts: int) -> datetime:
    """The physical part, as an instant."""
    return datetime.fromtimestamp((commit_ts >> TSO_LOGICAL_BITS) / 1000, tz=UTC)


def time_text(commit_ts: int) -> str:
    """The physical part, to the millisecond, for people."""
    return f"{time_of(commit_ts):%Y-%m-%d %H:%M:%S}.{(commit_ts >> TSO_LOGICAL_BITS) % 1000:03} UTC"
