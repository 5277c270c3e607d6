"""The changes that a part of a run applies to its table, each with the statements that came before it."""

from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField

from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Spot
from cdc_assets.history.versions import Effects, Replacement, number_copies
from cdc_assets.history.work import TypedRows, Work
from cdc_assets.lakehouse.files import read_file_schema
from cdc_assets.lakehouse.history import source_columns, source_name
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import RELEASED_CHANGES, ReleasedKind
from cdc_assets.lakehouse.schema import conform, quoted


def changes_of(lake: Lakehouse, session: SparkSession, work: Work) -> DataFrame:
    """The changes that the part applies."""
    found, column = _of_all_parts(lake, session, work), F.col
    first, last = work.eras
    if first or last < len(work.evolution.steps):
        of_part = column("era").between(first, last)
        if work.cursor.partly is not None and work.cursor.partly[0] < work.through:
            of_part |= (column("release") > work.cursor.partly[0]) & (column("era") <= last)
        found = found.where(of_part)
    return found


def are_ordered_by_clock(lake: Lakehouse, session: SparkSession, work: Work, replacement: Replacement) -> bool:
    """Return whether no change that comes after the replacement, by its place in the binlog, is stamped before it.

    Where one is, a version that spans the statement's position need not have been open then.
    """
    if not work.evolution.has_binlog_places:
        return True  # the clock tells what comes after a statement
    later = (F.col("era") > replacement.coming) & (F.col("commit_ts") < replacement.commit_ts)
    return _of_all_parts(lake, session, work).where(later).isEmpty()


def _of_all_parts(lake: Lakehouse, session: SparkSession, work: Work) -> DataFrame:
    """The table's changes in the releases to apply."""
    column, (database, table) = F.col, work.name
    within = (column("database") == database) & (column("table") == table) & (column("release") <= work.through)
    within &= (column("release") > work.after) if work.replay is None else (column("commit_ts") >= work.replay)
    found = lake.released_changes.read_files(session, work.files).where(within)
    if work.typed is not None:
        found = found.unionByName(_of_typed_rows(lake, session, work.name, work.typed))
    return found.withColumn("era", era_of(work))


def _of_typed_rows(lake: Lakehouse, session: SparkSession, name: Name, typed: TypedRows) -> DataFrame:
    """The typed rows of a load as changes, with the texts that `protocols.loaded` would have of their values."""
    table = lake.loaded_rows(*name)
    staged = table.list_staged(typed.load.folder)
    columns = read_file_schema(staged.files[0].path, lake.store)

    def text(field: StructField) -> Column:
        value = F.col(quoted(field.name))
        told = F.hex(value) if isinstance(field.dataType, BinaryType) else value.cast("string")
        return told.alias(source_name(field.name))

    own = set(source_columns(columns.names))
    rows = table.read_staged(session, staged, columns).select(
        F.lit(str(ReleasedKind.LOADED)).alias("kind"),
        F.lit(typed.release).alias("release"),
        F.col("_cdc_from_ts").alias("commit_ts"),
        F.col("_cdc_op").alias("op"),
        F.lit(name[0]).alias("database"),
        F.lit(name[1]).alias("table"),
        F.col("_cdc_topic").alias("topic"),
        F.col("_cdc_partition").alias("partition"),
        F.col("_cdc_offset").alias("offset"),
        F.lit(0).alias("index"),
        F.lit(1).alias("ordinal"),
        F.col("_cdc_key").alias("key"),
        F.to_json(F.struct(*[text(f) for f in columns if f.name in own]), {"ignoreNullFields": "false"}).alias("after"),
        F.lit(typed.layout_id).alias("layout_id"),
    )
    return conform(rows, RELEASED_CHANGES.columns)


def era_of(work: Work) -> Column:
    """How many statements have come before a change. INT."""
    low, high = work.among
    spots = [step.spot for step in work.evolution.steps[low:high]]
    return reduce(lambda era, spot: era + F.when(_after(spot), 1).otherwise(0), spots, F.lit(low))


def _after(spot: Spot) -> Column:
    """Whether a change came after a statement: by the binlog, else by the clock, and by Kafka within one partition.

    Debezium 1.9 stamps statements with its own clock.
    """
    same = F.col("commit_ts") == spot.commit_ts
    in_partition = (F.col("topic") == spot.topic) & (F.col("partition") == spot.partition)
    behind = in_partition & (F.col("offset") > spot.offset)
    later = (F.col("commit_ts") > spot.commit_ts) | (same & behind)
    if spot.place is None:
        return later
    file, position = spot.place
    in_file = (F.col("source.file") == file) & (F.col("source.position") > position)
    return F.coalesce((F.col("source.file") > file) | in_file, later)


def as_sent(work: Work, changes: DataFrame) -> Work:
    """The work with those layouts alone that its rows have: one that comes back after a statement has had none between."""
    if len({layout.era for layout in work.layouts}) <= 1:
        return work
    sent = changes.select("layout_id", "era").distinct().toArrow()
    found = {(r["layout_id"], r["era"]) for r in sent.to_pylist()}
    return replace(work, layouts=[each for each in work.layouts if (each.layout_id, each.era) in found])


def with_copy_numbers(
    work: Work, changes: DataFrame, standing: DataFrame, arrived: DataFrame | None, effects: Effects
) -> DataFrame:
    """The changes with the `copy` of the row that each is about."""
    if not work.keyless:
        return changes.withColumn("copy", F.lit(0))
    there = standing if arrived is None else standing.unionByName(arrived, allowMissingColumns=True)
    return number_copies(changes, there, effects)
