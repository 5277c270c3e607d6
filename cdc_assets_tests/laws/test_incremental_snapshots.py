"""Check that a connector's incremental snapshot of all rows closes the rows that the table lacks.

What the recorded histories must hold follows from the rows of the server's tables (`record_incremental_snapshots`).
"""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.assets.checks.audit import all_events_placed, all_intervals
from cdc_assets.lakehouse.change_events import PARTIAL_SNAPSHOT, Kind
from cdc_assets.lakehouse.released_changes import ReleaseCursor, TableScan
from cdc_assets.operations.maintenance.retention import trim_events
from cdc_assets.operations.rebuild import rebuild_feed
from cdc_assets.release.base import EventGroup, Part
from cdc_assets.release.table_scans import ScanEvents, advance_scans, parse_scans
from cdc_assets.stages import STAGES
from cdc_assets_tests.laws.test_source_snapshots import run
from cdc_assets_tests.protocols.debezium_encoder import MS, change, source, text
from cdc_assets_tests.record_incremental_snapshots import SCENARIOS, SET, payload
from cdc_assets_tests.support import Chain, Record, bytes_of, histories, make_feed, read_lines, record

TABLES = ("customers", "drained", "orders")
NOTIFICATIONS = "s.notifications"


def truth(scenario: str) -> dict[str, dict[str, dict[str, str]]]:
    """Return the tables' rows: as the connector knew them, after missed changes, before the snapshot, at the end."""
    tables: dict[str, dict[str, dict[str, str]]] = json.loads((SET / f"{scenario}.truth.json").read_text())
    return tables


def current(chain: Chain) -> dict[str, dict[str, str]]:
    """Return table -> key -> value of the open rows."""
    return {t: {str(r["id"]): r["v"] for r in chain.history(t) if r["_cdc_is_current"]} for t in TABLES}


def ended_with_snapshot(chain: Chain) -> dict[str, dict[str, int]]:
    """Return table -> key -> end of the rows that a snapshot closed."""
    return {
        t: {str(r["id"]): r["_cdc_to_ts"] for r in chain.history(t) if r["_cdc_closed_by"] == "snapshot"}
        for t in TABLES
    }


@pytest.fixture(scope="module")
def recorded_scenario(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Chain]:
    """Return a function that runs each recorded scenario once."""
    made: dict[str, Chain] = {}

    def of(scenario: str) -> Chain:
        if scenario not in made:
            chain = Chain(spark, tmp_path_factory.mktemp(scenario), protocol="debezium", snapshots="whole")
            made[scenario] = run(chain, read_lines(SET / scenario))
        return made[scenario]

    return of


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rows_that_the_table_lacked_end_when_the_snapshot_began(
    scenario: str, recorded_scenario: Callable[[str], Chain]
) -> None:
    """No other rows end: none if only some rows were asked for, and none if the snapshot was stopped."""
    it, held = recorded_scenario(scenario), truth(scenario)
    assert it.quarantine() == []
    assert current(it) == held["final"]
    began = [p["timestamp"] for p in map(payload, read_lines(SET / scenario)) if _is_start(p)][-1] << 18
    missing = {t: held["known"][t].keys() - held["before"][t].keys() for t in TABLES}
    ended = ended_with_snapshot(it)
    assert {t: each.keys() for t, each in ended.items()} == missing
    for t in TABLES:
        # A row that came back has its next version from then on, by the server's clock of seconds.
        again = {str(r["id"]): r["_cdc_from_ts"] for r in it.history(t) if r["_cdc_op"] == "insert"}
        assert ended[t] == {key: min(began, again.get(key, began)) for key in missing[t]}
        assert all_intervals(it.lake, "shop", t).passed
    assert all_events_placed(it.lake, it.feed).passed
    assert [stage.name for stage in STAGES if stage.due(it.lake, it.feed)] == []


def _is_start(event: dict[str, Any]) -> bool:
    return (event.get("aggregate_type"), event.get("type")) == ("Incremental Snapshot", "STARTED")


def test_no_row_ends_unless_the_feed_declares_complete_snapshots(chain: Callable[..., Chain]) -> None:
    it = run(chain(protocol="debezium"), read_lines(SET / "repaired"))
    assert ended_with_snapshot(it) == {t: {} for t in TABLES}


