"""The open versions that a part of a run meets, as `versions.timeline` takes them."""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import Arrive, Convert, Fill, Slot
from cdc_assets.history.shape import Shape
from cdc_assets.history.work import Work
from cdc_assets.lakehouse.history import COPY
from cdc_assets.lakehouse.schema import frame_of, quoted
from cdc_assets.spark.session import INTERPRETED_ROW_LIMIT, checkpointed, compiled_plans


def rows_of(work: Work) -> int:
    """How many rows the plans for it are about: the changes, and of a table that is written anew the open versions."""
    written = work.cursor.versions if work.reopens else work.cursor.current
    return work.changes + (written if work.takes_all else 0)


def open_versions(
    session: SparkSession,
    work: Work,
    shape: Shape,
    schema: StructType,
    changes: DataFrame,
    unmade: set[str],
) -> DataFrame:
    """Return the open versions that `timeline` takes: all if the part writes all anew, else those of the keys of `changes`.

    With them come those of `Work.reopens`, in the era before they ended. `unmade`: the columns that they do not have yet.
    """
    names = set(schema.names)
    ours = {f.name for f in shape.columns if f.name.startswith("_cdc_")}
    rest = [f.name for f in shape.columns if f.name not in names and f.name not in ours]

    types = {f.name: f.dataType.simpleString() for f in (*shape.columns, *schema)}
    era = str(work.base)
    if work.replacement is not None:
        _, _, replaced = work.replacement
        era = f"CASE WHEN _cdc_is_current THEN {work.base} ELSE {replaced.era} END"

    def value(name: str) -> str:
        held = "NULL" if name in unmade else quoted(name)
        return f"CAST({held} AS {types[name]}) AS {quoted(name)}"

    def shaped(rows: DataFrame) -> DataFrame:
        beside = [value(name) if name in unmade else quoted(name) for name in rest]
        return rows.selectExpr(
            "_cdc_key AS key",
            f"{copy_in(shape.columns.names)} AS copy",
            "_cdc_from_ts AS commit_ts",
            f"{era} AS era",
            "_cdc_op AS op",
            "_cdc_topic AS topic",
            "_cdc_partition AS partition",
            "_cdc_offset AS offset",
            f"struct({', '.join(value(f.name) for f in schema)}) AS row",
            f"struct({', '.join(['_cdc_key', *beside])}) AS rest",
        )

    if work.present is None:
        return shaped(frame_of(session, [], shape.columns))
    if work.rewinds:
        return shaped(work.table.read(session).where(_of_before(work)))
    if work.reopens:
        return shaped(work.table.read(session).where(f"_cdc_is_current OR {work.reopens}"))
    current = work.table.read(session).where(F.col("_cdc_is_current") == F.lit(True))
    if work.takes_all:
        return shaped(current)
    keys = changes.select(F.col("key").alias("_cdc_key")).distinct()
    low, high = keys.agg(F.min("_cdc_key"), F.max("_cdc_key")).head() or ("", "")
    # By literal bounds Delta passes over whole files.
    current = current.where(F.col("_cdc_key").between(low, high))
    if work.changes <= INTERPRETED_ROW_LIMIT:
        keys = F.broadcast(keys)
    # Joined before they are shaped, which of most of them would be in vain.
    found = shaped(current.join(keys, "_cdc_key", "left_semi"))
    with compiled_plans(session):
        return checkpointed(found)


def copy_in(names: Iterable[str]) -> str:
    """The copy that a version of a history table with these columns is; 0 where its row has a key."""
    return f"coalesce({COPY.name}, 0)" if COPY.name in names else "0"


def _of_before(work: Work) -> Column:
    """The versions that were open at the commit_ts to which the table goes back."""
    begin = F.lit(work.replay)
    return (F.col("_cdc_from_ts") < begin) & ~F.coalesce(F.col("_cdc_to_ts") < begin, F.lit(False))


def unmade(work: Work, columns: list[SourceColumn]) -> set[str]:
    """The columns that versions do not have yet, whatever an earlier run has put there.

    A statement that is applied anew gives the columns that it made their values once more: where another table takes the
    name; and where a load came before, as rows go back to what the load found.
    """
    if not work.rewinds:
        return set() if work.replacement is None else {slot.column for slot in _only_in_new(work.replacement[1])}
    coming = [op for step in work.evolution.steps[work.base :] for op in step.ops if isinstance(op, Arrive)]
    names = {slot.column for op in coming for slot in _only_in_new(op)}
    if work.anew:
        made = [op for step in work.steps for op in step.ops if isinstance(op, Fill | Convert)]
        ids = {op.slot.id for op in made if isinstance(op, Fill) or op.slot.id != op.origin.id}
        names |= {c.column for c in columns if c.id in ids}
    return names


def _only_in_new(op: Arrive) -> set[Slot]:
    """The columns that only the table has whose rows come in; none where it replaces no other."""
    return set() if op.replaced is None else set(op.columns) - op.replaced.columns
