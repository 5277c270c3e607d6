"""released_changes: the changes that the gate has released, each once."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.change_events import CHANGE_EVENTS
from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.initial_load import RefusedLoad
from cdc_assets.lakehouse.schema import BIGINT, BOOLEAN, INT, STRING, array, column
from cdc_assets.lakehouse.table import Definition
from cdc_assets.tso import time_text

PartitionWatermarks = dict[str, dict[str, int | None]]  # topic -> partition -> largest watermark seen in the partition
TopicWatermarks = dict[str, int]  # topic -> commit_ts; without the topics of which nothing may be released


class HoldReason(StrEnum):
    """Why a table is held."""

    SCHEMA = "schema"  # the schema that a row names has not come
    DDL = "ddl"  # a person must decide about a statement
    TYPE = "type"  # an event breaks a type mapping
    LINKED = "linked"  # a statement names this table and another one, which is held
    LOAD = "load"  # the table's dump cannot be loaded
    # Two writes of the history failed; only the stage history knows this hold, no release cursor has it.
    WRITE = "write"


@dataclass(frozen=True)
class Hold:
    """A table whose events are not released from a position on, and why: an entry of the list of holds.

    Attributes:
        database: the source's database.
        table: the source's table.
        since: with watermarks, the commit_ts from which on the table's events are pending.
        reason: why the table is held.
        events: how many of the table's row events are held.
        first: the first event that is held: topic, partition, offset, and more depending on the reason.
        batch: without watermarks, the raw batch from which on the table's events are pending.
    """

    database: str
    table: str
    since: int
    reason: HoldReason
    events: int
    first: dict[str, Any]
    batch: int = 0

    def row(self) -> dict[str, Any]:
        """Return the hold for people, with its time as text."""
        own = {"database": self.database, "table": self.table, "since": self.since, "since_time": time_text(self.since)}
        return own | {"reason": str(self.reason), "events": self.events} | self.first


@dataclass(frozen=True)
class Transactions:
    """The events of a feed with transaction markers that are held back until their transaction is complete.

    Attributes:
        marked: whether the feed has had markers.
        bounds: topic -> partition -> the first offset that is held back.
        oldest: the oldest raw batch of the events and markers that are held back; 0 without one.
        tables: (database, table) of every table that the feed has had events of.
    """

    marked: bool = False
    bounds: dict[str, dict[str, int]] = field(default_factory=dict)
    oldest: int = 0
    tables: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Trimmed:
    """The releases that maintenance has deleted.

    Attributes:
        release: the newest deleted release.
        highest: the highest commit_ts of a deleted change; -1 if nothing was deleted.
        events: how many row events the deleted changes stood for.
        repeats: how many duplicates of these events were dropped.
    """

    release: int = 0
    highest: int = -1
    events: int = 0
    repeats: int = 0


@dataclass(frozen=True)
class LoadedTable:
    """A table that was loaded from a dump, which contains all changes at or below its position.

    Attributes:
        database: the source's database.
        table: the source's table.
        position: the dump's position.
        rows: how many rows the dump has.
        is_reload: whether the table had changes before, so that the dump replaces its rows; else its history begins there.
        typed: how many of the rows are stored typed, in `folder`; the others are in released_changes, with kind `loaded`.
        folder: the folder of the typed rows, below `Lakehouse.loaded_rows`; "" without typed rows.
        release: the release that loaded the table; set with typed rows only.
    """

    database: str
    table: str
    position: int
    rows: int
    is_reload: bool = False
    typed: int = 0
    folder: str = ""
    release: int = 0


@dataclass(frozen=True)
class SourceSnapshot:
    """The released reads of one table in a snapshot that the source's connector took.

    Attributes:
        database: the source's database.
        table: the source's table.
        file: the binlog file at which the snapshot was taken.
        position: the position in that file.
        at: the lowest commit_ts of the reads.
        until: the highest commit_ts of the reads.
        since: the lowest commit_ts of all changes of the table from the first release with reads to the last.
        topics: the topics of the reads.
        markers: the values of Debezium's `source.snapshot` in the reads.
        first: the lowest Kafka time of the reads, in milliseconds.
        last: the highest Kafka time of the reads, in milliseconds.
        initial: whether the table had no rows before, so that no row can be missing from the snapshot.
        ended: whether all reads have come, by the markers.
        release: the last release that has reads of the snapshot, or that found it complete; 0 without one, and if `initial`.
    """

    database: str
    table: str
    file: str
    position: int
    at: int
    until: int
    since: int
    topics: list[str]
    markers: list[str]
    first: int
    last: int
    initial: bool = False
    ended: bool = False
    release: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether the snapshot has all rows of the table, so that rows which it lacks were deleted."""
        return bool(self.release)


