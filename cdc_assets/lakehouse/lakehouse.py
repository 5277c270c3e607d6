"""The tables of a feed and their paths."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileInfo, FileSelector, FileType
from pyspark.sql import SparkSession

from cdc_assets.config.locations import LocationError, canonical_location
from cdc_assets.lakehouse.change_events import CHANGE_EVENTS, EventsCursor
from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.decisions import DECISIONS, Decision, DecisionsCursor, DecisionVerdict
from cdc_assets.lakehouse.history import DATABASE, HISTORY, TABLE, HistoryCursor
from cdc_assets.lakehouse.initial_load import INITIAL_LOAD, LoadsCursor
from cdc_assets.lakehouse.log import Logs, TableLog
from cdc_assets.lakehouse.quarantine import QUARANTINE, QuarantineCursor
from cdc_assets.lakehouse.raw_records import RAW_RECORDS, RawCursor
from cdc_assets.lakehouse.registry_schemas import REGISTRY_SCHEMAS, IdKind, RegistryCursor, SchemaId
from cdc_assets.lakehouse.released_changes import RELEASED_CHANGES, ReleaseCursor, ReleasedKind
from cdc_assets.lakehouse.table import Definition, LakeTable
from cdc_assets.lakehouse.table_schemas import TABLE_SCHEMAS, SchemasCursor
from cdc_assets.lakehouse.type_observations import TYPE_OBSERVATIONS, TypesCursor
from cdc_assets.spark.exclusive_writes import check_exclusive_writes
from cdc_assets.spark.executors import check_root_visible
from cdc_assets.spark.session import on_cluster
from cdc_assets.stores import store_of
from cdc_assets.stores.storage import LOCAL, Store

C = TypeVar("C", bound=Cursor)

DEFAULT_ROOT = "data/lakehouse"

# Parts of a path that deltalake misreads: it decodes `%2E` twice, and reads the other characters as parts of a URL.
_UNREADABLE = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]^|#?\x00-\x1F\x7F]")

# The parts of a history's path. No escape has a `-` after its `~`, so `_CUT` marks the parts that are cut.
_ESCAPED = re.compile(r"[^A-Za-z0-9_-]+")
_HALF_ESCAPE = re.compile(r"~[0-9A-F]?$")
_EMPTY = "~"
_CUT = "~-"
_LONGEST = 200
_DIGITS = 32  # of the hash


def lakehouse_root(given: str | None = None) -> str:
    """Return the root of all tables in its canonical form: `given`, else `CDC_LAKEHOUSE`, else `data/lakehouse`.

    Raises:
        LocationError: the root is a URI of a scheme that is not supported, or has characters that deltalake misreads.
    """
    root = canonical_location(given or os.environ.get("CDC_LAKEHOUSE") or DEFAULT_ROOT)
    if unreadable := _UNREADABLE.search(root):
        raise LocationError(
            f"{root}: the lakehouse's path contains {unreadable[0]!r}, below which deltalake does not find tables. "
            "Choose a path without it."
        )
    return root


def path_segment(name: str) -> str:
    """Return the folder name of a database or table: unique among all names, and at most 200 ASCII characters.

    ASCII letters, digits, `_` and `-` stay. Every other byte of the UTF-8 name becomes `~` and two hexadecimal digits, not
    `%`: deltalake decodes `%2E` in a path and then looks for `.`. The dot is escaped too, so `..` cannot climb and no folder
    is hidden. A longer name is cut and ends in a hash of the name, because file systems take 255 bytes.
    """
    if not name:
        return _EMPTY
    # Delta reads every folder of this name as a table's log.
    escaped = "~5Fdelta_log" if name == "_delta_log" else _ESCAPED.sub(_escape, name)
    if len(escaped) <= _LONGEST:
        return escaped
    ending = _CUT + hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
    return _HALF_ESCAPE.sub("", escaped[: _LONGEST - len(ending)]) + ending


def _escape(match: re.Match[str]) -> str:
    return "".join(f"~{byte:02X}" for byte in match[0].encode())


def _name_of(segment: str) -> str:
    """Return the name whose `path_segment` this is, if the segment is not cut."""
    return "" if segment == _EMPTY else unquote(segment.replace("~", "%"))


def history_tables(root: str, feed: str, store: Store = LOCAL) -> list[tuple[str, str]]:
    """List the (database, table) pairs that have a history table below `root`, sorted, without Spark.

    A table is left out if its path is cut and its log cannot be read: nothing else has its name. The history stage reports
    such a table when it has new changes.
    """
    place = f"{root.rstrip('/')}/history/{feed}"
    files, base = store.files(place)

    def folders(path: str) -> list[FileInfo]:
        return [
            i for i in files.get_file_info(FileSelector(path, allow_not_found=True)) if i.type == FileType.Directory
        ]

    tables = [(database, table) for database in folders(base) for table in folders(database.path)]
    logs = files.get_file_info([f"{table.path}/_delta_log" for _, table in tables])
    paths = [
        (database.base_name, table.base_name)
        for (database, table), log in zip(tables, logs, strict=True)
        if log.type == FileType.Directory
    ]
    return sorted(name for path in paths if (name := _source_of(place, path, store)) is not None)


def _source_of(place: str, path: tuple[str, str], store: Store) -> tuple[str, str] | None:
    """Return the database and table of the history in folder `path` below `place`; None if nothing states them.

    Every history states them in its properties. Only a cut path needs those: opening the log of every table would make
    long lists slow, and an uncut path has the same names.
    """
    database, table = path
    if _CUT not in database + table:
        return _name_of(database), _name_of(table)
    try:
        log = TableLog.of(f"{place}/{database}/{table}", store)
    except Exception:  # noqa: BLE001 -- deltalake's errors have no common type, and one table must not stop the others
        return None
    stated = log.properties if log else {}
    return (stated[DATABASE], stated[TABLE]) if {DATABASE, TABLE} <= stated.keys() else None


@dataclass(frozen=True)
class Lakehouse:
    """The tables of one feed, below the root.

    Attributes:
        session: returns the Spark session, which starts at the first call: a run without new records never calls it.
        root: the root of all feeds' tables.
        feed: the feed's name.
        store: how the root is reached.
    """

    session: Callable[[], SparkSession]
    root: str
    feed: str
    store: Store = LOCAL

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.session()

    def place(self, *parts: str) -> str:
        """Return a path below the root."""
        return "/".join([self.root.rstrip("/"), *parts])

    @cached_property
    def _logs(self) -> Logs:
        return Logs(self.store)

    def _table(self, name: str, definition: Definition[C]) -> LakeTable[C]:
        """Return the table whose path below the root is `name`."""
        return LakeTable(self.place(name), name, definition, self._logs, self._before_commits)

    def _before_commits(self) -> None:
        """Check that no driver can overwrite another's commit, and that executors write where this process reads."""
        if store_of(self.root):
            check_exclusive_writes(self.spark, self.root)
        elif on_cluster():
            check_root_visible(self.spark, self.root, self.store)

    @cached_property
    def raw_records(self) -> LakeTable[RawCursor]:
        """The Kafka records, verbatim."""
        return self._table(f"raw_records/{self.feed}", RAW_RECORDS)

    @cached_property
    def change_events(self) -> LakeTable[EventsCursor]:
        """The decoded events, in one schema for all protocols."""
        return self._table(f"change_events/{self.feed}", CHANGE_EVENTS)

    @cached_property
    def table_schemas(self) -> LakeTable[SchemasCursor]:
        """The schemas of the source tables, and the statements that changed them."""
        return self._table(f"table_schemas/{self.feed}", TABLE_SCHEMAS)

    def schema_rows(self, tables: Iterable[tuple[str, str]] | None = None) -> list[dict[str, Any]]:
        """Return the rows of table_schemas, or those of some tables, without Spark."""
        rows = self.table_schemas.fetch(self.table_schemas.files(), *TABLE_SCHEMAS.columns.names)
        if tables is not None and rows.num_rows:
            requested = pa.array([f"{d}\0{t}" for d, t in tables], pa.string())
            names = pc.binary_join_element_wise(rows["database"], rows["table"], "\0")
            rows = rows.filter(pc.is_in(names, requested))
        plain_rows: list[dict[str, Any]] = rows.to_pylist()
        return plain_rows

    @cached_property
    def decisions(self) -> LakeTable[DecisionsCursor]:
        """People's decisions about DDL statements."""
        return self._table(f"decisions/{self.feed}", DECISIONS)

    def read_decisions(self) -> dict[str, Decision]:
        """Return id of a statement -> the first decision about it, without Spark."""
        rows = self.decisions.fetch_rows(self.decisions.files(), "statement_id", "verdict", "read_as", "decided_at")
        newest_first = sorted(rows, key=lambda r: r["decided_at"], reverse=True)
        return {r["statement_id"]: Decision(DecisionVerdict(r["verdict"]), r["read_as"]) for r in newest_first}

    @cached_property
    def registry_schemas(self) -> LakeTable[RegistryCursor]:
        """The registry's schemas of records, by id."""
        return self._table(f"registry_schemas/{self.feed}", REGISTRY_SCHEMAS)

    def kept_schemas(self) -> dict[SchemaId, str | None]:
        """Return schema id -> the kept text of the schema, without Spark; None if the registry had no schema of this id."""
        rows = self.registry_schemas.fetch_rows(self.registry_schemas.files(), "id_kind", "id", "schema")
        # A schema that was missing at first may have been fetched later, so rows with a schema win.
        rows.sort(key=lambda row: row["schema"] is not None)
        return {SchemaId(IdKind(row["id_kind"]), row["id"]): row["schema"] for row in rows}

    @cached_property
    def loads(self) -> LakeTable[LoadsCursor]:
        """The dumped tables that histories begin with."""
        return self._table(f"initial_load/{self.feed}", INITIAL_LOAD)

    def load_rows(self) -> list[dict[str, Any]]:
        """Return the rows of initial_load by their number, without Spark."""
        rows = self.loads.fetch_rows(self.loads.files(), *INITIAL_LOAD.columns.names)
        return sorted(rows, key=lambda r: r["number"])

    @property
    def loaded_before(self) -> LakeTable[ReleaseCursor]:
        """The released changes that may have a dump's rows already; a rebuild takes them from there, not from the dump."""
        return self.released_changes

    def loaded_rows(self, database: str, table: str) -> LakeTable[HistoryCursor]:
        """Return the place of the typed rows of the load that a history begins with, in folders of Parquet files.

        No commit adds these files to a table: the cursor of released_changes names the folders. The files never change, and
        the history gets copies of them.
        """
        return self._of_source("loaded_rows", database, table)

    @cached_property
    def type_observations(self) -> LakeTable[TypesCursor]:
        """What messages have stated of columns' types, and the verdicts on it."""
        return self._table(f"type_observations/{self.feed}", TYPE_OBSERVATIONS)

    @cached_property
    def released_changes(self) -> LakeTable[ReleaseCursor]:
        """The changes that the gate has released, each once."""
        return self._table(f"released_changes/{self.feed}", RELEASED_CHANGES)

    def released_tables(self) -> set[tuple[str, str]]:
        """Return every source table that has a released row, read from the layouts of the rows."""
        files = self.released_changes.files(kind=str(ReleasedKind.LAYOUT))
        return {(r["database"], r["table"]) for r in self.released_changes.fetch_rows(files, "database", "table")}

    @cached_property
    def quarantine(self) -> LakeTable[QuarantineCursor]:
        """The input that could not be used."""
        return self._table(f"quarantine/{self.feed}", QUARANTINE)

    @property
    def stage_tables(self) -> list[LakeTable[Any]]:
        """All tables that stages write, except the histories."""
        return [
            self.raw_records,
            self.change_events,
            self.table_schemas,
            self.type_observations,
            self.released_changes,
            self.quarantine,
        ]

    def histories(self) -> list[tuple[str, str]]:
        """Return the (database, table) pairs that have a history table; see `history_tables`."""
        return history_tables(self.root, self.feed, self.store)

    def find_history(self, name: str) -> tuple[str, str] | None:
        """Return (database, table) of the history called `database.table`; both names may have dots. None without one."""
        return next((pair for pair in self.histories() if ".".join(pair) == name), None)

    def history(self, database: str, table: str) -> LakeTable[HistoryCursor]:
        """Return the history table of one source table."""
        return self._of_source("history", database, table)

    def _of_source(self, kind: str, database: str, table: str) -> LakeTable[HistoryCursor]:
        definition = replace(HISTORY, properties={DATABASE: database, TABLE: table})
        return self._table("/".join([kind, self.feed, path_segment(database), path_segment(table)]), definition)
