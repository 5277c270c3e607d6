"""Replay of the quarantine: records that could not be decoded are tried again, as after an update of the decoder.

A record that now decodes becomes part of a new batch of raw_records, as if it had come just now. The pipeline's next run
decodes it and the gate puts it in its place. That only goes while the place is still ahead: a record whose table has been
released past it stays where it is, and is reported.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import standing
from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.lakehouse.schema import BIGINT, INT, STRING, frame_of, struct
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.payload import unpack
from cdc_assets.release.base import positions
from cdc_assets.release.choose import has_watermarks
from cdc_assets.release.watermark import bound
from cdc_assets.spark.session import settled
from cdc_assets.stages import decode
from cdc_assets.stages.decoding import decode_records

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
        RegistryError: the feed's schema registry does not answer.
    """
    raw, cursor = lake.raw_records, standing(lake.raw_records)
    if cursor is None or not lake.change_events.exists():
        return ReplayReport()
    session, protocol = lake.spark.newSession(), protocol_of(feed)
    _forget_moved(lake, session)
    whole = (F.col("kind") == str(Kind.UNDECODABLE)) & (F.col("index") == 0)
    bad = lake.change_events.read(session).where(whole).select(*_PLACE)
    held = raw.read(session).join(F.broadcast(bad), on=_PLACE, how="left_semi")
    judged = [
        record
        for events in decode_records(lake, feed, unpack(held, protocol.envelope(feed)))
        for record in events.withColumn("past", _passed(lake, session, feed))
        .groupBy(*_PLACE)
        .agg(
            F.count_if(F.col("kind") == str(Kind.UNDECODABLE)).alias("undecodable"),
            F.count_if("past").alias("past"),
            *[F.first(c, ignorenulls=True).alias(c) for c in ("database", "table", "commit_ts")],
        )
        .collect()
    ]
    good = [r for r in judged if not r["undecodable"]]
    chosen = [{c: r[c] for c in _PLACE} for r in good if not r["past"]]
    passed = [r.asDict() for r in good if r["past"]]
    if chosen:
        number = cursor.sequence + 1
        rows = frame_of(session, chosen, struct(batch=BIGINT, topic=STRING, partition=INT, offset=BIGINT))
        same = " AND ".join(f"t.{c} = s.{c}" for c in _PLACE)
        moved = {"batch": F.lit(number).cast("bigint")}
        raw.transact(
            session,
            replace(cursor, sequence=number),
            lambda t: t.alias("t").merge(rows.alias("s"), same).whenMatchedUpdate(set=dict(moved)).execute(),
        )
        _forget_moved(lake, session)
    return ReplayReport(len(judged), len(chosen), passed)


def _passed(lake: Lakehouse, session: SparkSession, feed: Feed) -> Column:
    """Whether an event's place in its table's order has been released already. BOOLEAN, never NULL."""
    cursor = lake.released_changes.cursor()
    change = F.col("kind").isin(str(Kind.ROW), str(Kind.DDL))
    if cursor is None:
        return F.lit(False)
    if has_watermarks(feed, cursor.partition_watermarks):
        released = F.col("commit_ts") < bound(cursor.watermarks, positions(cursor.holds, "commit_ts"))
        return F.coalesce(change & released, F.lit(False))
    changes = lake.released_changes.read(session).where(F.col("kind") != str(ReleasedKind.LAYOUT))
    newest = changes.groupBy("database", "table").agg(F.max("commit_ts").alias("newest")).collect()
    # Of a table's changes that maintenance has deleted, no more is known than where they end.
    reached = F.lit(cursor.trimmed.highest).cast("bigint")
    for r in newest:
        here = F.col("database").eqNullSafe(r["database"]) & F.col("table").eqNullSafe(r["table"])
        reached = F.when(here, F.lit(max(r["newest"], cursor.trimmed.highest))).otherwise(reached)
    return F.coalesce(change & (F.col("commit_ts") <= reached), F.lit(False))


def _forget_moved(lake: Lakehouse, session: SparkSession) -> None:
    """Remove from change_events and quarantine what they say of records that are in another batch by now."""
    decoded, kept = lake.change_events.cursor(), lake.quarantine.cursor()
    events = _moved(lake, lake.change_events.read(session).where(F.col("kind") == str(Kind.UNDECODABLE)))
    if decoded is not None and not events.isEmpty():
        advanced = replace(decoded, sequence=decoded.sequence + 1)
        forget = _without(events, f"t.kind = '{Kind.UNDECODABLE}'")
        lake.change_events.transact(session, advanced, forget)
    rows = _moved(lake, lake.quarantine.read(session).where(F.col("stage") == decode.STAGE))
    reasons = Counter({r["reason"]: r["count"] for r in rows.groupBy("reason").count().collect()})
    if kept is not None and reasons:
        left = Counter(kept.reasons) - reasons
        forget = _without(rows, f"t.stage = '{decode.STAGE}'")
        lake.quarantine.transact(
            session,
            replace(kept, sequence=kept.sequence + 1, rows=left.total(), reasons=dict(left)),
            forget,
        )


def _moved(lake: Lakehouse, rows: DataFrame) -> DataFrame:
    """Those whose record is in another batch; of records that maintenance has deleted, which are in none, none."""
    cursor = lake.raw_records.cursor()
    held = lake.raw_records.read(rows.sparkSession).select(*_PLACE)
    there = F.col("batch") > (cursor.trimmed if cursor else 0)
    return settled(rows.where(there).join(held, on=_PLACE, how="left_anti"))


def _without(rows: DataFrame, condition: str) -> Callable[[DeltaTable], object]:
    """Deletes the rows of a table that are about the records of these."""
    same = " AND ".join([condition, *(f"t.{c} = s.{c}" for c in _PLACE)])
    places = rows.select(*_PLACE).distinct().alias("s")
    return lambda table: table.alias("t").merge(places, same).whenMatchedDelete().execute()
