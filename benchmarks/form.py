"""Define how much is measured: the forms of the benchmark, and what its sections share."""

import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_assets.spark.session import spark_session

# The number of threads with which the history stage writes tables.
THREADS = os.cpu_count() or 1


@dataclass(frozen=True)
class Form:
    """How much is measured.

    Attributes:
        name: of the form.
        warm_up: runs that are not counted: the first make the tables, and what is loaded and compiled then is not what a run
            costs.
        rounds: how often each small step is run after these.
        tables: of the feed that tells what a further table costs.
        events: of the stream.
        more: events that follow them.
        stream_rounds: how often these are run.
        versions: of the tables that changes go into.
        changes: that go into them.
        decoding: events that each protocol decodes.
        many: tables of a feed of which few are touched; None: not measured.
        cluster: events that pass on a cluster; None: not measured.
        loaded: rows of a dump.
        load_rounds: how often they are loaded, after once.
    """

    name: str
    warm_up: int
    rounds: int
    tables: int
    events: int
    more: int
    stream_rounds: int
    versions: tuple[int, ...]
    changes: int
    decoding: int
    many: int | None
    cluster: int | None
    loaded: int
    load_rounds: int


FORMS = {
    form.name: form
    for form in (
        Form("tiny", 0, 1, 3, 400, 100, 1, (1_000, 2_000), 50, 400, 8, 400, 1_000, 0),
        Form("short", 3, 3, 11, 40_000, 4_000, 3, (100_000, 1_000_000), 10_000, 60_000, None, None, 1_000_000, 2),
        Form(
            "all",
            3,
            5,
            41,
            400_000,
            40_000,
            3,
            (100_000, 1_000_000, 10_000_000),
            10_000,
            200_000,
            1_000,
            5_000_000,
            10_000_000,
            1,
        ),
    )
}


@dataclass
class Bench:
    """The folder that everything is written to, the form, and the session, which starts at its first use."""

    folder: Path
    form: Form

    @cached_property
    def spark(self) -> SparkSession:
        """The session of everything that is compared in one process, with the pipeline's own settings."""
        return spark_session()

    def again(self, name: str) -> Path:
        """Return the empty folder `name` in the benchmark's folder."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def say(self, line: str) -> None:
        """Print the progress."""
        print(line, flush=True)

    def close(self) -> None:
        """End the session, if there is one."""
        if "spark" in self.__dict__:
            self.spark.stop()
