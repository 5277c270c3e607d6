"""Check that a connector's snapshot of all rows closes the rows that it lacks.

No recorded stream has a second snapshot. The messages have the recorded envelope (`debezium_encoder`). Which read
has which `source.snapshot` follows from Debezium's source (`RelationalSnapshotChangeEventSource`: `last` of all,
else `first` of all, else last of its table, else first of its table, else `true`) and from the recorded initial
snapshots of both versions. The expected versions follow by hand from the rows of the table: see `stream`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.assets.checks.audit import all_events_placed, all_intervals
from cdc_assets.lakehouse.released_changes import SourceSnapshot
from cdc_assets.operations.maintenance.retention import trim_changes
from cdc_assets.operations.rebuild import rebuild_feed
from cdc_assets.operations.rebuild_table import compare_table_with_rebuild
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.operations.why.life import Fate
from cdc_assets.release.base import EventGroup, Part
from cdc_assets.release.source_snapshots import advance_snapshots, keep_unended, list_ended_tables
from cdc_assets.stages import STAGES
from cdc_assets.stages.history.table_planner import LoadTooOldError
from cdc_assets.stages.history.verify import verify_written_tables
from cdc_assets_tests.laws.conservation import assert_counts_add_up
from cdc_assets_tests.protocols.debezium_encoder import MS, change, source
from cdc_assets_tests.support import Chain, Record, histories, record, rows_in

PARTITIONS = 2


def at(seconds: int) -> int:
    """Return the commit_ts of an event that the source stamps `seconds` after the beginning."""
    return (MS + 1000 * seconds) << 18


class Topic:
    """The records of one table: odd keys are in partition 1, even keys in the other."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def send(self, op: str, key: int, before: str | None, after: str | None, place: dict[str, Any]) -> None:
        """Add a record; its Kafka time is its number in seconds."""
        partition = key % PARTITIONS
        offset = sum(r["partition"] == partition for r in self.records)
        made = change(op, key, before, after, place, offset)
        self.records.append(made | {"partition": partition, "timestamp": MS + 1000 * len(self.records)})

    def read(self, file: str, pos: int, seconds: int, rows: Mapping[int, str], markers: Sequence[str]) -> None:
        """Add reads of a snapshot."""
        for (key, v), marker in zip(rows.items(), markers, strict=True):
            self.send("r", key, None, v, source(pos, file=file, seconds=seconds, server_id=0, snapshot=marker))


def stream() -> list[Record]:
    """Return the records of a table whose connector loses its position and takes two more snapshots.

    At 10 s the table has the rows 1 to 4; then row 1 changes and row 5 is inserted. The position is lost: rows 2
    and 3 are deleted, row 4 changes, row 6 is inserted. The connector begins a snapshot and dies after two rows,
    when row 2 still existed. It takes another snapshot on a server whose log has lower numbers, of the table as it
    is at 94 s, and reads it from 100 s on. Row 3 is inserted again at 95 s, row 4 changes, row 7 is inserted.
    """
    t = Topic()
    t.read("bin.000007", 100, 10, {1: "a", 2: "b", 3: "c", 4: "d"}, ["first", "true", "true", "last"])
    t.send("u", 1, "a", "a2", source(200, file="bin.000007", seconds=20))
    t.send("c", 5, None, "e", source(210, file="bin.000007", seconds=21))
    t.read("bin.000008", 40, 90, {1: "a2", 2: "b"}, ["first", "true"])
    t.read("bin.000002", 50, 100, {1: "a2", 4: "d2", 5: "e", 6: "f"}, ["first", "true", "true", "last"])
    t.send("c", 3, None, "c3", source(60, file="bin.000002", seconds=95))
    t.send("u", 4, "d2", "d3", source(70, file="bin.000002", seconds=120))
    t.send("c", 7, None, "g", source(80, file="bin.000002", seconds=121))
    return t.records


STREAM = stream()
# Expected by hand: key, v, from, to (seconds), op, closed by.
EXPECTED = [
    (1, "a", 10, 20, "snapshot", "update"),
    (1, "a2", 20, None, "update", None),
    (2, "b", 10, 100, "snapshot", "snapshot"),
    (3, "c", 10, 95, "snapshot", "snapshot"),
    (3, "c3", 95, None, "insert", None),
    (4, "d", 10, 100, "snapshot", "update"),
    (4, "d2", 100, 120, "snapshot", "update"),
    (4, "d3", 120, None, "update", None),
    (5, "e", 21, None, "insert", None),
    (6, "f", 100, None, "snapshot", None),
    (7, "g", 121, None, "insert", None),
]