@dataclass(frozen=True)
class LogPlace:
    """A position in a binlog.

    Attributes:
        log: a hash of the server and the name of its log.
        number: the number of a file of the log.
        position: the position in that file.
    """

    log: int
    number: int
    position: int


@dataclass(frozen=True)
class TableScan:
    """The scan of one table in an incremental snapshot of the source's connector.

    Attributes:
        database: the source's database.
        table: the source's table.
        at: the commit_ts at which the snapshot began.
        until: the commit_ts at which the scan of the table ended.
        first: the Kafka time of the notification that the snapshot began, in milliseconds.
        last: the Kafka time of the notification that the scan ended, in milliseconds.
        rows: how many rows the connector has read at least.
        since: the lowest commit_ts among the beginning and the table's changes since then.
        begun: topic -> partition -> the first offset of the table's changes since the beginning.
        places: in each server's log, the first of the table's changes between beginning and end.
        is_complete: whether all rows are read and released, so that rows which the scan lacks were deleted.
        why_not: why the scan is not complete, for people.
        release: the last release that has changes before the end, or that changed `is_complete`; 0 without one.
    """

    database: str
    table: str
    at: int
    until: int
    first: int
    last: int
    rows: int
    since: int = 0
    begun: dict[str, dict[str, int]] = field(default_factory=dict)
    places: list[LogPlace] = field(default_factory=list)
    is_complete: bool = False
    why_not: str = ""
    release: int = 0

    def row(self) -> dict[str, Any]:
        """Return the scan for people, with its times as text."""
        times = {"began": time_text(self.at), "ended": time_text(self.until)}
        result = {"rows": self.rows, "ends_rows": self.is_complete, "why_not": self.why_not}
        return {"database": self.database, "table": self.table} | times | result


@dataclass(frozen=True)
class LeftOut:
    """The changes of a table that the feed's `tables:` leave out while the table has a history.

    Attributes:
        database: the source's database.
        table: the source's table.
        events: how many row events and statements are left out.
        last: the highest commit_ts of these.
    """

    database: str
    table: str
    events: int
    last: int


# What can state all rows of a table, so that its other rows were deleted.
ConnectorSnapshot = SourceSnapshot | TableScan


