"""commit_ts: a TiDB TSO, physical milliseconds << 18 | a logical counter. One axis for all sources."""

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

TSO_LOGICAL_BITS = 18

# A position as people give it: a commit_ts, or a time (also as text in ISO 8601; without a zone, UTC).
Position = int | datetime | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def position_of(given: Position) -> int:
    """The commit_ts that a position stands for: of a time the last one of its millisecond.

    So that what is there as of a time is what has `_cdc_valid_from` up to it.

    Raises:
        ValueError: it is neither a commit_ts nor a time; the message says what is allowed.
    """
    if isinstance(given, int):
        return given
    if isinstance(given, str):
        if given.isascii() and given.isdigit():
            return int(given)
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise ValueError(
                f"{given}: no position; allowed: a commit_ts, or a time in ISO 8601 such as 2024-05-01T10:00:00Z"
            ) from None
    since = (given if given.tzinfo else given.replace(tzinfo=UTC)) - _EPOCH
    return (since // timedelta(milliseconds=1) + 1 << TSO_LOGICAL_BITS) - 1
