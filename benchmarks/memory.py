"""Measure memory and processor time of this process and all its children, the JVM among them."""

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
        """Measure once."""
        sizes = [(process.name, _mb(process.pid)) for process in _tree(os.getpid())]
        self.jvm = max(self.jvm, sum(mb for name, mb in sizes if name == "java"))
        self.total = max(self.total, sum(mb for _, mb in sizes))


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
    """Return the processor time that the process tree has used; other processes hardly change it."""
    return sum(process.seconds for process in _tree(os.getpid()))


def high_water(pid: int) -> float:
    """Return the most memory that one process has had since it began, in MB; 0 if it has ended."""
    with contextlib.suppress(OSError):
        size = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return int(size[1]) * 1024 / _MB if size else 0
    return 0


class _Process(NamedTuple):
    pid: int
    parent: int
    name: str
    seconds: float  # its own, and of its children that have ended: user and system


def _tree(root: int) -> list[_Process]:
    """Return the process `root` and its descendants, from /proc."""
    processes: dict[int, _Process] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has ended meanwhile
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            seconds = sum(int(each) for each in fields[11:15]) / tick
            processes[int(folder.name)] = _Process(int(folder.name), int(fields[1]), name, seconds)
    return [process for process in processes.values() if _descends(process.pid, root, processes)]


def _descends(pid: int, root: int, processes: dict[int, _Process]) -> bool:
    while pid != root and pid in processes:
        pid = processes[pid].parent
    return pid == root


def _mb(pid: int) -> float:
    """Return a process's share of its memory: a child that has just been forked shares all of its parent's."""
    with contextlib.suppress(OSError):
        share = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(share[1]) * 1024 / _MB if share else 0
    return 0
