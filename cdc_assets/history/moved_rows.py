"""Rows that DDL statements bring into a history table: from another table, from before a DROP TABLE, under another key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import Arrive, Recover, Rekey
from cdc_assets.history.open_versions import copy_expression
from cdc_assets.history.row_keys import row_key
from cdc_assets.history.statements import Spot
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.versions import DDL, Effects, is_row_key
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.schema import literal, quoted
from cdc_assets.lakehouse.table import LakeTable


@dataclass(frozen=True)
class Move:
    """A statement that brings rows into the table.

    Attributes:
        op: what the statement does.
        spot: position of the statement.
        era: how many statements came before it.
        origin: the history table that has the rows.
    """

    op: Recover | Rekey | Arrive
    spot: Spot
    era: int
    origin: LakeTable[HistoryCursor]


def list_moved_columns(moves: Sequence[Move]) -> set[str]:
    """Return the ids of the columns that the origin's history has, for each RENAME that brings rows into the table."""
    return {
        own.id
        for move in moves
        if isinstance(move.op, Arrive) and (schema := move.origin.schema()) is not None
        for own, slot in move.op.columns.items()
        if slot.column in schema.names
    }


def read_moved_rows(
    session: SparkSession, plan: TablePlan, moves: Sequence[Move], columns: list[SourceColumn], effects: Effects
) -> DataFrame | None:
    """Return the rows that statements bring into the table, as changes of the op `DDL`; None if no statement does."""
    frames = []
    for move in moves:
        versions, op, at = move.origin.read(session), move.op, move.spot.commit_ts
        if isinstance(op, Recover):
            ended_at = F.col("_cdc_to_ts")
            dropped = versions.where(_closed_by("drop") & (ended_at > op.since) & (ended_at <= op.dropped))
            frames.append(_open_at(move, dropped, {c.id: c.column for c in columns}, columns))
        elif isinstance(op, Rekey):
            ended = versions.where(_closed_by("ddl") & (F.col("_cdc_to_ts") == at))
            frames.append(_rekey(ended, plan, move, op, columns, effects))
        else:
            names = {mine.id: theirs.column for mine, theirs in op.columns.items()}
            moved = versions.where(_ended_with(op, at) | _went_on(op, at))
            frames.append(_open_at(move, moved, names, columns))
    return reduce(DataFrame.unionByName, frames) if frames else None


def _rekey(
    ended: DataFrame, plan: TablePlan, move: Move, op: Rekey, columns: list[SourceColumn], effects: Effects
) -> DataFrame:
    """Return the rows that ended when the statement changed their key, under the new key. Columns: as `_open_at`."""
    if op.by_row is not None:
        # Another change of the key at the same commit_ts may have ended rows, too.
        ended = ended.where(is_row_key(F.col("_cdc_key")) == F.lit(op.by_row))
    present = {name.lower() for name in ended.columns}
    if op.columns and not present.issuperset(s.column.lower() for s in op.columns):
        ended = ended.where(F.lit(False))  # a table that never had a row need not have the key's columns
    elif op.columns:
        key = ", ".join(f"CAST({quoted(s.column)} AS STRING)" for s in op.columns)
        ended = ended.withColumn("_cdc_key", F.expr(f"to_json(array({key}))"))
    rows = _open_at(move, ended, {c.id: c.column for c in columns}, columns)
    if not op.columns:
        row = effects.evolve(F.col("row"), F.lit(move.era), F.lit(move.era + 1))
        rows = rows.withColumn("key", row_key(row, plan.evolution.live(move.era + 1), columns))
    of_key = Window.partitionBy("key").orderBy(F.desc("began"), "topic", "partition", "offset")
    numbered = rows.withColumn("copy", F.row_number().over(of_key))
    # The old key may have kept apart rows that have the same new key: the one that was written last is right.
    return numbered.where("copy = 1").withColumn("copy", F.lit(0)) if op.columns else numbered


def _closed_by(reason: str) -> Column:
    """Return whether a version ended for the reason. BOOLEAN."""
    return ~F.col("_cdc_is_current") & (F.col("_cdc_closed_by") == reason)


def _ended_with(op: Arrive, at: int) -> Column:
    """Return whether a version of the origin ended with the RENAME at commit_ts `at`. BOOLEAN.

    A RENAME that waited for a lock has an older time than the last changes before it. Their versions end when they begin.
    """
    end, is_empty = F.col("_cdc_to_ts"), F.col("_cdc_from_ts") == F.col("_cdc_to_ts")
    ended_in_time = (end <= at) & ~(is_empty & (end < at) & F.lit(op.since >= 0))
    began_later = is_empty & (end > at) & (F.lit(True) if op.next is None else end < op.next)
    return _closed_by("rename") & (end > op.since) & (ended_in_time | began_later)


def _went_on(op: Arrive, at: int) -> Column:
    """Return whether a version of the origin holds a row that moves at commit_ts `at`, and yet has not ended. BOOLEAN.

    That is so where a third table has taken the origin's name with an equal row.
    """
    if not op.origin_is_replaced or op.since >= at:
        return F.lit(False)
    return (F.col("_cdc_from_ts") < at) & (F.col("_cdc_is_current") | (F.col("_cdc_to_ts") > at))


def _open_at(move: Move, versions: DataFrame, names: Mapping[str, str], columns: list[SourceColumn]) -> DataFrame:
    """Return versions as changes that begin with a statement.

    Args:
        move: the statement.
        versions: rows of a history table.
        names: ids of columns -> their names in `versions`.
        columns: the columns of this table.

    Returns:
        The columns of `versions.build_timeline`, and `began` BIGINT: the `_cdc_from_ts` of the version.
    """
    present = {name.lower() for name in versions.columns}

    def value(c: SourceColumn) -> str:
        own = names.get(c.id, "")
        held = quoted(own) if own.lower() in present else "NULL"
        return f"CAST({held} AS {c.target.simpleString()}) AS {quoted(c.column)}"

    return versions.selectExpr(
        "_cdc_key AS key",
        f"{copy_expression(present)} AS copy",
        f"{move.era} AS era",
        f"CAST({move.spot.commit_ts} AS BIGINT) AS commit_ts",
        "CAST(0 AS BIGINT) AS release",
        "0 AS ordinal",
        f"'{DDL}' AS op",
        f"struct({', '.join(value(c) for c in columns)}) AS row",
        f"{literal(move.spot.topic)} AS topic",
        f"{move.spot.partition} AS partition",
        f"CAST({move.spot.offset} AS BIGINT) AS offset",
        "_cdc_from_ts AS began",
    )
