"""Check the chop law: however a stream is cut into runs, interleaved and repeated, the histories are equal."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.laws.streams import PARTITIONS, short_stream
from cdc_assets_tests.support import Chain, Record, histories, tso

FIRST, SECOND = short_stream()
RECORDS = [*FIRST, *SECOND]

Histories = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def in_one_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Histories:
    chain = Chain(spark, tmp_path_factory.mktemp("whole"), partitions=PARTITIONS)
    chain.add(RECORDS)
    chain.run()
    counts = conserved(chain.lake, chain.feed)
    assert (counts.records, counts.pending, counts.late) == (len(RECORDS), 2, 0)
    return histories(chain.lake)


def test_the_one_run_is_right(in_one_run: Histories) -> None:
    """Compare the run that the others are compared with, by hand: (id, v, w, from, to, op, closed by)."""
    assert in_one_run.keys() == {"history/f/shop/orders", "history/f/shop/customers"}
    shown = {
        (r["id"], r["v"], r["w"], r["_cdc_from_ts"], r["_cdc_to_ts"], r["_cdc_op"], r["_cdc_closed_by"])
        for r in in_one_run["history/f/shop/orders"]
    }
    assert len(in_one_run["history/f/shop/orders"]) == len(shown)
    assert shown == {
        (1, "one", None, tso(2), tso(5), "insert", "delete"),
        (2, "two", None, tso(3), tso(4), "insert", "update"),
        (2, "two again", None, tso(4), tso(8), "update", "update"),
        (3, "one", None, tso(5), tso(14), "insert", "delete"),
        (4, None, None, tso(6), tso(8), "insert", "update"),
        (2, None, None, tso(8), tso(11), "update", "delete"),
        (4, "two again", None, tso(8), tso(14), "update", "update"),
        (2, "back", None, tso(12), None, "insert", None),
        (4, "wide", 7, tso(14), None, "update", None),
    }
    customers = [(r["id"], r["v"], r["_cdc_from_ts"], r["_cdc_to_ts"]) for r in in_one_run["history/f/shop/customers"]]
    assert sorted(customers) == [(1, "somebody", tso(11), tso(14)), (1, "somebody else", tso(14), None)]


@pytest.mark.soak
def test_one_record_a_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, in_one_run: Histories) -> None:
    chain = Chain(spark, tmp_path_factory.mktemp("single"), partitions=PARTITIONS)
    for record in RECORDS:
        chain.add([record])
        chain.run()
    assert histories(chain.lake) == in_one_run
    counts = conserved(chain.lake, chain.feed)
    assert (counts.records, counts.pending, counts.late) == (len(RECORDS), 2, 0)


@dataclass(frozen=True)
class Chopped:
    """One order of the records, and how they are cut into runs."""

    runs: list[list[Record]]


@st.composite
def chopped(draw: st.DrawFn) -> Chopped:
    """Draw up to four runs.

    The partitions are interleaved, each in its own order, and some records are sent again later.
    """
    queues = {p: [r for r in RECORDS if r["partition"] == p] for p in range(PARTITIONS)}
    turns = draw(st.permutations([r["partition"] for r in RECORDS]))
    order = [queues[p].pop(0) for p in turns]
    for original in draw(st.lists(st.sampled_from(RECORDS), max_size=8)):
        first = next(n for n, r in enumerate(order) if r is original)
        place = draw(st.integers(first + 1, len(order)))
        # A producer that tries again sends the record behind the others of its partition, with a larger offset.
        before = max(r["offset"] for r in order[:place] if r["partition"] == original["partition"])
        after = {r["offset"] for r in order if r["partition"] == original["partition"]}
        offset = next(o for o in range(before + 1, before + 100) if o not in after)
        order.insert(place, original | {"offset": offset})
    cuts = sorted(draw(st.sets(st.integers(1, len(order) - 1), max_size=3)))
    return Chopped([order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)])


@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(way=chopped())
def test_any_cut_order_and_repetition(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, in_one_run: Histories, way: Chopped
) -> None:
    chain = Chain(spark, tmp_path_factory.mktemp("chopped"), partitions=PARTITIONS)
    late = Counter[str]()
    for run in way.runs:
        chain.add(run)
        report = chain.run().release
        late.update(repeated=report.late_repeated, unseen=report.late_unseen)
    assert histories(chain.lake) == in_one_run
    counts = conserved(chain.lake, chain.feed)
    assert counts.records == sum(len(run) for run in way.runs)
    assert late == Counter(repeated=counts.late, unseen=0), "repeats of what was released are harmless"
