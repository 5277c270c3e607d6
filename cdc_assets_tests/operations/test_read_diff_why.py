"""Ask a feed for its tables as of a position, for changes, and why a row looks so. One small feed, run once."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from dagster import AssetKey
from pyspark.sql import SparkSession

from cdc_assets import cli, read
from cdc_assets.config import load_feeds
from cdc_assets.definitions import build_definitions
from cdc_assets.errors import OperationError
from cdc_assets.history.progress import Progress
from cdc_assets.lakehouse.cursor import RUN as RUN_NOTED
from cdc_assets.lakehouse.cursor import read_note
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import WidenedError
from cdc_assets.lakehouse.released_changes import Hold, HoldReason
from cdc_assets.operations.diff import DiffSide, SampleRow, compare_rows
from cdc_assets.operations.finality import find_final_position
from cdc_assets.operations.holds import describe_hold
from cdc_assets.operations.keys import NearKeys, encode_row_key
from cdc_assets.operations.maintenance.retention import trim_changes
from cdc_assets.operations.report.collect import collect_report
from cdc_assets.operations.report.page import render_page
from cdc_assets.operations.views import build_catalog_name
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.operations.why.life import ColumnChange, Fate, RowLife, TableStatement
from cdc_assets.operations.why.text import format_markdown, format_text
from cdc_assets.stages.history.progress_file import write_progress
from cdc_assets.tso import parse_position, time_of
from cdc_assets_tests.operations.example_feed import (
    BYTES,
    EXCLUDED,
    FEED,
    HELD,
    ODD_ROWS,
    ODD_TEXT,
    RELEASED,
    RUN,
    Lived,
    live,
)
from cdc_assets_tests.support import (
    RECORDED,
    SHORT_LIVED_OPTIONS,
    Chain,
    Rows,
    Stream,
    bytes_of,
    change,
    comparable,
    read_lines,
    remove,
    rows_of,
    tso,
)

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """The feed; tests do not change it."""
    return live(spark, tmp_path_factory.mktemp("lived"))


def table(lived: Lived, name: str = "orders") -> read.Table[Any]:
    return read.table(FEED, f"shop.{name}", root=lived.it.lake.root)


# --- reading


def held_at(position: int) -> list[dict[str, Any]]:
    """Return the rows of shop.orders as of a position, by hand."""
    rows = HELD[max((p for p in HELD if tso(p) <= position), default=1)]
    named = [dict(zip(("id", "v", "d", "w"), (key, *row), strict=True)) for key, row in rows.items()]
    return comparable(r | {"d": None if r["d"] is None else date.fromisoformat(r["d"])} for r in named)


def test_as_of_every_position(lived: Lived) -> None:
    orders = table(lived)
    for position in [*map(tso, range(RELEASED)), tso(6, 1)]:
        assert comparable(orders.as_of(position).to_pylist()) == held_at(position)
    assert comparable(orders.current().to_pylist()) == held_at(tso(RELEASED))
    assert comparable(orders.as_of(tso(8), ["w", "id"]).to_pylist()) == [{"w": None, "id": 2}, {"w": 7, "id": 3}]


def test_a_missing_column(lived: Lived) -> None:
    with pytest.raises(ValueError, match=r"There is no column x\. The columns are: _cdc_key, .*, id, v, d, w\.$"):
        table(lived).current(["id", "x"])


def test_a_time_is_a_position(lived: Lived) -> None:
    """If a millisecond has several commits, all of them have happened at its time."""
    eighth = datetime(2023, 11, 14, 22, 13, 20, 8_000, tzinfo=UTC)
    assert [parse_position(t) for t in (eighth, "2023-11-14T23:13:20.008999+01:00", "2023-11-14T22:13:20.008")] == [
        tso(9) - 1
    ] * 3
    assert parse_position(str(tso(8))) == tso(8)
    assert comparable(table(lived).as_of(eighth).to_pylist()) == held_at(tso(8))
    with pytest.raises(ValueError, match=r"yesterday is not a position; allowed: a commit_ts, or a time in ISO 8601"):
        parse_position("yesterday")


def test_changes_lead_from_one_position_to_another(lived: Lived) -> None:
    """The changes between two positions, each at its own commit_ts."""
    orders = table(lived)
    for start in (0, 2, 5, 7, 11):
        for end in (end for end in (2, 5, 6, 8, 12) if end >= start):
            rows = [json.dumps(r, default=str, sort_keys=True) for r in held_at(tso(start))]
            for made in orders.changes_between(tso(start), tso(end)).to_pylist():
                assert tso(start) < made["commit_ts"] <= tso(end)
                if made["before"] is not None:
                    rows.remove(json.dumps(made["before"], default=str, sort_keys=True))
                if made["after"] is not None:
                    rows.append(json.dumps(made["after"], default=str, sort_keys=True))
            assert sorted(rows) == sorted(json.dumps(r, default=str, sort_keys=True) for r in held_at(tso(end)))
    seen = [(c["commit_ts"], c["op"], c["key"]) for c in orders.changes_between(tso(0)).to_pylist()]
    assert seen == [
        (tso(2), "insert", '["1"]'),
        (tso(3), "insert", '["2"]'),
        (tso(5), "update", '["2"]'),
        (tso(6), "delete", '["1"]'),
        (tso(6), "insert", '["3"]'),
        (tso(8), "update", '["3"]'),
        (tso(11), "delete", '["2"]'),
        (tso(12), "insert", '["40"]'),
    ]


def test_a_delete_removes_one_of_equal_rows(lived: Lived) -> None:
    """The table has no key."""
    logs = table(lived, "logs")
    assert [(c["commit_ts"], c["op"]) for c in logs.changes_between(0).to_pylist()] == [
        (tso(3), "insert"),
        (tso(3), "insert"),
        (tso(8), "delete"),
    ]
    assert [logs.as_of(tso(p)).num_rows for p in (2, 3, 8)] == [0, 2, 1]


def test_how_far_a_table_is_final(lived: Lived) -> None:
    """The lower of the partitions' watermarks; for a blocked table, the position of its hold."""
    orders, ledger = table(lived).final(), table(lived, "ledger").final()
    assert orders.position == tso(RELEASED) - 1
    assert orders.reason == "watermark of topic shop_changes"
    blocked = f"the table is blocked from commit_ts {tso(11, 1)} on, reason ddl"
    assert (ledger.position, ledger.reason) == (tso(11, 1) - 1, blocked)


