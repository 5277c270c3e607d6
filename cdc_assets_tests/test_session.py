"""What the session's settings do that no result shows."""

import os
from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from cdc_assets.spark.session import spark_session
from cdc_assets.storage import LOCAL, Store

STORE = Store(places=("s3a://bucket/lake",))


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
