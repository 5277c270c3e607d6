"""Plain Delta: the changes of a small run appended to a table, and MERGEd into tables of versions, and nothing else."""

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
    """The changes to one table as rows: their commit_ts, and the row."""
    columns = list(changes[0].row)
    rows = [(c.commit_ts, *[c.row[name] for name in columns]) for c in changes]
    schema = "commit_ts BIGINT, " + ", ".join(f"{name} STRING" for name in columns)
    return spark.createDataFrame(rows, schema).localCheckpoint()


def create(spark: SparkSession, path: Path, columns: Sequence[str]) -> None:
    """A table of versions, with an open one of each key that changes are to."""
    rows = [(0, None, True, str(key), *[f"v{key}"] * (len(columns) - 1)) for key in range(KEYS)]
    schema = ", ".join([_VERSION, *[f"{name} STRING" for name in columns]])
    frame = spark.createDataFrame(rows, schema)
    builder = DeltaTable.createIfNotExists(spark).location(str(path)).addColumns(frame.schema)
    builder.partitionedBy("is_current").property("delta.enableDeletionVectors", "true").execute()
    append(frame, path)


def version_rows(spark: SparkSession, changes: Sequence[Change]) -> DataFrame:
    """What a MERGE of the changes to one table takes: a row each to insert, and one a key that closes what is open."""
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
    """One step for each table, by as many threads as the history stage has."""
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        list(pool.map(step, paths))
