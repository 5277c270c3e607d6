"""A process that reads the server's binlog and sends changes to the broker: it can be killed and moved back."""

import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from cdc_assets.stores.jars import Jar, ensure_jars, java
from cdc_assets_tests.support import SHORT_LIVED_OPTIONS


class Reader(ABC):
    """The process: it sends what the server's binlog has to the broker, at least once."""

    def __init__(self, folder: Path, jar_list: Path, kept: Sequence[str]) -> None:
        """Make the folder.

        Args:
            folder: the process's files are kept here; it must not exist.
            jar_list: a file with the process's jars and their checksums.
            kept: the files below the folder that `move_back` restores: where the process is in the binlog.
        """
        folder.mkdir(parents=True)
        self.folder = folder
        self.restarts = self.moves_back = 0
        self._jar_list = jar_list
        self._kept = [folder / name for name in kept]
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def arguments(self, classes: str) -> list[str]:
        """Return the arguments of Java, given the class path of the jars."""

    @abstractmethod
    def has_failed(self, log: str) -> bool:
        """Return whether the process's log says that it sends nothing any more."""

    def start(self) -> None:
        """Start it, where it stopped."""
        jars = [Jar(*line.split()) for line in self._jar_list.read_text().splitlines()]
        classes = os.pathsep.join(map(str, ensure_jars(jars)))
        command = [java(), "-Xmx512m", *SHORT_LIVED_OPTIONS, *self.arguments(classes)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill it, and start it again: it repeats what it has sent since it last noted its position."""
        self.kill()
        self.restarts += 1
        self.start()

    def save(self) -> None:
        """Keep a copy of its position."""
        if all(file.exists() for file in self._kept):
            for file in self._kept:
                shutil.copy(file, _copy_of(file))

    def move_back(self) -> None:
        """Kill it, and start it where it was when the copy was made: it repeats everything since."""
        if not all(_copy_of(file).exists() for file in self._kept):
            return
        self.kill()
        for file in self._kept:
            shutil.copy(_copy_of(file), file)
        self.moves_back += 1
        self.start()

    def failure(self) -> str | None:
        """Return the end of its log if the process has ended or sends nothing any more."""
        text = self._log.read_text(errors="replace")
        has_ended = self._process is not None and self._process.poll() is not None
        return text[-6000:] if has_ended or self.has_failed(text) else None

    @property
    def _log(self) -> Path:
        return self.folder / "out.log"


def _copy_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.saved")