def test_both_engines_read_the_same(lived: Lived, spark: SparkSession) -> None:
    def both(name: str) -> tuple[read.Table[Any], read.Table[Any]]:
        return table(lived, name), read.table(FEED, f"shop.{name}", root=lived.it.lake.root, spark=spark)

    arrow, frames = both("orders")
    assert comparable(arrow.changes_between(tso(2)).to_pylist()) == rows_of(frames.changes_between(tso(2)))
    assert comparable(arrow.as_of(tso(8)).to_pylist()) == rows_of(frames.as_of(tso(8)))
    arrow, frames = both("odd.keys")
    assert comparable(arrow.versions().to_pylist()) == rows_of(frames.versions())
    assert comparable(arrow.changes_between(0).to_pylist()) == rows_of(frames.changes_between(0))
    assert pl.from_arrow(table(lived).current()).height == 2


def test_a_widened_table_needs_spark(lived: Lived, spark: SparkSession) -> None:
    with pytest.raises(
        WidenedError, match="history/shop/shop/wide: column types were widened, so only Spark reads this table"
    ):
        table(lived, "wide").current()
    wide = read.table(FEED, "shop.wide", root=lived.it.lake.root, spark=spark)
    assert [(r.id, r.n) for r in wide.current().collect()] == [(1, 5_000_000_000)]


def test_a_missing_table(lived: Lived) -> None:
    with pytest.raises(
        read.NoTableError, match=r"shop.order: feed shop has no such history table. It has: shop.ended,"
    ):
        table(lived, "order")


# --- why


def life(
    lived: Lived,
    *key: str,
    of: str = "orders",
    at: int | None = None,
    records: bool = False,
    lake: Lakehouse | None = None,
) -> RowLife:
    """Return what `why` says about a row, without a JVM."""
    return explain_row(lake or without_spark(lived), lived.it.feed, f"shop.{of}", key, at, with_messages=records)


def no_session() -> SparkSession:
    raise AssertionError("a JVM is asked for")


def without_spark(lived: Lived) -> Lakehouse:
    return replace(lived.it.lake, session=no_session)


def list_steps(explanation: RowLife) -> list[tuple[int, str, str, tuple[int, int] | None]]:
    """Return each step: commit_ts, fate, op, and partition and offset."""
    return [
        (s.commit_ts, str(s.fate), s.op, (s.record.partition, s.record.offset) if s.record else None)
        for s in explanation.steps
    ]


def at(lived: Lived, name: str) -> tuple[int, int]:
    record = lived.records[name]
    return record["partition"], record["offset"]


