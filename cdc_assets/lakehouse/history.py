"""history: the SCD type 2 table of one source table, one row a version."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, BOOLEAN, INT, STRING, TIMESTAMP, column
from cdc_assets.lakehouse.table import Definition

# The properties of a history table that state its source. A long name is cut in the table's path and stands here in full.
DATABASE, TABLE = "cdc.database", "cdc.table"

# The names of our own columns begin with this; a source's column that does so gets another name.
RESERVED = "_cdc_"


@dataclass(frozen=True, kw_only=True)
class HistoryCursor(Cursor):
    """How far the table has come.

    Attributes:
        release: the newest release that is applied.
        versions: rows of the table, after this commit.
        current: of these the open ones.
        statements: ids of the DDL statements that are applied, in order.
        newest: the highest commit_ts of what is applied.
        partly: while only a part of the next releases is applied: up to which release, up to which era, and from which
            commit_ts on everything is applied anew (-1: it is not).
        naming: while columns are being renamed: ids of columns -> their names now.
        reload: statements after which rows are wrong until the table is loaded anew: commit_ts, statement, why.
        complete: the commit_ts from which on the history is complete (-1: nothing tells).
        met: how many rows were met first by an UPDATE or a DELETE since.
        days: the newest days of the source (UTC, ISO text) -> how many of the versions its changes opened, loads aside.
        adopted: the position of the load whose typed rows the table has begun with (-1: with none).
    """

    release: int = 0
    versions: int = 0
    current: int = 0
    statements: list[str] = field(default_factory=list)
    newest: int = -1
    partly: tuple[int, int, int] | None = None
    naming: dict[str, str] | None = None
    reload: list[dict[str, Any]] = field(default_factory=list)
    complete: int = -1
    met: int = 0
    days: dict[str, int] = field(default_factory=dict)
    adopted: int = -1


# Before the source's own columns. `_cdc_key` is the key's identity on the wire: typed key columns may hold NULL for what
# no Spark type holds (a zero date), or change their type.
CDC_COLUMNS = StructType(
    [
        column("_cdc_key", STRING, "The key's values, or the whole row where the table has no key."),
        column("_cdc_from_ts", BIGINT, "commit_ts of the change that opened the version; included."),
        column("_cdc_to_ts", BIGINT, "commit_ts of the change that closed it; excluded; null while open."),
        column("_cdc_valid_from", TIMESTAMP, "The time of _cdc_from_ts."),
        column("_cdc_valid_to", TIMESTAMP, "The time of _cdc_to_ts."),
        column("_cdc_is_current", BOOLEAN, "Whether the version is open."),
        column("_cdc_op", STRING, "What opened it: insert, update, snapshot, ddl."),
        column(
            "_cdc_closed_by",
            STRING,
            "What closed it: update, delete, truncate, drop, rename, ddl, snapshot (a load, or the connector's snapshot, "
            "did not have the row); null while open.",
        ),
        column("_cdc_topic", STRING, "Topic of the Kafka record that opened it."),
        column("_cdc_partition", INT, "Its partition."),
        column("_cdc_offset", BIGINT, "Its offset."),
    ]
)
# In tables only that have no key, or had none for a time.
COPY = column("_cdc_copy", INT, "Which of several equal rows, from 1; NULL where the row has a key.")

HISTORY = Definition(
    columns=CDC_COLUMNS,
    cursor=HistoryCursor,
    partition_by=("_cdc_is_current",),
    statistics=("_cdc_key", "_cdc_from_ts", "_cdc_to_ts"),
)


# What follows the name of a column whose name has passed to another.
_PUT_ASIDE = re.compile(r"__until_\d+$")


def history_name(column_name: str) -> str:
    """The name of a source column in the history table: its own, unless it would hide one of ours."""
    return f"_source{column_name}" if column_name.lower().startswith(RESERVED) else column_name


def source_name(column: str) -> str:
    """The name that a history table's column had in the source: the inverse of `history_name`, of one put aside too."""
    own = _PUT_ASIDE.sub("", column)
    return own.removeprefix("_source") if own.lower().startswith(f"_source{RESERVED}") else own


def source_columns(columns: Iterable[str]) -> list[str]:
    """Of a history table's columns those of the source's table."""
    return [c for c in columns if not c.startswith(RESERVED)]


def covers(position: int | str) -> str:
    """That a version is there at a position, a number or what stands for one in SQL; in SQL."""
    return f"_cdc_from_ts <= {position} AND (_cdc_to_ts IS NULL OR _cdc_to_ts > {position})"
