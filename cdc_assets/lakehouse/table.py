"""Access to one Delta table: reads with and without Spark, and commits of rows and cursor in one transaction.

This module is long because reads, staged files and commits all depend on the table's log and cursor.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Generic, TypeVar

import pyarrow as pa
from delta.tables import DeltaTable
from deltalake import CommitProperties, Schema, Transaction
from deltalake import DeltaTable as Log
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import COMMIT, RUN, Cursor, CursorError, read_note
from cdc_assets.lakehouse.files import add_actions, describe_files, write_files, write_rows
from cdc_assets.lakehouse.log import Commit, DataFile, Logs, TableLog
from cdc_assets.lakehouse.schema import frame_of, literal, quoted, set_properties, without_views
from cdc_assets.spark.session import temporary_settings
from cdc_assets.stores.storage import Store

C = TypeVar("C", bound=Cursor)

_ATTEMPTS = 20
# deltalake reads all commits since the last checkpoint whenever it opens a log, and by default writes one in 100 commits.
_CHECKPOINTS = {"delta.checkpointInterval": "20"}
_NOTE_CONF = "spark.databricks.delta.commitInfo.userMetadata"
_TXN_APP_CONF = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION_CONF = "spark.databricks.delta.write.txnVersion"


class ConcurrentRunError(RuntimeError):
    """Another run committed to the table after this run had read its cursor and before this run's commit."""


@dataclass(frozen=True)
class Definition(Generic[C]):
    """The definition of a table, which is the same for all feeds.

    Attributes:
        columns: the columns, with their meanings as comments.
        cursor: the type of the table's cursor.
        partition_by: the partition columns.
        statistics: the columns whose minimum and maximum Delta keeps for each file. Only columns that queries filter by,
            because each one makes every append slower.
        properties: further table properties, Delta's and the pipeline's own.
    """

    columns: StructType
    cursor: type[C]
    partition_by: Sequence[str] = ()
    statistics: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """All properties of the Delta table."""
        skipping = {"delta.dataSkippingStatsColumns": ",".join(self.statistics)} if self.statistics else {}
        return _CHECKPOINTS | skipping | dict(self.properties)


@dataclass(frozen=True)
class CursorWithCommit(Generic[C]):
    """A cursor and the commit that wrote it.

    Attributes:
        cursor: the cursor.
        commit: the commit.
        run: Dagster's id of the run that made the commit; None if Dagster did not start it.
    """

    cursor: C
    commit: Commit
    run: str | None


@dataclass(frozen=True)
class Staged:
    """Data files that are written and not yet part of the table."""

    files: list[DataFile]

    @property
    def rows(self) -> int:
        """The number of rows in the files."""
        return sum(f.rows for f in self.files)

    def __add__(self, other: "Staged") -> "Staged":
        return Staged([*self.files, *other.files])

    def in_partition(self, **partition: object) -> "Staged":
        """Return the files of one partition."""
        return Staged([f for f in self.files if all(f.partition[k] == v for k, v in partition.items())])


def _check_nothing() -> None:
    """Check nothing before a commit: for tables on a file system on which no commit can replace another."""


