"""Help tests: Canal-JSON messages, snapshot files, runs of the core, and tables as comparable rows.

No helper decodes or computes what a test expects: the tests have the expectations.
"""

import base64
import gzip
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StructType, TimestampNTZType, TimestampType

from cdc_assets.config import Feed, FeedsFile
from cdc_assets.history.table_report import TableReport
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.operations.maintenance.files import list_tables
from cdc_assets.stages import DECODE, HISTORY, INGEST, LOAD, RELEASE, SCHEMAS, TYPES
from cdc_assets.stages.decode import DecodeReport
from cdc_assets.stages.ingest import IngestReport
from cdc_assets.stages.release.report import ReleaseReport
from cdc_assets.stages.schemas import SchemasReport
from cdc_assets.stages.types import TypesReport
from cdc_assets.stores.storage import LOCAL, Store

RECORDED = Path(__file__).parent / "recorded"
TOPIC = "shop_changes"

Record = dict[str, Any]
Message = dict[str, Any]


# For JVMs that live less than a minute: they compile fast, and do not verify the classes of pinned jars. Without a class
# archive, as on a cluster, verifying takes much of an executor's time.
SHORT_LIVED_OPTIONS = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
]
SHORT_LIVED = {"SPARK_SUBMIT_OPTS": " ".join(SHORT_LIVED_OPTIONS)}


def users_environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a user's processes, with the feeds file and all written files in one folder."""
    mine = {
        "CDC_FEEDS": str(home / "feeds.yaml"),
        "CDC_LAKEHOUSE": str(home / "lake"),
        "DAGSTER_HOME": str(home),
        "CDC_SPARK_MASTER": "local[2]",
        "CDC_SPARK_DRIVER_MEMORY": "1g",
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CDC_", "DAGSTER_", "PYSPARK_"))}
    return inherited | mine | SHORT_LIVED | more


def no_java(home: Path) -> dict[str, str]:
    """Return the environment variables with which no JVM can start, and no jar can be read or fetched."""
    return {"JAVA_HOME": str(home / "no_java"), "CDC_JARS": str(home / "no_jars")}


def tso(milliseconds: int, logical: int = 0) -> int:
    """Return a TSO: `milliseconds` after an instant in 2023, and a logical part."""
    return (1_700_000_000_000 + milliseconds) << 18 | logical


# The document's java.sql.Types codes by type; for unsigned integers: the largest value of the first code,
# which NULL has, too, and both codes.
CODES = {
    "boolean": -6, "float": 7, "double": 8, "decimal": 3, "char": 1, "varchar": 12, "binary": 2004, "varbinary": 2004,
    "tinytext": 2005, "text": 2005, "mediumtext": 2005, "longtext": 2005, "tinyblob": 2004, "blob": 2004,
    "mediumblob": 2004, "longblob": 2004, "date": 91, "datetime": 93, "timestamp": 93, "time": 92, "year": 12, "enum": 4,
    "set": -7, "bit": -7, "json": 12, "tinyint": -6, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5,
}  # fmt: skip
UNSIGNED_CODES = {
    "tinyint": (127, -6, 5),
    "smallint": (32767, 5, 4),
    "int": (2147483647, 4, -5),
    "bigint": (9223372036854775807, -5, 3),
}


def code_of(type_text: str, value: Any) -> int:
    """Return the code that TiCDC writes for a type and a value; 12 for a text that is no type."""
    name = type_text.partition("(")[0].partition(" ")[0].lower()
    if " unsigned" in type_text and name in UNSIGNED_CODES:
        largest, small, large = UNSIGNED_CODES[name]
        return large if value is not None and int(value) > largest else small
    return CODES.get(name, 12)


# --- Canal-JSON messages, in the order of fields that TiCDC writes


def dml(
    op: str,
    commit_ts: int,
    row: dict[str, Any],
    types: dict[str, str],
    *,
    old: dict[str, Any] | None = None,
    key: Sequence[str] = ("id",),
    database: str = "shop",
    table: str = "orders",
) -> Message:
    """Return a DML event of one row."""
    return canal_message(database, table, op, commit_ts) | {
        "pkNames": list(key),
        "sqlType": {column: code_of(types[column], row[column]) for column in row},
        "mysqlType": {column: types[column] for column in row},
        "old": [old] if old is not None else None,
        "data": [row],
        "_tidb": {"commitTs": commit_ts},
    }


def ddl(
    sql: str, commit_ts: int, *, database: str = "shop", table: str = "orders", ddl_type: str = "CREATE"
) -> Message:
    """Return a DDL event."""
    return canal_message(database, table, ddl_type, commit_ts) | {
        "isDdl": True,
        "sql": sql,
        "_tidb": {"commitTs": commit_ts},
    }


def watermark(ts: int) -> Message:
    """Return a WATERMARK event."""
    return canal_message("", "", "TIDB_WATERMARK", ts) | {"_tidb": {"watermarkTs": ts}}


def canal_message(database: str, table: str, kind: str, ts: int) -> Message:
    """Return a Canal-JSON message of TiCDC with the fields that every kind of message has."""
    return {
        "id": 0,
        "database": database,
        "table": table,
        "pkNames": None,
        "isDdl": False,
        "type": kind,
        "es": ts >> 18,
        "ts": (ts >> 18) + 700,
        "sql": "",
        "sqlType": None,
        "mysqlType": None,
        "old": None,
        "data": None,
    }


@dataclass(frozen=True)
class Rows:
    """Row events of one table `(id bigint primary key, v varchar(20))`, for tests that are not about types."""

    database: str = "shop"
    table: str = "orders"
    types: dict[str, str] = field(default_factory=lambda: {"id": "bigint", "v": "varchar"})

    def insert(self, commit_ts: int, key: int, v: str | None) -> Message:
        return self._event("INSERT", commit_ts, {"id": str(key), "v": v})

    def update(self, commit_ts: int, key: int, v: str | None, old: str | None, old_key: int | None = None) -> Message:
        before = {"id": str(key if old_key is None else old_key), "v": old}
        return self._event("UPDATE", commit_ts, {"id": str(key), "v": v}, before)

    def delete(self, commit_ts: int, key: int, v: str | None) -> Message:
        return self._event("DELETE", commit_ts, {"id": str(key), "v": v})

    def _event(self, op: str, commit_ts: int, row: dict[str, Any], old: dict[str, Any] | None = None) -> Message:
        return dml(op, commit_ts, row, self.types, old=old, database=self.database, table=self.table)


# --- Kafka records and snapshot files


def record(
    value: Message | bytes | None,
    partition: int = 0,
    offset: int = 0,
    topic: str = TOPIC,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
) -> Record:
    """Return one line of a snapshot."""
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": 1_700_000_000_000 + offset,
        "key": None if key is None else base64.b64encode(key).decode(),
        "value": None if value is None else base64.b64encode(value).decode(),
        "headers": [{"key": k, "value": base64.b64encode(v).decode()} for k, v in headers],
    }


