"""Peak memory of this process and all its children, the JVM among them."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_MB = 1_000_000
_INTERVAL_S = 0.1


class Peak:
    """The largest resident memory seen, in MB: of the JVM, and of everything together."""

    def __init__(self) -> None:
        self.jvm = 0.0
        self.total = 0.0

    def look(self) -> None:
        """Look once."""
        sizes = _resident(os.getpid())
        self.jvm = max(self.jvm, sum(size for name, size in sizes if name == "java"))
        self.total = max(self.total, sum(size for _, size in sizes))


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


def _resident(root: int) -> list[tuple[str, float]]:
    """(command, MB) of the process `root` and its descendants, out of /proc."""
    parents: dict[int, int] = {}
    found: dict[int, tuple[str, float]] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has ended meanwhile
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            parents[int(folder.name)] = int(fields[1])
            found[int(folder.name)] = (name, int(fields[21]) * page / _MB)
    return [found[pid] for pid in found if _descends(pid, root, parents)]


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid not in {0, root}:
        pid = parents.get(pid, 0)
    return pid == root
