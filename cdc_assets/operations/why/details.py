"""What a step of a row's life shows beside the row: record, release, types, the message's source, a changed key."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc_assets.lakehouse.raw_records import RecordPlace, record_place
from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.lakehouse.table import CursorWithCommit
from cdc_assets.operations.keys import encode_image_key
from cdc_assets.operations.why.evidence import EventPlace, Evidence, event_place
from cdc_assets.operations.why.life import KeyChange, RecordOrigin, ReleaseOrigin, Row, TableStatement
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.loaded import columns_in, is_loaded_layout, reader_of


@dataclass(frozen=True)
class StepDetails:
    """Looks up the details of steps.

    Attributes:
        evidence: what the tables hold about the key.
        with_messages: whether steps have the decoded messages.
    """

    evidence: Evidence
    with_messages: bool

    def find_record(self, place: RecordPlace) -> RecordOrigin:
        """Return the record at these coordinates."""
        event = self._events_by_record.get(place)
        return RecordOrigin(*place) if event is None else _record_of(event)

    def find_statement(self, commit_ts: int) -> TableStatement | None:
        """Return the newest statement about the table up to a position; None: there is none."""
        statements = [row for row in self.evidence.statements if row["commit_ts"] <= commit_ts]
        return TableStatement(statements[-1]["commit_ts"], statements[-1]["ddl_statement"]) if statements else None

    def find_types(self, commit_ts: int, layout_id: int | None) -> dict[str, str]:
        """Return column -> MySQL type at a position.

        The types are the layout's, completed by the table's schema and the feeds file; without a layout, the schema's.
        """
        schemas = [row["columns"] for row in self.evidence.statements if row["commit_ts"] <= commit_ts]
        newest: list[Row] = next((columns for columns in reversed(schemas) if columns is not None), [])
        declared = {column["name"]: column["type"] for column in newest}
        layout = self._find_layout(layout_id)
        if layout is None:
            return declared
        feed, protocol = self.evidence.feed, protocol_of(self.evidence.feed)
        by_lower_name = {name.lower(): kind for name, kind in declared.items()}
        types: dict[str, str] = {}
        for column in columns_in(protocol, layout):
            override = feed.columns.get(".".join([*self.evidence.name, column.name]))
            kind = reader_of(protocol, column).resolve(column, by_lower_name.get(column.name.lower()), override)
            types[column.name] = "unknown" if kind is None else str(kind)
        return types

    def find_column_flags(self, layout_id: int | None) -> dict[str, str]:
        """Return column -> flags, as messages with this layout give them."""
        layout = self._find_layout(layout_id)
        if layout is None or is_loaded_layout(layout):
            return {}
        return protocol_of(self.evidence.feed).column_flags(layout)

    def find_character_sets(self, commit_ts: int) -> dict[str, str]:
        """Return column -> character set and collation, as the newest schema up to a position states them."""
        stated = [
            row for row in self.evidence.schemas if row["commit_ts"] <= commit_ts and row["character_sets"] is not None
        ]
        if not stated:
            return {}
        newest = max(stated, key=lambda row: row["commit_ts"])
        return {c["column"]: " ".join(filter(None, (c["charset"], c["collation"]))) for c in newest["character_sets"]}

    def describe_origin(self, row: Row | None) -> dict[str, Any]:
        """Return the attributes of a step that come from its change or event: none if both are gone.

        Returns:
            `record`, `release`; and if the event is there, `key_change`, `source`, `source_details`, `message`.
        """
        if row is None:
            return {}
        release = self._find_release(row) if "release" in row else None
        origin = {"record": self.find_record(record_place(row)), "release": release}
        event = self._events_by_place.get(event_place(row))
        if event is None:
            return origin
        return origin | {
            "key_change": self._find_key_change(event),
            "source": _drop_nulls(event["source"]),
            "source_details": _drop_nulls({"sent_ms": event["sent_ms"]} | (event["source_details"] or {})),
            "message": _decode_message(event) if self.with_messages else None,
        }

    def find_quarantined_values(self, row: Row | None) -> list[Row]:
        """Return the values of an event or a change that no column could hold: column, reason, value (text)."""
        return [
            {
                "column": value["column"],
                "reason": value["reason"],
                "value": (value["value"] or b"").decode(errors="replace"),
            }
            for value in self.evidence.quarantined_values
            if row and event_place(value) == event_place(row)
        ]

    def _find_release(self, change: Row) -> ReleaseOrigin:
        """Return the release that let a change through."""
        number = change["release"]
        release = self._releases.get(number)
        if release is None:
            return ReleaseOrigin(number)
        watermark = release.cursor.watermarks.get(change["topic"])
        return ReleaseOrigin(number, release.commit.time, release.run, watermark)

    def _find_key_change(self, event: Row) -> KeyChange | None:
        """Return both keys of a change of the key; None for any other event.

        One message has both keys (`key_before`), or each of two names the other's (`key_changed_to`, `key_changed_from`).
        """
        if not (event["key_columns"] or self.evidence.key_columns):
            return None  # In a table without a key every update changes the row that stands for the key.
        if event["key_before"] not in {None, event["key"]}:
            return KeyChange(event["key_before"], event["key"])
        other = event["key_changed_to"] or event["key_changed_from"]
        if other is None:
            return None
        image = json.loads(other, parse_float=str, parse_int=str)
        other_key = encode_image_key(image, event["key_columns"] or list(image))
        half = self.evidence.find_other_half(event, other_key)
        keys = (self.evidence.key, other_key) if event["key_changed_to"] is not None else (other_key, self.evidence.key)
        return KeyChange(*keys, None if half is None else _record_of(half))

    def _find_layout(self, layout_id: int | None) -> str | None:
        return None if layout_id is None else self.evidence.layouts.get(layout_id)

    @cached_property
    def _events_by_place(self) -> dict[EventPlace, Row]:
        return {event_place(event): event for event in self.evidence.events}

    @cached_property
    def _events_by_record(self) -> dict[RecordPlace, Row]:
        return {record_place(event): event for event in self.evidence.events}

    @cached_property
    def _releases(self) -> dict[int, CursorWithCommit[ReleaseCursor]]:
        """The commits that Delta's log has of the oldest release among the changes, and of all later ones."""
        oldest = min(change["release"] for change in self.evidence.changes)
        releases: dict[int, CursorWithCommit[ReleaseCursor]] = {}
        for commit in self.evidence.lake.released_changes.cursors_with_commits():
            if commit.cursor.sequence < oldest:
                break
            releases[commit.cursor.sequence] = commit
        return releases


def _record_of(event: Row) -> RecordOrigin:
    return RecordOrigin(*record_place(event), event["record_timestamp"], event["batch"])


def _drop_nulls(struct: Row | None) -> Row | None:
    """Return the fields of a struct that have a value; None: no field has."""
    return {name: value for name, value in (struct or {}).items() if value is not None} or None


def _decode_message(event: Row) -> Row:
    """Return what an event's message states: op, commit_ts, key, and the images before and after as objects."""
    images = {image: json.loads(event[image]) if event[image] else None for image in ("before", "after")}
    return {"op": event["message_op"], "commit_ts": event["commit_ts"], "key": event["key"]} | images
