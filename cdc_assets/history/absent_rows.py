"""Rows that a reload lacks, a dump or a snapshot of the source's connector: they had ended when it was read."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets import binlog
from cdc_assets.history.eras import era_column
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.versions import ABSENT
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.initial_load import LAST_ORDINAL, LOAD_TOPIC
from cdc_assets.lakehouse.released_changes import ConnectorSnapshot, SourceSnapshot, TableScan

_PLACE = "struct<release: bigint, ordinal: int>"


def find_absent_rows(
    plan: TablePlan, changes: DataFrame, open_versions: DataFrame, moved_rows: DataFrame | None, row: StructType
) -> DataFrame:
    """Return the end of each row that existed at the position of a reload, and that the reload lacks.

    Args:
        plan: the commit.
        changes: as `versions.build_timeline` takes them.
        open_versions: likewise.
        moved_rows: likewise.
        row: the type of `row`.

    Returns:
        Changes of the op `ABSENT`, one a row that ends.
    """
    earlier = [frame.select("key", "commit_ts") for frame in (open_versions, moved_rows) if frame is not None]
    frames = [
        *(_absent_from_dump(at, changes, earlier) for at in plan.dumps),
        *(_absent_from_snapshot(each, changes, earlier) for each in plan.snapshots),
    ]
    ends = reduce(DataFrame.unionAll, frames).select(
        "*",
        F.lit(0).alias("copy"),
        F.lit(ABSENT).alias("op"),
        F.lit(None).cast(row).alias("row"),
        F.lit(LOAD_TOPIC).alias("topic"),
        F.lit(0).alias("partition"),
        F.lit(0).cast("bigint").alias("offset"),
    )
    ends = ends.withColumn("era", era_column(plan)).drop("source")
    # An end without a place comes after all changes of these releases, and before those that later commits apply.
    latest = F.struct(F.lit(plan.through).cast("bigint").alias("release"), F.lit(LAST_ORDINAL).alias("ordinal"))
    placed = ends.withColumn("place", F.coalesce("place", latest)).select("*", "place.release", "place.ordinal")
    return placed.drop("place").where(F.col("era").between(*plan.eras))


def _absent_from_dump(at: int, changes: DataFrame, earlier: Sequence[DataFrame]) -> DataFrame:
    """Return where the keys end that a dump lacks.

    Args:
        at: position of the dump.
        changes: the changes of the commit, the rows of the dump among them.
        earlier: key and commit_ts of open versions and moved rows.

    Returns:
        key; commit_ts, where the key ends; source STRUCT, the place in the binlog for `era_column`; place STRUCT<release,
        ordinal>: the change of the same commit_ts that the end comes right before; NULL if it comes after all of them.
    """
    keys = [f.where(F.col("commit_ts") <= at).select("key") for f in (*earlier, changes.select("key", "commit_ts"))]
    dumped = changes.where((F.col("commit_ts") == at) & (F.col("topic") == LOAD_TOPIC)).select("key")
    return (
        reduce(DataFrame.unionAll, keys)
        .distinct()
        .join(dumped, on="key", how="left_anti")
        .select(
            "key",
            F.lit(at).cast("bigint").alias("commit_ts"),
            F.lit(None).cast("struct<file: string, position: bigint>").alias("source"),
            F.lit(None).cast(_PLACE).alias("place"),
        )
    )


def _absent_from_snapshot(snapshot: ConnectorSnapshot, changes: DataFrame, earlier: Sequence[DataFrame]) -> DataFrame:
    """Return where the keys end that a connector's snapshot lacks. Arguments and columns: as `_absent_from_dump`."""
    if isinstance(snapshot, TableScan):
        return _absent_from_table_scan(snapshot, changes, earlier)
    return _absent_from_source_snapshot(snapshot, changes, earlier)


