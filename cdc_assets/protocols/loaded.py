"""Rows of dumps in released_changes: one form for all dump formats and protocols.

A row is the text of a JSON object whose values are texts as MySQL prints them; bytes are hexadecimal digits, BIT is a
number, TIMESTAMP is in UTC.
"""

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.protocols.base import Reader, WireColumn

_MARK = "loaded"
_BEGINNING = '{"loaded": [['


class LoadedRows(Reader):
    """Reads the layouts of loaded rows, which have every column's complete type, from the dump's CREATE TABLE."""

    dialect = "dump"

    def columns(self, layout: str) -> Sequence[WireColumn]:
        """Return the columns of a layout `{"loaded": [[name, type], ...]}`."""
        return [WireColumn(name, mysql_type, is_loaded=True) for name, mysql_type in json.loads(layout)[_MARK]]


LOADED_ROWS = LoadedRows()


def loaded_layout(columns: Sequence[tuple[str, str]]) -> str:
    """Return the layout of loaded rows, from the columns' names and types."""
    return json.dumps({_MARK: columns}, ensure_ascii=False)


def is_loaded(layout: str) -> Column:
    """Return whether the column `layout` has a layout of loaded rows. BOOLEAN, NULL for NULL."""
    return F.col(layout).startswith(_BEGINNING)


def is_loaded_layout(layout: str) -> bool:
    """Return whether a text is a layout of loaded rows."""
    return layout.startswith(_BEGINNING)


def columns_in(protocol: Reader, layout: str) -> Sequence[WireColumn]:
    """Return the columns of a layout, which is the protocol's or one of loaded rows."""
    if is_loaded_layout(layout):
        return LOADED_ROWS.columns(layout)
    return protocol.columns(layout)


def reader_of(protocol: Reader, column: WireColumn) -> Reader:
    """Return the reader of a column's type and values: the protocol, or the one of loaded rows."""
    return LOADED_ROWS if column.is_loaded else protocol