def run(chain: Chain, *parts: Sequence[Record]) -> Chain:
    for part in parts:
        chain.add(part)
        assert verify_written_tables(chain.lake, chain.run().history) == {}
    assert_counts_add_up(chain.lake)
    return chain


def versions(chain: Chain) -> list[tuple[Any, ...]]:
    """Return the versions in the form of `EXPECTED`."""

    def seconds(ts: int | None) -> int | None:
        return None if ts is None else ((ts >> 18) - MS) // 1000

    rows = rows_in(chain.lake.history("inventory", "customers"), chain.lake.spark)
    described = [
        (r["id"], r["v"], seconds(r["_cdc_from_ts"]), seconds(r["_cdc_to_ts"]), r["_cdc_op"], r["_cdc_closed_by"])
        for r in rows
    ]
    return sorted(described, key=lambda v: (v[0], v[2]))


@pytest.fixture(scope="module")
def ended_chain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """The chain that ran the stream in one run."""
    return run(Chain(spark, tmp_path_factory.mktemp("whole"), protocol="debezium", snapshots="whole"), STREAM)


def test_rows_that_a_complete_snapshot_lacks_end_with_it(ended_chain: Chain) -> None:
    assert versions(ended_chain) == EXPECTED
    assert all_intervals(ended_chain.lake, "inventory", "customers").passed
    assert all_events_placed(ended_chain.lake, ended_chain.feed).passed
    life = explain_row(ended_chain.lake, ended_chain.feed, "inventory.customers", ["2"])
    (end,) = [step for step in life.steps if step.fate is Fate.END]
    assert (end.op, end.reason) == (
        "snapshot",
        "The connector took a snapshot of the whole table, which does not have the row.",
    )
    assert [stage.name for stage in STAGES if stage.due(ended_chain.lake, ended_chain.feed)] == []


@pytest.mark.parametrize(
    "cut",
    [
        # One partition after the other: later changes of one come before the other shows that there is a snapshot.
        pytest.param(
            lambda r: ([x for x in r if x["partition"] == 1], [x for x in r if x["partition"] == 0]),
            id="odd-first",
            marks=pytest.mark.extended,
        ),
        pytest.param(
            lambda r: ([x for x in r if x["partition"] == 0], [x for x in r if x["partition"] == 1]),
            id="even-first",
            marks=pytest.mark.extended,
        ),
        # In the middle of the second snapshot, and after its last row.
        pytest.param(lambda r: (r[:10], r[10:12], r[12:]), id="in-order"),
    ],
)
def test_however_the_stream_is_cut(
    chain: Callable[..., Chain], ended_chain: Chain, cut: Callable[[list[Record]], tuple[list[Record], ...]]
) -> None:
    cut_up = run(chain(protocol="debezium", snapshots="whole"), *cut(STREAM))
    assert versions(cut_up) == EXPECTED
    assert histories(cut_up.lake) == histories(ended_chain.lake)


def test_a_rebuild_gives_the_same(ended_chain: Chain, tmp_path: Path) -> None:
    copy = ended_chain.copy(tmp_path / "rebuilt")
    again = [compare_table_with_rebuild(copy.lake, copy.feed, name) for name in copy.lake.histories()]
    assert [difference for difference in again if not difference.is_equal] == []
    assert list(rebuild_feed(copy.lake, copy.feed))
    assert versions(copy) == EXPECTED


def test_no_row_ends_unless_the_feed_declares_complete_snapshots(chain: Callable[..., Chain]) -> None:
    """A filter (additional-conditions, snapshot.select.statement.overrides) leaves no trace in the messages."""
    actual = versions(run(chain(protocol="debezium"), STREAM))
    assert [v for v in actual if v[0] in (2, 3)] == [
        (2, "b", 10, None, "snapshot", None),
        (3, "c", 10, 95, "snapshot", "update"),
        (3, "c3", 95, None, "update", None),
    ]


def test_nothing_ends_where_a_read_is_in_quarantine(chain: Callable[..., Chain]) -> None:
    damaged = [r | ({"value": record(b'{"op":', 0, 0)["value"]} if n == 9 else {}) for n, r in enumerate(STREAM)]
    actual = versions(run(chain(protocol="debezium", snapshots="whole"), damaged))
    assert [v for v in actual if v[0] == 2] == [(2, "b", 10, None, "snapshot", None)]


# --- which snapshots are complete, without Spark


def reads(table: str, markers: Sequence[str], position: int = 50, low: int = 100) -> EventGroup:
    """Return reads of a snapshot, as a release groups them."""
    place = {"topic": f"s.{table}", "file": "bin.000002", "position": position}
    group = changes(table, low, len(markers))
    return EventGroup(**vars(group) | {"read": place, "markers": markers, "first_ms": 1000, "last_ms": 2000})