def _absent_from_source_snapshot(
    snapshot: SourceSnapshot, changes: DataFrame, earlier: Sequence[DataFrame]
) -> DataFrame:
    """Return where the keys end that have changes or versions before a snapshot, and no read in the snapshot.

    Arguments and columns: as `_absent_from_dump`. Reading a snapshot takes long, and the reads of each table have their own
    clock, so changes after the snapshot's place may have a lower commit_ts than its reads. Therefore offsets decide which
    changes came after it in the partitions that have reads. In other partitions a change counts as later if its place or
    its commit_ts may be later.
    """
    is_of_snapshot = (F.col("source.file") == snapshot.file) & (F.col("source.position") == snapshot.position)
    is_read = F.coalesce((F.col("op") == str(Op.SNAPSHOT)) & is_of_snapshot, F.lit(False))
    begun = changes.where(is_read).groupBy("topic", "partition").agg(F.min("offset").alias("begun"))
    number = snapshot.file.rpartition(".")[2]
    behind = binlog.is_at_or_after(int(number) if number.isdigit() else None, snapshot.position)
    maybe = F.coalesce(behind, F.lit(False)) | (F.col("commit_ts") > snapshot.at)
    changed = changes.join(F.broadcast(begun), on=["topic", "partition"], how="left").select(
        "key",
        "commit_ts",
        is_read.alias("read"),
        F.coalesce(F.col("offset") > F.col("begun"), maybe).alias("after"),
        F.struct("commit_ts", F.struct("release", "ordinal").cast(_PLACE).alias("place")).alias("change"),
    )
    existing = reduce(DataFrame.unionAll, earlier).select(
        "key",
        "commit_ts",
        F.lit(False).alias("read"),
        (F.col("commit_ts") > snapshot.at).alias("after"),
        F.lit(None).cast(f"struct<commit_ts: bigint, place: {_PLACE}>").alias("change"),
    )
    by_key = (
        changed.unionAll(existing)
        .groupBy("key")
        .agg(
            F.bool_or("read").alias("read"),
            F.max(F.when(~F.col("after"), F.col("commit_ts"))).alias("until"),
            F.min(F.when(F.col("after") & ~F.col("read"), F.col("change"))).alias("next"),
        )
        .where(~F.col("read") & F.col("until").isNotNull())
    )
    return _end_keys(by_key, snapshot.at, snapshot.file, snapshot.position)


def _absent_from_table_scan(scan: TableScan, changes: DataFrame, earlier: Sequence[DataFrame]) -> DataFrame:
    """Return where the keys end that existed before an incremental snapshot, and have no change since, or an insert first.

    Arguments and columns: as `_absent_from_dump`. Offsets decide which changes came after the snapshot's beginning; in a
    partition without records at that time, changes of later releases did. A connector that restarts repeats changes, and
    only the first record of a change counts: its offset may be below the beginning. So a change whose place in the binlog
    is at or after the beginning came after it, too.
    """
    topic_partition = F.concat_ws("/", "partition", "topic")
    begun = [
        F.lit(each) for topic, of in scan.begun.items() for n, offset in of.items() for each in (f"{n}/{topic}", offset)
    ]
    first = F.try_element_at(F.create_map(*begun), topic_partition) if begun else F.lit(None)
    after = F.coalesce(F.col("offset") >= first, F.col("release") > scan.release)
    for place in scan.places:
        behind = (binlog.log_hash() == place.log) & binlog.is_at_or_after(place.number, place.position)
        after = after | F.coalesce(behind, F.lit(False))
    step, change = F.struct("partition", "offset", "op"), F.struct("release", "ordinal").cast(_PLACE)
    changed = changes.select(
        "key",
        "commit_ts",
        after.alias("after"),
        step.alias("step"),
        F.struct("commit_ts", change.alias("place")).alias("change"),
    )
    existing = reduce(DataFrame.unionAll, earlier).select(
        "key",
        "commit_ts",
        (F.col("commit_ts") > scan.at).alias("after"),
        F.lit(None).cast("struct<partition: int, offset: bigint, op: string>").alias("step"),
        F.lit(None).cast(f"struct<commit_ts: bigint, place: {_PLACE}>").alias("change"),
    )
    by_key = (
        changed.unionAll(existing)
        .groupBy("key")
        .agg(
            F.max(F.when(~F.col("after"), F.col("commit_ts"))).alias("until"),
            F.min(F.when(F.col("after"), F.col("step"))).alias("first"),
            F.min(F.when(F.col("after"), F.col("change"))).alias("next"),
        )
        .where(F.col("until").isNotNull() & F.coalesce(F.col("first.op") == str(Op.INSERT), F.lit(True)))
    )
    return _end_keys(by_key, scan.at, None, None)


def _end_keys(by_key: DataFrame, at: int, file: str | None, position: int | None) -> DataFrame:
    """Return where the keys end that a snapshot lacks: at its position, and not after the key's next change.

    Args:
        by_key: key; until BIGINT, the key's last commit_ts before the snapshot; next STRUCT, its next change after it.
        at: position of the snapshot.
        file: binlog file of the snapshot.
        position: its position in the file.

    Returns:
        The columns of `_absent_from_dump`.
    """
    ends = F.greatest(F.lit(at).cast("bigint"), "until")
    overtaken = F.col("next.commit_ts") <= ends
    return by_key.select(
        "key",
        F.least(ends, "next.commit_ts").alias("commit_ts"),
        F.struct(F.lit(file).cast("string").alias("file"), F.lit(position).cast("bigint").alias("position")).alias(
            "source"
        ),
        F.when(overtaken, F.col("next.place")).alias("place"),
    )
