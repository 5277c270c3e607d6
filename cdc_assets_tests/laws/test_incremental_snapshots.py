"""A connector's incremental snapshot of a whole table closes the rows that are gone: recorded ones, and what cannot be recorded.

What the recorded histories must hold follows from what the server's tables held (`record_incremental_snapshots`).
"""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.checks.audit import all_events_placed, all_intervals
from cdc_assets.gate.base import Group, Part
from cdc_assets.gate.table_scans import Seen, advanced_scans, scans_told
from cdc_assets.history.verify import broken_by_table
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.stages import STAGES
from cdc_assets.tables.change_events import PARTIAL_WANTED, Kind
from cdc_assets.tables.released_changes import ReleaseCursor, TableScan
from cdc_assets_tests.laws.conservation import settled
from cdc_assets_tests.protocols.debezium_encoder import MS, change, source, text
from cdc_assets_tests.record_incremental_snapshots import SCENARIOS, SET, payload
from cdc_assets_tests.support import Chain, Record, bytes_of, histories, read_lines, record

TABLES = ("customers", "drained", "orders")
NOTIFICATIONS = "s.notifications"


def truth(scenario: str) -> dict[str, dict[str, dict[str, str]]]:
    """What the tables held: known to the connector, after changes that it missed, before the snapshot, at the end."""
    found: dict[str, dict[str, dict[str, str]]] = json.loads((SET / f"{scenario}.truth.json").read_text())
    return found


def run(chain: Chain, *parts: Sequence[Record]) -> Chain:
    for part in parts:
        chain.add(part)
        assert broken_by_table(chain.lake, chain.run().history) == {}
    settled(chain.lake)
    return chain


def current(chain: Chain) -> dict[str, dict[str, str]]:
    """Table -> key -> value of what is open."""
    return {t: {str(r["id"]): r["v"] for r in chain.history(t) if r["_cdc_is_current"]} for t in TABLES}


def ended_with_snapshot(chain: Chain) -> dict[str, dict[str, int]]:
    """Table -> key -> until when."""
    return {
        t: {str(r["id"]): r["_cdc_to_ts"] for r in chain.history(t) if r["_cdc_closed_by"] == "snapshot"}
        for t in TABLES
    }


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Chain]:
    """Each recorded scenario in one run."""
    made: dict[str, Chain] = {}

    def of(scenario: str) -> Chain:
        if scenario not in made:
            chain = Chain(spark, tmp_path_factory.mktemp(scenario), protocol="debezium", snapshots="whole")
            made[scenario] = run(chain, read_lines(SET / scenario))
        return made[scenario]

    return of


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rows_that_the_table_lacked_end_when_the_snapshot_began(scenario: str, whole: Callable[[str], Chain]) -> None:
    """Those and no others: not where some rows were asked for, and not where the snapshot was stopped."""
    it, held = whole(scenario), truth(scenario)
    assert it.quarantine() == []
    assert current(it) == held["final"]
    began = [p["timestamp"] for p in map(payload, read_lines(SET / scenario)) if _is_start(p)][-1] << 18
    gone = {t: held["known"][t].keys() - held["before"][t].keys() for t in TABLES}
    ended = ended_with_snapshot(it)
    assert {t: each.keys() for t, each in ended.items()} == gone
    for t in TABLES:
        # What came back has its next version from then on, by the server's clock, which has whole seconds.
        again = {str(r["id"]): r["_cdc_from_ts"] for r in it.history(t) if r["_cdc_op"] == "insert"}
        assert ended[t] == {key: min(began, again.get(key, began)) for key in gone[t]}
        assert all_intervals(it.lake, "shop", t).passed
    assert all_events_placed(it.lake, it.feed).passed
    assert [stage.name for stage in STAGES if stage.due(it.lake, it.feed)] == []


def _is_start(said: dict[str, Any]) -> bool:
    return (said.get("aggregate_type"), said.get("type")) == ("Incremental Snapshot", "STARTED")


def test_no_row_ends_where_nobody_says_that_snapshots_are_whole(chain: Callable[..., Chain]) -> None:
    it = run(chain(protocol="debezium"), read_lines(SET / "repaired"))
    assert ended_with_snapshot(it) == {t: {} for t in TABLES}


def test_no_row_ends_without_the_notifications(chain: Callable[..., Chain]) -> None:
    records = [r for r in read_lines(SET / "repaired") if r["topic"] != NOTIFICATIONS]
    assert ended_with_snapshot(run(chain(protocol="debezium", snapshots="whole"), records)) == {t: {} for t in TABLES}


def lanes(records: Iterable[Record], *order: tuple[str, int]) -> list[list[Record]]:
    """The records, a run for each of these topics and partitions, then the rest."""
    own = [[r for r in records if (r["topic"], r["partition"]) == lane] for lane in order]
    return [*own, [r for r in records if (r["topic"], r["partition"]) not in order]]


CUTS: dict[str, tuple[str, Callable[[list[Record]], list[list[Record]]]]] = {
    "notifications-first": ("repaired", lambda r: lanes(r, (NOTIFICATIONS, 0), ("s.shop.customers", 1), ("s", 0))),
    "notifications-last": ("repaired", lambda r: lanes(r, ("s.shop.customers", 0), ("s.shop.orders", 1))[:-1] + lanes(
        [x for x in r if (x["topic"], x["partition"]) not in {("s.shop.customers", 0), ("s.shop.orders", 1)}],
    )),
    "amid-the-snapshot": ("repaired", lambda r: [r[:-24], r[-24:-15], r[-15:-2], r[-2:]]),
    "amid-three": ("stopped", lambda r: [r[:-20], r[-20:-8], r[-8:-6], r[-6:]]),
    "signals-last": ("stopped", lambda r: lanes(r, ("s", 0), ("s.shop.customers", 0), (NOTIFICATIONS, 0), ("s.shop.customers", 1))),
}  # fmt: skip


@pytest.mark.parametrize("cut", CUTS)
def test_however_the_stream_is_cut(cut: str, chain: Callable[..., Chain], whole: Callable[[str], Chain]) -> None:
    """Reads that come before the notifications or after them; a signal for some rows that comes when all seems known."""
    scenario, parts = CUTS[cut]
    it = run(chain(protocol="debezium", snapshots="whole"), *parts(read_lines(SET / scenario)))
    assert histories(it.lake) == histories(whole(scenario).lake)


def test_a_rebuild_gives_the_same(whole: Callable[[str], Chain], tmp_path: Path) -> None:
    it = whole("repaired")
    copy = it.copy(tmp_path / "rebuilt")
    assert list(rebuild(copy.lake, copy.feed))
    assert histories(copy.lake) == histories(it.lake)