def test_no_row_ends_without_the_notifications(chain: Callable[..., Chain]) -> None:
    records = [r for r in read_lines(SET / "repaired") if r["topic"] != NOTIFICATIONS]
    assert ended_with_snapshot(run(chain(protocol="debezium", snapshots="whole"), records)) == {t: {} for t in TABLES}


def lanes(records: Iterable[Record], *order: tuple[str, int]) -> list[list[Record]]:
    """Return one run for the records of each of these topics and partitions, then one for the rest."""
    own = [[r for r in records if (r["topic"], r["partition"]) == lane] for lane in order]
    return [*own, [r for r in records if (r["topic"], r["partition"]) not in order]]


CUTS: dict[str, tuple[str, Callable[[list[Record]], list[list[Record]]]]] = {
    "notifications-first": ("repaired", lambda r: lanes(r, (NOTIFICATIONS, 0), ("s.shop.customers", 1), ("s", 0))),
    "notifications-last": ("repaired", lambda r: lanes(r, (NOTIFICATIONS, 0))[::-1]),
    "amid-the-snapshot": ("repaired", lambda r: [r[:-24], r[-24:-15], r[-15:-2], r[-2:]]),
    "signals-last": ("stopped", lambda r: lanes(
        r, ("s", 0), ("s.shop.customers", 0), (NOTIFICATIONS, 0), ("s.shop.customers", 1),
    )),
}  # fmt: skip


@pytest.mark.parametrize(
    "cut",
    [pytest.param(c, marks=() if c == "amid-the-snapshot" else pytest.mark.soak) for c in CUTS],
)
def test_however_the_stream_is_cut(
    cut: str, chain: Callable[..., Chain], recorded_scenario: Callable[[str], Chain]
) -> None:
    """Reads arrive before or after the notifications; a signal for some rows arrives last."""
    scenario, parts = CUTS[cut]
    it = run(chain(protocol="debezium", snapshots="whole"), *parts(read_lines(SET / scenario)))
    assert histories(it.lake) == histories(recorded_scenario(scenario).lake)


@pytest.mark.extended
def test_a_released_snapshot_is_applied_by_the_next_run(
    chain: Callable[..., Chain], recorded_scenario: Callable[[str], Chain]
) -> None:
    """A run dies after the release; the next one, with the end of the stream, applies it."""
    records = read_lines(SET / "repaired")
    began = next(n for n, r in enumerate(records) if _is_start(payload(r)))
    it = run(chain(protocol="debezium", snapshots="whole"), records[: began + 5])
    it.add(records[began + 5 : -2])
    for stage in STAGES[:-1]:
        stage.run(it.lake, it.feed)
    assert any(scan.is_complete for scan in scans(it))
    assert ended_with_snapshot(it) == {t: {} for t in TABLES}
    assert histories(run(it, records[-2:]).lake) == histories(recorded_scenario("repaired").lake)


def test_a_rebuild_gives_the_same(recorded_scenario: Callable[[str], Chain], tmp_path: Path) -> None:
    it = recorded_scenario("repaired")
    copy = it.copy(tmp_path / "rebuilt")
    assert list(rebuild_feed(copy.lake, copy.feed))
    assert histories(copy.lake) == histories(it.lake)


# --- messages that the tests write


