"""Changes -> versions: the chain of each key, computed apart from any writing.

The steps, each a frame: `timeline` (the open version of each key, and its changes), `boundaries` (where the state really
changes), `versions` (from one boundary to the next). Before them, for tables without a key, `number_copies`.
"""

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from cdc_assets.tables.change_events import Op

_DELETE = str(Op.DELETE)
_INSERT = str(Op.INSERT)
_COORDINATES = ["topic", "partition", "offset"]
# Changes of one key in the order in which they happened; an open version of before has release 0.
_ORDER = ["commit_ts", "release", "ordinal"]


def number_copies(changes: DataFrame, open_versions: DataFrame) -> DataFrame:
    """Give each change of a table without a key the copy of the row that it is about.

    An insert opens the copy after the last that is open; a delete closes the newest open copy; a delete of a row that has
    no open copy is left out, and so is an update to an equal row.

    In: changes with key (the row itself), commit_ts, release, ordinal, op, topic, partition, offset, index; open versions
    with key and copy. Out: the changes, with `copy` INT from 1, and `ordinal` as they follow one another.
    """
    held = open_versions.groupBy("key").agg(F.max("copy").alias("held"))
    # Equal rows come and go in Kafka's order.
    by_row = Window.partitionBy("key").orderBy("commit_ts", "release", *_COORDINATES, "index", "ordinal")
    opens = F.col("op").isin(_INSERT, str(Op.SNAPSHOT))
    step = F.when(F.col("op") == _DELETE, -1).when(opens, 1).otherwise(0)
    start = F.coalesce("held", F.lit(0))
    return (
        changes.join(held, on="key", how="left")
        .withColumn("step", step)
        .withColumn("sum", start + F.sum("step").over(by_row))
        # Below zero there is nothing to delete: the sum counts from its lowest point then.
        .withColumn("count", F.col("sum") - F.least(F.lit(0), F.min("sum").over(by_row)))
        .withColumn("before", F.coalesce(F.lag("count").over(by_row), start))
        .withColumn("copy", F.when(F.col("step") > 0, F.col("count")).when(F.col("step") < 0, F.col("before")))
        .where("copy > 0")
        .withColumn("copy", F.col("copy").cast("int"))
        .withColumn("ordinal", F.row_number().over(by_row))
        .drop("held", "step", "sum", "count", "before")
    )


def timeline(changes: DataFrame, open_versions: DataFrame) -> DataFrame:
    """The changes of each key after its open version.

    In: changes with key, copy (0 in tables with a key), commit_ts, release, ordinal, op, row STRUCT, topic, partition,
    offset; open versions with key, copy, commit_ts (their from), op, row, topic, partition, offset, and `rest` STRUCT: what
    they have beside `row`.
    Out: key, copy, commit_ts, release, ordinal, op, row, topic, partition, offset, rest, and `standing` BOOLEAN: an open
    version.
    """
    columns = ["key", "copy", *_ORDER, "op", "row", *_COORDINATES]
    standing = open_versions.withColumns(
        {"release": F.lit(0).cast("bigint"), "ordinal": F.lit(0), "standing": F.lit(True)}
    )
    new = changes.select(*columns, F.lit(False).alias("standing"))
    return new.unionByName(standing.select(*columns, "standing", "rest"), allowMissingColumns=True)


def boundaries(line: DataFrame) -> DataFrame:
    """Leave out what changes nothing: updates to an equal row, deletes of what is not there. In and out: `timeline`.

    An insert where there is a row is an update: Open Protocol may not tell the two apart, and sources repeat themselves.
    """
    by_key = _chain()
    exists = F.col("standing") | (F.col("op") != _DELETE)
    before = F.lag(F.struct(exists.alias("exists"), "row")).over(by_key)
    existed = F.coalesce(before["exists"], F.lit(False))
    same = existed & before["row"].eqNullSafe(F.col("row"))
    changes = F.when(F.col("standing"), F.lit(True)).when(F.col("op") == _DELETE, existed).otherwise(~same)
    op = F.when(existed & (F.col("op") == _INSERT), str(Op.UPDATE)).otherwise(F.col("op"))
    return line.withColumns({"changes": changes, "op": op}).where("changes").drop("changes")


def versions(bounds: DataFrame) -> DataFrame:
    """Each boundary that is not a deletion lasts until the next one of its key.

    In: `boundaries`. Out: the same columns, `to_ts` BIGINT and `closed_by` STRING (null while open); open versions of before
    that stay open are among them.
    """
    by_key = _chain()
    closed_by = F.when(F.lead("op").over(by_key) == _DELETE, _DELETE).otherwise(F.lit("update"))
    to_ts = F.lead("commit_ts").over(by_key)
    lasting = bounds.withColumn("to_ts", to_ts).withColumn("closed_by", F.when(to_ts.isNotNull(), closed_by))
    return lasting.where(F.col("standing") | (F.col("op") != _DELETE))


def _chain() -> WindowSpec:
    return Window.partitionBy("key", "copy").orderBy(*_ORDER)
