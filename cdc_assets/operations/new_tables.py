"""The tables that a rebuild derives beside the existing ones, and the commits that replace these."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.decisions import DecisionsCursor
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.initial_load import LoadsCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import RawCursor
from cdc_assets.lakehouse.registry_schemas import RegistryCursor
from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.lakehouse.schema import frame_of, quoted
from cdc_assets.lakehouse.table import LakeTable

C = TypeVar("C", bound=Cursor)

# Delta counts a table's columns itself, and refuses to be given the count.
_COLUMN_COUNT = "delta.columnMapping.maxColumnId"


class RebuildError(RuntimeError):
    """The feed or the table cannot be rebuilt; the message says why."""


@dataclass(frozen=True)
class NewTables(Lakehouse):
    """The new tables; they are derived from the feed's own raw records, registry schemas, loads and decisions.

    Attributes:
        of: the feed's tables.
    """

    of: Lakehouse = field(kw_only=True)

    @cached_property
    def raw_records(self) -> LakeTable[RawCursor]:
        """The feed's own raw_records."""
        return self.of.raw_records

    @cached_property
    def decisions(self) -> LakeTable[DecisionsCursor]:
        """The feed's own decisions."""
        return self.of.decisions

    @cached_property
    def registry_schemas(self) -> LakeTable[RegistryCursor]:
        """The feed's own registry schemas."""
        return self.of.registry_schemas

    @cached_property
    def loads(self) -> LakeTable[LoadsCursor]:
        """The feed's own loads."""
        return self.of.loads

    @property
    def loaded_before(self) -> LakeTable[ReleaseCursor]:
        """The feed's own released_changes, which name the loads so far."""
        return self.of.released_changes

    def loaded_rows(self, database: str, table: str) -> LakeTable[HistoryCursor]:
        """Return the feed's own loaded rows of a table."""
        return self.of.loaded_rows(database, table)


@dataclass(frozen=True)
class ReplacedTable:
    """A table that a rebuild has replaced.

    Attributes:
        table: its name.
        rows: the number of its rows now.
    """

    table: str
    rows: int


def delete_new_tables(new: NewTables) -> None:
    """Delete the folder of the new tables."""
    files, path = new.store.files(new.root)
    files.delete_dir(path)


def overwrite(table: LakeTable[C], rows: DataFrame, cursor: C) -> ReplacedTable:
    """Replace a table's columns and rows in one commit."""
    staged = table.stage(rows)
    table.commit(staged, cursor, replaces=True)
    return ReplacedTable(table.name, staged.rows)


def overwrite_history(
    session: SparkSession,
    table: LakeTable[HistoryCursor],
    like: LakeTable[HistoryCursor],
    cursor: HistoryCursor,
    *,
    is_emptied: bool = False,
) -> ReplacedTable:
    """Replace a history's columns and rows in one commit, by the columns of `like` and, unless emptied, its rows."""
    log, like_log = table.log(), like.log()
    columns = like.schema()
    if columns and log and like_log and like_log.has_plain_files and log.has_same_features(like_log):
        rows = frame_of(session, [], columns) if is_emptied else like.read(session)
        return overwrite(table.with_schema(columns, {}), rows, cursor)
    writer = like.read(session).where(F.lit(not is_emptied)).writeTo(f"delta.{quoted(table.path)}").using("delta")
    writer = writer.partitionedBy(*[F.col(column) for column in table.definition.partition_by])
    for key, value in (like_log.properties if like_log else {}).items():
        if key != _COLUMN_COUNT:
            writer = writer.tableProperty(key, value)
    table.create()
    table.transact(session, cursor, lambda _: writer.createOrReplace())
    return ReplacedTable(table.name, cursor.versions)