def test_a_life_newest_first(lived: Lived) -> None:
    row_life = life(lived, "2")
    assert list_steps(row_life) == [
        (tso(11), "end", "delete", at(lived, "delete 2")),
        (tso(5), "duplicate", "update", at(lived, "late repeat")),
        (tso(5), "version", "update", at(lived, "update 2")),
        (tso(3), "version", "insert", at(lived, "insert 2")),
    ]
    assert row_life.verdict == f"The row is not there: delete at {tso(11)} (2023-11-14 22:13:20.011 UTC)."
    end, repeat, update, insert = row_life.steps
    assert (
        repeat.reason == f"It repeats shop_changes partition 1 offset {at(lived, 'update 2')[1]}, which was released."
    )
    assert (update.until, update.closed_by, update.changes) == (
        tso(11),
        "delete",
        [ColumnChange("v", "two", "two again")],
    )
    assert (insert.until, insert.closed_by, insert.changes) == (tso(5), "update", [])
    assert insert.row == {"id": 2, "v": "two", "d": None, "w": None}
    assert insert.quarantined == [{"column": "d", "reason": "zero_date", "value": "0000-00-00"}]
    assert insert.types == {"id": "bigint", "v": "varchar(20)", "d": "date"}
    assert insert.statement is not None
    assert (insert.statement.commit_ts, insert.statement.text[:21]) == (tso(1), "CREATE TABLE `orders`")
    # Its Kafka time, of the recorded record.
    assert insert.record is not None
    kafka_time = datetime.fromtimestamp(lived.records["insert 2"]["timestamp"] / 1000, tz=UTC)
    assert (insert.record.kafka_time, insert.record.batch) == (kafka_time, 1)
    assert [(s.release.number, s.release.run, s.release.watermark) for s in (end, update) if s.release] == [
        (2, RUN, tso(RELEASED)),
        (1, None, tso(10)),
    ]
    (newest,) = {
        read_note(next(lived.it.lake.history("shop", t).log().commits()).note)[RUN_NOTED] for t in ("orders", "wide")
    }
    assert newest == RUN, "histories are written in threads of their own"


def test_why_explains_a_row_as_of_a_position(lived: Lived) -> None:
    row_life = life(lived, "2", at=tso(7))
    assert [(t[0], t[1]) for t in list_steps(row_life)] == [
        (tso(5), "duplicate"),
        (tso(5), "version"),
        (tso(3), "version"),
    ]
    assert row_life.verdict.startswith(f"The row is there as of {tso(7)}")
    assert row_life.steps[1].until is None


def test_why_shows_events_without_effect_and_unreadable_records(lived: Lived) -> None:
    row_life = life(lived, "3")
    assert list_steps(row_life) == [
        (tso(9), "no_effect", "update", at(lived, "nothing")),
        (tso(8), "version", "update", at(lived, "update 3")),
        (tso(6), "version", "insert", at(lived, "insert 3")),
    ]
    assert row_life.steps[1].changes == [ColumnChange("w", None, 7)]
    assert row_life.steps[1].statement is not None
    assert row_life.steps[1].statement.text == "ALTER TABLE `orders` ADD COLUMN `w` INT"
    assert row_life.steps[1].types["w"] == "int"
    assert [(u["reason"], u["partition"], u["offset"]) for u in row_life.undecoded] == [
        ("malformed_json", *at(lived, "cut"))
    ]
    assert life(lived, "2").undecoded == []


def test_why_shows_events_that_are_not_applied_with_the_reason(lived: Lived) -> None:
    late = life(lived, "9")
    assert list_steps(late) == [(tso(5), "late", "insert", at(lived, "late"))]
    assert f"below the watermark released before, {tso(10)} " in str(late.steps[0].reason)
    waits = life(lived, "40")
    assert list_steps(waits) == [
        (tso(14), "pending", "update", at(lived, "pending")),
        (tso(12), "version", "insert", at(lived, "insert 40")),
    ]
    assert str(waits.steps[0].reason).endswith(f": partition 1 has shown {tso(13)} (2023-11-14 22:13:20.013 UTC).")
    assert waits.verdict.endswith(" 1 event is pending.")
    assert list_steps(life(lived, "50")) == [(tso(15), "pending", "insert", at(lived, "pending 50"))]
    held = life(lived, "1", of="ledger")
    assert [t[1] for t in list_steps(held)] == ["pending", "version"]
    (hold,) = lived.it.lake.released_changes.cursor().holds
    assert "ADD COLUMN `w` INT FANCY" in str(held.steps[0].reason)
    assert f"cdc-assets acknowledge shop {hold.first['statement_id']}" in str(held.steps[0].reason)
    excluded = life(lived, "1", of="secrets")
    assert [t[1:] for t in list_steps(excluded)] == [("no_effect", "insert", at(lived, "excluded"))]
    assert excluded.steps[0].reason == "The feed's setting `tables` leaves the table out."
    repeat = life(lived, "1").steps[1]
    assert (str(repeat.fate), repeat.record and repeat.record.offset) == (
        "duplicate",
        at(lived, "repeat of insert 1")[1],
    )


def test_delete_and_insert_at_one_time_are_one_update(lived: Lived) -> None:
    half, update, insert = life(lived, "1", of="pairs").steps
    assert (update.fate, update.op, update.changes) == (Fate.VERSION, "update", [ColumnChange("v", "a", "b")])
    assert (half.fate, half.record and half.record.offset) == (Fate.NO_EFFECT, at(lived, "delete of a pair")[1])
    assert str(half.reason).startswith("It is one update with shop_changes partition 1 ")
    assert (insert.fate, insert.until) == (Fate.VERSION, tso(5))


def test_a_row_that_a_statement_ended(lived: Lived) -> None:
    end, _ = life(lived, "1", of="ended").steps
    assert (end.op, end.record, end.statement) == ("truncate", None, TableStatement(tso(9), "TRUNCATE TABLE `ended`"))


