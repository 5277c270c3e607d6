"""The stage raw_records: new Kafka records into Delta, verbatim, each (topic, partition, offset) once."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Feed, Kafka
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.lakehouse.raw_records import Offsets, RawCursor, cursor_to_continue
from cdc_assets.lakehouse.schema import BIGINT, BINARY, INT, STRING, frame_of, struct
from cdc_assets.lakehouse.table import ConcurrentRunError, LakeTable, Staged
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.payload import may_be_compressed
from cdc_assets.sources import kafka as topics
from cdc_assets.sources.broker import Broker, BrokerError, censored
from cdc_assets.sources.offsets import Different, Held, Loss, Place
from cdc_assets.sources.recorded import FileState, locate_lines, read_lines, snapshot_files
from cdc_assets.spark.session import session_for
from cdc_assets.stages.quarantining import quarantine

STAGE = "ingest"

_PLACE = ["topic", "partition", "offset"]
_LINE_BYTES = 1 << 10  # of a recorded record, about
_GOOD = "_good"  # whether a line is a record: of no column, but of the files that a run writes


@dataclass(frozen=True)
class IngestReport:
    """What one run of the stage did."""

    batch: int | None = None  # None: nothing new
    files: list[str] = field(default_factory=list)
    lines: int = 0
    records: int = 0  # different (topic, partition, offset) among the lines
    held_before: int = 0  # of these, those that the table held already
    taken: int = 0  # of these, those that the table holds since this batch
    quarantined: int = 0  # lines that are not records; of a broker, partitions that have lost records
    in_quarantine: int = 0  # of these, those that are there
    offsets: Offsets = field(default_factory=dict)  # of this batch, the repeated included
    held: Offsets = field(default_factory=dict)  # of the whole table
    # of a broker
    without_record: int = 0  # offsets read that have no record: compacted, of transaction markers, or aborted
    left: int = 0  # offsets left for later runs by max_records_per_run
    lost: list[str] = field(default_factory=list)  # what was lost on the broker, and accepted
    fixed_at: str = ""  # when the range was fixed; before this run, if a run before died


@dataclass(frozen=True)
class News:
    """What the source has that raw_records has not.

    Attributes:
        told: it, for people.
        state: the same as long as neither the source nor what is held of it changes.
    """

    told: str
    state: str


class Ingest:
    """Takes in what the feed's source has that raw_records has not."""

    name = "raw_records"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Whether the source has something new; raises as `news` does."""
        return self.news(lake, feed) is not None

    def news(self, lake: Lakehouse, feed: Feed) -> News | None:
        """What is new: files that are new or have changed, offsets that were not read. Asked without Spark.

        Raises:
            FileNotFoundError: the feed's folder does not exist.
            BrokerError: the broker does not answer.
            DataLossError: the broker has lost records that were not read yet.
            ConcurrentRunError: the feed is being rebuilt.
        """
        cursor = _cursor(lake)
        if feed.source.kafka is not None:
            return _news_of_broker(feed.source.kafka, cursor)
        if changed := _changed(_files(lake, feed), cursor):
            return News(f"{len(changed)} files are new or have changed", str(sorted(changed.items())))
        return None

    def run(self, lake: Lakehouse, feed: Feed) -> IngestReport:
        """Take it in: one commit with the records and how far they reach; of a broker, one before it with the plan.

        Raises:
            FileNotFoundError: the feed's folder does not exist.
            BrokerError: the broker does not answer, or its records cannot be read.
            DataLossError: the broker has lost records that were not read yet.
            ConcurrentRunError: another run took in a batch meanwhile, or the feed is being rebuilt.
        """
        cursor = _cursor(lake)
        for table in lake.stage_tables:
            table.create()
        if feed.source.kafka is not None:
            return _from_broker(lake, feed, feed.source.kafka, cursor)
        return _from_files(lake, feed, cursor)


def _cursor(lake: Lakehouse) -> RawCursor:
    """Where the stage stands; its `records` include those of its commit."""
    cursor = cursor_to_continue(lake.raw_records) or RawCursor(sequence=0)
    if cursor.rebuilding:
        raise ConcurrentRunError(
            f"{lake.raw_records.name}: this feed is being rebuilt: wait for the end of that. If it has died, run the job "
            "rebuild again."
        )
    return cursor


def following_offsets(cursor: RawCursor) -> dict[Place, int]:
    """The offset after the last one held of every partition known."""
    return {
        Place(topic, int(number)): hi + 1
        for topic, partitions in cursor.offsets.items()
        for number, (_, hi) in partitions.items()
    }


# --- from a broker


def _news_of_broker(kafka: Kafka, cursor: RawCursor) -> News | None:
    if cursor.plan is not None:
        return News("a run before fixed offsets, and did not read them", str(cursor.plan))
    with Broker(kafka) as broker:
        plan, lost = _fixed(broker, kafka, cursor)
    if not _is_news(plan, lost, cursor):
        return None
    told = f"{plan.size + plan.left} offsets of {len(plan.ids)} topics are new"
    return News(told, str((sorted(plan.ranges.items()), plan.left, sorted(plan.ids.items()), lost)))


def _fixed(broker: Broker, kafka: Kafka, cursor: RawCursor) -> tuple[topics.Plan, list[Loss]]:
    held = Held(following_offsets(cursor), cursor.ids or {})
    return topics.fix(broker, kafka, held, first=cursor.ids is None, turn=cursor.sequence)


def _is_news(plan: topics.Plan, lost: list[Loss], cursor: RawCursor) -> bool:
    known = following_offsets(cursor)
    return bool(lost) or plan.size > 0 or cursor.ids != plan.ids or not known.keys() >= plan.ranges.keys()


def _from_broker(lake: Lakehouse, feed: Feed, kafka: Kafka, cursor: RawCursor) -> IngestReport:
    """Fix the offsets in a commit, then read exactly these and commit their records; no commit when nothing is new."""
    with Broker(kafka) as broker:
        if cursor.plan is not None:
            plan, lost = topics.resume(broker, kafka, topics.Plan.from_json(cursor.plan))
        else:
            plan, lost = _fixed(broker, kafka, cursor)
            if not _is_news(plan, lost, cursor):
                return IngestReport(held=cursor.offsets)
        spark = session_for(lake.spark, plan.size)
        fixed_now = plan.size > 0 and cursor.plan is None
        written = _quarantine_losses(lake, spark, lost, cursor.sequence + 1 + fixed_now)
        if fixed_now:
            cursor = replace(cursor, sequence=cursor.sequence + 1, plan=plan.to_json())
            lake.raw_records.commit(lake.raw_records.stage_rows([]), cursor)
        try:
            report = _take_in_offsets(lake, spark, feed, kafka, plan, cursor)
        except (PySparkException, Py4JError) as error:
            told = censored(str(error).strip().splitlines()[0], kafka)
        else:
            shown = [str(loss) for loss in lost]
            return replace(report, quarantined=len(lost), in_quarantine=written, lost=shown)
        # Outside the except block: the exception has Spark's own words, and must not be chained.
        topics.resume(broker, kafka, plan)
    raise BrokerError(f"Kafka at {kafka.bootstrap_servers}: the records could not be read or written: {told}")


def _take_in_offsets(
    lake: Lakehouse, spark: SparkSession, feed: Feed, kafka: Kafka, plan: topics.Plan, cursor: RawCursor
) -> IngestReport:
    """Read the plan's offsets, and commit their records with a cursor that no longer holds the plan."""
    batch = cursor.sequence + 1
    held: Offsets = {t: dict(p) for t, p in cursor.offsets.items() if t not in plan.restarted}
    for place, (start, end) in plan.ranges.items():
        partitions = held.setdefault(place.topic, {})
        lowest = partitions.get(str(place.partition), [start])[0]
        partitions[str(place.partition)] = [min(lowest, start), end - 1]
    recreated = cursor.recreated | {topic: [*cursor.recreated.get(topic, []), batch] for topic in plan.restarted}
    advanced = replace(
        cursor, sequence=batch, plan=None, offsets=held, ids=dict(plan.ids), recreated=recreated
    )  # fmt: skip
    table = lake.raw_records
    if plan.size:
        staged = table.stage(_of_batch(topics.read(spark, kafka, plan.ranges), feed, batch))
    else:
        staged = table.stage_rows([])
    table.commit(staged, advanced)
    read = {place: [start, end - 1] for place, (start, end) in plan.ranges.items() if start < end}
    return IngestReport(
        batch=batch,
        lines=staged.rows,
        records=staged.rows,
        taken=staged.rows,
        offsets=topics.nested(read),
        held=held,
        without_record=plan.size - staged.rows,
        left=plan.left,
        fixed_at=plan.fixed_at,
    )


