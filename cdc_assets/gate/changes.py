"""Row events -> changes: each key at most once per commit_ts, whatever was repeated, split or out of order."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.protocols.events import Op

IMAGE = [
    "topic", "partition", "offset", "index", "source_ms", "key_columns", "before", "after", "mysql_types", "jdbc_types",
    "schema_version", "table_id", "source",
]  # fmt: skip


def key_of(image: Column, key_columns: Column) -> Column:
    """The key's values out of a row image, as the text of a JSON array.

    A table without a key is identified by the whole row, as the text of a JSON object of what is not NULL.

    In: STRING (JSON object), ARRAY<STRING>. Out: STRING; null where there is no image.
    """
    # The parsed row is a lambda's argument, and so parsed once, not once a key column.
    parsed = F.array(F.from_json(image, "MAP<STRING, STRING>"))
    values = F.transform(parsed, lambda row: F.transform(key_columns, lambda c: F.try_element_at(row, c)))
    # In an order of their own: the columns of an image that was put together stand in another order than the message's.
    columns = F.transform(parsed, lambda row: F.filter(F.map_entries(row), lambda entry: entry["value"].isNotNull()))
    whole = F.transform(columns, lambda entries: F.map_from_entries(F.array_sort(entries)))
    key = F.when(F.size(key_columns) > 0, F.to_json(F.get(values, F.lit(0)))).otherwise(
        F.to_json(F.get(whole, F.lit(0)))
    )
    return F.when(image.isNotNull(), key)


def pieces(events: DataFrame) -> DataFrame:
    """Split updates that change the key into the delete of the old and the insert of the new.

    In: row events with `key_columns` filled in wherever the table has a key.
    Out: the same columns and `key` STRING, `piece_op` STRING, `piece` INT (their order), `weight` INT: the pieces of one
    event weigh 1 together.
    """
    old_key, new_key = key_of(F.col("before"), F.col("key_columns")), key_of(F.col("after"), F.col("key_columns"))
    keyed = events.withColumn("old_key", old_key).withColumn("new_key", new_key)
    moved = (F.col("op") == str(Op.UPDATE)) & (F.col("old_key") != F.col("new_key"))

    def piece(key: Column, op: Column, weight: int) -> Column:
        # The piece that weighs comes last.
        return F.struct(
            key.alias("key"), op.alias("piece_op"), F.lit(weight).alias("piece"), F.lit(weight).alias("weight")
        )

    both = F.array(piece(F.col("old_key"), F.lit(str(Op.DELETE)), 0), piece(F.col("new_key"), F.lit(str(Op.INSERT)), 1))
    one = F.array(piece(F.coalesce("new_key", "old_key"), F.col("op"), 1))
    return keyed.select("*", F.inline(F.when(moved, both).otherwise(one))).drop("old_key", "new_key")


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
    signed = F.when(F.col("piece_op") == str(Op.DELETE), -copy).otherwise(copy)
    return passes.withColumn("copy", F.when(F.size("key_columns") == 0, signed).otherwise(0)).drop("rewound", "pass")


def net(split: DataFrame, *, joined: bool = True) -> DataFrame:
    """Collapse repeats, and, if `joined`, a delete and an insert of one key at one commit_ts into one update.

    In: `pieces` with `copy`. Out: one row per (database, table, key, copy, commit_ts), two where such a pair stays apart:
    the coordinates and images of the piece that tells the end state (of several copies, the first in Kafka), `op`, `ordinal`
    INT, `events` INT (how many events it stands for) and `repeats` BIGINT (how many copies were dropped).
    """
    image = F.struct(*IMAGE, F.col("piece_op").alias("op"), "weight")
    order = F.struct("topic", "partition", "offset", "index")
    gone = F.col("piece_op") == str(Op.DELETE)
    apart = [] if joined else [gone.alias("gone")]
    grouped = split.groupBy("database", "table", "key", "copy", "commit_ts", *apart).agg(
        F.min_by(F.when(gone, image), F.when(gone, order)).alias("d"),
        F.min_by(F.when(~gone, image), F.when(~gone, order)).alias("u"),
        F.sum("weight").alias("copies"),
    )
    replaced = F.col("d").isNotNull() & (F.col("u.op") == str(Op.INSERT))
    events = F.coalesce(F.col("d.weight"), F.lit(0)) + F.coalesce(F.col("u.weight"), F.lit(0))
    end = F.coalesce("u", "d")
    before = F.when(F.col("d").isNotNull(), F.col("d.before")).when(end["op"] == str(Op.UPDATE), F.col("u.before"))
    return grouped.select(
        "database",
        "table",
        "key",
        "commit_ts",
        *[end[c].alias(c) for c in IMAGE if c not in {"before", "after"}],
        F.when(replaced, str(Op.UPDATE)).otherwise(end["op"]).alias("op"),
        before.alias("before"),
        F.col("u.after").alias("after"),
        # The delete of a pair comes first.
        F.when(F.col("copy") == 0, F.col("u").isNotNull().cast("int")).otherwise(F.col("copy")).alias("ordinal"),
        events.alias("events"),
        (F.col("copies") - events).alias("repeats"),
    )


def kept(judged: DataFrame) -> DataFrame:
    """The pieces that count, each a change of its own.

    Without watermarks a run may end between any two records: a delete and an insert at one commit_ts stay two changes, as
    they would be if a run ended between them (the chop law).

    In: database, table, key, copy; `pieces` ARRAY<STRUCT>; `kept` ARRAY<STRUCT<at INT, commit_ts BIGINT>>, the indices of
    those that count; `copies` and `unseen` INT (row events among all, and among those that came too late).
    Out: as `net`, with `ordinal` INT: the place among the changes of the key in this run.
    """
    counted = F.aggregate("kept", F.lit(0), lambda n, k: n + F.get("pieces", k["at"])["weight"])
    flat = judged.withColumn("repeats", F.col("copies") - F.col("unseen") - counted).select(
        "database", "table", "key", "repeats", "pieces", F.posexplode("kept").alias("ordinal", "k")
    )
    piece = flat.withColumn("p", F.get("pieces", F.col("k.at")))
    op = F.col("p.op")
    return piece.select(
        "database",
        "table",
        "key",
        F.col("k.commit_ts").alias("commit_ts"),
        *[F.col(f"p.{c}").alias(c) for c in IMAGE if c not in {"before", "after"}],
        op.alias("op"),
        # Half of a change of the key has its event's other image, too.
        F.when(op.isin(str(Op.DELETE), str(Op.UPDATE)), F.col("p.before")).alias("before"),
        F.when(op != str(Op.DELETE), F.col("p.after")).alias("after"),
        "ordinal",
        F.col("p.weight").alias("events"),
        F.when(F.col("ordinal") == 0, F.col("repeats")).otherwise(F.lit(0)).alias("repeats"),
    )
