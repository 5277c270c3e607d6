"""The tables that a rebuild derives beside the existing ones, and the commits that replace these."""

from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.lakehouse.schema import frame_of, quoted
from cdc_assets.lakehouse.table import LakeTable

C = TypeVar("C", bound=Cursor)

# Delta counts a table's columns itself, and refuses to be given the count.
_COLUMN_COUNT = "delta.columnMapping.maxColumnId"


@dataclass(frozen=True)
class NewTables(Lakehouse):
    """The new tables; they are derived from the feed's own raw records, registry schemas, loads and decisions.

    Attributes:
        of: the feed's tables.
        own_tables: the kinds of tables that are the feed's own.
    """

    of: Lakehouse = field(kw_only=True)

    own_tables: ClassVar[frozenset[str]] = frozenset(
        ["raw_records", "registry_schemas", "initial_load", "loaded_rows", "decisions"]
    )

    def place(self, *parts: str) -> str:
        """Return a path: of the feed's own tables below its root, of the new ones below the new root."""
        is_own = parts[0].partition("/")[0] in self.own_tables
        return self.of.place(*parts) if is_own else super().place(*parts)

    @property
    def loaded_before(self) -> LakeTable[ReleaseCursor]:
        """The feed's own released_changes, which name the loads so far."""
        return self.of.released_changes


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
