"""A standalone Spark cluster of the tests' own: a master and two workers, and a run of the core on it.

Each is a process with no more than Spark: an empty environment, a working directory of its own, nothing of this package.

usage: python -m cdc_assets_tests.cluster MASTER FOLDER SETTINGS WORKER..., where FOLDER is a chain's, SETTINGS the feed's,
in JSON, and each WORKER is a process: its executors are killed again and again. Printed is when they were, and what the run
says of a file that no executor sees.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from cdc_assets.executors import prove_seen
from cdc_assets.jvm import java
from cdc_assets.places import PlaceError
from cdc_assets.session import spark_session
from cdc_assets.stages import STAGES
from cdc_assets.storage import Store
from cdc_assets_tests.support import SHORT_LIVED, Chain

_HOST = "127.0.0.1"
_SECONDS = 60
# What Spark's own start scripts set.
_ENVIRONMENT = {"SPARK_SCALA_VERSION": "2.13"}
_SMALL = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


class Cluster:
    """A master and its two workers, of one core each."""

    def __init__(self, folder: Path, worker_memory: str = "1g") -> None:
        self._folder = folder
        self._home = folder / "spark"
        self._home.mkdir()
        (self._home / "jars").symlink_to(Path(pyspark.__file__).parent / "jars")
        with socket.socket() as free:
            free.bind((_HOST, 0))
            port = free.getsockname()[1]
        self.master = f"spark://{_HOST}:{port}"
        self._processes = [self._start("master.Master", "--port", str(port))]
        _wait_for(port)
        self._processes += [
            self._start(
                "worker.Worker",
                "--cores",
                "1",
                "--memory",
                worker_memory,
                "--work-dir",
                str(folder / name),
                self.master,
            )
            for name in ("first", "second")
        ]

    @property
    def workers(self) -> list[int]:
        """Their process ids."""
        return [each.pid for each in self._processes[1:]]

    def _start(self, part: str, *options: str) -> "subprocess.Popen[bytes]":
        command = [
            str(shutil.which(java())),
            *_SMALL,
            "-Dspark.master.rest.enabled=false",
            "-cp",
            f"{self._home}/jars/*",
        ]
        command += [f"org.apache.spark.deploy.{part}", "--host", _HOST, "--webui-port", "0", *options]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, env=_ENVIRONMENT | {"SPARK_HOME": str(self._home)}, cwd=self._home, stdout=log, stderr=log
            )

    def run(self, chain: Path, settings: dict[str, Any]) -> str:
        """Run the core over the chain in a folder, by a driver of its own; return what it prints."""
        command = [sys.executable, "-m", "cdc_assets_tests.cluster", self.master, str(chain), json.dumps(settings)]
        done = subprocess.run(
            [*command, *map(str, self.workers)],
            cwd=Path(__file__).parents[1],
            env=os.environ | SHORT_LIVED | {"PYSPARK_PYTHON": "no-python-on-executors"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> None:
        for each in reversed(self._processes):
            each.terminate()
        for each in self._processes:
            each.wait(_SECONDS)


def _wait_for(port: int) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection((_HOST, port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.1)
        else:
            return


# --- the driver's process


class _Killer(threading.Thread):
    """All executors are killed in each stage, when its first task runs; and when the first rows are put aside.

    What only they hold of rows, shuffled or kept, is lost with them. Spark starts others.
    """

    def __init__(self, spark: SparkSession, workers: list[int]) -> None:
        super().__init__(daemon=True)
        self._spark, self._workers = spark, workers
        self._stage = ""
        self.killed: list[str] = []
        for stage in STAGES:
            self._have_told(type(stage), stage.name)
        self._kill_after_checkpoint()

    def run(self) -> None:
        tracker = self._spark.sparkContext.statusTracker()
        while True:
            time.sleep(0.01)
            running = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            if self._stage not in self.killed and any(each and each.numActiveTasks for each in running):
                self._kill(self._stage)

    def _have_told(self, stage: Any, name: str) -> None:
        run = stage.run

        def told(*args: Any) -> Any:
            self._stage = name
            return run(*args)

        stage.run = told

    def _kill_after_checkpoint(self) -> None:
        frames: Any = DataFrame
        checkpoint = frames.checkpoint
        first = threading.Lock()  # of the threads that write tables

        def and_kill(frame: DataFrame, eager: bool = True) -> Any:
            done = checkpoint(frame, eager)
            if first.acquire(blocking=False):
                self._kill("checkpoint")
            return done

        frames.checkpoint = and_kill

    def _kill(self, moment: str) -> None:
        handles = self._spark._jvm.java.lang.ProcessHandle
        for executor in [e for w in self._workers for e in handles.of(w).get().children().toList()]:
            executor.destroyForcibly()
        self.killed.append(moment)


def _main(master: str, folder: Path, settings: dict[str, Any], workers: list[int]) -> None:
    store = Store(places=(str(folder / "lake"),))
    configured = {
        "spark.master": master,
        "spark.driver.host": _HOST,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "600m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": SHORT_LIVED["SPARK_SUBMIT_OPTS"],
        "spark.sql.shuffle.partitions": "2",
        # Both executors are there before the first task.
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.cores.max": "2",
        # Tasks are seen as soon as they run.
        "spark.ui.liveUpdate.period": "0",
    }
    spark = spark_session(configured, store)
    chain, killer = Chain(spark, folder, store=store, **settings), _Killer(spark, workers)
    killer.start()
    chain.run()
    print("killed in", *sorted(killer.killed))
    try:
        # In the folder that each process works in; of this one's files executors have none there.
        prove_seen(spark, "/proc/self/cwd/pyproject.toml", "source.recorded")
    except PlaceError as error:
        print(error)
    spark.stop()


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), [int(each) for each in sys.argv[4:]])
