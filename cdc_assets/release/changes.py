"""Row events -> changes: each key at most once per commit_ts, whatever was repeated, split or out of order."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Op
from cdc_assets.protocols.keys import key_of
from cdc_assets.protocols.messages import field_names

# What a change takes over from the event that tells its end state.
STATE = [
    "topic", "partition", "offset", "index", "source_ms", "key_columns", "after", "layout_id", "schema_version", "table_id",
    "source",
]  # fmt: skip
_DELETE, _INSERT, _UPDATE = str(Op.DELETE), str(Op.INSERT), str(Op.UPDATE)


def with_keys(events: DataFrame) -> DataFrame:
    """Fill in `key` and `key_before` where the message alone did not tell them, out of the images and `key_columns`."""
    told, columns = F.col("key").isNotNull(), F.col("key_columns")
    key = F.coalesce("key", key_of(F.coalesce("after", "before"), columns))
    before = F.when(~told & (F.col("op") == _UPDATE), key_of(F.col("before"), columns))
    return (
        events.withColumn("_before", F.when(told, F.col("key_before")).otherwise(before))
        .withColumn("key", key)
        .withColumn("key_before", F.nullif("_before", F.col("key")))
        .drop("_before")
    )


def pieces(events: DataFrame) -> DataFrame:
    """Split updates that change the key into the delete of the old and the insert of the new.

    In: row events with `key` and, where an update changed it, `key_before`.
    Out: the same columns but `key_before`, and `piece_op` STRING, `piece` INT (their order), `weight` INT: the pieces of one
    event weigh 1 together.
    """

    def piece(key: Column, op: Column, weight: int) -> Column:
        # The piece that weighs comes last.
        return F.struct(
            key.alias("key"), op.alias("piece_op"), F.lit(weight).alias("piece"), F.lit(weight).alias("weight")
        )

    both = F.array(piece(F.col("key_before"), F.lit(_DELETE), 0), piece(F.col("key"), F.lit(_INSERT), 1))
    one = F.array(piece(F.col("key"), F.col("op"), 1))
    split = F.inline(F.when(F.col("key_before").isNotNull(), both).otherwise(one))
    kept = [c for c in events.columns if c not in {"key", "key_before"}]
    return events.select(*kept, split)


def number_copies(split: DataFrame) -> DataFrame:
    """Add `copy` INT: equal changes of a table without a key are copies, numbered from 1 (deletes from -1); else 0.

    A changefeed that starts again sends everything from an earlier commit_ts on: in each such pass over the stream the
    copies are numbered anew, so that the first copy of one pass repeats the first of another.
    """
    in_kafka = Window.partitionBy("topic", "partition", "database", "table").orderBy("offset", "index", "piece")
    rewound = F.coalesce((F.col("commit_ts") < F.lag("commit_ts").over(in_kafka)).cast("int"), F.lit(0))
    passes = split.withColumn("rewound", rewound).withColumn("pass", F.sum("rewound").over(in_kafka))
    equal = Window.partitionBy("database", "table", "key", "commit_ts", "piece_op", "topic", "partition", "pass")
    copy = F.row_number().over(equal.orderBy("offset", "index"))
    signed = F.when(F.col("piece_op") == _DELETE, -copy).otherwise(copy)
    return passes.withColumn("copy", F.when(F.size("key_columns") == 0, signed).otherwise(0)).drop("rewound", "pass")


def with_copies(split: DataFrame, *, unkeyed: bool) -> DataFrame:
    """`pieces` with `copy`; `unkeyed`: there may be tables without a key among them. Only their rows are numbered."""
    if not unkeyed:
        return split.withColumn("copy", F.lit(0))
    whole_rows = F.size("key_columns") == 0
    return split.where(~whole_rows).withColumn("copy", F.lit(0)).unionByName(number_copies(split.where(whole_rows)))


def net(split: DataFrame, *, joined: bool = True) -> DataFrame:
    """Collapse repeats, and, if `joined`, a delete and an insert of one key at one commit_ts into one update.

    In: `pieces` with `copy`. Out: one row per (database, table, key, copy, commit_ts), two where such a pair stays apart:
    `STATE` of the piece that tells the end state (of several copies, the first in Kafka), `before` STRING (the row before an
    UPDATE or a DELETE, as `row_before` has it), `op`, `ordinal` INT, `events` INT (how many events it stands for) and
    `repeats` BIGINT (how many copies were dropped).
    """
    state = F.struct(*STATE, row_before(F.col("piece_op")).alias("before"), F.col("piece_op").alias("op"), "weight")
    order = F.struct("topic", "partition", "offset", "index")
    gone = F.col("piece_op") == _DELETE
    apart = [] if joined else [gone.alias("gone")]
    grouped = split.groupBy("database", "table", "key", "copy", "commit_ts", *apart).agg(
        F.min_by(F.when(gone, state), F.when(gone, order)).alias("d"),
        F.min_by(F.when(~gone, state), F.when(~gone, order)).alias("u"),
        F.sum("weight").alias("copies"),
    )
    replaced = F.col("d").isNotNull() & (F.col("u.op") == _INSERT)
    events = F.coalesce(F.col("d.weight"), F.lit(0)) + F.coalesce(F.col("u.weight"), F.lit(0))
    end = F.coalesce("u", "d")
    return grouped.select(
        "database",
        "table",
        "key",
        "commit_ts",
        *[end[c].alias(c) for c in STATE if c != "after"],
        F.when(replaced, _UPDATE).otherwise(end["op"]).alias("op"),
        F.when(replaced, F.col("d.before")).otherwise(end["before"]).alias("before"),
        F.col("u.after").alias("after"),
        # The delete of a pair comes first.
        F.when(F.col("copy") == 0, F.col("u").isNotNull().cast("int")).otherwise(F.col("copy")).alias("ordinal"),
        events.alias("events"),
        (F.col("copies") - events).cast("bigint").alias("repeats"),
    )


def row_before(op: Column) -> Column:
    """Return the row before a change with this operation, as far as it says more than the change's key. STRING or NULL.

    The event's image is that of the key's own row only in an UPDATE and a DELETE: the insert that a changed key makes has
    the row of another key there.
    """
    more = F.size(field_names(F.col("before"))) > F.size("key_columns")
    return F.when(op == _UPDATE, F.col("before")).when((op == _DELETE) & more, F.col("before"))


def alone(events: DataFrame, ordinal: Column, before: Column) -> DataFrame:
    """Changes of events that are the only ones of their key at their time, and did not change it.

    Out: as `net`, with this ordinal, and this row before the change.
    """
    return events.select(
        "database",
        "table",
        "key",
        "commit_ts",
        *[F.col(c) for c in STATE if c != "after"],
        "op",
        before.alias("before"),
        "after",
        ordinal.alias("ordinal"),
        F.lit(1).alias("events"),
        F.lit(0).cast("bigint").alias("repeats"),
    )


def several(events: DataFrame, *by: str) -> DataFrame:
    """The keys that have several pieces in one group of `by`, as hashes. Out: `group` BIGINT, each once.

    Only these need be told apart, and only their images travel: most keys come once.
    """
    kept = events.select(
        "database", "table", *by, F.explode(F.array_compact(F.array("key", "key_before"))).alias("key")
    )
    groups = kept.groupBy(group_hash(*by).alias("group")).count()
    return groups.where("count > 1").select("group")


def group_hash(*by: str) -> Column:
    """What `several` calls the group of an event."""
    return F.xxhash64("database", "table", "key", *by)
