"""Reads the state of a feed from cursors, Delta logs and small tables, without Spark, server or network."""

from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa

from cdc_assets.config import Feed
from cdc_assets.errors import first_line
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import MESSAGES, Reason
from cdc_assets.lakehouse.raw_records import cursor_to_continue
from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.operations.finality import FinalPosition, find_final_position
from cdc_assets.operations.holds import describe_hold
from cdc_assets.operations.report.feed_report import (
    FeedReport,
    PartitionState,
    QuarantinedInput,
    ReleaseCounts,
    Row,
    TableState,
    breaks_mapping,
)
from cdc_assets.stages.history.progress_file import list_holds
from cdc_assets.tso import TSO_LOGICAL_BITS, time_of

_MAX_RELEASES, _MAX_STATEMENTS, _MAX_SAMPLES = 100, 200, 5
_MAX_VALUE_BYTES = 200
_COLUMN = ["database", "table", "column"]
_TYPE_COLUMNS = [*_COLUMN, "mysql_type", "stated", "expected", "mysql_type_verdict", "code_verdict"]
_SAMPLE_COLUMNS = ("reason", "topic", "partition", "offset", "file", "line", *_COLUMN, "value")
_STATEMENT_COLUMNS = ("commit_ts", "database", "table", "ddl_statement", "error")


def collect_report(lake: Lakehouse, feed: Feed) -> FeedReport:
    """Return the state of a feed."""
    released = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
    statements = _read_statements(lake)
    return FeedReport(
        feed=lake.feed,
        protocol=feed.protocol,
        made_at=datetime.now(UTC),
        counts=_count_events(lake, released),
        partitions=_list_partitions(lake, released),
        tables=_list_tables(lake),
        releases=list_releases(lake),
        types=_read_types(lake),
        statements=statements[:_MAX_STATEMENTS],
        statement_count=len(statements),
        quarantine=_read_quarantine(lake),
    )


def list_releases(lake: Lakehouse) -> list[ReleaseCounts]:
    """Return the newest releases that Delta's log still has, at most 100, oldest first.

    The oldest release in the log is left out, as its counts are differences to the release before it.
    """
    commits: dict[int, tuple[datetime, ReleaseCursor]] = {}
    for each in lake.released_changes.cursors_with_commits():
        commits[each.cursor.sequence] = each.commit.time, each.cursor
        if len(commits) > _MAX_RELEASES + 1:
            break
    ordered = sorted(commits.items())
    if ordered and ordered[0][0] == 1:
        ordered = [(0, (ordered[0][1][0], ReleaseCursor(sequence=0))), *ordered]
    return [
        ReleaseCounts(
            number,
            time,
            _count_since(before, cursor, "window"),
            _count_since(before, cursor, "late_repeated", "late_unseen"),
            cursor.pending,
            _compute_lag(cursor),
        )
        for (_, (_, before)), (number, (time, cursor)) in pairwise(ordered)
    ][-_MAX_RELEASES:]


def _count_since(before: ReleaseCursor, after: ReleaseCursor, *totals: str) -> int:
    return sum(after.totals.get(name, 0) - before.totals.get(name, 0) for name in totals)


def _compute_lag(cursor: ReleaseCursor) -> float | None:
    """Return the seconds from the lowest released watermark to the newest Kafka time; None: there is no watermark."""
    if not cursor.watermarks:
        return None
    return max(0, cursor.newest - (min(cursor.watermarks.values()) >> TSO_LOGICAL_BITS)) / 1000


def _count_events(lake: Lakehouse, released: ReleaseCursor) -> dict[str, int]:
    raw, quarantine = cursor_to_continue(lake.raw_records), lake.quarantine.cursor()
    totals = released.totals
    return {
        "records": raw.records if raw else 0,
        "row events": totals.get("rows", 0),
        "released, or duplicates": totals.get("window", 0),
        "pending": released.pending,
        "late, duplicates": totals.get("late_repeated", 0),
        "late, never seen": totals.get("late_unseen", 0),
        "excluded": totals.get("excluded", 0),
        "in quarantine": quarantine.rows if quarantine else 0,
    }


