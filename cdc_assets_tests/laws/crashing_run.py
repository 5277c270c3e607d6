"""A run of the core that dies at a given moment: in a process of its own, which kills itself with SIGKILL, or in the test's.

usage: python -m cdc_assets_tests.laws.crashing_run FOLDER MOMENT [SETTINGS], where SETTINGS are the feed's, in JSON, and
MOMENT is
`before N` or `after N`: immediately before or after the Nth commit of rows and cursor;
`created NAME`: after the history table NAME was created, empty; `shaped`: after a history table got its columns;
`looked NAME`: in the middle of a commit to the table NAME, when it has looked what the table's newest version is: there
the process does not die, but stops (SIGSTOP), and goes on when it is told to.
It begins when it is told a line: what a process needs to be ready takes longer than many a run, and may go on beside others.
History tables are written one after the other, so that the commits have an order.

The switch is set here from outside; the product has none. With PYSPARK_GATEWAY_PORT set, a session of a running JVM is
used: what is lost is this process with all that it knew, and the tables are as the commits left them.
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
    """In the place of a kill, within the process of a test: nothing of the run comes after it."""


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def stop_at(moment: str) -> Callable[[str], None]:
    """What `install` is to call for a run that stops at the moment, once."""
    stopped = False

    def reached(this: str) -> None:
        nonlocal stopped
        if this == moment and not stopped:
            stopped = True
            # To this thread: of a signal to the process the kernel tells the main thread, and this one runs on until that is
            # given a processor. So it went on to its commit, now and then.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    return reached


def be_killed() -> NoReturn:
    raise Killed


def die_at(moment: str, dying: Callable[[], NoReturn]) -> Callable[[str], None]:
    """What `install` is to call for a run that dies so at the moment."""
    dead = False

    def reached(this: str) -> None:
        nonlocal dead
        # What is dead does nothing any more, in another thread neither.
        if dead or this == moment:
            dead = True
            dying()

    return reached


def install(
    reached: Callable[[str], object],
    committed: Callable[[str], object],
    put: Callable[[object, str, object], object],
) -> None:
    """Have `reached` called at each moment, `told` with the name of each table that is committed; `put` is as setattr."""
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
        """Spark's commit looks at the newest version by itself: the moment is that before it."""

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
    # A session of its own: what it has set must not outlive this process.
    default = gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    return SparkSession(context, jsparkSession=default.newSession())


def run_and_die(
    folder: Path, moment: str, jvm_of: SparkSession | None = None, settings: dict[str, Any] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run this module over the chain in a folder, in the JVM of a session or in one of its own."""
    run = start(folder, moment, jvm_of, settings)
    begin(run)
    out, err = run.communicate(timeout=300)
    return subprocess.CompletedProcess(run.args, run.returncode, out, err)


def run_and_stop(run: "subprocess.Popen[str]") -> Callable[[signal.Signals], "subprocess.CompletedProcess[str]"]:
    """Have a process run up to where it stops; what is returned has it go on (SIGCONT), or killed, up to its end."""
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
    """Start this module over the chain in a folder, up to where it waits to begin.

    A moment that never comes lets it run to its end. It ends, too, with the process that has started it.
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
    """The feed's chain; its lakehouse may have a `root`, and `storage`, of its own."""
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
    os._exit(0)  # and leave the JVM, which may be another's, alone
