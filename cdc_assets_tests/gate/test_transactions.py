"""Whole transactions only: whatever has come of the topics, the history holds what a transaction left, nothing between."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets.checks.audit import all_events_placed
from cdc_assets.checks.conservation import events_placed
from cdc_assets_tests.laws.test_dialects import settled
from cdc_assets_tests.protocols.debezium_encoder import change, marker, read_source, source
from cdc_assets_tests.support import Chain, Record, histories, history_names

State = dict[str, dict[int, str]]


def row(
    op: str,
    key: int,
    before: str | None,
    after: str | None,
    pos: int,
    transaction: str,
    n: int,
    table: str = "customers",
) -> Record:
    at = source(pos, seconds=pos, table=table)
    block = {"id": transaction, "total_order": n, "data_collection_order": 1}
    return change(op, key, before, after, at, transaction=block)


def stream() -> list[Record]:
    """The markers lie in a topic of their own: they may be read before the rows that they are about, or after them."""
    sent = [
        change("r", 9, None, "x", read_source(table="orders")),
        marker("BEGIN", "T1"),
        row("c", 1, None, "a", 10, "T1", 1),
        marker("END", "T1", {"customers": 1, "orders": 1, "elsewhere": 5}),
        row("c", 1, None, "o", 11, "T1", 2, table="orders"),
        row("u", 1, "a", "b", 20, "T2", 1),
        # 3.5 opens a transaction for DDL, and never ends it.
        marker("BEGIN", "DDL"),
        marker("BEGIN", "T2"),
        marker("END", "T2", {"customers": 2}),
        marker("BEGIN", "T3"),
        marker("END", "T3", {"orders": 1}),
        row("u", 1, "o", "p", 30, "T3", 1, table="orders"),
        row("c", 2, None, "c", 21, "T2", 2),
        # The connector starts again within T2.
        row("c", 2, None, "c", 21, "T2", 2),
        marker("END", "T2", {"customers": 2}),
        row("d", 1, "b", None, 40, "T4", 1),
        marker("BEGIN", "T4"),
        marker("END", "T4", {"customers": 1}),
    ]
    places = Counter[str]()
    numbered = []
    for each in sent:
        numbered.append(each | {"offset": places[each["topic"]]})
        places[each["topic"]] += 1
    return numbered


# After T1, T2, T3 and T4.
STATES: list[State] = [
    {"orders": {9: "x"}},
    {"customers": {1: "a"}, "orders": {9: "x", 1: "o"}},
    {"customers": {1: "b", 2: "c"}, "orders": {9: "x", 1: "o"}},
    {"customers": {1: "b", 2: "c"}, "orders": {9: "x", 1: "p"}},
    {"customers": {2: "c"}, "orders": {9: "x", 1: "p"}},
]
# What each record makes complete: the number of transactions that are whole once it has come.
WHOLE = [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 4]


def state(chain: Chain) -> State:
    found: State = {}
    for database, table in history_names(chain.lake):
        current: Iterable[dict[str, Any]] = (v for v in chain.history(table, database) if v["_cdc_is_current"])
        found[table] = {v["id"]: v["v"] for v in current}
    return found


def test_cut_at_every_point(spark: SparkSession, tmp_path: Path) -> None:
    records = stream()
    chain = Chain(spark, tmp_path / "single", protocol="debezium")
    for record, whole in zip(records, WHOLE, strict=True):
        chain.add([record])
        report = chain.run().release
        assert state(chain) == STATES[whole], record
        assert events_placed(report).passed, events_placed(report).description
        assert all_events_placed(chain.lake, chain.feed).passed
    assert report.pending == 0
    settled(chain)
    at_once = Chain(spark, tmp_path / "whole", protocol="debezium")
    at_once.add(records)
    at_once.run()
    assert histories(at_once.lake) == histories(chain.lake)
