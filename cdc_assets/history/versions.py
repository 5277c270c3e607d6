"""Changes -> versions: the chain of each key, computed apart from any writing.

The steps, each a frame: `timeline` (the open version of each key, and its changes), `boundaries` (where the state really
changes), `versions` (from one boundary to the next). Before them, for tables without a key, `number_copies`.

What DDL statements do to rows is given as `Effects`: rows end with a TRUNCATE, and go on through an ALTER TABLE with what
it makes of their values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from cdc_assets.expressions import first_true
from cdc_assets.lakehouse.change_events import Op

_DELETE = str(Op.DELETE)
_INSERT = str(Op.INSERT)
DDL = "ddl"  # the op of versions that a statement opens
GONE = "gone"  # the op of what says that a load, or a snapshot, does not have a row, which ends with it
_SNAPSHOT = str(Op.SNAPSHOT)
_COORDINATES = ["topic", "partition", "offset"]
# Changes of one key in the order in which they happened; an open version of before has release 0.
_ORDER = ["commit_ts", "era", "release", "ordinal"]
_CHANGE = ["key", "copy", *_ORDER, "op", "row", *_COORDINATES]
_TIMELINE = [*_CHANGE, "standing", "rest"]
# The window, and what of it ends a row, as texts of SQL: each table is planned in this way, and PySpark asks the JVM for
# every part of an expression that is built otherwise.
_CHAIN = f"PARTITION BY key, copy ORDER BY {', '.join(_ORDER)}, op != '{GONE}'"
_ENDS = f"op IN ('{_DELETE}', '{GONE}')"


@dataclass(frozen=True)
class Ending:
    """A statement with which all rows end that are of its era or of one before it."""

    era: int
    reason: str
    commit_ts: int


@dataclass(frozen=True)
class Replacement:
    """A statement with which another table takes the name of this one, whose rows end at the same position.

    Attributes:
        commit_ts: that position.
        leaving: the era of the rows that end.
        coming: the era of the rows that come in.
        is_same: whether a row that ends (first) and one that comes in (second) are equal in the columns of both tables.
        merged: of two such rows, one that has the columns of both tables.
    """

    commit_ts: int
    leaving: int
    coming: int
    is_same: Callable[[Column, Column], Column]
    merged: Callable[[Column, Column], Column]


def _as_it_is(row: Column, since: Column, until: Column) -> Column:  # noqa: ARG001
    return row


@dataclass(frozen=True)
class Effects:
    """What statements do to rows; `era` is how many of them have come before a row.

    Attributes:
        last: the era of the end.
        endings: in order.
        compared: what a row of one era is in another, to be compared with a row of that one.
        kept: what a version that lasts from one era to another has in the end.
        replacement: the statement with which another table takes the name of this one; None: there is none.
    """

    last: int = 0
    endings: tuple[Ending, ...] = ()
    compared: Callable[[Column, Column, Column], Column] = _as_it_is
    kept: Callable[[Column, Column, Column], Column] = _as_it_is
    replacement: Replacement | None = None

    def life(self, era: Column) -> Column:
        """How many endings have come before an era. INT."""
        before = [F.when(era > ending.era, 1).otherwise(0) for ending in self.endings]
        return reduce(lambda a, b: a + b, before, F.lit(0))

    def next(self, era: Column) -> Column:
        """The next ending of rows of an era: STRUCT<era INT, reason STRING, commit_ts BIGINT>; null: there is none."""
        told = [
            (
                era <= e.era,
                F.struct(
                    F.lit(e.era).alias("era"),
                    F.lit(e.reason).alias("reason"),
                    F.lit(e.commit_ts).cast("bigint").alias("commit_ts"),
                ),
            )
            for e in self.endings
        ]
        return first_true(*told)


NO_EFFECTS = Effects()


def is_row(key: Column) -> Column:
    """Whether a key is the whole row (a JSON object), not some of its values (an array). BOOLEAN."""
    return key.startswith("{")


def number_copies(changes: DataFrame, open_versions: DataFrame, effects: Effects = NO_EFFECTS) -> DataFrame:
    """Give each change of a table without a key the copy of the row that it is about.

    An insert opens the copy after the last that is open; a delete closes the newest open copy; a delete of a row that has
    no open copy is left out, and so is an update to an equal row.

    In: changes with key, era, commit_ts, release, ordinal, op, topic, partition, offset, index; open versions with key,
    copy and era. Out: the changes, with `copy` INT from 1, and `ordinal` as they follow one another; those of rows that
    have a key (as before the table lost it) with `copy` 0.
    """
    of_life, of_row = effects.life(F.col("era")), is_row(F.col("key"))
    newest = F.max(F.struct(of_life.alias("held_life"), F.col("copy").alias("held"))).alias("newest")
    held = open_versions.groupBy("key").agg(newest).select("key", "newest.*")
    # Equal rows come and go in Kafka's order.
    by_row = Window.partitionBy("key", "life").orderBy("commit_ts", "release", *_COORDINATES, "index", "ordinal")
    opens = F.col("op").isin(_INSERT, str(Op.SNAPSHOT))
    step = F.when(F.col("op") == _DELETE, -1).when(opens, 1).otherwise(0)
    start = F.when(F.col("life") == F.col("held_life"), F.col("held")).otherwise(F.lit(0))
    return (
        changes.join(held, on="key", how="left")
        .withColumns({"step": step, "life": effects.life(F.col("era"))})
        .withColumn("sum", start + F.sum("step").over(by_row))
        # Below zero there is nothing to delete: the sum counts from its lowest point then.
        .withColumn("count", F.col("sum") - F.least(F.lit(0), F.min("sum").over(by_row)))
        .withColumn("count_before", F.coalesce(F.lag("count").over(by_row), start))
        .withColumn("copy", F.when(F.col("step") > 0, F.col("count")).when(F.col("step") < 0, F.col("count_before")))
        .withColumn("copy", F.when(~of_row, 0).otherwise(F.col("copy")).cast("int"))
        .where(F.col("copy") >= F.when(of_row, 1).otherwise(0))
        .withColumn("ordinal", F.when(of_row, F.row_number().over(by_row)).otherwise(F.col("ordinal")))
        .drop("held", "held_life", "life", "step", "sum", "count", "count_before")
    )


def timeline(changes: DataFrame, open_versions: DataFrame, arrived: DataFrame | None = None) -> DataFrame:
    """The changes of each key after its open version.

    In: changes with key, copy (0 in tables with a key), era INT, commit_ts, release, ordinal, op, row STRUCT, topic,
    partition, offset; open versions with key, copy, era, commit_ts (their from), op, row, topic, partition, offset, and
    `rest` STRUCT: what they have beside `row`; rows that came from another table, as changes.
    Out: key, copy, era, commit_ts, release, ordinal, op, row, topic, partition, offset, rest, and `standing` BOOLEAN: an
    open version. Where the changes have `before_row` STRUCT and `before`: these, as `before_row` and `image`.
    """
    stated = ["before_row", "before AS image"] if "before_row" in changes.columns else []
    line = changes.selectExpr(*_CHANGE, "false AS standing", *stated)
    if arrived is not None:
        line = line.unionByName(arrived.selectExpr(*_CHANGE, "false AS standing"), allowMissingColumns=True)
        # A statement may be stamped later than the rows that come after it.
        later = Window.partitionBy("key", "copy").orderBy("era").rangeBetween(1, Window.unboundedFollowing)
        line = line.withColumn("next_ts", F.min("commit_ts").over(later))
        began = F.when(F.col("op") == DDL, F.least("commit_ts", "next_ts")).otherwise(F.col("commit_ts"))
        line = line.withColumn("commit_ts", began).drop("next_ts")
    of_before = {"release": "0L AS release", "ordinal": "0 AS ordinal"}
    standing = open_versions.selectExpr(*[of_before.get(c, c) for c in _CHANGE], "true AS standing", "rest")
    return line.unionByName(standing, allowMissingColumns=True)


def boundaries(
    line: DataFrame, effects: Effects = NO_EFFECTS, watch: Observation | None = None, since: int = -1
) -> DataFrame:
    """Leave out what changes nothing: updates to an equal row, deletes of what is not there. In and out: `timeline`.

    An insert where there is a row is an update: Open Protocol may not tell the two apart, and sources repeat themselves.

    Args:
        line: see above.
        effects: what statements do to rows.
        watch: is told how many rows after `since` an UPDATE or a DELETE is the first to tell of (`met`), and how many seem
            to have found another row than the chain has (`unlike`).
        since: a commit_ts.
    """
    line = with_previous(line, effects)
    existed = F.col("existed")
    if watch is not None:
        late = f"NOT standing AND op IN ('{_DELETE}', '{Op.UPDATE}') AND commit_ts > {since}"
        metrics = [F.count_if(~existed & F.expr(late)).alias("met")]
        if "before_row" in line.columns:
            metrics.append(F.count_if(found_another_row()).alias("unlike"))
        line = line.observe(watch, *metrics)
    same = existed & F.col("previous").eqNullSafe(F.col("row"))
    changes = F.when(F.expr(f"standing OR op = '{DDL}'"), F.lit(True)).when(F.expr(_ENDS), existed).otherwise(~same)
    op = F.when(existed & F.expr(f"op = '{_INSERT}'"), str(Op.UPDATE)).otherwise(F.col("op"))
    return line.where(changes).select(*(c for c in _TIMELINE if c != "op"), op.alias("op"))


def with_previous(line: DataFrame, effects: Effects = NO_EFFECTS) -> DataFrame:
    """Add what the chain of the key has before each row of `timeline`.

    Out: `before` STRUCT<exists, row, era, op, commit_ts>: the change or version before; `existed` BOOLEAN: whether the row
    was there still; `previous` STRUCT: that row, as the statements since then have left it.
    """
    fields = f"struct(standing OR NOT {_ENDS} AS exists, row, era, op, commit_ts)"
    line = line.withColumn("before", F.expr(f"lag({fields}) OVER ({_CHAIN})"))
    era, before = F.col("era"), F.col("before")
    existed = F.expr("coalesce(before.exists, false)")
    if effects.endings:
        existed &= effects.life(before["era"]) == effects.life(era)
    return line.withColumns({"existed": existed, "previous": effects.compared(before["row"], before["era"], era)})


def found_another_row() -> Column:
    """Whether the row before an UPDATE or a DELETE, as its message has it, is not the one that the chain has. BOOLEAN.

    In: `with_previous` with `before_row`.
    """
    return F.expr(
        f"coalesce(NOT standing AND op IN ('{_DELETE}', '{Op.UPDATE}') AND existed AND before_row IS NOT NULL "
        "AND NOT before_row <=> previous, false)"
    )


def continue_versions(bounds: DataFrame, effects: Effects) -> DataFrame:
    """Let a version go on where a row that comes in with `Effects.replacement` equals the one that ends there.

    The row that comes in is left out, and the version has its columns, too. The source shows both at one position, so a
    version ends all the same where it began at that position, or where the key changes once more at it: what happened
    before the statement could not be told from what happened after it.

    In: `timeline`. Out: the same, and with a replacement `lives_in` INT: the era up to which the row has been brought.
    """
    replacement = effects.replacement
    if replacement is None:
        return bounds
    at, coming = replacement.commit_ts, F.lit(replacement.coming)
    found = bounds.withColumns(
        {
            "ending": F.expr(f"lag(struct(standing OR NOT {_ENDS} AS exists, row, era, commit_ts)) OVER ({_CHAIN})"),
            "next_ts": F.expr(f"lead(commit_ts) OVER ({_CHAIN})"),
        }
    )
    ending, comes = F.col("ending"), F.expr(f"NOT standing AND op = '{DDL}' AND commit_ts = {at}")
    is_open = ending["exists"] & (effects.life(ending["era"]) == effects.life(F.lit(replacement.leaving)))
    alone = (ending["commit_ts"] < at) & F.coalesce(F.col("next_ts") > at, F.lit(True))
    kept = effects.kept(ending["row"], ending["era"], coming)
    goes_on = comes & (F.col("era") == coming) & is_open & alone & replacement.is_same(kept, F.col("row"))
    told = found.withColumn("goes_on", F.coalesce(goes_on, F.lit(False)))
    arrived = told.withColumn("arrived", F.expr(f"lead(struct(goes_on, row)) OVER ({_CHAIN})")).where("NOT goes_on")
    goes_on = F.coalesce(F.col("arrived.goes_on"), F.lit(False))
    merged = replacement.merged(effects.kept(F.col("row"), F.col("era"), coming), F.col("arrived.row"))
    row, era = F.when(goes_on, merged).otherwise(F.col("row")), F.when(goes_on, coming).otherwise(F.col("era"))
    return arrived.select(*(c for c in _TIMELINE if c != "row"), row.alias("row"), era.alias("lives_in"))


def versions(bounds: DataFrame, effects: Effects = NO_EFFECTS) -> DataFrame:
    """Each boundary that is not a deletion lasts until the next one of its key, or until a statement ends it.

    In: `continue_versions` of `boundaries`. Out: the same columns, `to_ts` BIGINT and `closed_by` STRING (null while open),
    and what these are made of; open versions of before that stay open are among them.
    """
    era, following = F.col("era" if effects.replacement is None else "lives_in"), F.col("following")
    lasting = bounds.withColumns(
        {
            "next_ts": F.expr(f"lead(commit_ts) OVER ({_CHAIN})"),
            "following": F.expr(f"lead(struct(op, commit_ts, era)) OVER ({_CHAIN})"),
        }
    )
    if effects.endings:
        alike = effects.life(following["era"]) == effects.life(era)
        lasting = lasting.withColumn("following", F.when(alike, following))
    by = F.when(following["op"] == _DELETE, _DELETE).when(following["op"] == GONE, _SNAPSHOT).otherwise(F.lit("update"))
    closed_by = F.when(following.isNotNull(), by)
    to_ts, until = following["commit_ts"], following["era"]
    if effects.endings:
        ending = F.when(following.isNull(), effects.next(era))
        # A statement may be stamped later than the rows that come after it.
        ended = F.greatest(F.col("commit_ts"), F.least(ending["commit_ts"], F.col("next_ts")))
        to_ts, until = F.coalesce(to_ts, F.when(ending.isNotNull(), ended)), F.coalesce(until, ending["era"])
        closed_by = F.coalesce(closed_by, ending["reason"])
    made = {"to_ts": to_ts, "closed_by": closed_by}
    if effects.kept is not _as_it_is:
        made["row"] = effects.kept(F.col("row"), era, F.coalesce(until, F.lit(effects.last)))
    return lasting.withColumns(made).where(f"standing OR NOT {_ENDS}")
