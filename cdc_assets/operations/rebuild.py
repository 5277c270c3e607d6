"""Rebuild: derives every table of a feed again from raw_records with today's decoder, and replaces the existing tables.

The pipeline's own stages build the new tables in a folder beside the old ones. Then each replaces its old table in one Delta
commit, so that no reader sees half a table. In the meantime the cursor of raw_records says `rebuilding`, and the pipeline
refuses to run. If a rebuild dies, the next one starts again.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.errors import OperationError
from cdc_assets.history.progress import Progress
from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import QuarantineCursor
from cdc_assets.lakehouse.raw_records import RawCursor, cursor_to_continue
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.operations.diff import Difference, DiffSide, compare_rows
from cdc_assets.operations.finality import find_final_position
from cdc_assets.operations.new_tables import (
    NewTables,
    ReplacedTable,
    delete_new_tables,
    overwrite,
    overwrite_history,
)
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.stages import DECODE, HISTORY, RELEASE, SCHEMAS, TYPES, ingest
from cdc_assets.stages.history.progress_file import write_progress

C = TypeVar("C", bound=Cursor)


def rebuild_feed(lake: Lakehouse, feed: Feed) -> Iterator[ReplacedTable]:
    """Derive the feed's tables and their quarantine again from raw_records, and replace the existing ones.

    An event that came late is in its place afterwards, as all events are there from the beginning.

    Raises:
        OperationError: there are no raw records, maintenance has deleted some of them, or a topic was created again.
        ConcurrentRunError: a run or another rebuild committed in the meantime: rebuild again.
    """
    raw, cursor = lake.raw_records, _check_raw_records(lake, feed)
    started = replace(cursor, sequence=cursor.sequence + 1, rebuilding=True)
    raw.commit(raw.stage_rows([]), started)
    new = _locate_new_tables(lake, str(started.sequence))
    _derive_tables(new, feed)
    yield from _replace_tables(lake, new)
    raw.commit(raw.stage_rows([]), replace(started, sequence=started.sequence + 1, rebuilding=False))
    delete_new_tables(new)


def compare_with_rebuild(lake: Lakehouse, feed: Feed) -> Iterator[tuple[str, Difference | None]]:
    """Return how a rebuild would change the histories, and change nothing.

    Returns:
        `database.table` of each history, and how its rows differ at the highest position that is final for both; None if
        only one side has the history.

    Raises:
        OperationError: there are no raw records, maintenance has deleted some of them, or a topic was created again.
    """
    _check_raw_records(lake, feed)
    new = _locate_new_tables(lake, f"check-{uuid.uuid4().hex}")
    try:
        _derive_tables(new, feed)
        before, after = set(lake.histories()), set(new.histories())
        for name in sorted(before | after):
            difference = None
            if name in before & after:
                position = min(find_final_position(each, *name).position for each in (lake, new))
                difference = compare_rows(DiffSide(lake, *name, position), DiffSide(new, *name, position))
            yield ".".join(name), difference
    finally:
        delete_new_tables(new)


def _check_raw_records(lake: Lakehouse, feed: Feed) -> RawCursor:
    """Return the cursor of raw_records.

    Raises:
        OperationError: there are no raw records, maintenance has deleted some of them, or a topic was created again and
            only offsets order its records.
    """
    raw, cursor = lake.raw_records, cursor_to_continue(lake.raw_records)
    if cursor is None:
        raise OperationError(f"{raw.name} has no records yet: run the feed's pipeline instead.")
    if cursor.trimmed:
        raise OperationError(
            f"{raw.name}: maintenance has deleted the records up to batch {cursor.trimmed}, so the history made of them "
            "cannot be derived again. Keep the existing tables."
        )
    if cursor.recreated and protocol_of(feed).watermarks(feed) is not Watermarks.ALWAYS:
        raise OperationError(
            f"{raw.name}: {', '.join(sorted(cursor.recreated))} was deleted and created again. A feed without watermarks "
            "orders records by their offsets, which began again, so the tables cannot be derived again from both topics. "
            "Keep the existing tables; cdc-assets rebuild --table derives one history again."
        )
    return cursor


def _locate_new_tables(lake: Lakehouse, name: str) -> NewTables:
    return NewTables(lake.session, lake.place("rebuilding", lake.feed, name), lake.feed, lake.store, of=lake)


def _derive_tables(new: NewTables, feed: Feed) -> None:
    for stage in (DECODE, SCHEMAS, TYPES, RELEASE):
        stage.run(new, feed)
    for failure in HISTORY.run(new, feed).failures:
        raise failure.error


def _replace_tables(lake: Lakehouse, new: Lakehouse) -> Iterator[ReplacedTable]:
    """Put the new rows into the feed's tables.

    All releases get one number above every earlier one, as a history's cursor names the releases that it has. So released
    changes are replaced before any history: the next rebuild after one that died in between finds a number above it.
    """
    spark = lake.spark
    decoded = _build_cursor(lake.change_events, new.change_events)
    yield overwrite(lake.change_events, new.change_events.read(spark), decoded)
    schemas = _build_cursor(lake.table_schemas, new.table_schemas)
    yield overwrite(lake.table_schemas, new.table_schemas.read(spark), schemas)
    types = replace(_build_cursor(lake.type_observations, new.type_observations), schemas=schemas.sequence)
    yield overwrite(lake.type_observations, new.type_observations.read(spark), types)
    released = replace(_build_cursor(lake.released_changes, new.released_changes), schemas=schemas.sequence)
    number = F.lit(released.sequence).cast("bigint")
    changes = new.released_changes.read(spark)
    yield overwrite(lake.released_changes, changes.withColumn("release", number), released)
    yield from _replace_histories(lake, new, released.sequence)
    write_progress(lake, Progress(released.sequence))
    yield _replace_quarantine(lake, new, number)


def _replace_histories(lake: Lakehouse, new: Lakehouse, release: int) -> Iterator[ReplacedTable]:
    """Replace every history; one that the rebuild did not make is emptied."""
    made = new.histories()
    for name in made:
        old_history, new_history = lake.history(*name), new.history(*name)
        cursor = replace(_build_cursor(old_history, new_history), release=release)
        yield overwrite_history(lake.spark.newSession(), old_history, new_history, cursor)
    for name in sorted(set(lake.histories()) - set(made)):
        history = lake.history(*name)
        cursor = HistoryCursor(sequence=_build_cursor(history, history).sequence, release=release)
        yield overwrite_history(lake.spark.newSession(), history, history, cursor, is_emptied=True)


def _replace_quarantine(lake: Lakehouse, new: Lakehouse, release: Column) -> ReplacedTable:
    """Replace the quarantine but for the rows of the stage ingest, which a rebuild does not run."""
    is_of_history = F.col("stage") == HISTORY.name
    old_rows, new_rows = lake.quarantine.read(lake.spark), new.quarantine.read(lake.spark)
    derived = new_rows.withColumn("batch", F.when(is_of_history, release).otherwise(F.col("batch")))
    rows = old_rows.where(F.col("stage") == ingest.STAGE).unionByName(derived)
    reasons = Counter({row["reason"]: row["count"] for row in rows.groupBy("reason").count().collect()})
    sequence = _build_cursor(lake.quarantine, new.quarantine).sequence
    cursor = QuarantineCursor(sequence=sequence, rows=reasons.total(), reasons=dict(reasons))
    return overwrite(lake.quarantine, rows, cursor)


def _build_cursor(old: LakeTable[C], new: LakeTable[C]) -> C:
    """Return the cursor of the commit that replaces the rows of `old` by those of `new`."""
    before, cursor = old.cursor(), new.cursor() or new.definition.cursor(sequence=0)
    return replace(cursor, sequence=(before.sequence if before else 0) + 1)
