"""The changes that a commit applies to a history table, each with its era: the number of statements before it."""

from dataclasses import replace
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField

from cdc_assets.binlog import is_after_place
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Spot
from cdc_assets.history.table_plan import LoadToApply, TablePlan
from cdc_assets.history.versions import Effects, Replacement, number_copies
from cdc_assets.lakehouse.files import read_file_schema
from cdc_assets.lakehouse.history import source_columns, source_name
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import RELEASED_CHANGES, ReleasedKind
from cdc_assets.lakehouse.schema import conform, quoted


def read_changes(lake: Lakehouse, session: SparkSession, plan: TablePlan) -> DataFrame:
    """Return the changes that the commit applies: the columns of released_changes, and `era` INT."""
    changes, column = _read_changes_of_run(lake, session, plan), F.col
    first, last = plan.eras
    if first or last < len(plan.evolution.steps):
        is_applied = column("era").between(first, last)
        if plan.cursor.partly is not None and plan.cursor.partly[0] < plan.through:
            is_applied |= (column("release") > plan.cursor.partly[0]) & (column("era") <= last)
        changes = changes.where(is_applied)
    return changes


def is_ordered_by_clock(lake: Lakehouse, session: SparkSession, plan: TablePlan, replacement: Replacement) -> bool:
    """Return whether all changes after the replacement have a commit_ts at or above its own.

    If one does not, a version that spans the statement's position need not have been open at the statement.
    """
    if plan.has_exact_order:
        return True
    is_stamped_before = (F.col("era") > replacement.new_era) & (F.col("commit_ts") < replacement.commit_ts)
    return _read_changes_of_run(lake, session, plan).where(is_stamped_before).isEmpty()


def _read_changes_of_run(lake: Lakehouse, session: SparkSession, plan: TablePlan) -> DataFrame:
    """Return the table's changes in all releases that the run applies, and `era` INT."""
    column, (database, table) = F.col, plan.name
    within = (column("database") == database) & (column("table") == table) & (column("release") <= plan.through)
    within &= (column("release") > plan.after) if plan.replay is None else (column("commit_ts") >= plan.replay)
    changes = lake.released_changes.read_files(session, plan.files).where(within)
    if plan.typed is not None:
        changes = changes.unionByName(_read_typed_rows(lake, session, plan.name, plan.typed))
    return changes.withColumn("era", era_column(plan))


def _read_typed_rows(lake: Lakehouse, session: SparkSession, name: Name, typed: LoadToApply) -> DataFrame:
    """Return the typed rows of a load as changes, with the texts that `protocols.loaded` would write for their values."""
    table = lake.loaded_rows(*name)
    staged = table.list_staged(typed.load.folder)
    columns = read_file_schema(staged.files[0].path, lake.store)

    def text(field: StructField) -> Column:
        value = F.col(quoted(field.name))
        as_text = F.hex(value) if isinstance(field.dataType, BinaryType) else value.cast("string")
        return as_text.alias(source_name(field.name))

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


def era_column(plan: TablePlan) -> Column:
    """Return the era of a change: how many statements came before it. INT."""
    low, high = plan.among
    spots = [step.spot for step in plan.evolution.steps[low:high]]
    later = [F.when(_is_after(spot, has_exact_order=plan.has_exact_order), 1).otherwise(0) for spot in spots]
    return reduce(add, later, F.lit(low))


def _is_after(spot: Spot, *, has_exact_order: bool) -> Column:
    """Return whether a change came after a statement: by the binlog, else by offset in one partition, else by commit_ts.

    Clocks come last. A statement that waited for a lock has an older time than the changes before it, and Debezium 1.9 gives
    statements the time of its own clock.
    """
    in_partition = (F.col("topic") == spot.topic) & (F.col("partition") == spot.partition)
    is_behind = F.col("offset") > spot.offset
    same = F.col("commit_ts") == spot.commit_ts
    is_later = (F.col("commit_ts") > spot.commit_ts) | (same & in_partition & is_behind)
    if has_exact_order or spot.topic == LOAD_TOPIC:
        return is_later
    by_offset = F.when(in_partition, is_behind).otherwise(is_later)
    return by_offset if spot.place is None else F.coalesce(is_after_place(spot.place), by_offset)


def drop_unused_layouts(plan: TablePlan, changes: DataFrame) -> TablePlan:
    """Return the plan with only those layouts that its changes have.

    A layout that the source uses again after a statement is planned for every era between its uses.
    """
    if len({layout.era for layout in plan.layouts}) <= 1:
        return plan
    rows = changes.select("layout_id", "era").distinct().toArrow()
    used = {(r["layout_id"], r["era"]) for r in rows.to_pylist()}
    return replace(plan, layouts=[each for each in plan.layouts if (each.layout_id, each.era) in used])


def add_copy_numbers(
    plan: TablePlan, changes: DataFrame, open_versions: DataFrame, moved_rows: DataFrame | None, effects: Effects
) -> DataFrame:
    """Add to each change the copy number of the row that it is about: `copy` INT, 0 for rows with a key."""
    if not plan.keyless:
        return changes.withColumn("copy", F.lit(0))
    rows = open_versions if moved_rows is None else open_versions.unionByName(moved_rows, allowMissingColumns=True)
    return number_copies(changes, rows, effects)
