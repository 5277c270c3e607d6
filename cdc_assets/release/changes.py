"""Turn row events into changes: at most one for each key and commit_ts, whatever is duplicated, split or out of order."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Op
from cdc_assets.protocols.keys import key_of
from cdc_assets.protocols.messages import field_names
from cdc_assets.spark.session import checkpointed

# The columns that a change takes from the event with the row's state after it.
END_STATE_COLUMNS = [
    "topic", "partition", "offset", "index", "source_ms", "sent_ms", "key_columns", "after", "layout_id", "schema_version",
    "table_id", "source",
]  # fmt: skip
_DELETE, _INSERT, _UPDATE = str(Op.DELETE), str(Op.INSERT), str(Op.UPDATE)


def fill_keys(events: DataFrame) -> DataFrame:
    """Fill `key` and `key_before` from the row images and `key_columns`, for events whose message has no key."""
    has_key, columns = F.col("key").isNotNull(), F.col("key_columns")
    key = F.coalesce("key", key_of(F.coalesce("after", "before"), columns))
    before = F.when(~has_key & (F.col("op") == _UPDATE), key_of(F.col("before"), columns))
    return (
        events.withColumn("_before", F.when(has_key, F.col("key_before")).otherwise(before))
        .withColumn("key", key)
        .withColumn("key_before", F.nullif("_before", F.col("key")))
        .drop("_before")
    )


def split_key_changes(events: DataFrame) -> DataFrame:
    """Split each update that changes the key into a delete of the old key and an insert of the new one.

    In: row events with `key` and, if an update changes it, `key_before`.
    Out: one row for each piece, with the same columns but `key_before`, and `piece_op` STRING, `piece` INT (the order of
    the pieces) and `weight` INT, whose sum over the pieces of an event is 1.
    """

    def piece(key: Column, op: Column, weight: int) -> Column:
        # The last piece of an event has weight 1, the others 0.
        return F.struct(
            key.alias("key"), op.alias("piece_op"), F.lit(weight).alias("piece"), F.lit(weight).alias("weight")
        )

    both = F.array(piece(F.col("key_before"), F.lit(_DELETE), 0), piece(F.col("key"), F.lit(_INSERT), 1))
    one = F.array(piece(F.col("key"), F.col("op"), 1))
    split = F.inline(F.when(F.col("key_before").isNotNull(), both).otherwise(one))
    kept = [c for c in events.columns if c not in {"key", "key_before"}]
    return events.select(*kept, split)


def add_copies(split: DataFrame, *, has_unkeyed: bool) -> DataFrame:
    """Add `copy` INT: the number of a change among the equal changes of a table without a key, from 1 (deletes: from -1).

    It is 0 in tables with a key. A restarted changefeed sends the stream from an earlier commit_ts on. The numbers begin
    at 1 in each such pass over the stream, so that the first copy of one pass is a duplicate of the first copy of another.

    Args:
        split: the pieces of `split_key_changes`.
        has_unkeyed: whether tables without a key may be among them. Only their rows are numbered.
    """
    if not has_unkeyed:
        return split.withColumn("copy", F.lit(0))
    is_keyless = F.size("key_columns") == 0
    in_kafka = Window.partitionBy("topic", "partition", "database", "table").orderBy("offset", "index", "piece")
    rewound = F.coalesce((F.col("commit_ts") < F.lag("commit_ts").over(in_kafka)).cast("int"), F.lit(0))
    equal = Window.partitionBy("database", "table", "key", "commit_ts", "piece_op", "topic", "partition", "pass")
    copy = F.row_number().over(equal.orderBy("offset", "index"))
    numbered = (
        split.where(is_keyless)
        .withColumn("rewound", rewound)
        .withColumn("pass", F.sum("rewound").over(in_kafka))
        .withColumn("copy", F.when(F.col("piece_op") == _DELETE, -copy).otherwise(copy))
        .drop("rewound", "pass")
    )
    return split.where(~is_keyless).withColumn("copy", F.lit(0)).unionByName(numbered)


def merge_changes(split: DataFrame, *, joins_pairs: bool = True) -> DataFrame:
    """Merge duplicates into one change and, if `joins_pairs`, a delete and an insert of one commit_ts into one update.

    In: the pieces of `split_key_changes` with `copy`.
    Out: one row for each (database, table, key, copy, commit_ts), or two for a pair that is not joined: `END_STATE_COLUMNS`
    of the piece with the state after the change (of duplicates the first in Kafka), `before` STRING (as `row_before`), `op`,
    `ordinal` INT, `events` INT (how many events the change stands for) and `repeats` BIGINT (how many duplicates were
    dropped).
    """
    state = F.struct(
        *END_STATE_COLUMNS, row_before(F.col("piece_op")).alias("before"), F.col("piece_op").alias("op"), "weight"
    )
    order = F.struct("topic", "partition", "offset", "index")
    is_delete = F.col("piece_op") == _DELETE
    by_kind = [] if joins_pairs else [is_delete.alias("is_delete")]
    grouped = split.groupBy("database", "table", "key", "copy", "commit_ts", *by_kind).agg(
        F.min_by(F.when(is_delete, state), F.when(is_delete, order)).alias("d"),
        F.min_by(F.when(~is_delete, state), F.when(~is_delete, order)).alias("u"),
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
        *[end[c].alias(c) for c in END_STATE_COLUMNS if c != "after"],
        F.when(replaced, _UPDATE).otherwise(end["op"]).alias("op"),
        F.when(replaced, F.col("d.before")).otherwise(end["before"]).alias("before"),
        F.col("u.after").alias("after"),
        # The delete of a pair comes first.
        F.when(F.col("copy") == 0, F.col("u").isNotNull().cast("int")).otherwise(F.col("copy")).alias("ordinal"),
        events.alias("events"),
        (F.col("copies") - events).cast("bigint").alias("repeats"),
    )


def row_before(op: Column) -> Column:
    """Return the row before a change with the operation `op`; NULL if a DELETE's image has the key alone. STRING.

    An insert has no row before it: if it comes from a changed key, the event's `before` is the row of the old key.
    """
    more = F.size(field_names(F.col("before"))) > F.size("key_columns")
    return F.when(op == _UPDATE, F.col("before")).when((op == _DELETE) & more, F.col("before"))


def select_changes(events: DataFrame, ordinal: Column, before: Column) -> DataFrame:
    """Return one change for each event, with the columns of `merge_changes`.

    Args:
        events: row events that do not change their key and are the only ones of it at their commit_ts.
        ordinal: the changes' `ordinal`.
        before: the row before the change.
    """
    return events.select(
        "database",
        "table",
        "key",
        "commit_ts",
        *[F.col(c) for c in END_STATE_COLUMNS if c != "after"],
        "op",
        before.alias("before"),
        "after",
        ordinal.alias("ordinal"),
        F.lit(1).alias("events"),
        F.lit(0).cast("bigint").alias("repeats"),
    )


def split_by_shared_key(events: DataFrame, *columns: str) -> tuple[DataFrame, DataFrame]:
    """Return the events that are alone with their key and `columns`, and the others.

    The others include the events that change their key, and those of tables without a key. Most keys have one event in a
    run, so that only the others need a shuffle.
    """
    is_keyless = F.size("key_columns") == 0
    shared = F.broadcast(checkpointed(_find_shared_groups(events.where(~is_keyless), *columns)))
    hashed = events.withColumn("group", hash_group(*columns))
    is_compared = F.col("key_before").isNotNull() | is_keyless
    single = hashed.where(~is_compared).join(shared, on="group", how="left_anti").drop("group")
    marked = hashed.join(shared.withColumn("shared", F.lit(True)), on="group", how="left")
    return single, marked.where(is_compared | F.col("shared")).drop("group", "shared")


def _find_shared_groups(events: DataFrame, *columns: str) -> DataFrame:
    """Return the hashes of the groups of key and `columns` that have several pieces. Out: `group` BIGINT, distinct."""
    keys = events.select(
        "database", "table", *columns, F.explode(F.array_compact(F.array("key", "key_before"))).alias("key")
    )
    groups = keys.groupBy(hash_group(*columns).alias("group")).count()
    return groups.where("count > 1").select("group")


def hash_group(*columns: str) -> Column:
    """Return the hash of an event's table, key and `columns`, BIGINT."""
    return F.xxhash64("database", "table", "key", *columns)