def changes(table: str, low: int, count: int = 1, last_ms: int = 0) -> EventGroup:
    """Return other changes, as a release groups them."""
    return EventGroup(
        str(Part.INSIDE), True, True, "shop", table, 1, False, True, False, count, low, low, 1, 0, [], {}, last_ms=last_ms
    )  # fmt: skip


def released(
    earlier: list[SourceSnapshot],
    window: list[EventGroup],
    release: int,
    *,
    is_new: bool = False,
    damaged: bool = False,
    deleted: int = -1,
) -> list[SourceSnapshot]:
    return advance_snapshots(earlier, window, release, lambda _: is_new, lambda _: damaged, deleted)


@pytest.mark.parametrize(
    ("markers", "other", "is_complete"),
    [
        (["first", "true", "last"], [], True),
        (["first_in_data_collection", "true", "last_in_data_collection"], [], True),
        (["first", "last_in_data_collection"], ["true"], True),
        (["last_in_data_collection"], ["first"], True),  # one row
        (["last"], ["first"], True),
        (["first"], ["first_in_data_collection", "last"], True),  # one row, of the first table
        (["first"], ["first_in_data_collection"], False),  # or the first of more rows, which have not come yet
        (["first", "true"], [], False),
        (["first_in_data_collection", "true"], ["first", "last"], False),  # two tables at the same time
        (["true", "last_in_data_collection"], ["first"], False),  # the first is missing
        (["true", "last_in_data_collection"], [], False),
        (["true"], ["true", "last"], True),  # Debezium 1.9
        (["true", "last"], [], True),
        (["true"], ["true"], False),
    ],
)
def test_a_snapshot_is_complete_if_it_began_and_ended(markers: list[str], other: list[str], is_complete: bool) -> None:
    groups = [reads("a", markers), *([reads("b", other)] if other else [])]
    (snapshot,) = [s for s in released([], groups, 7) if s.table == "a"]
    assert snapshot.release == (7 if is_complete else 0)
    in_two = released(released([], groups[:1], 7), groups[1:], 8) if other else [snapshot]
    assert [bool(s.release) for s in in_two if s.table == "a"] == [is_complete]


def test_a_snapshot_that_began_again_elsewhere_is_another() -> None:
    broken_off = released([], [reads("a", ["first", "true"], position=40, low=90)], 1)
    again = released(broken_off, [reads("a", ["true", "last"], position=50), reads("a", ["first"], 50)], 2)
    assert [(s.position, s.at, s.release) for s in again] == [(50, 100, 2)]


def test_late_reads_repeat_a_snapshot_and_cover_the_changes_between() -> None:
    first = released([], [reads("a", ["first"], low=100), changes("a", 80)], 1)
    between = released(first, [changes("a", 70), changes("b", 10)], 2)
    ended = released(between, [reads("a", ["last"], low=101)], 3)
    late = released(released(ended, [changes("a", 5)], 4), [reads("a", ["true"], low=99), changes("a", 60)], 5)
    states = [[(s.at, s.since, s.release) for s in each] for each in (first, between, ended, late)]
    assert states == [[(100, 80, 0)], [(100, 70, 0)], [(100, 70, 3)], [(99, 60, 5)]]
    assert released(ended, [changes("a", 5)], 4) == ended


def test_a_damaged_snapshot_is_not_complete() -> None:
    (snapshot,) = released([], [reads("a", ["first", "last"])], 1, damaged=True)
    assert snapshot.release == 0


def test_a_first_snapshot_has_nothing_to_end_until_one_begins_again() -> None:
    once, again = reads("a", ["first", "last"], 40, 90), reads("a", ["first", "last"], 50, 100)
    for snapshot in (
        released([], [once, again], 1, is_new=True),
        released(released([], [once], 1, is_new=True), [again], 1),
    ):
        assert [(s.position, s.release) for s in snapshot] == [(50, 1)]
    (alone,) = released(released([], [reads("a", ["first"])], 1, is_new=True), [reads("a", ["last"])], 2)
    assert (alone.initial, alone.release) == (True, 0)
    (after_a_change,) = released([], [changes("a", 90), again], 1, is_new=True)
    assert after_a_change.release == 1


def test_a_read_of_a_snapshot_that_maintenance_has_forgotten_begins_none() -> None:
    """Otherwise a last row that is sent again would count as a complete snapshot of a table of one row."""
    (snapshot,) = released([], [reads("a", ["first", "last"], low=100)], 1)
    assert released([], [reads("a", ["last"], low=100)], 2, deleted=100) == []
    assert [s.release for s in released([snapshot], [reads("a", ["last"], low=100)], 2, deleted=100)] == [2]
    assert [s.release for s in released([], [reads("a", ["last"], low=101)], 2, deleted=100)] == [2]


