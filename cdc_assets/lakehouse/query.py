"""SQL queries that run on two engines: deltalake's needs no JVM, Spark's also reads tables with widened types.

Both engines skip files, row groups and pages by their statistics.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.lakehouse.schema import literal, quoted, without_views
from cdc_assets.lakehouse.table import LakeTable

T = TypeVar("T")
_ROWS_A_BATCH = 250_000  # about how many rows Spark returns at once
Tables = Mapping[str, LakeTable[Any]]  # the name that the SQL has for a table -> the table


class WidenedError(RuntimeError):
    """Column types of the table were widened, so only Spark reads it."""


class Engine(ABC, Generic[T]):
    """An engine that answers queries. Engines differ in how they quote names and texts, and in the type of the result."""

    @abstractmethod
    def name(self, column: str) -> str:
        """Return a name as an SQL identifier."""

    @abstractmethod
    def text(self, value: str) -> str:
        """Return a text as an SQL literal."""

    @abstractmethod
    def run(self, sql: str, tables: Tables) -> T:
        """Answer a SELECT over these tables, all of which must exist.

        Raises:
            WidenedError: only Spark reads one of the tables.
        """

    @abstractmethod
    def batches(self, sql: str, tables: Tables) -> Iterator[pa.RecordBatch]:
        """Answer a SELECT batch by batch, so that never all rows are in memory."""

    @abstractmethod
    def fetch(self, sql: str, tables: Tables) -> pa.Table:
        """Answer a SELECT with an Arrow table of its rows."""


class Arrow(Engine[pa.Table]):
    """deltalake's engine, which answers with an Arrow table."""

    def name(self, column: str) -> str:
        """Return the name in double quotes."""
        return '"' + column.replace('"', '""') + '"'

    def text(self, value: str) -> str:
        """Return the text in single quotes, in which a backslash stands for itself."""
        return "'" + value.replace("'", "''") + "'"

    def run(self, sql: str, tables: Tables) -> pa.Table:
        """Answer a SELECT in this process."""
        rows = self._reader(sql, tables).read_all()
        return rows.cast(without_views(rows.schema))

    def batches(self, sql: str, tables: Tables) -> Iterator[pa.RecordBatch]:
        """Answer a SELECT batch by batch, in the order in which the engine's threads finish them."""
        reader = self._reader(sql, tables)
        schema = without_views(reader.schema)
        return (batch.cast(schema) for batch in reader)

    def fetch(self, sql: str, tables: Tables) -> pa.Table:
        """Answer a SELECT with an Arrow table."""
        return self.run(sql, tables)

    def _reader(self, sql: str, tables: Tables) -> pa.RecordBatchReader:
        builder = QueryBuilder()
        for name, table in tables.items():
            log = table.log()
            if log is not None and log.has_widened_types:
                raise WidenedError(f"{table.name}: column types were widened, so only Spark reads this table")
            builder = builder.register(
                name, DeltaTable(table.path, storage_options=table.store.deltalake_options(table.path))
            )
        return pa.RecordBatchReader.from_stream(builder.execute(sql))


class Spark(Engine[DataFrame]):
    """Spark, which answers with a frame that is computed when it is used."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def name(self, column: str) -> str:
        """Return the name in backticks."""
        return quoted(column)

    def text(self, value: str) -> str:
        """Return the text in single quotes, in which a backslash escapes."""
        return literal(value)

    def run(self, sql: str, tables: Tables) -> DataFrame:
        """Answer a SELECT. The tables are named in a WITH clause, so that no view stays in the session."""
        clauses = ", ".join(f"{name} AS (SELECT * FROM delta.{quoted(t.path)})" for name, t in tables.items())
        return self._session.sql(f"WITH {clauses} {sql}")

    def batches(self, sql: str, tables: Tables) -> Iterator[pa.RecordBatch]:
        """Answer a SELECT batch by batch: one query a batch, by a hash of the rows. Spark collects complete results only."""
        frame = self.run(sql, tables)
        parts = frame.count() // _ROWS_A_BATCH + 1
        part = F.pmod(F.xxhash64(*map(frame.__getitem__, map(quoted, frame.columns))), F.lit(parts))
        for number in range(parts):
            yield from frame.where(part == number).toArrow().to_batches()

    def fetch(self, sql: str, tables: Tables) -> pa.Table:
        """Answer a SELECT with an Arrow table."""
        return self.run(sql, tables).toArrow()


def engine_for(session: Callable[[], SparkSession], *tables: LakeTable[Any]) -> Engine[Any]:
    """Return the engine that reads all these tables: deltalake's, unless one of them needs Spark."""
    logs = [table.log() for table in tables]
    return Spark(session()) if any(log is not None and log.has_widened_types for log in logs) else Arrow()
