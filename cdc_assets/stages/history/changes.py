"""Read the changes that a commit applies to a history table, each with its era: the number of statements before it."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField

from cdc_assets.history.eras import era_column
from cdc_assets.history.progress import Name
from cdc_assets.history.table_plan import LoadToApply, TablePlan
from cdc_assets.history.versions import Replacement
from cdc_assets.lakehouse.files import read_file_schema
from cdc_assets.lakehouse.history import source_columns, source_name
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
