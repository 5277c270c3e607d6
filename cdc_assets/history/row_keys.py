"""The key of a row in a table that has lost its own: the whole row, as the history has it.

Rows of before have no message that could tell the key, so it is made of typed values, of theirs as of those that come.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import Slot


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
