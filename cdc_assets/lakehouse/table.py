"""One Delta table: read by Spark, or without it; written by Spark, rows and cursor in one transaction."""

import contextlib
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

from cdc_assets.lakehouse.cursor import COMMIT, RUN, Cursor, CursorError, notes
from cdc_assets.lakehouse.files import actions, described, write_files, write_rows
from cdc_assets.lakehouse.log import Commit, DataFile, Logs, TableLog
from cdc_assets.lakehouse.schema import frame_of, literal, quoted, set_properties
from cdc_assets.spark.session import temporary_settings
from cdc_assets.stores.storage import Store

C = TypeVar("C", bound=Cursor)

_ATTEMPTS = 20
# After so many commits a checkpoint is made. Without this deltalake makes one after 100, and reads all commits since then
# whenever it opens a log. (Measured over 200 commits: to open a log and commit took 21 ms with 100, 9 with 20, 8 with 10.)
_CHECKPOINTS = {"delta.checkpointInterval": "20"}
_NOTE_CONF = "spark.databricks.delta.commitInfo.userMetadata"
_TXN_APP_CONF = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION_CONF = "spark.databricks.delta.write.txnVersion"


class ConcurrentRunError(RuntimeError):
    """Another run committed to the same table between this run's look at the cursor and its commit."""


@dataclass(frozen=True)
class Definition(Generic[C]):
    """What a table is, whichever feed's.

    Attributes:
        columns: with their meanings as comments.
        cursor: the type of its cursor.
        partition_by: the columns that its files are told apart by.
        statistics: the columns whose smallest and largest value Delta keeps of each file: those that are filtered by, as
            each of them costs every append.
        properties: more of them: Delta's, and our own.
    """

    columns: StructType
    cursor: type[C]
    partition_by: Sequence[str] = ()
    statistics: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """Return all properties of the Delta table."""
        kept = {"delta.dataSkippingStatsColumns": ",".join(self.statistics)} if self.statistics else {}
        return _CHECKPOINTS | kept | dict(self.properties)


@dataclass(frozen=True)
class Carried(Generic[C]):
    """A cursor, and the commit that carries it.

    Attributes:
        cursor: the cursor.
        commit: the commit.
        run: Dagster's id of the run that made it; None: there was none.
    """

    cursor: C
    commit: Commit
    run: str | None


@dataclass(frozen=True)
class Staged:
    """Files that are written and not yet part of the table."""

    name: str
    files: list[DataFile]

    @property
    def rows(self) -> int:
        """How many rows they hold."""
        return sum(f.rows for f in self.files)

    def __add__(self, other: "Staged") -> "Staged":
        return Staged(self.name, [*self.files, *other.files])

    def only(self, **partition: object) -> "Staged":
        """Those of some partition."""
        kept = [f for f in self.files if all(f.partition[k] == v for k, v in partition.items())]
        return Staged(self.name, kept)


def _nothing() -> None:
    """Before the commits of a table that lies where a commit can replace no other."""


