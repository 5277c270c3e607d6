"""commit_ts: a TiDB TSO, `physical milliseconds << 18 | logical counter`. All sources share this time axis."""

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

TSO_LOGICAL_BITS = 18

# A position as a person enters it: a commit_ts, or a time (also as ISO 8601 text; UTC without a zone).
Position = int | datetime | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_milliseconds(milliseconds: Column) -> Column:
    """Return the commit_ts for a source that has no TSO: its own milliseconds, with a logical counter of 0."""
    return F.shiftleft(milliseconds, TSO_LOGICAL_BITS)


def to_milliseconds(commit_ts: Column) -> Column:
    """Return the physical milliseconds of a commit_ts. BIGINT."""
    return F.shiftright(commit_ts, TSO_LOGICAL_BITS)


def to_timestamp(commit_ts: Column) -> Column:
    """Return the physical time of a commit_ts. TIMESTAMP."""
    return F.timestamp_millis(to_milliseconds(commit_ts))


def first_commit_ts(time: datetime) -> int:
    """Return the lowest commit_ts of the millisecond that contains `time`."""
    return int(time.timestamp() * 1000) << TSO_LOGICAL_BITS


def time_of(commit_ts: int) -> datetime:
    """Return the physical time of a commit_ts."""
    return datetime.fromtimestamp((commit_ts >> TSO_LOGICAL_BITS) / 1000, tz=UTC)


def time_text(commit_ts: int) -> str:
    """Return the physical time of a commit_ts as text, to the millisecond."""
    return f"{time_of(commit_ts):%Y-%m-%d %H:%M:%S}.{(commit_ts >> TSO_LOGICAL_BITS) % 1000:03} UTC"


def parse_position(position: Position) -> int:
    """Return the commit_ts of a position; of a time, the last commit_ts of its millisecond.

    The last one, so that a query as of a time includes every version whose `_cdc_valid_from` is not after that time.

    Raises:
        ValueError: `position` is neither a commit_ts nor a time; the message says what is allowed.
    """
    if isinstance(position, int):
        return position
    if isinstance(position, str):
        if position.isascii() and position.isdigit():
            return int(position)
        try:
            time = datetime.fromisoformat(position)
        except ValueError:
            raise ValueError(
                f"{position} is not a position; allowed: a commit_ts, or a time in ISO 8601 such as 2024-05-01T10:00:00Z"
            ) from None
    else:
        time = position
    since_epoch = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    return (since_epoch // timedelta(milliseconds=1) + 1 << TSO_LOGICAL_BITS) - 1
