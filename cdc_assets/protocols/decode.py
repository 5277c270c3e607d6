"""The stage change_events: new raw records decoded into change events, in one pass and one commit."""

from dataclasses import dataclass, field

from pyspark.sql import Observation
from pyspark.sql import functions as F

from cdc_assets import quarantine
from cdc_assets.feeds import Feed
from cdc_assets.lakehouse import STATISTICS, Lakehouse, next_sequence
from cdc_assets.protocols import DECODERS, events_a_record
from cdc_assets.protocols.events import SCHEMA, Kind
from cdc_assets.protocols.payload import unpack
from cdc_assets.session import compile_for

STAGE = "decode"


@dataclass(frozen=True)
class DecodeReport:
    """What one run of the stage did: events by kind, over the raw batches in (after, through]."""

    after: int = 0
    through: int = 0
    events: dict[str, int] = field(default_factory=dict)

    @property
    def quarantined(self) -> int:
        """How many records could not be decoded."""
        return self.events.get(Kind.UNDECODABLE, 0)


def decode(lake: Lakehouse, feed: Feed) -> DecodeReport:
    """Decode the raw batches that are not decoded yet: one commit to change_events, none when there are none.

    Undecodable records are then copied into quarantine. The gate runs after that, so batches that its cursor has passed
    are settled; those in between are looked at again, should a run have died before it came to the copying.

    Raises:
        ConcurrentRunError: another run decoded these batches meanwhile.
    """
    raw, table = lake.raw_records, lake.change_events
    table.create(SCHEMA, properties={STATISTICS: "topic,partition,offset,batch,kind,commit_ts"})
    cursor = table.cursor() or {"sequence": 0, "batch": 0, "records": 0}
    settled = (lake.released_changes.cursor() or {"batch": 0})["batch"]
    taken_in = raw.cursor() or {"sequence": 0, "packed": 0, "records": 0}
    through, packed_batch, records = (taken_in[name] for name in ("sequence", "packed", "records"))
    compile_for(lake.spark, (records - cursor["records"]) * events_a_record(feed))
    report = DecodeReport(cursor["batch"], through)
    if through > cursor["batch"]:
        new = raw.read().where(F.col("batch") > cursor["batch"])
        if packed_batch > cursor["batch"]:
            new = unpack(new, feed.wire)
        counted = Observation()
        counts = [F.count_if(F.col("kind") == str(kind)).alias(str(kind)) for kind in Kind]
        events = DECODERS[feed.protocol](new, feed).observe(counted, *counts)
        table.append(events, {"sequence": next_sequence(cursor), "batch": through, "records": records})
        report = DecodeReport(cursor["batch"], through, {k: int(v) for k, v in counted.get.items() if v})
    if report.quarantined or settled < cursor["batch"]:
        _quarantine(lake, settled, through)
    return report


def _quarantine(lake: Lakehouse, after: int, through: int) -> None:
    """Copy the undecodable records of the raw batches in (after, through] into quarantine, with key and value."""
    coordinates = ["batch", "topic", "partition", "offset"]
    within = (F.col("batch") > after) & (F.col("batch") <= through)
    bad = lake.change_events.read().where(within & (F.col("kind") == str(Kind.UNDECODABLE)))
    records = lake.raw_records.read().where(within).select(*coordinates, "key", "value")
    rows = records.join(F.broadcast(bad.select(*coordinates, "index", "reason", "detail")), on=coordinates)
    quarantine.add(lake.quarantine, rows, STAGE, after, through)
