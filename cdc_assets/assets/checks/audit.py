"""The verdicts of the audit: the checks of a feed over everything that its tables hold, not only over one run."""

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.assets.checks import types
from cdc_assets.assets.checks.history import history_intervals
from cdc_assets.assets.checks.verdict import SHOWN, Verdict, compare_counts
from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import EventsCursor, Kind, Op
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import RawCursor
from cdc_assets.lakehouse.released_changes import ReleaseCursor, ReleasedKind
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.protocols import protocol_of
from cdc_assets.release.pending import is_pending
from cdc_assets.release.tables import taken_tables
from cdc_assets.release.watermarks import has_watermarks
from cdc_assets.spark.session import session_for
from cdc_assets.stages import decode
from cdc_assets.stages.history.verify import verify_all_versions
from cdc_assets.stages.type_verdicts import check_event_types
from cdc_assets.stages.types import make_audit_report


def each_record_once(lake: Lakehouse) -> Verdict:
    """Return whether raw_records has each (topic, partition, offset) once in each lifetime of its topic."""
    records = _read_all(lake, lake.raw_records)
    # A topic that is deleted and created again has the same offsets again.
    lifetime = F.lit(0)
    for topic, batches in _raw_cursor(lake).recreated.items():
        for batch in batches:
            lifetime += ((F.col("topic") == topic) & (F.col("batch") >= batch)).cast("int")
    counts = records.groupBy("topic", "partition", "offset", lifetime.alias("topic_lifetime")).count()
    rows = [row.asDict() for row in counts.where("count > 1").limit(SHOWN).collect()]
    description = "raw_records has each record once."
    if rows:
        description = (
            f"raw_records has at least {len(rows)} records more than once; the violations name them. Find out who wrote to "
            "the table by hand. If nobody did, the pipeline has a bug: report these records."
        )
    return Verdict(not rows, description, rows)


def all_records_decoded(lake: Lakehouse) -> Verdict:
    """Return whether every raw record has an event, and every undecodable event is in quarantine.

    Only the batches that are decoded and that maintenance has not deleted are counted.
    """
    records, events, quarantine = (
        _read_all(lake, table) for table in (lake.raw_records, lake.change_events, lake.quarantine)
    )
    cursor = _events_cursor(lake)
    after = max(_raw_cursor(lake).trimmed, cursor.trimmed)
    in_batches = (F.col("batch") > after) & (F.col("batch") <= cursor.batch)
    record_count = records.where(in_batches).count()
    # Every record has exactly one event of index 0, decodable or not, and maybe more events.
    first, undecodable = F.count_if(F.col("index") == 0), F.count_if(F.col("kind") == str(Kind.UNDECODABLE))
    counts = events.where(in_batches).agg(first, undecodable, F.count("*")).head() or (0, 0, 0)
    quarantined = quarantine.where(in_batches & (F.col("stage") == decode.STAGE)).count()
    return compare_counts(
        f"{record_count} records: {counts[2]} events, of which {counts[1]} are quarantined.",
        records=(record_count, counts[0]),
        quarantined=(counts[1], quarantined),
    )


def all_types_mapped(lake: Lakehouse, feed: Feed) -> tuple[Verdict, Verdict]:
    """Return the verdicts of mysql_type_mapping and jdbc_type_mapping over all events, from one pass over them."""
    events = _read_all(lake, lake.change_events).where(taken_tables(feed))
    observations = check_event_types(events, lake.schema_rows(), feed)
    report = make_audit_report(observations, protocol_of(feed).codes_called)
    return types.mysql_type_mapping(report), types.jdbc_type_mapping(report)


