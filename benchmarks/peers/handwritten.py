"""Do the same work by hand: Kafka, `from_json` into structs, `dropDuplicates`, `LEAD`, and Delta's MERGE for SCD2.

Nothing is stored between a topic and the table of versions. It waits for no watermark, finds duplicates within a
run only, and a record that does not fit ends the run.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from benchmarks.topics import Topic

_ROW = (
    "STRUCT<id: STRING, buyer: STRING, region: STRING, status: STRING, amount: STRING, qty: STRING, weight: STRING, "
    "note: STRING, token: STRING, gift: STRING, created: STRING, updated: STRING>"
)
_MESSAGE = (
    f"database STRING, `table` STRING, type STRING, isDdl BOOLEAN, data ARRAY<{_ROW}>, _tidb STRUCT<commitTs: BIGINT>"
)
_COLUMNS = {
    "id": "CAST(row.id AS BIGINT)",
    "buyer": "CAST(row.buyer AS DECIMAL(20,0))",
    "region": "row.region",
    "status": "element_at(array('new', 'paid', 'shipped', 'cancelled'), CAST(row.status AS INT))",
    "amount": "CAST(row.amount AS DECIMAL(12,2))",
    "qty": "CAST(row.qty AS BIGINT)",
    "weight": "CAST(row.weight AS DOUBLE)",
    "note": "row.note",
    "token": "encode(row.token, 'ISO-8859-1')",
    "gift": "CAST(row.gift AS TINYINT)",
    "created": "CAST(row.created AS TIMESTAMP_NTZ)",
    "updated": "CAST(row.updated AS TIMESTAMP)",
}


def run(spark: SparkSession, topic: Topic, after: Mapping[int, int], path: Path) -> None:
    """Bring the table at `path` up to date with the topic's records since the offsets `after`."""
    changes = _changes(_records(spark, topic, after))
    if not DeltaTable.isDeltaTable(spark, str(path)):
        _versions(changes).where("op <> 'DELETE'").drop("op", "first").write.format("delta").save(str(path))
        return
    changes.persist()
    _merge(spark, _versions(changes), path)
    changes.unpersist()


def _records(spark: SparkSession, topic: Topic, after: Mapping[int, int]) -> DataFrame:
    starts = {str(partition): after.get(partition, 0) for partition in topic.offsets}
    ends = {str(partition): end for partition, end in topic.offsets.items()}
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", topic.servers)
        .option("subscribe", topic.name)
        .option("startingOffsets", json.dumps({topic.name: starts}))
        .option("endingOffsets", json.dumps({topic.name: ends}))
        .load()
    )


def _changes(records: DataFrame) -> DataFrame:
    """Return the table's row events, each once, typed."""
    message = F.from_json(F.col("value").cast("string"), _MESSAGE).alias("message")
    events = records.select(message).where("NOT message.isDdl AND message.type IN ('INSERT', 'UPDATE', 'DELETE')")
    rows = events.selectExpr(
        "message.type AS op", "message._tidb.commitTs AS commit_ts", "explode(message.data) AS row"
    )
    typed = rows.selectExpr("op", "commit_ts", *[f"{value} AS {name}" for name, value in _COLUMNS.items()])
    return typed.dropDuplicates(["id", "commit_ts"])


def _versions(changes: DataFrame) -> DataFrame:
    """Return each change with its interval, and whether it is the first of its key."""
    in_order = Window.partitionBy("id").orderBy("commit_ts")
    following = F.lead("commit_ts").over(in_order)
    return changes.select(
        *_COLUMNS,
        "op",
        F.col("commit_ts").alias("from_ts"),
        following.alias("to_ts"),
        following.isNull().alias("is_current"),
        (F.row_number().over(in_order) == 1).alias("first"),
    )


def _merge(spark: SparkSession, versions: DataFrame, path: Path) -> None:
    """Merge as in Delta's documentation, "Slowly changing data (SCD) Type 2 operation into Delta tables".

    A row whose merge_key is its key closes the open version; rows that open a version have none.
    """
    table = DeltaTable.forPath(spark, str(path))
    closing = versions.where("first").selectExpr("id AS merge_key", "*")
    opening = versions.where("op <> 'DELETE'").selectExpr("CAST(NULL AS BIGINT) AS merge_key", "*")
    inserted: dict[str, str | Column] = {name: f"s.{name}" for name in versions.columns if name not in {"op", "first"}}
    (
        table.alias("t")
        .merge(opening.unionByName(closing).alias("s"), "t.id = s.merge_key")
        .whenMatchedUpdate("t.is_current = true", set={"is_current": "false", "to_ts": "s.from_ts"})
        .whenNotMatchedInsert("s.merge_key IS NULL", values=inserted)
        .execute()
    )
