"""A real Kafka Connect worker with Debezium's MariaDB connector, in a process that can be killed and moved back.

Its jars come from Maven as the product's do (`cdc_assets.stores.jars`); `connect_jars.txt` has their checksums.
"""

from collections.abc import Mapping
from pathlib import Path

from cdc_assets_tests.live.reader import Reader
from cdc_assets_tests.mariadb import PASSWORD, USER, MariaDB
from cdc_assets_tests.ports import free_port

PREFIX = "live"  # of the topics; the schema-change topic is named so
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


class Connect(Reader):
    """The worker with its connector."""

    def __init__(self, folder: Path, server: MariaDB, servers: str, settings: Mapping[str, str]) -> None:
        """Write the settings.

        Args:
            folder: its files are kept here; it must not exist.
            server: the database that it reads.
            servers: the broker's address.
            settings: of the connector, and of the worker's converters (`*.converter.*`).
        """
        super().__init__(folder, _JAR_LIST, ["offsets", "schemas"])
        places = {"servers": servers, "folder": folder, "rest": free_port(), "port": server.port}
        places |= {"user": USER, "password": PASSWORD}
        of_worker = {k: v for k, v in settings.items() if ".converter." in k}
        of_connector = {k: v for k, v in settings.items() if k not in of_worker}
        for name, values in (("worker", _WORKER | of_worker), ("connector", _CONNECTOR | of_connector)):
            lines = [f"{key}={value.format(**places)}\n" for key, value in values.items()]
            (folder / f"{name}.properties").write_text("".join(lines))

    def arguments(self, classes: str) -> list[str]:
        """Return the arguments of Java."""
        files = [str(self.folder / f"{name}.properties") for name in ("worker", "connector")]
        return ["-cp", classes, "org.apache.kafka.connect.cli.ConnectStandalone", *files]

    def has_failed(self, log: str) -> bool:
        """Return whether the connector's task has failed."""
        return "Task is being killed and will not recover" in log