def all_events_placed(lake: Lakehouse, feed: Feed) -> Verdict:
    """Return whether all row events and all loaded rows are accounted for, and each released change is there once."""
    cursor = lake.released_changes.cursor()
    if cursor is None:
        return Verdict(passed=True, description="Nothing has been released yet.")
    events, released = _read_all(lake, lake.change_events), _read_all(lake, lake.released_changes)
    is_row = F.col("kind") == str(Kind.ROW)
    seen_events = events.where(is_row & (F.col("batch") <= cursor.batch))
    seen, pending = seen_events.agg(F.count("*"), F.count_if(is_pending(feed, cursor))).head() or (0, 0)
    counted = released.where(is_row | (F.col("kind") == str(ReleasedKind.REPEAT)))
    changes, repeats = counted.agg(F.sum("events"), F.sum("repeats")).head() or (0, 0)
    # Maintenance has deleted rows of both tables, and has counted them.
    seen += _events_cursor(lake).trimmed_rows
    changes, repeats = (changes or 0) + cursor.trimmed.events, (repeats or 0) + cursor.trimmed.repeats
    totals = cursor.totals
    late = totals.get("late_repeated", 0) + totals.get("late_unseen", 0)
    excluded, covered = totals.get("excluded", 0), totals.get("covered", 0)
    doubled = _find_doubled_changes(released.where(is_row), feed, cursor)
    verdict = compare_counts(
        f"{seen} row events: {changes} released, {repeats} duplicate, {late} late, {excluded} excluded, {covered} covered "
        f"by a load, {pending} pending.",
        row_events=(seen, changes + repeats + late + excluded + covered + pending),
        loaded=(sum(load.rows for load in cursor.loads), _count_loaded_rows(lake, cursor)),
        rows_seen=(totals.get("rows", 0), seen),
        released_twice=(0, len(doubled)),
    )
    return replace(verdict, metadata={**verdict.metadata, "stands_twice": doubled}) if doubled else verdict


def all_intervals(lake: Lakehouse, database: str, table: str) -> Verdict:
    """Return the verdict of history_intervals over all versions of a table."""
    return history_intervals(verify_all_versions(lake, database, table))


def _find_doubled_changes(changes: DataFrame, feed: Feed, cursor: ReleaseCursor) -> list[dict[str, Any]]:
    """Return at most `SHOWN` changes that released_changes has more than once, with their `count`.

    A key has one change a commit_ts, with two exceptions: a table without a key has equal rows, and a source without
    watermarks has a clock for a commit_ts. There each change is told from others by its record. A delete and an insert of
    one commit_ts are two changes unless the protocol joins them.
    """
    is_gated = has_watermarks(feed, cursor.partition_watermarks)
    several = (F.size("key_columns") == 0) | F.lit(not is_gated or cursor.ungated > 0)
    record = F.when(several, F.struct("topic", "partition", "offset", "index", "ordinal")).alias("record")
    is_delete = [] if protocol_of(feed).joins_pairs else [(F.col("op") == str(Op.DELETE)).alias("is_delete")]
    counts = changes.groupBy("database", "table", "key", "commit_ts", record, *is_delete).count().where("count > 1")
    doubled = counts.select("database", "table", "key", "commit_ts", "count").limit(SHOWN)
    return [row.asDict() for row in doubled.collect()]


def _count_loaded_rows(lake: Lakehouse, cursor: ReleaseCursor) -> int:
    """Return how many rows of loads the tables have, those in released_changes and the typed ones."""
    in_changes = sum(file.rows for file in lake.released_changes.files(kind=str(ReleasedKind.LOADED)))
    typed = [lake.loaded_rows(e.database, e.table).list_staged(e.folder).rows for e in cursor.loads if e.folder]
    return in_changes + sum(typed)


def _read_all(lake: Lakehouse, table: LakeTable[Any]) -> DataFrame:
    return table.read(session_for(lake.spark, sum(file.rows for file in table.files())))


def _raw_cursor(lake: Lakehouse) -> RawCursor:
    return lake.raw_records.cursor() or RawCursor(sequence=0)


def _events_cursor(lake: Lakehouse) -> EventsCursor:
    return lake.change_events.cursor() or EventsCursor(sequence=0)
