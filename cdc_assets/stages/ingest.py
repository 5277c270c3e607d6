"""The stage raw_records: new Kafka records into Delta, verbatim, each (topic, partition, offset) once.

This module is long because both sources, a broker and recorded files, commit to one table with one cursor.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial, reduce

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Feed, Kafka
from cdc_assets.lakehouse.cursor import CursorError
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.lakehouse.raw_records import Offsets, RawCursor, cursor_to_continue
from cdc_assets.lakehouse.schema import BIGINT, BINARY, INT, STRING, frame_of, struct
from cdc_assets.lakehouse.table import ConcurrentRunError, LakeTable, Staged
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.payload import may_be_compressed
from cdc_assets.sources import kafka as topics
from cdc_assets.sources.broker import Broker, BrokerError, mask_secrets
from cdc_assets.sources.offsets import DistinctOffsets, IngestedOffsets, Loss, TopicPartition
from cdc_assets.sources.recorded import FileState, locate_lines, read_lines, snapshot_files
from cdc_assets.spark.session import session_for
from cdc_assets.stages.quarantining import quarantine

STAGE = "ingest"

_PLACE = ["topic", "partition", "offset"]
_LINE_BYTES = 1 << 10  # estimated size of a line of a recorded file


@dataclass(frozen=True)
class IngestReport:
    """What one run of the stage did.

    Attributes:
        batch: the batch that the run committed; None: there was nothing new.
        files: the recorded files that the run read.
        lines: the lines, or records of a broker, that the run read.
        records: distinct (topic, partition, offset) among them.
        held_before: those of `records` that the table held before.
        taken: those of `records` that this batch added.
        quarantined: lines that are not records, or whose offset another record has; with a broker, partitions that lost
            records.
        in_quarantine: those of `quarantined` that the quarantine holds.
        offsets: lowest and highest offset of each partition in this batch, duplicates included.
        held: lowest and highest offset of each partition in the table.
        without_record: with a broker, offsets without a record: compacted, transaction markers, aborted.
        left: with a broker, offsets that `max_records_per_run` leaves to later runs.
        lost: with a broker, losses that the feed's settings accept.
        fixed_at: with a broker, when the range of offsets was fixed; earlier than this run if an earlier run died.
    """

    batch: int | None = None
    files: list[str] = field(default_factory=list)
    lines: int = 0
    records: int = 0
    held_before: int = 0
    taken: int = 0
    quarantined: int = 0
    in_quarantine: int = 0
    offsets: Offsets = field(default_factory=dict)
    held: Offsets = field(default_factory=dict)
    without_record: int = 0
    left: int = 0
    lost: list[str] = field(default_factory=list)
    fixed_at: str = ""


@dataclass(frozen=True)
class NewInput:
    """Records of the source that raw_records lacks.

    Attributes:
        description: a sentence for people.
        state: a text that stays equal while neither the source nor the table changes.
    """

    description: str
    state: str


class Ingest:
    """Ingest the records of the feed's source that raw_records lacks."""

    name = "raw_records"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Return whether the source has new records; raises as `find_new_input` does."""
        return self.find_new_input(lake, feed) is not None

    def find_new_input(self, lake: Lakehouse, feed: Feed) -> NewInput | None:
        """Return what is new in the source, without Spark: new or changed files, or offsets that no run has read.

        Raises:
            FileNotFoundError: the feed's folder does not exist.
            BrokerError: the broker does not answer.
            DataLossError: the broker has lost records that were not read yet.
            ConcurrentRunError: the feed is being rebuilt.
        """
        cursor = _cursor(lake)
        if feed.source.kafka is not None:
            return _find_new_offsets(feed.source.kafka, cursor)
        if changed := _changed_files(snapshot_files(_folder(feed), lake.store), cursor):
            return NewInput(f"{len(changed)} files are new or have changed", str(sorted(changed.items())))
        return None

    def run(self, lake: Lakehouse, feed: Feed) -> IngestReport:
        """Ingest the new records: one commit with the records and the cursor; with a broker, a commit of the plan before it.

        Raises:
            FileNotFoundError: the feed's folder does not exist.
            BrokerError: the broker does not answer, or its records cannot be read.
            DataLossError: the broker has lost records that were not read yet.
            ConcurrentRunError: another run ingested a batch meanwhile, or the feed is being rebuilt.
            CursorError: later stages have read more batches than the table has.
        """
        cursor = _cursor(lake)
        decoded = lake.change_events.last_cursor().batch
        if decoded > cursor.sequence:
            raise CursorError(
                f"{lake.raw_records.name} has batches up to {cursor.sequence}, but {lake.change_events.name} has read up to "
                f"batch {decoded}: the table was deleted, or is an old copy, and new records would count as read. Put the "
                "newest copy of the table back; if there is none, begin another feed."
            )
        for table in lake.stage_tables:
            table.create()
        if feed.source.kafka is not None:
            return _ingest_broker(lake, feed, feed.source.kafka, cursor)
        return _ingest_files(lake, feed, cursor)


def _cursor(lake: Lakehouse) -> RawCursor:
    """Return the stage's cursor.

    Raises:
        ConcurrentRunError: the feed is being rebuilt.
    """
    cursor = cursor_to_continue(lake.raw_records) or RawCursor(sequence=0)
    if cursor.rebuilding:
        raise ConcurrentRunError(
            f"{lake.raw_records.name}: this feed is being rebuilt. Wait until the job rebuild has ended; if it died, run "
            "it again."
        )
    return cursor


def following_offsets(cursor: RawCursor) -> dict[TopicPartition, int]:
    """Return for each partition of the table the offset after its last record."""
    return {
        TopicPartition(topic, int(number)): hi + 1
        for topic, partitions in cursor.offsets.items()
        for number, (_, hi) in partitions.items()
    }


# --- from a broker


def _find_new_offsets(kafka: Kafka, cursor: RawCursor) -> NewInput | None:
    if cursor.plan is not None:
        return NewInput("an earlier run fixed offsets and did not read them", str(cursor.plan))
    with Broker(kafka) as broker:
        plan, lost = _fix_offsets(broker, kafka, cursor)
    if not _has_new_input(plan, lost, cursor):
        return None
    description = f"{plan.size + plan.left} offsets of {len(plan.ids)} topics are new"
    return NewInput(description, str((sorted(plan.ranges.items()), plan.left, sorted(plan.ids.items()), lost)))


def _fix_offsets(broker: Broker, kafka: Kafka, cursor: RawCursor) -> tuple[topics.ReadPlan, list[Loss]]:
    """Return the offsets that a run should read now, and the records that the broker has lost."""
    held = IngestedOffsets(following_offsets(cursor), cursor.ids or {})
    return topics.plan_read(broker, kafka, held, first=cursor.ids is None, turn=cursor.sequence)


def _has_new_input(plan: topics.ReadPlan, lost: list[Loss], cursor: RawCursor) -> bool:
    has_new_partition = not following_offsets(cursor).keys() >= plan.ranges.keys()
    return bool(lost) or plan.size > 0 or cursor.ids != plan.ids or has_new_partition


def _ingest_broker(lake: Lakehouse, feed: Feed, kafka: Kafka, cursor: RawCursor) -> IngestReport:
    """Commit a plan of offsets, then read exactly these offsets and commit their records; without new input no commit."""
    with Broker(kafka) as broker:
        if cursor.plan is not None:
            plan, lost = topics.resume_plan(broker, kafka, topics.ReadPlan.from_json(cursor.plan))
        else:
            plan, lost = _fix_offsets(broker, kafka, cursor)
            if not _has_new_input(plan, lost, cursor):
                return IngestReport(held=cursor.offsets)
        spark = session_for(lake.spark, plan.size)
        is_new_plan = plan.size > 0 and cursor.plan is None
        quarantined = _quarantine_losses(lake, spark, lost, cursor.sequence + 1 + is_new_plan)
        if is_new_plan:
            cursor = replace(cursor, sequence=cursor.sequence + 1, plan=plan.to_json())
            lake.raw_records.commit(Staged([]), cursor)
        try:
            report = _ingest_offsets(lake, spark, feed, kafka, plan, cursor)
        except (PySparkException, Py4JError) as error:
            problem = mask_secrets(str(error).strip().splitlines()[0], kafka)
        else:
            losses = [str(loss) for loss in lost]
            return replace(report, quarantined=len(lost), in_quarantine=quarantined, lost=losses)
        # Outside the except block, because Spark's exception may contain secrets and must not be chained.
        topics.resume_plan(broker, kafka, plan)
    raise BrokerError(f"Kafka at {kafka.bootstrap_servers}: the records could not be read or written: {problem}")


def _ingest_offsets(
    lake: Lakehouse, spark: SparkSession, feed: Feed, kafka: Kafka, plan: topics.ReadPlan, cursor: RawCursor
) -> IngestReport:
    """Read the plan's offsets, and commit their records with a cursor without the plan."""
    batch = cursor.sequence + 1
    held: Offsets = {t: dict(p) for t, p in cursor.offsets.items() if t not in plan.restarted}
    for place, (start, end) in plan.ranges.items():
        partitions = held.setdefault(place.topic, {})
        lowest = partitions.get(str(place.partition), [start])[0]
        partitions[str(place.partition)] = [min(lowest, start), end - 1]
    recreated = cursor.recreated | {topic: [*cursor.recreated.get(topic, []), batch] for topic in plan.restarted}
    advanced = replace(cursor, sequence=batch, plan=None, offsets=held, ids=dict(plan.ids), recreated=recreated)
    table = lake.raw_records
    staged = Staged([])
    if plan.size:
        staged = table.stage(_as_raw_records(topics.read_records(spark, kafka, plan.ranges), feed, batch))
    table.commit(staged, advanced)
    read = {place: [start, end - 1] for place, (start, end) in plan.ranges.items() if start < end}
    return IngestReport(
        batch=batch,
        lines=staged.rows,
        records=staged.rows,
        taken=staged.rows,
        offsets=topics.nest_by_topic(read),
        held=held,
        without_record=plan.size - staged.rows,
        left=plan.left,
        fixed_at=plan.fixed_at,
    )


