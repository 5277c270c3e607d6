"""Run Spark clusters for the tests, and the core on one of them.

The executors are processes with nothing but Spark: an empty environment, a working directory of their own, no file
of this package. This module has the standalone cluster, a master and two workers; others are in `yarn.py` and
`kubernetes.py`.

usage: python -m cdc_assets_tests.cluster FOLDER SETTINGS SPARK MOMENT...

FOLDER is a chain's, SETTINGS the feed's and SPARK the cluster's, both in JSON. At each MOMENT, a stage's name or
`checkpoint`, all executors are killed. The process prints when they were killed, and the run's error about a file
that no executor sees.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from cdc_assets.config.locations import LocationError
from cdc_assets.spark.executors import check_file_visible
from cdc_assets.spark.session import spark_session
from cdc_assets.stages import STAGES
from cdc_assets.stores.jars import java
from cdc_assets.stores.storage import Store
from cdc_assets_tests.ports import free_port
from cdc_assets_tests.support import SHORT_LIVED, SHORT_LIVED_OPTIONS, Chain

HOST = "127.0.0.1"
SMALL = ["-Xmx128m", *SHORT_LIVED_OPTIONS]
CHECKPOINT = "checkpoint"
_SECONDS = 60
_CORES = 2  # of all workers
# The options that Spark's own start scripts set.
_ENVIRONMENT = {"SPARK_SCALA_VERSION": "2.13"}


class Cluster:
    """A cluster with executors.

    Attributes:
        folder: of its files.
        jars: Spark's, at a place that has nothing else.
        spark: what a driver's session is to be told.
        environment: what a driver is to have in its own.
    """

    spark: Mapping[str, str]
    environment: Mapping[str, str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        home = folder / "spark"
        home.mkdir(parents=True)
        self.jars = home / "jars"
        self.jars.symlink_to(Path(pyspark.__file__).parent / "jars")
        self.environment = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a process of the cluster, in a folder of its own."""
        (self.folder / name).mkdir()
        with (self.folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(command, env=environment, cwd=self.folder / name, stdout=log, stderr=log)
        self._processes.append(started)

    def run(self, chain: Path, settings: dict[str, Any], *moments: str) -> str:
        """Run the core over the chain in a folder, by a driver of its own; return what it prints."""
        command = [sys.executable, "-m", "cdc_assets_tests.cluster", str(chain), json.dumps(settings)]
        done = subprocess.run(
            [*command, json.dumps(dict(self.spark)), *moments],
            cwd=Path(__file__).parents[1],
            env=os.environ | SHORT_LIVED | {"PYSPARK_PYTHON": "no-python-on-executors"} | dict(self.environment),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> None:
        """End the cluster; executors that are left end when they lose their driver."""
        for each in self._processes:
            each.kill()
        for each in self._processes:
            each.wait()


class Standalone(Cluster):
    """A master and its two workers, of one core each."""

    workers: Sequence[str] = ("first", "second")

    def __init__(self, folder: Path, worker_memory: str = "1g") -> None:
        super().__init__(folder)
        port = free_port()
        self.master = f"spark://{HOST}:{port}"
        cores = str(_CORES // len(self.workers))
        self.spark = {"spark.master": self.master, "spark.cores.max": str(_CORES), "spark.executor.cores": cores}
        self._start("master", "master.Master", "--port", str(port))
        wait_for(port)
        for name in self.workers:
            self._start(name, "worker.Worker", "--cores", cores, "--memory", worker_memory, self.master)

    def _start(self, name: str, part: str, *options: str) -> None:
        command = [java_path(), *SMALL, "-Dspark.master.rest.enabled=false", "-cp", f"{self.jars}/*"]
        command += [f"org.apache.spark.deploy.{part}", "--host", HOST, "--webui-port", "0", *options]
        self.start(name, command, _ENVIRONMENT | {"SPARK_HOME": str(self.jars.parent)})


class OneWorker(Standalone):
    """A master and one worker of both cores: after many kills, starting one executor takes half the time of two."""

    workers = ("only",)


def java_path() -> str:
    """Return the path of the command that starts a JVM."""
    return str(shutil.which(java()))


def wait_for(port: int) -> None:
    """Wait until a port takes connections."""
    end = time.monotonic() + _SECONDS
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((HOST, port)).close()
            return
        assert time.monotonic() < end
        time.sleep(0.1)


# --- the driver's process


class _Killer(threading.Thread):
    """Kills all executors in some stages, when the first task runs, and after the first checkpoint.

    The rows that only they have, shuffled or cached, are lost. Spark starts new executors.
    """

    def __init__(self, spark: SparkSession, moments: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self._spark, self._moments = spark, set(moments)
        # Executors have this variable, which identifies their cluster.
        self._driver = f"@{HOST}:{spark.sparkContext.getConf().get('spark.driver.port')}".encode()
        self._stage = ""
        self.killed: list[str] = []
        for stage in STAGES:
            self._note_stage(type(stage), stage.name)
        self._kill_after_checkpoint()

    def run(self) -> None:
        tracker = self._spark.sparkContext.statusTracker()
        while True:
            time.sleep(0.01)
            running = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            if any(each and each.numActiveTasks for each in running):
                self._kill(self._stage)

    def _note_stage(self, stage: Any, name: str) -> None:
        run = stage.run

        def run_noted(*args: Any) -> Any:
            self._stage = name
            return run(*args)

        stage.run = run_noted

    def _kill_after_checkpoint(self) -> None:
        frames: Any = DataFrame
        checkpoint = frames.checkpoint

        def and_kill(frame: DataFrame, eager: bool = True) -> Any:
            done = checkpoint(frame, eager)
            self._kill(CHECKPOINT)
            return done

        frames.checkpoint = and_kill

    def _kill(self, moment: str) -> None:
        if moment not in self._moments:
            return
        self._moments.remove(moment)
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # no process, or it has ended
                command = (process / "cmdline").read_bytes()
                if b"ExecutorBackend" in command and self._driver in command:
                    os.kill(int(process.name), signal.SIGKILL)
        self.killed.append(moment)


def _main(folder: Path, settings: dict[str, Any], cluster: dict[str, str], moments: list[str]) -> None:
    store = Store(locations=(str(folder / "lake"),))
    configured = {
        "spark.driver.host": HOST,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "600m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": SHORT_LIVED["SPARK_SUBMIT_OPTS"],
        "spark.sql.shuffle.partitions": "2",
        # Both executors have started before the first task.
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        # A task counts as soon as it runs.
        "spark.ui.liveUpdate.period": "0",
        **cluster,
    }
    spark = spark_session(configured, store)
    chain, killer = Chain(spark, folder, store=store, **settings), _Killer(spark, moments)
    killer.start()
    chain.run()
    print("killed in", *sorted(killer.killed))
    try:
        # Relative to the working directory of each process; executors have no file of this one.
        check_file_visible(spark, "/proc/self/cwd/pyproject.toml", "source.recorded")
    except LocationError as error:
        print(error)
    spark.stop()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:])