@dataclass(frozen=True)
class LakeTable(Generic[C]):
    """One Delta table of the lakehouse.

    Attributes:
        path: where it lies.
        name: by which it is told to people, and by which its transactions are known.
        definition: what it is.
        logs: its log among others, and how all of them are reached.
        before_commits: called before each, and raises where they would not be safe.
    """

    path: str
    name: str
    definition: Definition[C]
    logs: Logs = field(default_factory=Logs, compare=False)
    before_commits: Callable[[], None] = _nothing

    @property
    def store(self) -> Store:
        """How its path is reached."""
        return self.logs.store

    # --- without Spark

    def log(self) -> TableLog | None:
        """Its newest version; None while there is no table."""
        return self.logs.newest(self.path)

    def pinned(self) -> "LakeTable[C]":
        """The table as it stands now: its log is read once, however much is asked of it without Spark."""
        return _Pinned(self.path, self.name, self.definition, self.logs, self.before_commits, self.log())

    def exists(self) -> bool:
        """Whether the table has been created."""
        # deltalake's own answer to this lets no other thread run until it has come.
        files, path = self.store.files(f"{self.path}/_delta_log")
        first = files.get_file_info([f"{path}/{0:020}.json", f"{path}/_last_checkpoint"])
        return any(info.is_file for info in first)

    @property
    def _log_options(self) -> dict[str, str]:
        return self.store.deltalake_options(self.path)

    def newest(self) -> Carried[C] | None:
        """The newest cursor and its commit; None while no row has been written.

        Raises:
            CursorError: there are rows and no cursor, or one that cannot be used.
        """
        log = self.log()
        return self._newest(log) if log else None

    def _newest(self, log: TableLog) -> Carried[C] | None:
        newest = next(self._carried(log), None)
        if newest is not None:
            return newest
        if any(file.rows for file in log.files()):
            raise CursorError(
                f"{self.name}: has rows, and no commit in its log says up to where they reach: restore the log, or run the "
                "job rebuild"
            )
        return None

    def cursor(self) -> C | None:
        """The newest cursor; None while no row has been written."""
        newest = self.newest()
        return newest.cursor if newest else None

    def _carried(self, log: TableLog) -> Iterator[Carried[C]]:
        for commit in log.commits():
            if (values := notes(commit.note)) is not None:
                try:
                    cursor = self.definition.cursor.of(values)
                except CursorError as error:
                    raise CursorError(f"{self.name}: {error}") from None
                yield Carried(cursor, commit, values.get(RUN))

    def carried(self) -> Iterator[Carried[C]]:
        """The cursors that the log still has, newest first.

        Of several commits with one cursor its own comes last: ALTER, OPTIMIZE and the like carry on the one that is there.
        """
        log = self.log()
        yield from self._carried(log) if log else ()

    def cursors(self) -> Iterator[C]:
        """The cursors that the log still has, newest first, each once."""
        last = None
        for each in self.carried():
            if each.cursor.sequence != last:
                last = each.cursor.sequence
                yield each.cursor

    def files(self, **partition: object) -> list[DataFile]:
        """The files of the newest version, or those of one partition; none while there is no table."""
        log = self.log()
        return log.files(**partition) if log else []

    def fetch(
        self, files: Iterable[DataFile], *columns: str, kept: Callable[[pa.Table], pa.Table] | None = None
    ) -> pa.Table:
        """A few columns of the rows of these files: for what is small and must be known before Spark is asked.

        Rows that are marked as deleted are among them.

        Args:
            files: these.
            columns: these.
            kept: what is kept of a part of the rows, so that of many no more than that is held at once; None: all.
        """
        read = map(kept, self.parts(files, *columns)) if kept else self._read(files, columns, _whole)
        found = list(read)
        if not found:
            return pa.table({c: pa.array([]) for c in columns})
        # That a column is never NULL some writers say, and others, such as OPTIMIZE, do not.
        return pa.concat_tables(found, promote_options="permissive")

    def parts(self, files: Iterable[DataFile], *columns: str) -> Iterator[pa.Table]:
        """As `fetch`, but a part of the rows after the other, each of a bounded size, however many rows there are."""
        return self._read(files, columns, _in_groups)

    def _read(
        self,
        files: Iterable[DataFile],
        columns: Sequence[str],
        read: Callable[[parquet.ParquetFile, list[str]], Iterable[pa.Table]],
    ) -> Iterator[pa.Table]:
        keys = set(self.definition.partition_by)
        inner = [c for c in columns if c not in keys]
        for file in files:
            system, path = self.store.files(file.path)
            with system.open_input_file(path) as source:
                data = parquet.ParquetFile(source)
                mapped = not set(inner) <= set(data.schema_arrow.names) and self.log()
                names = [mapped.physical[c] for c in inner] if mapped else inner
                for part in read(data, names):
                    rows = part.select(names).rename_columns(inner)
                    for key in (c for c in columns if c in keys):
                        rows = rows.append_column(key, pa.array([file.partition[key]] * rows.num_rows))
                    yield _without_views(rows.select(columns))

    def schema(self) -> StructType | None:
        """The columns that the table has; None while there is no table."""
        log = self.log()
        return StructType.fromJson(json.loads(log.schema())) if log else None

    def create(self) -> None:
        """Create the table, empty, unless it is there."""
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
                storage_options=self._log_options,
                raise_if_key_not_exists=False,  # else deltalake takes no properties but Delta's
            )
        except (CommitFailedError, DeltaError):
            if not self.exists():  # else another run was faster
                raise

    def of_shape(self, columns: StructType, properties: Mapping[str, str]) -> "LakeTable[C]":
        """The table as it is to be created: with these columns, and these properties of Delta's, too."""
        wider = replace(self.definition, columns=columns, properties={**self.definition.properties, **properties})
        return replace(self, definition=wider)

    # --- with Spark

    def read(self, spark: SparkSession) -> DataFrame:
        """The table's newest rows, as Delta reads them; none while there is no table."""
        if not self.exists():
            return frame_of(spark, [], self.definition.columns)
        return spark.read.format("delta").load(self.path)

    def read_staged(self, spark: SparkSession, staged: Staged, columns: StructType | None = None) -> DataFrame:
        """Return the rows of staged files, in `columns` or, by default, in the table's.

        Delta does not know these files before a commit names them.
        """
        return self._read_parquet(spark, staged.files, columns or self.definition.columns)

    def read_files(self, spark: SparkSession, files: Iterable[DataFile]) -> DataFrame:
        """Return the rows of some files of a table to which rows are only appended.

        Delta would load the state of the table in several jobs: measured in docs/speed.md.

        Raises:
            ValueError: the files do not tell all: rows are marked as deleted, columns are mapped, or types were widened.
        """
        log = self.log()
        if log and not log.plain:
            raise ValueError(f"{self.name}: read this table through Delta: its files alone do not tell its rows.")
        return self._read_parquet(spark, files, self.definition.columns)

    def _read_parquet(self, spark: SparkSession, files: Iterable[DataFile], columns: StructType) -> DataFrame:
        keys = list(self.definition.partition_by)
        inner = StructType([f for f in columns if f.name not in keys])
        groups: dict[tuple[Any, ...], list[str]] = {}
        for file in files:
            groups.setdefault(tuple(file.partition[k] for k in keys), []).append(file.path)
        # As texts of SQL: for a column each, PySpark asks the JVM five times as often.
        frames = [
            spark.read.schema(inner)
            .parquet(*paths)
            .selectExpr(*_selected(columns, dict(zip(keys, values, strict=True))))
            for values, paths in groups.items()
        ]
        return reduce(DataFrame.unionAll, frames) if frames else frame_of(spark, [], columns)

    def create_by_spark(self, session: SparkSession) -> None:
        """Create the table, empty, unless it is there: with properties that ask for features of Delta's protocol.

        deltalake leaves out of the protocol what properties need (column mapping) once a column needs a feature, too
        (TIMESTAMP_NTZ), and no reader opens such a table.
        """
        if self.exists():
            return
        self.before_commits()
        # By a write: Delta's CREATE refuses a folder in which files are staged.
        nothing = frame_of(session, [], self.definition.columns).write.format("delta").mode("append")
        nothing.options(**self.definition.settings).partitionBy(*self.definition.partition_by).save(self.path)
        # A write sets Delta's properties only.
        others = {key: value for key, value in self.definition.settings.items() if not key.startswith("delta.")}
        if others:
            session.sql(set_properties(self.path, others))

    def stage(self, rows: DataFrame, by: str | None = None) -> Staged:
        """Write rows into files that no reader sees before a commit names them.

        Args:
            rows: in the table's columns; and in `by`, which is no column of the table.
            by: what tells files apart beside the table's partitions.
        """
        folder, it = uuid.uuid4().hex, self.definition
        keys = [*([by] if by else []), *it.partition_by]
        write_files(rows, self.path, folder, keys)
        return Staged(folder, described(self.path, folder, keys, it.statistics, self.store, by))

    def stage_partition(self, rows: DataFrame, folder: str, **partition: bool) -> None:
        """As `stage`, into a folder, of rows of one partition that have no columns of it, and need not be sorted by it."""
        within = "/".join(f"{key}={str(value).lower()}" for key, value in partition.items())
        write_files(rows, self.path, f"{folder}/{within}", ())

    def found(self, folder: str) -> Staged:
        """What `stage` has written into a folder."""
        files = described(self.path, folder, self.definition.partition_by, self.definition.statistics, self.store)
        return Staged(folder, files)

    def stage_rows(self, rows: Sequence[Mapping[str, Any]]) -> Staged:
        """As `stage`, of a few plain rows, without Spark; what a row lacks is NULL."""
        folder, it = uuid.uuid4().hex, self.definition
        return Staged(
            folder, write_rows(rows, self.path, folder, it.columns, it.partition_by, it.statistics, self.store)
        )

    def commit(self, staged: Staged, cursor: C, *, replaces: bool = False) -> None:
        """Make staged files part of the table and advance the cursor, in one commit; a table that is not there is created.

        Spark's own commit looks through the table's whole log first, to tell whether it has been made before. This one is
        made right after the version that carries the cursor before it, or not at all. (Measured: with Spark's an append of
        50 rows took 0.9 s, with this one 0.3 s.)

        Args:
            staged: the files.
            cursor: of this commit.
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
        # For Spark's commits, which go by it.
        transactions = [Transaction(self.name, cursor.sequence)]
        for _ in range(_ATTEMPTS):
            log = self._before(cursor)
            # A rebuild may give a column another type.
            columns = Schema.from_json(self.definition.columns.json()) if replaces else log.table.schema()
            try:
                log.table.create_write_transaction(
                    actions(self.path, self.definition.partition_by, staged.files),
                    "overwrite" if replaces else "append",
                    columns,
                    partition_by=list(self.definition.partition_by),
                    commit_properties=CommitProperties(note, max_commit_retries=0, app_transactions=transactions),
                )
            except CommitFailedError:
                # Something was committed just now: this very commit, if its answer was lost and the client sent it again;
                # else look again whether it was this step.
                if self._found(commit, cursor) is None:
                    continue
            return
        raise ConcurrentRunError(self._concurrent(cursor))

    def _standing(self) -> TableLog:
        """The newest version of a table that was there when the run began to write it."""
        log = self.log()
        if log is None:
            raise ConcurrentRunError(f"{self.name}: the table was deleted while it was written.")
        return log

    def _before(self, cursor: C) -> TableLog:
        """The newest version, if the commit that is to follow has the cursor after the one that it has."""
        log = self._standing()
        newest = self._newest(log)
        if (newest.cursor.sequence if newest else 0) != cursor.sequence - 1:
            raise ConcurrentRunError(self._concurrent(cursor))
        return log

    def transact(self, session: SparkSession, cursor: C, change: Callable[[DeltaTable], object]) -> Commit:
        """Make the one commit of `change` (a MERGE, a DELETE) carry the cursor.

        Such commits take what is noted in them from their session alone: it must be the caller's own.

        Raises:
            ConcurrentRunError: another run has committed this `sequence`.
        """
        self.before_commits()
        commit = uuid.uuid4().hex
        numbered = {_TXN_APP_CONF: self.name, _TXN_VERSION_CONF: str(cursor.sequence)}
        with temporary_settings(session, {_NOTE_CONF: cursor.text(commit), **numbered}), self._told_apart(cursor):
            change(DeltaTable.forPath(session, self.path))
        return self._mine(commit, cursor)

    def alter(self, session: SparkSession, cursor: C, change: Callable[[DeltaTable], object]) -> None:
        """Let a commit that changes no row (ALTER, OPTIMIZE) carry the cursor that the table has already."""
        self.before_commits()
        with temporary_settings(session, {_NOTE_CONF: cursor.text(uuid.uuid4().hex)}):
            change(DeltaTable.forPath(session, self.path))

    @contextlib.contextmanager
    def _told_apart(self, cursor: C) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if "ConcurrentTransaction" in type(error).__name__ or "DELTA_CONCURRENT" in str(error):
                raise ConcurrentRunError(self._concurrent(cursor)) from error
            raise

    def _mine(self, commit: str, cursor: C) -> Commit:
        """The commit of this name.

        Delta skips, without a word, what comes under a version that is already committed. The other run may have done the
        very same, with the same cursor: only the commit's own name tells whose it was.
        """
        found = self._found(commit, cursor)
        if found is None:
            raise ConcurrentRunError(self._concurrent(cursor))
        return found

    def _found(self, commit: str, cursor: C) -> Commit | None:
        """The commit of this name and cursor, if the log has it."""
        log = self.log()
        for each in log.commits() if log else ():
            values = notes(each.note)
            if values is None:
                continue
            if values.get(COMMIT) == commit:
                return each
            if values["sequence"] < cursor.sequence:
                break
        return None

    def _concurrent(self, cursor: C) -> str:
        return (
            f"{self.name}: another run has already committed step {cursor.sequence}. Nothing was written twice: "
            "wait until that run has ended, then run again."
        )


@dataclass(frozen=True)
class _Pinned(LakeTable[C]):
    """One version of a table."""

    standing: TableLog | None = None

    def log(self) -> TableLog | None:
        """That version's."""
        return self.standing


def _whole(data: parquet.ParquetFile, names: list[str]) -> Iterator[pa.Table]:
    yield data.read(names)


def _in_groups(data: parquet.ParquetFile, names: list[str]) -> Iterator[pa.Table]:
    return (data.read_row_group(number, names) for number in range(data.num_row_groups))


_VIEWED = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def _without_views(rows: pa.Table) -> pa.Table:
    """Texts as other files have them: those that deltalake's DELETE and UPDATE write ask to be read as views."""
    kept = [f.with_type(_VIEWED.get(f.type, f.type)) for f in rows.schema]
    return rows.cast(pa.schema(kept)) if any(f.type in _VIEWED for f in rows.schema) else rows


def _selected(columns: StructType, of_partition: Mapping[str, Any]) -> Iterator[str]:
    """Each column; where the files' partition has a value for it, which is no column of the files, that."""
    for column in columns:
        name, value = quoted(column.name), of_partition.get(column.name)
        if column.name not in of_partition:
            yield name
        else:
            told = "NULL" if value is None else literal(str(value))
            yield f"CAST({told} AS {column.dataType.simpleString()}) AS {name}"
