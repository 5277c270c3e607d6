"""The stage raw_records: new Kafka records into Delta, verbatim, each (topic, partition, offset) once."""

from dataclasses import dataclass, field
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from cdc_assets import quarantine
from cdc_assets.feeds import Feed
from cdc_assets.lakehouse import STATISTICS, Cursor, Lakehouse, LakeTable, next_sequence
from cdc_assets.protocols.payload import packed
from cdc_assets.quarantine import Reason
from cdc_assets.schema import BIGINT, BINARY, INT, STRING, TIMESTAMP, array, struct
from cdc_assets.sources.recorded import locate_lines, read_lines, snapshot_files

STAGE = "ingest"

# Files of fewer bytes are parsed twice, for the coordinates and for the records, which is less work than to keep the lines.
_PARSED_TWICE = 8 << 20

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
    quarantined: int = 0  # lines that are not records
    offsets: Offsets = field(default_factory=dict)  # of this batch, the repeated included
    held: Offsets = field(default_factory=dict)  # of the whole table


def ingest(lake: Lakehouse, feed: Feed) -> IngestReport:
    """Take in the lines of recorded files that are new or have changed since the last run.

    One commit to raw_records, whose cursor holds the files' states and the offsets held; none when no file changed.

    Raises:
        FileNotFoundError: the feed's folder does not exist.
        ConcurrentRunError: another run took in a batch meanwhile.
    """
    table = lake.raw_records
    table.create(SCHEMA, properties={STATISTICS: "topic,partition,offset,batch"})
    lake.quarantine.create(quarantine.SCHEMA)
    cursor = table.cursor() or {"sequence": 0, "files": {}, "offsets": {}, "packed": 0}
    folder = feed.source.recorded
    if folder is None:
        raise ValueError("The feed's source is not a folder of recorded snapshots.")
    files = snapshot_files(folder)
    changed = [name for name, state in files.items() if cursor["files"].get(name) != state]
    if not changed:
        return IngestReport(held=cursor["offsets"])
    lines = read_lines(lake.spark, folder, changed).withColumn("packed", packed(F.col("value"), feed.wire))
    if sum(files[name][0] for name in changed) < _PARSED_TWICE:
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
    new_cursor: Cursor = {"sequence": batch, "files": files, "offsets": held, "packed": newest_packed}
    # Counted as they are written: the first look into a table after a commit costs as much as the small commit itself.
    counted = Observation()
    table.append(records.select(*SCHEMA.names).observe(counted, F.count("*").alias("taken")), new_cursor)
    taken = counted.get["taken"]
    different = sum(r["records"] for r in rows if r["topic"] is not None)
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
