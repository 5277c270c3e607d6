"""The stage raw_records: new Kafka records into Delta, verbatim, each (topic, partition, offset) once."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, Row
from pyspark.sql import functions as F

from cdc_assets import quarantine
from cdc_assets.feeds import Feed, Kafka
from cdc_assets.lakehouse import STATISTICS, ConcurrentRunError, Cursor, Lakehouse, LakeTable, next_sequence
from cdc_assets.protocols.payload import packed
from cdc_assets.quarantine import Reason
from cdc_assets.schema import BIGINT, BINARY, INT, STRING, TIMESTAMP, array, conform, struct
from cdc_assets.session import compile_for
from cdc_assets.sources import kafka as topics
from cdc_assets.sources.broker import Broker, BrokerError, censored
from cdc_assets.sources.offsets import Held, Loss, Place
from cdc_assets.sources.recorded import locate_lines, read_lines, snapshot_files

STAGE = "ingest"

# Files of fewer bytes are parsed twice, for the coordinates and for the records, which is less work than to keep the lines.
_PARSED_TWICE = 8 << 20
_LINE_BYTES = 1 << 10  # of a recorded record, about

# `batch` numbers the commits that brought the record in: what later stages read on from.
SCHEMA = struct(
    topic=STRING,
    partition=INT,
    offset=BIGINT,
    timestamp=TIMESTAMP,
    batch=BIGINT,
    key=BINARY,
    value=BINARY,
    headers=array(struct(key=STRING, value=BINARY)),
)

Offsets = dict[str, dict[str, list[int]]]  # topic -> partition -> [lowest, highest]


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
    offsets: Offsets = field(default_factory=dict)  # of this batch, the repeated included
    held: Offsets = field(default_factory=dict)  # of the whole table
    # of a broker
    without_record: int = 0  # offsets read that have no record: compacted, of transaction markers, or aborted
    left: int = 0  # offsets left for later runs by max_records_per_run
    lost: list[str] = field(default_factory=list)  # what was lost on the broker, and accepted
    fixed_at: str = ""  # when the range was fixed; before this run, if a run before died


def ingest(lake: Lakehouse, feed: Feed) -> IngestReport:
    """Take in what the feed's source has that raw_records has not.

    The cursor of raw_records holds, beside `sequence`: `files`, the states of the recorded files taken in; `offsets`, the
    offsets held of each partition known; `records`, how many were ever taken in; `packed`, the newest batch with values that
    may be compressed; of a broker, `ids` of the topics; `begun_anew`, the batches with which a topic of the same name but
    another id began, and `plan`, what a run has fixed and not yet read; `trimmed`, the batch up to which maintenance has
    deleted the records; `rebuilding`.

    Raises:
        FileNotFoundError: the feed's folder does not exist.
        BrokerError: the broker does not answer, or its records cannot be read.
        DataLossError: the broker has lost records that were not read yet.
        ConcurrentRunError: another run took in a batch meanwhile, or the feed is being rebuilt.
    """
    table = lake.raw_records
    table.create(SCHEMA, properties={STATISTICS: "topic,partition,offset,batch"})
    lake.quarantine.create(quarantine.SCHEMA)
    cursor = table.cursor() or {"sequence": 0, "files": {}, "offsets": {}, "records": 0, "packed": 0}
    if "rebuilding" in cursor:
        raise ConcurrentRunError(
            f"{table.name}: this feed is being rebuilt: wait for the end of that. If it has died, run the job rebuild again."
        )
    if feed.source.kafka is not None:
        return _from_broker(lake, feed, feed.source.kafka, cursor)
    if feed.source.recorded is not None:
        return _from_files(lake, feed, feed.source.recorded, cursor)
    raise ValueError("The feed has no source.")


def following_offsets(cursor: Cursor) -> dict[Place, int]:
    """The offset after the last one held of every partition known, out of the stage's cursor."""
    return {
        Place(topic, int(number)): hi + 1
        for topic, partitions in cursor["offsets"].items()
        for number, (_, hi) in partitions.items()
    }


