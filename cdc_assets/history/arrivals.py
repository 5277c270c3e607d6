"""Rows that begin or end in a table without a row event: with a statement, or with a load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets import binlog
from cdc_assets.config import Feed
from cdc_assets.history.changes import era_of
from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.evolution import Arrive, Recover, Rekey
from cdc_assets.history.row_keys import row_key
from cdc_assets.history.standing import copy_in
from cdc_assets.history.statements import Spot
from cdc_assets.history.versions import DDL, GONE, Effects, is_row
from cdc_assets.history.work import Work
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.initial_load import LAST_ORDINAL, LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import ConnectorSnapshot, SourceSnapshot, TableScan
from cdc_assets.lakehouse.schema import literal, quoted
from cdc_assets.lakehouse.table import LakeTable


@dataclass(frozen=True)
class Arrival:
    """A statement that brings rows in.

    Attributes:
        op: what it does.
        spot: where it stands.
        era: how many statements came before it.
        origin: the table that has the rows.
        after: the commit_ts after which they have ended there.
    """

    op: Recover | Rekey | Arrive
    spot: Spot
    era: int
    origin: LakeTable[HistoryCursor]
    after: int

    def ended(self, session: SparkSession) -> DataFrame:
        """Return the versions of the origin that hold the rows.

        They have ended, but where a third table has taken the origin's name: there versions of equal rows went on.
        """
        ended = ~F.col("_cdc_is_current") & (F.col("_cdc_to_ts") > self.after)
        return self.origin.read(session).where(ended | self.went_on)

    @property
    def went_on(self) -> Column:
        """Whether a version of the origin holds a row that comes in, and yet has not ended. BOOLEAN."""
        at = F.lit(self.spot.commit_ts)
        if not isinstance(self.op, Arrive) or not self.op.origin_is_replaced or self.after >= self.spot.commit_ts:
            return F.lit(False)
        return (F.col("_cdc_from_ts") < at) & (F.col("_cdc_is_current") | (F.col("_cdc_to_ts") > at))


def arrivals_of(lake: Lakehouse, feed: Feed, work: Work) -> list[Arrival]:
    """The statements of a part that bring rows in, in order."""
    found = []
    for era, step in enumerate(work.steps, start=work.base):
        for op in step.ops:
            if isinstance(op, Recover):
                found.append(Arrival(op, step.spot, era, work.table, -1))
            elif isinstance(op, Rekey):
                found.append(Arrival(op, step.spot, era, work.table, step.spot.commit_ts - 1))
            elif isinstance(op, Arrive) and feed.takes(*op.origin) and (origin := lake.history(*op.origin)).exists():
                found.append(Arrival(op, step.spot, era, origin, op.since))
    return found


def rows_that_arrive(
    session: SparkSession, work: Work, arrivals: Sequence[Arrival], columns: list[SourceColumn], effects: Effects
) -> DataFrame | None:
    """Rows that statements bring into the table. Out: as changes, in `timeline`; None: there are none."""
    frames = []
    for each in arrivals:
        ended, op, spot, era = each.ended(session), each.op, each.spot, each.era
        if isinstance(op, Recover):
            left = _left(ended, each.after, op.dropped, "drop")
            frames.append(_came(spot, era, left, None, columns))
        elif isinstance(op, Rekey):
            frames.append(_rekeyed(ended, work, spot, era, op, columns, effects))
        else:
            named = {mine.id: theirs.column for mine, theirs in op.columns.items()}
            left = _left(ended, each.after, spot.commit_ts, "rename", each.went_on)
            frames.append(_came(spot, era, left, named, columns))
    return reduce(DataFrame.unionByName, frames) if frames else None


def _rekeyed(
    ended: DataFrame,
    work: Work,
    spot: Spot,
    era: int,
    op: Rekey,
    columns: list[SourceColumn],
    effects: Effects,
) -> DataFrame:
    """Rows that ended as their key changed, under the new one. Out: as `_came`."""
    at = spot.commit_ts
    if op.by_row is not None:
        # Of one commit_ts another change of the key may have ended rows.
        ended = ended.where(is_row(F.col("_cdc_key")) == F.lit(op.by_row))
    if op.columns:
        key = ", ".join(f"CAST({quoted(s.column)} AS STRING)" for s in op.columns)
        ended = ended.withColumn("_cdc_key", F.expr(f"to_json(array({key}))"))
    came = _came(spot, era, _left(ended, at - 1, at, "ddl"), None, columns).withColumn("copy", F.lit(0))
    if not op.columns:
        row = effects.kept(F.col("row"), F.lit(era), F.lit(era + 1))
        came = came.withColumn("key", row_key(row, work.evolution.live(era + 1), columns))
    of_key = Window.partitionBy("key").orderBy(F.desc("began"), "topic", "partition", "offset")
    numbered = came.withColumn("n", F.row_number().over(of_key))
    if op.columns:
        # Of rows that have one key now the one that was written last: under the key of before they were not told apart.
        return numbered.where("n = 1").drop("n")
    return numbered.withColumn("copy", F.col("n")).drop("n")


def _left(rows: DataFrame, after: int, until: int, reason: str, went_on: Column | None = None) -> DataFrame:
    """Return the versions that ended after a commit_ts, up to another, for a reason; and those that `went_on`."""
    within = (F.col("_cdc_to_ts") > after) & (F.col("_cdc_to_ts") <= until) & (F.col("_cdc_closed_by") == reason)
    return rows.where(within if went_on is None else within | went_on)


def _came(
    spot: Spot, era: int, rows: DataFrame, named: Mapping[str, str] | None, columns: list[SourceColumn]
) -> DataFrame:
    """Return versions as rows that begin with a statement.

    `named`: ids of columns -> their names in `rows`; None: as in the table itself.
    """
    there = {name.lower() for name in rows.columns}

    def value(c: SourceColumn) -> str:
        own = c.column if named is None else named.get(c.id, "")
        held = quoted(own) if own.lower() in there else "NULL"
        return f"CAST({held} AS {c.target.simpleString()}) AS {quoted(c.column)}"

    return rows.selectExpr(
        "_cdc_key AS key",
        f"{copy_in(there)} AS copy",
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


def gone_since(
    work: Work, changes: DataFrame, standing: DataFrame, arrived: DataFrame | None, row: StructType
) -> DataFrame:
    """The rows that there were at the position of a load, or of a snapshot, and that it does not have: they end there.

    In: `changes`; open versions and rows that came from another table, as `timeline` has them; the type of rows. Out: as
    changes, of the op `GONE`.
    """
    before = [frame.select("key", "commit_ts") for frame in (standing, arrived) if frame is not None]
    frames = [
        *(_gone_since_dump(at, changes, before) for at in work.dumps),
        *(_gone_since(each, changes, before) for each in work.snapshots),
    ]
    every = reduce(DataFrame.unionAll, frames).select(
        "*",
        F.lit(0).alias("copy"),
        F.lit(GONE).alias("op"),
        F.lit(None).cast(row).alias("row"),
        F.lit(LOAD_TOPIC).alias("topic"),
        F.lit(0).alias("partition"),
        F.lit(0).cast("bigint").alias("offset"),
    )
    # Those of a part come before what the next one applies.
    every = every.withColumn("era", era_of(work)).drop("source")
    latest = F.struct(F.lit(work.through).cast("bigint").alias("release"), F.lit(LAST_ORDINAL).alias("ordinal"))
    placed = every.withColumn("place", F.coalesce("place", latest)).select("*", "place.release", "place.ordinal")
    return placed.drop("place").where(F.col("era").between(*work.eras))


_PLACE = "struct<release: bigint, ordinal: int>"


def _gone_since_dump(at: int, changes: DataFrame, before: Sequence[DataFrame]) -> DataFrame:
    """The keys that a dump does not have.

    In: `changes`; key and commit_ts of versions. Out: key, commit_ts (where they end), source STRUCT (the place in the
    binlog, for `era_of`), place STRUCT<release, ordinal> (right before which change of the same commit_ts; NULL: after all).
    """
    known = [f.where(F.col("commit_ts") <= at).select("key") for f in (*before, changes.select("key", "commit_ts"))]
    has = changes.where((F.col("commit_ts") == at) & (F.col("topic") == LOAD_TOPIC)).select("key")
    return (
        reduce(DataFrame.unionAll, known)
        .distinct()
        .join(has, on="key", how="left_anti")
        .select(
            "key",
            F.lit(at).cast("bigint").alias("commit_ts"),
            F.lit(None).cast("struct<file: string, position: bigint>").alias("source"),
            F.lit(None).cast(_PLACE).alias("place"),
        )
    )


def _gone_since(snapshot: ConnectorSnapshot, changes: DataFrame, before: Sequence[DataFrame]) -> DataFrame:
    """The keys that a connector's snapshot does not have. In, out: as `_gone_since_dump`."""
    if isinstance(snapshot, TableScan):
        return _gone_since_scan(snapshot, changes, before)
    return _gone_since_snapshot(snapshot, changes, before)


