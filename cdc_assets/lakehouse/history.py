"""history: the SCD type 2 table of one source table, one row a version."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, BOOLEAN, INT, STRING, TIMESTAMP, column
from cdc_assets.lakehouse.table import Definition

# The properties of a history table that name its source table in full: the table's path may have a long name cut.
DATABASE, TABLE = "cdc.database", "cdc.table"

# The names of the pipeline's own columns begin with this; a source column whose name does so too is renamed.
RESERVED = "_cdc_"


@dataclass(frozen=True, kw_only=True)
class HistoryCursor(Cursor):
    """How far the history has come.

    Attributes:
        release: the newest release that is applied.
        versions: how many versions the table has after this commit.
        current: how many of these versions are open.
        statements: ids of the DDL statements that are applied, in order.
        newest: the highest commit_ts that is applied.
        partly: while only a part of the next releases is applied: up to which release, up to which era, and the commit_ts
            from which on everything is applied again (-1 if nothing is).
        naming: while columns are being renamed: column id -> current name.
        reload: statements after which rows are wrong until the table is reloaded: commit_ts, statement, why.
        complete: the commit_ts from which on the history is complete (-1 if it is not known).
        met: since then, how many rows came first with an UPDATE or a DELETE.
        days: the source's newest days (UTC, ISO text) -> how many versions their changes opened; loads are not counted.
        adopted: the position of the load whose typed rows the table began with (-1 without one).
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


# These columns stand before the source's. `_cdc_key` has the key as messages state it, because a typed key column may be
# NULL for a value that no Spark type holds (a zero date), or change its type.
CDC_COLUMNS = StructType(
    [
        column("_cdc_key", STRING, "The key's values; all values of the row if the table has no key."),
        column("_cdc_from_ts", BIGINT, "commit_ts of the change that opened the version; included."),
        column("_cdc_to_ts", BIGINT, "commit_ts of the change that closed the version; excluded; null while open."),
        column("_cdc_valid_from", TIMESTAMP, "The time of _cdc_from_ts."),
        column("_cdc_valid_to", TIMESTAMP, "The time of _cdc_to_ts."),
        column("_cdc_is_current", BOOLEAN, "Whether the version is open."),
        column("_cdc_op", STRING, "What opened the version: insert, update, snapshot, ddl."),
        column(
            "_cdc_closed_by",
            STRING,
            "What closed the version: update, delete, truncate, drop, rename, ddl, snapshot (a load, or the connector's "
            "snapshot, did not have the row); null while open.",
        ),
        column("_cdc_topic", STRING, "Topic of the Kafka record that opened the version."),
        column("_cdc_partition", INT, "Partition of that record."),
        column("_cdc_offset", BIGINT, "Offset of that record."),
    ]
)
# Only in tables that have no key, or had none for a time.
COPY = column("_cdc_copy", INT, "The number of the copy among equal rows, from 1; NULL if the row has a key.")

HISTORY = Definition(
    columns=CDC_COLUMNS,
    cursor=HistoryCursor,
    partition_by=("_cdc_is_current",),
    statistics=("_cdc_key", "_cdc_from_ts", "_cdc_to_ts"),
)


# The suffix of a column that was dropped or changed its type, whose name a new column has now.
_PUT_ASIDE = re.compile(r"__until_\d+$")


def history_name(column_name: str) -> str:
    """Return the name of a source column in the history table: its own, unless it begins like the pipeline's columns."""
    return f"_source{column_name}" if column_name.lower().startswith(RESERVED) else column_name


def source_name(column: str) -> str:
    """Return the name that a history table's column has in the source, without the suffix `__until_<commit_ts>`."""
    return unprefixed_name(_PUT_ASIDE.sub("", column))


def unprefixed_name(column: str) -> str:
    """Return the name of a history table's column without what `history_name` has put before it."""
    return column.removeprefix("_source") if column.lower().startswith(f"_source{RESERVED}") else column


def source_columns(columns: Iterable[str]) -> list[str]:
    """Return the columns of a history table that come from the source."""
    return [c for c in columns if not c.startswith(RESERVED)]


def covers(position: int | str) -> str:
    """Return the SQL condition that a version is valid at a position, which is a number or an SQL expression."""
    return f"_cdc_from_ts <= {position} AND (_cdc_to_ts IS NULL OR _cdc_to_ts > {position})"
