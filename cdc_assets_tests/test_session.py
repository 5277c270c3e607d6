"""What the session's settings do that no result shows."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Observation, SparkSession, Window
from pyspark.sql import functions as F

from benchmarks.measuring import jobs_started
from cdc_assets.session import gathered, hadoop_path, rows_here, settled, spark_session
from cdc_assets.storage import LOCAL, Store

STORE = Store(places=("s3a://bucket/lake",))


@pytest.mark.parametrize("permission", ["640", "755", "1777"])
def test_local_files_get_their_permissions(spark: SparkSession, tmp_path: Path, permission: str) -> None:
    """By this package's own class, which starts no command for it, but for the sticky bit, which Java cannot set."""
    place, conf = hadoop_path(spark, str(tmp_path / "made"))
    files = place.getFileSystem(conf)
    assert files.getClass().getName() == "cdc_assets.LocalFiles"
    assert files.mkdirs(place)
    files.setPermission(place, spark._jvm.org.apache.hadoop.fs.permission.FsPermission(permission))
    assert (tmp_path / "made").stat().st_mode & 0o7777 == int(permission, 8)


@pytest.mark.parametrize("before", [None, "/of/a/user.jar"])
def test_a_stores_jars_come_last(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    """So the class path begins as the one that the archive of classes was made with, whatever the store."""
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", before) if before else monkeypatch.delenv("SPARK_DIST_CLASSPATH", False)
    told: list[tuple[str, str]] = []

    def start(settings: Mapping[str, str]) -> SparkSession:
        told.append((settings["spark.driver.extraClassPath"], os.environ["SPARK_DIST_CLASSPATH"]))
        return spark

    for store in (LOCAL, STORE):
        assert spark_session({"spark.master": "local[2]"}, store, start) is spark
    (first, nothing), (same, last) = told
    assert first == same
    assert nothing == (before or "")
    jars = [str(jar) for jar in STORE.jars()]
    assert any("hadoop-aws" in jar for jar in jars)
    assert last.split(os.pathsep) == [*jars, *([before] if before else [])]
    assert os.environ.get("SPARK_DIST_CLASSPATH") == before


# --- rows without a job

TYPED = (
    "SELECT id, CAST(id AS STRING) AS text, encode(CAST(id AS STRING), 'UTF-8') AS bytes, id = 3 AS flag, "
    "CAST(id AS DECIMAL(38,0)) AS number, CAST(id AS FLOAT) AS real, CAST(id AS DOUBLE) AS double, "
    "CAST(id % 100 AS TINYINT) AS tiny, CAST(id AS SMALLINT) AS small, timestamp_micros(id) AS instant, "
    "CAST(timestamp_micros(id) AS TIMESTAMP_NTZ) AS local, date_from_unix_date(id) AS day, array(id, NULL) AS list, "
    "struct(id AS a, CAST(NULL AS STRING) AS b) AS pair, map('k', id) AS map, NULL AS nothing "
    "FROM range(0, 2000, 1, {parts})"
)


@pytest.mark.parametrize(("parts", "jobs"), [(1, 0), (3, 1)])
def test_rows_of_one_part_take_no_job_and_are_the_same(spark: SparkSession, parts: int, jobs: int) -> None:
    frame = spark.sql(TYPED.format(parts=parts))
    before = jobs_started(spark)
    found = rows_here(frame)
    assert jobs_started(spark) - before == jobs
    assert (found.num_rows, found) == (2000, frame.toArrow())


def test_no_row_and_no_part_is_an_empty_table(spark: SparkSession) -> None:
    for frame in (spark.sql(TYPED.format(parts=1)).where("id < 0"), spark.range(1).where("false")):
        found = rows_here(frame)
        assert (found.num_rows, found.schema) == (0, frame.toArrow().schema)


def test_what_is_sorted_joined_grouped_and_observed_is_as_by_a_job(spark: SparkSession) -> None:
    numbers, seen = gathered(spark.range(0, 500, 1, 4)), Observation()
    others = spark.range(0, 500, 2).withColumn("even", F.lit(True))
    joined = numbers.observe(seen, F.count("*").alias("count")).join(F.broadcast(others), "id", "left")
    ordered = Window.partitionBy(F.col("id") % 7).orderBy(F.col("id").desc())
    frame = gathered(joined).withColumn("n", F.row_number().over(ordered)).groupBy("n", "even").agg(F.sum("id"))
    in_order = [("n", "ascending"), ("even", "ascending")]
    assert rows_here(frame).sort_by(in_order) == frame.toArrow().sort_by(in_order)
    assert seen.get == {"count": 500}


@pytest.mark.parametrize(("policy", "told"), [("LAST_WIN", [{"m": [("a", 2)]}]), ("EXCEPTION", None)])
def test_the_sessions_settings_hold(spark: SparkSession, policy: str, told: object) -> None:
    """Those, too, that an expression asks for when it is evaluated."""
    session = spark.newSession()
    session.conf.set("spark.sql.mapKeyDedupPolicy", policy)
    frame = session.range(2, 3, 1, 1).selectExpr("map_from_arrays(array('a', 'a'), array(1, id)) AS m")
    if told:
        assert rows_here(frame).to_pylist() == told
    else:
        with pytest.raises(PySparkException, match="DUPLICATED_MAP_KEY"):
            rows_here(frame)


def test_several_threads_have_rows_at_once(spark: SparkSession) -> None:
    frames = [gathered(spark.range(n, n + 100)).groupBy().agg(F.sum("id").alias("sum")) for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda frame: rows_here(frame).to_pylist(), frames))
    assert found == [[{"sum": 100 * n + 4950}] for n in range(8)]


def test_after_a_failure_memory_and_kept_rows_are_given_back(spark: SparkSession) -> None:
    kept = settled(gathered(spark.range(1000)).selectExpr("id", "id % 10 AS k"), eager=False)
    fails = kept.groupBy("k").agg(F.collect_list("id").alias("ids")).selectExpr("k", "raise_error('as expected') AS e")
    memory = spark._jvm.org.apache.spark.SparkEnv.get().memoryManager()
    for _ in range(3):
        with pytest.raises(PySparkException, match="as expected"):
            rows_here(fails)
        assert rows_here(kept.agg(F.sum("id").alias("sum"))).to_pylist() == [{"sum": 499_500}]
    assert memory.executionMemoryUsed() == 0
    kept.unpersist()


def test_many_bytes_come_whole_and_leave_no_file(spark: SparkSession) -> None:
    folder = Path(spark.sparkContext._temp_dir)
    before = sorted(folder.iterdir())
    (row,) = rows_here(gathered(spark.range(1)).selectExpr("repeat('x', 20000000) AS text")).to_pylist()
    assert row["text"] == "x" * 20_000_000
    assert sorted(folder.iterdir()) == before
