"""Merge row events into changes: split, duplicate and unordered events become one change for each key and commit_ts."""

import json
import random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.lakehouse.change_events import CHANGE_EVENTS
from cdc_assets.release.changes import add_copies, fill_keys, merge_changes, split_key_changes
from cdc_assets_tests.support import frame_of_rows

Event = dict[str, Any]
SCHEMA = CHANGE_EVENTS.columns


class Events:
    """Row events with coordinates, as the decoder writes them; the key is `id`."""

    def __init__(self) -> None:
        self.rows: list[Event] = []

    def add(self, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None, **more: Any) -> Event:
        image = {True: None, False: "{}"}
        event = dict.fromkeys(SCHEMA.names) | {
            "topic": "t",
            "partition": 0,
            "offset": len(self.rows),
            "index": 0,
            "batch": 1,
            "kind": "row",
            "op": op,
            "database": "shop",
            "table": "orders",
            "commit_ts": 100,
            "key_columns": ["id"],
            "before": image[before is None] and json.dumps(before),
            "after": image[after is None] and json.dumps(after),
        }
        self.rows.append(event | more)
        return self.rows[-1]

    def insert(self, key: int, v: str, **more: Any) -> Event:
        return self.add("insert", None, {"id": str(key), "v": v}, **more)

    def delete(self, key: int, v: str, **more: Any) -> Event:
        return self.add("delete", {"id": str(key), "v": v}, None, **more)

    def update(self, key: int, v: str, old: str, old_key: int | None = None, **more: Any) -> Event:
        before = {"id": str(key if old_key is None else old_key), "v": old}
        return self.add("update", before, {"id": str(key), "v": v}, **more)

    def again(self, event: Event, offset: int) -> None:
        self.rows.append(event | {"offset": offset})


def pieces_of(spark: SparkSession, events: list[Event]) -> DataFrame:
    """Return the pieces of the events, the input of `merge_changes`."""
    frame = frame_of_rows(spark, [tuple(e[c] for c in SCHEMA.names) for e in events], SCHEMA)
    return add_copies(split_key_changes(fill_keys(frame)), has_unkeyed=True)


def changes(spark: SparkSession, events: list[Event]) -> dict[str, tuple[Any, ...]]:
    """Return key -> (op, v after, offset, events, repeats)."""
    rows = merge_changes(pieces_of(spark, events)).collect()

    def v(image: str | None) -> Any:
        return json.loads(image)["v"] if image else None

    result = {
        ",".join(json.loads(r["key"])) if r["key_columns"] else r["key"]: (
            r["op"],
            v(r["after"]),
            r["offset"],
            r["events"],
            r["repeats"],
        )
        for r in rows
    }
    assert len(result) == len(rows), "one change a key and commit_ts"
    assert sum(r["events"] + r["repeats"] for r in rows) == len(events), "events and repeats add up"
    return result


def test_a_split_update_is_one_update_in_any_order(spark: SparkSession) -> None:
    """TiCDC splits an update of a unique column; the insert has the end state, in whatever order the two come."""
    it = Events()
    it.delete(1, "old")
    it.insert(1, "new")
    it.insert(2, "new", partition=0)
    it.delete(2, "old", partition=1)
    assert changes(spark, it.rows) == {
        "1": ("update", "new", 1, 2, 0),
        "2": ("update", "new", 2, 2, 0),
    }


def test_repeats_collapse_onto_the_first_record(spark: SparkSession) -> None:
    it = Events()
    first = it.insert(1, "a")
    it.update(2, "new", "old", offset=10)
    deleted = it.delete(3, "x")
    it.again(first, 90)
    it.again(first, 80)
    it.again(it.rows[1], 91)
    it.again(deleted, 92)
    assert changes(spark, it.rows) == {
        "1": ("insert", "a", 0, 1, 2),
        "2": ("update", "new", 10, 1, 1),
        "3": ("delete", None, 2, 1, 1),
    }


def test_repeats_of_half_a_split_update(spark: SparkSession) -> None:
    it = Events()
    it.delete(1, "old")
    new = it.insert(1, "new")
    it.again(new, 50)
    it.again(new, 60)
    assert changes(spark, it.rows) == {"1": ("update", "new", 1, 2, 2)}


def test_the_row_before_a_change_is_that_of_its_key(spark: SparkSession) -> None:
    """A split update has the row of its DELETE; a changed key's delete has the old row, and its insert has none."""
    it = Events()
    it.insert(1, "new")
    it.delete(1, "old", partition=1)
    it.update(2, "new", "old")
    it.update(4, "new", "old", old_key=3)
    it.delete(5, "old")
    it.add("delete", {"id": "6"}, None)
    befores = {
        r["key"]: r["before"] and json.loads(r["before"]) for r in merge_changes(pieces_of(spark, it.rows)).collect()
    }
    rows = {n: {"id": str(n), "v": "old"} for n in (1, 2, 3, 5)}
    assert befores == {f'["{n}"]': rows.get(n) for n in range(1, 7)}


