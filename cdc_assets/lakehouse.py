"""Where each table lives, and how a stage commits: its rows and its cursor in one Delta transaction.

A stage's *cursor* says how far it has come. It is JSON in the `userMetadata` of the commit that wrote the rows, so there
is no moment at which one is there without the other. Its `sequence`, a number that grows by one with each commit of the
stage, is also Delta's transaction version: of two runs that start from the same cursor, one commits and the other fails.
"""

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from delta.tables import DeltaTable
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

DEFAULT_ROOT = "data/lakehouse"

Cursor = dict[str, Any]

_COMMIT = "commit"  # in the log, beside what a cursor holds
_METADATA_CONF = "spark.databricks.delta.commitInfo.userMetadata"
_TXN_APP_CONF = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION_CONF = "spark.databricks.delta.write.txnVersion"

STATISTICS = "delta.dataSkippingStatsColumns"
_PROPERTIES = {
    # Cursors are read from the log: keep it far longer than anybody leaves a feed alone.
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.dataSkippingNumIndexedCols": "12",
}


class ConcurrentRunError(RuntimeError):
    """Another run committed to the same table between this run's look at the cursor and its commit."""


def lakehouse_root() -> str:
    """The root of all tables: `CDC_LAKEHOUSE`, else `data/lakehouse`, made absolute where it is a local folder."""
    root = os.environ.get("CDC_LAKEHOUSE") or DEFAULT_ROOT
    return root if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", root) else os.path.abspath(root)  # noqa: PTH100


def path_segment(name: str) -> str:
    """Percent-encode a name from the wire, so that it is one folder's name whatever it holds.

    Everything but ASCII letters, digits, `_` and `-` is encoded, the dot too: `..` cannot climb, and no name is hidden.
    """
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E") or "%"


@dataclass(frozen=True)
class LakeTable:
    """One Delta table of the lakehouse."""

    spark: SparkSession
    path: str
    name: str

    def exists(self) -> bool:
        """Whether the table has been created."""
        return bool(DeltaTable.isDeltaTable(self.spark, self.path))

    def read(self) -> DataFrame:
        """The table's newest rows."""
        return self.spark.read.format("delta").load(self.path)

    def delta(self) -> DeltaTable:
        """The table as delta-spark's handle, for MERGE and maintenance."""
        return DeltaTable.forPath(self.spark, self.path)

    def cursor(self) -> Cursor | None:
        """The cursor of the newest commit that has one; None while there is none, or no table."""
        found = self._committed()
        return found and {name: value for name, value in found.items() if name != _COMMIT}

    def _committed(self) -> Cursor | None:
        """The newest cursor as it stands in the log, with the name of its commit."""
        # Straight from the log: the table's history() is a Spark job, 0.1 s where this takes 0.01 s, and a run asks often.
        jvm: Any = self.spark._jvm  # noqa: SLF001 -- there is no public way
        opened = jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(self.spark._jsparkSession, self.path)  # noqa: SLF001
        log, newest = opened.productElement(0), opened.productElement(1).version()
        conf = log.newDeltaHadoopConf()
        # The newest commit has it, but for commits by hand (OPTIMIZE, ALTER TABLE): look further only then.
        for version in range(newest, -1, -1):
            commit = jvm.org.apache.hadoop.fs.Path(log.logPath(), f"{version:020d}.json")
            if not commit.getFileSystem(conf).exists(commit):
                break  # cleaned up: nothing before it is left either
            cursor = _cursor_in(_lines(log.store().read(commit, conf).iterator()))
            if cursor is not None:
                return cursor
        return None

    def create(self, schema: StructType, partition_by: Sequence[str] = (), properties: Mapping[str, str] = {}) -> None:
        """Create the table, empty, unless it is there.

        The columns that readers filter by belong into the property `delta.dataSkippingStatsColumns`: each column whose
        smallest and largest value Delta keeps costs every append.
        """
        if self.exists():
            return
        builder = DeltaTable.createIfNotExists(self.spark).location(self.path).addColumns(schema)
        for key, value in (_PROPERTIES | dict(properties)).items():
            builder = builder.property(key, value)
        (builder.partitionedBy(*partition_by) if partition_by else builder).execute()

    def append(self, rows: DataFrame, cursor: Cursor) -> None:
        """Append `rows` and advance the cursor, in one transaction.

        Raises:
            ConcurrentRunError: another run has committed this `sequence`.
        """
        with self.transaction(cursor):
            rows.write.format("delta").mode("append").save(self.path)

    @contextlib.contextmanager
    def transaction(self, cursor: Cursor) -> Iterator[None]:
        """Give the one Delta commit of the body its cursor.

        Raises:
            ConcurrentRunError: another run has committed this `sequence`; nothing of the body's was written.
        """
        commit = uuid.uuid4().hex
        text = json.dumps({"sequence": cursor["sequence"]} | cursor | {_COMMIT: commit}, separators=(",", ":"))
        conf = self.spark.conf
        conf.set(_METADATA_CONF, text)
        conf.set(_TXN_APP_CONF, self.name)
        conf.set(_TXN_VERSION_CONF, str(cursor["sequence"]))
        try:
            yield
        except Exception as error:
            if "ConcurrentTransaction" in type(error).__name__ or "DELTA_CONCURRENT" in str(error):
                raise ConcurrentRunError(self._concurrent(cursor)) from error
            raise
        finally:
            conf.unset(_METADATA_CONF)
            conf.unset(_TXN_APP_CONF)
            conf.unset(_TXN_VERSION_CONF)
        # Delta skips, without a word, what comes under a version that is already committed. The other run may have done
        # the very same, with the same cursor: only the commit's own name tells whose it was.
        if (self._committed() or {}).get(_COMMIT) != commit:
            raise ConcurrentRunError(self._concurrent(cursor))

    def _concurrent(self, cursor: Cursor) -> str:
        return (
            f"{self.name}: another run has already committed step {cursor['sequence']}. Nothing was written twice: "
            "wait until that run has ended, then run again."
        )