def _as_raw_records(records: DataFrame, feed: Feed, batch: int) -> DataFrame:
    """Return the columns of `raw_records` of the frames that `topics.read_records` and `read_lines` return."""
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
    )


def _quarantine_losses(lake: Lakehouse, spark: SparkSession, lost: Iterable[Loss], batch: int) -> int:
    """Quarantine the first lost offset of each partition that lost records; return the number of rows in quarantine."""
    rows = [
        {
            "batch": batch,
            "reason": str(Reason.DATA_LOSS),
            "detail": str(loss),
            "topic": loss.partition.topic,
            "partition": loss.partition.partition,
            "offset": loss.next_offset,
        }
        for loss in lost
    ]
    if not rows:
        return 0
    columns = struct(batch=BIGINT, reason=STRING, detail=STRING, topic=STRING, partition=INT, offset=BIGINT)
    return quarantine(lake, frame_of(spark, rows, columns), STAGE, batch - 1, batch)


# --- from recorded files


def _changed_files(files: dict[str, FileState], cursor: RawCursor) -> dict[str, FileState]:
    """Return the files that are new or have changed, with their states."""
    return {name: state for name, state in files.items() if cursor.files.get(name) != state}


def _folder(feed: Feed) -> str:
    if feed.source.recorded is None:
        raise ValueError("The feed has no source.")
    return feed.source.recorded


