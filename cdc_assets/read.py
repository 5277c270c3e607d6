"""Read history tables: the rows of now, of any position, what changed between two, and every version.

Arrow tables without a JVM, which Polars, pandas and DuckDB take as they are; or frames of a Spark session.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, overload

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.config import Storage
from cdc_assets.history.completeness import Complete, complete_from
from cdc_assets.lakehouse.history import COPY, HISTORY, covers, source_columns
from cdc_assets.lakehouse.lakehouse import Lakehouse, lakehouse_root
from cdc_assets.lakehouse.query import Arrow, Engine, Spark
from cdc_assets.operations.finality import Final
from cdc_assets.operations.finality import final as final_of
from cdc_assets.spark.session import spark_session
from cdc_assets.stores.storage import Store
from cdc_assets.tso import Position, position_of

T = TypeVar("T")


class NoTableError(LookupError):
    """There is no such history table; the message names those that there are."""


@dataclass(frozen=True)
class Table(Generic[T]):
    """A history table, read by one of the engines.

    A position is a commit_ts, or a time, and stands for what the source's table held after all that it did up to then, that
    position included. What is said of positions after `final()` may still change.
    """

    lake: Lakehouse
    database: str
    table: str
    engine: Engine[T]

    def final(self) -> Final:
        """Up to which position all that this table tells is final."""
        return final_of(self.lake, self.database, self.table)

    def complete(self) -> Complete:
        """From which position on it has every row that the source had: as of one before it rows may be missing."""
        return complete_from(self.lake, self.database, self.table)

    def current(self, columns: Sequence[str] | None = None) -> T:
        """The rows that the source's table holds, as far as they were released: its columns, or some of them.

        Raises:
            ValueError: a column is not there.
        """
        return self._rows("_cdc_is_current", columns)

    def as_of(self, position: Position, columns: Sequence[str] | None = None) -> T:
        """The rows that it held at a position: its columns, or some of them; one that came later is NULL.

        Raises:
            ValueError: the position is none, or a column is not there.
        """
        return self._rows(covers(position_of(position)), columns)

    def versions(self, columns: Sequence[str] | None = None) -> T:
        """Every version of every row: all columns of the history table, or some of them.

        Raises:
            ValueError: a column is not there.
        """
        return self._rows("true", columns or self._columns())

    def changes_between(self, after: Position, through: Position | None = None) -> T:
        """What leads from the rows as of one position to those as of another, each change in the order of the source.

        Args:
            after: the position that is known.
            through: the position to come to, included; default: `final()`.

        Returns:
            commit_ts BIGINT; op STRING: insert, update, delete, or snapshot and ddl, which bring rows, too; key STRING, the
            key's values as a JSON array; before and after STRUCT, the row, NULL where there was none. One row a key and
            commit_ts, by these.

        Raises:
            ValueError: a position is none.
        """
        start = position_of(after)
        end = self.final().position if through is None else position_of(through)
        own, name = self._own(), self.engine.name
        same = "o._cdc_key = c._cdc_key AND o._cdc_from_ts = c._cdc_to_ts"
        if COPY.name in self._columns():
            same += f" AND coalesce(o.{COPY.name}, 0) = coalesce(c.{COPY.name}, 0)"

        def row(of: str) -> str:
            fields = ", ".join(f"{self.engine.text(c)}, {of}.{name(c)}" for c in own)
            return f"CASE WHEN {of}._cdc_key IS NOT NULL THEN named_struct({fields}) END"

        # A version that ends where it begins no position sees.
        lasting = "(_cdc_to_ts IS NULL OR _cdc_to_ts > _cdc_from_ts)"
        return self._run(
            "SELECT coalesce(o._cdc_from_ts, c._cdc_to_ts) AS commit_ts, "
            "CASE WHEN o._cdc_key IS NULL THEN 'delete' WHEN c._cdc_key IS NULL THEN o._cdc_op ELSE 'update' END AS op, "
            f"coalesce(o._cdc_key, c._cdc_key) AS key, {row('c')} AS before, {row('o')} AS after "
            f"FROM (SELECT * FROM h WHERE _cdc_from_ts > {start} AND _cdc_from_ts <= {end} AND {lasting}) o "
            f"FULL OUTER JOIN (SELECT * FROM h WHERE _cdc_to_ts > {start} AND _cdc_to_ts <= {end} AND {lasting}) c "
            f"ON {same} ORDER BY commit_ts, key"
        )

    def _rows(self, where: str, columns: Sequence[str] | None) -> T:
        unknown = [c for c in columns or () if c not in self._columns()]
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: no such column; allowed: {', '.join(self._columns())}")
        chosen = ", ".join(map(self.engine.name, columns or self._own()))
        return self._run(f"SELECT {chosen} FROM h WHERE {where}")

    def _run(self, sql: str) -> T:
        return self.engine.run(sql, {"h": self.lake.history(self.database, self.table)})

    def _columns(self) -> list[str]:
        found = self.lake.history(self.database, self.table).schema()
        return found.names if found else HISTORY.columns.names

    def _own(self) -> list[str]:
        return source_columns(self._columns())


@overload
def table(feed: str, name: str, *, root: str | None = None, storage: Storage | None = None) -> Table[pa.Table]: ...


@overload
def table(
    feed: str, name: str, *, root: str | None = None, storage: Storage | None = None, spark: SparkSession
) -> Table[DataFrame]: ...


def table(
    feed: str,
    name: str,
    *,
    root: str | None = None,
    storage: Storage | None = None,
    spark: SparkSession | None = None,
) -> Table[Any]:
    """A history table of a feed.

    Args:
        feed: its name.
        name: `database.table` of the source.
        root: of the lakehouse; default: `CDC_LAKEHOUSE`, else `data/lakehouse`.
        storage: how an object store is reached, as `storage:` of the feeds file has it.
        spark: the session that is to read it; default: none, and Arrow tables. A table of which types were widened
            (`tables.query.WidenedError`) needs one.

    Raises:
        NoTableError: there is no such table.
    """
    place = lakehouse_root(root)
    store = Store(storage or Storage(), (place,))
    session = partial(spark_session, {}, store) if spark is None else lambda: spark
    lake = Lakehouse(session, place, feed, store)
    return Table(lake, *existing(lake, name), Arrow() if spark is None else Spark(spark))


def existing(lake: Lakehouse, name: str) -> tuple[str, str]:
    """The history table that is called `database.table`, where either may have dots.

    Raises:
        NoTableError: there is none.
    """
    if (found := lake.find_history(name)) is not None:
        return found
    known = ", ".join(map(".".join, lake.histories())) or "none"
    raise NoTableError(f"{name}: the feed {lake.feed} has no such history table; it has {known}")
