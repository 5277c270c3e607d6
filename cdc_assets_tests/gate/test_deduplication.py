"""Repeats in feeds without watermarks: the native function against its model, and both against what was sent."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cdc_assets.gate.deduplication import deduplicate, with_passes
from cdc_assets.tables.change_events import CHANGE_EVENTS
from cdc_assets.tables.released_changes import RELEASED_CHANGES
from cdc_assets.tables.schema import INT, STRING, StructType, conform, struct
from cdc_assets_tests.gate.order_model import Change, Key
from cdc_assets_tests.support import frame_of_rows

Row = dict[str, Any]
SPLIT = StructType([*CHANGE_EVENTS.columns.fields, *struct(piece_op=STRING, piece=INT, weight=INT).fields])


def row_changes(rng: random.Random, length: int, *, placed: bool) -> list[Change]:
    """Changes of one row as the source made them; several share a tick, and the clock goes back."""
    changes: list[Change] = []
    state, time = None, 10
    for n in range(length):
        goes_back = changes and rng.random() < 0.2
        time += rng.choice([0, 0, 1, 3])
        fresh = f"v{n}"
        # What goes to and fro shares one tick: at an older time it could not be told from a repeat.
        after = fresh if goes_back or state is None else rng.choice([fresh, "a", "b", None])
        if after == state:
            after = fresh
        at = time - rng.randint(1, 4) if goes_back else time
        changes.append(Change(at, state, after, n if placed else None, n))
        state = after
    return changes


def sent(rng: random.Random, changes: Sequence[Change]) -> list[Change]:
    """What arrives: suffixes are sent again from any earlier point, some of them broken off, the last one to the end."""
    found, upto = [], 0
    while upto < len(changes) or rng.random() < 0.3:
        begin = rng.randint(0, upto)
        begin = upto if rng.random() < 0.5 else begin
        end = rng.randint(begin, len(changes))
        found += changes[begin:end]
        upto = max(upto, end)
        if end < upto:
            found += changes[end:upto]
    return [replace(c, message=n) for n, c in enumerate(found)]


def is_to_and_fro(changes: Sequence[Change]) -> bool:
    """Whether a change is equal to another: its repeats may be applied, which leaves versions of no length."""
    return len(set(changes)) < len(changes)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), placed=st.booleans())
@pytest.mark.fast
def test_the_model_ends_as_the_source(seed: int, *, placed: bool) -> None:
    rng = random.Random(seed)
    changes = row_changes(rng, rng.randint(1, 8), placed=placed)
    key = Key()
    for change in sent(rng, changes):
        key.follow(change)
    assert key.applied[-1].after == changes[-1].after
    if placed or not may_be_ambiguous(changes):
        assert key.applied == changes
    assert key.positions() == sorted(key.positions())


def may_be_ambiguous(changes: Sequence[Change]) -> bool:
    """Whether the state that a change found is one that the row had again by the end of the same tick."""
    newest = max(c.time for c in changes)
    last = [c for c in changes if c.time == newest]
    del last
    return any(a.time == b.time and a.before == b.after for n, a in enumerate(changes) for b in changes[n:])


def image(value: Any) -> str | None:
    return None if value is None else json.dumps({"id": "1", "v": value})


def piece(change: Change, key: int, offset: int, **more: Any) -> Row:
    """A piece of a row event, as `pieces` makes it."""
    op = "insert" if change.before is None else "delete" if change.after is None else "update"
    place = None
    if change.place is not None:
        place = {"server_id": 1, "file": "bin.000001", "position": change.place, "row": 0, "gtid": None}
    given = {
        "topic": "t", "partition": 0, "offset": offset, "index": 0, "kind": "row", "op": op, "database": "shop",
        "table": "t", "key": f'["{key}"]', "key_columns": ["id"], "commit_ts": change.time, "source_ms": change.time,
        "before": image(change.before), "after": image(change.after), "source": place, "piece_op": op, "piece": 0,
        "weight": 1,
    }  # fmt: skip
    return dict.fromkeys(SPLIT.names) | given | more


class Gate:
    """Runs of the deduplication, each with what the ones before it have released."""

    def __init__(self, spark: SparkSession, *, by_place: bool = False, trimmed: int = -1) -> None:
        self.spark, self.by_place, self.trimmed = spark, by_place, trimmed
        self.released: list[Row] = []
        self.release = 0

    def run(self, pieces: Iterable[Row]) -> list[Row]:
        """Return the changes and repeats of one release, in order."""
        self.release += 1
        rows = [tuple(p[c] for c in SPLIT.names) for p in pieces]
        split = with_passes(frame_of_rows(self.spark, rows, SPLIT), unkeyed=not self.by_place)
        names = RELEASED_CHANGES.columns.names
        before = [tuple(r[c] for c in names) for r in self.released]
        prior = frame_of_rows(self.spark, before, RELEASED_CHANGES.columns) if before else None
        changes, self.late = deduplicate(split, prior, by_place=self.by_place, trimmed=self.trimmed)
        found = [r.asDict(recursive=True) for r in conform(changes, RELEASED_CHANGES.columns).collect()]
        made = [r | {"release": self.release} for r in found]
        self.released += made
        return sorted(made, key=lambda r: (r["key"], r["kind"], r["ordinal"] or 0))

    def changes(self) -> Iterator[Row]:
        """All changes, in the order of each key."""
        rows = [r for r in self.released if r["kind"] == "row"]
        return iter(sorted(rows, key=lambda r: (r["key"], r["release"], r["ordinal"])))

    def states(self) -> dict[str, list[str | None]]:
        """Key -> what its changes left, one after the other."""
        found: dict[str, list[str | None]] = {}
        for r in self.changes():
            found.setdefault(json.loads(r["key"])[0], []).append(r["after"] and json.loads(r["after"])["v"])
        return found


@settings(max_examples=3, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), placed=st.booleans())
def test_native_and_model_agree_however_a_stream_is_cut(spark: SparkSession, seed: int, *, placed: bool) -> None:
    """Some hundred rows, each a scenario of its own, in three runs."""
    rng = random.Random(seed)
    streams = {key: sent(rng, row_changes(rng, rng.randint(1, 8), placed=placed)) for key in range(200)}
    gate, runs = Gate(spark, by_place=placed), [list[Row](), list[Row](), list[Row]()]
    for key, stream in streams.items():
        cuts = sorted(rng.randint(0, len(stream)) for _ in range(2))
        for run, (begin, end) in zip(runs, [(0, cuts[0]), (cuts[0], cuts[1]), (cuts[1], len(stream))], strict=True):
            run += [piece(change, key, n) for n, change in enumerate(stream[begin:end], start=begin)]
    for run in runs:
        rng.shuffle(run)
        gate.run(run)
        assert gate.late.unseen == 0
    applied: dict[int, list[tuple[int, int]]] = {key: [] for key in streams}
    for r in gate.changes():
        applied[int(json.loads(r["key"])[0])].append((r["offset"], r["commit_ts"]))
    total = sum(r["events"] + r["repeats"] for r in gate.released)
    assert total == sum(map(len, streams.values())), "every event is a change, or counted with the one that it repeats"
    for key, stream in streams.items():
        model = Key()
        for change in stream:
            model.follow(change)
        assert applied[key] == list(zip((c.message for c in model.applied), model.positions(), strict=True)), stream
