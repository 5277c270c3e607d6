"""Rebuild: everything that is derived from raw_records, derived again by today's decoder, in the place of what is there.

The new tables are built beside the old ones, by the pipeline's own stages, and then take their place: one Delta commit a
table, so that no reader sees half a table. Meanwhile raw_records' cursor says `rebuilding`, and the pipeline refuses to run;
a rebuild that died is repeated from its beginning by the next.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.history.progress import Progress, write_progress
from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.decisions import DecisionsCursor
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.initial_load import LoadsCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import QuarantineCursor
from cdc_assets.lakehouse.raw_records import RawCursor, standing
from cdc_assets.lakehouse.registry_schemas import RegistryCursor
from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.lakehouse.schema import frame_of, quoted
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.operations.diff import Difference, Side, diff
from cdc_assets.operations.finality import final
from cdc_assets.stages import DECODE, HISTORY, RELEASE, SCHEMAS, TYPES, ingest
from cdc_assets.stages import history as history_stage

C = TypeVar("C", bound=Cursor)

# Delta's own count of a table's columns.
_COUNTED = "delta.columnMapping.maxColumnId"


class RebuildError(RuntimeError):
    """The feed cannot be rebuilt."""


@dataclass(frozen=True)
class _Beside(Lakehouse):
    """The tables that are built, reading the feed's own raw records, schemas of the registry, loads and decisions."""

    of: Lakehouse = field(kw_only=True)

    @cached_property
    def raw_records(self) -> LakeTable[RawCursor]:
        """The feed's own."""
        return self.of.raw_records

    @cached_property
    def decisions(self) -> LakeTable[DecisionsCursor]:
        """The feed's own."""
        return self.of.decisions

    @cached_property
    def registry_schemas(self) -> LakeTable[RegistryCursor]:
        """The feed's own."""
        return self.of.registry_schemas

    @cached_property
    def loads(self) -> LakeTable[LoadsCursor]:
        """The feed's own."""
        return self.of.loads

    @property
    def loaded_before(self) -> LakeTable[ReleaseCursor]:
        """The feed's own."""
        return self.of.released_changes

    def loaded_rows(self, database: str, table: str) -> LakeTable[HistoryCursor]:
        """The feed's own."""
        return self.of.loaded_rows(database, table)


@dataclass(frozen=True)
class Replaced:
    """A table that a rebuild has replaced."""

    table: str
    rows: int


def rebuild(lake: Lakehouse, feed: Feed) -> Iterator[Replaced]:
    """Derive all other tables of the feed, and their quarantine, again from raw_records.

    As all events are there from the beginning, one that had come too late is now in its place.

    Raises:
        RebuildError: there are no raw records, or maintenance has deleted some of them.
        ConcurrentRunError: a run, or another rebuild, committed meanwhile: rebuild again.
    """
    raw, cursor = lake.raw_records, _whole(lake)
    marked = replace(cursor, sequence=cursor.sequence + 1, rebuilding=True)
    raw.commit(raw.stage_rows([]), marked)
    beside = _beside(lake, str(marked.sequence))
    _derive(beside, feed)
    yield from _replace(lake, beside)
    raw.commit(raw.stage_rows([]), replace(marked, sequence=marked.sequence + 1, rebuilding=False))
    _remove(beside)


def check(lake: Lakehouse, feed: Feed) -> Iterator[tuple[str, Difference | None]]:
    """What a rebuild would change, and change nothing: derive all tables again, beside, and compare the histories.

    Returns:
        `database.table` of each history, with how its rows differ as of the last position that is final for both; None: only
        one of the two has it.

    Raises:
        RebuildError: there are no raw records, or maintenance has deleted some of them.
    """
    _whole(lake)
    beside = _beside(lake, f"check-{uuid.uuid4().hex}")
    try:
        _derive(beside, feed)
        there, made = (set(each.histories()) for each in (lake, beside))
        for name in sorted(there | made):
            found = None
            if name in there & made:
                position = min(final(each, *name).position for each in (lake, beside))
                found = diff(Side(lake, *name, position), Side(beside, *name, position))
            yield ".".join(name), found
    finally:
        _remove(beside)


def _whole(lake: Lakehouse) -> RawCursor:
    """The cursor of the raw records, if all that came are there."""
    raw, cursor = lake.raw_records, standing(lake.raw_records)
    if cursor is None:
        raise RebuildError(f"{raw.name}: nothing was taken in yet.")
    if cursor.trimmed:
        raise RebuildError(
            f"{raw.name}: maintenance has deleted the records up to batch {cursor.trimmed}; the history that was made "
            "of them cannot be made again."
        )
    return cursor


def _beside(lake: Lakehouse, name: str) -> _Beside:
    return _Beside(lake.session, lake.place("rebuilding", lake.feed, name), lake.feed, lake.store, of=lake)


