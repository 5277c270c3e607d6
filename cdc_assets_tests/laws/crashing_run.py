"""Run the core and let it die at a given moment, in a process that kills itself with SIGKILL or in the test's process.

usage: python -m cdc_assets_tests.laws.crashing_run FOLDER MOMENT [SETTINGS]

SETTINGS are the feed's, as JSON. MOMENT is one of:
`before N`, `after N`: immediately before or after the Nth commit of rows and cursor;
`created NAME`: after the empty history table NAME was created;
`shaped`: after a history table got its columns;
`looked NAME`: in the middle of a commit to the table NAME, after it has read the table's newest version. At this moment
the process does not die: it stops (SIGSTOP) and continues on SIGCONT.

The process begins when it reads a line from its input, so that several processes can start up at the same time.
History tables are written one after the other, so that the commits have an order.

The test installs these moments from outside; the product has no switch for them. With PYSPARK_GATEWAY_PORT set, the
run uses a session of a running JVM: then only this process is lost, and the tables stay as the commits left them.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from cdc_assets.config import Storage
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.spark.session import spark_session
from cdc_assets.stores.storage import Store
from cdc_assets_tests.laws.streams import PARTITIONS
from cdc_assets_tests.support import SHORT_LIVED, Chain


class Killed(BaseException):
    """Stands for a kill within the process of a test: no later part of the run is executed."""


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def stop_at(moment: str) -> Callable[[str], None]:
    """Return what `install` calls for a run that stops once at the moment."""
    stopped = False

    def reached(this: str) -> None:
        nonlocal stopped
        if this == moment and not stopped:
            stopped = True
            # Signal this thread: the kernel delivers a signal for the process to the main thread. Until the main thread
            # gets a processor, this thread would run on, and sometimes reach its commit.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    return reached


def be_killed() -> NoReturn:
    raise Killed


def die_at(moment: str, dying: Callable[[], NoReturn]) -> Callable[[str], None]:
    """Return what `install` calls for a run that dies at the moment in the given way."""
    dead = False

    def reached(this: str) -> None:
        nonlocal dead
        # A dead run does nothing more, in no thread.
        if dead or this == moment:
            dead = True
            dying()

    return reached


def install(
    reached: Callable[[str], object],
    committed: Callable[[str], object],
    put: Callable[[object, str, object], object],
) -> None:
    """Call `reached` at each moment, and `committed` with each committed table's name; `put` acts as setattr."""
    create, before = LakeTable.create, LakeTable._log_before
    count = 0

    def counted(commit: Callable[..., Any]) -> Callable[..., Any]:
        def counting(self: LakeTable[Any], *args: Any, **more: Any) -> object:
            nonlocal count
            count += 1
            reached(f"before {count}")
            done = commit(self, *args, **more)
            committed(self.name)
            reached(f"after {count}")
            return done

        return counting

    def created(self: LakeTable[Any]) -> None:
        create(self)
        reached(f"created {self.name}")

    def shaped(alter: Callable[..., None]) -> Callable[..., None]:
        def shaping(self: LakeTable[Any], *args: Any) -> None:
            alter(self, *args)
            reached("shaped")

        return shaping

    def looking(transact: Callable[..., Any]) -> Callable[..., Any]:
        """Call `reached` before Spark's commit, which reads the newest version itself."""

        def begun(self: LakeTable[Any], *args: Any) -> object:
            reached(f"looked {self.name}")
            return transact(self, *args)

        return begun

    def looked(self: LakeTable[Any], cursor: Any) -> object:
        log = before(self, cursor)
        reached(f"looked {self.name}")
        return log

    put(LakeTable, "_log_before", looked)
    put(LakeTable, "commit", counted(LakeTable.commit))
    put(LakeTable, "transact", counted(looking(LakeTable.transact)))
    put(LakeTable, "create", created)
    put(LakeTable, "alter", shaped(LakeTable.alter))
    put(os, "cpu_count", lambda: 1)


def session() -> SparkSession:
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return spark_session({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "1"})
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java_context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(running)
    context = SparkContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jconf=java_context.getConf()))
    # The session is new, because its settings must not outlive this process.
    default = gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    return SparkSession(context, jsparkSession=default.newSession())


def run_and_die(
    folder: Path, moment: str, jvm_of: SparkSession | None = None, settings: dict[str, Any] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run this module over the chain in a folder, in the JVM of a session or in a JVM of its own."""
    run = start(folder, moment, jvm_of, settings)
    begin(run)
    out, err = run.communicate(timeout=300)
    return subprocess.CompletedProcess(run.args, run.returncode, out, err)


def run_and_stop(run: "subprocess.Popen[str]") -> Callable[[signal.Signals], "subprocess.CompletedProcess[str]"]:
    """Run a process until it stops; return a function that continues it (SIGCONT) or kills it, and waits for its end."""
    begin(run)
    _, status = os.waitpid(run.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), run.communicate()

    def end(sent: signal.Signals) -> "subprocess.CompletedProcess[str]":
        run.send_signal(sent)
        out, err = run.communicate(timeout=300)
        return subprocess.CompletedProcess(run.args, run.returncode, out, err)

    return end


def start(
    folder: Path, moment: str, jvm_of: SparkSession | None, settings: dict[str, Any] | None
) -> "subprocess.Popen[str]":
    """Start this module over the chain in a folder; the process waits until it is to begin.

    If the moment never comes, the process runs to its end. It also ends with the process that started it.
    """
    env = dict(os.environ) | SHORT_LIVED
    if jvm_of is not None:
        gateway = jvm_of.sparkContext._gateway
        assert gateway is not None
        parameters = gateway.gateway_parameters
        env |= {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
    command = [sys.executable, "-m", "cdc_assets_tests.laws.crashing_run", str(folder), moment]
    return subprocess.Popen(
        [*command, json.dumps(settings)] if settings else command,
        cwd=Path(__file__).parents[2],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def begin(run: "subprocess.Popen[str]") -> None:
    assert run.stdin
    run.stdin.write("begin\n")
    run.stdin.flush()


def _chain(folder: Path, settings: dict[str, Any]) -> Chain:
    """Return the feed's chain; its lakehouse may have a `root` and `storage` of its own."""
    root, storage = settings.pop("root", None), Storage(**settings.pop("storage", {}))
    return Chain(session(), folder, root=root, store=Store(storage, (root,) if root else ()), **settings)


if __name__ == "__main__":
    folder, moment, *more = sys.argv[1:]
    settings = json.loads(more[0]) if more else {"partitions": PARTITIONS}
    reached = stop_at(moment) if moment.startswith("looked") else die_at(moment, die)
    install(reached, lambda name: print(f"commit {name}", flush=True), setattr)
    chain = _chain(Path(folder), settings)
    if sys.stdin.readline():
        chain.run()
        print("ended", flush=True)
    os._exit(0)  # and do not stop the JVM, which may belong to another process
