"""Replay of the quarantine: decodes undecodable records again, as after an update of the decoder.

A record that now decodes moves to a new batch of raw_records, as if it had just arrived. The pipeline's next run decodes it,
and the gate puts it in its place. If its table is released beyond that place already, the record stays in quarantine and is
reported.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import RawCursor, cursor_to_continue
from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.lakehouse.schema import BIGINT, INT, STRING, frame_of, struct
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.payload import decompress
from cdc_assets.release.base import find_hold_positions
from cdc_assets.release.watermark_gate import release_bound
from cdc_assets.release.watermarks import has_watermarks
from cdc_assets.spark.session import checkpointed
from cdc_assets.stages import decode
from cdc_assets.stages.decoding import decode_records

_PLACE = ["batch", "topic", "partition", "offset"]


@dataclass(frozen=True)
class ReplayReport:
    """What became of the undecodable records.

    Attributes:
        tried: the number of records that were decoded again.
        replayed: the number of those that decode now and are in the next run's batch.
        passed: the records that decode now and whose table is released beyond them: coordinates, database, table, commit_ts.
    """

    tried: int = 0
    replayed: int = 0
    passed: list[dict[str, Any]] = field(default_factory=list)


def replay_quarantine(lake: Lakehouse, feed: Feed) -> ReplayReport:
    """Decode the records again of which no event could be decoded; a rebuild handles records with some decoded events.

    The next replay completes one that died.

    Raises:
        ConcurrentRunError: a run ingested records in the meantime: replay again.
        RegistryError: the feed's schema registry does not answer.
    """
    cursor = cursor_to_continue(lake.raw_records)
    if cursor is None or not lake.change_events.exists():
        return ReplayReport()
    session = lake.spark.newSession()
    _delete_traces_of_moved_records(lake, session)
    outcomes = [row for frame in _decode_again(lake, feed, session) for row in frame.collect()]
    decoded = [row for row in outcomes if not row["undecodable"]]
    replayed = [{column: row[column] for column in _PLACE} for row in decoded if not row["past"]]
    if replayed:
        _move_to_new_batch(lake, session, cursor, replayed)
        _delete_traces_of_moved_records(lake, session)
    return ReplayReport(len(outcomes), len(replayed), [row.asDict() for row in decoded if row["past"]])


def _decode_again(lake: Lakehouse, feed: Feed, session: SparkSession) -> Iterator[DataFrame]:
    """Yield what today's decoder makes of the undecodable records.

    Yields:
        A row a record: its place, undecodable and past BIGINT (its number of undecodable events, and of those whose table
        is released beyond them), database, table, commit_ts. Each record is in one of the frames.
    """
    is_undecodable = F.col("kind") == str(Kind.UNDECODABLE)
    places = lake.change_events.read(session).where(is_undecodable & (F.col("index") == 0)).select(*_PLACE)
    records = lake.raw_records.read(session).join(F.broadcast(places), on=_PLACE, how="left_semi")
    for events in decode_records(lake, feed, decompress(records, protocol_of(feed).envelope(feed))):
        yield (
            events.withColumn("past", _is_released_beyond(lake, session, feed))
            .groupBy(*_PLACE)
            .agg(
                F.count_if(is_undecodable).alias("undecodable"),
                F.count_if("past").alias("past"),
                *[F.first(column, ignorenulls=True).alias(column) for column in ("database", "table", "commit_ts")],
            )
        )


def _is_released_beyond(lake: Lakehouse, session: SparkSession, feed: Feed) -> Column:
    """Return whether an event's table is released beyond the event's place in its order. BOOLEAN, never NULL."""
    cursor = lake.released_changes.cursor()
    is_change = F.col("kind").isin(str(Kind.ROW), str(Kind.DDL))
    if cursor is None:
        return F.lit(False)
    if has_watermarks(feed, cursor.partition_watermarks):
        is_below = F.col("commit_ts") < release_bound(cursor.watermarks, find_hold_positions(cursor.holds, "commit_ts"))
        return F.coalesce(is_change & is_below, F.lit(False))
    changes = lake.released_changes.read(session).where(F.col("kind") != str(ReleasedKind.LAYOUT))
    newest = changes.groupBy("database", "table").agg(F.max("commit_ts").alias("newest")).collect()
    # Maintenance keeps only the highest commit_ts of the changes that it deletes, so it counts for every table.
    reached = F.lit(cursor.trimmed.highest).cast("bigint")
    for row in newest:
        is_of_table = F.col("database").eqNullSafe(row["database"]) & F.col("table").eqNullSafe(row["table"])
        reached = F.when(is_of_table, F.lit(max(row["newest"], cursor.trimmed.highest))).otherwise(reached)
    return F.coalesce(is_change & (F.col("commit_ts") <= reached), F.lit(False))


def _move_to_new_batch(lake: Lakehouse, session: SparkSession, cursor: RawCursor, places: list[dict[str, Any]]) -> None:
    """Move the records at these places to a new batch of raw_records."""
    number = cursor.sequence + 1
    rows = frame_of(session, places, struct(batch=BIGINT, topic=STRING, partition=INT, offset=BIGINT)).alias("s")
    is_same_record = " AND ".join(f"t.{column} = s.{column}" for column in _PLACE)
    batch: dict[str, str | Column] = {"batch": F.lit(number).cast("bigint")}
    lake.raw_records.transact(
        session,
        replace(cursor, sequence=number),
        lambda table: table.alias("t").merge(rows, is_same_record).whenMatchedUpdate(set=batch).execute(),
    )


def _delete_traces_of_moved_records(lake: Lakehouse, session: SparkSession) -> None:
    """Delete the undecodable events and the quarantine rows of records that have moved to another batch."""
    events_cursor, quarantine_cursor = lake.change_events.cursor(), lake.quarantine.cursor()
    events = lake.change_events.read(session).where(F.col("kind") == str(Kind.UNDECODABLE))
    moved = _select_moved(lake, events)
    if events_cursor is not None and not moved.isEmpty():
        next_cursor = replace(events_cursor, sequence=events_cursor.sequence + 1)
        lake.change_events.transact(session, next_cursor, _delete_matching(moved, f"t.kind = '{Kind.UNDECODABLE}'"))
    rows = _select_moved(lake, lake.quarantine.read(session).where(F.col("stage") == decode.STAGE))
    reasons = Counter({row["reason"]: row["count"] for row in rows.groupBy("reason").count().collect()})
    if quarantine_cursor is not None and reasons:
        remaining = Counter(quarantine_cursor.reasons) - reasons
        sequence = quarantine_cursor.sequence + 1
        lake.quarantine.transact(
            session,
            replace(quarantine_cursor, sequence=sequence, rows=remaining.total(), reasons=dict(remaining)),
            _delete_matching(rows, f"t.stage = '{decode.STAGE}'"),
        )


def _select_moved(lake: Lakehouse, rows: DataFrame) -> DataFrame:
    """Return the rows whose record is in another batch now; records that maintenance has deleted have not moved."""
    cursor = lake.raw_records.cursor()
    records = lake.raw_records.read(rows.sparkSession).select(*_PLACE)
    is_kept = F.col("batch") > (cursor.trimmed if cursor else 0)
    return checkpointed(rows.where(is_kept).join(records, on=_PLACE, how="left_anti"))


def _delete_matching(rows: DataFrame, condition: str) -> Callable[[DeltaTable], object]:
    """Return a function that deletes the rows of a Delta table that meet `condition` and share a record with `rows`."""
    matches = " AND ".join([condition, *(f"t.{column} = s.{column}" for column in _PLACE)])
    places = rows.select(*_PLACE).distinct().alias("s")
    return lambda table: table.alias("t").merge(places, matches).whenMatchedDelete().execute()
