"""What counts where nothing but the changes themselves tells repeats (Canal): per key and time, in Kafka's order.

Such a feed has no commit_ts of its own but the source's clock, of milliseconds (TiCDC) or whole seconds (Canal): many
changes of a key may share it. A change is a repeat when the key has got the same change at the same time already, unless
it goes on from the state that the key is in (a row that changes to and fro within one second does). A change that lies
before what its key has already got comes too late: a repeat, or one that was never seen.

Canal sends a change of the key to the partition of the new one, so that the pieces of one key may lie in several, between
which Kafka has no order: there each piece follows the one that left the state that it begins with.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.gate.changes import STATE
from cdc_assets.spark.expressions import once
from cdc_assets.tables.change_events import Op

BY: tuple[str, ...] = ("commit_ts",)
_GROUP = ["database", "table", "key", "copy", "commit_ts"]
_DELETE, _INSERT = str(Op.DELETE), str(Op.INSERT)
_NO_IMAGE = 0  # in the place of a hash
# What is compared of a change: images as hashes of their texts.
_CONTENT = {"op": "string", "before": "bigint", "after": "bigint", "topic": "string", "partition": "int"}


def group(split: DataFrame, prior: DataFrame | None) -> DataFrame:
    """Judge the pieces of each key and commit_ts.

    In: `changes.pieces` with `copy`; the changes released before at or above the lowest commit_ts of these (or None when
    there are none): database, table, key, commit_ts, release, ordinal, op, before, after, topic, partition.
    Out: database, table, key, copy, commit_ts; `pieces` ARRAY<STRUCT> in the order in which they happened; `kept`
    ARRAY<STRUCT<at INT, commit_ts BIGINT>>: the indices of those that count; `copies` INT (row events among all), `unseen`
    INT (row events that came too late and were never seen), `lost` ARRAY<INT>: the index of one to show for those.
    """
    order = ["record_timestamp", "topic", "partition", "offset", "index", "piece"]
    columns = [*order, "weight", "before", *(c for c in STATE if c not in order)]
    fields = [*[F.col(c) for c in columns], F.col("piece_op").alias("op")]
    pieces = split.groupBy(*_GROUP).agg(
        F.array_sort(F.collect_list(F.struct(*fields))).alias("pieces"), F.sum("weight").cast("int").alias("copies")
    )
    if prior is None:
        judged = pieces.select("*", F.lit(False).alias("late"), _no_contents().alias("before_them"))
    else:
        images = [image_hash(F.col(image)).alias(image) for image in ("before", "after")]
        content = F.struct("release", "ordinal", "op", *images, "topic", "partition")
        same_time = prior.groupBy("database", "table", "key", "commit_ts").agg(
            F.array_sort(F.collect_list(content)).alias("there")
        )
        newest = prior.groupBy("database", "table", "key").agg(F.max("commit_ts").alias("newest"))
        known = F.transform("there", lambda c: F.struct(*[c[name].alias(name) for name in _CONTENT]))
        judged = (
            pieces.join(same_time, on=["database", "table", "key", "commit_ts"], how="left")
            .join(newest, on=["database", "table", "key"], how="left")
            .withColumn("late", F.coalesce(F.col("newest") > F.col("commit_ts"), F.lit(False)))
            .withColumn("before_them", F.coalesce(known, _no_contents()))
        )
    judged = judged.withColumn("pieces", F.when(_scattered(), _chained()).otherwise(F.col("pieces")))
    alone = (F.size("pieces") == 1) & (F.size("before_them") == 0)
    # Equal rows of a table without a key are told apart by `copy`.
    counts_at_once = (alone | (F.col("copy") != 0)) & ~F.col("late")
    judged = judged.withColumn("did", F.when(~counts_at_once, _contents()))
    judged = judged.withColumn("left", F.transform("before_them", lambda q: _image(q["after"])))
    overtaken = F.when(F.col("late"), F.size("pieces")).when(F.col("copy") == 0, _overtaken())
    judged = judged.withColumn("overtaken", F.coalesce(overtaken, F.lit(0)))
    judged = judged.withColumns({"befores": _images("before"), "afters": _images("after")})
    kept = F.when(counts_at_once, F.array(F.lit(0))).otherwise(_fold())
    contents = F.zip_with("pieces", "did", lambda p, c: F.struct(p["weight"].alias("weight"), c.alias("c")))
    overtaken_contents = F.slice(contents, 1, F.col("overtaken"))
    lost = F.filter(
        overtaken_contents, lambda x: (x["weight"] == 1) & ~F.exists("before_them", lambda q: _same(q, x["c"]))
    )
    unseen = F.when(F.col("overtaken") > 0, F.size(lost)).otherwise(F.lit(0))
    shown = F.array(F.lit(0)).alias("lost")
    counted = F.transform(kept, lambda i: F.struct(i.alias("at"), F.col("commit_ts").alias("commit_ts")))
    return judged.select(*_GROUP, "pieces", counted.alias("kept"), "copies", unseen.alias("unseen"), shown)


def image_hash(image: Column) -> Column:
    """A hash of an image without what says nothing: blanks, the form of escapes, and the order of the columns."""
    columns = F.sort_array(F.map_entries(F.from_json(image, "MAP<STRING, STRING>")))
    # The hash passes over NULLs: without a word of them `a` NULL, `b` "b" would be as `a` "b", `b` NULL.
    told = F.transform(columns, lambda c: F.struct(c["key"], c["value"].isNull(), c["value"]))
    return F.when(image.isNotNull(), F.xxhash64(told))


def _no_contents() -> Column:
    content = F.struct(*[F.lit(None).cast(kind).alias(name) for name, kind in _CONTENT.items()])
    return F.slice(F.array(content), 1, 0)


def _contents() -> Column:
    """What each piece did, for comparing: half of a change of the key has its event's other image too."""
    return F.transform(
        "pieces",
        lambda p: F.struct(
            p["op"].alias("op"),
            image_hash(F.when(p["op"] != _INSERT, p["before"])).alias("before"),
            image_hash(F.when(p["op"] != _DELETE, p["after"])).alias("after"),
        ),
    )


