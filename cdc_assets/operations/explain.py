"""Why does this row look so? The life of one key, out of all that the lakehouse has of it. Without Spark.

(A history of which types were widened only Spark reads; then it starts.)
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow.compute as pc
from pyarrow import parquet

from cdc_assets.config import Feed
from cdc_assets.history.completeness import Complete, complete_from
from cdc_assets.history.progress import blocked_tables
from cdc_assets.lakehouse.change_events import Kind, Op
from cdc_assets.lakehouse.history import COPY, source_columns
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.lakehouse.query import Arrow, engine_for
from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.operations.fates import Fate, Judge, Place, Release, Row, held_by, place_of
from cdc_assets.operations.finality import Final, applied_release, final
from cdc_assets.operations.keys import Near, columns_of, key_of_image, keys_of, nearest, same_values, sought, texts_of
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.loaded import columns_in, is_loaded_layout, reader_of
from cdc_assets.tso import time_text

_PLACE = ("topic", "partition", "offset", "index")
_IMAGES = ("before", "after")
_EVENT = (
    *_PLACE, "batch", "record_timestamp", "op", "commit_ts", "key", "key_before", "key_columns", "key_changed_to",
    "key_changed_from", "source", "source_details", *_IMAGES,
)  # fmt: skip
_CHANGE = (
    *_PLACE, "release", "commit_ts", "event_ts", "op", "events", "layout_id", "source", *_IMAGES,
)  # fmt: skip
_GOES_ON = ("update", "ddl")  # what closes a version so that the next may be the same row
_LAST = (1 << 63) - 1
_ARROW = Arrow()


class ExplainError(LookupError):
    """There is nothing to explain; the message is one line, and says what can be asked."""


@dataclass(frozen=True)
class Change:
    """What a version has otherwise than the one before it."""

    column: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Record:
    """A Kafka record: its coordinates, Kafka's time of it, and the raw batch that brought it.

    The last two are None when maintenance has deleted its events.
    """

    topic: str
    partition: int
    offset: int
    kafka_time: datetime | None = None
    batch: int | None = None


@dataclass(frozen=True)
class KeyChange:
    """A change of a row's key: a delete under the old key and an insert under the new one, in one message or in two.

    Attributes:
        old: the key until then.
        new: the key from then on.
        other_half: the record of the other key's half; None: this record has both, or the other one has not come.
    """

    old: str
    new: str
    other_half: Record | None = None


@dataclass(frozen=True)
class Statement:
    """A DDL statement."""

    commit_ts: int
    text: str


@dataclass(frozen=True)
class Step:
    """One thing in the life of a row.

    Attributes:
        commit_ts: its position in the source.
        fate: what became of it.
        op: what it was: insert, update, delete, snapshot; or truncate, drop, rename, ddl.
        why: of what was not taken, why, or what it waits for; of an end by a load, that.
        until: of a version, the commit_ts that closed it; None while open.
        closed_by: what closed it.
        copy: of a version, which of several equal rows, in a table without a key.
        changes: of a version, what it has otherwise than the one before that it follows.
        row: of a version, the source's columns.
        record: that it came in; None: a statement did it.
        release: the run that released it.
        statement: of a version, the newest that there was for the table; of an end by a statement, that.
        types: of a version, column -> MySQL type.
        column_flags: of a version, column -> its flags, from protocols that have any (Open Protocol).
        character_sets: of a version, column -> its character set and collation, where messages state them (Simple).
        key_change: where the change gave the row another key, both keys.
        source: the change's place in the MySQL binlog, from protocols that tell it.
        source_details: what the message says of itself and its source: `change_events.SOURCE_DETAILS`.
        quarantined: of a version, the values that its columns could not hold: column, reason, value.
        event: with `records`, the decoded message.
    """

    commit_ts: int
    fate: Fate
    op: str
    why: str | None = None
    until: int | None = None
    closed_by: str | None = None
    copy: int | None = None
    changes: list[Change] = field(default_factory=list)
    row: Row | None = None
    record: Record | None = None
    release: Release | None = None
    statement: Statement | None = None
    types: dict[str, str] = field(default_factory=dict)
    column_flags: dict[str, str] = field(default_factory=dict)
    character_sets: dict[str, str] = field(default_factory=dict)
    key_change: KeyChange | None = None
    source: Row | None = None
    source_details: Row | None = None
    quarantined: list[Row] = field(default_factory=list)
    event: Row | None = None


@dataclass(frozen=True)
class Explanation:
    """The life of a row.

    Attributes:
        feed: the feed.
        database: of the source's table.
        table: its name.
        key_columns: the columns of its key, in order, of the newest that has as many as `key`; empty: it has none; None: not
            known.
        key: the key's values as a JSON array; the whole row, a JSON object, where the table has no key.
        at: the position as of which it is asked; None: now.
        verdict: in a sentence, whether the row is there, or why not.
        final: up to where nothing of the table changes any more.
        complete: from where on the table's history is complete.
        unseen: whether, and until when, the source had the row before the history did; None: nothing says so.
        steps: newest first.
        undecoded: records in quarantine that name the table and the key's values.
        near: of a key that was never seen, those next to it.
    """

    feed: str
    database: str
    table: str
    key_columns: Sequence[str] | None
    key: str
    at: int | None
    verdict: str
    final: Final
    complete: Complete
    unseen: str | None
    steps: list[Step]
    undecoded: list[Row]
    near: Near | None


def explain(
    lake: Lakehouse, feed: Feed, name: str, values: Sequence[str], at: int | None = None, *, records: bool = False
) -> Explanation:
    """Tell the life of one row.

    Args:
        lake: the feed's tables.
        feed: the feed.
        name: `database.table`.
        values: the key's, in the order of its columns, as MySQL prints them, bytes as 0x...; or all as one JSON array; of a
            table without a key the row, as one JSON object.
        at: only what happened up to this commit_ts.
        records: whether the decoded messages are wanted.

    Raises:
        ExplainError: there is no such table, or its key has other columns; or no run has been yet.
    """
    if not lake.change_events.exists():
        raise ExplainError(f"{lake.feed}: nothing was taken in yet: run its pipeline first")
    database, table = _table(lake, name)
    keys = keys_of(lake, database, table)
    try:
        key = sought(values, keys)
    except ValueError as error:
        raise ExplainError(f"{name}: {error}") from None
    columns = columns_of(key, keys)
    life = _Life(lake, feed, (database, table), columns, key, at, records=records)
    if not life.seen and (same := same_values(lake, database, table, columns, values)) is not None:
        life = _Life(lake, feed, (database, table), columns, same, at, records=records)
    return life.told()


def _table(lake: Lakehouse, name: str) -> tuple[str, str]:
    """Database and table of a name in which either may have dots."""
    if (found := lake.find_history(name)) is not None:
        return found
    sql = (
        f"SELECT database, {_ARROW.name('table')} AS t FROM e WHERE kind IN ('{Kind.ROW}', '{Kind.DDL}') "
        f"AND database || '.' || {_ARROW.name('table')} = {_ARROW.text(name)} LIMIT 1"
    )
    for seen in _ARROW.run(sql, {"e": lake.change_events}).to_pylist():
        return seen["database"], seen["t"]
    known = ", ".join(map(".".join, lake.histories())) or "none"
    raise ExplainError(f"{name}: no event of such a table has come; tables with a history: {known}")


class _Life:
    """What the tables have of one key."""

    def __init__(
        self,
        lake: Lakehouse,
        feed: Feed,
        name: tuple[str, str],
        columns: Sequence[str] | None,
        key: str,
        at: int | None,
        *,
        records: bool,
    ) -> None:
        self.lake, self.feed, self.key, self.at, self.records = lake, feed, key, at, records
        self.database, self.table = name
        self.key_columns = columns
        self.history = lake.history(*name)
        self.until = _LAST if at is None else at
        self.judge = Judge(lake, feed, *name, self.changes, self.events)

    @property
    def seen(self) -> bool:
        """Whether there is anything."""
        return bool(self.versions or self.changes or self.events)

    @cached_property
    def versions(self) -> list[Row]:
        """The versions, oldest first."""
        if not self.history.exists():
            return []
        engine = engine_for(self.lake.session, self.history)
        where = f"_cdc_key = {engine.text(self.key)} AND _cdc_from_ts <= {self.until}"
        found: list[Row] = engine.fetch(f"SELECT * FROM h WHERE {where}", {"h": self.history}).to_pylist()
        return sorted(found, key=lambda v: (v["_cdc_from_ts"], _end(v), v["_cdc_offset"] or 0))

    @cached_property
    def changes(self) -> list[Row]:
        """The released changes, oldest first."""
        where = f"kind IN ('{ReleasedKind.ROW}', '{ReleasedKind.LOADED}') AND key = {_ARROW.text(self.key)}"
        found = [*self._selected(_CHANGE, where, self.lake.released_changes), *self._typed()]
        return sorted(found, key=lambda r: (r["commit_ts"], *place_of(r)))

    def _typed(self) -> list[Row]:
        """The row of the key in the load that the history has begun with, as a released change."""
        cursor = self.lake.released_changes.cursor()
        mine = (self.database, self.table)
        load = next((e for e in cursor.loads if e.folder and (e.database, e.table) == mine), None) if cursor else None
        if load is None or load.position > self.until:
            return []
        told = {"topic": LOAD_TOPIC, "partition": 0, "index": 0, "op": str(Op.SNAPSHOT), "events": 0}
        of_load = (r for r in self._layouts if r["commit_ts"] == load.position and is_loaded_layout(r["layout"]))
        told |= {c: v for c, v in next(of_load).items() if c in _CHANGE}
        kept = self.lake.loaded_rows(*mine)
        key = pc.field("_cdc_key") == self.key
        found: list[Row] = []
        for file in kept.list_staged(load.folder).files:
            system, path = kept.store.files(file.path)
            rows = parquet.read_table(path, columns=["_cdc_offset"], filters=key, filesystem=system, partitioning=None)
            found += [told | {"offset": offset} for offset in rows["_cdc_offset"].to_pylist()]
        return found

    @cached_property
    def events(self) -> list[Row]:
        """The row events, whether or not their messages tell the key; `op` is what they do to this key."""
        key, offset = _ARROW.text(self.key), _ARROW.name("offset")
        row = f"kind = '{Kind.ROW}'"
        # Of a released change, too, whose key the gate has brought into another form.
        offsets = _listed(c["offset"] for c in self.changes)
        found = self._selected(
            _EVENT, f"{row} AND (key = {key} OR key_before = {key} OR {offset} IN ({offsets}))", self.lake.change_events
        )
        found += self._unkeyed(f"{row} AND key IS NULL")
        released = {place_of(c) for c in self.changes}
        mine = {place_of(e): (e, self._op(e)) for e in found}
        kept = [e | {"op": op or e["op"]} for place, (e, op) in mine.items() if op or place in released]
        return sorted(kept, key=lambda e: (e["commit_ts"], *place_of(e)))

    def _unkeyed(self, where: str) -> list[Row]:
        """Events whose messages do not tell the key, and that have its values; their images are looked at only if any."""
        if not self._selected(["commit_ts", *_PLACE], where, self.lake.change_events, limit=1):
            return []
        texts = [_ARROW.text(f"%{_like(_inner(text))}%") for text in texts_of(self.key)]
        images = [" AND ".join(f"{image} LIKE {text}" for text in texts) or "true" for image in ("after", "before")]
        may_be = " OR ".join(f"({image})" for image in images)
        found = self._selected(_EVENT, f"{where} AND ({may_be})", self.lake.change_events)
        return [e | self._keys(e, e["key_columns"] or self.key_columns or []) for e in found]

    def _keys(self, event: Row, columns: Sequence[str]) -> Row:
        """The keys of an event, out of its images."""
        after, before = (
            key_of_image(json.loads(event[c], parse_float=str, parse_int=str), columns) if event[c] else None
            for c in ("after", "before")
        )
        return {"key": after or before, "key_before": before if after else None}

    def _op(self, event: Row) -> str | None:
        """What an event does to the key: a change of it is a delete of the old and an insert of the new."""
        key, before = event["key"], event["key_before"]
        if self.key == key:
            return str(Op.INSERT) if before not in {None, key} and event["op"] == Op.UPDATE else str(event["op"])
        return str(Op.DELETE) if self.key == before else None

    def _selected(
        self, columns: Sequence[str], where: str, table: LakeTable[Any], *, limit: int | None = None
    ) -> list[Row]:
        """Rows of this table by commit_ts and place."""
        if not table.exists():
            return []
        names = ", ".join(map(_ARROW.name, columns))
        sql = f"SELECT {names} FROM t WHERE {self._mine} AND commit_ts <= {self.until} AND {where}"
        found: list[Row] = _ARROW.run(sql if limit is None else f"{sql} LIMIT {limit}", {"t": table}).to_pylist()
        return sorted(found, key=lambda r: (r["commit_ts"], *place_of(r)))

    @property
    def _mine(self) -> str:
        return f"database = {_ARROW.text(self.database)} AND {_ARROW.name('table')} = {_ARROW.text(self.table)}"

    @cached_property
    def statements(self) -> list[Row]:
        """What statements said of the table, oldest first."""
        rows = [r for r in self._schemas if r["ddl_statement"] is not None]
        return sorted(rows, key=lambda r: r["commit_ts"])

    @cached_property
    def _schemas(self) -> list[Row]:
        """The table's rows of table_schemas, numbered schemas among them."""
        return self.lake.schema_rows([(self.database, self.table)])

    @cached_property
    def layouts(self) -> dict[int, str]:
        """The texts of the table's layouts."""
        return {r["layout_id"]: r["layout"] for r in self._layouts}

    @cached_property
    def _layouts(self) -> list[Row]:
        files: list[DataFile] = self.lake.released_changes.files(kind=str(ReleasedKind.LAYOUT))
        columns = ("database", "table", "release", "commit_ts", "layout_id", "layout")
        rows: list[Row] = self.lake.released_changes.fetch(files, *columns).to_pylist()
        return [r for r in rows if (r["database"], r["table"]) == (self.database, self.table)]

    @cached_property
    def quarantined(self) -> list[Row]:
        """The values of its records that no column could hold."""
        if not self.lake.quarantine.exists():
            return []
        names = ", ".join(map(_ARROW.name, (*_PLACE, "column", "reason", "value")))
        offsets = _listed(v["_cdc_offset"] for v in self.versions)
        reasons = ", ".join(_ARROW.text(str(r)) for r in (Reason.BAD_VALUE, Reason.ZERO_DATE))
        where = f"{self._mine} AND reason IN ({reasons}) AND {_ARROW.name('offset')} IN ({offsets})"
        found: list[Row] = _ARROW.run(f"SELECT {names} FROM q WHERE {where}", {"q": self.lake.quarantine}).to_pylist()
        return found

    def told(self) -> Explanation:
        """All of it."""
        steps = sorted([*self._opened(), *self._ended(), *self._others()], key=_order, reverse=True)
        return Explanation(
            self.lake.feed,
            self.database,
            self.table,
            self.key_columns,
            self.key,
            self.at,
            self._verdict(steps),
            final(self.lake, self.database, self.table),
            self._complete,
            self._unseen(),
            steps,
            self.judge.undecoded(texts_of(self.key)),
            None if self.seen else nearest(self.lake, self.database, self.table, self.key),
        )

    def _opened(self) -> Iterator[Step]:
        """The versions."""
        before: dict[Any, Row] = {}
        for v in self.versions:
            copy, ts, own = v.get(COPY.name), v["_cdc_from_ts"], _own(v)
            last = before.get(copy)
            follows = last is not None and last["_cdc_to_ts"] == ts
            before[copy] = v
            change = next((c for c in self.changes if c["commit_ts"] == ts and _coordinates(c) == _opener(v)), None)
            by = change or next(
                (e for e in self._trimmed if e["commit_ts"] == ts and _coordinates(e) == _opener(v)), None
            )
            ended = v["_cdc_to_ts"] is not None and v["_cdc_to_ts"] <= self.until
            yield Step(
                ts,
                Fate.VERSION,
                v["_cdc_op"],
                until=v["_cdc_to_ts"] if ended else None,
                closed_by=v["_cdc_closed_by"] if ended else None,
                copy=copy,
                changes=[Change(c, _own(last)[c], own[c]) for c in own if _own(last)[c] != own[c]]
                if last and follows
                else [],
                row=own,
                record=self._record(*_opener(v)),
                release=self.judge.release(change["release"], change["topic"]) if change else None,
                statement=self._statement(ts),
                types=self._types(ts, change["layout_id"] if change else None),
                column_flags=self._column_flags(change["layout_id"] if change else None),
                character_sets=self._character_sets(ts),
                **self._origin(by),
                quarantined=[
                    {
                        "column": q["column"],
                        "reason": q["reason"],
                        "value": (q["value"] or b"").decode(errors="replace"),
                    }
                    for q in self.quarantined
                    if by and place_of(q) == place_of(by)
                ],
                event=self._message(by),
            )

    @cached_property
    def _trimmed(self) -> list[Row]:
        """The row events whose changes maintenance has deleted, if they made any."""
        return [e for e in self.events if self.judge.trimmed(e)]

    @cached_property
    def _ends(self) -> list[tuple[Row, Row | None]]:
        """The versions that no other goes on from, each with the delete that ended it, the change or else the event.

        None: a statement did, or maintenance has deleted both.
        """
        opened = {(v.get(COPY.name), v["_cdc_from_ts"]) for v in self.versions}
        deletes = [c for c in [*self.changes, *self._trimmed] if c["op"] == Op.DELETE]
        found: list[tuple[Row, Row | None]] = []
        for v in self.versions:
            ts, closed_by = v["_cdc_to_ts"], v["_cdc_closed_by"]
            goes_on = (v.get(COPY.name), ts) in opened and closed_by in _GOES_ON
            if ts is None or ts > self.until or goes_on:
                continue
            # Of several at one time each ends one, in order.
            change = next((c for c in deletes if c["commit_ts"] == ts and closed_by == str(Op.DELETE)), None)
            if change is not None:
                deletes.remove(change)
            found.append((v, change))
        return found

    def _ended(self) -> Iterator[Step]:
        """The ends of versions."""
        for v, by in self._ends:
            ts = v["_cdc_to_ts"]
            yield Step(
                ts,
                Fate.END,
                v["_cdc_closed_by"],
                self.judge.missing(ts) if v["_cdc_closed_by"] == Op.SNAPSHOT else None,
                copy=v.get(COPY.name),
                record=self._record(*_coordinates(by)) if by else None,
                release=self.judge.release(by["release"], by["topic"]) if by and "release" in by else None,
                statement=None if v["_cdc_closed_by"] in (Op.DELETE, Op.SNAPSHOT) else self._statement(ts),
                **self._origin(by),
                event=self._message(by),
            )

    def _others(self) -> Iterator[Step]:
        """What opened no version, and ended none."""
        told = {(_opener(v), v["_cdc_from_ts"]) for v in self.versions}
        ends = {place_of(by) for _, by in self._ends if by}
        trimmed = {place_of(e) for e in self._trimmed}
        for e in self.events:
            ts, change = e["commit_ts"], self.judge.change(e)
            record, event = self._record(*_coordinates(e)), self._message(e)
            if place_of(e) in trimmed and ((_coordinates(e), ts) in told or place_of(e) in ends):
                continue
            if change is None:
                fate, why = self.judge.fate(e)
                yield Step(ts, fate, e["op"], why, record=record, **self._origin(e), event=event)
                continue
            ts = change["commit_ts"]
            if (_coordinates(e), ts) not in told and place_of(e) not in ends:
                fate, why = self._without_version(change)
                release = self.judge.release(change["release"], change["topic"])
                yield Step(ts, fate, e["op"], why, record=record, release=release, **self._origin(e), event=event)

    def _without_version(self, change: Row) -> tuple[Fate, str]:
        """Of a released change that no version shows: why."""
        if change["release"] > self._applied:
            hold = blocked_tables(self.lake).get((self.database, self.table))
            told = held_by(hold, self.lake.feed) if hold else "the history has it with its next run"
            return Fate.UNAPPLIED, f"it is released; {told}"
        if change["op"] == Op.DELETE:
            return Fate.NOTHING, "there was no row to delete"
        return Fate.NOTHING, "the row was so already"

    @cached_property
    def _complete(self) -> Complete:
        return complete_from(self.lake, self.database, self.table)

    def _unseen(self) -> str | None:
        """Of a row that was met first by an UPDATE or a DELETE: that it was there before."""
        since = self._complete.position
        known = (c for c in self.changes if c["commit_ts"] > since and c["release"] <= self._applied)
        first = next(known, None)
        if first is None or first["op"] not in {Op.UPDATE, Op.DELETE}:
            return None
        at = first["commit_ts"]
        # What ended before that position is no row of it.
        if any(v["_cdc_from_ts"] < at and _end(v) > since for v in self.versions):
            return None
        return _met(first["op"], at)

    @cached_property
    def _applied(self) -> int:
        return applied_release(self.lake, self.database, self.table)

    @cached_property
    def _by_place(self) -> dict[Place, Row]:
        return {place_of(e): e for e in self.events}

    @cached_property
    def _by_record(self) -> dict[tuple[str, int, int], Row]:
        return {_coordinates(e): e for e in self.events}

    def _record(self, topic: str, partition: int, offset: int) -> Record:
        event = self._by_record.get((topic, partition, offset))
        if event is None:
            return Record(topic, partition, offset)
        return Record(topic, partition, offset, event["record_timestamp"], event["batch"])

    def _statement(self, at: int) -> Statement | None:
        """The newest statement about the table up to a position."""
        before = [s for s in self.statements if s["commit_ts"] <= at]
        return Statement(before[-1]["commit_ts"], before[-1]["ddl_statement"]) if before else None

    def _types(self, at: int, layout_id: int | None) -> dict[str, str]:
        """The MySQL types of the columns, as the message has them, with what statements and the feeds file add."""
        shapes = [s["columns"] for s in self.statements if s["commit_ts"] <= at and s["columns"] is not None]
        declared = {c["name"]: c["type"] for c in shapes[-1]} if shapes else {}
        layout = self.layouts.get(layout_id) if layout_id is not None else None
        if layout is None:
            return declared
        protocol, lower = protocol_of(self.feed), {c.lower(): kind for c, kind in declared.items()}
        path = f"{self.database}.{self.table}"
        resolved = {
            c.name: reader_of(protocol, c).resolve(
                c, lower.get(c.name.lower()), self.feed.columns.get(f"{path}.{c.name}")
            )
            for c in columns_in(protocol, layout)
        }
        return {name: "unknown" if kind is None else str(kind) for name, kind in resolved.items()}

    def _column_flags(self, layout_id: int | None) -> dict[str, str]:
        """Return the flags that the messages of a layout give to columns."""
        layout = self.layouts.get(layout_id) if layout_id is not None else None
        return {} if layout is None or is_loaded_layout(layout) else protocol_of(self.feed).column_flags(layout)

    def _character_sets(self, at: int) -> dict[str, str]:
        """Return the columns' character sets and collations, as the newest schema up to a position states them."""
        stated = [s for s in self._schemas if s["commit_ts"] <= at and s["character_sets"] is not None]
        if not stated:
            return {}
        newest = max(stated, key=lambda s: s["commit_ts"])
        return {c["column"]: " ".join(filter(None, (c["charset"], c["collation"]))) for c in newest["character_sets"]}

    def _origin(self, of: Row | None) -> dict[str, Any]:
        """Return the `key_change`, `source` and `source_details` of a step, out of its event or change."""
        event = self._by_place.get(place_of(of)) if of else None
        if event is None:
            return {}
        details = {name: value for name, value in (event["source_details"] or {}).items() if value is not None}
        source = {name: value for name, value in (event["source"] or {}).items() if value is not None}
        return {"key_change": self._key_change(event), "source": source or None, "source_details": details or None}

    def _key_change(self, event: Row) -> KeyChange | None:
        """Return both keys of a change of the key; None for any other event.

        One message has both keys (`key_before`), or each of two names the other's (`key_changed_to`, `key_changed_from`).
        """
        if not (event["key_columns"] or self.key_columns):
            return None  # without a key the whole row stands for it
        if event["key_before"] not in {None, event["key"]}:
            return KeyChange(event["key_before"], event["key"])
        other = event["key_changed_to"] or event["key_changed_from"]
        if other is None:
            return None
        named = json.loads(other, parse_float=str, parse_int=str)
        other_key = key_of_image(named, event["key_columns"] or list(named))
        half = self._other_half(event, other_key)
        if event["key_changed_to"] is not None:
            return KeyChange(self.key, other_key, half)
        return KeyChange(other_key, self.key, half)

    def _other_half(self, event: Row, key: str) -> Record | None:
        """Return the record of the other half of a changed key: of that key, and at the same place in the binlog."""
        linked = "key_changed_from" if event["key_changed_to"] is not None else "key_changed_to"
        where = f"kind = '{Kind.ROW}' AND key = {_ARROW.text(key)} AND {linked} IS NOT NULL"
        found = self._selected(_EVENT, f"{where} AND commit_ts = {event['commit_ts']}", self.lake.change_events)
        halves = [e for e in found if e["source"] == event["source"]]
        if not halves:
            return None
        return Record(*_coordinates(halves[0]), halves[0]["record_timestamp"], halves[0]["batch"])

    @cached_property
    def _messages(self) -> dict[Place, Row]:
        """The decoded messages."""
        times = _listed(e["commit_ts"] for e in self.events)
        offsets = _listed(e["offset"] for e in self.events)
        where = f"kind = '{Kind.ROW}' AND commit_ts IN ({times}) AND {_ARROW.name('offset')} IN ({offsets})"
        found = self._selected([*_PLACE, "commit_ts", "op", "key", *_IMAGES], where, self.lake.change_events)
        said = ("op", "commit_ts", "key")
        images = [{c: json.loads(e[c]) if e[c] else None for c in _IMAGES} for e in found]
        return {place_of(e): {c: e[c] for c in said} | image for e, image in zip(found, images, strict=True)}

    def _message(self, of: Row | None) -> Row | None:
        """The decoded message of an event or a change, if it is wanted and still there."""
        return self._messages.get(place_of(of)) if self.records and of else None

    def _verdict(self, steps: Sequence[Step]) -> str:
        """Whether the row is there, or why not."""
        as_of = "" if self.at is None else f" as of {_at(self.at)}"
        waiting = Counter(s.fate for s in steps if s.fate in {Fate.PENDING, Fate.HELD, Fate.UNAPPLIED})
        listed = ", ".join(f"{count} {fate}" for fate, count in sorted(waiting.items()))
        more = f"; not in it yet: {listed}" if waiting else ""
        there = [s for s in steps if s.fate is Fate.VERSION and s.until is None]
        if there:
            return f"the row is there{as_of}, as it has been since {_at(there[0].commit_ts)}{more}"
        ends = [s for s in steps if s.fate is Fate.END]
        if ends:
            return f"the row is not there{as_of}: {ends[0].op} at {_at(ends[0].commit_ts)}{more}"
        if steps:
            return f"the row is not there{as_of}: {steps[0].fate}: {steps[0].why}"
        return f"no event of this key has come{as_of}"