def test_a_key_that_was_never_seen(lived: Lived) -> None:
    row_life = life(lived, "35")
    assert (row_life.verdict, row_life.steps) == ("The feed has no event of this key.", [])
    assert row_life.near == NearKeys(below="3", above="40", lowest="1", highest="40", same_but_case=[])
    alike = life(lived, json.dumps({"id": "1", "v": "Twice"}), of="logs").near
    assert alike is not None
    assert alike.same_but_case == ['{"id":"1","v":"twice"}']


def test_keys_of_every_byte_composite_and_none(lived: Lived) -> None:
    """Keys as JSON, as values with bytes in hexadecimal digits, and complete rows."""
    hexadecimal = "0x" + bytes(range(256)).hex()
    for key in ([json.dumps([ODD_TEXT, BYTES])], [ODD_TEXT, hexadecimal]):
        (only,) = life(lived, *key, of="odd.keys").steps
        assert only.row == ODD_ROWS[0]
    (empty,) = life(lived, "", "", of="odd.keys").steps
    assert empty.row == ODD_ROWS[1]
    steps = life(lived, '{"v": "twice", "id": 1}', of="logs").steps
    assert [(str(s.fate), s.op, s.copy) for s in steps] == [
        ("end", "delete", 2),
        ("version", "insert", 2),
        ("version", "insert", 1),
    ]


def assert_one_fate_each(lived: Lived, lake: Lakehouse) -> None:
    """Assert that every record of every table has exactly one fate."""
    events = lake.change_events
    place = ("topic", "partition", "offset")
    rows = events.fetch(events.files(kind="row"), "table", "key", "after", "before", *place).to_pylist()
    keys = {
        (r["table"], r["key"] or encode_row_key(json.loads(r["after"] or r["before"])))
        for r in rows
        if r["table"] != "wide"
    }
    records = [s.record for of, key in sorted(keys) for s in life(lived, key, of=of, lake=lake).steps]
    places = Counter((r.topic, r.partition, r.offset) for r in records if r)
    assert places == Counter(tuple(r[c] for c in place) for r in rows if r["table"] != "wide")
    assert len(places) == 26


def test_every_event_has_one_fate(lived: Lived) -> None:
    assert_one_fate_each(lived, without_spark(lived))


def test_what_maintenance_has_deleted(lived: Lived, tmp_path: Path) -> None:
    """Versions stay, with the records that opened and ended them; nothing shows whether other events were duplicates."""
    shutil.copytree(lived.it.lake.root, tmp_path / "trimmed")
    assert trim_changes(replace(lived.it.lake, root=str(tmp_path / "trimmed")), datetime(2100, 1, 1, tzinfo=UTC)) > 0
    lake = replace(without_spark(lived), root=str(tmp_path / "trimmed"))
    assert_one_fate_each(lived, lake)
    row_life = life(lived, "2", lake=lake)
    assert list_steps(row_life) == [
        (tso(11), "end", "delete", at(lived, "delete 2")),
        (tso(5), "no_effect", "update", at(lived, "late repeat")),
        (tso(5), "version", "update", at(lived, "update 2")),
        (tso(3), "version", "insert", at(lived, "insert 2")),
    ]
    end, unknown, _, insert = row_life.steps
    assert (end.statement, end.release, insert.release) == (None, None, None)
    assert str(unknown.reason).startswith("Maintenance has deleted the released changes of that time: ")
    assert insert.quarantined == [{"column": "d", "reason": "zero_date", "value": "0000-00-00"}]
    assert list_steps(life(lived, "50", lake=lake)) == [(tso(15), "pending", "insert", at(lived, "pending 50"))]


@pytest.mark.parametrize(
    ("of", "key", "message"),
    [
        ("orders", ("1", "2"), r"shop.orders: The table has the key \(id\): give 1 values instead of 2\."),
        ("logs", ("1",), "shop.logs: The table has no key: give the row as one JSON object"),
        ("order", ("1",), "shop.order: the feed has no event of this table. Tables with a history: shop.ended, "),
    ],
)
def test_why_refuses_what_it_cannot_answer(lived: Lived, of: str, key: tuple[str, ...], message: str) -> None:
    with pytest.raises(OperationError, match=message):
        life(lived, *key, of=of)


def test_before_the_first_run(lived: Lived, tmp_path: Path) -> None:
    lake = Lakehouse(no_session, str(tmp_path / "nothing"), FEED)
    with pytest.raises(OperationError, match="Feed shop has no records yet: run its pipeline first"):
        explain_row(lake, lived.it.feed, "shop.orders", ["1"])


@pytest.fixture
def behind(lived: Lived, tmp_path: Path) -> Lakehouse:
    """The tables after a run whose history stage failed at one table: without a JVM."""
    shutil.copytree(lived.it.lake.root, tmp_path / "behind")
    lake = replace(without_spark(lived), root=str(tmp_path / "behind"))
    shutil.rmtree(lake.history("shop", "pairs").path)
    write_progress(lake, Progress(1, frozenset({("shop", "pairs"), ("shop", "ended")})))
    return lake