def _same(a: Column, b: Column) -> Column:
    """Whether two pieces leave the same behind: a row gone, or a row as it is."""
    gone = b["op"] == _DELETE
    left = F.when(gone, a["before"].eqNullSafe(b["before"])).otherwise(
        a["after"].isNotNull() & a["after"].eqNullSafe(b["after"])
    )
    return F.coalesce(left, F.lit(False))


def _scattered() -> Column:
    """Whether the pieces lie in several partitions."""
    first = F.get("pieces", F.lit(0))
    return F.exists("pieces", lambda p: (p["partition"] != first["partition"]) | (p["topic"] != first["topic"]))


def _chained() -> Column:
    """The pieces of several partitions, each after the one that left the state that it begins with.

    Within a partition Kafka's order stands. The first of what is left of each partition may be next; it is the one that
    goes on from the state, and of several the one that another goes on from. Where nothing tells the state before them,
    they begin with a state that none of them leaves, and a circle begins with the insert: the row came and went.
    """
    pieces, contents = F.col("pieces"), _contents()
    last = F.try_element_at("before_them", F.lit(-1))
    start = F.struct(
        F.array().cast("array<int>").alias("order"),
        F.sequence(F.lit(0), F.size(pieces) - 1).alias("left"),
        (F.size("before_them") > 0).alias("known"),
        last["after"].alias("state"),
        contents.alias("c"),
    )

    def begins_with(s: Column, i: Column, state: Column) -> Column:
        return F.get(s["c"], i)["before"].eqNullSafe(state)

    def step(s: Column, _: Column) -> Column:
        def same_partition(i: Column, j: Column) -> Column:
            a, b = F.get(pieces, i), F.get(pieces, j)
            return (a["topic"] == b["topic"]) & (a["partition"] == b["partition"])

        def rank(i: Column) -> Column:
            piece = F.get(s["c"], i)
            others = F.filter(s["left"], lambda j: j != i)
            goes_on = F.when(s["known"], begins_with(s, i, s["state"])).otherwise(
                ~F.exists(others, lambda j: begins_with(s, i, F.get(s["c"], j)["after"]))
            )
            leads_on = F.exists(others, lambda j: begins_with(s, j, piece["after"]))
            return F.struct(goes_on, F.when(s["known"], leads_on).otherwise(piece["op"] == _INSERT), (-i).alias("i"))

        heads = F.filter(s["left"], lambda i: ~F.exists(s["left"], lambda j: (j < i) & same_partition(i, j)))
        following = -F.array_max(F.transform(heads, rank))["i"]
        return F.struct(
            F.concat(s["order"], F.array(following)).alias("order"),
            F.filter(s["left"], lambda j: j != following).alias("left"),
            F.lit(True).alias("known"),
            F.get(s["c"], following)["after"].alias("state"),
            s["c"].alias("c"),
        )

    finish: Callable[[Column], Column] = lambda s: s["order"]  # noqa: E731
    order = F.aggregate(F.sequence(F.lit(0), F.size(pieces) - 1), start, step, finish)
    return F.transform(order, lambda i: F.get(pieces, i))


