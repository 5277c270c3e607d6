"""Merge watermarks of partitions and runs, and release only below the smallest of a topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.lakehouse.released_changes import PartitionWatermarks
from cdc_assets.release.watermarks import advance_watermarks, compute_topic_watermarks, merge_watermarks

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("seen", "new", "merged"),
    [
        ({}, {"t": {"0": 5}}, {"t": {"0": 5}}),
        ({"t": {"0": 5}}, {"t": {"0": 7}}, {"t": {"0": 7}}),
        ({"t": {"0": 5}}, {"t": {"0": 3}}, {"t": {"0": 5}}),  # a restarted changefeed
        ({"t": {"0": 5}}, {"t": {"0": None}}, {"t": {"0": 5}}),  # records, but no watermark
        ({"t": {"0": None}}, {"t": {"0": None}}, {"t": {"0": None}}),
        ({"t": {"0": None}}, {"t": {"0": 1}}, {"t": {"0": 1}}),
        ({"t": {"0": 5}}, {"t": {"1": 3}, "u": {"0": 9}}, {"t": {"0": 5, "1": 3}, "u": {"0": 9}}),
        ({"t": {"0": 5}}, {}, {"t": {"0": 5}}),
    ],
)
def test_merge(seen: PartitionWatermarks, new: PartitionWatermarks, merged: PartitionWatermarks) -> None:
    before = {topic: dict(partitions) for topic, partitions in seen.items()}
    assert merge_watermarks(seen, new) == merged
    assert seen == before, "what is given is not changed"


@pytest.mark.parametrize(
    ("seen", "partitions", "scope", "expected"),
    [
        ({"t": {"0": 5, "1": 3}}, None, "topic", {"t": 3}),
        ({"t": {"0": 5, "1": None}}, None, "topic", {}),  # one partition without a watermark holds everything
        ({"t": {"0": 5}}, 2, "topic", {}),  # so does a partition without any record
        ({"t": {"0": 5, "1": 3}}, 2, "topic", {"t": 3}),
        ({"t": {"0": 5, "2": 3}}, 2, "topic", {}),
        # a topic with more partitions than the setting: all of them count
        ({"t": {"0": 5, "1": 4, "2": 3}}, 2, "topic", {"t": 3}),
        ({"t": {"0": 5}, "u": {"0": 3}}, None, "topic", {"t": 5, "u": 3}),
        ({"t": {"0": 5}, "u": {"0": 3}}, None, "feed", {"t": 3, "u": 3}),
        ({"t": {"0": 5}, "u": {"0": None}}, None, "topic", {"t": 5}),
        ({"t": {"0": 5}, "u": {"0": None}}, None, "feed", {}),
        ({}, None, "topic", {}),
        ({}, 3, "feed", {}),
    ],
)
def test_topic_watermarks(
    seen: PartitionWatermarks, partitions: int | None, scope: str, expected: dict[str, int]
) -> None:
    assert compute_topic_watermarks(seen, partitions, scope) == expected


@pytest.mark.parametrize(
    ("released", "complete", "expected"),
    [
        ({}, {"t": 5}, {"t": 5}),
        ({"t": 5}, {"t": 7}, {"t": 7}),
        ({"t": 5}, {"t": 3}, {"t": 5}),  # a watermark never goes back
        ({"t": 5}, {}, {"t": 5}),  # a new partition without a watermark holds back new releases, but revokes none
    ],
)
def test_advance(released: dict[str, int], complete: dict[str, int], expected: dict[str, int]) -> None:
    assert advance_watermarks(released, complete) == expected


MARKS = st.lists(st.tuples(st.sampled_from("tu"), st.sampled_from("012"), st.none() | st.integers(1, 50)), max_size=20)


@given(MARKS, st.integers(1, 20))
def test_watermarks_do_not_depend_on_how_they_arrive(arrivals: list[tuple[str, str, int | None]], size: int) -> None:
    """The result is the same after one batch or many, and the released watermark never goes back."""
    of_all_batches: PartitionWatermarks = {}
    for topic, partition, mark in arrivals:
        highest = of_all_batches.setdefault(topic, {}).setdefault(partition, None)
        of_all_batches[topic][partition] = max((m for m in (highest, mark) if m is not None), default=None)
    seen: PartitionWatermarks = {}
    released: dict[str, int] = {}
    for start in range(0, len(arrivals), size):
        batch: PartitionWatermarks = {}
        for topic, partition, mark in arrivals[start : start + size]:
            highest = batch.setdefault(topic, {}).setdefault(partition, None)
            batch[topic][partition] = max((m for m in (highest, mark) if m is not None), default=None)
        seen = merge_watermarks(seen, batch)
        before, released = released, advance_watermarks(released, compute_topic_watermarks(seen, 3, "topic"))
        assert all(released[topic] >= mark for topic, mark in before.items())
    assert seen == of_all_batches
    assert released == compute_topic_watermarks(of_all_batches, 3, "topic")
