"""A real Kafka Connect worker with Debezium's MariaDB connector, in a process that can be killed and moved back.

Its jars come from Maven as the product's do (`cdc_assets.stores.jars`); `connect_jars.txt` has their checksums.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from cdc_assets.stores.jars import Jar, ensure_jars, java
from cdc_assets_tests.mariadb import PASSWORD, USER, MariaDB
from cdc_assets_tests.ports import free_port
from cdc_assets_tests.support import SHORT_LIVED_OPTIONS

PREFIX = "live"  # of the topics; the schema-change topic is named so
TABLE_TOPICS = f"{PREFIX}[.].*"
_JAR_LIST = Path(__file__).with_name("connect_jars.txt")
_WORKER = {
    "bootstrap.servers": "{servers}",
    "offset.storage.file.filename": "{folder}/offsets",
    "offset.flush.interval.ms": "500",
    "plugin.discovery": "service_load",
    "listeners": "http://127.0.0.1:{rest}",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.replace.null.with.default": "false",
}
_CONNECTOR = {
    "name": "live",
    "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
    "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
    "schema.history.internal.file.filename": "{folder}/schemas",
    "database.hostname": "127.0.0.1",
    "database.port": "{port}",
    "database.user": "{user}",
    "database.password": "{password}",
    "database.server.id": "777",
    "database.ssl.mode": "disable",
    "topic.prefix": PREFIX,
    "topic.creation.default.replication.factor": "1",
    "skipped.operations": "none",
    "poll.interval.ms": "20",
}


class Connect:
    """The worker: it sends what the server's binlog has to the broker, at least once."""

    def __init__(self, folder: Path, server: MariaDB, servers: str, settings: Mapping[str, str]) -> None:
        """Write the settings.

        Args:
            folder: its files are kept here; it must not exist.
            server: the database that it reads.
            servers: the broker's address.
            settings: of the connector, and of the worker's converters (`*.converter.*`).
        """
        folder.mkdir(parents=True)
        self.folder = folder
        self.restarts = self.moves_back = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._saved = 0  # copies of the offsets and of the schema history
        places = {"servers": servers, "folder": folder, "rest": free_port(), "port": server.port}
        places |= {"user": USER, "password": PASSWORD}
        of_worker = {k: v for k, v in settings.items() if ".converter." in k}
        of_connector = {k: v for k, v in settings.items() if k not in of_worker}
        for name, values in (("worker", _WORKER | of_worker), ("connector", _CONNECTOR | of_connector)):
            lines = [f"{key}={value.format(**places)}\n" for key, value in values.items()]
            (folder / f"{name}.properties").write_text("".join(lines))

    def start(self) -> None:
        """Start it, where it stopped."""
        lines = _JAR_LIST.read_text().splitlines()
        classes = os.pathsep.join(map(str, ensure_jars([Jar(*line.split()) for line in lines])))
        command = [java(), "-Xmx512m", *SHORT_LIVED_OPTIONS, "-cp", classes]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone"]
        command += [str(self.folder / f"{name}.properties") for name in ("worker", "connector")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill it, and start it again: it repeats what it has sent since it last noted its offsets."""
        self.kill()
        self.restarts += 1
        self.start()

    def save(self) -> None:
        """Keep a copy of its offsets and its schema history."""
        if (self.folder / "offsets").exists():
            self._saved += 1
            for name in ("offsets", "schemas"):
                shutil.copy(self.folder / name, self._copy(name))

    def move_back(self) -> None:
        """Kill it, and start it where it was when the copy was made: it repeats everything since."""
        if not self._saved:
            return
        self.kill()
        for name in ("offsets", "schemas"):
            shutil.copy(self._copy(name), self.folder / name)
        self.moves_back += 1
        self.start()

    def failure(self) -> str | None:
        """Return the end of its log if the process has ended or its task has failed."""
        text = self._log.read_text(errors="replace")
        has_failed = "Task is being killed and will not recover" in text
        return text[-6000:] if has_failed or (self._process and self._process.poll() is not None) else None

    @property
    def _log(self) -> Path:
        return self.folder / "out.log"

    def _copy(self, name: str) -> Path:
        return self.folder / f"{name}.saved"
