"""The stage change_events: new raw records decoded into change events, in one pass and one commit."""

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import CONTRADICTS_SETTINGS, EventsCursor, Kind
from cdc_assets.lakehouse.cursor import CursorError
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.table import Staged
from cdc_assets.protocols import protocol_of, recognize_settings
from cdc_assets.protocols.payload import decompress
from cdc_assets.spark.session import session_for
from cdc_assets.stages.decoding import decode_records
from cdc_assets.stages.quarantining import quarantine

STAGE = "decode"
_SET_AND_REPLAY = "set that in the feeds file, and run the job replay_quarantine"


@dataclass(frozen=True)
class DecodeReport:
    """What one run of the stage did with the raw batches in (after, through].

    Attributes:
        after: the last batch that an earlier run decoded.
        through: the last batch that this run decoded.
        records: the records of these batches.
        decoded: those of them with at least one event.
        events: the number of events by kind.
        in_quarantine: the undecodable events of these batches that the quarantine holds.
        contradicting: events of all batches so far whose messages contradict the feed's settings.
        contradiction: topic, partition and offset of the first record with such an event.
    """

    after: int = 0
    through: int = 0
    records: int = 0
    decoded: int = 0
    events: dict[str, int] = field(default_factory=dict)
    in_quarantine: int = 0
    contradicting: int = 0
    contradiction: dict[str, Any] | None = None

    @property
    def undecodable(self) -> int:
        """The number of events that could not be decoded."""
        return self.events.get(Kind.UNDECODABLE, 0)


class Decode:
    """Decode the raw batches that no run has decoded yet."""

    name = "change_events"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:  # noqa: ARG002 -- every stage has the same signature
        """Return whether there are raw records that no run has decoded."""
        return bool(_new_files(lake, _cursor(lake).batch))

    def run(self, lake: Lakehouse, feed: Feed) -> DecodeReport:
        """Decode new records: quarantine the undecodable ones, then commit all events to change_events at once.

        Raises:
            ConcurrentRunError: another run decoded these batches meanwhile.
            RegistryError: the feed's schema registry does not answer.
            CursorError: the table has events of another protocol.
        """
        cursor = _cursor(lake)
        files = _new_files(lake, cursor.batch)
        if not files:
            return DecodeReport(
                cursor.batch, cursor.batch, contradicting=cursor.contradicting, contradiction=cursor.contradiction
            )
        if cursor.protocol not in ("", feed.protocol):
            raise CursorError(
                f"{lake.change_events.name} has events of protocol {cursor.protocol}, but the feeds file says protocol: "
                f"{feed.protocol}. Keys, times and types of two protocols differ, so their events cannot be mixed: set "
                f"protocol: {cursor.protocol} for the feed {lake.feed}, and begin another feed for the other protocol."
            )
        protocol, through = protocol_of(feed), max(f.high["batch"] for f in files)
        spark = session_for(lake.spark, sum(f.rows for f in files) * protocol.events_a_record)
        for setting in protocol.settings.items():
            spark.conf.set(*setting)
        raw = lake.raw_records.read_files(spark, files).where(_between(cursor.batch, through))
        if any(f.nulls.get("compressed") != f.rows for f in files):
            raw = decompress(raw, protocol.envelope(feed))
        events = reduce(add, map(lake.change_events.stage, decode_records(lake, feed, raw)))
        undecodable = events.in_partition(kind=str(Kind.UNDECODABLE))
        quarantined = _quarantine(lake, feed, undecodable, cursor.batch, through) if undecodable.files else 0
        kinds = {f.partition["kind"] for f in events.files}
        shown = cursor.protocol or (feed.protocol if kinds & {Kind.ROW, Kind.DDL, Kind.WATERMARK} else "")
        advanced = replace(cursor, sequence=cursor.sequence + 1, batch=through, protocol=shown)
        if protocol.denied_setting(feed) is not None:
            advanced = _with_contradictions(lake, advanced, events)
        lake.change_events.commit(events, advanced)
        counts = Counter[str]()
        for file in events.files:
            counts[file.partition["kind"]] += file.rows
        return DecodeReport(
            after=cursor.batch,
            through=through,
            records=_count_records(lake, files, cursor.batch, through),
            decoded=sum(f.rows - f.nulls["record_bytes"] for f in events.files),
            events={kind: counts[kind] for kind in Kind if counts[kind]},
            in_quarantine=quarantined,
            contradicting=advanced.contradicting,
            contradiction=advanced.contradiction,
        )


def _cursor(lake: Lakehouse) -> EventsCursor:
    return lake.change_events.cursor() or EventsCursor(sequence=0)


def _new_files(lake: Lakehouse, after: int) -> list[DataFile]:
    """Return the files of raw_records that hold later batches than `after`."""
    return [f for f in lake.raw_records.files() if f.rows and f.high["batch"] > after]


def _between(after: int, through: int) -> Column:
    """Return BOOLEAN: whether a row's batch is in (after, through]."""
    return (F.col("batch") > after) & (F.col("batch") <= through)


def _count_records(lake: Lakehouse, files: list[DataFile], after: int, through: int) -> int:
    """Return the number of records of the batches in (after, through]."""
    # After maintenance compacted files, a file may hold earlier batches too.
    if all(f.low["batch"] > after for f in files):
        return sum(f.rows for f in files)
    return lake.raw_records.read(lake.spark).where(_between(after, through)).count()


def _with_contradictions(lake: Lakehouse, cursor: EventsCursor, staged: Staged) -> EventsCursor:
    """Return the cursor with the staged events added that contradict the feed's settings."""
    # An undecodable event's detail has another meaning.
    decoded = [f for f in staged.files if f.partition["kind"] != Kind.UNDECODABLE]
    marked = [f for f in decoded if f.rows > f.nulls.get("detail", 0)]
    if not marked:
        return cursor
    count = sum(f.rows - f.nulls.get("detail", 0) for f in marked)
    first = cursor.contradiction
    if first is None:
        spark = session_for(lake.spark, sum(f.rows for f in marked))
        events = lake.change_events.read_staged(spark, Staged(marked))
        events = events.where(F.col("detail") == CONTRADICTS_SETTINGS)
        lowest = events.agg(F.min(F.struct("topic", "partition", "offset")).alias("place")).collect()[0]["place"]
        first = lowest.asDict() if lowest else None
    return replace(cursor, contradicting=cursor.contradicting + count, contradiction=first)


def _quarantine(lake: Lakehouse, feed: Feed, undecodable: Staged, after: int, through: int) -> int:
    """Copy undecodable events into quarantine with their records' keys and values; return their number in quarantine.

    If a record looks as if it were written under other settings, its message names these settings.
    """
    spark = session_for(lake.spark, undecodable.rows)
    coordinates = ["batch", "topic", "partition", "offset"]
    reasons = lake.change_events.read_staged(spark, undecodable).select(*coordinates, "index", "reason", "detail")
    records = lake.raw_records.read(spark).where(_between(after, through)).select(*coordinates, "key", "value")
    settings = recognize_settings(feed)
    hint = F.concat(F.lit("the record looks like one of "), settings, F.lit(f": {_SET_AND_REPLAY}"))
    detail = F.nullif(F.concat_ws("; ", F.col("detail"), hint), F.lit(""))
    rows = records.join(F.broadcast(reasons), on=coordinates).withColumn("detail", detail)
    return quarantine(lake, rows, STAGE, after, through)
