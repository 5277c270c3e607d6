"""The stage change_events: new raw records decoded into change events, in one pass and one commit."""

from collections import Counter
from dataclasses import dataclass, field

from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.payload import unpack
from cdc_assets.session import session_for
from cdc_assets.stages.quarantining import quarantine
from cdc_assets.tables.change_events import EventsCursor, Kind
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.log import DataFile

STAGE = "decode"


@dataclass(frozen=True)
class DecodeReport:
    """What one run of the stage did: events by kind, over the raw batches in (after, through]."""

    after: int = 0
    through: int = 0
    records: int = 0  # of these batches
    decoded: int = 0  # records that have an event
    events: dict[str, int] = field(default_factory=dict)
    in_quarantine: int = 0  # undecodable events of these batches that are in quarantine

    @property
    def undecodable(self) -> int:
        """How many events could not be decoded."""
        return self.events.get(Kind.UNDECODABLE, 0)


class Decode:
    """Decodes the raw batches that are not decoded yet."""

    name = "change_events"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:  # noqa: ARG002 -- every stage has the same signature
        """Whether there are raw records that are not decoded, or that are and did not reach quarantine."""
        cursor = _cursor(lake)
        return bool(_new_records(lake, cursor.batch)) or bool(_unsettled(lake, cursor))

    def idle(self, lake: Lakehouse) -> DecodeReport:
        """The report of a run that finds nothing new."""
        batch = _cursor(lake).batch
        return DecodeReport(batch, batch)

    def run(self, lake: Lakehouse, feed: Feed) -> DecodeReport:
        """Decode them: one commit to change_events; what cannot be decoded goes into quarantine right after it.

        A run that dies between the two leaves the second to the next, which finds in the log that it is owed.

        Raises:
            ConcurrentRunError: another run decoded these batches meanwhile.
        """
        cursor = _cursor(lake)
        if owed := _unsettled(lake, cursor):
            _quarantine(lake, owed)
        files = _new_records(lake, cursor.batch)
        if not files:
            return self.idle(lake)
        protocol, through = protocol_of(feed), max(f.high["batch"] for f in files)
        spark = session_for(lake.spark, sum(f.rows for f in files) * protocol.events_a_record)
        raw = lake.raw_records.scan(spark, files).where(F.col("batch") > cursor.batch)
        if any(f.nulls.get("compressed") != f.rows for f in files):
            raw = unpack(raw, protocol.envelope(feed))
        advanced = EventsCursor(sequence=cursor.sequence + 1, batch=through)
        lake.change_events.append(protocol.decode(raw, feed), advanced)
        made = [f for f in lake.change_events.files() if f.low["batch"] > cursor.batch]
        undecodable = [f for f in made if f.partition["kind"] == Kind.UNDECODABLE]
        events = Counter[str]()
        for file in made:
            events[file.partition["kind"]] += file.rows
        return DecodeReport(
            after=cursor.batch,
            through=through,
            records=_records(lake, files, cursor.batch),
            decoded=sum(f.rows - f.nulls["record_bytes"] for f in made),
            events=dict(events),
            in_quarantine=_quarantine(lake, undecodable) if undecodable else 0,
        )


def _cursor(lake: Lakehouse) -> EventsCursor:
    return lake.change_events.cursor() or EventsCursor(sequence=0)


def _new_records(lake: Lakehouse, after: int) -> list[DataFile]:
    """The files with records of later batches."""
    return [f for f in lake.raw_records.files() if f.rows and f.high["batch"] > after]


def _records(lake: Lakehouse, files: list[DataFile], after: int) -> int:
    """How many records of later batches the files hold; only where maintenance put files together is there more to it."""
    if all(f.low["batch"] > after for f in files):
        return sum(f.rows for f in files)
    return lake.raw_records.scan(lake.spark, files).where(F.col("batch") > after).count()


def _unsettled(lake: Lakehouse, cursor: EventsCursor) -> list[DataFile]:
    """The files with undecodable events of the newest commit, unless these are in quarantine."""
    newest = lake.change_events.files(kind=str(Kind.UNDECODABLE))
    files = [f for f in newest if f.high["batch"] == cursor.batch]
    if not files:
        return []
    held = [f for f in lake.quarantine.files() if f.low["batch"] <= cursor.batch <= f.high["batch"]]
    there = lake.quarantine.fetch(held, "stage", "batch").to_pylist()
    return [] if {"stage": STAGE, "batch": cursor.batch} in there else files


def _quarantine(lake: Lakehouse, files: list[DataFile]) -> int:
    """Copy undecodable events into quarantine, with their records' keys and values; how many of them are there then."""
    after, through = min(f.low["batch"] for f in files) - 1, max(f.high["batch"] for f in files)
    spark = session_for(lake.spark, sum(f.rows for f in files))
    coordinates = ["batch", "topic", "partition", "offset"]
    bad = lake.change_events.scan(spark, files).select(*coordinates, "index", "reason", "detail")
    raw = [f for f in lake.raw_records.files() if f.high["batch"] > after and f.low["batch"] <= through]
    records = lake.raw_records.scan(spark, raw).select(*coordinates, "key", "value")
    return quarantine(lake, records.join(F.broadcast(bad), on=coordinates), STAGE, after, through)
