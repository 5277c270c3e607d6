"""The pipeline's stages in a row, each timed, as the assets call them; and the job itself."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from benchmarks.memory import processor_seconds, watched
from cdc_assets.feeds import Feed, load_feeds
from cdc_assets.gate.release import release
from cdc_assets.history.apply import apply, pending_tables
from cdc_assets.lakehouse import Lakehouse
from cdc_assets.protocols.decode import decode
from cdc_assets.sources.ingest import ingest
from cdc_assets.table_schemas import learn

FEED = "bench"


@dataclass(frozen=True)
class Place:
    """A feed of its own: a folder with its snapshots, its feeds file and its lakehouse."""

    folder: Path

    @property
    def snapshots(self) -> Path:
        """Where its recorded files lie."""
        return self.folder / "snapshots"

    @property
    def feeds_file(self) -> Path:
        """What `CDC_FEEDS` is to name."""
        return self.folder / "feeds.yaml"

    @property
    def root(self) -> Path:
        """What `CDC_LAKEHOUSE` is to name."""
        return self.folder / "lakehouse"

    def feed(self) -> Feed:
        """The feed, as its file declares it."""
        return load_feeds(self.feeds_file).feeds[FEED]

    def lake(self, spark: SparkSession) -> Lakehouse:
        """A new handle on its lakehouse, as each run has one."""
        return Lakehouse(spark, str(self.root), FEED)


def prepare(folder: Path, **settings: object) -> Place:
    """Make the folder of a feed that has no snapshots yet; without settings it is a Canal-JSON feed with watermarks."""
    place = Place(folder)
    place.snapshots.mkdir(parents=True)
    source = {"recorded": "snapshots", "partitions": 3}
    feed = {"source": source} | (settings or {"protocol": "canal-json", "tidb_extension": True})
    place.feeds_file.write_text(yaml.safe_dump({"feeds": {FEED: feed}}))
    return place


@dataclass(frozen=True)
class Timing:
    """What one step took."""

    name: str
    seconds: float
    cpu_seconds: float  # of all processes and cores
    jvm_mb: float = 0
    total_mb: float = 0


def timed(name: str, step: Callable[[], Any]) -> Timing:
    """Run `step`; how long it took, and how much memory was in use at most."""
    with watched() as peak:
        cpu, start = processor_seconds(), time.perf_counter()
        step()
        seconds, cpu = time.perf_counter() - start, processor_seconds() - cpu
    return Timing(name, seconds, cpu, peak.jvm, peak.total)


def run_decoding(spark: SparkSession, place: Place) -> list[Timing]:
    """The first two stages: what differs between the protocols."""
    lake, feed = place.lake(spark), place.feed()
    return [timed("ingest", lambda: ingest(lake, feed)), timed("decode", lambda: decode(lake, feed))]


def run_stages(spark: SparkSession, place: Place) -> list[Timing]:
    """One run of the core: every stage once, in order."""
    lake, feed = place.lake(spark), place.feed()
    return [
        *run_decoding(spark, place),
        timed("table_schemas", lambda: learn(lake, feed)),
        timed("release", lambda: release(lake, feed)),
        timed("history", lambda: list(apply(lake, feed, pending_tables(lake)))),
    ]
