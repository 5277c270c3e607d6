"""The Spark session and the lakehouse as Dagster resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dagster import ResourceDefinition
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from cdc_assets.config import FeedsFile
from cdc_assets.lakehouse.lakehouse import Lakehouse, lakehouse_root
from cdc_assets.spark.session import spark_session
from cdc_assets.stores.storage import Store


@dataclass
class LakehouseResource:
    """The tables of every feed below one root. The Spark session starts at the first use of a run, once.

    What Spark needs, its jars too, is looked for only then: a run without news asks for none of it. No configuration of
    Dagster's, which its UI would show: among settings of Spark and of the store may be secrets.
    """

    root: str
    spark: Mapping[str, object] = field(repr=False)
    store: Store = field(repr=False)
    _started: SparkSession | None = field(default=None, repr=False)

    def feed(self, name: str) -> Lakehouse:
        """The tables of one feed."""
        return Lakehouse(self._session, self.root, name, self.store)

    def _session(self) -> SparkSession:
        if self._started is None:
            self._started = spark_session(
                self.spark, self.store, lambda told: LazyPySparkResource(spark_config=dict(told)).spark_session
            )
        return self._started


def build_resources(feeds_file: FeedsFile) -> dict[str, object]:
    """The resources of all assets."""
    root = lakehouse_root()
    store = Store.of(feeds_file, root)
    # Made anew for each run.
    return {"lakehouse": ResourceDefinition(lambda _: LakehouseResource(root, feeds_file.spark, store))}
