"""The feeds file is edited between runs: what a run before has read or left out is right, or is reported."""

from collections.abc import Callable
from typing import Any

import pytest

from cdc_assets.assets.checks.conservation import events_placed
from cdc_assets.assets.checks.history import reload_required
from cdc_assets.history.table_report import TableReport
from cdc_assets.lakehouse.cursor import CursorError
from cdc_assets_tests.support import Chain, Message, Reports, Rows, Stream, ddl, tso

ORDERS, ITEMS = Rows(), Rows(table="items")
EXTENSION: dict[str, Any] = {"protocol": "canal-json", "tidb_extension": True}
WITHOUT_ITEMS = {"exclude": ["shop.items"]}


class Life:
    """A feed whose settings change between runs."""

    def __init__(self, made: Chain, *, has_watermarks: bool) -> None:
        self.chain, self.has_watermarks, self.stream = made, has_watermarks, Stream()

    def run(self, *messages: Message, until: int = 0, **settings: Any) -> Reports:
        """Send messages and, in a feed with watermarks, one at `until`; run the stages with these settings."""
        before = len(self.stream.records)
        for message in messages:
            self.stream.send(message if self.has_watermarks else message | {"_tidb": None})
        if self.has_watermarks and until:
            self.stream.watermark(tso(until))
        if before < len(self.stream.records):
            self.chain.add(self.stream.records[before:])
        kept = EXTENSION if self.has_watermarks else {"protocol": "canal-json"}
        self.chain = Chain(self.chain.lake.spark, self.chain.folder, **kept | settings)
        reports = self.chain.run()
        assert events_placed(reports.release).passed
        return reports

    def open_rows(self, table: str) -> list[tuple[int, str]]:
        return [(r["id"], r["v"]) for r in self.chain.versions(table) if r["_cdc_is_current"]]


def of_items(reports: Reports) -> TableReport:
    return next(report for report in reports.history if report.table == "items")


@pytest.mark.parametrize("has_watermarks", [True, False])
def test_a_table_that_was_excluded_for_a_time_must_be_loaded_again(
    chain: Callable[..., Chain], *, has_watermarks: bool
) -> None:
    life = Life(chain(), has_watermarks=has_watermarks)
    first = [ITEMS.insert(tso(1000), 1, "a"), ITEMS.insert(tso(1001), 2, "a"), ORDERS.insert(tso(1002), 1, "a")]
    assert reload_required(of_items(life.run(*first, until=2000))).passed
    excluded = [ITEMS.delete(tso(3000), 1, "a"), ITEMS.insert(tso(3001), 3, "b"), ORDERS.insert(tso(3002), 2, "a")]
    assert [t.table for t in life.run(*excluded, until=4000, tables=WITHOUT_ITEMS).history] == ["orders"]
    life.run(ITEMS.insert(tso(5000), 4, "b"), until=6000, tables=WITHOUT_ITEMS)
    # The first run that takes the table reports it, although the table has no change.
    verdict = reload_required(of_items(life.run(ORDERS.insert(tso(7000), 3, "a"), until=8000)))
    assert not verdict.passed
    (violation,) = verdict.violations
    assert violation["commit_ts"] == tso(5000)
    assert "left the table out: the history lacks 3 row events" in violation["why"]
    again = of_items(life.run(ITEMS.update(tso(9000), 2, "c", "a"), until=10_000))
    assert again.reload == [violation], "until the table is loaded again"
    # A TRUNCATE ends the rows that are wrong.
    truncate = ddl("TRUNCATE TABLE items", tso(11_000), table="items", ddl_type="TRUNCATE")
    ended = of_items(life.run(truncate, ITEMS.insert(tso(12_000), 9, "z"), until=13_000))
    assert reload_required(ended).passed
    assert life.open_rows("items") == [(9, "z")]


def test_a_table_without_a_left_out_change_goes_on(chain: Callable[..., Chain]) -> None:
    """Pending events are not left out, and a table that the feed never had is not complete anyway."""
    life = Life(chain(), has_watermarks=True)
    life.run(ITEMS.insert(tso(1), 1, "a"), until=10)
    life.run(ITEMS.insert(tso(20), 2, "pending"), ORDERS.insert(tso(11), 1, "a"), until=15, tables=WITHOUT_ITEMS)
    done = life.run(ORDERS.insert(tso(25), 2, "a"), until=30)
    assert reload_required(of_items(done)).passed
    assert life.open_rows("items") == [(1, "a"), (2, "pending")]


def test_events_that_waited_for_a_watermark_are_released_without_it(chain: Callable[..., Chain]) -> None:
    """The changefeed's extension was turned off: no watermark will come any more."""
    life = Life(chain(), has_watermarks=True)
    life.run(ORDERS.insert(tso(1000), 1, "a"), until=2000)
    pending = life.run(ORDERS.insert(tso(3000), 2, "pending"), ORDERS.update(tso(4000), 1, "b", "a"))
    assert (pending.release.released, pending.release.pending) == (0, 2)
    life.has_watermarks = False
    done = life.run(ORDERS.update(tso(6000), 2, "d", "pending"))
    assert (done.release.released, done.release.pending) == (3, 0)
    assert sorted(life.open_rows("orders")) == [(1, "b"), (2, "d")]
    last = life.run(ORDERS.delete(tso(8000), 1, "b"))
    assert (last.release.released, last.release.duplicate) == (1, 0)
    assert life.open_rows("orders") == [(2, "d")]


def test_a_blocked_table_stays_blocked_without_watermarks(chain: Callable[..., Chain]) -> None:
    life = Life(chain(), has_watermarks=True)
    unknown = ddl("ALTER TABLE items ADD COLUMN w INT FANCY", tso(1500), table="items", ddl_type="ALTER")
    first = [
        ITEMS.insert(tso(1000), 1, "a"),
        ORDERS.insert(tso(1000), 1, "a"),
        unknown,
        ITEMS.insert(tso(1600), 2, "b"),
    ]
    life.run(*first, until=2000)
    life.run(ORDERS.insert(tso(3000), 2, "pending"))
    life.has_watermarks = False
    done = life.run(ITEMS.insert(tso(6000), 3, "c"), ORDERS.insert(tso(6000), 3, "c"))
    assert [(h.table, h.reason) for h in done.release.holds] == [("items", "ddl")]
    assert life.open_rows("items") == [(1, "a")]
    assert life.open_rows("orders") == [(1, "a"), (2, "pending"), (3, "c")]


def test_a_feed_does_not_mix_protocols(chain: Callable[..., Chain]) -> None:
    made, stream = chain(protocol="debezium"), Stream()
    made.add([stream.send(ORDERS.insert(tso(1), 1, "a")), stream.send(None)])
    made.run()
    # The protocol was wrong: no event has been decoded, and the setting can be corrected.
    right = Chain(made.lake.spark, made.folder, **EXTENSION)
    right.add([stream.send(ORDERS.insert(tso(2), 2, "a"))])
    right.run()
    right.add([stream.send(ORDERS.insert(tso(3), 3, "a"))])
    with pytest.raises(CursorError, match=r"change_events/f has events of protocol canal-json, but .* open-protocol"):
        Chain(made.lake.spark, made.folder, protocol="open-protocol").run()
    assert right.run().decode.decoded == 1
