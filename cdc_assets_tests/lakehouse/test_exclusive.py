"""Commits in a local folder: if several drivers write one commit, each with its own log store, exactly one succeeds."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cdc_assets.spark.session import hadoop_path
from cdc_assets.stores.storage import LOG_STORES

WRITERS = 4


def test_exactly_one_of_several_writers_writes_a_local_commit(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm

    def write(number: int, writer: int) -> bool:
        path, conf = hadoop_path(spark, str(tmp_path / f"{number:020}.json"))
        lines = jvm.java.util.ArrayList([f"{writer}", "end"]).iterator()
        try:
            jvm.cdc_assets.LinkingLogStore(conf).write(path, lines, False, conf)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "FileAlreadyExistsException":
                raise
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as writers:
        for number in range(50):
            written = list(writers.map(write, [number] * WRITERS, range(WRITERS)))
            assert sum(written) == 1
            assert (tmp_path / f"{number:020}.json").read_text() == f"{written.index(True)}\nend\n"
    assert len(list(tmp_path.iterdir())) == 50  # no partly written file is left


def test_spark_commits_with_the_linking_log_store(spark: SparkSession, tmp_path: Path) -> None:
    """Delta's own log store would leave a checksum beside the commit."""
    assert spark.conf.get("spark.delta.logStore.file.impl") == LOG_STORES["file"]
    spark.range(1).write.format("delta").save(str(tmp_path / "table"))
    assert [file.name for file in (tmp_path / "table/_delta_log").rglob("*.json*")] == [f"{0:020}.json"]
    assert not list((tmp_path / "table/_delta_log").rglob(".*.json.crc"))