def _of_batch(records: DataFrame, feed: Feed, batch: int, *more: Column) -> DataFrame:
    """Records as the table has them. In: `topics.read`, `read_lines`."""
    compressed = may_be_compressed(F.col("value"), protocol_of(feed).envelope(feed))
    return records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.lit(batch).cast("bigint").alias("batch"),
        "key",
        "value",
        "headers",
        F.when(compressed, F.lit(1)).alias("compressed"),
        *more,
    )


def _quarantine_losses(lake: Lakehouse, spark: SparkSession, lost: Iterable[Loss], batch: int) -> int:
    """One row a partition that has lost records: its offset is the first that was wanted."""
    rows = [
        {
            "batch": batch,
            "reason": str(Reason.DATA_LOSS),
            "detail": str(loss),
            "topic": loss.place.topic,
            "partition": loss.place.partition,
            "offset": loss.wanted,
        }
        for loss in lost
    ]
    if not rows:
        return 0
    columns = struct(batch=BIGINT, reason=STRING, detail=STRING, topic=STRING, partition=INT, offset=BIGINT)
    return quarantine(lake, frame_of(spark, rows, columns), STAGE, batch - 1, batch)


# --- from recorded files


def _files(lake: Lakehouse, feed: Feed) -> dict[str, FileState]:
    return snapshot_files(_folder(feed), lake.store)


