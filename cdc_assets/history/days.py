"""How many versions the changes of each day opened: counted as they are written, so that nobody counts over a table."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cdc_assets.tso import TSO_LOGICAL_BITS

# What is kept: the newest days that have versions.
DAYS = 30

_MILLISECONDS = 24 * 60 * 60 * 1000
# A load opens as many as there are rows, beside which nothing else is seen.
_LOADED = "snapshot"


def counted(versions: pa.Table) -> Counter[str]:
    """Days in UTC, as ISO text, and how many versions begin on each, those of a load aside.

    Args:
        versions: the columns `_cdc_from_ts` and `_cdc_op`.
    """
    if not versions.num_rows:
        return Counter()
    changed = versions.filter(pc.not_equal(versions["_cdc_op"], _LOADED))
    numbers = pc.divide(pc.shift_right(changed["_cdc_from_ts"], TSO_LOGICAL_BITS), _MILLISECONDS)
    return Counter({_day(each["values"]): each["counts"] for each in pc.value_counts(numbers).to_pylist()})


def counted_by_spark(versions: DataFrame) -> tuple[int, Counter[str]]:
    """How many versions there are, and the same of them in one job."""
    day = f"shiftright(_cdc_from_ts, {TSO_LOGICAL_BITS}) div {_MILLISECONDS}"
    rows = versions.selectExpr(f"_cdc_op = '{_LOADED}' AS loaded", f"{day} AS day").groupBy("loaded", "day").count()
    found, days = 0, Counter[str]()
    for loaded, number, count in rows.collect():
        found += count
        if not loaded:
            days[_day(number)] += count
    return found, days


def after(before: Mapping[str, int], opened: Counter[str], gone: Counter[str] | None = None) -> dict[str, int]:
    """The days after a commit that opened versions, and took others away; the newest, in order."""
    known = min(before) if len(before) >= DAYS else ""
    now = Counter(before)
    now.update(opened)
    now.subtract(gone or Counter())
    return dict(sorted((day, n) for day, n in now.items() if n > 0 and day >= known)[-DAYS:])


def _day(number: int) -> str:
    return f"{datetime.fromtimestamp(number * _MILLISECONDS // 1000, tz=UTC):%Y-%m-%d}"
