"""Turn changes into versions: build the chain of each key, without reading or writing tables.

The steps, each from frame to frame: `build_timeline` (each key's open version and its changes), `keep_boundaries` (where
the row really changes), `continue_versions` (versions that go on in another table), `build_versions` (from one boundary to
the next). For tables without a key, `number_copies` comes first.

`Effects` describes what DDL statements do to rows: rows end with a TRUNCATE; they go on through an ALTER TABLE, with the
values that the statement gives them.
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
ABSENT = "absent"  # the op of a row that a load or a connector's snapshot lacks: its version ends there
_SNAPSHOT = str(Op.SNAPSHOT)
_COORDINATES = ["topic", "partition", "offset"]
# The order of a key's changes; versions that were open before this run get release 0.
_ORDER = ["commit_ts", "era", "release", "ordinal"]
_CHANGE = ["key", "copy", *_ORDER, "op", "row", *_COORDINATES]
_TIMELINE = [*_CHANGE, "was_open", "rest"]
# SQL texts of the window and of the condition that ends a row. Texts, because each table is planned with them, and PySpark
# calls the JVM for every part of an expression that is built of columns.
_CHAIN = f"PARTITION BY key, copy ORDER BY {', '.join(_ORDER)}, op != '{ABSENT}'"
_ENDS = f"op IN ('{_DELETE}', '{ABSENT}')"


@dataclass(frozen=True)
class Ending:
    """A statement that ends all rows of its own era and of earlier ones.

    Attributes:
        era: the era that the statement ends.
        reason: the value of `_cdc_closed_by`.
        commit_ts: position of the statement.
    """

    era: int
    reason: str
    commit_ts: int


@dataclass(frozen=True)
class Replacement:
    """A statement that gives this table's name to another table; the rows of this table end at the same position.

    Attributes:
        commit_ts: that position.
        old_era: the era of the rows that end.
        new_era: the era of the rows that the other table brings.
        is_same: (row that ends, row that comes in) -> whether they are equal in the columns that both tables have.
        merge: (row that ends, row that comes in) -> one row with the columns of both tables.
    """

    commit_ts: int
    old_era: int
    new_era: int
    is_same: Callable[[Column, Column], Column]
    merge: Callable[[Column, Column], Column]


def _keep_row(row: Column, since: Column, until: Column) -> Column:  # noqa: ARG001
    return row


@dataclass(frozen=True)
class Effects:
    """What statements do to rows. The era of a row is the number of statements before it.

    Attributes:
        last_era: the era after all statements.
        endings: the statements that end rows, in order.
        evolve_to_compare: (row, its era, a later era) -> the row as rows of the later era are compared with it.
        evolve: (row, its era, a later era) -> the row that a version has when it lasts from one era to the other.
        replacement: the statement that gives this table's name to another table; None if there is none.
    """

    last_era: int = 0
    endings: tuple[Ending, ...] = ()
    evolve_to_compare: Callable[[Column, Column, Column], Column] = _keep_row
    evolve: Callable[[Column, Column, Column], Column] = _keep_row
    replacement: Replacement | None = None

    def count_endings(self, era: Column) -> Column:
        """Return how many endings come before an era. INT."""
        before = [F.when(era > ending.era, 1).otherwise(0) for ending in self.endings]
        return reduce(lambda a, b: a + b, before, F.lit(0))

    def next_ending(self, era: Column) -> Column:
        """Return the ending of rows of an era: STRUCT<era INT, reason STRING, commit_ts BIGINT>; NULL if there is none."""
        endings = [
            (era <= e.era, F.expr(f"struct({e.era} AS era, '{e.reason}' AS reason, {e.commit_ts}L AS commit_ts)"))
            for e in self.endings
        ]
        return first_true(*endings)


NO_EFFECTS = Effects()


def is_row_key(key: Column) -> Column:
    """Return whether a key consists of all values of its row (a JSON object), not of some of them (an array). BOOLEAN."""
    return key.startswith("{")


def number_copies(
    changes: DataFrame, open_versions: DataFrame, moved_rows: DataFrame | None, effects: Effects
) -> DataFrame:
    """Add to each change of a table without a key the number of the equal row that it is about.

    An insert opens a copy after the last open copy; a delete closes the newest open copy. Deletes of rows without an open
    copy are left out, and so are updates to an equal row.

    Args:
        changes: key, era, commit_ts, release, ordinal, op, topic, partition, offset, index.
        open_versions: key, copy and era.
        moved_rows: rows that statements bring into the table, with these columns, too.
        effects: what statements do to rows.

    Returns:
        The changes with `copy` INT, and with `ordinal` in the order in which they follow one another. Copies begin with 1;
        rows that have a key, as before the table lost it, get `copy` 0.
    """
    if moved_rows is not None:
        open_versions = open_versions.unionByName(moved_rows, allowMissingColumns=True)
    life, of_row = effects.count_endings(F.col("era")), is_row_key(F.col("key"))
    newest = F.max(F.struct(life.alias("open_life"), F.col("copy").alias("open_copies"))).alias("newest")
    open_copies = open_versions.groupBy("key").agg(newest).select("key", "newest.*")
    # Equal rows come and go in Kafka's order.
    by_row = Window.partitionBy("key", "life").orderBy("commit_ts", "release", *_COORDINATES, "index", "ordinal")
    opens = F.col("op").isin(_INSERT, str(Op.SNAPSHOT))
    step = F.when(F.col("op") == _DELETE, -1).when(opens, 1).otherwise(0)
    start = F.when(F.col("life") == F.col("open_life"), F.col("open_copies")).otherwise(F.lit(0))
    return (
        changes.join(open_copies, on="key", how="left")
        .withColumns({"step": step, "life": life})
        .withColumn("sum", start + F.sum("step").over(by_row))
        # A sum below zero means deletes without a row to delete, so count from the lowest sum.
        .withColumn("count", F.col("sum") - F.least(F.lit(0), F.min("sum").over(by_row)))
        .withColumn("count_before", F.coalesce(F.lag("count").over(by_row), start))
        .withColumn("copy", F.when(F.col("step") > 0, F.col("count")).when(F.col("step") < 0, F.col("count_before")))
        .withColumn("copy", F.when(~of_row, 0).otherwise(F.col("copy")).cast("int"))
        .where(F.col("copy") >= F.when(of_row, 1).otherwise(0))
        .withColumn("ordinal", F.when(of_row, F.row_number().over(by_row)).otherwise(F.col("ordinal")))
        .drop("open_copies", "open_life", "life", "step", "sum", "count", "count_before")
    )


def build_timeline(changes: DataFrame, open_versions: DataFrame, moved_rows: DataFrame | None = None) -> DataFrame:
    """Return each key's open version and the changes after it, one row each.

    Args:
        changes: key, copy (0 in tables with a key), era INT, commit_ts, release, ordinal, op, row STRUCT, topic, partition,
            offset; and optionally `before_row` STRUCT and `before`, the row before the change by its message.
        open_versions: key, copy, era, commit_ts (their `_cdc_from_ts`), op, row, topic, partition, offset, and `rest`
            STRUCT: the columns that are not in `row`.
        moved_rows: rows that statements bring into the table, with the columns of `changes`.

    Returns:
        key, copy, era, commit_ts, release, ordinal, op, row, topic, partition, offset, rest, and `was_open` BOOLEAN: whether
        the row is an open version. If the changes have them, also `before_row`, and `before` by the name `image`.
    """
    stated = ["before_row", "before AS image"] if "before_row" in changes.columns else []
    line = changes.selectExpr(*_CHANGE, "false AS was_open", *stated)
    if moved_rows is not None:
        line = line.unionByName(moved_rows.selectExpr(*_CHANGE, "false AS was_open"), allowMissingColumns=True)
        # A statement's commit_ts may be higher than that of rows after it.
        later = Window.partitionBy("key", "copy").orderBy("era").rangeBetween(1, Window.unboundedFollowing)
        line = line.withColumn("next_ts", F.min("commit_ts").over(later))
        began = F.when(F.col("op") == DDL, F.least("commit_ts", "next_ts")).otherwise(F.col("commit_ts"))
        line = line.withColumn("commit_ts", began).drop("next_ts")
    before_this_run = {"release": "0L AS release", "ordinal": "0 AS ordinal"}
    opened = open_versions.selectExpr(*[before_this_run.get(c, c) for c in _CHANGE], "true AS was_open", "rest")
    return line.unionByName(opened, allowMissingColumns=True)


def keep_boundaries(
    line: DataFrame,
    effects: Effects = NO_EFFECTS,
    observation: Observation | None = None,
    since: int = -1,
    *,
    distinguishes_inserts: bool = True,
) -> DataFrame:
    """Leave out changes without an effect: updates to an equal row, and deletes of rows that do not exist.

    An insert of a row that exists becomes an update: Open Protocol may write both alike, or the row's DELETE was lost.

    Args:
        line: the frame of `build_timeline`.
        effects: what statements do to rows.
        observation: gets the metrics `met`: how many rows after `since` have an UPDATE or a DELETE as their first change;
            and `unlike`: how many changes have a row before the change that may differ from the row in the chain.
        since: a commit_ts.
        distinguishes_inserts: as `Protocol.distinguishes_inserts`.

    Returns:
        The rows of `line` that are left, with the columns of `build_timeline`, without `before_row` and `image`.
    """
    line = add_previous(line, effects)
    existed = F.col("existed")
    if observation is not None:
        late = f"NOT was_open AND op IN ('{_DELETE}', '{Op.UPDATE}') AND commit_ts > {since}"
        metrics = [F.count_if(~existed & F.expr(late)).alias("met")]
        if "before_row" in line.columns:
            metrics.append(F.count_if(differs_from_chain(distinguishes_inserts=distinguishes_inserts)).alias("unlike"))
        line = line.observe(observation, *metrics)
    same = existed & F.col("previous").eqNullSafe(F.col("row"))
    changes = F.when(F.expr(f"was_open OR op = '{DDL}'"), F.lit(True)).when(F.expr(_ENDS), existed).otherwise(~same)
    op = F.when(existed & F.expr(f"op = '{_INSERT}'"), str(Op.UPDATE)).otherwise(F.col("op"))
    return line.where(changes).select(*(c for c in _TIMELINE if c != "op"), op.alias("op"))


def add_previous(line: DataFrame, effects: Effects = NO_EFFECTS) -> DataFrame:
    """Add to each row of `build_timeline` what the chain of its key has before it.

    Returns:
        The frame with `before` STRUCT<exists, row, era, op, commit_ts>: the change or version before; `existed` BOOLEAN:
        whether the row still existed; `previous` STRUCT: that row, as the statements since then have left it.
    """
    fields = f"struct(was_open OR NOT {_ENDS} AS exists, row, era, op, commit_ts)"
    line = line.withColumn("before", F.expr(f"lag({fields}) OVER ({_CHAIN})"))
    era, before = F.col("era"), F.col("before")
    existed = F.expr("coalesce(before.exists, false)")
    if effects.endings:
        existed &= effects.count_endings(before["era"]) == effects.count_endings(era)
    previous = effects.evolve_to_compare(before["row"], before["era"], era)
    return line.withColumns({"existed": existed, "previous": previous})


def differs_from_chain(*, distinguishes_inserts: bool) -> Column:
    """Return whether the row before a change, by its message, is not the row that the chain has. BOOLEAN.

    An INSERT has no row before it. If it has the position of the change before it, a clock may have put the two in the
    wrong order. Equal rows of a table without a key are copies, so an INSERT of one continues none.

    The expression reads the columns of `add_previous` and `before_row`.

    Args:
        distinguishes_inserts: as `Protocol.distinguishes_inserts`.
    """
    updated = f"op IN ('{_DELETE}', '{Op.UPDATE}') AND before_row IS NOT NULL AND NOT before_row <=> previous"
    inserted = f"op = '{_INSERT}' AND {distinguishes_inserts} AND copy = 0 AND commit_ts > before.commit_ts"
    return F.expr(f"coalesce(NOT was_open AND existed AND ({updated} OR {inserted}), false)")


def continue_versions(bounds: DataFrame, effects: Effects) -> DataFrame:
    """Let a version go on if a row that comes in with `Effects.replacement` equals the row that ends there.

    The row that comes in is left out, and the version gets its columns, too. A version ends nevertheless if it began at the
    position of the statement, or if the key changes again at that position: readers see one position as one moment, so they
    could not tell changes before the statement from changes after it.

    Args:
        bounds: the frame of `keep_boundaries`.
        effects: what statements do to rows.

    Returns:
        The frame; with a replacement also `lives_in` INT: the era whose columns the row has.
    """
    replacement = effects.replacement
    if replacement is None:
        return bounds
    at, new_era = replacement.commit_ts, F.lit(replacement.new_era)
    neighbours = bounds.withColumns(
        {
            "ending": F.expr(f"lag(struct(was_open OR NOT {_ENDS} AS exists, row, era, commit_ts)) OVER ({_CHAIN})"),
            "next_ts": F.expr(f"lead(commit_ts) OVER ({_CHAIN})"),
        }
    )
    ending, comes = F.col("ending"), F.expr(f"NOT was_open AND op = '{DDL}' AND commit_ts = {at}")
    is_open = ending["exists"] & (
        effects.count_endings(ending["era"]) == effects.count_endings(F.lit(replacement.old_era))
    )
    alone = (ending["commit_ts"] < at) & F.coalesce(F.col("next_ts") > at, F.lit(True))
    evolved = effects.evolve(ending["row"], ending["era"], new_era)
    goes_on = comes & (F.col("era") == new_era) & is_open & alone & replacement.is_same(evolved, F.col("row"))
    marked = neighbours.withColumn("goes_on", F.coalesce(goes_on, F.lit(False)))
    arrived = marked.withColumn("arrived", F.expr(f"lead(struct(goes_on, row)) OVER ({_CHAIN})")).where("NOT goes_on")
    goes_on = F.coalesce(F.col("arrived.goes_on"), F.lit(False))
    merged = replacement.merge(effects.evolve(F.col("row"), F.col("era"), new_era), F.col("arrived.row"))
    row, era = F.when(goes_on, merged).otherwise(F.col("row")), F.when(goes_on, new_era).otherwise(F.col("era"))
    return arrived.select(*(c for c in _TIMELINE if c != "row"), row.alias("row"), era.alias("lives_in"))


def build_versions(bounds: DataFrame, effects: Effects = NO_EFFECTS) -> DataFrame:
    """Return the versions: each lasts from a boundary to the next one of its key, or to the statement that ends it.

    Args:
        bounds: the frame of `continue_versions`.
        effects: what statements do to rows.

    Returns:
        The frame without deletions, with `to_ts` BIGINT and `closed_by` STRING (both NULL while open), and with the columns
        that these are computed from. It includes open versions that stay open.
    """
    era, following = F.col("era" if effects.replacement is None else "lives_in"), F.col("following")
    lasting = bounds.withColumns(
        {
            "next_ts": F.expr(f"lead(commit_ts) OVER ({_CHAIN})"),
            "following": F.expr(f"lead(struct(op, commit_ts, era)) OVER ({_CHAIN})"),
        }
    )
    if effects.endings:
        alike = effects.count_endings(following["era"]) == effects.count_endings(era)
        lasting = lasting.withColumn("following", F.when(alike, following))
    by = (
        F.when(following["op"] == _DELETE, _DELETE)
        .when(following["op"] == ABSENT, _SNAPSHOT)
        .otherwise(F.lit("update"))
    )
    closed_by = F.when(following.isNotNull(), by)
    to_ts, until = following["commit_ts"], following["era"]
    if effects.endings:
        ending = F.when(following.isNull(), effects.next_ending(era))
        # A statement's commit_ts may be higher than that of rows after it.
        ended = F.greatest(F.col("commit_ts"), F.least(ending["commit_ts"], F.col("next_ts")))
        to_ts, until = F.coalesce(to_ts, F.when(ending.isNotNull(), ended)), F.coalesce(until, ending["era"])
        closed_by = F.coalesce(closed_by, ending["reason"])
    computed = {"to_ts": to_ts, "closed_by": closed_by}
    if effects.evolve is not _keep_row:
        computed["row"] = effects.evolve(F.col("row"), era, F.coalesce(until, F.lit(effects.last_era)))
    return lasting.withColumns(computed).where(f"was_open OR NOT {_ENDS}")
