"""Memory and processor time of this process and all its children, the JVM among them."""

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MB = 1_000_000
_INTERVAL_S = 0.25


class Peak:
    """The most memory seen in use, in MB: of the JVM, and of everything together."""

    def __init__(self) -> None:
        self.jvm = 0.0
        self.total = 0.0

    def look(self) -> None:
        """Look once."""
        tree = _tree(os.getpid())
        self.jvm = max(self.jvm, sum(each.mb for each in tree if each.name == "java"))
        self.total = max(self.total, sum(each.mb for each in tree))


@contextlib.contextmanager
def watched() -> Iterator[Peak]:
    """Watch the process tree while the body runs."""
    peak, done = Peak(), threading.Event()

    def watch() -> None:
        while not done.wait(_INTERVAL_S):
            peak.look()

    thread = threading.Thread(target=watch, daemon=True)
    peak.look()
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak.look()


def processor_seconds() -> float:
    """Processor time that the process tree has used so far: what other processes on the machine do not change."""
    return sum(fields.seconds for fields in _tree(os.getpid()))


class _Process(NamedTuple):
    name: str
    mb: float
    seconds: float


def _tree(root: int) -> list[_Process]:
    """The process `root` and its descendants, out of /proc."""
    parents: dict[int, int] = {}
    found: dict[int, _Process] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has ended meanwhile
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            parents[int(folder.name)] = int(fields[1])
            # Its share of the memory it holds: a child that has just been forked shares all of its parent's.
            shared = re.search(r"^Pss:\s+(\d+) kB", (folder / "smaps_rollup").read_text(), re.MULTILINE)
            # Its own time, and that of its children that have ended: user and system.
            ticks = sum(int(each) for each in fields[11:15])
            found[int(folder.name)] = _Process(name, int(shared[1]) * 1024 / _MB if shared else 0, ticks / tick)
    return [found[pid] for pid in found if _descends(pid, root, parents)]


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid not in {0, root}:
        pid = parents.get(pid, 0)
    return pid == root
