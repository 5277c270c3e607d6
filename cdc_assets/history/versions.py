"""Changes -> versions: the chain of each key, computed apart from any writing.

The steps, each a frame: `timeline` (the open version of each key, and its changes), `boundaries` (where the state really
changes), `versions` (from one boundary to the next).
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.protocols.events import Op

_DELETE = str(Op.DELETE)
_COORDINATES = ["topic", "partition", "offset"]


def timeline(changes: DataFrame, open_versions: DataFrame) -> DataFrame:
    """The changes of each key after its open version.

    In: changes with key, commit_ts, op, row STRUCT, topic, partition, offset; open versions with key, commit_ts (their
    from) and row.
    Out: key, commit_ts, op (null: the open version), row, topic, partition, offset.
    """
    columns = ["key", "commit_ts", "op", "row", *_COORDINATES]
    return changes.select(*columns).unionByName(
        open_versions.select("key", "commit_ts", "row"), allowMissingColumns=True
    )


def boundaries(line: DataFrame) -> DataFrame:
    """Leave out what changes nothing: updates to an equal row, deletes of what is not there. In and out: `timeline`."""
    by_key = Window.partitionBy("key").orderBy("commit_ts")
    state = F.struct(F.coalesce(F.col("op") != _DELETE, F.lit(True)).alias("exists"), "row")  # noqa: FBT003
    before = F.lag(state).over(by_key)
    existed = F.coalesce(before["exists"], F.lit(False))  # noqa: FBT003
    same = existed & before["row"].eqNullSafe(F.col("row"))
    changes = F.when(F.col("op").isNull(), F.lit(True)).when(F.col("op") == _DELETE, existed).otherwise(~same)  # noqa: FBT003
    return line.withColumn("changes", changes).where("changes").drop("changes")


def versions(bounds: DataFrame) -> DataFrame:
    """Each boundary that is not a deletion lasts until the next one of its key.

    In: `boundaries`. Out: the same columns, `to_ts` BIGINT and `closed_by` STRING (null while open). An open version of
    before (op null) that stays open is left out: nothing is to be done about it.
    """
    by_key = Window.partitionBy("key").orderBy("commit_ts")
    closed_by = F.when(F.lead("op").over(by_key) == _DELETE, _DELETE).otherwise(F.lit("update"))
    to_ts = F.lead("commit_ts").over(by_key)
    lasting = bounds.withColumn("to_ts", to_ts).withColumn("closed_by", F.when(to_ts.isNotNull(), closed_by))
    return lasting.where(_touched() & (F.coalesce(F.col("op"), F.lit("")) != _DELETE))


def _touched() -> Column:
    return F.col("op").isNotNull() | F.col("to_ts").isNotNull()
