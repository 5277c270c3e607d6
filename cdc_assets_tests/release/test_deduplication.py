"""Duplicates in feeds without watermarks: the native function, its model, and the changes that were sent must agree."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdc_assets.lakehouse.change_events import CHANGE_EVENTS
from cdc_assets.lakehouse.released_changes import RELEASED_CHANGES
from cdc_assets.lakehouse.schema import INT, STRING, conform, struct
from cdc_assets.release.deduplication import deduplicate, number_passes
from cdc_assets_tests.release.order_model import Change, Key
from cdc_assets_tests.support import frame_of_rows

Row = dict[str, Any]
SPLIT = StructType([*CHANGE_EVENTS.columns.fields, *struct(piece_op=STRING, piece=INT, weight=INT).fields])


def row_changes(rng: random.Random, length: int, *, placed: bool) -> list[Change]:
    """Return changes of one row in the source's order; several share a tick or a position, and the clock goes back."""
    changes: list[Change] = []
    state, time = None, 10
    for n in range(length):
        goes_back = changes and rng.random() < 0.2
        time += rng.choice([0, 0, 1, 3])
        fresh = f"v{n}"
        # A row goes to and fro within one tick only: at an older time such a change looks like a duplicate.
        after = fresh if goes_back or state is None else rng.choice([fresh, "a", "b", None])
        if after == state:
            after = fresh
        at = time - rng.randint(1, 4) if goes_back else time
        place = changes[-1].place if changes and at == changes[-1].time and rng.random() < 0.3 else n
        changes.append(Change(at, state, after, place if placed else None, n))
        state = after
    return changes


def sent(rng: random.Random, changes: Sequence[Change]) -> list[Change]:
    """Return the changes as they arrive: the source goes back and sends some again, the last time to the end."""
    arrived: list[Change] = []
    upto = 0
    while upto < len(changes) or rng.random() < 0.3:
        begin = rng.randint(0, upto)
        begin = upto if rng.random() < 0.5 else begin
        end = rng.randint(begin, len(changes))
        arrived += changes[begin:end]
        upto = max(upto, end)
        if end < upto:
            arrived += changes[end:upto]
    return [replace(c, message=n) for n, c in enumerate(arrived)]


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
    if len({c.place for c in changes}) == len(changes) or not may_be_ambiguous(changes):
        assert key.applied == changes
    assert key.positions() == sorted(key.positions())


def may_be_ambiguous(changes: Sequence[Change]) -> bool:
    """Return whether a row has the state before some change again at the end of the same tick."""
    return any(a.time == b.time and a.before == b.after for n, a in enumerate(changes) for b in changes[n:])


def image(value: Any) -> str | None:
    return None if value is None else json.dumps({"id": "1", "v": value})


def piece(change: Change, row: int, offset: int, **more: Any) -> Row:
    """Return a piece of a row event, with the columns of `split_key_changes`."""
    op = "insert" if change.before is None else "delete" if change.after is None else "update"
    place = None
    if change.place is not None:
        place = {"server_id": 1, "file": "bin.000001", "position": change.place, "row": 0, "gtid": None}
    given = {
        "topic": "t", "partition": 0, "offset": offset, "index": 0, "kind": "row", "op": op, "database": "shop",
        "table": "t", "key": f'["{row}"]', "key_columns": ["id"], "commit_ts": change.time, "source_ms": change.time,
        "before": image(change.before), "after": image(change.after), "source": place, "piece_op": op, "piece": 0,
        "weight": 1,
    }  # fmt: skip
    return dict.fromkeys(SPLIT.names) | given | more


class Gate:
    """Runs of the deduplication, each with the released changes of the runs before."""

    def __init__(self, spark: SparkSession, *, by_position: bool = False, trimmed: int = -1) -> None:
        self.spark, self.by_position, self.trimmed = spark, by_position, trimmed
        self.released: list[Row] = []
        self.release = 0

    def run(self, pieces: Iterable[Row]) -> list[Row]:
        """Return the changes and repeats of one release, in order."""
        self.release += 1
        rows = [tuple(p[c] for c in SPLIT.names) for p in pieces]
        split = number_passes(frame_of_rows(self.spark, rows, SPLIT), has_unkeyed=not self.by_position)
        names = RELEASED_CHANGES.columns.names
        before = [tuple(r[c] for c in names) for r in self.released]
        prior = frame_of_rows(self.spark, before, RELEASED_CHANGES.columns) if before else None
        changes, self.late = deduplicate(split, prior, by_position=self.by_position, trimmed=self.trimmed)
        changed = [r.asDict(recursive=True) for r in conform(changes, RELEASED_CHANGES.columns).collect()]
        made = [r | {"release": self.release} for r in changed]
        self.released += made
        return sorted(made, key=lambda r: (r["key"], r["kind"], r["ordinal"] or 0))

    def changes(self) -> Iterator[Row]:
        """Return all changes, in the order of each key."""
        rows = [r for r in self.released if r["kind"] == "row"]
        return iter(sorted(rows, key=lambda r: (r["key"], r["release"], r["ordinal"])))

    def states(self) -> dict[str, list[str | None]]:
        """Return key -> the states that its changes left, in order."""
        states: dict[str, list[str | None]] = {}
        for r in self.changes():
            states.setdefault(json.loads(r["key"])[0], []).append(r["after"] and json.loads(r["after"])["v"])
        return states


