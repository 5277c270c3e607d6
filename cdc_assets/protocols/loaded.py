"""The rows of a dump, beside what messages bring: in one form, whatever the dump's own and the feed's protocol are.

A row is the text of a JSON object, every value a text as MySQL prints it; bytes as hexadecimal digits, BIT as a number,
TIMESTAMP in UTC.
"""

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.protocols.base import Reader, WireColumn

_MARK = "loaded"
_BEGINNING = '{"loaded": [['


class LoadedRows(Reader):
    """What reads loaded rows: their layout has every column's whole type, out of the dump's CREATE TABLE."""

    dialect = "dump"

    def columns(self, layout: str) -> Sequence[WireColumn]:
        """The columns of a layout, `{"loaded": [[name, type], ...]}`."""
        return [WireColumn(name, said, loaded=True) for name, said in json.loads(layout)[_MARK]]


LOADED_ROWS = LoadedRows()


def loaded_layout(columns: Sequence[tuple[str, str]]) -> str:
    """The text of the layout of loaded rows. In: names and types of the columns."""
    return json.dumps({_MARK: columns}, ensure_ascii=False)


def is_loaded(layout: str) -> Column:
    """Whether the text in a column is the layout of loaded rows. BOOLEAN, NULL for NULL."""
    return F.col(layout).startswith(_BEGINNING)


def tells_loaded(layout: str) -> bool:
    """Whether a text is the layout of loaded rows."""
    return layout.startswith(_BEGINNING)


def columns_in(protocol: Reader, layout: str) -> Sequence[WireColumn]:
    """The columns of a layout of released changes, of the protocol's messages or of loaded rows."""
    if tells_loaded(layout):
        return LOADED_ROWS.columns(layout)
    return protocol.columns(layout)


def reader_of(protocol: Reader, column: WireColumn) -> Reader:
    """What tells a column's type and the meaning of its values' texts."""
    return LOADED_ROWS if column.loaded else protocol
