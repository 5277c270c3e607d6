"""Logs of Delta tables, read without Spark and without a JVM: the newest commits, and the files that hold the rows."""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow.fs import FileType

from cdc_assets.stores.storage import LOCAL, Store

# How many of the newest commits each attempt reads, until the search ends: nearly always the newest one has the cursor.
_COMMITS_AT_ONCE = (1, 20, None)
# How many tables' logs stay in memory: enough for the tables that all stages read, and for the history that is written.
_CACHED_LOGS = 50


@dataclass(frozen=True)
class Commit:
    """One commit: its version, operation, note (`userMetadata`), metrics and time.

    Attributes:
        restored: of a RESTORE, the version whose rows it brought back; -1 if it states a time instead. None: no RESTORE.
    """

    version: int
    operation: str
    note: str
    metrics: Mapping[str, str]
    time: datetime
    restored: int | None = None

    @property
    def rows(self) -> int:
        """The number of rows that the commit appended; 0 for MERGE, OPTIMIZE and others that rewrite rows."""
        return int(self.metrics.get("numOutputRows", 0)) if self.operation == "WRITE" else 0


@dataclass(frozen=True)
class DataFile:
    """One data file, with the statistics that Delta keeps of it."""

    path: str
    rows: int
    partition: Mapping[str, Any]
    low: Mapping[str, Any]
    high: Mapping[str, Any]
    nulls: Mapping[str, int]
    size: int = 0  # bytes


class TableLog:
    """The version of a table that was the newest when this object was created.

    Attributes:
        table: the table at this version, for a commit that must follow right after it.
    """

    def __init__(self, table: DeltaTable, uri: str) -> None:
        self.table, self._uri = table, uri.rstrip("/")

    @classmethod
    def of(cls, uri: str, store: Store) -> "TableLog | None":
        """Read the log of the table at `uri`; None if the table does not exist."""
        try:
            return cls(DeltaTable(uri, storage_options=store.deltalake_options(uri)), uri)
        except TableNotFoundError:
            return None

    @property
    def version(self) -> int:
        """The number of this version."""
        return int(self.table.version())

    def commits(self) -> Iterator[Commit]:
        """Return the commits that the log still has, newest first."""
        seen = 0
        for limit in _COMMITS_AT_ONCE:
            entries = self._newest_entry if limit == 1 else self.table.history(limit)
            for entry in entries[seen:]:
                yield Commit(
                    entry["version"],
                    entry.get("operation") or "",
                    entry.get("userMetadata") or "",
                    entry.get("operationMetrics") or {},
                    datetime.fromtimestamp((entry.get("timestamp") or 0) / 1000, tz=UTC),
                    _restored_version(entry),
                )
            if limit is None or len(entries) < limit:
                return
            seen = len(entries)

    @cached_property
    def _newest_entry(self) -> list[dict[str, Any]]:
        """The newest commit, in a list. Its file is read once, as all stages read the cursor in it."""
        return self.table.history(1)

    def schema(self) -> str:
        """Return the table's columns, as the JSON text of a Spark schema."""
        return str(self.table.schema().to_json())

    @property
    def properties(self) -> dict[str, str]:
        """The table properties."""
        return dict(self.table.metadata().configuration)

    @property
    def has_widened_types(self) -> bool:
        """Whether column types were widened: only Spark reads such a table."""
        return any(f.startswith("typeWidening") for f in self._features)

    @property
    def has_plain_files(self) -> bool:
        """Whether the rows are exactly those of the data files, under the table's own column names and types.

        They are not if columns are mapped, types were widened, or rows are marked as deleted.
        """
        has_mapping = self.properties.get("delta.columnMapping.mode", "none") != "none"
        has_vectors = self.may_have_deletion_vectors and pa.table(self.table.deletion_vectors()).num_rows > 0
        return not (has_mapping or self.has_widened_types or has_vectors)

    def has_same_features(self, other: "TableLog") -> bool:
        """Return whether another table has the same properties and the same reader and writer features."""
        own, others = (log.table.protocol() for log in (self, other))
        return (self.properties, own) == (other.properties, others)

    @property
    def may_have_deletion_vectors(self) -> bool:
        """Whether rows of data files may be marked as deleted (deletion vectors)."""
        return "deletionVectors" in self._features

    @property
    def _features(self) -> list[str]:
        return self.table.protocol().writer_features or []

    @cached_property
    def physical_names(self) -> dict[str, str]:
        """Column -> its name in the data files, which differs with column mapping."""
        fields = json.loads(self.schema())["fields"]
        return {f["name"]: f["metadata"].get("delta.columnMapping.physicalName", f["name"]) for f in fields}

    def files(self, **partition: object) -> list[DataFile]:
        """Return the data files of this version, or those of one partition."""
        rows = self._actions
        for name, value in partition.items():
            rows = rows.filter(pc.equal(pc.struct_field(rows["partition"], name), pa.scalar(value)))
        return [self._file(row) for row in rows.to_pylist()]

    @cached_property
    def _actions(self) -> pa.Table:
        return pa.table(self.table.get_add_actions())

    def _file(self, row: Mapping[str, Any]) -> DataFile:
        return DataFile(
            path=f"{self._uri}/{unquote(row['path'])}",
            rows=row["num_records"],
            partition=row.get("partition") or {},
            low=row.get("min") or {},
            high=row.get("max") or {},
            nulls=row.get("null_count") or {},
            size=row["size_bytes"],
        )


def _restored_version(entry: Mapping[str, Any]) -> int | None:
    """Return `Commit.restored` of a commit, which both Spark and deltalake may have made."""
    if entry.get("operation") != "RESTORE":
        return None
    version = (entry.get("operationParameters") or {}).get("version")
    return int(version) if version is not None else -1


_CommitFile = tuple[int | None, int | None]  # modification time in nanoseconds, size in bytes


class Logs:
    """A cache of table logs: a log is read again only when the table has a newer commit.

    Stages read the same logs many times in a run, and deltalake reads all commits since the last checkpoint each time.
    """

    def __init__(self, store: Store = LOCAL) -> None:
        self.store = store
        self._cached: dict[str, tuple[TableLog, _CommitFile]] = {}
        self._lock = threading.Lock()

    def newest(self, uri: str) -> TableLog | None:
        """Return the newest log of the table at `uri`; None if the table does not exist."""
        cached = self._cached.get(uri)
        # The newest commit's file is compared too, because the table may have been deleted and created again.
        if cached is not None and self._commit_files(uri, cached[0].version, 2) == [cached[1], None]:
            return cached[0]
        log = TableLog.of(uri, self.store)
        commit_file = self._commit_files(uri, log.version, 1)[0] if log else None
        with self._lock:
            self._cached.pop(uri, None)
            if log and commit_file:
                self._cached[uri] = log, commit_file
            while len(self._cached) > _CACHED_LOGS:
                del self._cached[next(iter(self._cached))]
        return log

    def _commit_files(self, uri: str, version: int, count: int) -> list[_CommitFile | None]:
        """Return the files of `count` commits from `version` on; None for a commit that does not exist."""
        files, path = self.store.files(f"{uri.rstrip('/')}/_delta_log")
        infos = files.get_file_info([f"{path}/{version + n:020}.json" for n in range(count)])
        return [(info.mtime_ns, info.size) if info.type == FileType.File else None for info in infos]
