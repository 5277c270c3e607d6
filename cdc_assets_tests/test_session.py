"""What the session's settings do that no result shows."""

import os
from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from cdc_assets.spark import session
from cdc_assets.spark.session import SMALL, compiled, session_for, spark_session
from cdc_assets.stores.storage import LOCAL, Store

STORE = Store(places=("s3a://bucket/lake",))


@pytest.mark.parametrize("before", [None, "/of/a/user.jar"])
def test_a_stores_jars_come_last(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    """So the class path begins as the one that the archive of classes was made with, whatever the store."""
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", before) if before else monkeypatch.delenv("SPARK_DIST_CLASSPATH", False)
    told: list[tuple[str, str]] = []

    def start(settings: Mapping[str, str]) -> SparkSession:
        told.append((settings["spark.driver.extraClassPath"], os.environ["SPARK_DIST_CLASSPATH"]))
        return spark

    monkeypatch.setattr(session, "_built", start)
    for store in (LOCAL, STORE):
        assert spark_session({"spark.master": "local[2]"}, store) is spark
    (first, nothing), (same, last) = told
    assert first == same
    assert nothing == (before or "")
    jars = [str(jar) for jar in STORE.jars()]
    assert any("hadoop-aws" in jar for jar in jars)
    assert last.split(os.pathsep) == [*jars, *([before] if before else [])]
    assert os.environ.get("SPARK_DIST_CLASSPATH") == before


def test_a_large_table_in_a_run_of_few_changes_has_the_settings_of_many_rows(spark: SparkSession) -> None:
    """What was configured for Spark counts for it, too; afterwards the session is as it was."""
    keys = (
        "spark.sql.adaptive.coalescePartitions.parallelismFirst",
        "spark.sql.adaptive.enabled",
        "spark.sql.codegen.factoryMode",
        "spark.sql.files.minPartitionNum",
        "spark.sql.shuffle.partitions",
    )

    def settings(of: SparkSession) -> dict[str, str | None]:
        return {key: of.conf.get(key, None) for key in keys}

    few, many = session_for(spark, 1), settings(session_for(spark, SMALL + 1))
    before = settings(few)
    with compiled(few):
        assert settings(few) == many
    assert settings(few) == before != many
    assert many["spark.sql.shuffle.partitions"] == "2"  # the tests' session is configured so
