"""Where the tables of each feed live."""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyspark.sql import SparkSession

from cdc_assets.tables.change_events import CHANGE_EVENTS, EventsCursor
from cdc_assets.tables.decisions import DECISIONS, Decision, DecisionsCursor, Verdict
from cdc_assets.tables.history import HISTORY, HistoryCursor
from cdc_assets.tables.initial_load import INITIAL_LOAD, LoadsCursor
from cdc_assets.tables.quarantine import QUARANTINE, QuarantineCursor
from cdc_assets.tables.raw_records import RAW_RECORDS, RawCursor
from cdc_assets.tables.released_changes import RELEASED_CHANGES, ReleaseCursor, ReleasedKind
from cdc_assets.tables.table import LakeTable
from cdc_assets.tables.table_schemas import TABLE_SCHEMAS, SchemasCursor
from cdc_assets.tables.type_observations import TYPE_OBSERVATIONS, TypesCursor

DEFAULT_ROOT = "data/lakehouse"


def lakehouse_root(given: str | None = None) -> str:
    """The root of all tables: what is given, else `CDC_LAKEHOUSE`, else `data/lakehouse`; absolute, if a local folder."""
    root = given or os.environ.get("CDC_LAKEHOUSE") or DEFAULT_ROOT
    return root if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", root) else os.path.abspath(root)  # noqa: PTH100


def path_segment(name: str) -> str:
    """Percent-encode a name from the wire, so that it is one folder's name whatever it holds.

    Everything but ASCII letters, digits, `_` and `-` is encoded, the dot too: `..` cannot climb, and no name is hidden.
    """
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E") or "%"


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


@dataclass(frozen=True)
class Lakehouse:
    """The tables of one feed, below the root.

    Attributes:
        session: gives the Spark session, which starts at the first use: a run without news never asks for it.
        root: of all feeds.
        feed: the feed's name.
    """

    session: Callable[[], SparkSession]
    root: str
    feed: str

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.session()

    def place(self, *parts: str) -> str:
        """A path below the root."""
        return "/".join([self.root.rstrip("/"), *parts])

    @cached_property
    def raw_records(self) -> LakeTable[RawCursor]:
        """The Kafka records, verbatim."""
        return LakeTable(self.place("raw_records", self.feed), f"raw_records/{self.feed}", RAW_RECORDS)

    @cached_property
    def change_events(self) -> LakeTable[EventsCursor]:
        """One protocol-neutral event a change."""
        return LakeTable(self.place("change_events", self.feed), f"change_events/{self.feed}", CHANGE_EVENTS)

    @cached_property
    def table_schemas(self) -> LakeTable[SchemasCursor]:
        """What is known of each source table."""
        return LakeTable(self.place("table_schemas", self.feed), f"table_schemas/{self.feed}", TABLE_SCHEMAS)

    def schema_rows(self, tables: Iterable[tuple[str, str]] | None = None) -> list[dict[str, Any]]:
        """The rows of table_schemas, or those of some tables, without Spark."""
        found = self.table_schemas.fetch(self.table_schemas.files(), *TABLE_SCHEMAS.columns.names)
        if tables is not None and found.num_rows:
            wanted = pa.array([f"{d}\0{t}" for d, t in tables], pa.string())
            names = pc.binary_join_element_wise(found["database"], found["table"], "\0")
            found = found.filter(pc.is_in(names, wanted))
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    @cached_property
    def decisions(self) -> LakeTable[DecisionsCursor]:
        """What people have decided about DDL statements."""
        return LakeTable(self.place("decisions", self.feed), f"decisions/{self.feed}", DECISIONS)

    def decided(self) -> dict[str, Decision]:
        """Ids of statements -> what was decided about them, without Spark. The first decision counts."""
        found = self.decisions.fetch(self.decisions.files(), "statement_id", "verdict", "read_as", "decided_at")
        rows = sorted(found.to_pylist(), key=lambda r: r["decided_at"], reverse=True)
        return {r["statement_id"]: Decision(Verdict(r["verdict"]), r["read_as"]) for r in rows}

    @cached_property
    def loads(self) -> LakeTable[LoadsCursor]:
        """Which dumped tables the histories begin with."""
        return LakeTable(self.place("initial_load", self.feed), f"initial_load/{self.feed}", INITIAL_LOAD)

    def load_rows(self) -> list[dict[str, Any]]:
        """The rows of initial_load by their number, without Spark."""
        found: list[dict[str, Any]] = self.loads.fetch(self.loads.files(), *INITIAL_LOAD.columns.names).to_pylist()
        return sorted(found, key=lambda r: r["number"])

    @property
    def loaded_before(self) -> LakeTable[ReleaseCursor]:
        """Where rows are that were loaded once: the dump need not be there any more."""
        return self.released_changes

    @cached_property
    def type_observations(self) -> LakeTable[TypesCursor]:
        """What messages have said of columns' types."""
        return LakeTable(
            self.place("type_observations", self.feed), f"type_observations/{self.feed}", TYPE_OBSERVATIONS
        )

    @cached_property
    def released_changes(self) -> LakeTable[ReleaseCursor]:
        """The changes below the watermark, each once."""
        return LakeTable(self.place("released_changes", self.feed), f"released_changes/{self.feed}", RELEASED_CHANGES)

    def released_tables(self) -> set[tuple[str, str]]:
        """Every source table of which a row was released, out of the rows themselves."""
        files = self.released_changes.files(kind=str(ReleasedKind.LAYOUT))
        found = self.released_changes.fetch(files, "database", "table").to_pylist()
        return {(r["database"], r["table"]) for r in found}

    @cached_property
    def quarantine(self) -> LakeTable[QuarantineCursor]:
        """What could not be decoded, typed or placed."""
        return LakeTable(self.place("quarantine", self.feed), f"quarantine/{self.feed}", QUARANTINE)

    @property
    def stage_tables(self) -> list[LakeTable[Any]]:
        """All tables of the feed but its histories."""
        return [
            self.raw_records,
            self.change_events,
            self.table_schemas,
            self.type_observations,
            self.released_changes,
            self.quarantine,
        ]

    def history(self, database: str, table: str) -> LakeTable[HistoryCursor]:
        """The SCD2 table of one source table."""
        parts = ("history", self.feed, path_segment(database), path_segment(table))
        return LakeTable(self.place(*parts), "/".join(parts), HISTORY)
