"""Changes that found another row than the history has: an event before them is lost, or was dropped wrongly."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.versions import found_another_row, with_previous
from cdc_assets.lakehouse.change_events import Op

SHOWN = 50
# A connector's snapshot and a dump may print these in another form than the binlog.
_PRINTED_OTHERWISE = frozenset({"json", "float", "double"})


@dataclass(frozen=True)
class ChainBreaks:
    """Updates and deletes whose message has another row before the change than the history.

    Attributes:
        count: how many.
        sample: of some the coordinates, the key, and the columns that differ.
    """

    count: int = 0
    sample: list[dict[str, Any]] = field(default_factory=list)


NO_BREAKS = ChainBreaks()


def chain_breaks(line: DataFrame, columns: Sequence[SourceColumn]) -> ChainBreaks:
    """Return the breaks in the chains of changes. Only asked for when there seem to be some.

    Compared are the columns that both rows have: a message may leave out columns of the row before a change, and a DELETE
    all but the key.

    Args:
        line: `versions.timeline`.
        columns: of the history.
    """
    compared = [each for each in columns if each.readings]
    differing = F.array_compact(F.array(*[_differs(each) for each in compared]))
    names = F.transform(F.call_function("cdc_json_names", "image"), F.lower)
    found = (
        with_previous(line)
        .where(found_another_row())
        .withColumn("names", names)
        .select("topic", "partition", "offset", "op", "commit_ts", "key", differing.alias("columns"))
        .where(F.size("columns") > 0)
    )
    count = found.count()
    rows = found.orderBy("topic", "partition", "offset").limit(SHOWN).collect() if count else []
    return ChainBreaks(count, [r.asDict() for r in rows])


def _differs(column: SourceColumn) -> Column:
    """The column's name where it has another value before the change than in the chain, else NULL."""
    value = F.col("before_row").getField(column.column)
    other = F.col("before")["row"].getField(column.column)
    sent = F.arrays_overlap("names", F.array(*[F.lit(n) for n in {r.column.name.lower() for r in column.readings}]))
    read = F.col("before")["op"] == str(Op.SNAPSHOT)
    printed = column.type is not None and column.type.base in _PRINTED_OTHERWISE
    # A dump has no generated columns; an image of a DELETE may have NULL in place of all that is no key.
    known = F.when(read, F.lit(not printed) & other.isNotNull()).otherwise(F.lit(True))
    stated = (F.col("op") != str(Op.DELETE)) | value.isNotNull()
    return F.when(~value.eqNullSafe(other) & sent & known & stated, F.lit(column.column))