@settings(max_examples=3, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), placed=st.booleans())
def test_native_and_model_agree_however_a_stream_is_cut(spark: SparkSession, seed: int, *, placed: bool) -> None:
    """Some hundred rows, each a scenario of its own, in three runs."""
    rng = random.Random(seed)
    streams = {key: sent(rng, row_changes(rng, rng.randint(1, 8), placed=placed)) for key in range(200)}
    gate, runs = Gate(spark, by_position=placed), [list[Row](), list[Row](), list[Row]()]
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


@settings(max_examples=2, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32))
def test_pieces_of_several_partitions_follow_each_other(spark: SparkSession, seed: int) -> None:
    """Each row goes to and fro between three partitions, as keys that change do; only its images tell the order."""
    rng, gate, pieces, rows = random.Random(seed), Gate(spark), [], {}
    for key in range(200):
        state, changes = None, []
        for n in range(rng.randint(1, 9)):
            after = None if state and rng.random() < 0.3 else f"v{n}"
            changes.append(Change(n // 2 if after and state else n, state, after))
            state = after
        rows[str(key)] = changes
        pieces += [piece(c, key, n, partition=rng.randrange(3)) for n, c in enumerate(changes)]
    rng.shuffle(pieces)
    gate.run(pieces)
    assert gate.states() == {key: [c.after for c in changes] for key, changes in sorted(rows.items())}
    assert gate.late.unseen == 0


# --- scenarios that a simpler rule gets wrong

INSERT, BACK, FORTH = Change(1, None, "a"), Change(2, "a", "b"), Change(2, "b", "a")
UPDATE, DELETE = Change(3, "a", "c"), Change(1, "a", None)
WAITED = Change(9, "a", "b"), Change(5, "b", "c")  # the second statement began first
MOVED = {"partition": 1}
TWICE = [(change, {"offset": 9, "index": n}) for n, change in enumerate([BACK, FORTH, BACK])]

# Key -> the runs, each a list of changes or of (change, what its piece has beside); then what the changes left, in order.
BY_CONTENT: dict[int, tuple[list[list[Any]], list[str | None]]] = {
    # A row comes and goes; all of it comes again.
    1: ([[INSERT, Change(2, "a", None)], [INSERT, Change(2, "a", None)]], ["a", None]),
    # Within one tick the source may have done so: the versions have no length.
    2: ([[INSERT, DELETE], [INSERT], [DELETE]], ["a", None, "a", None]),
    # To and fro; then the same again, with a cut before the second change.
    3: ([[INSERT, BACK, FORTH, INSERT], [BACK, FORTH], [UPDATE]], ["a", "b", "a", "c"]),
    # To and fro, and once more as the source did it.
    4: ([[INSERT, BACK, FORTH, BACK], [FORTH]], ["a", "b", "a", "b", "a"]),
    # One replay ends where the next one begins.
    5: ([[INSERT, BACK, INSERT], [BACK, INSERT, BACK], [Change(3, "b", "c")]], ["a", "b", "c"]),
    # A statement that waited for a lock; then the same again.
    6: ([[INSERT, *WAITED], [WAITED[0]], [WAITED[1]]], ["a", "b", "c"]),
    # To and fro in one message.
    7: ([[INSERT, *TWICE]], ["a", "b", "a", "b"]),
    # The row leaves its key in another partition, one run before its earlier changes.
    8: ([[INSERT], [(Change(2, "b", None), MOVED)], [BACK]], ["a", None]),
    # The row leaves and comes back: the pieces of two partitions follow each other.
    9: (
        [[INSERT, (Change(3, "c", None), MOVED), BACK, Change(3, "b", "c"), Change(3, None, "d")]],
        ["a", "b", "c", None, "d"],
    ),
    # A change is lost: the others are applied.
    10: ([[INSERT, Change(4, "x", "y")]], ["a", "y"]),
}


def test_changes_identified_by_content(spark: SparkSession) -> None:
    gate = Gate(spark)
    unseen = []
    for run in range(3):
        pieces = []
        for key, (runs, _) in BY_CONTENT.items():
            for n, each in enumerate(runs[run] if run < len(runs) else []):
                change, more = each if isinstance(each, tuple) else (each, {})
                pieces.append(piece(change, key, 100 * run + n) | more)
        gate.run(pieces)
        unseen.append((gate.late.unseen, [row["key"] for row in gate.late.sample]))
    assert gate.states() == {str(key): left for key, (_, left) in BY_CONTENT.items()}
    assert unseen == [(0, []), (0, []), (1, ['["8"]'])]
    repeats = {(r["key"], r["release"], r["offset"]): r["repeats"] for r in gate.released if r["repeats"]}
    assert repeats['["3"]', 1, 0] == 1, "within a run the change itself says how often it came again"
    assert repeats['["3"]', 2, 1] == 1, "in a later one a row of its own does"
    assert {r["in_replay"] for r in gate.released if r["key"] == '["3"]' and r["release"] == 1} == {True}


def test_positions_of_a_binlog_that_begins_again(spark: SparkSession) -> None:
    gate = Gate(spark, by_position=True)
    first = [Change(1, None, "a", 4), Change(2, "a", "b", 8)]
    restarted = [Change(5, "b", "c", 4), Change(6, "c", "d", 8)]
    gate.run(piece(c, 1, n) for n, c in enumerate(first))
    gate.run(piece(c, 1, n) for n, c in enumerate([*first, *restarted, restarted[0]], start=2))
    assert gate.states() == {"1": ["a", "b", "c", "d"]}
    assert sum(r["repeats"] for r in gate.released) == 3


def test_deleted_changes_are_not_applied_again(spark: SparkSession) -> None:
    """The trimmed releases reached the time 10: a change of that time or before is applied only if it continues the row."""
    gate = Gate(spark, trimmed=10)
    gate.run([piece(Change(11, "b", "c"), 1, 0), piece(Change(12, None, "a"), 2, 1)])
    gate.run(
        [
            piece(Change(9, None, "a"), 1, 2),  # a duplicate of a deleted change
            piece(Change(10, "a", "b"), 1, 3),
            piece(Change(8, "c", "d"), 1, 4),  # a statement that waited long
            piece(Change(7, None, "a"), 3, 5),  # a row whose changes are all deleted
        ]
    )
    assert gate.states() == {"1": ["c", "d"], "2": ["a"]}
    assert gate.late.unseen == 3
    assert sorted(row["offset"] for row in gate.late.sample) == [2, 3, 5]


def test_equal_rows_without_a_key_are_counted(spark: SparkSession) -> None:
    def row(time: int, offset: int, value: str) -> Row:
        return piece(Change(time, None, value), 0, offset, key=image(value), key_columns=[])

    gate = Gate(spark)
    # Three rows at one time, then a clock that goes back without a duplicate; then all of it again.
    stream = [(1, "a"), (1, "a"), (1, "a"), (5, "b"), (3, "c"), (3, "c")]
    gate.run(row(time, n, value) for n, (time, value) in enumerate(stream * 2))
    assert sorted(gate_values(gate)) == ["a", "a", "a", "b", "c", "c"]
    # In a later run an equal row of the newest time may be a copy or a duplicate; one of an older time is a duplicate.
    gate.run([row(1, 20, "a"), row(5, 21, "b"), row(6, 22, "b")])
    assert sorted(gate_values(gate)) == ["a", "a", "a", "b", "b", "c", "c"]
    assert (gate.late.unseen, [r["offset"] for r in gate.late.sample]) == (1, [21])


def gate_values(gate: Gate) -> list[str]:
    """Return the values of the rows that were applied."""
    return [json.loads(r["after"])["v"] for r in gate.changes()]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": "1", "b": null}', '{"b":null,"a":"\\u0031"}', True),
        ('{"a": {"x": [1, 2]}}', '{"a":{"x":[1,2]}}', True),
        ('{"a": {"x": [1, 2]}}', '{"a": {"x": [12]}}', False),
        ('{"a": "b", "b": null}', '{"a": null, "b": "b"}', False),
        ('{"a": null}', '{"a": ""}', False),
        ('{"a": "1"}', '{"a": "1", "b": null}', False),
    ],
)
def test_which_images_are_the_same(spark: SparkSession, one: str, other: str, *, same: bool) -> None:
    gate = Gate(spark)
    gate.run([piece(INSERT, 1, n, after=text) for n, text in enumerate((one, other))])
    assert len(list(gate.changes())) == (1 if same else 2)
