"""The audit: every promise of a feed's tables, checked over everything they hold."""

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.assets.checks import types
from cdc_assets.assets.checks.history import intervals
from cdc_assets.assets.checks.verdict import SHOWN, Verdict, balance
from cdc_assets.config import Feed
from cdc_assets.history.verify import wrong_versions
from cdc_assets.lakehouse.change_events import EventsCursor, Kind, Op
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import RawCursor
from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.protocols import protocol_of
from cdc_assets.release.choose import has_watermarks
from cdc_assets.release.pending import is_pending
from cdc_assets.release.tables import taken_tables
from cdc_assets.spark.session import session_for
from cdc_assets.stages import decode
from cdc_assets.stages.types import judged, report_of


def each_record_once(lake: Lakehouse) -> Verdict:
    """No (topic, partition, offset) stands in raw_records twice; those of a topic created again are others."""
    records = _rows(lake, lake.raw_records)
    # Which of the topics of one name a record is from: how often that topic had been begun anew.
    which = F.lit(0)
    for topic, batches in _raw_cursor(lake).recreated.items():
        for batch in batches:
            which += ((F.col("topic") == topic) & (F.col("batch") >= batch)).cast("int")
    repeated = records.groupBy("topic", "partition", "offset", which.alias("which")).count().where("count > 1")
    rows = [r.asDict() for r in repeated.limit(SHOWN).collect()]
    told = f"{len(rows)} or more records stand there twice." if rows else "Each record stands once."
    return Verdict(not rows, told, rows)


def all_records_decoded(lake: Lakehouse) -> Verdict:
    """Every raw record that change_events says it has read is decoded or in quarantine, of batches that both still have."""
    records, events, held = (_rows(lake, t) for t in (lake.raw_records, lake.change_events, lake.quarantine))
    cursor = _events_cursor(lake)
    after = max(_raw_cursor(lake).trimmed, cursor.trimmed)
    within = (F.col("batch") > after) & (F.col("batch") <= cursor.batch)
    taken = records.where(within).count()
    # Every record has exactly one event of index 0, whatever came of it, and maybe more.
    first, bad = F.count_if(F.col("index") == 0), F.count_if(F.col("kind") == str(Kind.UNDECODABLE))
    found = events.where(within).agg(first, bad, F.count("*")).head() or (0, 0, 0)
    mine = within & (F.col("stage") == decode.STAGE)
    quarantined = held.where(mine).count()
    return balance(
        f"{taken} records: {found[2]} events, of which {found[1]} are quarantined.",
        records=(taken, found[0]),
        quarantined=(found[1], quarantined),
    )


def all_types_mapped(lake: Lakehouse, feed: Feed) -> tuple[Verdict, Verdict]:
    """The mysqlType and the JDBC mapping over all events, in one pass over them."""
    events = _rows(lake, lake.change_events).where(taken_tables(feed))
    report = report_of(judged(events, lake.schema_rows(), feed), protocol_of(feed).codes_called)
    return types.mysql_types(report), types.codes(report)


def all_events_placed(lake: Lakehouse, feed: Feed) -> Verdict:
    """All row events of change_events are accounted for, and so are the rows of loads; released ones stand once."""
    cursor = lake.released_changes.cursor()
    if cursor is None:
        return Verdict(passed=True, description="Nothing has been released yet.")
    gated = has_watermarks(feed, cursor.partition_watermarks)
    every, changed = _rows(lake, lake.change_events), _rows(lake, lake.released_changes)
    row = F.col("kind") == str(Kind.ROW)
    events = every.where(row & (F.col("batch") <= cursor.batch))
    counted = events.agg(F.count("*"), F.count_if(is_pending(feed, cursor))).head() or (0, 0)
    changes = changed.where(row)
    found = changed.where(row | (F.col("kind") == str(ReleasedKind.REPEAT))).agg(
        F.sum("events"), F.sum("repeats")
    ).head() or (0, 0)
    # With what maintenance has deleted of both tables, and counted.
    rows = counted[0] + _events_cursor(lake).trimmed_rows
    released = (found[0] or 0) + cursor.trimmed.events, (found[1] or 0) + cursor.trimmed.repeats
    # One change a key and commit_ts; but equal rows of a table without a key, and sources whose commit_ts is a clock's
    # second, have several, each from a record of its own; and a delete and an insert at one time may be two changes.
    several = (F.size("key_columns") == 0) | F.lit(not gated or cursor.ungated > 0)
    record = F.when(several, F.struct("topic", "partition", "offset", "index", "ordinal")).alias("record")
    apart = [] if protocol_of(feed).joins_pairs else [(F.col("op") == str(Op.DELETE)).alias("gone")]
    twice = changes.groupBy("database", "table", "key", "commit_ts", record, *apart).count().where("count > 1")
    shown = [r.asDict() for r in twice.select("database", "table", "key", "commit_ts", "count").limit(SHOWN).collect()]
    totals = cursor.totals
    late = totals.get("late_repeated", 0) + totals.get("late_unseen", 0)
    excluded, covered = totals.get("excluded", 0), totals.get("covered", 0)
    loads = sum(each.rows for each in cursor.loads)
    typed = [lake.loaded_rows(e.database, e.table).list_staged(e.folder).rows for e in cursor.loads if e.folder]
    held = sum(f.rows for f in lake.released_changes.files(kind=str(ReleasedKind.LOADED))) + sum(typed)
    verdict = balance(
        f"{rows} row events: {released[0]} released, {released[1]} duplicate, {late} late, "
        f"{excluded} excluded, {covered} covered by a load, {counted[1]} pending.",
        row_events=(rows, sum(released) + late + excluded + covered + counted[1]),
        loaded=(loads, held),
        rows_seen=(totals.get("rows", 0), rows),
        released_twice=(0, len(shown)),
    )
    return replace(verdict, metadata={**verdict.metadata, "stands_twice": shown}) if shown else verdict


def all_intervals(lake: Lakehouse, database: str, table: str) -> Verdict:
    """The rules of the intervals, over all versions of a table."""
    return intervals(wrong_versions(lake, database, table))


def _rows(lake: Lakehouse, table: LakeTable[Any]) -> DataFrame:
    """All rows that a table has."""
    return table.read(session_for(lake.spark, sum(file.rows for file in table.files())))


def _raw_cursor(lake: Lakehouse) -> RawCursor:
    return lake.raw_records.cursor() or RawCursor(sequence=0)


def _events_cursor(lake: Lakehouse) -> EventsCursor:
    return lake.change_events.cursor() or EventsCursor(sequence=0)
