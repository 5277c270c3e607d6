"""What the session's settings do that no result shows."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.session import hadoop_path, spark_session
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