def test_why_shows_changes_that_the_history_lacks_yet(lived: Lived, behind: Lakehouse) -> None:
    steps = explain_row(behind, lived.it.feed, "shop.pairs", ["1"]).steps
    assert [str(s.fate) for s in steps] == ["no_effect", "pending", "pending"]
    assert steps[1].reason == "It is released, and not in the history yet: the next run applies it to the history."
    assert find_final_position(behind, "shop", "pairs").position == -1
    # The second release has no change of the table, but a statement that may concern it.
    ended = find_final_position(behind, "shop", "ended")
    assert ended.position == tso(11) - 1
    assert ended.reason == f"the next run applies the table's released changes from commit_ts {tso(11)} on"
    assert find_final_position(behind, "shop", "orders").position == tso(RELEASED) - 1


@pytest.mark.parametrize(
    ("reason", "first", "text"),
    [
        (HoldReason.SCHEMA, {"schema_version": 7}, "version 7 of its schema has not arrived"),
        (
            HoldReason.TYPE,
            {"topic": "t", "partition": 0, "offset": 24, "column": "v", "problem": "x"},
            "column v of topic t, partition 0, offset 24 breaks the type mapping: x; give its type",
        ),
        (HoldReason.LINKED, {"why": "from a", "statement": "RENAME"}, "from a: RENAME"),
        (
            HoldReason.DDL,
            {"why": "y", "statement": "S", "statement_id": "i"},
            "y: S; decide with cdc-assets acknowledge f i",
        ),
    ],
)
def test_what_a_table_waits_for(reason: HoldReason, first: dict[str, Any], text: str) -> None:
    assert describe_hold(Hold("shop", "orders", tso(2), reason, 1, first), "f").startswith(
        f"the table is blocked from commit_ts {tso(2)} (2023-11-14 22:13:20.002 UTC) on: {text}"
    )


def test_a_widened_history_is_explained_by_spark(lived: Lived) -> None:
    row_life = explain_row(lived.it.lake, lived.it.feed, "shop.wide", ["1"])
    assert [s.changes for s in row_life.steps] == [[ColumnChange("n", 1, 5_000_000_000)], []]
    assert row_life.steps[0].types == {"id": "bigint", "n": "bigint"}


def test_why_as_text_and_as_markdown(lived: Lived) -> None:
    """In markdown, no value breaks a table's cells."""
    lines = format_text(life(lived, "3")).splitlines()
    assert lines[0].startswith('shop.orders (id) ["3"] of feed shop. The row is there, unchanged since ')
    assert "    w: NULL -> 7" in lines
    rows = [
        r
        for r in format_markdown(life(lived, json.dumps([ODD_TEXT, BYTES]), of="odd.keys")).splitlines()
        if r[:1] == "|"
    ]
    assert [len(re.findall(r"(?<!\\)\|", r)) for r in rows] == [6, 6, 6]


@pytest.mark.extended
def test_recorded_lives_are_the_truth(recorded: Callable[[str], Chain]) -> None:
    """The changefeed restarted and the producer sent again: every record of a real encoder has its place."""
    it = recorded("orders")
    lake = replace(it.lake, session=no_session)
    head, *lines = read_lines(RECORDED / "ticdc/truth/orders.history")
    (columns,) = {tuple(line["key_cols"]) for line in lines if line["kind"] == "version"}
    versions, pending, seen = Counter[Any](), Counter[Any](), set[tuple[str, ...]]()
    for line in lines:
        if line["kind"] == "version":
            key = tuple(line["key"][c] for c in columns)
            versions[key, line["valid_from"], line["valid_to"], line["closed_by"]] += 1
        else:
            key = tuple(line["event"]["key"][c] for c in columns)
            pending[key, line["event"]["commit_ts"]] += 1
        seen.add(key)
    steps = [(k, s) for k in seen for s in explain_row(lake, it.feed, "shop.orders", [json.dumps(k)]).steps]
    assert Counter((k, s.commit_ts, s.until, s.closed_by) for k, s in steps if s.fate is Fate.VERSION) == versions
    assert {(k, s.commit_ts) for k, s in steps if s.fate is Fate.PENDING} == set(pending)
    assert {s.fate for _, s in steps} == {Fate.VERSION, Fate.END, Fate.DUPLICATE, Fate.PENDING}
    messages = [json.loads(bytes_of(line)) for line in read_lines(RECORDED / "ticdc/canal-json_ext/orders")]
    rows = [m for m in messages if m["type"] in {"INSERT", "UPDATE", "DELETE"}]
    assert sum(s.record is not None for _, s in steps) == len(rows)
    assert all(s.commit_ts < head["watermark_ts"] for _, s in steps if s.fate is not Fate.PENDING)


