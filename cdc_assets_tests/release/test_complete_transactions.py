"""Complete transactions only: whichever records have come, the history has the state after a transaction."""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.lakehouse.lakehouse import history_tables
from cdc_assets.lakehouse.raw_records import RAW_RECORDS
from cdc_assets.lakehouse.released_changes import Transactions
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.operations.why.life import Fate
from cdc_assets.protocols import protocol_of
from cdc_assets.release.transactions import find_held_transactions, is_held_back
from cdc_assets.spark.session import session_for
from cdc_assets_tests.laws.conservation import assert_counts_add_up, balanced
from cdc_assets_tests.protocols.debezium_encoder import change, marker, read_source, source
from cdc_assets_tests.support import Chain, Record, bytes_of, frame_of_rows, make_feed

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
    """Return records; the markers have a topic of their own, so they may come before or after their transaction's rows."""
    sent = [
        change("r", 9, None, "x", read_source(table="orders")),
        marker("BEGIN", "T1"),
        row("c", 1, None, "a", 10, "T1", 1),
        marker("END", "T1", {"customers": 1, "orders": 1, "elsewhere": 5}),
        row("c", 1, None, "o", 11, "T1", 2, table="orders"),
        row("u", 1, "a", "b", 20, "T2", 1),
        # Debezium 3.5 begins a transaction for DDL, and never ends it.
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
# After each record, the number of transactions that are complete.
COMPLETE = [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 4]


def state(chain: Chain) -> State:
    result: State = {}
    for database, table in history_tables(chain.lake.root, chain.lake.feed):
        current: Iterable[dict[str, Any]] = (v for v in chain.history(table, database) if v["_cdc_is_current"])
        result[table] = {v["id"]: v["v"] for v in current}
    return result


def _given(frame: DataFrame) -> Callable[[], DataFrame]:
    return lambda: frame


@pytest.mark.extended
def test_cut_at_every_point(spark: SparkSession, tmp_path: Path) -> None:
    """After each record, exactly the events of incomplete transactions and of later ones are held back."""
    records = stream()
    raw: list[tuple[Any, ...]] = [
        (r["topic"], 0, r["offset"], None, n, bytes_of(r, "key"), bytes_of(r), [], None) for n, r in enumerate(records)
    ]
    feed, small_session = make_feed(tmp_path, protocol="debezium"), session_for(spark, len(records))
    decoded = protocol_of(feed).decode(frame_of_rows(small_session, raw, RAW_RECORDS.columns), feed)
    events = small_session.createDataFrame(decoded.toArrow(), decoded.schema)
    number = F.substring("transaction.id", 2, 1).cast("int")
    for last, complete in enumerate(COMPLETE):
        come = events.where(F.col("batch") <= last)
        bounds = find_held_transactions(come, _given(come), Transactions()).bounds
        rows = come.where("kind = 'row'").select(
            F.coalesce(number, F.lit(0)).alias("t"), is_held_back(bounds).alias("held")
        )
        held = {(r["t"], r["held"]) for r in rows.collect()}
        assert all(is_held == (t > complete) for t, is_held in held), (records[last], bounds, held)


def compacted(records: list[Record]) -> list[Record]:
    """Return the records that compaction of the tables' topics keeps: the last of each key, and all markers."""
    last = {(r["topic"], bytes_of(r, "key")): r["offset"] for r in records}
    return [r for r in records if r["topic"] == "s.transaction" or r["offset"] == last[r["topic"], bytes_of(r, "key")]]


def test_no_transaction_waits_for_compacted_events(spark: SparkSession, tmp_path: Path) -> None:
    """T1 has no event left and T2 one of two; T3's partition has no later event, but T3 is complete."""
    chain, records = Chain(spark, tmp_path, protocol="debezium"), compacted(stream())
    assert len(records) < len(stream())
    chain.add(records)
    report = chain.run().release
    assert report.pending == 0
    assert state(chain) == STATES[-1]
    assert_counts_add_up(chain.lake)


def test_a_transaction_waits_for_events_that_may_come(spark: SparkSession, tmp_path: Path) -> None:
    """T2 lacks an event, and a later transaction has reached only one of the table's two partitions."""
    chain = Chain(spark, tmp_path, protocol="debezium")
    sent = [
        row("c", 1, None, "a", 10, "T1", 1),
        row("c", 2, None, "a", 11, "T1", 2) | {"partition": 1},
        marker("END", "T1", {"customers": 2}),
        row("u", 1, "a", "b", 20, "T2", 1),
        marker("END", "T2", {"customers": 2}),
        row("u", 1, "b", "c", 30, "T3", 1),
        marker("END", "T3", {"customers": 1}),
    ]
    chain.add([r | {"offset": n} for n, r in enumerate(sent)])
    assert chain.run().release.pending == 2
    assert state(chain) == {"customers": {1: "a", 2: "a"}}
    explanation = explain_row(chain.lake, chain.feed, "inventory.customers", ["1"])
    # The offsets of T3's row, T2's, and T1's.
    assert [(s.fate, s.record and s.record.offset) for s in explanation.steps] == [
        (Fate.PENDING, 5),
        (Fate.PENDING, 3),
        (Fate.VERSION, 0),
    ]
    assert {s.reason for s in explanation.steps[:2]} == {
        f"It waits for the rest of a transaction that begins at {sent[3]['topic']} partition 0 offset 3."
    }
    assert explanation.verdict.endswith(" 2 events are pending.")
    chain.add([row("u", 2, "a", "b", 40, "T4", 1) | {"partition": 1, "offset": 99}])
    assert chain.run().release.pending == 1, "T4 has no END"
    assert state(chain) == {"customers": {1: "c", 2: "a"}}


@pytest.mark.fast
def test_a_later_run_releases_the_events_that_are_held_back(spark: SparkSession, tmp_path: Path) -> None:
    chain, records = Chain(spark, tmp_path, protocol="debezium"), stream()
    repeats = 0
    for start, end in ((0, 4), (4, 11), (11, 14), (14, len(records))):
        chain.add(records[start:end])
        report = chain.run().release
        assert state(chain) == STATES[COMPLETE[end - 1]]
        balanced(report)
        repeats += report.late_repeated + report.duplicate
    assert (report.pending, repeats) == (0, 1)
    assert_counts_add_up(chain.lake)
