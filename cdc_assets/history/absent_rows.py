"""Find rows that a reload lacks (a dump, or a snapshot of the source's connector): they had ended when it was read."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets import binlog
from cdc_assets.history.eras import era_column
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.versions import ABSENT
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.initial_load import LAST_ORDINAL, LOAD_TOPIC
from cdc_assets.lakehouse.released_changes import SourceSnapshot, TableScan

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
        Changes of the op `ABSENT`, one for each row that ends.
    """
    existing = [frame.select("key", "commit_ts") for frame in (open_versions, moved_rows) if frame is not None]
    earlier = reduce(DataFrame.unionAll, existing)
    frames = [
        *(_absent_from_dump(at, changes, earlier) for at in plan.dumps),
        *(
            _absent_from_table_scan(each, changes, earlier)
            if isinstance(each, TableScan)
            else _absent_from_source_snapshot(each, changes, earlier)
            for each in plan.snapshots
        ),
    ]
    # An end without a place comes after all changes of these releases, and before those that later commits apply.
    latest = F.struct(F.lit(plan.through).cast("bigint").alias("release"), F.lit(LAST_ORDINAL).alias("ordinal"))
    constants = {
        "copy": F.lit(0),
        "op": F.lit(ABSENT),
        "row": F.lit(None).cast(row),
        "topic": F.lit(LOAD_TOPIC),
        "partition": F.lit(0),
        "offset": F.lit(0).cast("bigint"),
        "sent_ms": F.lit(None).cast("bigint"),
    }
    ends = reduce(DataFrame.unionAll, frames).withColumns(constants | {"place": F.coalesce("place", latest)})
    placed = ends.withColumn("era", era_column(plan)).select("*", "place.release", "place.ordinal")
    return placed.drop("source", "sent_ms", "place").where(F.col("era").between(*plan.eras))


def _absent_from_dump(at: int, changes: DataFrame, earlier: DataFrame) -> DataFrame:
    """Return where the keys end that a dump lacks.

    Args:
        at: position of the dump.
        changes: the changes of the commit, the rows of the dump among them.
        earlier: key and commit_ts of open versions and moved rows.

    Returns:
        The columns of `_end_keys`.
    """
    is_read = (F.col("commit_ts") == at) & (F.col("topic") == LOAD_TOPIC)
    marked = changes.withColumns({"is_read": is_read, "is_after": F.col("commit_ts") > at})
    return _end_keys(marked, earlier, at, ~_any_read())


def _absent_from_source_snapshot(snapshot: SourceSnapshot, changes: DataFrame, earlier: DataFrame) -> DataFrame:
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
    is_after = F.coalesce(F.col("offset") > F.col("begun"), maybe)
    located = changes.join(F.broadcast(begun), on=["topic", "partition"], how="left")
    marked = located.withColumns({"is_read": is_read, "is_after": is_after})
    return _end_keys(marked, earlier, snapshot.at, ~_any_read(), snapshot.file, snapshot.position)


def _absent_from_table_scan(scan: TableScan, changes: DataFrame, earlier: DataFrame) -> DataFrame:
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
    # Open versions and moved rows have no op.
    is_later_change = F.col("is_after") & F.col("op").isNotNull()
    first_change = F.min(F.when(is_later_change, F.struct("partition", "offset", "op")))
    is_absent = F.coalesce(first_change["op"] == str(Op.INSERT), F.lit(True))
    return _end_keys(changes.withColumns({"is_read": F.lit(False), "is_after": after}), earlier, scan.at, is_absent)


def _any_read() -> Column:
    """Return whether a reload has a key, as an aggregation of the key's changes. BOOLEAN, never NULL."""
    return F.coalesce(F.bool_or("is_read"), F.lit(False))


def _end_keys(
    changes: DataFrame,
    earlier: DataFrame,
    at: int,
    is_absent: Column,
    file: str | None = None,
    position: int | None = None,
) -> DataFrame:
    """Return where the keys end that a reload lacks: at its position, and not after the key's next change.

    Args:
        changes: the changes of the commit, with `is_read` BOOLEAN: whether the reload read the row, and `is_after` BOOLEAN:
            whether the change came after the reload.
        earlier: key and commit_ts of open versions and moved rows.
        at: position of the reload.
        is_absent: whether the reload lacks a key, as an aggregation of the key's changes.
        file: binlog file of the reload.
        position: its position in the file.

    Returns:
        key; commit_ts, where the key ends; source STRUCT, the place in the binlog for `era_column`; place STRUCT<release,
        ordinal>: the change of the same commit_ts that the end comes right before; NULL if it comes after all of them.
    """
    change = F.struct("commit_ts", F.struct("release", "ordinal").cast(_PLACE).alias("place"))
    existing = earlier.withColumn("is_after", F.col("commit_ts") > at)
    by_key = (
        changes.select("key", "commit_ts", "is_read", "is_after", "partition", "offset", "op", change.alias("change"))
        .unionByName(existing, allowMissingColumns=True)
        .groupBy("key")
        .agg(
            F.max(F.when(~F.col("is_after"), F.col("commit_ts"))).alias("until"),
            F.min(F.when(F.col("is_after") & ~F.col("is_read"), F.col("change"))).alias("next"),
            is_absent.alias("is_absent"),
        )
        .where("is_absent AND until IS NOT NULL")
    )
    ends = F.greatest(F.lit(at).cast("bigint"), "until")
    source = F.struct(F.lit(file).cast("string").alias("file"), F.lit(position).cast("bigint").alias("position"))
    return by_key.select(
        "key",
        F.least(ends, "next.commit_ts").alias("commit_ts"),
        source.alias("source"),
        F.when(F.col("next.commit_ts") <= ends, F.col("next.place")).alias("place"),
    )
