"""Commits in a local folder: of drivers that write the same one, each with a log store of its own, one has written it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cdc_assets.spark.session import hadoop_path
from cdc_assets.stores.storage import LOG_STORES

WRITERS = 4


def test_of_many_writers_of_a_local_commit_one_has_written_it(spark: SparkSession, tmp_path: Path) -> None:
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
    assert len(list(tmp_path.iterdir())) == 50  # nothing half written is left


def test_commits_of_spark_are_written_so(spark: SparkSession, tmp_path: Path) -> None:
    """Delta's own log store would leave a checksum beside the commit."""
    assert spark.conf.get("spark.delta.logStore.file.impl") == LOG_STORES["file"]
    spark.range(1).write.format("delta").save(str(tmp_path / "table"))
    assert [file.name for file in (tmp_path / "table/_delta_log").rglob("*.json*")] == [f"{0:020}.json"]
    assert not list((tmp_path / "table/_delta_log").rglob(".*.json.crc"))
