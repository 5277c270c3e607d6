"""The session's settings and its class path."""

import os
from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from cdc_assets.spark import session
from cdc_assets.spark.session import INTERPRETED_ROW_LIMIT, compiled_plans, session_for, spark_session
from cdc_assets.stores.storage import LOCAL, Store

STORE = Store(locations=("s3a://bucket/lake",))


@pytest.mark.parametrize("before", [None, "/of/a/user.jar"])
def test_a_stores_jars_come_last(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    """The class path then begins as that of the class archive does, with any store."""
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", before) if before else monkeypatch.delenv("SPARK_DIST_CLASSPATH", False)
    class_paths: list[tuple[str, str]] = []

    def start(settings: Mapping[str, str]) -> SparkSession:
        class_paths.append((settings["spark.driver.extraClassPath"], os.environ["SPARK_DIST_CLASSPATH"]))
        return spark

    monkeypatch.setattr(session, "_start", start)
    for store in (LOCAL, STORE):
        assert spark_session({"spark.master": "local[2]"}, store) is spark
    (first, without_jars), (again, with_jars) = class_paths
    assert first == again
    assert without_jars == (before or "")
    jars = [str(jar) for jar in STORE.jars()]
    assert any("hadoop-aws" in jar for jar in jars)
    assert with_jars.split(os.pathsep) == [*jars, *([before] if before else [])]
    assert os.environ.get("SPARK_DIST_CLASSPATH") == before


def test_compiled_plans_sets_the_settings_of_many_rows(spark: SparkSession) -> None:
    """Configured settings are kept, and the session is restored afterwards."""
    keys = (
        "spark.sql.adaptive.coalescePartitions.parallelismFirst",
        "spark.sql.adaptive.enabled",
        "spark.sql.codegen.factoryMode",
        "spark.sql.files.minPartitionNum",
        "spark.sql.files.openCostInBytes",
        "spark.sql.shuffle.partitions",
    )

    def settings(of: SparkSession) -> dict[str, str | None]:
        return {key: of.conf.get(key, None) for key in keys}

    own, many = session_for(spark, 1), settings(session_for(spark, INTERPRETED_ROW_LIMIT + 1))
    before = settings(own)
    with compiled_plans(own):
        assert settings(own) == many
    assert settings(own) == before != many
    assert many["spark.sql.shuffle.partitions"] == "2"  # the tests' session is configured so


def test_small_plans_have_a_small_number_of_tasks(spark: SparkSession) -> None:
    """Small plans have one task, larger ones at most one for each core. The tests' session has two cores or more."""
    tasks = ("spark.sql.shuffle.partitions", "spark.sql.files.minPartitionNum")
    small, large = session_for(spark, 9_999).conf, session_for(spark, 19_999).conf
    assert [small.get(key) for key in tasks] == ["1", "1"]
    assert [large.get(key) for key in tasks] == ["2", "2"]
