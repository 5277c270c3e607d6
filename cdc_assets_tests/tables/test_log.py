"""What the statistics of a table's files tell."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.tables.log import DataFile, apart

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=8)


def of_range(number: int, low: int, high: int) -> DataFile:
    return DataFile(str(number), 1, {}, {"offset": low}, {"offset": high}, {})


@given(RANGES)
def test_files_of_different_groups_have_no_value_in_common(ranges: list[tuple[int, int]]) -> None:
    files = [of_range(n, low, low + width) for n, (low, width) in enumerate(ranges)]
    groups = list(apart(files, "offset"))
    assert sorted(f.path for group in groups for f in group) == sorted(f.path for f in files)
    values = [{v for f in group for v in range(f.low["offset"], f.high["offset"] + 1)} for group in groups]
    assert all(a.isdisjoint(b) for a, b in combinations(values, 2))


def test_files_that_follow_one_another_are_apart() -> None:
    first, second, third = of_range(0, 0, 9), of_range(1, 10, 19), of_range(2, 19, 20)
    assert list(apart([third, first, second], "offset")) == [[first], [second, third]]