def _ingest_files(lake: Lakehouse, feed: Feed, cursor: RawCursor) -> IngestReport:
    """Ingest the lines of new or changed files in one commit; without such files no commit."""
    files = snapshot_files(_folder(feed), lake.store)
    changed = _changed_files(files, cursor)
    if not changed:
        return IngestReport(held=cursor.offsets)
    size = sum(size for size, _ in changed.values())
    spark = session_for(lake.spark, size // _LINE_BYTES)
    lines = read_lines(spark, _folder(feed), changed)
    table, batch = lake.raw_records, cursor.sequence + 1
    # Stage first and check then: the files are parsed once, and records are staged again only if coordinates repeat.
    counts = Observation()
    observed = lines.observe(counts, F.count_if(F.col("topic").isNull()).alias("bad_lines"))
    staged = records = table.stage(_as_raw_records(observed.where("topic IS NOT NULL"), feed, batch))
    bad_lines = counts.get["bad_lines"]
    offsets, distinct_records = _offset_ranges(table, staged)
    held_before, quarantined, unusable = 0, bad_lines, list[DataFrame]()
    overlap = _overlap(offsets, cursor.offsets)
    if distinct_records < staged.rows or overlap:
        records = table.stage(_without_duplicates(spark, table, staged, overlap))
        held_before = distinct_records - records.rows
        unusable.append(_find_contradicting_records(spark, table, staged, records, overlap))
        quarantined += unusable[0].count()
    if bad_lines:
        unusable.append(_locate_bad_lines(lake, _folder(feed), lines))
    in_quarantine = _quarantine_lines(lake, unusable, batch) if quarantined else 0
    held = _merge_offsets(cursor.offsets, offsets)
    # The cursor forgets deleted files: if one comes back, the offsets of its records show that the table holds them.
    existing_files = {name: state for name, state in cursor.files.items() if name in files}
    table.commit(records, replace(cursor, sequence=batch, files=existing_files | changed, offsets=held))
    return IngestReport(
        batch=batch,
        files=list(changed),
        lines=staged.rows + bad_lines,
        records=distinct_records,
        held_before=held_before,
        taken=records.rows,
        quarantined=quarantined,
        in_quarantine=in_quarantine,
        offsets=offsets,
        held=held,
    )


def _offset_ranges(table: LakeTable[RawCursor], records: Staged) -> tuple[Offsets, int]:
    """Return the lowest and highest offset of each partition among staged records, and the number of distinct records."""
    distinct: dict[TopicPartition, DistinctOffsets] = {}
    for rows in table.fetch_parts(records.files, *_PLACE):
        grouped = rows.group_by(["topic", "partition"]).aggregate([("offset", "list")])
        for topic, partition, offsets in zip(*map(grouped.column, ("topic", "partition", "offset_list")), strict=True):
            place = TopicPartition(topic.as_py(), partition.as_py())
            distinct.setdefault(place, DistinctOffsets()).add(offsets.values.to_numpy())
    return topics.nest_by_topic({place: each.bounds() for place, each in distinct.items()}), sum(
        map(len, distinct.values())
    )


def _locate_bad_lines(lake: Lakehouse, folder: str, lines: DataFrame) -> DataFrame:
    """Return the lines that are not records, with their files and line numbers, as rows of the quarantine."""
    bad_lines = lines.where(F.col("_file").isNotNull()).select("_file", "_line").distinct().collect()
    texts: dict[str, set[bytes]] = {}
    for line in bad_lines:
        texts.setdefault(line["_file"], set()).add(bytes(line["_line"]))
    located = [line | {"reason": str(Reason.NOT_A_RECORD)} for line in locate_lines(folder, texts, lake.store)]
    return frame_of(lines.sparkSession, located, struct(reason=STRING, file=STRING, line=BIGINT, value=BINARY))


def _quarantine_lines(lake: Lakehouse, lines: Iterable[DataFrame], batch: int) -> int:
    """Quarantine lines of recorded files; return how many of the batch are in quarantine."""
    rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), lines)
    return quarantine(lake, rows.withColumn("batch", F.lit(batch).cast("bigint")), STAGE, batch - 1, batch)


