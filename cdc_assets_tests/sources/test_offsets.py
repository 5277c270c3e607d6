"""Which offsets a run reads: what is lost, and who gets how much of a limit; and how many different ones there are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.sources.offsets import GONE, Bounds, DataLossError, Different, Held, Place, Range, Topic, fair, losses

pytestmark = pytest.mark.fast

A, B, C = Place("t", 0), Place("t", 1), Place("u", 0)
THERE = {"t": Topic("id-1", {0: Bounds(10, 20), 1: Bounds(0, 5)})}


@pytest.mark.parametrize(
    ("wanted", "ids", "expected"),
    [
        # offset wanted of partition 0, the id held -> where to go on, whether the topic is another; None: nothing is lost
        (10, "id-1", None),
        (20, "id-1", None),  # all read
        (15, None, None),  # never read from a broker: nothing is known of its id
        (9, "id-1", (10, False)),  # expired
        (21, "id-1", (20, False)),  # cut off
        (21, None, (10, True)),  # nobody can tell
        (15, "id-0", (10, True)),  # created again, although the offset is there
    ],
)
def test_what_is_lost(wanted: int, ids: str | None, expected: tuple[int, bool] | None) -> None:
    found = losses({A: wanted}, Held({}, {"t": ids} if ids else {}), THERE)
    assert [(loss.resume, loss.created_again) for loss in found] == ([expected] if expected else [])
    assert all((loss.place, loss.wanted, loss.available) == (A, wanted, Bounds(10, 20)) for loss in found)


def test_a_topic_and_a_partition_that_are_gone() -> None:
    deleted, shrunk = losses({C: 7, Place("t", 2): 3}, Held({}, {"t": "id-1", "u": "id-9"}), THERE)[::-1]
    assert (deleted.place, deleted.available, deleted.resume, deleted.created_again) == (C, None, None, False)
    assert (shrunk.place, shrunk.available, shrunk.resume, shrunk.created_again) == (Place("t", 2), None, None, True)


def test_the_error_names_topic_partition_offsets_and_both_ways_on() -> None:
    text = str(DataLossError(losses({A: 3, C: 7}, Held({}, {"t": "id-1"}), THERE)))
    assert "t partition 0: wanted from offset 3, available: 10 to 20" in text
    assert "u partition 0: wanted from offset 7, none available (the topic was deleted)" in text
    assert "restore the records" in text
    assert "on_data_loss: skip" in text


def test_ids_of_brokers_without_ids() -> None:
    there = {"t": Topic(None, {0: Bounds(0, 20)})}
    assert losses({A: 5}, Held({}, {"t": "id-1"}), there) == []
    assert losses({A: 5}, Held({}, {"t": GONE}), THERE) == losses({A: 5}, Held({}, {}), THERE)


def ranges(**sizes: int) -> dict[Place, Range]:
    return {Place(name, 0): Range(100, 100 + size) for name, size in sizes.items()}


@pytest.mark.parametrize(
    ("sizes", "limit", "shares"),
    [
        ({"a": 5, "b": 5}, None, [5, 5]),
        ({"a": 5, "b": 5}, 10, [5, 5]),
        ({"a": 100, "b": 100}, 10, [5, 5]),
        ({"a": 2, "b": 100, "c": 0, "d": 100}, 12, [2, 5, 0, 5]),
        ({"a": 1000, "b": 1}, 3, [2, 1]),
        ({"a": 7, "b": 7, "c": 7}, 10, [3, 3, 4]),
    ],
)
def test_a_limit_is_shared_fairly(sizes: dict[str, int], limit: int | None, shares: list[int]) -> None:
    cut = fair(ranges(**sizes), limit, 0)
    assert list(cut.values()) == [Range(100, 100 + share) for share in shares]


def test_with_fewer_offsets_than_partitions_everyone_has_a_turn() -> None:
    cuts = [fair(ranges(a=9, b=1000, c=9), 2, turn) for turn in range(3)]
    assert [[end - start for start, end in cut.values()] for cut in cuts] == [[1, 1, 0], [0, 1, 1], [1, 0, 1]]


@given(st.lists(st.lists(st.integers(0, 40), min_size=1), min_size=1))
def test_different_offsets_are_counted_once(parts: list[list[int]]) -> None:
    found = Different()
    for offsets in parts:
        found.add(np.array(offsets, np.int64))
    different = {offset for offsets in parts for offset in offsets}
    assert (len(found), found.bounds()) == (len(different), [min(different), max(different)])
