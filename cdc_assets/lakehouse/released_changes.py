"""released_changes: the changes below the watermark, each once, one a key and commit_ts."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.initial_load import RefusedLoad
from cdc_assets.lakehouse.schema import BIGINT, BOOLEAN, INT, STRING, array, column, struct
from cdc_assets.lakehouse.table import Definition
from cdc_assets.tso import time_text

PartitionWatermarks = dict[str, dict[str, int | None]]  # topic -> partition -> largest watermark seen there
Watermarks = dict[str, int]  # topic -> commit_ts; a topic that is held back altogether is absent


class HoldReason(StrEnum):
    """Why a table is held."""

    SCHEMA = "schema"  # the schema that a row names has not come
    DDL = "ddl"  # a statement that a person is to decide about
    TYPE = "type"  # an event breaks a type mapping
    LINKED = "linked"  # a statement that names another table, which is held
    LOAD = "load"  # its dump cannot be loaded
    WRITE = "write"  # its history could not be written, twice: known to the stage history, and in no release cursor


@dataclass(frozen=True)
class Hold:
    """A table whose events are not released from a position on, and why: an entry of the gate's hold list.

    Attributes:
        database: of the table.
        table: its name.
        since: the commit_ts from which on its events are pending, where there are watermarks.
        reason: why.
        events: how many of its row events are held.
        first: of the event that began it: topic, partition, offset, and what the reason adds.
        batch: the raw batch from which on its events are pending, where there are none.
    """

    database: str
    table: str
    since: int
    reason: HoldReason
    events: int
    first: dict[str, Any]
    batch: int = 0

    def row(self) -> dict[str, Any]:
        """The entry as people read it."""
        own = {"database": self.database, "table": self.table, "since": self.since, "since_time": time_text(self.since)}
        return own | {"reason": str(self.reason), "events": self.events} | self.first


@dataclass(frozen=True)
class Transactions:
    """Of feeds with a connector's transaction markers: what is held back until its transaction is whole.

    Attributes:
        marked: whether there have been markers.
        bounds: topic -> partition -> the first offset that is held back.
        lowest: the lowest commit_ts of what is held back; 0 when nothing is.
        oldest: the oldest raw batch of what is held back, markers included; 0 when nothing is.
        tables: [database, table] of which the feed has got events.
    """

    marked: bool = False
    bounds: dict[str, dict[str, int]] = field(default_factory=dict)
    lowest: int = 0
    oldest: int = 0
    tables: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Trimmed:
    """The releases that maintenance has deleted.

    Attributes:
        release: the newest of them.
        highest: the highest commit_ts of a change in them; -1 when nothing was deleted.
        events: how many row events their changes stood for.
        repeats: how many copies of these were dropped.
    """

    release: int = 0
    highest: int = -1
    events: int = 0
    repeats: int = 0


@dataclass(frozen=True)
class Loaded:
    """A table that was loaded from a dump, which has all changes at or below the position.

    Attributes:
        database: of the table.
        table: its name.
        position: the dump's.
        rows: how many there are.
        anew: it had changes before, and the dump says which rows it has at the position; else its history begins there.
        typed: how many of the rows are kept typed, in `folder`; the others are in released_changes, of kind `loaded`.
        folder: below `Lakehouse.loaded_rows`; "": there are none.
        release: which has brought them, where rows are typed.
    """

    database: str
    table: str
    position: int
    rows: int
    anew: bool = False
    typed: int = 0
    folder: str = ""
    release: int = 0


@dataclass(frozen=True)
class SourceSnapshot:
    """The rows of one table in a snapshot that the source's connector took, as far as they are released.

    Attributes:
        database: of the table.
        table: its name.
        file: of the binlog, at the place where the snapshot was taken.
        position: in that file.
        at: the lowest commit_ts of its reads.
        until: the highest.
        since: the lowest commit_ts of all changes of the table in the releases that brought its reads, and between them.
        topics: that its reads came in.
        markers: which of the snapshot its reads say that they are.
        first: the lowest Kafka time of its reads, in milliseconds.
        last: the highest.
        initial: whether the table had nothing before, so that nothing can be gone.
        ended: whether all of its reads have come, as far as can be told.
        release: the last that brought reads of it, or told that it is whole; 0: none has, or it is initial.
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
    def whole(self) -> bool:
        """Whether it has all rows of the table: what it lacks is gone."""
        return bool(self.release)


