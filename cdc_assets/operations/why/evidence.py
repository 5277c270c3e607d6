"""What a feed's tables hold about one row key: its versions, released changes and events, and its table's statements."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow.compute as pc

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import Kind, Op
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.lakehouse.query import Arrow, engine_for
from cdc_assets.lakehouse.raw_records import RecordPlace
from cdc_assets.lakehouse.released_changes import ReleaseCursor, ReleasedKind
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.operations.keys import encode_image_key, list_key_values
from cdc_assets.operations.why.life import Row
from cdc_assets.protocols.loaded import is_loaded_layout

EventPlace = tuple[str, int, int, int]  # topic, partition, offset, index

OPEN_END = (1 << 63) - 1  # the end of an open version, above every commit_ts

_PLACE = ("topic", "partition", "offset", "index")
_IMAGES = ("before", "after")
_EVENT_COLUMNS = (
    *_PLACE, "batch", "record_timestamp", "op", "commit_ts", "key", "key_before", "key_columns", "key_changed_to",
    "key_changed_from", "source", "sent_ms", "source_details", *_IMAGES,
)  # fmt: skip
_CHANGE_COLUMNS = (
    *_PLACE, "release", "commit_ts", "event_ts", "op", "events", "layout_id", "source", *_IMAGES,
)  # fmt: skip
_QUARANTINE_COLUMNS = ("stage", "reason", "message", "topic", "partition", "offset")
_ARROW = Arrow()


def event_place(row: Mapping[str, Any]) -> EventPlace:
    """Return the coordinates of an event or a change: those of its record, and its index in the record."""
    return row["topic"], row["partition"], row["offset"], row["index"]


def opening_record(version: Row) -> RecordPlace:
    """Return the coordinates of the record that opened a version."""
    return RecordPlace(version["_cdc_topic"], version["_cdc_partition"], version["_cdc_offset"])


def version_end(version: Row) -> int:
    """Return the commit_ts that closed a version; `OPEN_END` for an open one."""
    return OPEN_END if version["_cdc_to_ts"] is None else version["_cdc_to_ts"]


@dataclass(frozen=True)
class Evidence:
    """The rows about one key. Each property reads its table when it is first used.

    Only a history whose types were widened needs a JVM.

    Attributes:
        lake: the feed's tables.
        feed: the feed's settings.
        name: the source's database and table.
        key_columns: the columns of the key; empty: the table has none; None: unknown.
        key: the key as the tables hold it.
        until: rows above this commit_ts are left out.
    """

    lake: Lakehouse
    feed: Feed
    name: tuple[str, str]
    key_columns: Sequence[str] | None
    key: str
    until: int

    @property
    def is_empty(self) -> bool:
        """Whether no table holds anything about the key."""
        return not (self.versions or self.changes or self.events)

    @cached_property
    def release_cursor(self) -> ReleaseCursor:
        """How far the gate has come."""
        return self.lake.released_changes.cursor() or ReleaseCursor(sequence=0)

    @cached_property
    def versions(self) -> list[Row]:
        """The rows of the history table, by `_cdc_from_ts` and end."""
        history = self.lake.history(*self.name)
        if not history.exists():
            return []
        engine = engine_for(self.lake.session, history)
        where = f"_cdc_key = {engine.text(self.key)} AND _cdc_from_ts <= {self.until}"
        rows: list[Row] = engine.fetch(f"SELECT * FROM h WHERE {where}", {"h": history}).to_pylist()
        return sorted(rows, key=lambda v: (v["_cdc_from_ts"], version_end(v), v["_cdc_offset"] or 0))

    @cached_property
    def changes(self) -> list[Row]:
        """The released changes, by commit_ts and coordinates; a row that the history began with is one, too."""
        where = f"kind IN ('{ReleasedKind.ROW}', '{ReleasedKind.LOADED}') AND key = {_ARROW.text(self.key)}"
        rows = [*self._select(self.lake.released_changes, _CHANGE_COLUMNS, where), *self._read_typed_load()]
        return sorted(rows, key=_by_position)

    def _read_typed_load(self) -> list[Row]:
        """Return the key's rows in the typed files of the load that the history begins with, as released changes."""
        of_table = (each for each in self.release_cursor.loads if (each.database, each.table) == self.name)
        load = next((each for each in of_table if each.folder), None)
        if load is None or load.position > self.until:
            return []
        layouts = (r for r in self._layouts if r["commit_ts"] == load.position and is_loaded_layout(r["layout"]))
        change = {"topic": LOAD_TOPIC, "partition": 0, "index": 0, "op": str(Op.SNAPSHOT), "events": 0}
        change |= {column: value for column, value in next(layouts).items() if column in _CHANGE_COLUMNS}
        loaded = self.lake.loaded_rows(*self.name)
        has_key = pc.field("_cdc_key") == self.key
        files = loaded.list_staged(load.folder).files
        rows = loaded.fetch(files, "_cdc_key", "_cdc_offset", reduce_part=lambda part: part.filter(has_key))
        return [change | {"offset": offset} for offset in rows["_cdc_offset"].to_pylist()]

    @cached_property
    def events(self) -> list[Row]:
        """The row events, by commit_ts and coordinates.

        `op` is what an event does to this key, `message_op` what its message states. Events whose messages
        state no key are among them if their images hold the key's values.
        """
        key, offset = _ARROW.text(self.key), _ARROW.name("offset")
        # The gate may have changed the form of a released change's key, so look for its record as well.
        offsets = _list_numbers(change["offset"] for change in self.changes)
        is_row = f"kind = '{Kind.ROW}'"
        keyed = self._select(
            self.lake.change_events,
            _EVENT_COLUMNS,
            f"{is_row} AND (key = {key} OR key_before = {key} OR {offset} IN ({offsets}))",
        )
        released = {event_place(change) for change in self.changes}
        by_place = {event_place(e): e for e in [*keyed, *self._select_unkeyed_events(f"{is_row} AND key IS NULL")]}
        return sorted(
            (
                event | {"op": op or event["op"], "message_op": event["op"]}
                for place, event in by_place.items()
                if (op := self._op_on_key(event)) or place in released
            ),
            key=_by_position,
        )

    def _select_unkeyed_events(self, is_unkeyed: str) -> list[Row]:
        """Return the events without a key whose images may hold the key's values, each with the keys of its images."""
        events = self.lake.change_events
        # Images are large, so do not read them where every event states its key.
        if not self._select(events, ["commit_ts", *_PLACE], is_unkeyed, limit=1):
            return []
        parts = (_plain_part(text).replace("_", r"\_") for text in list_key_values(self.key))
        patterns = [_ARROW.text(f"%{part}%") for part in parts]
        conditions = [" AND ".join(f"{image} LIKE {text}" for text in patterns) or "true" for image in _IMAGES]
        rows = self._select(events, _EVENT_COLUMNS, f"{is_unkeyed} AND (({conditions[0]}) OR ({conditions[1]}))")
        return [event | _keys_of_images(event, event["key_columns"] or self.key_columns or []) for event in rows]

    def _op_on_key(self, event: Row) -> str | None:
        """Return what an event does to this key; a change of the key is a delete of the old and an insert of the new."""
        key, before = event["key"], event["key_before"]
        if self.key == key:
            return str(Op.INSERT) if before not in {None, key} and event["op"] == Op.UPDATE else str(event["op"])
        return str(Op.DELETE) if self.key == before else None

    def find_other_half(self, event: Row, key: str) -> Row | None:
        """Return the event that holds the other half of a changed key: under `key`, at the same place in the binlog."""
        link = "key_changed_from" if event["key_changed_to"] is not None else "key_changed_to"
        where = f"kind = '{Kind.ROW}' AND key = {_ARROW.text(key)} AND {link} IS NOT NULL"
        halves = self._select(self.lake.change_events, _EVENT_COLUMNS, f"{where} AND commit_ts = {event['commit_ts']}")
        return next((half for half in halves if half["source"] == event["source"]), None)

    @cached_property
    def statements(self) -> list[Row]:
        """The rows of table_schemas that a statement about the table made, by commit_ts."""
        rows = [row for row in self.schemas if row["ddl_statement"] is not None]
        return sorted(rows, key=lambda row: row["commit_ts"])

    @cached_property
    def schemas(self) -> list[Row]:
        """All rows of table_schemas about the table."""
        return self.lake.schema_rows([self.name])

    @cached_property
    def layouts(self) -> dict[int, str]:
        """The column layouts of the table's released changes: layout_id -> text."""
        return {row["layout_id"]: row["layout"] for row in self._layouts}

    @cached_property
    def _layouts(self) -> list[Row]:
        changes = self.lake.released_changes
        columns = ("database", "table", "release", "commit_ts", "layout_id", "layout")
        rows: list[Row] = changes.fetch(changes.files(kind=str(ReleasedKind.LAYOUT)), *columns).to_pylist()
        return [row for row in rows if (row["database"], row["table"]) == self.name]

    @cached_property
    def quarantined_values(self) -> list[Row]:
        """The values in quarantine of the records that opened versions: coordinates, column, reason, value (bytes)."""
        quarantine = self.lake.quarantine
        if not quarantine.exists():
            return []
        columns = ", ".join(map(_ARROW.name, (*_PLACE, "column", "reason", "value")))
        offsets = _list_numbers(version["_cdc_offset"] for version in self.versions)
        reasons = ", ".join(f"'{reason}'" for reason in (Reason.BAD_VALUE, Reason.ZERO_DATE, Reason.UNCLEAR_TIME))
        where = f"{self._of_table} AND reason IN ({reasons}) AND {_ARROW.name('offset')} IN ({offsets})"
        rows: list[Row] = _ARROW.run(f"SELECT {columns} FROM q WHERE {where}", {"q": quarantine}).to_pylist()
        return rows

    def read_undecoded_records(self) -> list[Row]:
        """Return the quarantined records whose bytes name the table and all values of the key.

        Returns:
            Rows with stage, reason, message, topic, partition and offset.
        """
        quarantine, values = self.lake.quarantine, list_key_values(self.key)
        files = [file for file in quarantine.files() if file.rows]
        if not files or not values:
            return []
        words = [_match_word(text) for text in (self.name[1], *values)]
        rows = quarantine.fetch(files, *_QUARANTINE_COLUMNS, "column", "value").to_pylist()
        return [
            {column: row[column] for column in _QUARANTINE_COLUMNS}
            for row in rows
            if row["column"] is None and row["value"] and all(word.search(row["value"]) for word in words)
        ]

    def _select(
        self, table: LakeTable[Any], columns: Sequence[str], where: str, *, limit: int | None = None
    ) -> list[Row]:
        """Return the rows of a table of the feed that are about this source table and meet `where`, by position."""
        if not table.exists():
            return []
        sql = f"SELECT {', '.join(map(_ARROW.name, columns))} FROM t WHERE {self._of_table}"
        sql += f" AND commit_ts <= {self.until} AND {where}" + ("" if limit is None else f" LIMIT {limit}")
        rows: list[Row] = _ARROW.run(sql, {"t": table}).to_pylist()
        return sorted(rows, key=_by_position)

    @property
    def _of_table(self) -> str:
        database, table = map(_ARROW.text, self.name)
        return f"database = {database} AND {_ARROW.name('table')} = {table}"


def _by_position(row: Row) -> tuple[int, EventPlace]:
    return row["commit_ts"], event_place(row)


def _keys_of_images(event: Row, columns: Sequence[str]) -> Row:
    """Return `key` and `key_before` of an event that states no key, from its images."""
    before, after = (
        encode_image_key(json.loads(event[image], parse_float=str, parse_int=str), columns) if event[image] else None
        for image in _IMAGES
    )
    return {"key": after or before, "key_before": before if after else None}


def _list_numbers(numbers: Iterable[int | None]) -> str:
    """Return distinct numbers as the inside of an SQL `IN (...)`; -1, which no row has, if there are none."""
    return ", ".join(str(number) for number in {n for n in numbers if n is not None} or {-1})


def _plain_part(text: str) -> str:
    """Return the longest part of a text that every JSON writer leaves unescaped."""
    return max(re.split(r"[^A-Za-z0-9_.: -]", text), key=len)


def _match_word(text: str) -> re.Pattern[bytes]:
    """Return a pattern that finds a text in bytes where no letter, digit or `_` is beside it."""
    return re.compile(rb"(?<![A-Za-z0-9_])" + re.escape(text.encode()) + rb"(?![A-Za-z0-9_])")
