"""The open versions of a history table that a commit continues or ends."""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import Arrive, Convert, Fill, Slot
from cdc_assets.history.shape import Shape
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.history import COPY
from cdc_assets.lakehouse.schema import frame_of, quoted
from cdc_assets.spark.session import INTERPRETED_ROW_LIMIT, checkpointed, compiled_plans


def read_open_versions(
    session: SparkSession, plan: TablePlan, shape: Shape, row: StructType, changes: DataFrame, new_columns: set[str]
) -> DataFrame:
    """Return the open versions that the commit needs, with the columns that `versions.build_timeline` takes.

    These are all open versions if the commit rewrites all of them, otherwise those of the keys of `changes`. The versions of
    `TablePlan.reopens` are included, with the era before they ended.

    Args:
        session: runs the commit.
        plan: the commit.
        shape: what the history table becomes.
        row: the type of `row` in the changes.
        changes: `key`.
        new_columns: columns that the versions do not have yet; they get NULL.
    """
    if plan.present is None:
        versions = frame_of(session, [], shape.columns)
    elif plan.rewinds:
        versions = plan.table.read(session).where(_was_open_at_replay(plan))
    elif plan.reopens:
        versions = plan.table.read(session).where(f"_cdc_is_current OR {plan.reopens}")
    else:
        versions = plan.table.read(session).where(F.col("_cdc_is_current") == F.lit(True))
    if plan.rewrites_all_open:
        return _shape_versions(versions, plan, shape, row, new_columns)
    keys = changes.select(F.col("key").alias("_cdc_key")).distinct()
    low, high = keys.agg(F.min("_cdc_key"), F.max("_cdc_key")).head() or ("", "")
    # Delta skips files by literal bounds only.
    versions = versions.where(F.col("_cdc_key").between(low, high))
    if plan.changes <= INTERPRETED_ROW_LIMIT:
        keys = F.broadcast(keys)
    # The join comes first, because most of the versions do not have to be shaped.
    matching = _shape_versions(versions.join(keys, "_cdc_key", "left_semi"), plan, shape, row, new_columns)
    with compiled_plans(session):
        return checkpointed(matching)


def _shape_versions(
    versions: DataFrame, plan: TablePlan, shape: Shape, row: StructType, new_columns: set[str]
) -> DataFrame:
    """Return rows of the history table with the columns that `versions.build_timeline` takes."""
    names = set(row.names)
    ours = {f.name for f in shape.columns if f.name.startswith("_cdc_")}
    rest = [f.name for f in shape.columns if f.name not in names and f.name not in ours]
    types = {f.name: f.dataType.simpleString() for f in (*shape.columns, *row)}
    era = str(plan.base)
    if plan.replacement is not None:
        _, _, replaced = plan.replacement
        era = f"CASE WHEN _cdc_is_current THEN {plan.base} ELSE {replaced.era} END"

    def value(name: str) -> str:
        held = "NULL" if name in new_columns else quoted(name)
        return f"CAST({held} AS {types[name]}) AS {quoted(name)}"

    beside = [value(name) if name in new_columns else quoted(name) for name in rest]
    return versions.selectExpr(
        "_cdc_key AS key",
        f"{copy_expression(shape.columns.names)} AS copy",
        "_cdc_from_ts AS commit_ts",
        f"{era} AS era",
        "_cdc_op AS op",
        "_cdc_topic AS topic",
        "_cdc_partition AS partition",
        "_cdc_offset AS offset",
        f"struct({', '.join(value(f.name) for f in row)}) AS row",
        f"struct({', '.join(['_cdc_key', *beside])}) AS rest",
    )


def copy_expression(names: Iterable[str]) -> str:
    """Return the SQL text for the copy number of a version in a history table with these columns; 0 for rows with a key."""
    return f"coalesce({COPY.name}, 0)" if COPY.name in names else "0"


def _was_open_at_replay(plan: TablePlan) -> Column:
    """Return whether a version was open at the commit_ts to which the commit takes the table back."""
    begin = F.lit(plan.replay)
    return (F.col("_cdc_from_ts") < begin) & ~F.coalesce(F.col("_cdc_to_ts") < begin, F.lit(False))


def list_new_columns(plan: TablePlan, columns: list[SourceColumn]) -> set[str]:
    """Return the columns that open versions do not have yet, whatever values an earlier run has written into them.

    A statement that is applied again gives the columns that it adds their values again. That happens where another table
    takes this table's name, and where a reload comes before the statement.
    """
    if not plan.rewinds:
        return set() if plan.replacement is None else {slot.column for slot in _only_in_new(plan.replacement[1])}
    coming = [op for step in plan.evolution.steps[plan.base :] for op in step.ops if isinstance(op, Arrive)]
    names = {slot.column for op in coming for slot in _only_in_new(op)}
    if plan.reload_positions:
        filling = [op for step in plan.steps for op in step.ops if isinstance(op, Fill | Convert)]
        ids = {op.slot.id for op in filling if isinstance(op, Fill) or not op.is_in_place}
        names |= {c.column for c in columns if c.id in ids}
    return names


def _only_in_new(op: Arrive) -> set[Slot]:
    """Return the columns that only the incoming table has; none if the commit replaces no table."""
    return set() if op.replaced is None else set(op.columns) - op.replaced.columns