class Sent:
    """What a connector sends, in order: records of one table, each key in one of two partitions, and notifications."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def send(self, made: Record, topic: str, partition: int, seconds: float) -> None:
        """Add a record; its Kafka time is `seconds` after the beginning."""
        offset = sum((r["topic"], r["partition"]) == (topic, partition) for r in self.records)
        place = {"topic": topic, "partition": partition, "offset": offset, "timestamp": MS + round(1000 * seconds)}
        self.records.append(made | place)

    def change(
        self, op: str, key: int, before: str | None, after: str | None, seconds: float, pos: int, **more: Any
    ) -> None:
        """Add a change, or a read."""
        at = source(pos, seconds=int(seconds), **more)
        self.send(change(op, key, before, after, at), "s.inventory.customers", key % 2, seconds)

    def read(self, key: int, v: str, seconds: float, pos: int) -> None:
        """Add a read of a chunk."""
        self.change("r", key, None, v, seconds, pos, snapshot="incremental")

    def notify(self, kind: str, seconds: float, id_: str = "one", **data: str) -> None:
        """Add a notification."""
        self.send(notification(kind, seconds, id_, **data), NOTIFICATIONS, 0, seconds)


def notification(kind: str, seconds: float, id_: str = "one", **data: str) -> Record:
    """Return a notification of an incremental snapshot, without a schema."""
    value = {
        "id": id_,
        "type": kind,
        "aggregate_type": "Incremental Snapshot",
        "additional_data": {"connector_name": "s", **data},
        "timestamp": MS + round(1000 * seconds),
    }
    return record(text(value), key=text({"id": id_}))


SCANNED = {"scanned_collection": "inventory.customers", "status": "SUCCEEDED"}


def repeated() -> list[Record]:
    """Return a stream whose snapshot must end row 2 alone.

    The table has the rows 1 to 4. Row 2 is deleted while no connector runs. The connector sends a change of row 3,
    dies, and starts again before that change. Without a signal row, it is asked for a snapshot before it has sent
    the change again, so it drops row 3 from its chunk. The table lacks only row 2.
    """
    s = Sent()
    for key, v in enumerate("abcd", start=1):
        s.change("r", key, None, v, 10, 100, server_id=0, snapshot={1: "first", 4: "last"}.get(key, "true"))
    s.change("u", 3, "c", "c2", 20, 300)
    s.notify("STARTED", 30, data_collections="inventory.customers")
    s.change("u", 3, "c", "c2", 30.1, 300, ts_ms=MS + 20_000)
    s.read(1, "a", 31, 400)
    s.read(4, "d", 31, 400)
    s.notify("TABLE_SCAN_COMPLETED", 32, total_rows_scanned="3", **SCANNED)
    s.notify("COMPLETED", 32)
    return s.records


# Expected by hand: id, v, end, closed by.
REPEATED = [
    (1, "a", None, None),
    (2, "b", (MS + 30_000) << 18, "snapshot"),
    (3, "c", (MS + 20_000) << 18, "update"),
    (3, "c2", None, None),
    (4, "d", None, None),
]


def endings(chain: Chain) -> list[tuple[Any, ...]]:
    """Return the versions in the form of `REPEATED`."""
    rows = chain.versions("customers", "inventory")
    return sorted(((r["id"], r["v"], r["_cdc_to_ts"], r["_cdc_closed_by"]) for r in rows), key=lambda v: v[:2])


def test_a_change_that_is_sent_again_during_the_snapshot_keeps_its_row(chain: Callable[..., Chain]) -> None:
    """All records arrive at once, or the notifications first, then the partitions."""
    for parts in ([repeated()], lanes(repeated(), (NOTIFICATIONS, 0), ("s.inventory.customers", 1))):
        assert endings(run(chain(protocol="debezium", snapshots="whole"), *parts)) == REPEATED


def test_no_row_ends_while_changes_of_the_snapshot_are_held(chain: Callable[..., Chain]) -> None:
    """The declared type fits no value: the rows exist, but would all seem to be missing."""
    it = run(chain(protocol="debezium", snapshots="whole", columns={"inventory.customers.v": "int"}), repeated())
    (scan,) = scans(it)
    assert (scan.is_complete, scan.why_not[:32]) == (False, "changes during the scan are held")
    it.feed = make_feed(it.snapshots, protocol="debezium", snapshots="whole")
    it.run()
    (scan,) = scans(it)
    assert scan.is_complete
    assert endings(it) == REPEATED


def scans(chain: Chain) -> list[TableScan]:
    """Return the table scans that the gate's cursor has."""
    cursor = chain.lake.released_changes.cursor()
    assert cursor is not None
    return cursor.scans


def test_a_snapshot_among_deleted_events_ends_no_row(chain: Callable[..., Chain]) -> None:
    """Deleted changes may have come before the beginning of the snapshot."""
    rest, notifications = lanes(repeated(), (NOTIFICATIONS, 0))[::-1]
    it = run(chain(protocol="debezium", snapshots="whole"), rest)
    later = datetime.fromtimestamp(MS / 1000 + 10_000, UTC)
    assert trim_events(it.lake, it.feed, later) == len(rest)
    it.add(notifications)
    it.run()
    (scan,) = scans(it)
    assert (scan.is_complete, scan.why_not) == (False, "maintenance has deleted events of the scan")
    assert [v for v in endings(it) if v[3] == "snapshot"] == []


