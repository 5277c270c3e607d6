"""Count the versions of each day while a history is written."""

from collections import Counter

import pyarrow as pa
from pyspark.sql import SparkSession

from cdc_assets.history.days import DAYS, count_by_day, count_by_day_in_spark, update_days
from cdc_assets_tests.support import frame_of_rows

# Milliseconds of 2024-02-29 00:00 UTC, a Thursday in a leap year, as TiDB writes them.
LEAP_DAY = 1_709_164_800_000 << 18
HOUR = 3_600_000 << 18

VERSIONS = [
    (LEAP_DAY - 1, "insert"),
    (LEAP_DAY, "insert"),
    (LEAP_DAY + 23 * HOUR, "update"),
    (LEAP_DAY + 23 * HOUR, "ddl"),
    (LEAP_DAY + 24 * HOUR, "snapshot"),
    (LEAP_DAY + 25 * HOUR, "update"),
]
BY_DAY = {"2024-02-28": 1, "2024-02-29": 3, "2024-03-01": 1}


def test_a_version_belongs_to_the_day_on_which_it_begins_and_loads_are_left_out(spark: SparkSession) -> None:
    begin, op = zip(*VERSIONS, strict=True)
    assert count_by_day(pa.table({"_cdc_from_ts": begin, "_cdc_op": op})) == BY_DAY
    frame = frame_of_rows(spark, VERSIONS, "_cdc_from_ts BIGINT, _cdc_op STRING")
    assert count_by_day_in_spark(frame) == (len(VERSIONS), BY_DAY)
    assert count_by_day(pa.table({"_cdc_from_ts": [], "_cdc_op": []})) == {}


def test_days_add_up_and_rewritten_versions_count_once() -> None:
    assert update_days(BY_DAY, Counter({"2024-03-01": 2, "2024-02-28": 1})) == {
        "2024-02-28": 2,
        "2024-02-29": 3,
        "2024-03-01": 3,
    }
    removed = Counter({"2024-02-29": 1, "2024-03-01": 1})
    assert update_days(BY_DAY, Counter({"2024-02-29": 2}), removed) == {"2024-02-28": 1, "2024-02-29": 4}


def test_the_newest_days_are_kept_and_a_removed_day_stays_removed() -> None:
    full = {f"2024-04-{day:02}": 1 for day in range(1, DAYS + 1)}
    kept = update_days(full, Counter({"2024-05-01": 1}))
    assert list(kept) == [*list(full)[1:], "2024-05-01"]
    # Going back removes newer days; the count of a day that was removed earlier would be incomplete.
    again = update_days(kept, Counter({"2024-04-01": 5}), Counter({"2024-05-01": 1}))
    assert list(again) == list(full)[1:]