def _order(step: Step) -> tuple[Any, ...]:
    """Oldest first; of one commit_ts what ends before what begins, and what was not taken after that."""
    rank = (Fate.END, Fate.VERSION).index(step.fate) if step.fate in {Fate.END, Fate.VERSION} else 2
    return step.commit_ts, rank, step.record.offset if step.record else -1, step.copy or 0


def _coordinates(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def _opener(version: Row) -> tuple[str, int, int]:
    return version["_cdc_topic"], version["_cdc_partition"], version["_cdc_offset"]


def _own(version: Row) -> Row:
    return {c: version[c] for c in source_columns(version)}


def _end(version: Row) -> int:
    return _LAST if version["_cdc_to_ts"] is None else version["_cdc_to_ts"]


def _met(op: str, at: int) -> str:
    article = "an" if op == Op.UPDATE else "a"
    return f"the row was met first by {article} {op.upper()}, at {_at(at)}: it was there before, and how is not known"


def _at(commit_ts: int) -> str:
    return f"{commit_ts} ({time_text(commit_ts)})"


def _listed(offsets: Iterable[int | None]) -> str:
    return ", ".join(str(o) for o in {o for o in offsets if o is not None} or {-1})


def _like(text: str) -> str:
    """A text in a pattern of LIKE."""
    return "".join(f"\\{c}" if c in "\\%_" else c for c in text)


def _inner(text: str) -> str:
    """A text as it stands in a JSON text, as far as all writers of JSON agree: its longest run of plain characters."""
    return max(re.split(r"[^A-Za-z0-9_.: -]", text), key=len)