def _list_partitions(lake: Lakehouse, released: ReleaseCursor) -> list[PartitionState]:
    raw = lake.raw_records.cursor()
    return [
        PartitionState(
            topic,
            int(number),
            first,
            last,
            _to_time(released.partition_watermarks.get(topic, {}).get(number)),
            _to_time(released.watermarks.get(topic)),
        )
        for topic, partitions in sorted(raw.offsets.items() if raw else ())
        for number, (first, last) in sorted(partitions.items(), key=lambda each: int(each[0]))
    ]


def _list_tables(lake: Lakehouse) -> list[TableState]:
    """Return the state of every table that has a history or is blocked."""
    holds: dict[tuple[str, str], list[str]] = {}
    for hold in list_holds(lake):
        holds.setdefault((hold.database, hold.table), []).append(describe_hold(hold, lake.feed))
    return [_read_table(lake, name, holds.get(name, [])) for name in sorted({*lake.histories(), *holds})]


def _read_table(lake: Lakehouse, name: tuple[str, str], holds: list[str]) -> TableState:
    """Return the state of a table; an error in its log is part of it, so that the other tables are reported."""
    try:
        cursor, final = lake.history(*name).cursor(), find_final_position(lake, *name)
    except Exception as error:  # noqa: BLE001 -- whatever is wrong with one table, the page shows the others
        cursor, final = None, FinalPosition(-1, "the history cannot be read")
        holds = [*holds, f"its history cannot be read: {first_line(error)}"]
    cursor = cursor or HistoryCursor(sequence=0)
    return TableState(
        *name,
        current=cursor.current,
        versions=cursor.versions,
        newest=_to_time(cursor.newest),
        final=final,
        blocked_by="; ".join(holds) or None,
        reload_after=cursor.reload[0]["statement"] if cursor.reload else None,
    )


def _read_types(lake: Lakehouse) -> list[Row]:
    table = lake.type_observations
    observations: pa.Table = table.fetch(table.files(), *_TYPE_COLUMNS, "events")
    if not observations.num_rows:
        return []
    rows = observations.group_by(_TYPE_COLUMNS).aggregate([("events", "sum")]).to_pylist()
    return sorted(rows, key=lambda row: (not breaks_mapping(row), *(str(row[column]) for column in _TYPE_COLUMNS)))


def _read_statements(lake: Lakehouse) -> list[Row]:
    rows = [row for row in lake.schema_rows() if row["ddl_statement"] is not None]
    return [
        {"time": time_of(row["commit_ts"])} | {column: row[column] for column in _STATEMENT_COLUMNS}
        for row in sorted(rows, key=lambda row: (row["commit_ts"], row["offset"]), reverse=True)
    ]


def _read_quarantine(lake: Lakehouse) -> list[QuarantinedInput]:
    cursor = lake.quarantine.cursor()
    samples = _read_samples(lake)
    counts = sorted(cursor.reasons.items() if cursor else (), key=lambda each: (-each[1], each[0]))
    return [
        QuarantinedInput(reason, rows, MESSAGES[Reason(reason)], samples.get(reason, [])) for reason, rows in counts
    ]


def _read_samples(lake: Lakehouse) -> dict[str, list[Row]]:
    """Return quarantine reason -> the newest rows, at most five, each with the first 200 bytes of its value as text."""
    table = lake.quarantine
    samples: dict[str, list[Row]] = {}
    for file in sorted(table.files(), key=lambda file: file.high["batch"], reverse=True):
        # The statistics show a file of a single reason: do not open it once there are enough samples of that.
        low, high = file.low["reason"], file.high["reason"]
        if low == high and len(samples.get(low, ())) >= _MAX_SAMPLES:
            continue
        for row in table.fetch([file], *_SAMPLE_COLUMNS).to_pylist():
            of_reason = samples.setdefault(row["reason"], [])
            if len(of_reason) < _MAX_SAMPLES:
                value = row["value"]
                text = None if value is None else value[:_MAX_VALUE_BYTES].decode(errors="replace")
                of_reason.append(row | {"value": text})
    return samples


def _to_time(commit_ts: int | None) -> datetime | None:
    return time_of(commit_ts) if commit_ts is not None and commit_ts > 0 else None
