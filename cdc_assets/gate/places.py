"""What counts where each change tells its place in the binlog (Debezium): per key, in Kafka's order, what is not a repeat.

A connector that starts again sends from an earlier place on. A change is a repeat when its key has got one at that place or
a later one. Places are compared as the connector itself compares them: by GTID where both have one of the same source;
else, in the log of one server, by the numbers of file, position and row; else, after a failover, by the source's clock.
Nothing that has never been seen is dropped for its place alone: its clock, too, must say that it is old.

A snapshot's reads have the place at which the snapshot began, all the same: a read is a repeat only of itself.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.binlog import file_number, log_of
from cdc_assets.gate.changes import STATE
from cdc_assets.tables.change_events import Op

BY: tuple[str, ...] = ()
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
    columns = [*_ORDER, "commit_ts", "weight", "before", *(c for c in STATE if c not in _ORDER)]
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
    numbers = F.transform(_all("at"), lambda at: at["number"])
    known = known.withColumns({"identities": _all("identity"), "twins": _all("twin"), "numbers": numbers})
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


_PLACE = (
    "struct<read: boolean, milliseconds: bigint, log: bigint, at: struct<number: bigint, position: bigint, row: int>, "
    "source: string, sequence: bigint, identity: bigint, twin: bigint>"
)


def _place(op: str) -> Column:
    """Where a change stands, as what `_after`, `_may_follow` and `_seen` compare."""
    gtid = F.col("source.gtid")
    # MySQL's GTID is `uuid:number`, MariaDB's `domain-server-number`; the number counts within the uuid, or the domain.
    mysql = gtid.contains(":")
    number = F.when(mysql, F.substring_index(gtid, ":", -1)).otherwise(F.substring_index(gtid, "-", -1))
    sequence = number.try_cast("bigint")
    of = F.when(mysql, F.substring_index(gtid, ":", 1)).otherwise(F.substring_index(gtid, "-", 1))
    read = F.col(op) == str(Op.SNAPSHOT)
    return F.struct(
        read,
        F.col("source_ms"),
        log_of(),
        F.struct(file_number(), "source.position", "source.row"),
        of,
        sequence,
        F.xxhash64(read, "source_ms", "source.server_id", "source.file", "source.position", "source.row"),
        # The same content in the same transaction: one change, if the places are in the logs of two servers.
        F.when(of.isNotNull() & sequence.isNotNull(), F.xxhash64(of, sequence, F.col(op), "before", "after")),
    ).cast(_PLACE)


def _elsewhere(a: Column, b: Column) -> Column:
    """Whether both are of one transaction, in the logs of two servers: in one log, a transaction lies in one file."""
    one = (a["source"] == b["source"]) & (a["sequence"] == b["sequence"])
    return F.coalesce(one & (a["at"]["number"] != b["at"]["number"]), F.lit(False))


def _after(a: Column, b: Column) -> Column:
    """Whether `a` surely stands after `b`. BOOLEAN, never NULL."""
    by_gtid = (a["source"] == b["source"]) & (a["sequence"] > b["sequence"])
    by_log = (a["log"] == b["log"]) & (a["at"] > b["at"]) & ~_elsewhere(a, b)
    return F.coalesce(by_gtid, F.lit(False)) | F.coalesce(by_log, F.lit(False))


def _may_follow(a: Column, b: Column) -> Column:
    """Whether `a`, which is no repeat of anything seen, is news although it does not stand after `b`."""
    newer = a["milliseconds"] > b["milliseconds"]
    at_once = (a["milliseconds"] == b["milliseconds"]) & (a["log"] != b["log"])
    return newer | at_once | _elsewhere(a, b)


def _all(part: str) -> Column:
    """One part of the places of what was there, then of the pieces'."""
    return F.concat(F.transform("there", lambda p: p[part]), F.transform("pieces", lambda p: p["place"][part]))


def _seen(place: Column, so_far: Column) -> Column:
    """Whether a change came before, among the first of all: at the same place, or out of the log of another server."""
    twin = F.array_position("twins", place["twin"])
    elsewhere = twin.between(1, so_far) & (F.get("numbers", twin - 1) != place["at"]["number"])
    return F.array_position("identities", place["identity"]).between(1, so_far) | F.coalesce(elsewhere, F.lit(False))


def _fold() -> Column:
    """Which pieces count, one after the other, beginning with what the key has got before: STRUCT of `kept` and `lost`."""
    start = F.struct(
        F.array().cast("array<struct<at: int, commit_ts: bigint>>").alias("kept"),
        F.array().cast("array<int>").alias("lost"),
        F.try_element_at(F.filter("there", lambda p: ~p["read"]), F.lit(-1)).alias("last"),
        F.col("newest").alias("newest"),
    )

    def step(s: Column, i: Column) -> Column:
        piece = F.get("pieces", i)
        place = piece["place"]

        def advanced(seen: Column) -> Column:
            # Equal rows of a table without a key are read as often as there are of them.
            counts = (
                F.when(place["read"], F.col("keyless") | ~seen)
                .when(s["last"].isNull() | _after(place, s["last"]), F.lit(True))
                .otherwise(~seen & _may_follow(place, s["last"]))
            )
            newest = F.greatest(s["newest"], piece["commit_ts"])
            kept = F.struct(
                F.concat(s["kept"], F.array(F.struct(i.alias("at"), newest.alias("commit_ts")))).alias("kept"),
                s["lost"].alias("lost"),
                F.when(place["read"], s["last"]).otherwise(place).alias("last"),
                newest.alias("newest"),
            )
            lost = F.struct(
                s["kept"].alias("kept"),
                F.concat(s["lost"], F.array(i)).alias("lost"),
                s["last"].alias("last"),
                s["newest"].alias("newest"),
            )
            return F.when(counts, kept).when(seen, s).otherwise(lost)

        # As `once`, which would copy all that is kept so far.
        seen = F.array(_seen(place, F.size("there") + i))
        return F.aggregate(seen, s, lambda _, was: advanced(was))

    return F.aggregate(F.sequence(F.lit(0), F.size("pieces") - 1), start, step)