class Stream:
    """Collects records as a producer sends them: it numbers the offsets of each partition."""

    def __init__(self, partitions: int = 1, topic: str = TOPIC) -> None:
        self.partitions = partitions
        self.topic = topic
        self.records: list[Record] = []
        self._next = Counter[int]()

    def send(self, value: Message | bytes | None, partition: int = 0, **more: Any) -> Record:
        """Append a record and return it."""
        made = record(value, partition, self._next[partition], self.topic, **more)
        self._next[partition] += 1
        self.records.append(made)
        return made

    def watermark(self, ts: int) -> None:
        """A watermark in every partition."""
        for partition in range(self.partitions):
            self.send(watermark(ts), partition)


def bytes_of(line: Record, field: str = "value") -> bytes:
    """Return the bytes of a record's key or value; b"" for null."""
    return base64.b64decode(line[field] or "")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of `<path>.jsonl` or `<path>.jsonl.gz`."""
    plain, packed = Path(f"{path}.jsonl"), Path(f"{path}.jsonl.gz")
    text = plain.read_text("utf-8") if plain.exists() else gzip.decompress(packed.read_bytes()).decode("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


# --- runs of the core


@dataclass(frozen=True)
class Reports:
    """What the stages of one run reported."""

    ingest: IngestReport
    decode: DecodeReport
    schemas: SchemasReport
    types: TypesReport
    release: ReleaseReport
    history: list[TableReport]


def run_core(lake: Lakehouse, feed: Feed) -> Reports:
    """Run all stages once, in the pipeline's order.

    After all tables are done, raise the error of a failed table, also of a blocked one, with which the job goes on.
    """
    taken, decoded = INGEST.run(lake, feed), DECODE.run(lake, feed)
    LOAD.run(lake, feed)
    learnt, judged = SCHEMAS.run(lake, feed), TYPES.run(lake, feed)
    released, written = RELEASE.run(lake, feed), HISTORY.run(lake, feed)
    for failure in written.failures:
        raise failure.error
    return Reports(taken, decoded, learnt, judged, released, written.tables)


def make_feed(folder: Path, partitions: int | None = None, **settings: Any) -> Feed:
    """Return a feed that reads `folder`: Canal-JSON with the TiDB extension, unless the settings say otherwise."""
    source = {"recorded": str(folder)} | ({"partitions": partitions} if partitions else {})
    default = {} if "protocol" in settings else {"protocol": "canal-json", "tidb_extension": True}
    entry = default | {"source": source} | settings
    return FeedsFile.model_validate({"feeds": {"f": entry}}).feeds["f"]


class Chain:
    """One feed, its folder of snapshots, and its lakehouse, all below one folder, unless the lakehouse has another root."""

    def __init__(
        self, spark: SparkSession, folder: Path, *, root: str | None = None, store: Store = LOCAL, **settings: Any
    ) -> None:
        self.folder = folder
        self.snapshots = folder / "snapshots"
        self.snapshots.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self.feed = make_feed(self.snapshots, **settings)
        self.lake = Lakehouse(lambda: spark, root or str(folder / "lake"), "f", store)

    def add(self, records: Iterable[Record], name: str | None = None) -> Path:
        """Add a snapshot file, packed if its name ends in `.gz`."""
        path = self.snapshots / (name or f"{len(list(self.snapshots.iterdir())):04}.jsonl")
        data = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records).encode()
        path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
        return path

    def copy(self, folder: Path) -> "Chain":
        """Return a copy of the feed in another folder, for several tests that begin with the same tables."""
        shutil.copytree(self.folder, folder)
        return Chain(self.lake.spark, folder, **self.settings)

    def run(self) -> Reports:
        """Run all stages once."""
        return run_core(self.lake, self.feed)

    def history(self, table: str = "orders", database: str = "shop") -> list[dict[str, Any]]:
        """Return a history table's rows, in order."""
        return rows_in(self.lake.history(database, table), self.lake.spark)

    def versions(self, table: str = "orders", database: str = "shop") -> list[dict[str, Any]]:
        """Return a history table's rows by commit_ts, for tests of single versions."""
        return sorted(self.history(table, database), key=lambda r: (r["_cdc_from_ts"], r["_cdc_key"]))

    def quarantine(self) -> list[dict[str, Any]]:
        """Return the rows in quarantine, in order."""
        return rows_in(self.lake.quarantine, self.lake.spark)