def test_a_changed_key_is_a_delete_and_an_insert(spark: SparkSession) -> None:
    """TiCDC splits the update, or sends one event (output-raw-change-event): the changes are the same, the counts differ."""
    split, raw = Events(), Events()
    split.delete(1, "v")
    split.insert(2, "v")
    raw.update(2, "v", "v", old_key=1)
    assert changes(spark, split.rows) == {"1": ("delete", None, 0, 1, 0), "2": ("insert", "v", 1, 1, 0)}
    assert changes(spark, raw.rows) == {"1": ("delete", None, 0, 0, 0), "2": ("insert", "v", 0, 1, 0)}


def test_two_keys_change_places(spark: SparkSession) -> None:
    split, raw = Events(), Events()
    split.delete(1, "one")
    split.insert(1, "two")
    split.delete(2, "two")
    split.insert(2, "one")
    raw.update(2, "one", "one", old_key=1)
    raw.update(1, "two", "two", old_key=2)
    assert changes(spark, split.rows) == {
        "1": ("update", "two", 1, 2, 0),
        "2": ("update", "one", 3, 2, 0),
    }
    assert changes(spark, raw.rows) == {
        "1": ("update", "two", 1, 1, 0),
        "2": ("update", "one", 0, 1, 0),
    }


def test_a_key_is_taken_over(spark: SparkSession) -> None:
    """Row 1 moves to key 2, whose row is deleted, in one transaction."""
    split, raw = Events(), Events()
    split.insert(2, "one")
    split.delete(1, "one")
    split.delete(2, "two")
    raw.delete(2, "two")
    raw.update(2, "one", "one", old_key=1)
    assert changes(spark, split.rows) == {"1": ("delete", None, 1, 1, 0), "2": ("update", "one", 0, 2, 0)}
    assert changes(spark, raw.rows) == {"1": ("delete", None, 1, 0, 0), "2": ("update", "one", 1, 2, 0)}


def chain_with_repeats() -> list[Event]:
    """Return updates of the keys 1 -> 2 -> 3 in one transaction, each record twice."""
    it = Events()
    one = it.update(2, "one", "one", old_key=1)
    two = it.update(3, "two", "two", old_key=2)
    it.again(one, 20)
    it.again(two, 21)
    return it.rows


def test_a_chain_of_key_changes_with_duplicates(spark: SparkSession) -> None:
    assert changes(spark, chain_with_repeats()) == {
        "1": ("delete", None, 0, 0, 0),
        "2": ("update", "one", 0, 1, 1),
        "3": ("insert", "two", 1, 1, 1),
    }


def test_a_pair_may_stay_apart_and_its_delete_comes_first(spark: SparkSession) -> None:
    """One update leaves key 2 and another takes it; key 1 ends, key 3 begins."""
    rows = merge_changes(pieces_of(spark, chain_with_repeats()), joins_pairs=False).orderBy("key", "ordinal").collect()
    assert [(r["key"], r["op"], r["offset"], r["events"], r["repeats"]) for r in rows] == [
        ('["1"]', "delete", 0, 0, 0),
        ('["2"]', "delete", 1, 0, 0),
        ('["2"]', "insert", 0, 1, 1),
        ('["3"]', "insert", 1, 1, 1),
    ]


def test_tables_keys_and_commits_are_kept_apart(spark: SparkSession) -> None:
    it = Events()
    it.insert(1, "a")
    it.insert(1, "b", table="customers")
    it.insert(1, "c", database="other")
    it.update(1, "d", "a", commit_ts=101)
    changed = {
        (r["database"], r["table"], r["commit_ts"], r["op"]) for r in merge_changes(pieces_of(spark, it.rows)).collect()
    }
    assert changed == {
        ("shop", "orders", 100, "insert"),
        ("shop", "customers", 100, "insert"),
        ("other", "orders", 100, "insert"),
        ("shop", "orders", 101, "update"),
    }


@pytest.mark.parametrize("values", [("a,b", "c"), ("a", "b,c"), ('a"', "b"), ("", "a"), (" a", "b")])
def test_composite_keys_do_not_run_together(spark: SparkSession, values: tuple[str, str]) -> None:
    it = Events()
    pairs = {("a,b", "c"), ("a", "b,c"), ('a"', "b"), ("", "a"), ("a", ""), (" a", "b"), ("a", "b")}
    for pair in [*pairs, values]:
        it.add("insert", None, {"x": pair[0], "y": pair[1], "v": "?"}, key_columns=["y", "x"])
    repeats = {tuple(json.loads(r["key"])): r["repeats"] for r in merge_changes(pieces_of(spark, it.rows)).collect()}
    assert repeats == {(y, x): int((x, y) == values) for x, y in pairs}


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_events_does_not_matter(spark: SparkSession, seed: int) -> None:
    it = Events()
    it.delete(1, "one")
    it.insert(1, "two")
    it.update(3, "x", "x", old_key=2)
    it.update(2, "y", "y", old_key=3)
    it.insert(4, "z")
    it.again(it.rows[4], 44)
    it.again(it.rows[0], 45)
    expected = changes(spark, it.rows)
    shuffled = list(it.rows)
    random.Random(seed).shuffle(shuffled)
    assert changes(spark, shuffled) == expected
    assert expected == {
        "1": ("update", "two", 1, 2, 1),
        "2": ("update", "y", 3, 1, 0),
        "3": ("update", "x", 2, 1, 0),
        "4": ("insert", "z", 4, 1, 1),
    }
