"""One SQL for two engines: deltalake's, which needs no JVM, and Spark's, which reads tables with widened types, too.

Both skip files, row groups and pages by their statistics. (Measured: one key among 10,000,000 rows 0.4 s without a JVM.)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.lakehouse.schema import literal, quoted
from cdc_assets.lakehouse.table import LakeTable

T = TypeVar("T")
_COLLECTED = 250_000  # rows that Spark gives at once, about
Tables = Mapping[str, LakeTable[Any]]  # the name that the SQL has for it -> the table


class WidenedError(RuntimeError):
    """Types of the table were widened, and so only Spark reads it."""


class Engine(ABC, Generic[T]):
    """What answers a query; the two differ in how names and texts are quoted, and in what they give."""

    @abstractmethod
    def name(self, column: str) -> str:
        """A name as an SQL identifier."""

    @abstractmethod
    def text(self, value: str) -> str:
        """A text as a literal."""

    @abstractmethod
    def run(self, sql: str, tables: Tables) -> T:
        """Answer a SELECT over these tables, which have to be there.

        Raises:
            WidenedError: only Spark reads one of them.
        """

    @abstractmethod
    def batches(self, sql: str, tables: Tables) -> Iterator[pa.RecordBatch]:
        """As `run`, the rows a part at a time: never are all of them in memory."""

    @abstractmethod
    def fetch(self, sql: str, tables: Tables) -> pa.Table:
        """As `run`, the rows themselves."""


class Arrow(Engine[pa.Table]):
    """deltalake's engine: rows as an Arrow table."""

    def name(self, column: str) -> str:
        """In double quotes."""
        return '"' + column.replace('"', '""') + '"'

    def text(self, value: str) -> str:
        """A backslash stands for itself."""
        return "'" + value.replace("'", "''") + "'"

    def run(self, sql: str, tables: Tables) -> pa.Table:
        """In this process."""
        found = self._reader(sql, tables).read_all()
        return found.cast(_without_views(found.schema))

    def batches(self, sql: str, tables: Tables) -> Iterator[pa.RecordBatch]:
        """As the engine's threads come to them."""
        reader = self._reader(sql, tables)
        schema = _without_views(reader.schema)
        return (batch.cast(schema) for batch in reader)

    def fetch(self, sql: str, tables: Tables) -> pa.Table:
        """The same as `run`."""
        return self.run(sql, tables)

    def _reader(self, sql: str, tables: Tables) -> pa.RecordBatchReader:
        builder = QueryBuilder()
        for name, table in tables.items():
            log = table.log()
            if log is not None and log.widened:
                raise WidenedError(f"{table.name}: types of its columns were widened, and so only Spark reads it")
            builder = builder.register(
                name, DeltaTable(table.path, storage_options=table.store.deltalake_options(table.path))
            )
        return pa.RecordBatchReader.from_stream(builder.execute(sql))


class Spark(Engine[DataFrame]):
    """Spark: rows as a frame, which is computed when it is used."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def name(self, column: str) -> str:
        """In backticks."""
        return quoted(column)

    def text(self, value: str) -> str:
        """A backslash escapes."""
        return literal(value)

    def run(self, sql: str, tables: Tables) -> DataFrame:
        """As a query of its own, which leaves no view in the session."""
        named = ", ".join(f"{name} AS (SELECT * FROM delta.{quoted(t.path)})" for name, t in tables.items())
        return self._session.sql(f"WITH {named} {sql}")

    def batches(self, sql: str, tables: Tables) -> Iterator[pa.RecordBatch]:
        """Spark collects a result whole only: in as many queries as it has parts, by a hash of the rows."""
        frame = self.run(sql, tables)
        parts = frame.count() // _COLLECTED + 1
        part = F.pmod(F.xxhash64(*map(frame.__getitem__, map(quoted, frame.columns))), F.lit(parts))
        for number in range(parts):
            yield from frame.where(part == number).toArrow().to_batches()

    def fetch(self, sql: str, tables: Tables) -> pa.Table:
        """Collected."""
        return self.run(sql, tables).toArrow()


def engine_for(session: Callable[[], SparkSession], *tables: LakeTable[Any]) -> Engine[Any]:
    """The engine that reads all these tables: without a JVM, if there is such a one."""
    logs = [table.log() for table in tables]
    return Spark(session()) if any(log is not None and log.widened for log in logs) else Arrow()


def _without_views(schema: pa.Schema) -> pa.Schema:
    """Texts and bytes in the form that all that takes Arrow knows."""
    return pa.schema([f.with_type(_without_view(f.type)) for f in schema])


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_without_view(f.type)) for f in kind])
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)