def test_without_watermarks(chain: Callable[..., Chain]) -> None:
    """A duplicate in the same run, and a late event in a later run."""
    it, orders, stream = chain(tidb_extension=False), Rows(), Stream(2)
    one, two = orders.insert(tso(1), 1, "one"), orders.update(tso(3), 1, "three", "one")
    for message in (one, one, two):
        stream.send(message)
    it.add(stream.records)
    it.run()
    late = stream.send(orders.update(tso(2), 1, "two", "one"), 1)
    again = stream.send(two)
    it.add([late, again])
    it.run()
    row_life = explain_row(it.lake, it.feed, "shop.orders", ["1"])
    assert list_steps(row_life) == [
        (tso(3), "duplicate", "update", (0, 3)),
        (tso(3), "version", "update", (0, 2)),
        (tso(2), "late", "update", (1, 0)),
        (tso(1), "duplicate", "insert", (0, 1)),
        (tso(1), "version", "insert", (0, 0)),
    ]
    assert row_life.final.position == tso(3)


# --- diff


def side(lived: Lived, position: int, of: str = "orders", root: str | None = None) -> DiffSide:
    lake = without_spark(lived)
    return DiffSide(replace(lake, root=root) if root else lake, "shop", of, position)


def test_diff_between_two_positions(lived: Lived) -> None:
    difference = compare_rows(side(lived, tso(6)), side(lived, tso(12)))
    assert (difference.inserted, difference.deleted, difference.updated, difference.columns) == (1, 1, 1, {"w": 1})
    new, deleted = (
        {"id": 40, "v": "forty", "d": date(2024, 2, 29), "w": 1},
        {"id": 2, "v": "two again", "d": None, "w": None},
    )
    assert difference.samples == [
        SampleRow("insert", '["40"]', None, new),
        SampleRow("delete", '["2"]', deleted, None),
        SampleRow("update", '["3"]', {"w": None}, {"w": 7}),
    ]
    assert difference.caveats == []
    assert compare_rows(side(lived, tso(8)), side(lived, tso(10))).is_equal
    assert (
        compare_rows(side(lived, tso(12)), side(lived, tso(14)))
        .caveats[0]
        .startswith(f"Position {tso(14)} is not final yet: the table is final up to ")
    )
    equal_rows = compare_rows(side(lived, tso(4), "logs"), side(lived, tso(8), "logs"))
    assert (equal_rows.inserted, equal_rows.deleted, equal_rows.updated) == (0, 1, 0)


def test_diff_of_rows_with_keys_of_every_byte(lived: Lived) -> None:
    one, two = (side(lived, tso(at), "odd.keys") for at in (2, 4))
    difference = compare_rows(one, two)
    assert (difference.inserted, difference.deleted, difference.updated, difference.columns) == (2, 0, 0, {})
    assert [s.after for s in difference.samples] == ODD_ROWS[::-1]
    assert [json.loads(s.key) for s in difference.samples] == [["", ""], [ODD_TEXT, BYTES]]
    assert compare_rows(two, one).deleted == 2
    changes = table(lived, "odd.keys").changes_between(tso(2), tso(4)).to_pylist()
    assert [(c["op"], c["before"], c["after"]) for c in changes] == [("insert", None, row) for row in ODD_ROWS]


def test_diff_between_two_lakehouses(lived: Lived, tmp_path: Path) -> None:
    """In one of them a row was changed by hand, one deleted, and a column is missing."""
    shutil.copytree(lived.it.lake.root, tmp_path / "other")
    other = str(tmp_path / "other")
    assert compare_rows(side(lived, tso(12)), side(lived, tso(12), root=other)).is_equal
    table = replace(lived.it.lake, root=other).history("shop", "orders")
    change(table, "id = 40", v="'another'")
    remove(table, "id = 3")
    difference = compare_rows(side(lived, tso(12)), side(lived, tso(12), root=other))
    assert (difference.inserted, difference.deleted, difference.updated, difference.columns) == (0, 1, 1, {"v": 1})
    assert [s.key for s in difference.samples] == ['["3"]', '["40"]']


# --- as users ask


