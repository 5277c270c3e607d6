"""The Spark session and the lakehouse as Dagster resources."""

from collections.abc import Mapping
from typing import Any

from dagster import ConfigurableResource
from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr
from pyspark.sql import SparkSession

from cdc_assets.session import spark_settings
from cdc_assets.tables.lakehouse import Lakehouse, lakehouse_root


class LakehouseResource(ConfigurableResource[Lakehouse]):
    """The tables of every feed below one root. The Spark session starts at the first use of a run, once.

    What Spark needs, its jars too, is looked for only then: a run without news asks for none of it.
    """

    root: str
    spark: dict[str, Any]
    _pyspark: LazyPySparkResource | None = PrivateAttr(default=None)

    def feed(self, name: str) -> Lakehouse:
        """The tables of one feed."""
        return Lakehouse(self._session, self.root, name)

    def _session(self) -> SparkSession:
        if self._pyspark is None:
            self._pyspark = LazyPySparkResource(spark_config=spark_settings(self.spark))
        session: SparkSession = self._pyspark.spark_session
        return session


def build_resources(spark: Mapping[str, object]) -> dict[str, object]:
    """The resources of all assets; `spark` are the feeds file's Spark settings."""
    return {"lakehouse": LakehouseResource(root=lakehouse_root(), spark=dict(spark))}