def _from_broker(lake: Lakehouse, feed: Feed, kafka: Kafka, cursor: Cursor) -> IngestReport:
    """Fix the offsets in a commit, then read exactly these and commit their records; no commit when nothing is new."""
    table = lake.raw_records
    with Broker(lake.spark._jvm, kafka) as broker:  # noqa: SLF001 -- there is no public way
        if "plan" in cursor:
            plan, lost = topics.resume(broker, kafka, topics.Plan.from_json(cursor["plan"]))
        else:
            following = following_offsets(cursor)
            held = Held(following, cursor.get("ids", {}))
            plan, lost = topics.fix(broker, kafka, held, first="ids" not in cursor, turn=cursor["sequence"])
            if not lost and not plan.size and held.ids == plan.ids and following.keys() >= plan.ranges.keys():
                return IngestReport(held=cursor["offsets"])
        fixed_now = plan.size > 0 and "plan" not in cursor
        _quarantine_losses(lake, lost, next_sequence(cursor) + fixed_now)
        if fixed_now:
            cursor = cursor | {"sequence": next_sequence(cursor), "plan": plan.to_json()}
            table.append(conform(lake.spark.range(0), SCHEMA, {}), cursor)
        try:
            return _take_in_offsets(lake, feed, kafka, plan, lost, cursor)
        except (PySparkException, Py4JError) as error:
            told = censored(str(error).strip().splitlines()[0], lake.spark._jvm, kafka)  # noqa: SLF001
        # Outside the except block: the exception has Spark's own words, and must not be chained.
        topics.resume(broker, kafka, plan)
    raise BrokerError(f"Kafka at {kafka.bootstrap_servers}: the records could not be read or written: {told}")


def _take_in_offsets(
    lake: Lakehouse, feed: Feed, kafka: Kafka, plan: topics.Plan, lost: list[Loss], cursor: Cursor
) -> IngestReport:
    """Read the plan's offsets, and commit their records with a cursor that no longer holds the plan."""
    batch = next_sequence(cursor)
    compile_for(lake.spark, plan.size)
    rows: list[Row] = []
    records = conform(lake.spark.range(0), SCHEMA, {})
    if plan.size:
        found = topics.read(lake.spark, kafka, plan.ranges).withColumn("packed", packed(F.col("value"), feed.wire))
        # Kept, as the cursor must be known before the commit, and a broker's network is dearer than a local disk.
        records = found.withColumn("batch", F.lit(batch).cast("bigint")).persist(StorageLevel.DISK_ONLY)
    try:
        if plan.size:
            per_partition = records.groupBy("topic", "partition")
            rows = per_partition.agg(F.count("*").alias("records"), F.max("packed").alias("packed")).collect()
        held: Offsets = {t: dict(p) for t, p in cursor["offsets"].items() if t not in plan.restarted}
        for place, (start, end) in plan.ranges.items():
            partitions = held.setdefault(place.topic, {})
            lowest = partitions.get(str(place.partition), [start])[0]
            partitions[str(place.partition)] = [min(lowest, start), end - 1]
        begun_anew = cursor.get("begun_anew", {})
        new_cursor = {name: value for name, value in cursor.items() if name != "plan"} | {
            "sequence": batch,
            "offsets": held,
            "records": cursor["records"] + sum(r["records"] for r in rows),
            "packed": batch if any(r["packed"] for r in rows) else cursor["packed"],
            "ids": dict(plan.ids),
            "begun_anew": begun_anew | {topic: [*begun_anew.get(topic, []), batch] for topic in plan.restarted},
        }
        counted = Observation()
        lake.raw_records.append(records.select(*SCHEMA.names).observe(counted, F.count("*").alias("taken")), new_cursor)
        taken = counted.get["taken"]
    finally:
        records.unpersist()
    count = sum(r["records"] for r in rows)
    read = {place: [start, end - 1] for place, (start, end) in plan.ranges.items() if start < end}
    return IngestReport(
        batch=batch,
        lines=count,
        records=count,
        taken=taken,
        quarantined=len(lost),
        offsets=topics.nested(read),
        held=held,
        without_record=plan.size - count,
        left=plan.left,
        lost=[str(loss) for loss in lost],
        fixed_at=plan.fixed_at,
    )


def _quarantine_losses(lake: Lakehouse, lost: Iterable[Loss], batch: int) -> None:
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
    if rows:
        columns = "batch BIGINT, reason STRING, detail STRING, topic STRING, partition INT, offset BIGINT"
        quarantine.add(lake.quarantine, lake.spark.createDataFrame(rows, columns), STAGE, batch - 1, batch)