def _gone_since_snapshot(snapshot: SourceSnapshot, changes: DataFrame, before: Sequence[DataFrame]) -> DataFrame:
    """The keys that a connector's snapshot does not have: those that only changes before it tell of, or that came after it.

    In, out: as `_gone_since_dump`. A snapshot is read for a long time, and each table has the clock of its own reads: what
    changed after the snapshot's place may be stamped earlier. Kafka's order tells, in the partitions that have reads; in
    the others what may lie after the snapshot, by its place or by its clock, is taken to do so.
    """
    of_it = (F.col("source.file") == snapshot.file) & (F.col("source.position") == snapshot.position)
    is_read = F.coalesce((F.col("op") == str(Op.SNAPSHOT)) & of_it, F.lit(False))
    begun = changes.where(is_read).groupBy("topic", "partition").agg(F.min("offset").alias("begun"))
    number = snapshot.file.rpartition(".")[2]
    behind = binlog.is_at_or_after(int(number) if number.isdigit() else None, snapshot.position)
    maybe = F.coalesce(behind, F.lit(False)) | (F.col("commit_ts") > snapshot.at)
    told = changes.join(F.broadcast(begun), on=["topic", "partition"], how="left").select(
        "key",
        "commit_ts",
        is_read.alias("read"),
        F.coalesce(F.col("offset") > F.col("begun"), maybe).alias("after"),
        F.struct("commit_ts", F.struct("release", "ordinal").cast(_PLACE).alias("place")).alias("change"),
    )
    there = reduce(DataFrame.unionAll, before).select(
        "key",
        "commit_ts",
        F.lit(False).alias("read"),
        (F.col("commit_ts") > snapshot.at).alias("after"),
        F.lit(None).cast(f"struct<commit_ts: bigint, place: {_PLACE}>").alias("change"),
    )
    by_key = (
        told.unionAll(there)
        .groupBy("key")
        .agg(
            F.bool_or("read").alias("read"),
            F.max(F.when(~F.col("after"), F.col("commit_ts"))).alias("until"),
            F.min(F.when(F.col("after") & ~F.col("read"), F.col("change"))).alias("next"),
        )
        .where(~F.col("read") & F.col("until").isNotNull())
    )
    return _ending(by_key, snapshot.at, snapshot.file, snapshot.position)


