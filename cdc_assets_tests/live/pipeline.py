"""The pipeline over the broker's topics: its job, run again and again in one thread of this process."""

import os
import random
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from dagster import AssetCheckEvaluation, AssetCheckSeverity, DagsterInstance

from cdc_assets.config import Feed, load_feeds
from cdc_assets.definitions import defs
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.spark.session import spark_session
from cdc_assets_tests.case_results import NOT_COUNTED
from cdc_assets_tests.jobs import evaluated, failures

FEED = "live"
_SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "3g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Ddelta.log.cacheSize=20",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class Pipeline:
    """The job of one feed, with a feeds file and a lakehouse in a folder of their own."""

    def __init__(self, folder: Path, servers: str, topic_pattern: str, settings: Mapping[str, Any]) -> None:
        """Write the feeds file, and start Spark.

        Args:
            folder: its files are kept here; it must not exist.
            servers: the broker's address.
            topic_pattern: of the feed's topics.
            settings: the feed's others.
        """
        folder.mkdir(parents=True)
        kafka = {"bootstrap_servers": servers, "topic_pattern": topic_pattern}
        feed = {**settings, "source": {"kafka": kafka}}
        (folder / "feeds.yaml").write_text(yaml.safe_dump({"feeds": {FEED: feed}, "spark": _SPARK}))
        os.environ |= {"CDC_FEEDS": str(folder / "feeds.yaml"), "CDC_LAKEHOUSE": str(folder / "lake")}
        self.spark = spark_session(_SPARK | {"spark.sql.warehouse.dir": str(folder / "warehouse")})
        self.lake = Lakehouse(lambda: self.spark, str(folder / "lake"), FEED)
        self.runs = 0
        self.failed: list[AssetCheckEvaluation] = []
        self.errors: list[str] = []
        self._instance = DagsterInstance.ephemeral()
        self._lock = threading.Lock()

    @property
    def feed(self) -> Feed:
        """The feed's settings."""
        return load_feeds().feeds[FEED]

    def run(self) -> None:
        """Run the job once; note the checks and the steps that fail."""
        with self._lock:
            job = defs().resolve_job_def(f"cdc_pipeline_{FEED}")
            done = job.execute_in_process(_QUIET, raise_on_error=False, instance=self._instance)
            self.runs += 1
            self.failed += [
                check
                for check in evaluated(done)
                if not check.passed
                and check.severity == AssetCheckSeverity.ERROR
                and check.check_name not in NOT_COUNTED
            ]
            self.errors += [f"{step}: {text}" for step, text in failures(done).items()]


class Cuts(threading.Thread):
    """Runs the job at random moments, until it is stopped."""

    def __init__(self, pipeline: Pipeline, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self._pipeline, self._rng, self._ended = pipeline, rng, threading.Event()

    def run(self) -> None:
        while not self._ended.wait(self._rng.expovariate(0.5)):
            self._pipeline.run()

    def stop(self) -> None:
        """Let the run end that has begun."""
        self._ended.set()
        self.join()


def now_or_later() -> int:
    """Return a position above all that the source has sent."""
    return int((time.time() + 86_400) * 1000) << 18