def history_tables(root: str, feed: str) -> list[tuple[str, str]]:
    """The (database, table) pairs that have a history table below `root`, by name; found by listing, without Spark."""
    files, base = FileSystem.from_uri(f"{root.rstrip('/')}/history/{feed}")

    def folders(path: str) -> list[FileInfo]:
        return [
            i for i in files.get_file_info(FileSelector(path, allow_not_found=True)) if i.type == FileType.Directory
        ]

    tables = [(database, table) for database in folders(base) for table in folders(database.path)]
    found = [(d, t) for d, t in tables if files.get_file_info(f"{t.path}/_delta_log").type == FileType.Directory]
    return sorted((unquote(d.base_name), unquote(t.base_name)) for d, t in found)


def logged_cursor(path: str) -> Cursor | None:
    """The cursor of the table at `path`, as `LakeTable.cursor`, read from its log without Spark."""
    files, base = FileSystem.from_uri(path)
    log = files.get_file_info(FileSelector(f"{base}/_delta_log", allow_not_found=True))
    for commit in sorted((i.path for i in log if re.fullmatch(r"\d{20}\.json", i.base_name)), reverse=True):
        with files.open_input_stream(commit) as stream:
            cursor = _cursor_in(stream.read().decode().splitlines())
        if cursor is not None:
            return {name: value for name, value in cursor.items() if name != _COMMIT}
    return None


def _lines(iterator: Any) -> Iterator[str]:  # noqa: ANN401 -- a Scala iterator
    while iterator.hasNext():
        yield iterator.next()


def _cursor_in(lines: Iterable[str]) -> Cursor | None:
    """The cursor in one commit's lines: `commitInfo` is the first of them."""
    for line in lines:
        if line.startswith('{"commitInfo"'):
            text = json.loads(line)["commitInfo"].get("userMetadata") or ""
            cursor: Cursor | None = json.loads(text) if text.startswith('{"sequence"') else None
            return cursor
    return None


def next_sequence(cursor: Cursor | None) -> int:
    """The sequence of the commit after `cursor`."""
    return int(cursor["sequence"]) + 1 if cursor else 1


@dataclass(frozen=True)
class Lakehouse:
    """The tables of one feed, below the root."""

    spark: SparkSession
    root: str
    feed: str

    def _table(self, *parts: str) -> LakeTable:
        name = "/".join(parts)
        return LakeTable(self.spark, f"{self.root.rstrip('/')}/{name}", name)

    @cached_property
    def raw_records(self) -> LakeTable:
        """The Kafka records, verbatim."""
        return self._table("raw_records", self.feed)

    @cached_property
    def change_events(self) -> LakeTable:
        """One protocol-neutral event a change."""
        return self._table("change_events", self.feed)

    @cached_property
    def released_changes(self) -> LakeTable:
        """The changes below the watermark, each once."""
        return self._table("released_changes", self.feed)

    @cached_property
    def quarantine(self) -> LakeTable:
        """What could not be decoded, typed or placed."""
        return self._table("quarantine", self.feed)

    @cached_property
    def table_schemas(self) -> LakeTable:
        """What is known of each source table."""
        return self._table("table_schemas", self.feed)

    def history(self, database: str, table: str) -> LakeTable:
        """The SCD2 table of one source table."""
        return self._table("history", self.feed, path_segment(database), path_segment(table))
