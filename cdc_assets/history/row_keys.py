"""Make the keys of rows in a table that has lost its primary key: the whole row, as the history has it, is the key.

Open versions have no message from which a key could be read. So the key is made of typed values, both for open versions
and for changes.
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
    """Return the key of a row: a JSON object of its values without NULLs, in the order of the columns' names. STRING.

    Args:
        row: STRUCT of the history's columns.
        live: the source's columns -> their slots.
        columns: the history's columns.
    """
    names = {slot.id: slot.name for slot in live.values()}

    def to_text(column: SourceColumn) -> Column:
        value = row.getField(column.column)
        return F.base64(value) if column.target == BinaryType() else value.cast("string")

    texts = [to_text(c).alias(names[c.id]) for c in sorted(columns, key=lambda c: names.get(c.id, "")) if c.id in names]
    return F.to_json(F.struct(*texts))


def fill_deleted_rows(plan: TablePlan, changes: DataFrame) -> DataFrame:
    """Set `after` of deletions to the deleted row where the whole row is the key, so that typing decodes it."""
    if not _eras_without_key(plan):
        return changes
    deleted = F.coalesce("after", "key")
    return changes.withColumn("after", F.when(is_row_key(F.col("key")), deleted).otherwise(F.col("after")))


def key_by_row(plan: TablePlan, columns: list[SourceColumn], typed: DataFrame) -> DataFrame:
    """Replace the keys of changes in eras without a key by keys that open versions have, too.

    In: `Typing.type_rows` of `fill_deleted_rows`. Out: the same, with `row` NULL for deletions again.
    """
    eras = _eras_without_key(plan)
    if not eras:
        return typed
    keys = [(F.col("era") == era, row_key(F.col("row"), plan.evolution.live(era), columns)) for era in eras]
    key = F.coalesce(F.when(is_row_key(F.col("key")), first_true(*keys)), F.col("key"))
    has_row = F.col("op") != str(Op.DELETE)
    return typed.withColumns({"key": key, "row": F.when(has_row, F.col("row")), "lost": F.col("lost") & has_row})


def _eras_without_key(plan: TablePlan) -> list[int]:
    """Return the eras of the part's changes in which the table has lost its key."""
    first, last = plan.among
    return [era for era in range(first, last + 1) if plan.evolution.by_row(era)]
