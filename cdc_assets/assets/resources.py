"""The Spark session and the lakehouse as Dagster resources."""

from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc_assets.config import FeedsFile, load_feeds
from cdc_assets.lakehouse.lakehouse import Lakehouse, lakehouse_root
from cdc_assets.spark.session import spark_session
from cdc_assets.stores.storage import Store


class SparkResource(LazyPySparkResource):
    """The Spark session of a run, which starts at its first use.

    A run without new input uses no session, so the feeds file's Spark settings and the jars are read at the first use,
    too. `spark_config` is empty unless a run configures it; its settings take precedence. Dagster's UI shows
    `spark_config`, so it holds no setting of the feeds file: a setting may be a secret.
    """

    spark_config: dict[str, Any] = Field(default={}, description="Settings of Spark, above those of the feeds file.")
    _session: SparkSession | None = PrivateAttr(default=None)

    @property
    def spark_session(self) -> SparkSession:
        """The session, which starts at the first use."""
        if self._session is None:
            file = load_feeds()
            self._session = spark_session({**file.spark, **self.spark_config}, Store.of(file, lakehouse_root()))
        return self._session

    @property
    def spark_context(self) -> SparkContext:
        """The session's context."""
        return self.spark_session.sparkContext


@dataclass(frozen=True)
class LakehouseResource:
    """The tables of all feeds below one root. The store is not in its `repr`, because settings may be secrets."""

    root: str
    store: Store = field(repr=False)

    def feed(self, name: str, pyspark: SparkResource) -> Lakehouse:
        """Return the tables of one feed; the Spark session starts at their first use of Spark."""
        return Lakehouse(lambda: pyspark.spark_session, self.root, name, self.store)


def build_resources(feeds_file: FeedsFile) -> dict[str, object]:
    """Return the resources of all assets, by name."""
    root = lakehouse_root()
    lakehouse = LakehouseResource(root, Store.of(feeds_file, root))
    return {"lakehouse": dg.ResourceDefinition.hardcoded_resource(lakehouse), "pyspark": SparkResource()}
