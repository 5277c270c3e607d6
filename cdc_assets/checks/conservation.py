"""The conservation law: nothing is lost between a stage's input and its output.

Each check counts what came in and what came out, in the tables as they stand after the commit.
"""

from pyspark.sql import functions as F

from cdc_assets.checks.verdict import SHOWN, Verdict, balance
from cdc_assets.gate.release import ReleaseReport
from cdc_assets.history.apply import BROADCAST_CHANGES, COPY, TableReport
from cdc_assets.lakehouse import Lakehouse
from cdc_assets.protocols import decode
from cdc_assets.protocols.events import Kind, Op
from cdc_assets.sources import ingest
from cdc_assets.sources.ingest import IngestReport


def records_taken(lake: Lakehouse, report: IngestReport) -> Verdict:
    """Every record read, and every line of a file, is a record that the table holds, or is in quarantine."""
    if report.batch is None:
        return Verdict(passed=True, description="Nothing is new.")
    mine = (F.col("stage") == ingest.STAGE) & (F.col("batch") == report.batch)
    return balance(
        f"{report.lines} read: {report.taken} records taken in, {report.held_before} held before, "
        f"{report.quarantined} quarantined.",
        records=(report.records, report.taken + report.held_before),
        quarantined=(report.quarantined, lake.quarantine.read().where(mine).count() if report.quarantined else 0),
    )


def records_decoded(lake: Lakehouse, after: int, through: int) -> Verdict:
    """Every raw record of the batches in (after, through] is decoded, or is in quarantine."""
    if after >= through:
        return Verdict(passed=True, description="No record is new.")
    within = (F.col("batch") > after) & (F.col("batch") <= through)
    records = lake.raw_records.read().where(within).count()
    # Every record has exactly one event of index 0, whatever came of it, and maybe more.
    first, bad = F.col("index") == 0, F.col("kind") == str(Kind.UNDECODABLE)
    found = lake.change_events.read().where(within).agg(F.count_if(first), F.count_if(bad), F.count("*")).head() or (
        0,
        0,
        0,
    )
    mine = within & (F.col("stage") == decode.STAGE)
    quarantined = lake.quarantine.read().where(mine).count() if found[1] else 0
    return balance(
        f"{records} records: {found[2]} events, of which {found[1]} are quarantined.",
        records=(records, found[0]),
        quarantined=(found[1], quarantined),
    )


def events_placed(report: ReleaseReport) -> Verdict:
    """Every row event is exactly one of released, duplicate, late, pending, or of a table that the feed leaves out."""
    late = report.late_repeated + report.late_unseen
    return balance(
        f"{report.rows} new and {report.pending_before} pending row events: {report.released} released, "
        f"{report.duplicate} duplicate, {late} late, {report.excluded} excluded, {report.pending} pending.",
        row_events=(report.rows + report.pending_before, report.window + report.excluded + late + report.pending),
        window=(report.window, report.released + report.duplicate),
    )


def changes_reflected(lake: Lakehouse, report: TableReport) -> Verdict:
    """After its last change a key has an open version, or none if that change was a delete."""
    within = (F.col("release") > report.after) & (F.col("release") <= report.through)
    mine = (F.col("database") == report.database) & (F.col("table") == report.table) & (F.col("kind") == str(Kind.ROW))
    place = ["op", "topic", "partition", "offset"]
    changes = lake.released_changes.read().where(within & mine)
    history = lake.history(report.database, report.table).read()
    current = history.where(F.col("_cdc_is_current") == F.lit(True)).select(F.col("_cdc_key").alias("key"))
    keys = changes.select("key")
    touched = F.broadcast(keys) if report.changes <= BROADCAST_CHANGES else keys
    # One shuffle for both: the changes of a key, and its open versions.
    both = changes.select(
        "key", F.struct(*place).alias("change"), F.struct("commit_ts", "release", "ordinal", "offset").alias("at")
    ).unionByName(current.join(touched, on="key", how="left_semi"), allowMissingColumns=True)
    found = both.groupBy("key").agg(
        F.max_by("change", "at").alias("last"), F.count_if(F.col("change").isNull()).alias("found_open")
    )
    wanted = F.when(F.col("last.op") == str(Op.DELETE), 0).otherwise(1)
    opened = F.col("found_open")
    # Of equal rows in a table without a key, others may be open after a delete.
    broken = (wanted > 0) & (opened == 0) if COPY in history.columns else opened != wanted
    wrong = found.where(broken).select("key", "last.*", wanted.alias("expected_open"), "found_open")
    shown = [r.asDict() for r in wrong.limit(SHOWN).collect()]
    description = f"{report.changes} changes: {report.opened} versions opened, {report.closed} of before closed."
    return Verdict(not shown, description, shown, {"changes": report.changes})
