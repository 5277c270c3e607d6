"""The key of a row in a table that has lost its own: the whole row, as the history has it.

Rows of before have no message that could tell the key, so it is made of typed values, of theirs as of those that come.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from cdc_assets.expressions import first_true
from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import Slot
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.versions import is_row_key
from cdc_assets.lakehouse.change_events import Op


def row_key(row: Column, live: Mapping[str, Slot], columns: Sequence[SourceColumn]) -> Column:
    """The row without its NULLs, the text of a JSON object in the order of the columns' names. STRING.

    Args:
        row: STRUCT, of the history's columns.
        live: the source's columns -> their slots.
        columns: the history's.
    """
    named = {slot.id: slot.name for slot in live.values()}

    def text(column: SourceColumn) -> Column:
        value = row.getField(column.column)
        return F.base64(value) if column.target == BinaryType() else value.cast("string")

    texts = [text(c).alias(named[c.id]) for c in sorted(columns, key=lambda c: named.get(c.id, "")) if c.id in named]
    return F.to_json(F.struct(*texts))


def eras_without_key(work: TablePlan) -> list[int]:
    """The eras of the changes in which the table has lost its key."""
    first, last = work.among
    return [era for era in range(first, last + 1) if work.evolution.by_row(era)]


def shown(changes: DataFrame) -> DataFrame:
    """Where the whole row is the key, also a deletion shows the row."""
    return changes.withColumn(
        "after", F.when(is_row_key(F.col("key")), F.coalesce("after", "key")).otherwise(F.col("after"))
    )


def keyed_by_row(work: TablePlan, columns: list[SourceColumn], eras: list[int], typed: DataFrame) -> DataFrame:
    """The changes with the key that they have where the table has lost its own: that of its rows of before, too.

    In: `Typing.typed`, of `shown`; deletions show no row again.
    """
    told = [(F.col("era") == era, row_key(F.col("row"), work.evolution.live(era), columns)) for era in eras]
    key = F.coalesce(F.when(is_row_key(F.col("key")), first_true(*told)), F.col("key"))
    there = F.col("op") != str(Op.DELETE)
    return typed.withColumns({"key": key, "row": F.when(there, F.col("row")), "lost": F.col("lost") & there})
