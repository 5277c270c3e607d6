"""Read history tables: current rows, rows at a position, changes between two positions, and all versions.

Without a Spark session they are Arrow tables, read without a JVM, which Polars, pandas and DuckDB accept; with one they are
DataFrames.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, overload

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.config import Storage
from cdc_assets.history.completeness import Complete, describe_completeness
from cdc_assets.lakehouse.history import COPY, HISTORY, HistoryCursor, covers, source_columns
from cdc_assets.lakehouse.lakehouse import Lakehouse, lakehouse_root
from cdc_assets.lakehouse.query import Arrow, Engine, Spark, Tables
from cdc_assets.operations.finality import FinalPosition, find_final_position
from cdc_assets.spark.session import spark_session
from cdc_assets.stores.storage import Store
from cdc_assets.tso import Position, parse_position

T = TypeVar("T")


class NoTableError(LookupError):
    """There is no such history table; the message names the existing ones."""


@dataclass(frozen=True)
class Table(Generic[T]):
    """A history table.

    A position is a commit_ts or a time, and means the rows that the source's table held after everything up to and including
    it. What is read at a position above `final()` may still change.

    Attributes:
        lake: the feed's tables.
        database: the source's database.
        table: the source's table.
        engine: what reads it.
    """

    lake: Lakehouse
    database: str
    table: str
    engine: Engine[T]

    def final(self) -> FinalPosition:
        """Return the position up to which the table can no longer change, and what bounds it."""
        return find_final_position(self.lake, self.database, self.table)

    def complete(self) -> Complete:
        """Return the position from which on the table has every row of the source; before it rows may be missing."""
        cursor = self.lake.history(self.database, self.table).cursor() or HistoryCursor(sequence=0)
        return describe_completeness(cursor.complete, cursor.met)

    def current(self, columns: Sequence[str] | None = None) -> T:
        """Return the rows that the source's table holds, as far as they are released.

        Args:
            columns: some columns of the history table; default: the source's columns.

        Raises:
            ValueError: a column does not exist.
        """
        return self._select("_cdc_is_current", columns)

    def as_of(self, position: Position, columns: Sequence[str] | None = None) -> T:
        """Return the rows that the source's table held at a position; a column that was added later is NULL.

        Args:
            position: a commit_ts, or a time.
            columns: some columns of the history table; default: the source's columns.

        Raises:
            ValueError: the position is neither a commit_ts nor a time, or a column does not exist.
        """
        return self._select(covers(parse_position(position)), columns)

    def versions(self, columns: Sequence[str] | None = None) -> T:
        """Return every version of every row.

        Args:
            columns: some columns of the history table; default: all.

        Raises:
            ValueError: a column does not exist.
        """
        return self._select("true", columns or self._list_columns())

    def changes_between(self, after: Position, through: Position | None = None) -> T:
        """Return the changes that lead from the rows at one position to those at another.

        Args:
            after: the position to start from, excluded.
            through: the position to end at, included; default: `final()`.

        Returns:
            One row a key and commit_ts, ordered by commit_ts, then key: commit_ts BIGINT; op STRING (insert, update, delete;
            or snapshot and ddl, which bring rows as well); key STRING (the key's values as a JSON array); before and after
            STRUCT (the row, NULL where there was none).

        Raises:
            ValueError: a position is neither a commit_ts nor a time.
        """
        start = parse_position(after)
        end = self.final().position if through is None else parse_position(through)
        return self.engine.run(self._build_changes_sql(start, end), self._tables)

    def _build_changes_sql(self, start: int, end: int) -> str:
        """Return the SQL that joins the versions opened after `start` (o) with those closed after it (c), up to `end`."""
        columns, name = self._list_columns(), self.engine.name
        is_same_row = "o._cdc_key = c._cdc_key AND o._cdc_from_ts = c._cdc_to_ts"
        if COPY.name in columns:
            is_same_row += f" AND coalesce(o.{COPY.name}, 0) = coalesce(c.{COPY.name}, 0)"
        before, after = (
            f"CASE WHEN {side}._cdc_key IS NOT NULL THEN named_struct("
            + ", ".join(f"{self.engine.text(column)}, {side}.{name(column)}" for column in source_columns(columns))
            + ") END"
            for side in ("c", "o")
        )
        # No position sees a version that ends where it begins.
        has_length = "(_cdc_to_ts IS NULL OR _cdc_to_ts > _cdc_from_ts)"
        return (
            "SELECT coalesce(o._cdc_from_ts, c._cdc_to_ts) AS commit_ts, "
            "CASE WHEN o._cdc_key IS NULL THEN 'delete' WHEN c._cdc_key IS NULL THEN o._cdc_op ELSE 'update' END AS op, "
            f"coalesce(o._cdc_key, c._cdc_key) AS key, {before} AS before, {after} AS after "
            f"FROM (SELECT * FROM h WHERE _cdc_from_ts > {start} AND _cdc_from_ts <= {end} AND {has_length}) o "
            f"FULL OUTER JOIN (SELECT * FROM h WHERE _cdc_to_ts > {start} AND _cdc_to_ts <= {end} AND {has_length}) c "
            f"ON {is_same_row} ORDER BY commit_ts, key"
        )

    def _select(self, where: str, columns: Sequence[str] | None) -> T:
        existing = self._list_columns()
        if unknown := [column for column in columns or () if column not in existing]:
            raise ValueError(f"There is no column {', '.join(unknown)}. The columns are: {', '.join(existing)}.")
        selected = ", ".join(map(self.engine.name, columns or source_columns(existing)))
        return self.engine.run(f"SELECT {selected} FROM h WHERE {where}", self._tables)

    @property
    def _tables(self) -> Tables:
        return {"h": self.lake.history(self.database, self.table)}

    def _list_columns(self) -> list[str]:
        schema = self.lake.history(self.database, self.table).schema()
        return schema.names if schema else HISTORY.columns.names


@overload
def table(feed: str, name: str, *, root: str | None = None, storage: Storage | None = None) -> Table[pa.Table]: ...


@overload
def table(
    feed: str, name: str, *, root: str | None = None, storage: Storage | None = None, spark: SparkSession
) -> Table[DataFrame]: ...


def table(
    feed: str, name: str, *, root: str | None = None, storage: Storage | None = None, spark: SparkSession | None = None
) -> Table[Any]:
    """Return a history table of a feed.

    Args:
        feed: the feed's name.
        name: the source's table, `database.table`.
        root: the lakehouse's root; default: `CDC_LAKEHOUSE`, else `data/lakehouse`.
        storage: how to reach an object store, as `storage:` in the feeds file.
        spark: the session to read with; default: none, and Arrow tables. A table whose column types were widened needs one.

    Raises:
        NoTableError: there is no such table.
    """
    place = lakehouse_root(root)
    store = Store(storage or Storage(), (place,))
    session = partial(spark_session, {}, store) if spark is None else lambda: spark
    lake = Lakehouse(session, place, feed, store)
    return Table(lake, *find_history(lake, name), Arrow() if spark is None else Spark(spark))


def find_history(lake: Lakehouse, name: str) -> tuple[str, str]:
    """Return database and table of the history `database.table`, where either name may have dots.

    Raises:
        NoTableError: there is no such history.
    """
    if (history := lake.find_history(name)) is not None:
        return history
    histories = ", ".join(map(".".join, lake.histories())) or "none"
    raise NoTableError(f"{name}: feed {lake.feed} has no such history table. It has: {histories}.")
