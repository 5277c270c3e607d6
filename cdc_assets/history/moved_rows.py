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
        after: the commit_ts after which the rows ended in `origin`.
    """

    op: Recover | Rekey | Arrive
    spot: Spot
    era: int
    origin: LakeTable[HistoryCursor]
    after: int

    def read_origin(self, session: SparkSession) -> DataFrame:
        """Return the versions of the origin that ended after `after`, and those that went on although their rows moved."""
        ended = ~F.col("_cdc_is_current") & (F.col("_cdc_to_ts") > self.after)
        return self.origin.read(session).where(ended | self.went_on)

    @property
    def went_on(self) -> Column:
        """Whether a version of the origin holds a row that moves, and yet has not ended. BOOLEAN.

        That is so where a third table has taken the origin's name with an equal row.
        """
        at = F.lit(self.spot.commit_ts)
        if not isinstance(self.op, Arrive) or not self.op.origin_is_replaced or self.after >= self.spot.commit_ts:
            return F.lit(False)
        return (F.col("_cdc_from_ts") < at) & (F.col("_cdc_is_current") | (F.col("_cdc_to_ts") > at))


def read_moved_rows(
    session: SparkSession, plan: TablePlan, moves: Sequence[Move], columns: list[SourceColumn], effects: Effects
) -> DataFrame | None:
    """Return the rows that statements bring into the table, as changes of the op `DDL`; None if no statement does."""
    frames = []
    for move in moves:
        versions, op, spot, era = move.read_origin(session), move.op, move.spot, move.era
        if isinstance(op, Recover):
            recovered = _select_ended(versions, move.after, op.dropped, "drop")
            frames.append(_open_at(spot, era, recovered, None, columns))
        elif isinstance(op, Rekey):
            frames.append(_rekey(versions, plan, spot, era, op, columns, effects))
        else:
            names = {mine.id: theirs.column for mine, theirs in op.columns.items()}
            moved = versions.where(_ended_with(op, spot.commit_ts) | move.went_on)
            frames.append(_open_at(spot, era, moved, names, columns))
    return reduce(DataFrame.unionByName, frames) if frames else None


def _rekey(
    versions: DataFrame,
    plan: TablePlan,
    spot: Spot,
    era: int,
    op: Rekey,
    columns: list[SourceColumn],
    effects: Effects,
) -> DataFrame:
    """Return the rows that ended when the statement changed their key, under the new key. Columns: as `_open_at`."""
    at = spot.commit_ts
    if op.by_row is not None:
        # Another change of the key at the same commit_ts may have ended rows, too.
        versions = versions.where(is_row_key(F.col("_cdc_key")) == F.lit(op.by_row))
    if op.columns:
        key = ", ".join(f"CAST({quoted(s.column)} AS STRING)" for s in op.columns)
        versions = versions.withColumn("_cdc_key", F.expr(f"to_json(array({key}))"))
    rekeyed = _open_at(spot, era, _select_ended(versions, at - 1, at, "ddl"), None, columns)
    rekeyed = rekeyed.withColumn("copy", F.lit(0))
    if not op.columns:
        row = effects.evolve(F.col("row"), F.lit(era), F.lit(era + 1))
        rekeyed = rekeyed.withColumn("key", row_key(row, plan.evolution.live(era + 1), columns))
    of_key = Window.partitionBy("key").orderBy(F.desc("began"), "topic", "partition", "offset")
    numbered = rekeyed.withColumn("n", F.row_number().over(of_key))
    if op.columns:
        # The old key may have kept apart rows that have the same new key: the one that was written last is right.
        return numbered.where("n = 1").drop("n")
    return numbered.withColumn("copy", F.col("n")).drop("n")


def _select_ended(versions: DataFrame, after: int, until: int, reason: str) -> DataFrame:
    """Return the versions that ended in (after, until] for the reason."""
    within = (F.col("_cdc_to_ts") > after) & (F.col("_cdc_to_ts") <= until) & (F.col("_cdc_closed_by") == reason)
    return versions.where(within)


def _ended_with(op: Arrive, at: int) -> Column:
    """Return whether a version of the origin ended with the RENAME at commit_ts `at`. BOOLEAN.

    A RENAME that waited for a lock has an older time than the last changes before it. Their versions end when they begin.
    """
    begin, end = F.col("_cdc_from_ts"), F.col("_cdc_to_ts")
    within = (end > op.since) & (end <= at)
    began_later = (begin == end) & (end > at) & (F.lit(True) if op.next is None else end < op.next)
    of_earlier = (begin == end) & (end < at) & F.lit(op.since >= 0)
    return (F.col("_cdc_closed_by") == "rename") & ((within & ~of_earlier) | began_later)


def _open_at(
    spot: Spot, era: int, versions: DataFrame, names: Mapping[str, str] | None, columns: list[SourceColumn]
) -> DataFrame:
    """Return versions as changes that begin with a statement.

    Args:
        spot: position of the statement.
        era: the era before it.
        versions: rows of a history table.
        names: ids of columns -> their names in `versions`; None if they have the names of this table.
        columns: the columns of this table.

    Returns:
        The columns of `versions.build_timeline`, and `began` BIGINT: the `_cdc_from_ts` of the version.
    """
    present = {name.lower() for name in versions.columns}

    def value(c: SourceColumn) -> str:
        own = c.column if names is None else names.get(c.id, "")
        held = quoted(own) if own.lower() in present else "NULL"
        return f"CAST({held} AS {c.target.simpleString()}) AS {quoted(c.column)}"

    return versions.selectExpr(
        "_cdc_key AS key",
        f"{copy_expression(present)} AS copy",
        f"{era} AS era",
        f"CAST({spot.commit_ts} AS BIGINT) AS commit_ts",
        "CAST(0 AS BIGINT) AS release",
        "0 AS ordinal",
        f"'{DDL}' AS op",
        f"struct({', '.join(value(c) for c in columns)}) AS row",
        f"{literal(spot.topic)} AS topic",
        f"{spot.partition} AS partition",
        f"CAST({spot.offset} AS BIGINT) AS offset",
        "_cdc_from_ts AS began",
    )