def _changed(files: dict[str, FileState], cursor: RawCursor) -> dict[str, FileState]:
    """The files that are new or have changed, with their states."""
    return {name: state for name, state in files.items() if cursor.files.get(name) != state}


def _folder(feed: Feed) -> str:
    if feed.source.recorded is None:
        raise ValueError("The feed has no source.")
    return feed.source.recorded


def _from_files(lake: Lakehouse, feed: Feed, cursor: RawCursor) -> IngestReport:
    """Take in the lines of recorded files that are new or have changed: one commit; none when no file changed."""
    files = _files(lake, feed)
    changed = _changed(files, cursor)
    if not changed:
        return IngestReport(held=cursor.offsets)
    size = sum(size for size, _ in changed.values())
    spark = session_for(lake.spark, size // _LINE_BYTES)
    lines = read_lines(spark, _folder(feed), changed)
    table, batch = lake.raw_records, cursor.sequence + 1
    # Written first, and then looked at: the files are parsed once, and only where a coordinate comes twice, or may be held
    # already, are records written again.
    good = F.col("topic").isNotNull().alias(_GOOD)
    staged = table.stage(_of_batch(lines, feed, batch, good), by=_GOOD)
    records, bad = staged.in_partition(**{_GOOD: True}), staged.in_partition(**{_GOOD: False}).rows
    offsets, different = _coordinates(table, records)
    held_before = 0
    overlap = _overlap(offsets, cursor.offsets)
    if different < records.rows or overlap:
        records = table.stage(_only_once(spark, table, records, overlap))
        held_before = different - records.rows
    in_quarantine = _quarantine_lines(lake, _folder(feed), lines, batch) if bad else 0
    held = _merged(cursor.offsets, offsets)
    # Of files that are gone nothing need be known: should one come back, its offsets tell what of it is held.
    there = {name: state for name, state in cursor.files.items() if name in files}
    table.commit(records, replace(cursor, sequence=batch, files=there | changed, offsets=held))
    return IngestReport(
        batch=batch,
        files=list(changed),
        lines=staged.rows,
        records=different,
        held_before=held_before,
        taken=records.rows,
        quarantined=bad,
        in_quarantine=in_quarantine,
        offsets=offsets,
        held=held,
    )


def _coordinates(table: LakeTable[RawCursor], records: Staged) -> tuple[Offsets, int]:
    """The lowest and highest offset of each partition among staged records, and how many different records they are."""
    found: dict[Place, Different] = {}
    for rows in table.fetch_parts(records.files, *_PLACE):
        grouped = rows.group_by(["topic", "partition"]).aggregate([("offset", "list")])
        for topic, partition, offsets in zip(*map(grouped.column, ("topic", "partition", "offset_list")), strict=True):
            place = Place(topic.as_py(), partition.as_py())
            found.setdefault(place, Different()).add(offsets.values.to_numpy())
    return topics.nested({place: each.bounds() for place, each in found.items()}), sum(map(len, found.values()))


def _quarantine_lines(lake: Lakehouse, folder: str, lines: DataFrame, batch: int) -> int:
    """The lines that are no records, with their files and numbers."""
    found = lines.where(F.col("_file").isNotNull()).select("_file", "_line").distinct().collect()
    texts: dict[str, set[bytes]] = {}
    for r in found:
        texts.setdefault(r["_file"], set()).add(bytes(r["_line"]))
    bad = locate_lines(folder, texts, lake.store)
    located = [line | {"batch": batch, "reason": str(Reason.NOT_A_RECORD)} for line in bad]
    columns = struct(batch=BIGINT, reason=STRING, file=STRING, line=BIGINT, value=BINARY)
    return quarantine(lake, frame_of(lines.sparkSession, located, columns), STAGE, batch - 1, batch)


def _overlap(new: Offsets, held: Offsets) -> list[tuple[str, int, int, int]]:
    """(topic, partition, lowest, highest) of the new offsets that may be held already."""
    return [
        (topic, int(partition), lo, min(hi, held[topic][partition][1]))
        for topic, partitions in new.items()
        for partition, (lo, hi) in partitions.items()
        if partition in held.get(topic, {}) and lo <= held[topic][partition][1]
    ]


def _only_once(
    spark: SparkSession, table: LakeTable[RawCursor], records: Staged, overlap: list[tuple[str, int, int, int]]
) -> DataFrame:
    """Each staged record once, and none that the table holds."""
    once = table.read_staged(spark, records).dropDuplicates(_PLACE)
    if not overlap:
        return once
    lowest, highest = min(o[2] for o in overlap), max(o[3] for o in overlap)
    within = F.col("topic").isin(*{o[0] for o in overlap}) & F.col("offset").between(lowest, highest)
    return once.join(table.read(spark).where(within).select(*_PLACE), on=_PLACE, how="left_anti")


def _merged(held: Offsets, new: Offsets) -> Offsets:
    merged = {topic: dict(partitions) for topic, partitions in held.items()}
    for topic, partitions in new.items():
        for partition, (lo, hi) in partitions.items():
            old = merged.setdefault(topic, {}).get(partition, [lo, hi])
            merged[topic][partition] = [min(lo, old[0]), max(hi, old[1])]
    return merged