def _overtaken() -> Column:
    """How many pieces, from the first on, lie before what the key has got at this time already. INT or NULL.

    A row that leaves its key is told in another partition than the rest of the key. Where a run has taken in the one
    without the other, pieces come that do not go on from the state; the last of them leaves what a change that is there
    begins with, and none before that one has left.
    """
    there, pieces, did = F.col("before_them"), F.col("pieces"), F.col("did")
    open_ended = F.filter(there, lambda q, n: ~_within(F.col("left"), q["before"], n))

    def leads_to(c: Column, i: Column, q: Column) -> Column:
        piece = F.get(pieces, i)
        elsewhere = (piece["partition"] != q["partition"]) | (piece["topic"] != q["topic"])
        return elsewhere & c["after"].eqNullSafe(q["before"])

    def leading(ends: Column) -> Column:
        return F.array_max(F.transform(did, lambda c, i: F.when(F.exists(ends, lambda q: leads_to(c, i, q)), i + 1)))

    goes_on = F.get(did, F.lit(0))["before"].eqNullSafe(F.try_element_at(there, F.lit(-1))["after"])
    return F.when((F.size(there) > 0) & ~goes_on, once(open_ended, leading))


def _images(image: str) -> Column:
    """One image of what was there, then of the pieces; NULL for those that are overtaken. ARRAY<BIGINT>."""
    there = F.transform("before_them", lambda q: _image(q[image]))
    return F.concat(there, F.transform("did", lambda c, i: F.when(i >= F.col("overtaken"), _image(c[image]))))


def _image(image: Column) -> Column:
    return F.coalesce(image, F.lit(_NO_IMAGE))


def _within(images: Column, image: Column, first: Column) -> Column:
    """Whether an image is among the first of an array. BOOLEAN, never NULL."""
    return F.array_position(images, _image(image)).between(1, first)


def _fold() -> Column:
    """The indices of the pieces that count, one after the other, beginning with what was there at this time before."""
    start = F.struct(
        F.array().cast("array<int>").alias("kept"),
        (F.size("before_them") > 0).alias("known"),
        F.try_element_at("before_them", F.lit(-1))["after"].alias("state"),
    )

    def step(s: Column, i: Column) -> Column:
        piece, so_far = F.get("did", i), F.size("before_them") + i
        # As `_same` has it, of what was there and of all pieces until this one.
        repeated = F.when(piece["op"] == _DELETE, _within(F.col("befores"), piece["before"], so_far)).otherwise(
            piece["after"].isNotNull() & _within(F.col("afters"), piece["after"], so_far)
        )
        counts = ~repeated | (s["known"] & piece["before"].eqNullSafe(s["state"]))
        grown = F.struct(
            F.concat(s["kept"], F.array(i)).alias("kept"), F.lit(True).alias("known"), piece["after"].alias("state")
        )
        return F.when(counts, grown).otherwise(s)

    finish: Callable[[Column], Column] = lambda s: s["kept"]  # noqa: E731
    following = F.filter(F.sequence(F.lit(0), F.size("pieces") - 1), lambda i: i >= F.col("overtaken"))
    return F.aggregate(following, start, step, finish)
