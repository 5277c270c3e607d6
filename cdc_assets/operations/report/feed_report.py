"""What a report says about a feed, as plain values."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.operations.finality import FinalPosition

Row = dict[str, Any]

_OK = "ok"


@dataclass(frozen=True)
class ReleaseCounts:
    """What one release did.

    Attributes:
        number: the release's number.
        time: the time of its commit.
        window: row events that it released, and their duplicates.
        late: row events that came below the watermark released before, duplicates included.
        pending: row events that it left pending.
        lag_seconds: seconds from the lowest released watermark to the newest Kafka time; None: the feed has no watermarks.
    """

    number: int
    time: datetime
    window: int
    late: int
    pending: int
    lag_seconds: float | None


@dataclass(frozen=True)
class PartitionState:
    """A partition of the feed's topics.

    Attributes:
        topic: its topic.
        partition: its number.
        first: the first ingested offset.
        last: the last ingested offset.
        watermark: the time of its largest watermark; None: it has shown none.
        released: the time of the topic's released watermark; None: there is none.
    """

    topic: str
    partition: int
    first: int
    last: int
    watermark: datetime | None
    released: datetime | None


@dataclass(frozen=True)
class TableState:
    """A history table, or a blocked table that has none yet.

    Attributes:
        database: the source's database.
        table: the source's table.
        current: the number of open versions.
        versions: the number of versions.
        newest: the time of its newest change; None: it has none.
        final: up to which position it can no longer change.
        blocked_by: what blocks it; None: it is not blocked.
        reload_after: the statement after which it must be loaded again; None: there is none.
    """

    database: str
    table: str
    current: int
    versions: int
    newest: datetime | None
    final: FinalPosition
    blocked_by: str | None
    reload_after: str | None


@dataclass(frozen=True)
class QuarantinedInput:
    """What is in quarantine for one reason.

    Attributes:
        reason: its code.
        rows: the number of rows.
        message: what the reason means.
        samples: the newest of them: coordinates, table, column, and how the value begins.
    """

    reason: str
    rows: int
    message: str
    samples: list[Row]


@dataclass(frozen=True)
class FeedReport:
    """The state of a feed.

    Attributes:
        feed: its name.
        protocol: its protocol, as the feeds file names it.
        made_at: when the state was read.
        counts: what is counted -> how many there are since the feed began.
        partitions: by topic and number.
        tables: by database and name.
        releases: the newest ones, oldest first.
        types: the observed column types, those that break a mapping first: database, table, column, mysql_type, stated (what
            the messages state), expected, mysql_type_verdict, code_verdict, events_sum.
        statements: the newest DDL statements, newest first: time, commit_ts, database, table, ddl_statement, error.
        statement_count: the number of all DDL statements.
        quarantine: by number of rows, most first.
    """

    feed: str
    protocol: str
    made_at: datetime
    counts: dict[str, int]
    partitions: list[PartitionState]
    tables: list[TableState]
    releases: list[ReleaseCounts]
    types: list[Row]
    statements: list[Row]
    statement_count: int
    quarantine: list[QuarantinedInput]

    @property
    def attention(self) -> list[str]:
        """What a person must look at, a sentence each."""
        sentences = [f"{t.database}.{t.table}: {t.blocked_by}." for t in self.tables if t.blocked_by]
        sentences += [
            f"{t.database}.{t.table} must be loaded again since this statement: {t.reload_after}"
            for t in self.tables
            if t.reload_after
        ]
        if broken := sum(map(breaks_mapping, self.types)):
            sentences.append(f"{broken} observations of column types break a mapping: see Types below.")
        if late := self.counts["late, never seen"]:
            sentences.append(f"{late} row events came late and were never seen before: no history has them.")
        return sentences + [
            f"{q.rows} rows are in quarantine for {q.reason}: see Quarantine below."
            for q in self.quarantine
            if q.reason != Reason.ZERO_DATE
        ]


def breaks_mapping(observation: Row) -> bool:
    """Return whether an observation of `FeedReport.types` breaks a type mapping."""
    return {observation["mysql_type_verdict"], observation["code_verdict"]} != {_OK}