@dataclass(frozen=True, kw_only=True)
class ReleaseCursor(Cursor):
    """How far the gate has come; `sequence` is the number of the release.

    Attributes:
        batch: the newest raw batch whose events the gate has read.
        partition_watermarks: the largest watermark of each partition.
        watermarks: topic -> the released watermark: events below it, and no others, may be dropped as late.
        tables: [database, table, row events let through] of this release.
        pending: how many row events are not released.
        oldest_pending: the oldest raw batch that may have pending events; 0 without one.
        holds: the list of holds.
        schemas: the sequence of table_schemas that was used for the holds.
        settings: the feed's settings that the holds depend on.
        highest: the highest commit_ts of any row event so far: an event above it cannot be a duplicate.
        newest: the newest Kafka time of any record so far, in milliseconds.
        source: the newest source time that any record states, in milliseconds.
        totals: row events since the feed began: rows, window, excluded, covered, late_repeated, late_unseen.
        ungated: for feeds that may or may not have watermarks: the batches up to this one were released before the first
            watermark came.
        placed: whether changes state their binlog position.
        transactions: the events that transaction markers hold back.
        trimmed: the releases that maintenance has deleted.
        loads: the tables that were loaded, in the order of their loads.
        planned: the sequence of initial_load whose loads are all loaded or refused.
        refused: the loads that were refused.
        read: [database, table, commit_ts of the last read] of the tables whose connector snapshot ended with this release.
        left_out: the tables with a history of which the feed's `tables:` leave changes out.
        rejoined: those of the tables in the `left_out` of the release before that the feed takes again.
        snapshots: the connector's snapshots: all of them if the feed's snapshots have every row, else those that have not
            ended.
        scans: the scans of incremental snapshots, with the same rule.
    """

    batch: int = 0
    partition_watermarks: PartitionWatermarks = field(default_factory=dict)
    watermarks: TopicWatermarks = field(default_factory=dict)
    tables: list[tuple[str, str, int]] = field(default_factory=list)
    pending: int = 0
    oldest_pending: int = 0
    holds: list[Hold] = field(default_factory=list)
    schemas: int = 0
    settings: str = ""
    highest: int = -1
    newest: int = 0
    source: int = 0
    totals: dict[str, int] = field(default_factory=dict)
    ungated: int = 0
    placed: bool = False
    transactions: Transactions = field(default_factory=Transactions)
    trimmed: Trimmed = field(default_factory=Trimmed)
    loads: list[LoadedTable] = field(default_factory=list)
    planned: int = 0
    refused: list[RefusedLoad] = field(default_factory=list)
    read: list[tuple[str, str, int]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    rejoined: list[LeftOut] = field(default_factory=list)
    snapshots: list[SourceSnapshot] = field(default_factory=list)
    scans: list[TableScan] = field(default_factory=list)

    def start_next(self) -> "ReleaseCursor":
        """Return the cursor of the next release, without what only this release has: it concerns no table yet."""
        return replace(self, sequence=self.sequence + 1, tables=[], read=[], rejoined=[])

    @property
    def loaded_at(self) -> dict[tuple[str, str], int]:
        """(database, table) of each table whose history begins with a load -> the load's position."""
        return {(each.database, each.table): each.position for each in self.loads if not each.is_reload}

    @property
    def loaded(self) -> set[tuple[str, str, int]]:
        """(database, table, position) of all loads."""
        return {(each.database, each.table, each.position) for each in self.loads}


class ReleasedKind(StrEnum):
    """The kind of a row of released_changes."""

    ROW = "row"
    DDL = "ddl"
    LAYOUT = "layout"  # the text of a column layout, which rows of this release name by its hash
    LOADED = "loaded"  # a row of a dump
    # Without watermarks: a change of an earlier release that has duplicates among this release's events.
    REPEAT = "repeat"


# The columns that a change, or a statement, takes from its event as they are.
_SAME_IN_EVENTS = ("ddl_type", "ddl_statement", "schema_version", "table_id", "source_ms", "sent_ms", "source")

RELEASED_CHANGES = Definition(
    columns=StructType(
        [
            column(
                "kind",
                STRING,
                "row, ddl, layout (the text of a column layout of this release's rows), loaded (a row of a dump), or "
                "repeat (the coordinates of an earlier release's change that this release's row events duplicate).",
            ),
            column("release", BIGINT, "Number of the commit that released the change."),
            column(
                "commit_ts",
                BIGINT,
                "Position in the source: a TiDB TSO (milliseconds << 18 | logical). Without watermarks the larger of the "
                "event's own and that of the key's previous change.",
            ),
            column("event_ts", BIGINT, "The event's own commit_ts, if the change has a larger one."),
            column("op", STRING, "insert, update, delete or snapshot."),
            column("database", STRING, "The source's database."),
            column("table", STRING, "The source's table."),
            column("topic", STRING, "The Kafka record's topic."),
            column("partition", INT, "The Kafka record's partition."),
            column(
                "offset", BIGINT, "The Kafka record's offset; of a loaded row a number that is unique in its table."
            ),
            column("index", INT, "The event's place in its record, from 0."),
            column("ordinal", INT, "Order of the changes of one key at one commit_ts."),
            column("key", STRING, "The key's values, a JSON array; all values of the row if the table has no key."),
            column("key_columns", array(STRING), "Names of the key's columns; empty if the table has no key."),
            column(
                "events",
                INT,
                "How many row events the change stands for: 2 for a delete and an insert of one commit_ts, 0 for a loaded "
                "row.",
            ),
            column("repeats", BIGINT, "How many row events of this release were dropped as duplicates of the change."),
            column(
                "in_replay",
                BOOLEAN,
                "Whether the release ended within a replay of the key, which begins with a duplicate and ends with an "
                "unseen change or a duplicate of the last one.",
            ),
            column(
                "before",
                STRING,
                "The row before an update or a delete, a JSON object; null where the message has none, and of feeds with "
                "watermarks where it has the key alone.",
            ),
            column("after", STRING, "The row after the change, a JSON object; null for a delete."),
            column("layout_id", BIGINT, "The column layout of `after`: a hash of its text."),
            column(
                "layout",
                STRING,
                "Of kind layout: the text; its commit_ts is the lowest of the rows that have this layout.",
            ),
            column("last_ts", BIGINT, "Of kind layout: the highest commit_ts of the rows that have this layout."),
            *(CHANGE_EVENTS.columns[name] for name in _SAME_IN_EVENTS),
        ]
    ),
    cursor=ReleaseCursor,
    partition_by=("kind",),
    statistics=("release", "commit_ts", "database", "table"),
)
