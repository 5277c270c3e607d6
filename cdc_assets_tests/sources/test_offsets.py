"""Offset arithmetic: lost offsets, shares of a limit between partitions, counts of distinct offsets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.sources.offsets import (
    DELETED_TOPIC,
    DataLossError,
    DistinctOffsets,
    IngestedOffsets,
    OffsetBounds,
    OffsetRange,
    Topic,
    TopicPartition,
    find_losses,
    share_limit,
)

pytestmark = pytest.mark.fast

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TOPICS = {"t": Topic("id-1", {0: OffsetBounds(10, 20), 1: OffsetBounds(0, 5)})}


@pytest.mark.parametrize(
    ("next_offset", "ingested_id", "expected"),
    [
        # Next offset of partition 0, ingested topic id -> (resume_offset, is_recreated); None: no loss.
        (10, "id-1", None),
        (20, "id-1", None),  # everything is read
        (15, None, None),  # never read from a broker: no id to compare
        (9, "id-1", (10, False)),  # expired
        (21, "id-1", (20, False)),  # the log was truncated
        (21, None, (10, True)),  # without an id, truncation and recreation look the same
        (15, "id-0", (10, True)),  # created again, although the offset exists
    ],
)
def test_lost_offsets_of_a_partition(
    next_offset: int, ingested_id: str | None, expected: tuple[int, bool] | None
) -> None:
    losses = find_losses({A: next_offset}, IngestedOffsets({}, {"t": ingested_id} if ingested_id else {}), TOPICS)
    assert [(loss.resume_offset, loss.is_recreated) for loss in losses] == ([expected] if expected else [])
    assert all(
        (loss.partition, loss.next_offset, loss.available) == (A, next_offset, OffsetBounds(10, 20)) for loss in losses
    )


def test_a_deleted_topic_and_a_deleted_partition() -> None:
    third = TopicPartition("t", 2)
    ingested = IngestedOffsets({}, {"t": "id-1", "u": "id-9"})
    shrunk, deleted = find_losses({C: 7, third: 3}, ingested, TOPICS)
    assert (deleted.partition, deleted.available, deleted.resume_offset, deleted.is_recreated) == (C, None, None, False)
    assert (shrunk.partition, shrunk.available, shrunk.resume_offset, shrunk.is_recreated) == (third, None, None, True)


def test_the_error_names_topic_partition_offsets_and_both_ways_on() -> None:
    text = str(DataLossError(find_losses({A: 3, C: 7}, IngestedOffsets({}, {"t": "id-1"}), TOPICS)))
    assert "t partition 0: needed from offset 3, available: 10 to 20" in text
    assert "u partition 0: needed from offset 7, none available (the topic was deleted)" in text
    assert "restore the records" in text
    assert "on_data_loss: skip" in text


def test_brokers_without_topic_ids() -> None:
    topics = {"t": Topic(None, {0: OffsetBounds(0, 20)})}
    assert find_losses({A: 5}, IngestedOffsets({}, {"t": "id-1"}), topics) == []
    after_accepted_loss = IngestedOffsets({}, {"t": DELETED_TOPIC})
    assert find_losses({A: 5}, after_accepted_loss, TOPICS) == find_losses({A: 5}, IngestedOffsets({}, {}), TOPICS)


def ranges(**sizes: int) -> dict[TopicPartition, OffsetRange]:
    return {TopicPartition(name, 0): OffsetRange(100, 100 + size) for name, size in sizes.items()}


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
def test_partitions_share_a_limit_equally(sizes: dict[str, int], limit: int | None, shares: list[int]) -> None:
    limited = share_limit(ranges(**sizes), limit, 0)
    assert list(limited.values()) == [OffsetRange(100, 100 + share) for share in shares]


def test_with_fewer_offsets_than_partitions_the_partitions_take_turns() -> None:
    runs = [share_limit(ranges(a=9, b=1000, c=9), 2, turn) for turn in range(3)]
    assert [[end - start for start, end in run.values()] for run in runs] == [[1, 1, 0], [0, 1, 1], [1, 0, 1]]


@given(st.lists(st.lists(st.integers(0, 40), min_size=1), min_size=1))
def test_repeated_offsets_are_counted_once(parts: list[list[int]]) -> None:
    distinct = DistinctOffsets()
    for offsets in parts:
        distinct.add(np.array(offsets, np.int64))
    expected = {offset for offsets in parts for offset in offsets}
    assert (len(distinct), distinct.bounds()) == (len(expected), [min(expected), max(expected)])
