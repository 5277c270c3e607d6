"""What a feed is asked: its tables as of a position, what changed, why a row looks so. One small feed, run once."""

import json
from datetime import UTC, date, datetime
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

from cdc_assets import read
from cdc_assets.tables.query import WidenedError
from cdc_assets.tso import position_of
from cdc_assets_tests.operations.lived import HELD, RELEASED, Lived, live
from cdc_assets_tests.support import comparable, rows_of, tso


@pytest.fixture(scope="module")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """The feed: not to be changed."""
    return live(spark, tmp_path_factory.mktemp("lived"))


def table(lived: Lived, name: str = "orders") -> read.Table[Any]:
    return read.table("f", f"shop.{name}", root=lived.it.lake.root)


# --- reading


def held_at(position: int) -> list[dict[str, Any]]:
    """The rows of shop.orders as of a position, by hand."""
    rows = HELD[max((p for p in HELD if tso(p) <= position), default=1)]
    named = [dict(zip(("id", "v", "d", "w"), (key, *row), strict=True)) for key, row in rows.items()]
    return comparable(r | {"d": None if r["d"] is None else date.fromisoformat(r["d"])} for r in named)


def test_as_of_every_position(lived: Lived) -> None:
    orders = table(lived)
    for position in [*map(tso, range(RELEASED)), tso(6, 1)]:
        assert comparable(orders.as_of(position).to_pylist()) == held_at(position)
    assert comparable(orders.current().to_pylist()) == held_at(tso(RELEASED))
    assert comparable(orders.as_of(tso(8), ["w", "id"]).to_pylist()) == [{"w": None, "id": 2}, {"w": 7, "id": 3}]


def test_a_time_is_a_position(lived: Lived) -> None:
    """Of several commits in one millisecond, as of its time all have happened."""
    eighth = datetime(2023, 11, 14, 22, 13, 20, 8_000, tzinfo=UTC)
    assert [position_of(t) for t in (eighth, "2023-11-14T23:13:20.008999+01:00", "2023-11-14T22:13:20.008")] == [
        tso(9) - 1
    ] * 3
    assert position_of(str(tso(8))) == tso(8)
    assert comparable(table(lived).as_of(eighth).to_pylist()) == held_at(tso(8))
    with pytest.raises(ValueError, match=r"yesterday: no position; allowed: a commit_ts, or a time in ISO 8601"):
        position_of("yesterday")


def test_changes_lead_from_one_position_to_another(lived: Lived) -> None:
    """From one to a later one; and each at the commit_ts at which it happened."""
    orders = table(lived)
    for start in (0, 2, 5, 7, 11):
        for end in (end for end in (2, 5, 6, 8, 12) if end >= start):
            rows = [json.dumps(r, default=str, sort_keys=True) for r in held_at(tso(start))]
            for change in orders.changes_between(tso(start), tso(end)).to_pylist():
                assert tso(start) < change["commit_ts"] <= tso(end)
                if change["before"] is not None:
                    rows.remove(json.dumps(change["before"], default=str, sort_keys=True))
                if change["after"] is not None:
                    rows.append(json.dumps(change["after"], default=str, sort_keys=True))
            assert sorted(rows) == sorted(json.dumps(r, default=str, sort_keys=True) for r in held_at(tso(end)))
    told = [(c["commit_ts"], c["op"], c["key"]) for c in orders.changes_between(tso(0)).to_pylist()]
    assert told == [
        (tso(2), "insert", '["1"]'),
        (tso(3), "insert", '["2"]'),
        (tso(5), "update", '["2"]'),
        (tso(6), "delete", '["1"]'),
        (tso(6), "insert", '["3"]'),
        (tso(8), "update", '["3"]'),
        (tso(11), "delete", '["2"]'),
        (tso(12), "insert", '["40"]'),
    ]


def test_of_equal_rows_one_goes(lived: Lived) -> None:
    """In a table without a key."""
    logs = table(lived, "logs")
    assert [(c["commit_ts"], c["op"]) for c in logs.changes_between(0).to_pylist()] == [
        (tso(3), "insert"),
        (tso(3), "insert"),
        (tso(8), "delete"),
    ]
    assert [logs.as_of(tso(p)).num_rows for p in (2, 3, 8)] == [0, 2, 1]


def test_how_far_a_table_is_final(lived: Lived) -> None:
    """The lower of the partitions' watermarks; and of a table that waits for a person, where it waits."""
    orders, ledger = table(lived).final(), table(lived, "ledger").final()
    assert (orders.position, orders.promised) == (tso(RELEASED) - 1, True)
    assert f"the watermark of topic shop_changes is {tso(RELEASED)}" in orders.reason
    assert (ledger.position, ledger.reason) == (tso(11, 1) - 1, f"it is held from commit_ts {tso(11, 1)} on: ddl")


def test_both_engines_read_the_same(lived: Lived, spark: SparkSession) -> None:
    for name in ("orders", "odd.keys", "logs"):
        arrow, frames = table(lived, name), read.table("f", f"shop.{name}", root=lived.it.lake.root, spark=spark)
        assert comparable(arrow.versions().to_pylist()) == rows_of(frames.versions())
        assert comparable(arrow.as_of(tso(8)).to_pylist()) == rows_of(frames.as_of(tso(8)))
        assert comparable(arrow.changes_between(tso(2)).to_pylist()) == rows_of(frames.changes_between(tso(2)))
    assert pl.from_arrow(table(lived).current()).height == 2


def test_a_widened_table_needs_spark(lived: Lived, spark: SparkSession) -> None:
    with pytest.raises(WidenedError, match="history/f/shop/wide: types of its columns were widened, and so only Spark"):
        table(lived, "wide").current()
    wide = read.table("f", "shop.wide", root=lived.it.lake.root, spark=spark)
    assert [(r.id, r.n) for r in wide.current().collect()] == [(1, 5_000_000_000)]


def test_a_table_that_is_not_there(lived: Lived) -> None:
    with pytest.raises(
        read.NoTableError, match=r"shop.order: the feed f has no such history table; it has shop.ledger,"
    ):
        table(lived, "order")