def _derive(beside: _Beside, feed: Feed) -> None:
    for stage in (DECODE, SCHEMAS, TYPES, RELEASE):
        stage.run(beside, feed)
    for failure in HISTORY.run(beside, feed).failures:
        raise failure.error


def _remove(beside: _Beside) -> None:
    files, path = beside.store.files(beside.root)
    files.delete_dir(path)


def _replace(lake: Lakehouse, beside: Lakehouse) -> Iterator[Replaced]:
    """Put the new rows into the feed's tables.

    The releases get one number, above all that were there, which is what each history's cursor goes by. So the released
    changes are replaced before any history: a rebuild that dies in between, and comes again, finds a number above it.
    """
    spark = lake.spark
    decoded = _next(lake.change_events, beside.change_events)
    yield _overwrite(lake.change_events, beside.change_events.read(spark), decoded)
    learnt = _next(lake.table_schemas, beside.table_schemas)
    yield _overwrite(lake.table_schemas, beside.table_schemas.read(spark), learnt)
    judged = replace(_next(lake.type_observations, beside.type_observations), schemas=learnt.sequence)
    yield _overwrite(lake.type_observations, beside.type_observations.read(spark), judged)
    released = replace(_next(lake.released_changes, beside.released_changes), schemas=learnt.sequence)
    number = F.lit(released.sequence).cast("bigint")
    changes = beside.released_changes.read(spark)
    yield _overwrite(lake.released_changes, changes.withColumn("release", number), released)
    yield from _replace_histories(lake, beside, released.sequence)
    write_progress(lake, Progress(released.sequence))
    yield _replace_quarantine(lake, beside, number)


def _replace_histories(lake: Lakehouse, beside: Lakehouse, release: int) -> Iterator[Replaced]:
    made = beside.histories()
    for name in made:
        old, new = lake.history(*name), beside.history(*name)
        yield _overwrite_history(lake.spark.newSession(), old, new, replace(_next(old, new), release=release))
    for name in sorted(set(lake.histories()) - set(made)):
        old = lake.history(*name)
        empty = HistoryCursor(sequence=_next(old, old).sequence, release=release)
        yield _overwrite_history(lake.spark.newSession(), old, old, empty, rows=False)


def _replace_quarantine(lake: Lakehouse, beside: Lakehouse, release: Column) -> Replaced:
    """What ingest put there stays."""
    of_history = F.col("stage") == history_stage.STAGE
    there, made = lake.quarantine.read(lake.spark), beside.quarantine.read(lake.spark)
    derived = made.withColumn("batch", F.when(of_history, release).otherwise(F.col("batch")))
    frame = there.where(F.col("stage") == ingest.STAGE).unionByName(derived)
    reasons = Counter({r["reason"]: r["count"] for r in frame.groupBy("reason").count().collect()})
    sequence = _next(lake.quarantine, beside.quarantine).sequence
    return _overwrite(
        lake.quarantine,
        frame,
        QuarantineCursor(sequence=sequence, rows=reasons.total(), reasons=dict(reasons)),
    )


def _next(old: LakeTable[C], new: LakeTable[C]) -> C:
    """The cursor of the commit to `old` that puts the rows of `new` there."""
    before, made = old.cursor(), new.cursor() or new.definition.cursor(sequence=0)
    return replace(made, sequence=(before.sequence if before else 0) + 1)


def _overwrite(table: LakeTable[C], rows: DataFrame, cursor: C) -> Replaced:
    """Replace a table's columns and rows, in one commit."""
    staged = table.stage(rows)
    table.commit(staged, cursor, replaces=True)
    return Replaced(table.name, staged.rows)


def _overwrite_history(
    session: SparkSession,
    table: LakeTable[HistoryCursor],
    like: LakeTable[HistoryCursor],
    cursor: HistoryCursor,
    *,
    rows: bool = True,
) -> Replaced:
    """Replace a history's columns and rows, in one commit, by those of another; `rows`: by none, else."""
    log, made = table.log(), like.log()
    columns = like.schema()
    if columns and log and made and made.plain and log.alike(made):
        wanted = like.read(session) if rows else frame_of(session, [], columns)
        return _overwrite(table.of_shape(columns, {}), wanted, cursor)
    writer = like.read(session).where(F.lit(rows)).writeTo(f"delta.{quoted(table.path)}").using("delta")
    writer = writer.partitionedBy(*[F.col(c) for c in table.definition.partition_by])
    for key, value in (made.properties if made else {}).items():
        if key != _COUNTED:
            writer = writer.tableProperty(key, value)
    table.create()
    table.transact(session, cursor, lambda _: writer.createOrReplace())
    return Replaced(table.name, cursor.versions)