@pytest.fixture
def at_home(lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feeds file and the lakehouse, where a user's commands look for them."""
    source = f"{{recorded: '{lived.it.snapshots}', partitions: 2}}"
    entry = f"tidb_extension: true, views: cdc_shop, tables: {{exclude: {EXCLUDED}}}, source: {source}"
    (tmp_path / "feeds.yaml").write_text(f"feeds: {{{FEED}: {{protocol: canal-json, {entry}}}}}")
    monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
    monkeypatch.setenv("CDC_LAKEHOUSE", lived.it.lake.root)


@pytest.mark.usefixtures("at_home")
def test_commands(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    def run_command(*command: str, code: int = 0) -> str:
        assert cli.main(command) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    why = json.loads(run_command("why", FEED, "shop.orders", "2", "--at", str(tso(3)), "--records", "--json"))
    (step,) = why["steps"]
    assert step["message"]["after"] == {"id": "2", "v": "two", "d": "0000-00-00"}
    assert (step["fate"], step["row"]["v"]) == ("version", "two")
    assert run_command("why", FEED, "shop.orders", "2").startswith(
        'shop.orders (id) ["2"] of feed shop. The row is not there: '
    )
    assert json.loads(run_command("diff", FEED, "shop.orders", str(tso(8)), "final", "--json"))["deleted"] == 1
    page = run_command("diff", FEED, "shop.logs", str(tso(4)), str(tso(8)), "--html")
    assert "<td>delete</td><td>{&quot;id&quot;:&quot;1&quot;,&quot;v&quot;:&quot;twice&quot;}</td>" in page
    assert ": rows 1 inserted, 1 deleted, 0 updated\n" in run_command("diff", FEED, "shop.orders", str(tso(8)), "final")
    root = lived.it.lake.root + "/"
    assert "rows 0 inserted, 0 deleted, 0 updated" in run_command(
        "diff", FEED, "shop.orders", "final", "final", "--other", root, "--samples", "1"
    )
    assert run_command("why", FEED, "shop.orders", "1", "2", code=1).count("\n") == 1
    assert run_command("diff", FEED, "shop.order", "0", "final", code=1).startswith(
        "shop.order: feed shop has no such "
    )
    with pytest.raises(SystemExit):
        cli.main(["why", FEED, "shop.orders", "2", "--at", "yesterday"])
    assert "argument --at: yesterday is not a position; allowed: " in capsys.readouterr().err


@pytest.mark.usefixtures("at_home")
def test_views_in_the_catalog(lived: Lived, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """The catalog is the session's own."""
    assert cli.main(["views", FEED]) == 0
    assert cli.main(["views", FEED]) == 0, "again, as after a change of columns"
    names = capsys.readouterr().out.splitlines()
    (odd,) = {name for name in names if re.fullmatch(r"cdc_shop\.shop__odd_keys__[0-9a-f]{8}", name)}
    assert "cdc_shop.shop__orders" in names
    assert spark.table("cdc_shop.shop__orders").count() == 6
    assert rows_of(spark.table("cdc_shop.shop__orders__current")) == held_at(tso(RELEASED))
    assert spark.table(f"{odd}__current").columns == list(ODD_ROWS[0])
    session = spark.newSession()
    session.sql("USE cdc_shop")
    assert rows_of(session.sql(f"SELECT * FROM shop__orders__as_of({tso(8)})")) == held_at(tso(8))
    comments = {c.name: c.description for c in spark.catalog.listColumns("cdc_shop.shop__orders__current")}
    columns = {f.name: f.metadata["comment"] for f in lived.it.lake.history("shop", "orders").schema()}
    assert comments == {name: columns[name] for name in ("id", "v", "d", "w")}
    spark.sql("DROP SCHEMA cdc_shop CASCADE")
    assert table(lived).current().num_rows == 2, "what is dropped in the catalog stays in the lakehouse"


# The command runs in a process of its own, because a session cannot change its catalog.
_VIEWS = """
import sys
from cdc_assets import cli
from cdc_assets.spark.session import spark_session

code = cli.main(["views", sys.argv[1]])
print(spark_session().table("cdc_shop.shop__orders__current").count())
sys.exit(code)
"""


@pytest.mark.usefixtures("at_home")
@pytest.mark.extended
def test_views_in_a_hive_metastore(tmp_path: Path) -> None:
    """The metastore is the embedded one, Derby."""
    feeds = tmp_path / "feeds.yaml"
    warehouse = f"spark.sql.warehouse.dir: '{tmp_path / 'warehouse'}'"
    feeds.write_text(feeds.read_text() + f"\nspark: {{spark.sql.catalogImplementation: hive, {warehouse}}}\n")
    command = [sys.executable, "-c", _VIEWS, FEED]
    # Derby need not wait for the disk at each of the metastore's tables.
    options = {"SPARK_SUBMIT_OPTS": " ".join([*SHORT_LIVED_OPTIONS, "-Dderby.system.durability=test"])}
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | options, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *names, count = done.stdout.splitlines()
    assert "cdc_shop.shop__orders" in names
    assert int(count) == len(held_at(tso(RELEASED)))
    assert (tmp_path / "metastore_db/service.properties").is_file()


def test_names_in_the_catalog() -> None:
    assert build_catalog_name("shop", "order_items") == "shop__order_items"
    tricky = [
        ("a", "b__c"),
        ("a__b", "c"),
        ("a", "B"),
        ("a", "b"),
        ("a", "b."),
        ("a", "b_"),
        ("注", "文"),
        ("注", "门"),
    ]
    names = [build_catalog_name(*each) for each in tricky]
    assert len({name.lower() for name in names}) == len(tricky)
    assert all(re.fullmatch("[a-z0-9_]+", name) for name in names)


@pytest.mark.usefixtures("at_home")
def test_the_job_puts_the_answer_on_the_asset() -> None:
    job = build_definitions(load_feeds()).resolve_job_def("why")
    config = {"feed": FEED, "table": "shop.orders", "key": ["3"], "at": "2023-11-14T22:13:20.008Z"}
    run = {"ops": {"tell_why": {"config": config}}}
    done = job.execute_in_process(run_config=run)
    (observed,) = [e for e in done.all_events if e.event_type_value == "ASSET_OBSERVATION"]
    assert observed.asset_key == AssetKey([FEED, "history", "shop", "orders"])
    markdown = observed.asset_observation_data.asset_observation.metadata["why"].value
    assert "| w: NULL -> 7 |" in str(markdown)


# --- the page


def asked_for(page: str) -> list[str]:
    """Return what a browser would fetch for a page."""
    references: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            named = ("src", "href", "xlink:href", "srcset", "action", "data", "poster")
            references.extend(str(value) for name, value in attributes if name in named)
            references.extend([tag] if tag in {"link", "iframe", "object", "embed", "base"} else [])

    Reader().feed(page)
    return references + re.findall(r"@import|url\(", page)


def test_the_page_shows_what_needs_attention(lived: Lived) -> None:
    report = collect_report(lived.it.lake, lived.it.feed)
    records = [line for path in sorted(lived.it.snapshots.iterdir()) for line in path.read_text().splitlines()]
    assert report.counts["records"] == len(records)
    assert (report.counts["late, never seen"], report.counts["late, duplicates"], report.counts["excluded"]) == (
        1,
        1,
        1,
    )
    assert report.counts["pending"] == len(["held", "pending", "pending 50"])
    ledger, late, *quarantined = report.attention
    assert ledger.startswith("shop.ledger: the table is blocked from commit_ts ")
    assert late == "1 row events came late and were never seen before: no history has them."
    assert quarantined == ["1 rows are in quarantine for malformed_json: see Quarantine below."]
    (cut,) = [q.samples for q in report.quarantine if q.reason == "malformed_json"]
    assert [(s["offset"], s["value"]) for s in cut] == [
        (lived.records["cut"]["offset"], bytes_of(lived.records["cut"]).decode())
    ]
    assert {q.reason: q.rows for q in report.quarantine}["zero_date"] == len(["insert 2", "update 2"])


def test_the_page_has_every_table_partition_and_statement(lived: Lived) -> None:
    report = collect_report(lived.it.lake, lived.it.feed)
    rows = {t.table: (t.current, t.final.position) for t in report.tables}
    assert rows["orders"] == (len(HELD[max(HELD)]), tso(RELEASED) - 1)
    assert rows["ended"][0] == 0
    (ledger,) = [t for t in report.tables if t.table == "ledger"]
    assert ledger.final.position == tso(11, 1) - 1
    # Each partition's largest watermark, and the lower of both, which is released.
    assert [(p.watermark, p.released) for p in report.partitions] == [
        (time_of(tso(20)), time_of(tso(RELEASED))),
        (time_of(tso(RELEASED)), time_of(tso(RELEASED))),
    ]
    assert [s["commit_ts"] for s in report.statements] == [tso(11, 1), tso(11), tso(9), tso(7), tso(2), tso(1)]
    assert {r["mysql_type"] for r in report.types if (r["table"], r["column"]) == ("wide", "n")} == {"int", "bigint"}
    first, second = report.releases
    assert (first.number, first.late, second.late) == (1, 0, 2)
    assert second.pending == report.counts["pending"]
    newest = max(r["timestamp"] for r in lived.records.values())
    assert second.lag_seconds == pytest.approx(max(0, newest + 1 - (tso(RELEASED) >> 18)) / 1000, abs=0.01)


def test_the_page_is_one_file_that_asks_for_nothing(lived: Lived) -> None:
    report = collect_report(lived.it.lake, lived.it.feed)
    hostile = "<script>alert('&')</script>"
    page = render_page(replace(report, statements=[report.statements[0] | {"ddl_statement": hostile, "table": "<b>"}]))
    assert asked_for(page) == []
    assert hostile not in page
    assert "&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;" in page
    assert page.count("<svg") == 3
    assert render_page(replace(report, releases=report.releases[:1])).count("<svg") == 0


def test_the_page_of_a_feed_without_anything(chain: Callable[..., Chain]) -> None:
    made = chain()
    report = collect_report(made.lake, made.feed)
    assert report.attention == []
    assert "Nothing needs attention." in render_page(report)


@pytest.mark.usefixtures("at_home")
def test_report_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", FEED, str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'page.html'} written\n"
    assert "shop.ledger: the table is blocked" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/asking.md"])
def test_the_examples_that_ask_the_tables_run(
    page: str, recorded: Callable[[str], Chain], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed shop has the records of `make demo`."""
    for made in Path(recorded("orders").lake.root).glob("*/f"):
        linked = tmp_path / "data/lakehouse" / made.parent.name
        linked.mkdir(parents=True)
        (linked / "shop").symlink_to(made)
    monkeypatch.setenv("CDC_FEEDS", str(PROJECT / "data/feeds.yaml"))
    monkeypatch.delenv("CDC_LAKEHOUSE", raising=False)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python|bash)\n(.*?)```", (PROJECT / page).read_text("utf-8"), re.DOTALL)
    assert {language for language, _ in blocks} == {"python", "bash"}
    for language, code in blocks:
        if language == "python":
            exec(compile(code, page, "exec"), {})
            continue
        for line in code.splitlines():
            command, *arguments = shlex.split(line, comments=True)
            assert (command, cli.main(arguments)) == ("cdc-assets", 0)