# --- which table scans are complete, without Spark


def notified(*notifications: tuple[str, float, dict[str, str]]) -> list[dict[str, Any]]:
    """Return notifications as change events."""
    events = []
    for n, (kind, seconds, data) in enumerate(notifications):
        value = json.loads(bytes_of(notification(kind, seconds, **data)))
        detail = json.dumps(value | {"additional_data": json.dumps(value["additional_data"])})
        kafka = datetime.fromtimestamp(MS / 1000 + seconds, UTC)
        place = {"topic": NOTIFICATIONS, "partition": 0, "offset": n, "record_timestamp": kafka}
        events.append(place | {"commit_ts": value["timestamp"] << 18, "detail": detail})
    return events


def read_scans(*notifications: tuple[str, float, dict[str, str]]) -> list[tuple[str, int, int, int]]:
    """Return the scans that the notifications state: table, seconds of the beginning and of the end, rows."""
    scans = parse_scans(reversed(notified(*notifications)))
    return [(s.table, ((s.at >> 18) - MS) // 1000, (s.last - MS) // 1000, s.rows) for s in scans]


def done(table: str, status: str = "SUCCEEDED", rows: int = 1, **more: str) -> dict[str, str]:
    return {"scanned_collection": f"shop.{table}", "status": status, "total_rows_scanned": str(rows)} | more


START: dict[str, str] = {"data_collections": "shop.a"}


@pytest.mark.parametrize(
    ("notifications", "expected"),
    [
        ([("STARTED", 1, START), ("TABLE_SCAN_COMPLETED", 5, done("a", rows=7))], [("a", 1, 5, 7)]),
        ([("STARTED", 1, START), ("TABLE_SCAN_COMPLETED", 5, done("a", "EMPTY", 0))], [("a", 1, 5, 0)]),
        # A scan without its beginning does not count; Debezium 2.3.0 does not name the table.
        ([("TABLE_SCAN_COMPLETED", 5, done("a"))], []),
        ([("STARTED", 1, START), ("TABLE_SCAN_COMPLETED", 5, {"status": "SUCCEEDED"})], []),
        *[
            ([("STARTED", 1, START), ("TABLE_SCAN_COMPLETED", 5, done("a", status))], [])
            for status in ("NO_PRIMARY_KEY", "SKIPPED", "SQL_EXCEPTION", "UNKNOWN_SCHEMA", "STOPPED")
        ],
        ([("STARTED", 1, START), ("ABORTED", 2, {}), ("COMPLETED", 2, {})], []),
        # A paused snapshot, notified twice by a connector that started again; another signal adds a second table.
        (
            [
                ("STARTED", 1, START),
                ("PAUSED", 2, START),
                ("RESUMED", 3, START),
                ("STARTED", 4, START),
                ("TABLE_SCAN_COMPLETED", 5, done("a", rows=7)),
                ("TABLE_SCAN_COMPLETED", 6, done("a", rows=2)),
                ("TABLE_SCAN_COMPLETED", 7, done("b", id_="two")),
                ("COMPLETED", 7, {"id_": "two"}),
                ("TABLE_SCAN_COMPLETED", 8, done("b", id_="two")),
            ],
            [("a", 1, 6, 7), ("b", 1, 8, 1)],
        ),
        # Another snapshot with the same id; and one after the connector lost its state.
        (
            [
                ("STARTED", 1, START),
                ("TABLE_SCAN_COMPLETED", 2, done("a")),
                ("COMPLETED", 2, {}),
                ("STARTED", 3, START),
                ("STARTED", 5, START | {"id_": "two"}),
                ("TABLE_SCAN_COMPLETED", 6, done("a")),
            ],
            [("a", 1, 2, 1), ("a", 5, 6, 1)],
        ),
        # Two connectors.
        (
            [
                ("STARTED", 1, START),
                ("STARTED", 2, START | {"connector_name": "t"}),
                ("COMPLETED", 3, {"connector_name": "t"}),
                ("TABLE_SCAN_COMPLETED", 4, done("a")),
            ],
            [("a", 1, 4, 1)],
        ),
    ],
)
def test_scans_that_notifications_state(
    notifications: list[tuple[str, float, dict[str, str]]], expected: list[tuple[str, int, int, int]]
) -> None:
    assert read_scans(*notifications) == expected


def test_kafkas_time_counts_where_debezium_2_3_states_none() -> None:
    events = notified(("STARTED", 1, START), ("TABLE_SCAN_COMPLETED", 5, done("a", rows=7)))
    (scan,) = parse_scans(e | {"commit_ts": None} for e in events)
    assert (scan.at, scan.until) == ((MS + 1000) << 18, (MS + 5000) << 18)


SCAN = TableScan("shop", "a", at=10, until=20, first=10_000, last=20_000, rows=3)


def group(table: str, first_ms: int, last_ms: int, *markers: str) -> EventGroup:
    """Return changes in the window of a release."""
    return EventGroup(
        str(Part.INSIDE), True, True, "shop", table, 1, False, True, False, 1, 10, 10, 1, 0, [], {},
        markers=markers, first_ms=first_ms, last_ms=last_ms,
    )  # fmt: skip


def after(
    earlier: list[TableScan], notified_scans: list[TableScan], window: list[EventGroup], rows: int, **more: Any
) -> TableScan | None:
    """Return the scan after release 7, in which the given number of rows is seen; None: nothing was looked up."""
    asked: list[TableScan] = []

    def look(scans: list[TableScan]) -> list[ScanEvents | None]:
        asked.extend(scans)
        return [
            ScanEvents(5, {"t": {"0": 3}}, [], rows, **({"has_unreleased": False, "has_partial_signal": False} | more))
            for _ in scans
        ]

    (scan,) = advance_scans(earlier, notified_scans, window, 7, look)
    return scan if asked else None


def test_a_scan_is_complete_when_all_its_rows_have_come() -> None:
    """Otherwise the scan states the reason."""
    cases: list[tuple[int, dict[str, bool], str]] = [
        (3, {}, ""),
        (2, {}, "2 of 3 rows have come"),
        (3, {"has_unreleased": True}, "held, pending, or in quarantine"),
        (3, {"has_partial_signal": True}, "additional-conditions"),
    ]
    for rows, more, why_not in cases:
        scan = after([], [SCAN], [], rows, **more)
        assert scan is not None
        assert (scan.is_complete, scan.release) == ((False, 0) if why_not else (True, 7))
        assert why_not in scan.why_not
        assert bool(scan.why_not) == (not scan.is_complete) == (not scan.row()["ends_rows"])


def test_a_scan_is_examined_again_when_changes_of_its_time_come() -> None:
    """The histories then apply the scan again; or revoke it, if only some rows were asked for."""
    first = after([], [SCAN], [], 3)
    assert first is not None
    before = [TableScan(**vars(first) | {"release": 2})]
    for of_its_time in (
        group("a", 1_000, 2_000),
        group("a", 15_000, 30_000),
        group("signals", 9_500, 9_900, PARTIAL_SNAPSHOT),
    ):
        scan = after(before, [SCAN], [of_its_time], 3)
        assert scan is not None
        assert (scan.is_complete, scan.release) == (True, 7)
    revoked = after(before, [], [group("signals", 9_500, 9_900, PARTIAL_SNAPSHOT)], 3, has_partial_signal=True)
    assert revoked is not None
    assert (revoked.is_complete, revoked.release) == (False, 7)
    for other in (group("a", 22_000, 30_000), group("b", 15_000, 16_000), group("signals", 1, 2, PARTIAL_SNAPSHOT)):
        assert after(before, [SCAN], [other], 3) is None


def test_a_cursor_of_the_version_before_is_read() -> None:
    """The earlier version's cursor has no scans, and its change_events no notifications."""
    values = json.loads(ReleaseCursor(sequence=3).text("x"))
    del values["scans"]
    assert ReleaseCursor.of(values) == ReleaseCursor(sequence=3)


def test_other_records_of_the_topic_are_in_quarantine(chain: Callable[..., Chain]) -> None:
    it = chain(protocol="debezium", snapshots="whole")
    odd = {"id": "one", "aggregate_type": "Incremental Snapshot"}
    it.add([notification("STARTED", 1), record(text(odd), offset=1, topic=NOTIFICATIONS)])
    assert it.run().decode.events == {Kind.NOTIFICATION: 1, Kind.UNDECODABLE: 1}
    assert [q["reason"] for q in it.quarantine()] == ["unknown_type"]
