"""How repeats are recognised in feeds without watermarks: per key, and within a partition by offset only.

Clocks label changes and never order them. A change that was never seen is applied. One that was seen is a repeat, with one
exception where only its content tells it: a row may go to and fro within one tick of the source's clock.

- By place (Debezium): server, time, file, position and row of the binlog; after a failover GTID, operation and images.
- By content (Canal): time, operation and images. A seen change is applied only if the key is not within a replay, the row
  was as the change found it, and its time is the newest of the key. Else it is a repeat, and the key is within a replay
  until a change comes that was never seen, or the repeat of the last one.

The rule itself is a native function, `KeyOrder.scala`; docs/protocols.md has its model.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.binlog import file_number
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.lakehouse.schema import BIGINT, BOOLEAN, INT, array, struct
from cdc_assets.release.changes import STATE
from cdc_assets.release.late import LATE_SAMPLE, NO_LATE, Late
from cdc_assets.spark.session import checkpointed

_DELETE, _UPDATE = str(Op.DELETE), str(Op.UPDATE)
_KEY = ["database", "table", "key"]
# What the native function reads, in this order.
_COMPARED = [
    "topic", "partition", "offset", "index", "piece", "time", "op", "before", "after", "keyless", "weight", "pass",
    "identity", "twin", "file_number",
]  # fmt: skip
_PAST = {
    "release": "bigint", "ordinal": "int", "commit_ts": "bigint", "topic": "string", "partition": "int", "offset": "bigint",
    "index": "int", "piece": "int", "time": "bigint", "op": "string", "before": "string", "after": "string",
    "keyless": "boolean", "weight": "int", "pass": "bigint", "identity": "bigint", "twin": "bigint", "file_number": "bigint",
}  # fmt: skip
_NOTHING_APPLIED = f"array<struct<{', '.join(f'`{name}`: {kind}' for name, kind in _PAST.items())}>>"
_REST = [c for c in STATE if c not in _COMPARED]
_JUDGED = struct(
    kept=array(struct(at=INT, commit_ts=BIGINT, repeats=INT)),
    repeated=array(struct(at=INT, repeats=INT)),
    lost=array(INT),
    unseen=INT,
    in_replay=BOOLEAN,
)


def judge_pieces(split: DataFrame, prior: DataFrame | None, *, by_place: bool, trimmed: int) -> DataFrame:
    """Judge the pieces of each key.

    Args:
        split: `changes.pieces` with `pass` BIGINT.
        prior: rows of released_changes (changes, and repeats of some) at or above the lowest commit_ts of the pieces; None
            where there are none.
        by_place: whether a change's place in the binlog tells repeats, else its content.
        trimmed: the highest commit_ts of a change that maintenance has deleted.

    Returns:
        database, table, key; `pieces` and `applied` ARRAY<STRUCT>: what is new, and what was released before; `kept`
        ARRAY<STRUCT<at INT, commit_ts BIGINT, repeats INT>>: the pieces that are applied, in order, with a commit_ts that
        never falls and the row events that repeat them; `repeated` ARRAY<STRUCT<at INT, repeats INT>>: the applied changes
        that some repeat; `lost` ARRAY<INT>: the pieces that are neither, of `unseen` INT row events; `in_replay` BOOLEAN.
    """
    pieces = _compared(
        split.withColumn("op", F.col("piece_op")).withColumn("time", F.col("commit_ts")), by_place=by_place
    )
    fresh = pieces.groupBy(*_KEY).agg(F.collect_list(F.struct(*_COMPARED, *_REST)).alias("pieces"))
    if prior is None:
        nothing = F.array().cast(_NOTHING_APPLIED)
        known = fresh.withColumns({"applied": nothing, "was_replaying": F.lit(False), "table_newest": F.lit(0)})
    else:
        known = _with_prior(fresh, prior, by_place=by_place)
    judged = F.call_function(
        "cdc_key_order",
        F.lit(by_place),
        F.lit(trimmed).cast("bigint"),
        F.lit(len(_COMPARED) + len(_REST)),
        F.lit(len(_PAST)),
        F.lit(_JUDGED.json()),
        "pieces",
        "applied",
        "was_replaying",
        F.col("table_newest").cast("bigint"),
    )
    return known.withColumn("judged", judged).select(*_KEY, "pieces", "applied", "judged.*")


def _with_prior(fresh: DataFrame, prior: DataFrame, *, by_place: bool) -> DataFrame:
    """Add what was released before of each key: `applied`, `was_replaying` BOOLEAN and `table_newest` BIGINT."""
    own = prior.withColumns(
        {
            "time": F.coalesce("event_ts", "commit_ts"),
            "piece": F.lit(0),
            "weight": F.col("events"),
            "pass": F.lit(0).cast("bigint"),
        }
    )
    past = F.struct(*[F.col(name).cast(kind).alias(name) for name, kind in _PAST.items()])
    change = F.when(F.col("kind") == str(ReleasedKind.ROW), past)
    of_key = (
        _compared(own, by_place=by_place)
        .groupBy(*_KEY)
        .agg(F.collect_list(change).alias("applied"), F.max_by("in_replay", "release").alias("was_replaying"))
    )
    of_table = own.groupBy("database", "table").agg(F.max("time").alias("table_newest"))
    return (
        fresh.join(of_key, on=_KEY, how="left")
        .join(of_table, on=["database", "table"], how="left")
        .withColumns(
            {
                "applied": F.coalesce("applied", F.array().cast(_NOTHING_APPLIED)),
                "was_replaying": F.coalesce("was_replaying", F.lit(False)),
                "table_newest": F.coalesce("table_newest", F.lit(0)),
            }
        )
    )


def _compared(changes: DataFrame, *, by_place: bool) -> DataFrame:
    """Add what changes are compared by: the images that their operation has, and their place in the binlog."""
    images = {
        # Half of a changed key has its event's other image, too.
        "before": F.when(F.col("op").isin(_DELETE, _UPDATE), F.col("before")),
        "after": F.when(F.col("op") != _DELETE, F.col("after")),
        "keyless": F.coalesce(F.size("key_columns") == 0, F.lit(False)),
    }
    nothing = F.lit(None).cast("bigint")
    place = {"identity": F.lit(0).cast("bigint"), "twin": nothing, "file_number": nothing}
    if by_place:
        read = F.col("op") == str(Op.SNAPSHOT)
        place = {
            "identity": F.xxhash64(
                read, "source_ms", "source.server_id", "source.file", "source.position", "source.row"
            ),
            "twin": _twin(),
            "file_number": file_number(),
        }
    return changes.withColumns(images).withColumns(place)


def _twin() -> Column:
    """A hash of GTID, operation and images: one change, if it comes out of the logs of two servers. BIGINT or NULL."""
    gtid = F.col("source.gtid")
    # MySQL's GTID is `uuid:number`, MariaDB's `domain-server-number`; the number counts within the uuid, or the domain.
    mysql = gtid.contains(":")
    number = F.when(mysql, F.substring_index(gtid, ":", -1)).otherwise(F.substring_index(gtid, "-", -1))
    of = F.when(mysql, F.substring_index(gtid, ":", 1)).otherwise(F.substring_index(gtid, "-", 1))
    told = of.isNotNull() & number.try_cast("bigint").isNotNull()
    return F.when(told, F.xxhash64(of, number.try_cast("bigint"), "op", "before", "after"))


def with_passes(split: DataFrame, *, unkeyed: bool) -> DataFrame:
    """Add `pass` BIGINT: how often the stream went back before a piece, so far as rows without a key must know that.

    A source that starts again sends everything from an earlier point on. There equal rows of a table without a key are
    counted anew: a pass begins where the clock goes back and the row has come before at that very time.
    """
    if not unkeyed:
        return split.withColumn("pass", F.lit(0).cast("bigint"))
    whole_rows = F.size("key_columns") == 0
    in_kafka = Window.partitionBy("topic", "partition", "database", "table").orderBy("offset", "index", "piece")
    equal = Window.partitionBy("topic", "partition", *_KEY, "commit_ts", "piece_op").orderBy("offset", "index")
    goes_back = (F.col("commit_ts") < F.lag("commit_ts").over(in_kafka)) & (F.col("occurrence") > 1)
    numbered = (
        split.where(whole_rows)
        .withColumn("occurrence", F.row_number().over(equal))
        .withColumn("goes_back", F.coalesce(goes_back.cast("int"), F.lit(0)))
        .withColumn("pass", F.sum("goes_back").over(in_kafka))
        .drop("occurrence", "goes_back")
    )
    return split.where(~whole_rows).withColumn("pass", F.lit(0).cast("bigint")).unionByName(numbered)


def deduplicate(split: DataFrame, prior: DataFrame | None, *, by_place: bool, trimmed: int) -> tuple[DataFrame, Late]:
    """Return the changes among pieces and the changes that some repeat, as rows of released_changes; and what is lost.

    As `judge_pieces`. Without watermarks a run may end between any two records: a delete and an insert at one commit_ts
    stay two changes, as they would be if a run ended between them (the chop law).
    """
    # Done once, for two uses; and a plan that went on from such expressions would take seconds to make.
    judged = checkpointed(judge_pieces(split, prior, by_place=by_place, trimmed=trimmed), eager=False)
    changes = _changes(judged)
    if prior is None:
        return changes, NO_LATE
    return changes.unionByName(_repeated(judged), allowMissingColumns=True), _late(judged)


def _changes(judged: DataFrame) -> DataFrame:
    """The pieces that are applied, each a change of its own. `ordinal`: its place among those of its key in this run."""
    flat = judged.select(*_KEY, "in_replay", "pieces", F.posexplode("kept").alias("ordinal", "k"))
    piece = flat.withColumn("p", F.get("pieces", F.col("k.at")))
    time, position = F.col("p.time"), F.col("k.commit_ts")
    return piece.select(
        F.lit(str(ReleasedKind.ROW)).alias("kind"),
        *_KEY,
        position.alias("commit_ts"),
        F.when(time != position, time).alias("event_ts"),
        *[F.col(f"p.{c}").alias(c) for c in [*STATE, "op", "before"]],
        "ordinal",
        F.col("p.weight").alias("events"),
        F.col("k.repeats").cast("bigint").alias("repeats"),
        "in_replay",
    )


def _repeated(judged: DataFrame) -> DataFrame:
    """The changes of earlier releases that pieces repeat, with how many row events did.

    Their commit_ts is the last of the key, so that whoever reads any change that may be repeated reads them, too.
    """
    positions = [F.array_max(F.transform(c, lambda each: each["commit_ts"])) for c in ("applied", "kept")]
    last = F.greatest(*positions)
    flat = judged.select(*_KEY, "in_replay", "applied", last.alias("commit_ts"), F.inline("repeated"))
    change = flat.withColumn("a", F.get("applied", F.col("at")))
    return change.select(
        F.lit(str(ReleasedKind.REPEAT)).alias("kind"),
        *_KEY,
        "commit_ts",
        F.col("a.time").alias("event_ts"),
        *[F.col(f"a.{c}").alias(c) for c in ("topic", "partition", "offset", "index", "op")],
        F.lit(0).alias("events"),
        F.col("repeats").cast("bigint").alias("repeats"),
        "in_replay",
    )


def _late(judged: DataFrame) -> Late:
    """Return how many row events are neither applied nor repeats, with a sample."""
    found = judged.agg(F.sum("unseen")).head()
    unseen = found[0] or 0 if found else 0
    if not unseen:
        return NO_LATE
    lost = judged.select(*_KEY, "pieces", F.explode("lost").alias("at"))
    piece = F.get("pieces", F.col("at"))
    shown = [piece[c].alias(c) for c in ("topic", "partition", "offset", "op")]
    time = piece["time"].alias("commit_ts")
    events = lost.where(piece["weight"] == 1)
    sample = events.select(*shown, "database", "table", time, "key").limit(LATE_SAMPLE)
    return Late(unseen=unseen, sample=[r.asDict() for r in sample.collect()])