# --- which snapshots have ended, so that the history has every row from the last read on


def ends(
    before: list[SourceSnapshot], window: list[EventGroup], **how: bool
) -> tuple[list[tuple[str, str, int]], list[Any]]:
    """Return the tables whose snapshot ends with a release, and the snapshots that may go on after it."""
    after = released(before, window, 1, **how)
    return list_ended_tables(before, after), keep_unended(after)


def test_a_snapshot_that_is_half_read_has_not_ended() -> None:
    for markers in (["first", "true"], ["first_in_data_collection"], ["true"]):
        ended, going_on = ends([], [reads("a", markers)])
        assert (ended, len(going_on)) == ([], 1)
    ended, going_on = ends(going_on, [reads("a", ["true", "last"], low=120)])
    assert (ended, going_on) == ([("shop", "a", 120)], [])


def test_with_debezium_1_9_all_tables_end_with_the_last_read() -> None:
    _, going_on = ends([], [reads("a", ["true"]), reads("b", ["true"], low=90)])
    ended, left = ends(going_on, [reads("b", ["true", "last"], low=95)])
    assert (sorted(ended), left) == ([("shop", "a", 100), ("shop", "b", 95)], [])


def test_a_change_after_the_reads_ends_the_snapshot() -> None:
    """A connector sends no change before it has read all tables; the last read may be in no topic of the feed."""
    _, going_on = ends([], [reads("a", ["true"])])  # Kafka's times of the reads are 1000 to 2000
    assert ends(going_on, [changes("a", 200, last_ms=2000), changes("b", 200, last_ms=9000)]) == ([], going_on)
    assert ends(going_on, [changes("a", 200, last_ms=2001)]) == ([("shop", "a", 100)], [])
    assert ends([], [reads("a", ["true"]), changes("a", 200, last_ms=2001)]) == ([("shop", "a", 100)], [])
    assert ends(going_on, [changes("a", 200, last_ms=2001)], damaged=True) == ([], going_on)


def test_if_a_snapshot_began_again_only_the_second_ends() -> None:
    _, broken_off = ends([], [reads("a", ["first", "true"], position=40, low=90)])
    for window in ([reads("a", ["first", "last"])], [reads("a", ["true"]), changes("a", 200, last_ms=2001)]):
        assert ends(broken_off, window) == ([("shop", "a", 100)], [])


def test_an_ended_snapshot_is_returned_once() -> None:
    ended = released([], [reads("a", ["first", "last"], low=100)], 1, is_new=True)
    again = released(ended, [changes("a", 200, last_ms=2001)], 2)
    assert list_ended_tables(ended, again) == []
    assert list_ended_tables(again, released(again, [reads("a", ["true"], low=101)], 3)) == [("shop", "a", 101)]


# --- after maintenance


def old(chain: Chain, records: Sequence[Record]) -> Chain:
    """Run a feed over some records, and delete all its changes by maintenance."""
    it = run(chain, records)
    assert trim_changes(it.lake, datetime.fromtimestamp(MS / 1000 + 10_000, UTC)) > 0
    return it


def test_snapshots_that_no_history_needs_are_deleted(chain: Callable[..., Chain]) -> None:
    """If the connector sends the last read again, it ends no row: it is no snapshot of a table of one row.

    Without the deleted changes, nobody can tell whether the read is a duplicate: it is reported, not applied.
    """
    it = old(chain(protocol="debezium", snapshots="whole"), STREAM)
    cursor = it.lake.released_changes.cursor()
    assert cursor is not None
    assert cursor.snapshots == []
    it.add([STREAM[11] | {"offset": 100}])
    report = it.run().release
    assert (report.window, report.late_unseen) == (0, 1)
    assert versions(it) == EXPECTED


def test_a_snapshot_whose_beginning_was_deleted_is_reported_and_a_rebuild_helps(
    chain: Callable[..., Chain],
) -> None:
    """The changes to apply it on are deleted: the check of its table fails, and says what to do."""
    it = old(chain(protocol="debezium", snapshots="whole"), STREAM[:9])
    it.add(STREAM[9:])
    with pytest.raises(LoadTooOldError, match=r"inventory\.customers .* rebuild"):
        it.run()
    with pytest.raises(LoadTooOldError):
        it.run()
    assert list(rebuild_feed(it.lake, it.feed))
    assert versions(it) == EXPECTED
