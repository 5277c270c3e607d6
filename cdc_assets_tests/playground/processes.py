"""The processes that this process has started, directly or not: all of them can be ended."""

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def forget_ended_children() -> None:
    """Let the system forget the children that have ended, orphans included."""
    while any(_children()) and os.waitpid(-1, os.WNOHANG) != (0, 0):
        pass


def end_children() -> None:
    """Kill the children, then the orphans that are children by that, until there is none."""
    while children := _children():
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


def _children() -> list[int]:
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return [int(number) for text in lists for number in text.split()]