@dataclass(frozen=True)
class LogPlace:
    """A place in a binlog: a hash of the server and the name of its log, the number of a file, a position in it."""

    log: int
    number: int
    position: int


@dataclass(frozen=True)
class TableScan:
    """A table's part in an incremental snapshot of the source's connector, from its beginning to its end.

    Attributes:
        database: of the table.
        table: its name.
        at: the commit_ts of the beginning of the snapshot.
        until: that of the end of the table's part.
        first: the Kafka time of the notification of the beginning, in milliseconds.
        last: that of the end.
        rows: how many rows the connector has read, at least.
        since: the lowest commit_ts of the table's changes since the beginning, and of the beginning itself.
        begun: topic -> partition -> the first offset of the table's changes since the beginning.
        places: the first of the table's changes between beginning and end in each server's log.
        whole: whether all rows are read and released, as far as can be told: what it lacks is gone.
        why_not: where it is not, in words.
        release: the last that brought changes of the time until the end, or told that it is whole, or not any more; 0: none.
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
    whole: bool = False
    why_not: str = ""
    release: int = 0

    def row(self) -> dict[str, Any]:
        """The part as people read it."""
        times = {"began": time_text(self.at), "ended": time_text(self.until)}
        told = {"rows": self.rows, "ends_rows": self.whole, "why_not": self.why_not}
        return {"database": self.database, "table": self.table} | times | told


# What tells of all rows that a table has, so that others are gone.
Snapshot = SourceSnapshot | TableScan


@dataclass(frozen=True, kw_only=True)
class ReleaseCursor(Cursor):
    """How far the gate has come; `sequence` is the number of the release.

    Attributes:
        batch: the newest raw batch whose events the gate has looked at.
        partition_watermarks: the largest watermark of each partition.
        watermarks: topic -> the watermark that is released: the only one that events are ever dropped by.
        tables: [database, table, row events of the window] of this release.
        pending: row events that are not released.
        oldest_pending: the oldest raw batch that may hold some; 0 when none does.
        holds: the hold list.
        schemas: the sequence of table_schemas that the holds were looked up in.
        settings: of the feed, that the holds were decided by.
        highest: the highest commit_ts of any row event seen: above it no event can be a repeat.
        newest: the newest Kafka time of any record seen, in milliseconds.
        source: the newest time of the source that any record tells, in milliseconds.
        totals: row events since the feed began: rows, window, excluded, covered, late_repeated, late_unseen.
        ungated: of feeds whose messages tell whether there are watermarks: the batches up to here were released before the
            first.
        placed: whether changes tell their place in the binlog.
        transactions: what transaction markers hold back.
        trimmed: what maintenance has deleted.
        loads: the tables that were loaded, in the order of their loads.
        planned: the sequence of initial_load of which all was loaded, or refused.
        refused: what was refused of it.
        read: [database, table, commit_ts of the last read] of the tables of which a snapshot of the source's connector has
            ended with this release.
        snapshots: the connector's: of feeds whose snapshots have every row all, of others those that have not ended.
        scans: the tables' parts in incremental ones, likewise.
    """

    batch: int = 0
    partition_watermarks: PartitionWatermarks = field(default_factory=dict)
    watermarks: Watermarks = field(default_factory=dict)
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
    loads: list[Loaded] = field(default_factory=list)
    planned: int = 0
    refused: list[RefusedLoad] = field(default_factory=list)
    read: list[tuple[str, str, int]] = field(default_factory=list)
    snapshots: list[SourceSnapshot] = field(default_factory=list)
    scans: list[TableScan] = field(default_factory=list)

    @property
    def loaded_at(self) -> dict[tuple[str, str], int]:
        """(database, table) of those whose histories begin with a load -> the positions at which they do."""
        return {(each.database, each.table): each.position for each in self.loads if not each.anew}

    @property
    def loaded(self) -> set[tuple[str, str, int]]:
        """(database, table, position) of all loads."""
        return {(each.database, each.table, each.position) for each in self.loads}


class ReleasedKind(StrEnum):
    """What a row of released_changes is."""

    ROW = "row"
    DDL = "ddl"
    LAYOUT = "layout"  # the text of a layout that rows of this release name by its hash
    LOADED = "loaded"  # a row of a dump
    REPEAT = "repeat"  # of feeds without watermarks: a change of an earlier release that row events of this one repeat


RELEASED_CHANGES = Definition(
    columns=StructType(
        [
            column(
                "kind",
                STRING,
                "row, ddl, layout (the text of a layout that rows of this release have), loaded (a row of a dump), or "
                "repeat (a change of an earlier release that row events of this one repeat, by its coordinates).",
            ),
            column("release", BIGINT, "Number of the commit that released the change."),
            column(
                "commit_ts",
                BIGINT,
                "Position in the source: a TiDB TSO (milliseconds << 18 | logical). Without watermarks it never falls along "
                "a key: it is the larger of the event's own and that of the key's change before.",
            ),
            column("event_ts", BIGINT, "The event's own commit_ts, where the change has a larger one."),
            column("op", STRING, "insert, update, delete or snapshot."),
            column("database", STRING, "The source's database."),
            column("table", STRING, "The source's table."),
            column("topic", STRING, "The Kafka record's topic."),
            column("partition", INT, "The Kafka record's partition."),
            column(
                "offset", BIGINT, "The Kafka record's offset; of a loaded row a number that no other of its table has."
            ),
            column("index", INT, "The event's place in its record, from 0."),
            column("ordinal", INT, "Order of the changes of one key at one commit_ts."),
            column("key", STRING, "The key's values, a JSON array; the whole row where the table has no key."),
            column("key_columns", array(STRING), "Names of the key's columns; empty: the table has none."),
            column(
                "events",
                INT,
                "How many row events the change stands for: 2 for a delete and an insert at one time, 0 for a loaded row.",
            ),
            column("repeats", BIGINT, "How many row events of this release repeat the change, and were dropped."),
            column(
                "in_replay",
                BOOLEAN,
                "Whether the release ended within a replay of the key, which begins with a repeat and ends with a change "
                "that was never seen, or the repeat of the last one.",
            ),
            column(
                "before",
                STRING,
                "The row before an update or a delete, a JSON object; null where the message has none, and of feeds with "
                "watermarks where it has the key alone.",
            ),
            column("after", STRING, "The row after the change, a JSON object; null for a delete."),
            column("layout_id", BIGINT, "Which layout `after` has: a hash of its text."),
            column(
                "layout",
                STRING,
                "Of rows of kind layout: the text; their commit_ts is the lowest of a row that has it.",
            ),
            column("last_ts", BIGINT, "Of rows of kind layout: the highest commit_ts of a row that has it."),
            column("ddl_type", STRING, "The kind of statement, as the message has it."),
            column("ddl_statement", STRING, "The statement's text."),
            column("schema_version", BIGINT, "The schema's number, from protocols that have one."),
            column("table_id", BIGINT, "The table's number, from protocols that have one."),
            column("source_ms", BIGINT, "Milliseconds of the source's clock."),
            column(
                "source",
                struct(server_id=BIGINT, file=STRING, position=BIGINT, row=INT, gtid=STRING),
                "Place in the MySQL binlog, from protocols that tell it.",
            ),
        ]
    ),
    cursor=ReleaseCursor,
    partition_by=("kind",),
    statistics=("release", "commit_ts", "database", "table"),
)
