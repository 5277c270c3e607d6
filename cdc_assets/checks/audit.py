"""The audit: every promise of a feed's tables, checked over everything they hold."""

from dataclasses import replace

from pyspark.sql import functions as F

from cdc_assets.checks.conservation import records_decoded
from cdc_assets.checks.type_mapping import check_types
from cdc_assets.checks.verdict import SHOWN, Verdict, balance
from cdc_assets.feeds import Feed
from cdc_assets.gate.transactions import held_back
from cdc_assets.gate.window import gate_of, waiting_tables
from cdc_assets.lakehouse import Lakehouse
from cdc_assets.protocols import has_watermarks
from cdc_assets.protocols.events import Kind


def each_record_once(lake: Lakehouse) -> Verdict:
    """No (topic, partition, offset) stands in raw_records twice; those of a topic created again are others."""
    # Which of the topics of one name a record is from: how often that topic had been begun anew.
    which = F.lit(0)
    for topic, batches in (lake.raw_records.cursor() or {}).get("begun_anew", {}).items():
        for batch in batches:
            which += ((F.col("topic") == topic) & (F.col("batch") >= batch)).cast("int")
    repeated = (
        lake.raw_records.read().groupBy("topic", "partition", "offset", which.alias("which")).count().where("count > 1")
    )
    rows = [r.asDict() for r in repeated.limit(SHOWN).collect()]
    return Verdict(
        not rows, f"{len(rows)} or more records stand there twice." if rows else "Each record stands once.", rows
    )


def all_records_decoded(lake: Lakehouse) -> Verdict:
    """Every raw record that change_events says it has read is decoded or in quarantine."""
    trimmed = (lake.raw_records.cursor() or {}).get("trimmed", 0)
    return records_decoded(lake, trimmed, (lake.change_events.cursor() or {"batch": 0})["batch"])


def all_types_mapped(lake: Lakehouse, feed: Feed) -> tuple[Verdict, Verdict]:
    """The mysqlType and the JDBC mapping over all events."""
    verdicts = check_types(lake.change_events.read(), feed)
    return verdicts.mysql_types, verdicts.codes


def all_events_placed(lake: Lakehouse, feed: Feed) -> Verdict:
    """All row events of change_events are released, duplicate, late, excluded or pending; released ones stand once."""
    cursor = lake.released_changes.cursor()
    if cursor is None:
        return Verdict(passed=True, description="Nothing has been released yet.")
    row = F.col("kind") == str(Kind.ROW)
    above = F.col("commit_ts") >= gate_of(cursor["watermarks"], waiting_tables(cursor))
    gated, ungated = has_watermarks(feed, cursor["partition_watermarks"]), cursor["ungated"]
    pending = above & (F.col("batch") > ungated) if gated else held_back(cursor["transactions"]["bounds"])
    events = lake.change_events.read().where(row & (F.col("batch") <= cursor["batch"]))
    counted = events.agg(F.count("*"), F.count_if(pending)).head() or (0, 0)
    changes = lake.released_changes.read().where(row)
    released = changes.agg(F.sum("events"), F.sum("repeats")).head() or (0, 0)
    # One change a key and commit_ts; but equal rows of a table without a key, and sources whose commit_ts is a clock's
    # second, have several, each from a record of its own.
    several = (F.size("key_columns") == 0) | F.lit(not gated or ungated > 0)
    record = F.when(several, F.struct("topic", "partition", "offset", "index", "ordinal")).alias("record")
    twice = changes.groupBy("database", "table", "key", "commit_ts", record).count().where("count > 1")
    shown = [r.asDict() for r in twice.select("database", "table", "key", "commit_ts", "count").limit(SHOWN).collect()]
    totals = cursor["totals"]
    late = totals["late_repeated"] + totals["late_unseen"]
    window = (released[0] or 0) + (released[1] or 0)
    verdict = balance(
        f"{counted[0]} row events: {released[0] or 0} released, {released[1] or 0} duplicate, {late} late, "
        f"{totals['excluded']} excluded, {counted[1]} pending.",
        row_events=(counted[0], window + late + totals["excluded"] + counted[1]),
        rows_seen=(totals["rows"], counted[0]),
        released_twice=(0, len(shown)),
    )
    return replace(verdict, metadata={**verdict.metadata, "stands_twice": shown}) if shown else verdict
