"""The life of one row as plain values: what `why` answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from cdc_assets.history.completeness import Complete
from cdc_assets.operations.finality import FinalPosition
from cdc_assets.operations.keys import NearKeys

Row = dict[str, Any]


class Fate(StrEnum):
    """What became of something that the source did to a row."""

    VERSION = "version"  # it opened a version
    END = "end"  # it closed a version, and no other version of the row follows
    NO_EFFECT = "no_effect"  # it opened no version and closed none: `LifeStep.reason` says why
    DUPLICATE = "duplicate"  # the feed brought a released event again
    LATE = "late"  # it came below what was released, and was never seen before: no history has it
    PENDING = "pending"  # it is not in the history yet: `LifeStep.reason` says what it waits for


@dataclass(frozen=True)
class ColumnChange:
    """A column whose value differs from the version before.

    Attributes:
        column: its name.
        old: its value in the version before.
        new: its value in this version.
    """

    column: str
    old: Any
    new: Any


@dataclass(frozen=True)
class RecordOrigin:
    """The Kafka record that an event came in.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset.
        kafka_time: its Kafka timestamp; None: maintenance has deleted the event.
        batch: the raw batch that ingested it; None: maintenance has deleted the event.
    """

    topic: str
    partition: int
    offset: int
    kafka_time: datetime | None = None
    batch: int | None = None


@dataclass(frozen=True)
class ReleaseOrigin:
    """The release that let a change through the gate.

    Attributes:
        number: the release's number.
        committed_at: the time of its commit; None: Delta's log no longer has the commit.
        run: the id of its Dagster run; None: it had none, or Delta's log no longer has the commit.
        watermark: the watermark of the record's topic that it released up to; None: there was none, or as above.
    """

    number: int
    committed_at: datetime | None = None
    run: str | None = None
    watermark: int | None = None


@dataclass(frozen=True)
class KeyChange:
    """A change of a row's key: a delete under the old key and an insert under the new one, in one message or in two.

    Attributes:
        old: the key before the change.
        new: the key after it.
        other_half: the record with the other key's half; None: this record has both halves, or the other one has not come.
    """

    old: str
    new: str
    other_half: RecordOrigin | None = None


@dataclass(frozen=True)
class TableStatement:
    """A DDL statement about the table.

    Attributes:
        commit_ts: its position.
        text: its SQL.
    """

    commit_ts: int
    text: str


@dataclass(frozen=True)
class LifeStep:
    """One thing that the source did to a row, and what became of it.

    Attributes:
        commit_ts: its position in the source.
        fate: what became of it.
        op: insert, update, delete or snapshot; or what else opened or closed a version: truncate, drop, rename, ddl.
        reason: a sentence on why the step has its fate; None: the fate needs none.
        until: the commit_ts that closed the version; None: it is open, or the step is no version.
        closed_by: what closed the version: update, delete, truncate, drop, rename, ddl or snapshot.
        copy: which of several equal rows it is; only in tables without a key.
        changes: the columns that differ from the version before; empty: the step is no version, or follows none.
        row: the version's source columns.
        record: the Kafka record that it came in; None: a statement did it, or a snapshot that lacks the row.
        release: the release that let it through.
        statement: for a version, the newest statement about the table up to then; for an end, the statement that caused it.
        types: for a version, column -> MySQL type.
        column_flags: for a version, column -> flags; only protocols that send flags (Open Protocol).
        character_sets: for a version, column -> character set and collation; only protocols that state them (Simple).
        key_change: both keys, where the change gave the row another key.
        source: the place in the MySQL binlog; only protocols that send it.
        source_details: what the message states about itself and its source: `change_events.SOURCE_DETAILS`.
        quarantined: for a version, the values that its columns could not hold: column, reason, value.
        message: the decoded message, if it was asked for: op, commit_ts, key, before, after.
    """

    commit_ts: int
    fate: Fate
    op: str
    reason: str | None = None
    until: int | None = None
    closed_by: str | None = None
    copy: int | None = None
    changes: list[ColumnChange] = field(default_factory=list)
    row: Row | None = None
    record: RecordOrigin | None = None
    release: ReleaseOrigin | None = None
    statement: TableStatement | None = None
    types: dict[str, str] = field(default_factory=dict)
    column_flags: dict[str, str] = field(default_factory=dict)
    character_sets: dict[str, str] = field(default_factory=dict)
    key_change: KeyChange | None = None
    source: Row | None = None
    source_details: Row | None = None
    quarantined: list[Row] = field(default_factory=list)
    message: Row | None = None


@dataclass(frozen=True)
class RowLife:
    """The life of one row.

    Attributes:
        feed: the feed's name.
        database: the source's database.
        table: the source's table.
        key_columns: the columns that the values of `key` belong to, in order; empty: the table has no key; None: unknown.
        key: the key's values as a JSON array; of a table without a key the whole row as a JSON object.
        at: the commit_ts up to which the life is described; None: to the end.
        verdict: whether the row is in the history, or why it is not.
        final: up to which position the table can no longer change.
        complete: from which position on the table's history is complete.
        first_seen_by: an UPDATE or DELETE by which the history first saw the row, in a sentence: the source had it before;
            None: no such event.
        steps: newest first.
        undecoded: quarantined records that name the table and all values of the key: stage, reason, message, coordinates.
        near: the history's keys around one that was never seen; None: it was seen, or there is no history.
    """

    feed: str
    database: str
    table: str
    key_columns: Sequence[str] | None
    key: str
    at: int | None
    verdict: str
    final: FinalPosition
    complete: Complete
    first_seen_by: str | None
    steps: list[LifeStep]
    undecoded: list[Row]
    near: NearKeys | None
