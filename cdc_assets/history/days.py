"""Count how many versions begin on each day while they are written, so that no reader has to scan a table."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cdc_assets.tso import TSO_LOGICAL_BITS

# How many days a cursor keeps: the newest ones that have versions.
DAYS = 30

_MILLISECONDS = 24 * 60 * 60 * 1000
# Versions of a load are not counted: all of its rows have one position, and would hide the changes of all other days.
_LOADED = "snapshot"


def count_by_day(versions: pa.Table) -> Counter[str]:
    """Return how many versions begin on each day in UTC (ISO text), without those of a load.

    Args:
        versions: the columns `_cdc_from_ts` and `_cdc_op`.
    """
    if not versions.num_rows:
        return Counter()
    changed = versions.filter(pc.not_equal(versions["_cdc_op"], _LOADED))
    numbers = pc.divide(pc.shift_right(changed["_cdc_from_ts"], TSO_LOGICAL_BITS), _MILLISECONDS)
    return Counter({_format_day(each["values"]): each["counts"] for each in pc.value_counts(numbers).to_pylist()})


def count_by_day_in_spark(versions: DataFrame) -> tuple[int, Counter[str]]:
    """Return how many versions there are, and the result of `count_by_day`, from one Spark job."""
    day = f"shiftright(_cdc_from_ts, {TSO_LOGICAL_BITS}) div {_MILLISECONDS}"
    rows = versions.selectExpr(f"_cdc_op = '{_LOADED}' AS loaded", f"{day} AS day").groupBy("loaded", "day").count()
    total, days = 0, Counter[str]()
    for loaded, number, count in rows.collect():
        total += count
        if not loaded:
            days[_format_day(number)] += count
    return total, days


def update_days(before: Mapping[str, int], opened: Counter[str], removed: Counter[str] | None = None) -> dict[str, int]:
    """Return the newest `DAYS` days after a commit that opened versions and removed others, in order.

    Args:
        before: the days before the commit.
        opened: how many versions the commit opens on each day.
        removed: how many it removes.
    """
    # Days before the oldest of a full list have been cut off, so their counts are not known.
    oldest = min(before) if len(before) >= DAYS else ""
    days = Counter(before)
    days.update(opened)
    days.subtract(removed or Counter())
    return dict(sorted((day, n) for day, n in days.items() if n > 0 and day >= oldest)[-DAYS:])


def _format_day(number: int) -> str:
    return f"{datetime.fromtimestamp(number * _MILLISECONDS // 1000, tz=UTC):%Y-%m-%d}"
