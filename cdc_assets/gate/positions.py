"""The gate of feeds that tell each change's place in the binlog (Debezium): per key, in Kafka's order, what is not a repeat.

A connector that starts again sends from an earlier place on. A change is a repeat when its key has got one at that place or
a later one. Places are compared as the connector itself compares them: by GTID where both have one of the same source;
else, in the log of one server, by the numbers of file, position and row; else, after a failover, by the source's clock.
Nothing that has never been seen is dropped for its place alone: its clock, too, must say that it is old.

A snapshot's reads have the place at which the snapshot began, all the same: a read is a repeat only of itself.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.gate.changes import IMAGE
from cdc_assets.protocols.events import Op

_KEY = ["database", "table", "key", "copy"]
_ORDER = ["record_timestamp", "topic", "partition", "offset", "index", "piece"]


def group(split: DataFrame, prior: DataFrame | None) -> DataFrame:
    """Judge the pieces of each key.

    In: `changes.pieces` with `copy`; the changes released before at or above the lowest commit_ts of these (or None when
    there are none). Out: database, table, key, copy; `pieces` ARRAY<STRUCT> in Kafka's order; `kept` ARRAY<STRUCT<at INT,
    commit_ts BIGINT>>: the indices of those that count, and a commit_ts that never falls; `commit_ts` of the first piece;
    `copies` INT (row events among all), `unseen` INT (row events that came too late and were never seen) and `lost`
    ARRAY<INT>, their indices.
    """
    columns = [*_ORDER, "commit_ts", "weight", *(c for c in IMAGE if c not in _ORDER)]
    piece = F.struct(*columns, F.col("piece_op").alias("op"), _place("piece_op").alias("place"))
    keyless = (F.size("key_columns") == 0).alias("keyless")
    pieces = split.groupBy(*_KEY).agg(
        F.array_sort(F.collect_list(piece)).alias("pieces"),
        F.sum("weight").cast("int").alias("copies"),
        F.max(keyless).alias("keyless"),
    )
    if prior is None:
        known = pieces.withColumn("there", F.array().cast(f"array<{_PLACE}>")).withColumn(
            "newest", F.lit(0).cast("bigint")
        )
    else:
        applied = F.struct("commit_ts", "release", "ordinal", _place("op").alias("place"))
        there = (
            prior.groupBy("database", "table", "key")
            .agg(F.array_sort(F.collect_list(applied)).alias("applied"), F.max("commit_ts").alias("newest"))
            .withColumn("there", F.transform("applied", lambda a: a["place"]))
            .drop("applied")
        )
        known = (
            pieces.join(there, on=["database", "table", "key"], how="left")
            .withColumn("there", F.coalesce("there", F.array().cast(f"array<{_PLACE}>")))
            .withColumn("newest", F.coalesce("newest", F.lit(0)))
        )
    folded = known.withColumn("f", _fold())
    lost = F.aggregate("f.lost", F.lit(0), lambda n, i: n + F.get("pieces", i)["weight"])
    # Where nothing was released before, only Kafka's own order could be wrong.
    unseen = F.lit(0) if prior is None else lost
    return folded.select(
        *_KEY,
        "pieces",
        F.col("f.kept").alias("kept"),
        F.get("pieces", F.lit(0))["commit_ts"].alias("commit_ts"),
        "copies",
        unseen.alias("unseen"),
        F.col("f.lost").alias("lost"),
    )


def changes(grouped: DataFrame) -> DataFrame:
    """The pieces that count, each a change. In: `group`. Out: as `changes.net`."""
    counted = F.aggregate("kept", F.lit(0), lambda n, k: n + F.get("pieces", k["at"])["weight"])
    flat = grouped.withColumn("counted", counted).select(
        *_KEY, "copies", "unseen", "counted", F.posexplode("kept").alias("ordinal", "k"), "pieces"
    )
    piece = F.get("pieces", F.col("k.at"))
    return flat.withColumn("p", piece).select(
        *_KEY,
        F.col("k.commit_ts").alias("commit_ts"),
        *[F.col(f"p.{c}").alias(c) for c in IMAGE],
        F.col("p.op").alias("op"),
        "ordinal",
        F.col("p.weight").alias("events"),
        F.when(F.col("ordinal") == 0, F.col("copies") - F.col("unseen") - F.col("counted"))
        .otherwise(F.lit(0))
        .alias("repeats"),
    )


_PLACE = (
    "struct<read: boolean, milliseconds: bigint, server_id: bigint, log: string, number: bigint, position: bigint, "
    "row: int, source: string, sequence: bigint, content: bigint>"
)


def _place(op: str) -> Column:
    """Where a change stands, as what `_after` compares."""
    gtid = F.col("source.gtid")
    # MySQL's GTID is `uuid:number`, MariaDB's `domain-server-number`; the number counts within the uuid, or the domain.
    mysql = gtid.contains(":")
    number = F.when(mysql, F.substring_index(gtid, ":", -1)).otherwise(F.substring_index(gtid, "-", -1))
    of = F.when(mysql, F.substring_index(gtid, ":", 1)).otherwise(F.substring_index(gtid, "-", 1))
    suffix = F.substring_index("source.file", ".", -1)
    return F.struct(
        (F.col(op) == str(Op.SNAPSHOT)).alias("read"),
        F.col("source_ms").alias("milliseconds"),
        F.col("source.server_id").alias("server_id"),
        # A log's files are numbered, and the numbers may grow longer than six digits.
        F.substring(F.col("source.file"), F.lit(1), F.length("source.file") - F.length(suffix)).alias("log"),
        suffix.try_cast("bigint").alias("number"),
        F.col("source.position").alias("position"),
        F.col("source.row").alias("row"),
        of.alias("source"),
        number.try_cast("bigint").alias("sequence"),
        F.xxhash64(op, "before", "after").alias("content"),
    ).cast(_PLACE)


def _numbers(place: Column) -> Column:
    return F.struct(place["number"], place["position"], place["row"])


def _same_log(a: Column, b: Column) -> Column:
    return a["server_id"].eqNullSafe(b["server_id"]) & a["log"].eqNullSafe(b["log"])


def _same_transaction(a: Column, b: Column) -> Column:
    return F.coalesce((a["source"] == b["source"]) & (a["sequence"] == b["sequence"]), F.lit(False))


def _after(a: Column, b: Column) -> Column:
    """Whether `a` surely stands after `b`. BOOLEAN, never NULL."""
    # A transaction lies in one file: in two of them, it is the same one in the logs of two servers.
    elsewhere = _same_transaction(a, b) & (a["number"] != b["number"])
    by_gtid = (a["source"] == b["source"]) & (a["sequence"] > b["sequence"])
    by_log = _same_log(a, b) & ~elsewhere & (_numbers(a) > _numbers(b))
    return F.coalesce(by_gtid, F.lit(False)) | F.coalesce(by_log, F.lit(False))


def _may_follow(a: Column, b: Column) -> Column:
    """Whether `a`, which is no repeat of anything seen, is news although it does not stand after `b`."""
    newer = a["milliseconds"] > b["milliseconds"]
    by_clock = F.when(_same_log(a, b), newer).otherwise(newer | (a["milliseconds"] == b["milliseconds"]))
    return F.coalesce(_same_transaction(a, b) & (a["number"] != b["number"]) | by_clock, F.lit(False))


def _is(a: Column, b: Column) -> Column:
    """Whether `a` and `b` are one change: at the same place, or the same content in the same transaction."""
    fields = ("read", "milliseconds", "server_id", "log", "number", "position", "row")
    here = F.struct(*[a[f] for f in fields]).eqNullSafe(F.struct(*[b[f] for f in fields]))
    return here | (_same_transaction(a, b) & (a["number"] != b["number"]) & (a["content"] == b["content"]))


def _fold() -> Column:
    """Which pieces count, one after the other, beginning with what the key has got before: STRUCT of `kept` and `lost`."""
    kept_type = "array<struct<at: int, commit_ts: bigint>>"
    streamed = F.filter("there", lambda p: ~p["read"])
    start = F.struct(
        F.array().cast(kept_type).alias("kept"),
        F.array().cast("array<int>").alias("lost"),
        F.try_element_at(streamed, F.lit(-1)).alias("last"),
        F.col("newest").alias("newest"),
    )

    def step(s: Column, i: Column) -> Column:
        piece = F.get("pieces", i)
        place, last = piece["place"], s["last"]
        seen = F.exists("there", lambda p: _is(place, p)) | F.exists(
            s["kept"], lambda k: _is(place, F.get("pieces", k["at"])["place"])
        )
        # Equal rows of a table without a key are read as often as there are of them.
        keep = (
            F.when(place["read"], F.col("keyless") | ~seen)
            .when(last.isNull() | _after(place, last), F.lit(True))
            .otherwise(~seen & _may_follow(place, last))
        )
        newest = F.greatest(s["newest"], piece["commit_ts"])
        entry = F.array(F.struct(i.alias("at"), newest.alias("commit_ts")))
        return F.struct(
            F.when(keep, F.concat(s["kept"], entry)).otherwise(s["kept"]).alias("kept"),
            F.when(keep | seen, s["lost"]).otherwise(F.concat(s["lost"], F.array(i))).alias("lost"),
            F.when(keep & ~place["read"], place).otherwise(last).alias("last"),
            F.when(keep, newest).otherwise(s["newest"]).alias("newest"),
        )

    return F.aggregate(F.sequence(F.lit(0), F.size("pieces") - 1), start, step)