# --- rows as tables, and tables as comparable rows


def frame_of_rows(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """Return rows as a DataFrame that has them in its plan.

    PySpark sends rows that are no Arrow table through Python processes, which is slow.
    """
    columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(columns, StructType)
    records = [{f.name: _in_arrow(v, f.dataType) for f, v in zip(columns, row, strict=True)} for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(records, to_arrow_schema(columns)), columns)


def _in_arrow(value: Any, kind: DataType) -> Any:
    """Return a value as Arrow accepts it: a row of a STRUCT as a dict."""
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return [_in_arrow(each, kind.elementType) for each in value]
    if isinstance(kind, StructType):
        given = [value.get(f.name) for f in kind] if isinstance(value, dict) else value
        return {f.name: _in_arrow(v, f.dataType) for f, v in zip(kind, given, strict=True)}
    return value


def rows_in(table: LakeTable[Any], spark: SparkSession) -> list[dict[str, Any]]:
    """Return the rows of a table as `rows_of` does.

    deltalake reads them if it can, because it is much faster than Spark.
    """
    log = table.log()
    if log is None or not log.has_plain_files:
        return rows_of(table.read(spark))
    rows = DeltaTable(table.path, storage_options=table.store.deltalake_options(table.path)).to_pyarrow_table()
    return comparable(rows.to_pylist())


def comparable(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows that another reader than Spark gave, in the form of `rows_of`."""
    return sorted(({k: _plain(v) for k, v in row.items()} for row in rows), key=_order)


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows in a fixed order, with plain values: instants as UTC text, bytes as bytes, rows as dicts."""
    plain = frame.select(
        *[
            (
                F.date_format(_column(f.name).cast(TimestampNTZType()), "yyyy-MM-dd HH:mm:ss.SSSSSS").alias(f.name)
                if isinstance(f.dataType, TimestampType)
                else _column(f.name)
            )
            for f in frame.schema
        ]
    )
    return sorted(({k: _plain(v) for k, v in zip(r.__fields__, r, strict=True)} for r in plain.collect()), key=_order)


def _column(name: str) -> Any:
    return F.col("`" + name.replace("`", "``") + "`")


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, Row):
        return {k: _plain(v) for k, v in zip(value.__fields__, value, strict=True)}
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value


def _order(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


# --- changes of a table by other tools than the pipeline; SQL conditions select rows


def remove(table: LakeTable[Any], where: str) -> None:
    """Delete rows."""
    _log_of(table).delete(where)


def double(table: LakeTable[Any], where: str) -> None:
    """Append rows once more."""
    log = _log_of(table)
    rows = pa.table(QueryBuilder().register("t", log).execute(f"SELECT * FROM t WHERE {where}"))
    write_deltalake(log, rows, mode="append")


def change(table: LakeTable[Any], where: str, **values: str) -> None:
    """Set columns to these SQL expressions."""
    _log_of(table).update(values, predicate=where)


def _log_of(table: LakeTable[Any]) -> Any:
    log = table.log()
    assert log is not None
    return log.table


def tables_of(lake: Lakehouse) -> dict[str, LakeTable[Any]]:
    """Return every table of the feed that exists, by name."""
    return {table.name: table for table in list_tables(lake)}


def contents(lake: Lakehouse) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every table of the feed."""
    return {name: rows_in(table, lake.spark) for name, table in tables_of(lake).items()}


def histories(lake: Lakehouse) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every history table of the feed."""
    tables = tables_of(lake).items()
    return {name: rows_in(table, lake.spark) for name, table in tables if name.startswith("history/")}


def delta_versions(lake: Lakehouse) -> dict[str, int]:
    """Return the newest Delta version of every table of the feed."""
    return {name: log.version for name, t in tables_of(lake).items() if (log := t.log())}