@dataclass(frozen=True)
class LakeTable(Generic[C]):
    """One Delta table of the lakehouse.

    Attributes:
        path: the table's URI.
        name: the display name, also used as the transaction application id.
        definition: columns, cursor, partitions and properties.
        logs: the cache of logs, which also knows how the store is reached.
        before_commits: called before each commit; raises if a commit would not be safe.
    """

    path: str
    name: str
    definition: Definition[C]
    logs: Logs = field(default_factory=Logs, compare=False)
    before_commits: Callable[[], None] = _check_nothing

    @property
    def store(self) -> Store:
        """How the table's path is reached."""
        return self.logs.store

    # --- without Spark

    def log(self) -> TableLog | None:
        """Return the log at the newest version; None if the table does not exist."""
        return self.logs.newest(self.path)

    def at_current_version(self) -> "LakeTable[C]":
        """Return the table fixed at its newest version, so that several reads without Spark see one version."""
        return _FixedVersion(self.path, self.name, self.definition, self.logs, self.before_commits, self.log())

    def exists(self) -> bool:
        """Return whether the table has been created."""
        # Not by `DeltaTable.is_deltatable`, which holds Python's global lock until it returns.
        files, path = self.store.files(f"{self.path}/_delta_log")
        first = files.get_file_info([f"{path}/{0:020}.json", f"{path}/_last_checkpoint"])
        return any(info.is_file for info in first)

    def cursor_with_commit(self) -> CursorWithCommit[C] | None:
        """Return the newest cursor with its commit; None if no row has been written.

        Raises:
            CursorError: the table has rows and no cursor, or a cursor that cannot be used.
        """
        newest = next(self.cursors_with_commits(), None)
        if newest is not None:
            self._check_not_restored(newest.commit.version)
        if newest is None and any(file.rows for file in self.files()):
            raise CursorError(
                f"{self.name}: the table has rows, and no commit in its log has a cursor that says how far they reach: "
                "restore the log, or run the job rebuild"
            )
        return newest

    def _check_not_restored(self, written: int) -> None:
        """Fail if somebody has restored the rows of a version before `written`, the version of the newest cursor."""
        log = self.log()
        restored: dict[int, int] = {}
        for commit in log.commits() if log else ():
            if commit.version <= written:
                break
            if commit.restored is not None:
                restored[commit.version] = commit.restored
        version = max(restored, default=written)
        while version in restored:
            version = restored[version]
        if version < written:
            raise CursorError(
                f"{self.name}: RESTORE has brought back the rows of an earlier version, and the pipeline would go on after "
                f"the rows that are missing now: restore version {written} of the table at {self.path}, then run again"
            )

    def cursor(self) -> C | None:
        """Return the newest cursor; None if no row has been written."""
        newest = self.cursor_with_commit()
        return newest.cursor if newest else None

    def last_cursor(self) -> C:
        """Return the newest cursor; one with sequence 0 if no row has been written."""
        return self.cursor() or self.definition.cursor(sequence=0)

    def cursors_with_commits(self) -> Iterator[CursorWithCommit[C]]:
        """Return the cursors that the log still has, newest first, with their commits.

        A cursor may come several times, because ALTER, OPTIMIZE and the like repeat the cursor that the table has. The last
        of these commits is the one that wrote the rows.
        """
        log = self.log()
        for commit in log.commits() if log else ():
            if (values := read_note(commit.note)) is not None:
                try:
                    cursor = self.definition.cursor.of(values)
                except CursorError as error:
                    raise CursorError(f"{self.name}: {error}") from None
                yield CursorWithCommit(cursor, commit, values.get(RUN))

    def cursors(self) -> Iterator[C]:
        """Return the cursors that the log still has, newest first, each once."""
        previous = None
        for entry in self.cursors_with_commits():
            if entry.cursor.sequence != previous:
                previous = entry.cursor.sequence
                yield entry.cursor

    def files(self, **partition: object) -> list[DataFile]:
        """Return the data files of the newest version, or those of one partition; none if the table does not exist."""
        log = self.log()
        return log.files(**partition) if log else []

    def fetch(
        self, files: Iterable[DataFile], *columns: str, reduce_part: Callable[[pa.Table], pa.Table] | None = None
    ) -> pa.Table:
        """Return the rows of these files without Spark, for small results. Rows that are marked as deleted are included.

        Args:
            files: the files.
            columns: the columns to read.
            reduce_part: applied to each bounded part of the rows, so that not all rows are in memory at once.
        """
        parts = self.fetch_parts(files, *columns)
        tables = list(map(reduce_part, parts) if reduce_part else parts)
        if not tables:
            return pa.table({c: pa.array([]) for c in columns})
        # Permissive, because some writers declare a column as never NULL, and others, such as OPTIMIZE, do not.
        return pa.concat_tables(tables, promote_options="permissive")

    def fetch_rows(self, files: Iterable[DataFile], *columns: str) -> list[dict[str, Any]]:
        """Return the rows of these files like `fetch`, as Python values."""
        rows: list[dict[str, Any]] = self.fetch(files, *columns).to_pylist()
        return rows

    def fetch_parts(self, files: Iterable[DataFile], *columns: str) -> Iterator[pa.Table]:
        """Return the rows of these files like `fetch`, in parts of bounded size."""
        keys = set(self.definition.partition_by)
        inner = [c for c in columns if c not in keys]
        for file in files:
            system, path = self.store.files(file.path)
            with system.open_input_file(path) as source:
                data = parquet.ParquetFile(source)
                mapped_log = not set(inner) <= set(data.schema_arrow.names) and self.log()
                names = [mapped_log.physical_names[c] for c in inner] if mapped_log else inner
                for number in range(data.num_row_groups):
                    rows = data.read_row_group(number, names).select(names).rename_columns(inner)
                    for key in (c for c in columns if c in keys):
                        rows = rows.append_column(key, pa.array([file.partition[key]] * rows.num_rows))
                    rows = rows.select(columns)
                    # The files of deltalake's DELETE and UPDATE are read as views.
                    yield rows.cast(without_views(rows.schema))

    def schema(self) -> StructType | None:
        """Return the columns that the table has; None if the table does not exist."""
        log = self.log()
        return StructType.fromJson(json.loads(log.schema())) if log else None

    def create(self) -> None:
        """Create the table without rows, unless it exists."""
        if self.exists():
            return
        self.before_commits()
        try:
            Log.create(
                self.path,
                Schema.from_json(self.definition.columns.json()),
                mode="ignore",
                partition_by=list(self.definition.partition_by),
                configuration=self.definition.settings,
                storage_options=self.store.deltalake_options(self.path),
                raise_if_key_not_exists=False,  # With True deltalake accepts Delta's own properties only.
            )
        except (CommitFailedError, DeltaError):
            if not self.exists():  # If the table exists, another run has created it first.
                raise

    def with_schema(self, columns: StructType, properties: Mapping[str, str]) -> "LakeTable[C]":
        """Return the table defined with other columns and additional properties, to create or replace it with them."""
        definition = replace(self.definition, columns=columns, properties={**self.definition.properties, **properties})
        return replace(self, definition=definition)

    # --- with Spark

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the table's newest rows, read by Delta; none if the table does not exist."""
        if not self.exists():
            return frame_of(spark, [], self.definition.columns)
        return spark.read.format("delta").load(self.path)

    def read_staged(self, spark: SparkSession, staged: Staged, columns: StructType | None = None) -> DataFrame:
        """Return the rows of staged files, in `columns` or, by default, in the table's.

        Delta does not know these files before a commit adds them.
        """
        return self._read_parquet(spark, staged.files, columns or self.definition.columns)

    def read_files(self, spark: SparkSession, files: Iterable[DataFile]) -> DataFrame:
        """Return the rows of some files of an append-only table.

        Not through Delta, which would load the state of the table in several jobs: measured in docs/speed.md.

        Raises:
            ValueError: rows are marked as deleted, columns are mapped, or types were widened, so that the rows are not
                exactly those of the files.
        """
        log = self.log()
        if log and not log.has_plain_files:
            raise ValueError(
                f"{self.name}: read this table through Delta: its rows are not exactly those of its files."
            )
        return self._read_parquet(spark, files, self.definition.columns)

    def _read_parquet(self, spark: SparkSession, files: Iterable[DataFile], columns: StructType) -> DataFrame:
        keys = list(self.definition.partition_by)
        inner = StructType([f for f in columns if f.name not in keys])
        groups: dict[tuple[Any, ...], list[str]] = {}
        for file in files:
            groups.setdefault(tuple(file.partition[k] for k in keys), []).append(file.path)
        # As SQL texts, because PySpark makes several calls to the JVM for each column object.
        frames = [
            spark.read.schema(inner)
            .parquet(*paths)
            .selectExpr(*_select_list(columns, dict(zip(keys, values, strict=True))))
            for values, paths in groups.items()
        ]
        return reduce(DataFrame.unionAll, frames) if frames else frame_of(spark, [], columns)

    def create_by_spark(self, session: SparkSession) -> None:
        """Create the table without rows, unless it exists, with properties that need features of Delta's protocol.

        Not with deltalake: if both a property (column mapping) and a column (TIMESTAMP_NTZ) need a feature, deltalake writes
        only the column's into the protocol, and no reader opens such a table.
        """
        if self.exists():
            return
        self.before_commits()
        # By a write, because Delta's CREATE refuses a folder in which files are staged.
        writer = frame_of(session, [], self.definition.columns).write.format("delta").mode("append")
        writer.options(**self.definition.settings).partitionBy(*self.definition.partition_by).save(self.path)
        # A write sets Delta's own properties only.
        others = {key: value for key, value in self.definition.settings.items() if not key.startswith("delta.")}
        if others:
            session.sql(set_properties(self.path, others))

    def stage(self, rows: DataFrame, by: str | None = None) -> Staged:
        """Write rows into files that no reader sees before a commit adds them.

        Args:
            rows: the table's columns, and `by`.
            by: a column that is not the table's, by which files are split in addition to the table's partitions.
        """
        folder, it = uuid.uuid4().hex, self.definition
        keys = [*([by] if by else []), *it.partition_by]
        write_files(rows, self.path, folder, keys)
        return Staged(describe_files(self.path, folder, keys, it.statistics, self.store, by))

    def stage_partition(self, rows: DataFrame, folder: str, **partition: bool) -> None:
        """Write rows of one partition into files below `folder`; the rows have no partition columns."""
        within = "/".join(f"{key}={str(value).lower()}" for key, value in partition.items())
        write_files(rows, self.path, f"{folder}/{within}", ())

    def list_staged(self, folder: str) -> Staged:
        """Return the files that were staged into a folder."""
        it = self.definition
        return Staged(describe_files(self.path, folder, it.partition_by, it.statistics, self.store))

    def stage_rows(self, rows: Sequence[Mapping[str, Any]]) -> Staged:
        """Write a small number of Python rows like `stage`, without Spark; a column that a row lacks is NULL."""
        folder, it = uuid.uuid4().hex, self.definition
        return Staged(write_rows(rows, self.path, folder, it.columns, it.partition_by, it.statistics, self.store))

    def commit(self, staged: Staged, cursor: C, *, replaces: bool = False) -> None:
        """Add staged files to the table and advance the cursor, in one commit; create the table if it does not exist.

        The commit follows right after the version that has the previous cursor, or fails. Spark's own commit would read the
        complete log first, to find out whether this commit has been made before: measured in docs/speed.md.

        Args:
            staged: the files.
            cursor: the cursor of this commit.
            replaces: whether the staged rows replace all rows of the table, and its columns; else they are appended.

        Raises:
            ConcurrentRunError: another run has committed this `sequence`.
        """
        self.before_commits()
        self.create()
        commit = uuid.uuid4().hex
        note = {
            "userMetadata": cursor.text(commit),
            "operationMetrics": {"numOutputRows": str(staged.rows), "numFiles": str(len(staged.files))},
        }
        # Spark's commits (`transact`) skip a transaction version that the table has already.
        transactions = [Transaction(self.name, cursor.sequence)]
        for _ in range(_ATTEMPTS):
            log = self._log_before(cursor)
            # A rebuild may change the type of a column.
            columns = Schema.from_json(self.definition.columns.json()) if replaces else log.table.schema()
            try:
                log.table.create_write_transaction(
                    add_actions(self.path, self.definition.partition_by, staged.files),
                    "overwrite" if replaces else "append",
                    columns,
                    partition_by=list(self.definition.partition_by),
                    commit_properties=CommitProperties(note, max_commit_retries=0, app_transactions=transactions),
                )
            except CommitFailedError:
                # Another commit has this version. It is this very commit if the store's answer was lost and the client sent
                # it again. Otherwise try again after the new version, unless that has this cursor's number.
                if self._find_commit(commit, cursor) is None:
                    continue
            return
        raise ConcurrentRunError(self._concurrent_message(cursor))

    def _log_before(self, cursor: C) -> TableLog:
        """Return the log at the newest version, whose cursor must be the one right before `cursor`."""
        table = self.at_current_version()
        log = table.log()
        if log is None:
            raise ConcurrentRunError(f"{self.name}: the table was deleted while this run was writing to it.")
        if table.last_cursor().sequence != cursor.sequence - 1:
            raise ConcurrentRunError(self._concurrent_message(cursor))
        return log

    def transact(self, session: SparkSession, cursor: C, change: Callable[[DeltaTable], object]) -> Commit:
        """Run `change`, which makes one commit (a MERGE, a DELETE), and write the cursor into that commit.

        Args:
            session: the caller's own session, because Delta reads the note of such a commit from the session's settings.
            cursor: the cursor of this commit.
            change: what to do with the table.

        Raises:
            ConcurrentRunError: another run has committed this `sequence`.
        """
        self.before_commits()
        commit = uuid.uuid4().hex
        transaction = {_TXN_APP_CONF: self.name, _TXN_VERSION_CONF: str(cursor.sequence)}
        with temporary_settings(session, {_NOTE_CONF: cursor.text(commit), **transaction}):
            try:
                change(DeltaTable.forPath(session, self.path))
            except Exception as error:
                if "ConcurrentTransaction" in type(error).__name__ or "DELTA_CONCURRENT" in str(error):
                    raise ConcurrentRunError(self._concurrent_message(cursor)) from error
                raise
        # Delta skips a transaction version that is already committed, without an error. The other run may have written the
        # very same cursor, so only the commit's own name shows whether this run made the commit.
        own = self._find_commit(commit, cursor)
        if own is None:
            raise ConcurrentRunError(self._concurrent_message(cursor))
        return own

    def alter(self, session: SparkSession, cursor: C, change: Callable[[DeltaTable], object]) -> None:
        """Run `change`, which changes no row (ALTER, OPTIMIZE), and write the cursor that the table has into its commits."""
        self.before_commits()
        with temporary_settings(session, {_NOTE_CONF: cursor.text(uuid.uuid4().hex)}):
            change(DeltaTable.forPath(session, self.path))

    def _find_commit(self, name: str, cursor: C) -> Commit | None:
        """Return the commit that has this name in its note; None if the log has none since the cursor before `cursor`."""
        log = self.log()
        for commit in log.commits() if log else ():
            values = read_note(commit.note)
            if values is None:
                continue
            if values.get(COMMIT) == name:
                return commit
            if values["sequence"] < cursor.sequence:
                break
        return None

    def _concurrent_message(self, cursor: C) -> str:
        return (
            f"{self.name}: another run has already committed step {cursor.sequence}. Nothing was written twice: "
            "wait until that run has ended, then run again."
        )


@dataclass(frozen=True)
class _FixedVersion(LakeTable[C]):
    """A table whose reads without Spark see one version."""

    fixed_log: TableLog | None = None

    def log(self) -> TableLog | None:
        """Return the log at the fixed version; None if the table did not exist."""
        return self.fixed_log


def _select_list(columns: StructType, partition: Mapping[str, Any]) -> Iterator[str]:
    """Return the SQL expression of each column; a partition column, which the files do not have, is a literal."""
    for column in columns:
        name, value = quoted(column.name), partition.get(column.name)
        if column.name not in partition:
            yield name
        else:
            text = "NULL" if value is None else literal(str(value))
            yield f"CAST({text} AS {column.dataType.simpleString()}) AS {name}"
