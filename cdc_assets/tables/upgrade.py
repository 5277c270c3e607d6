"""Tables that versions before cursor format 2 have written, brought to today's shape where they are.

Each table is replaced in one commit, which carries its new cursor; raw_records comes last, so that its log alone tells
whether there is anything to do. Nothing is read from the source again, and nothing is made of raw records, which may have
been deleted. History tables stay as they are: their cursors are understood, and any shape of theirs is written on.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.before import with_layouts
from cdc_assets.protocols.events import completed
from cdc_assets.protocols.payload import packed
from cdc_assets.stages import decode
from cdc_assets.stages.quarantining import quarantine
from cdc_assets.tables.change_events import EventsCursor, Kind
from cdc_assets.tables.cursor import Cursor, notes
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.quarantine import QuarantineCursor
from cdc_assets.tables.raw_records import RAW_RECORDS, RawCursor
from cdc_assets.tables.released_changes import RELEASED_CHANGES, ReleaseCursor, ReleasedKind
from cdc_assets.tables.schema import conform, frame_of
from cdc_assets.tables.table import LakeTable
from cdc_assets.tables.table_schemas import SchemasCursor

C = TypeVar("C", bound=Cursor)
_Rows = Callable[[DataFrame], DataFrame]
_Advanced = Callable[[dict[str, Any], DataFrame], Cursor]  # of the note until then, and the rows


def outdated(lake: Lakehouse) -> bool:
    """Whether a version before has written the tables of a feed, and no run of this one has brought them up to date."""
    return _outdated(lake.raw_records)


def upgrade(lake: Lakehouse, feed: Feed) -> list[str]:
    """Bring the tables of a feed to today's shape, as far as they are not: the names of those that were replaced.

    A run that comes after one that was killed goes on where that one stood. Nothing to do costs a look at one log, and no
    Spark.

    Raises:
        ConcurrentRunError: another run replaced a table meanwhile.
    """
    if not outdated(lake):
        return []
    replaced = []

    def bring(table: LakeTable[Any], rows: _Rows, cursor: _Advanced) -> None:
        if _outdated(table):
            _replace(lake, table, rows, cursor)
            replaced.append(table.name)

    def columns_of(table: LakeTable[Any]) -> _Rows:
        return lambda old: conform(old, table.definition.columns)

    bring(lake.quarantine, columns_of(lake.quarantine), _quarantine_cursor)
    _complete_quarantine(lake)
    bring(
        lake.change_events,
        lambda old: _events(old, feed),
        lambda note, _: EventsCursor(sequence=_following(note), batch=note.get("batch", 0)),
    )
    bring(
        lake.table_schemas,
        columns_of(lake.table_schemas),
        lambda note, _: SchemasCursor(sequence=_following(note), batch=note.get("batch", 0)),
    )
    bring(
        lake.released_changes,
        lambda old: _released(old, feed),
        lambda note, _: replace(_known(ReleaseCursor, note), tables=[]),
    )
    bring(lake.raw_records, lambda old: _raw(old, feed), lambda note, _: _known(RawCursor, note))
    return replaced


def _note(table: LakeTable[Any]) -> dict[str, Any] | None:
    """What the newest commit of ours noted in a table; None while there is none."""
    log = table.log()
    found = (notes(commit.note) for commit in log.commits()) if log else iter(())
    return next((values for values in found if values is not None), None)


def _outdated(table: LakeTable[Any]) -> bool:
    """Whether a version before wrote the table, or created it."""
    table = table.pinned()
    columns, note = table.schema(), _note(table)
    if columns is None:
        return False
    if note is None:
        return set(columns.names) != set(table.definition.columns.names)
    return int(note.get("format", 1)) < Cursor.FORMAT


def _following(note: dict[str, Any]) -> int:
    return int(note.get("sequence", 0)) + 1


def _known(cursor: type[C], note: dict[str, Any]) -> C:
    """The cursor of the commit after that of a note, with what the note says."""
    return replace(cursor.of({"sequence": 0} | note), sequence=_following(note))


def _replace(lake: Lakehouse, table: LakeTable[Any], rows: _Rows, cursor: _Advanced) -> None:
    """Write the table anew, and put that into its place, in one commit."""
    session = lake.spark.newSession()
    old, note = table.read(session), _note(table) or {}
    new, definition = rows(old), table.definition
    described = [F.col(f"`{f.name}`").alias(f.name, metadata=f.metadata) for f in definition.columns]
    writer = new.select(*described).writeTo(f"delta.`{table.path}`").using("delta")
    for name, value in definition.settings.items():
        writer = writer.tableProperty(name, value)
    if definition.partition_by:
        writer = writer.partitionedBy(*[F.col(c) for c in definition.partition_by])
    table.transact(session, cursor(note, old), lambda _: writer.createOrReplace())


def _quarantine_cursor(note: dict[str, Any], old: DataFrame) -> QuarantineCursor:
    reasons = {r["reason"]: r["count"] for r in old.groupBy("reason").count().collect()}
    return QuarantineCursor(sequence=_following(note), rows=sum(reasons.values()), reasons=reasons)


def _complete_quarantine(lake: Lakehouse) -> None:
    """Put into quarantine what a run of before had decoded, and died before it came to that."""
    through, after = ((_note(t) or {}).get("batch", 0) for t in (lake.change_events, lake.released_changes))
    if through <= after:
        return
    spark = lake.spark
    within = (F.col("batch") > after) & (F.col("batch") <= through)
    place = ["batch", "topic", "partition", "offset"]
    undecodable = lake.change_events.read(spark).where(within & (F.col("kind") == str(Kind.UNDECODABLE)))
    records = lake.raw_records.read(spark).where(within).select(*place, "key", "value")
    rows = records.join(undecodable.select(*place, "index", "reason", "detail"), on=place)
    quarantine(lake, rows, decode.STAGE, after, through)


def _raw(old: DataFrame, feed: Feed) -> DataFrame:
    compressed = F.when(packed(F.col("value"), protocol_of(feed).envelope(feed)), F.lit(1))
    return conform(old.withColumn("compressed", compressed), RAW_RECORDS.columns)


def _events(old: DataFrame, feed: Feed) -> DataFrame:
    """Change events of today: how large their records were is not known any more."""
    return completed(
        with_layouts(old, protocol_of(feed)).withColumn("record_bytes", F.when(F.col("index") == 0, F.lit(0)))
    )


def _released(old: DataFrame, feed: Feed) -> DataFrame:
    """Released changes of today: their layouts' texts are rows of their own."""
    told = with_layouts(old, protocol_of(feed))
    found = (
        told.where(F.col("kind") == str(ReleasedKind.ROW))
        .groupBy("release", "database", "table", "layout_id")
        .agg(
            F.min("commit_ts").alias("commit_ts"),
            F.max("commit_ts").alias("last_ts"),
            F.max_by("key_columns", "commit_ts").alias("key_columns"),
            F.max_by(F.struct("layout", "jdbc_types"), "commit_ts").alias("sample"),
        )
        .collect()
    )
    layouts = []
    for group in found:
        row = group.asDict()
        text = protocol_of(feed).layout_of(row.pop("sample").asDict())
        layouts.append(row | {"kind": str(ReleasedKind.LAYOUT), "layout": text})
    changes = conform(told.drop("layout"), RELEASED_CHANGES.columns)
    return changes.unionByName(frame_of(old.sparkSession, layouts, RELEASED_CHANGES.columns))