def _gone_since_scan(scan: TableScan, changes: DataFrame, before: Sequence[DataFrame]) -> DataFrame:
    """The keys that were known before an incremental snapshot, and have no change since, or an insert first.

    In, out: as `_gone_since_dump`. What came since the beginning, Kafka's order tells: a partition of which nothing had come
    by then has only what was released later. A connector that starts again repeats some changes, of which the first counts
    that may have come before: their place in the binlog tells.
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
    step, change = F.struct("partition", "offset", "op"), F.struct("release", "ordinal").cast(_PLACE)
    told = changes.select(
        "key",
        "commit_ts",
        after.alias("after"),
        step.alias("step"),
        F.struct("commit_ts", change.alias("place")).alias("change"),
    )
    there = reduce(DataFrame.unionAll, before).select(
        "key",
        "commit_ts",
        (F.col("commit_ts") > scan.at).alias("after"),
        F.lit(None).cast("struct<partition: int, offset: bigint, op: string>").alias("step"),
        F.lit(None).cast(f"struct<commit_ts: bigint, place: {_PLACE}>").alias("change"),
    )
    by_key = (
        told.unionAll(there)
        .groupBy("key")
        .agg(
            F.max(F.when(~F.col("after"), F.col("commit_ts"))).alias("until"),
            F.min(F.when(F.col("after"), F.col("step"))).alias("first"),
            F.min(F.when(F.col("after"), F.col("change"))).alias("next"),
        )
        .where(F.col("until").isNotNull() & F.coalesce(F.col("first.op") == str(Op.INSERT), F.lit(True)))
    )
    return _ending(by_key, scan.at, None, None)


def _ending(by_key: DataFrame, at: int, file: str | None, position: int | None) -> DataFrame:
    """Where keys end that a snapshot does not have. In: key, until BIGINT, next STRUCT. Out: as `_gone_since_dump`."""
    ends = F.greatest(F.lit(at).cast("bigint"), "until")
    overtaken = F.col("next.commit_ts") <= ends
    return by_key.select(
        "key",
        F.least(ends, "next.commit_ts").alias("commit_ts"),
        F.struct(F.lit(file).cast("string").alias("file"), F.lit(position).cast("bigint").alias("position")).alias(
            "source"
        ),
        F.when(overtaken, F.col("next.place")).alias("place"),
    )
