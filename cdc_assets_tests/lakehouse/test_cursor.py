"""Cursors: written into a commit's note and read back; notes of other writers are not cursors."""

from dataclasses import fields

import pytest

from cdc_assets.lakehouse.change_events import EventsCursor
from cdc_assets.lakehouse.cursor import Cursor, CursorError, read_note
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.initial_load import LoadsCursor, RefusedLoad
from cdc_assets.lakehouse.quarantine import QuarantineCursor
from cdc_assets.lakehouse.raw_records import RawCursor
from cdc_assets.lakehouse.released_changes import (
    Hold,
    HoldReason,
    LoadedTable,
    LogPlace,
    ReleaseCursor,
    SourceSnapshot,
    TableScan,
    Transactions,
)
from cdc_assets.lakehouse.table_schemas import SchemasCursor
from cdc_assets.lakehouse.type_observations import Doubted, Refused, TypesCursor
from cdc_assets_tests.lakehouse.numbers import NumbersCursor

pytestmark = pytest.mark.fast

FULL = [
    RawCursor(
        sequence=3,
        files={"0000.jsonl": [133125, 1795317672532524179]},
        offsets={"t": {"0": [0, 2**62]}},
        records=7,
        ids={"t": "x", "u": None},
        recreated={"t": [2]},
        plan={"ranges": [["t", 0, 1, 2]]},
        trimmed=1,
        rebuilding=True,
    ),
    EventsCursor(
        sequence=1,
        batch=4,
        trimmed=3,
        trimmed_rows=7,
        trimmed_newest=8,
        contradicting=9,
        contradiction={"topic": "t", "partition": 0, "offset": 5},
        protocol="debezium",
    ),
    SchemasCursor(sequence=1, batch=4, decisions=2, loads=3),
    LoadsCursor(sequence=2, settings="{}", tables=3, refused=[RefusedLoad("d", "t", "cut", "f00")]),
    TypesCursor(
        sequence=2,
        batch=4,
        settings="x",
        refused=[
            Refused("d", "t", 2**61, 3, {"topic": "t", "partition": 0, "offset": 1, "column": "c", "problem": "x"})
        ],
        doubted=[Doubted("d", "t", 2, 1)],
        schemas=3,
        distinct=5,
    ),
    ReleaseCursor(
        sequence=9,
        batch=8,
        partition_watermarks={"t": {"0": 1, "1": None}},
        watermarks={"t": 1},
        tables=[("d", "t", 5)],
        pending=1,
        oldest_pending=7,
        holds=[Hold("d", "t", 3, HoldReason.SCHEMA, 4, {"topic": "t", "partition": 0, "offset": 1, "record_ms": 2})],
        schemas=2,
        settings="x",
        highest=2**61,
        newest=5,
        source=6,
        totals={"rows": 6},
        ungated=1,
        placed=True,
        transactions=Transactions(True, {"t": {"0": 4}}, 2, [("d", "t")]),
        loads=[
            LoadedTable("d", "t", 2**61, 3, is_reload=True),
            LoadedTable("d", "u", 2**61, 3, typed=2, folder="f00", release=8),
        ],
        planned=2,
        refused=[RefusedLoad("d", "u", "cut")],
        snapshots=[
            SourceSnapshot("d", "t", "mysql-bin.000009", 4, 5, 6, 5, ["t"], ["first"], 7, 8, initial=True, release=9)
        ],
        scans=[
            TableScan(
                "d",
                "t",
                5,
                6,
                7,
                8,
                9,
                4,
                {"t": {"0": 1}},
                [LogPlace(-(2**61), 9, 4)],
                is_complete=True,
                why_not="x",
                release=9,
            )
        ],
    ),
    QuarantineCursor(sequence=1, rows=2, reasons={"bad_value": 2}),
    HistoryCursor(
        sequence=2,
        release=9,
        versions=3,
        current=1,
        statements=["0f3a"],
        newest=2**61,
        partly=(11, 2, -1),
        naming={"1": "k"},
        reload=[{"commit_ts": 7, "statement": "ALTER TABLE t TRUNCATE PARTITION p0", "why": "rows went"}],
        complete=2**61,
        met=4,
        days={"2024-05-01": 3},
        adopted=2**61,
    ),
]


@pytest.mark.parametrize("cursor", FULL, ids=lambda cursor: type(cursor).__name__)
def test_a_cursor_comes_back_from_its_note(cursor: Cursor) -> None:
    assert all(getattr(cursor, f.name) != f.default for f in fields(cursor) if f.name != "format"), "every field is set"
    note = read_note(cursor.text("a name"))
    assert note is not None
    assert note["commit"] == "a name"
    assert note["format"] == Cursor.FORMAT
    assert type(cursor).of(note) == cursor


@pytest.mark.parametrize(
    "text", ["", "by hand", "{}", '{"format": 2}', '[{"sequence": 1}]', '{"sequence": 1', 'they say "sequence": 1']
)
def test_a_note_of_another_writer_has_no_cursor(text: str) -> None:
    assert read_note(text) is None


@pytest.mark.parametrize("other", [{}, {"format": 3}])
def test_a_cursor_of_another_format_is_not_read(other: dict[str, int]) -> None:
    with pytest.raises(CursorError, match="written by another version of cdc-assets"):
        NumbersCursor.of({"sequence": 1} | other)


@pytest.mark.parametrize("wrong", [{"sequence": None}, {"sequence": 1, "upto": 5}, {"sequence": 1, "by": {}}])
def test_a_damaged_cursor_says_what_to_do(wrong: dict[str, object]) -> None:
    with pytest.raises(CursorError, match=r"the cursor is damaged .*: run the job rebuild"):
        NumbersCursor.of(wrong | {"format": Cursor.FORMAT})
