"""Replay of the quarantine: records that could not be decoded are tried again, as after an update of the decoder.

A record that now decodes becomes part of a new batch of raw_records, as if it had come just now. The pipeline's next run
decodes it and the gate puts it in its place. That only goes while the place is still ahead: a record whose table has been
released past it stays where it is, and is reported.
"""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.gate.window import gate_of, waiting_tables
from cdc_assets.lakehouse import Lakehouse, next_sequence
from cdc_assets.protocols import DECODERS, decode, has_watermarks
from cdc_assets.protocols.events import Kind
from cdc_assets.protocols.payload import unpack

_PLACE = ["batch", "topic", "partition", "offset"]


@dataclass(frozen=True)
class ReplayReport:
    """What became of the records in quarantine that could not be decoded."""

    tried: int = 0
    replayed: int = 0  # decode now, and are in the next run's batch
    passed: list[dict[str, Any]] = field(default_factory=list)  # decode now, but their table has moved past them


def replay_quarantine(lake: Lakehouse, feed: Feed) -> ReplayReport:
    """Try again the records of which nothing could be decoded; those of which one event could not are for a rebuild.

    A replay that died is completed by the next.

    Raises:
        ConcurrentRunError: a run took in records meanwhile: replay again.
    """
    raw, cursor = lake.raw_records, lake.raw_records.cursor()
    if cursor is None or not lake.change_events.exists():
        return ReplayReport()
    _forget_moved(lake)
    whole = (F.col("kind") == str(Kind.UNDECODABLE)) & (F.col("index") == 0)
    bad = lake.change_events.read().where(whole).select(*_PLACE)
    held = raw.read().join(F.broadcast(bad), on=_PLACE, how="left_semi")
    events = DECODERS[feed.protocol](unpack(held, feed.wire), feed)
    judged = (
        events.withColumn("past", _passed(lake, feed))
        .groupBy(*_PLACE)
        .agg(
            F.count_if(F.col("kind") == str(Kind.UNDECODABLE)).alias("undecodable"),
            F.count_if("past").alias("past"),
            *[F.first(c, ignorenulls=True).alias(c) for c in ("database", "table", "commit_ts")],
        )
        .collect()
    )
    good = [r for r in judged if not r["undecodable"]]
    chosen = [tuple(r[c] for c in _PLACE) for r in good if not r["past"]]
    passed = [r.asDict() for r in good if r["past"]]
    if chosen:
        number = next_sequence(cursor)
        rows = lake.spark.createDataFrame(chosen, "batch BIGINT, topic STRING, partition INT, offset BIGINT")
        same = " AND ".join(f"t.{c} = s.{c}" for c in _PLACE)
        with raw.transaction(cursor | {"sequence": number, "packed": number}):
            merge = raw.delta().alias("t").merge(rows.alias("s"), same)
            merge.whenMatchedUpdate(set={"batch": F.lit(number).cast("bigint")}).execute()
        _forget_moved(lake)
    return ReplayReport(len(judged), len(chosen), passed)


def _passed(lake: Lakehouse, feed: Feed) -> Column:
    """Whether an event's place in its table's order has been released already. BOOLEAN, never NULL."""
    released = lake.released_changes.cursor()
    change = F.col("kind").isin(str(Kind.ROW), str(Kind.DDL))
    if released is None:
        return F.lit(False)
    if has_watermarks(feed, released["partition_watermarks"]):
        return F.coalesce(
            change & (F.col("commit_ts") < gate_of(released["watermarks"], waiting_tables(released))), F.lit(False)
        )
    newest = lake.released_changes.read().groupBy("database", "table").agg(F.max("commit_ts").alias("newest")).collect()
    reached = F.lit(None).cast("bigint")
    for r in newest:
        here = F.col("database").eqNullSafe(r["database"]) & F.col("table").eqNullSafe(r["table"])
        reached = F.when(here, F.lit(r["newest"])).otherwise(reached)
    return F.coalesce(change & (F.col("commit_ts") <= reached), F.lit(False))


def _forget_moved(lake: Lakehouse) -> None:
    """Remove from change_events and quarantine what they say of records that are in another batch by now."""
    held = lake.raw_records.read().select(*_PLACE)
    # Records that maintenance has deleted are in no batch at all.
    trimmed = (lake.raw_records.cursor() or {}).get("trimmed", 0)
    mine = {"kind": (lake.change_events, str(Kind.UNDECODABLE)), "stage": (lake.quarantine, decode.STAGE)}
    for column, (table, value) in mine.items():
        rows = table.read().where((F.col(column) == value) & (F.col("batch") > trimmed))
        moved = rows.select(*_PLACE).join(held, on=_PLACE, how="left_anti").distinct()
        if not moved.isEmpty():
            same = " AND ".join([f"t.{column} = '{value}'", *(f"t.{c} = s.{c}" for c in _PLACE)])
            table.delta().alias("t").merge(moved.alias("s"), same).whenMatchedDelete().execute()