def _overlap(new: Offsets, held: Offsets) -> list[tuple[str, int, int, int]]:
    """Return (topic, partition, lowest, highest) of the new offsets that the table may hold."""
    return [
        (topic, int(partition), lo, min(hi, held[topic][partition][1]))
        for topic, partitions in new.items()
        for partition, (lo, hi) in partitions.items()
        if partition in held.get(topic, {}) and lo <= held[topic][partition][1]
    ]


def _without_duplicates(
    spark: SparkSession, table: LakeTable[RawCursor], records: Staged, overlap: list[tuple[str, int, int, int]]
) -> DataFrame:
    """Return each staged record once, without those that the table holds."""
    once = table.read_staged(spark, records).dropDuplicates(_PLACE)
    if not overlap:
        return once
    return once.join(table.read(spark).where(_is_within(overlap)).select(*_PLACE), on=_PLACE, how="left_anti")


def _find_contradicting_records(
    spark: SparkSession,
    table: LakeTable[RawCursor],
    records: Staged,
    kept: Staged,
    overlap: list[tuple[str, int, int, int]],
) -> DataFrame:
    """Return the staged records whose offset another record with another key or value has, as rows of the quarantine.

    Args:
        spark: the session.
        table: raw_records.
        records: all staged records.
        kept: those of them that are added to the table.
        overlap: what `_overlap` returns.
    """
    content = [F.xxhash64("key").alias("key_hash"), F.xxhash64("value").alias("value_hash")]
    ingested = table.read_staged(spark, kept)
    if overlap:
        ingested = ingested.unionByName(table.read(spark).where(_is_within(overlap)))
    repeated = table.read_staged(spark, records).join(ingested.select(*_PLACE, *content), on=_PLACE)
    is_same = (F.col("key_hash") == F.xxhash64("key")) & (F.col("value_hash") == F.xxhash64("value"))
    rows = repeated.where(~is_same).select(*_PLACE, "key", "value").dropDuplicates(_PLACE)
    return rows.withColumn("reason", F.lit(str(Reason.OFFSET_TAKEN)))


def _is_within(overlap: list[tuple[str, int, int, int]]) -> Column:
    """Return whether a record of the table may be among the records that `_overlap` names. BOOLEAN."""
    lowest, highest = min(o[2] for o in overlap), max(o[3] for o in overlap)
    return F.col("topic").isin(*{o[0] for o in overlap}) & F.col("offset").between(lowest, highest)


def _merge_offsets(held: Offsets, new: Offsets) -> Offsets:
    merged = {topic: dict(partitions) for topic, partitions in held.items()}
    for topic, partitions in new.items():
        for partition, (lo, hi) in partitions.items():
            old = merged.setdefault(topic, {}).get(partition, [lo, hi])
            merged[topic][partition] = [min(lo, old[0]), max(hi, old[1])]
    return merged
