"""The Spark session and the lakehouse as Dagster resources."""

from collections.abc import Mapping

from dagster import ConfigurableResource, ResourceDependency
from dagster_pyspark import LazyPySparkResource

from cdc_assets.lakehouse import Lakehouse, lakehouse_root
from cdc_assets.session import spark_settings


class LakehouseResource(ConfigurableResource[Lakehouse]):
    """The tables of every feed below one root. The Spark session starts at the first use of a run, once."""

    pyspark: ResourceDependency[LazyPySparkResource]
    root: str

    def feed(self, name: str) -> Lakehouse:
        """The tables of one feed."""
        return Lakehouse(self.pyspark.spark_session, self.root, name)


def build_resources(spark: Mapping[str, object]) -> dict[str, object]:
    """The resources of all assets; `spark` are the feeds file's Spark settings."""
    pyspark = LazyPySparkResource(spark_config=spark_settings(spark))
    return {"lakehouse": LakehouseResource(pyspark=pyspark, root=lakehouse_root())}
