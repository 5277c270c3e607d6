"""Do a small run with plain Delta: append its changes to a table, and MERGE them into tables of versions."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession

from benchmarks.changes import KEYS, Change
from benchmarks.form import THREADS

_VERSION = "from_ts BIGINT, to_ts BIGINT, is_current BOOLEAN"


def append(rows: DataFrame, path: Path) -> None:
    """Append rows."""
    rows.write.format("delta").mode("append").save(str(path))


def change_rows(spark: SparkSession, changes: Sequence[Change]) -> DataFrame:
    """Return the changes to one table as rows: their commit_ts, and the row."""
    columns = list(changes[0].row)
    rows = [(c.commit_ts, *[c.row[name] for name in columns]) for c in changes]
    schema = "commit_ts BIGINT, " + ", ".join(f"{name} STRING" for name in columns)
    return spark.createDataFrame(rows, schema).localCheckpoint()


def create(spark: SparkSession, path: Path, columns: Sequence[str]) -> None:
    """Create a table of versions, with an open one of each changed key."""
    rows = [(0, None, True, str(key), *[f"v{key}"] * (len(columns) - 1)) for key in range(KEYS)]
    schema = ", ".join([_VERSION, *[f"{name} STRING" for name in columns]])
    frame = spark.createDataFrame(rows, schema)
    builder = DeltaTable.createIfNotExists(spark).location(str(path)).addColumns(frame.schema)
    builder.partitionedBy("is_current").property("delta.enableDeletionVectors", "true").execute()
    append(frame, path)


def version_rows(spark: SparkSession, changes: Sequence[Change]) -> DataFrame:
    """Return the input of a MERGE for the changes of one table: rows to insert, and one row for each key to close."""
    columns = list(changes[0].row)
    following: dict[str, int] = {}
    rows = []
    for change in reversed(changes):
        key = change.row["id"]
        closed_at = following.get(key)
        rows.append((None, change.commit_ts, closed_at, closed_at is None, *[change.row[c] for c in columns]))
        following[key] = change.commit_ts
    rows += [(key, ts, None, True, *[None] * len(columns)) for key, ts in following.items()]
    schema = ", ".join(["merge_key STRING", _VERSION, *[f"{name} STRING" for name in columns]])
    return spark.createDataFrame(rows, schema).localCheckpoint()


def merge(spark: SparkSession, path: Path, rows: DataFrame) -> None:
    """Close and open versions."""
    inserted: dict[str, str | Column] = {name: f"s.{name}" for name in rows.columns if name != "merge_key"}
    table = DeltaTable.forPath(spark, str(path)).alias("t")
    (
        table.merge(rows.alias("s"), "t.is_current = true AND t.id = s.merge_key")
        .whenMatchedUpdate(set={"is_current": "false", "to_ts": "s.from_ts"})
        .whenNotMatchedInsert("s.merge_key IS NULL", values=inserted)
        .execute()
    )


def in_threads(step: Callable[[Path], None], paths: Iterable[Path]) -> None:
    """Run one step for each table, in as many threads as the history stage has."""
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        list(pool.map(step, paths))