def _from_files(lake: Lakehouse, feed: Feed, folder: Path, cursor: Cursor) -> IngestReport:
    """Take in the lines of recorded files that are new or have changed: one commit; none when no file changed."""
    files = snapshot_files(folder)
    changed = [name for name, state in files.items() if cursor["files"].get(name) != state]
    if not changed:
        return IngestReport(held=cursor["offsets"])
    lines = read_lines(lake.spark, folder, changed).withColumn("packed", packed(F.col("value"), feed.wire))
    size = sum(files[name][0] for name in changed)
    compile_for(lake.spark, size // _LINE_BYTES)
    if size < _PARSED_TWICE:
        return _take_in(lake, folder, files, changed, lines, cursor)
    lines.persist(StorageLevel.DISK_ONLY)
    try:
        return _take_in(lake, folder, files, changed, lines, cursor)
    finally:
        lines.unpersist()


def _take_in(
    lake: Lakehouse, folder: Path, files: dict[str, list[int]], changed: list[str], lines: DataFrame, cursor: Cursor
) -> IngestReport:
    """Look at the coordinates of the lines, then commit what is new. In: `read_lines` of the files `changed`."""
    table, batch = lake.raw_records, next_sequence(cursor)
    # The coordinates alone first: the cursor must be known before the commit, and only where a coordinate comes twice
    # are whole records shuffled.
    per_record = lines.groupBy("topic", "partition", "offset").agg(
        F.count("*").alias("count"), F.max("packed").alias("packed")
    )
    summary = per_record.groupBy("topic", "partition").agg(
        F.max("packed").alias("packed"),
        F.sum("count").alias("lines"),
        F.count("*").alias("records"),
        F.min("offset").alias("lo"),
        F.max("offset").alias("hi"),
    )
    rows = summary.collect()
    offsets: Offsets = {}
    for r in rows:
        if r["topic"] is not None:
            offsets.setdefault(r["topic"], {})[str(r["partition"])] = [r["lo"], r["hi"]]
    bad = sum(r["lines"] for r in rows if r["topic"] is None)
    total = sum(r["lines"] for r in rows)

    records = lines.where(F.col("topic").isNotNull()).withColumn("batch", F.lit(batch).cast("bigint"))
    if any(r["lines"] > r["records"] for r in rows if r["topic"] is not None):
        records = records.dropDuplicates(["topic", "partition", "offset"])
    held_before = 0
    if overlap := _overlap(offsets, cursor["offsets"]):
        present = _held(table, overlap)
        held_before = per_record.join(present, on=present.columns, how="left_semi").count()
        records = records.join(present, on=present.columns, how="left_anti")
    if bad:
        found = lines.where(F.col("_file").isNotNull()).select("_file", "_line").distinct().collect()
        texts: dict[str, set[bytes]] = {}
        for r in found:
            texts.setdefault(r["_file"], set()).add(bytes(r["_line"]))
        located = [line | {"batch": batch, "reason": str(Reason.NOT_A_RECORD)} for line in locate_lines(folder, texts)]
        frame = lake.spark.createDataFrame(
            located, "batch BIGINT, reason STRING, file STRING, line BIGINT, value BINARY"
        )
        quarantine.add(lake.quarantine, frame, STAGE, batch - 1, batch)
    held = _merged(cursor["offsets"], offsets)
    # The newest batch with values that may be compressed: only for such batches does decoding look into every value.
    newest_packed = batch if any(r["packed"] for r in rows) else cursor["packed"]
    different = sum(r["records"] for r in rows if r["topic"] is not None)
    new_cursor = cursor | {
        "sequence": batch,
        "files": files,
        "offsets": held,
        "records": cursor["records"] + different - held_before,
        "packed": newest_packed,
    }
    # Counted as they are written: the first look into a table after a commit costs as much as the small commit itself.
    counted = Observation()
    table.append(records.select(*SCHEMA.names).observe(counted, F.count("*").alias("taken")), new_cursor)
    taken = counted.get["taken"]
    return IngestReport(batch, changed, total, different, held_before, taken, bad, offsets, held)


def _overlap(new: Offsets, held: Offsets) -> list[tuple[str, int, int, int]]:
    """(topic, partition, lowest, highest) of the new offsets that may be held already."""
    return [
        (topic, int(partition), lo, min(hi, held[topic][partition][1]))
        for topic, partitions in new.items()
        for partition, (lo, hi) in partitions.items()
        if partition in held.get(topic, {}) and lo <= held[topic][partition][1]
    ]


def _held(table: LakeTable, overlap: list[tuple[str, int, int, int]]) -> DataFrame:
    """The coordinates that the table holds in the overlap; only its files that reach into it are read."""
    lowest, highest = min(o[2] for o in overlap), max(o[3] for o in overlap)
    within = F.col("topic").isin(*{o[0] for o in overlap}) & F.col("offset").between(lowest, highest)
    return table.read().where(within).select("topic", "partition", "offset")


def _merged(held: Offsets, new: Offsets) -> Offsets:
    merged = {topic: dict(partitions) for topic, partitions in held.items()}
    for topic, partitions in new.items():
        for partition, (lo, hi) in partitions.items():
            old = merged.setdefault(topic, {}).get(partition, [lo, hi])
            merged[topic][partition] = [min(lo, old[0]), max(hi, old[1])]
    return merged
