"""Record `recorded/mysql/dbz350m-incremental` again: Debezium's incremental snapshots, and the truth.

usage: python -m cdc_assets_tests.record_incremental_snapshots FOLDER

FOLDER holds the jars of io.debezium:debezium-embedded and io.debezium:debezium-connector-mariadb, both 3.5.0.Final,
and of their dependencies (by Maven's dependency:copy-dependencies). The server is the tests' MariaDB, and the truth
is its rows. A key's records are in one of two partitions; the Kafka time is the time at which Debezium returned the
record.
"""

import base64
import gzip
import json
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_assets_tests.mariadb import PASSWORD, USER, MariaDB
from cdc_assets_tests.support import RECORDED, Record

SET = RECORDED / "mysql/dbz350m-incremental"
PARTITIONS = 2
_PROGRAM = Path(__file__).parent / "DebeziumRecords.java"
_PATIENCE = 60  # seconds
_TABLES = ("customers", "orders", "drained")


class Debezium:
    """The connector, in a process of its own that can be killed."""

    def __init__(self, folder: Path, jars: Path, server: MariaDB, **settings: str) -> None:
        self._folder, self._jars, self.records, self.signals = folder, jars, folder / "records", folder / "signals"
        self.records.touch()
        self.signals.touch()
        self._settings = {
            "name": "recorder",
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "0",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(folder / "schemas"),
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.server.id": "777",
            "database.ssl.mode": "disable",
            "database.include.list": "shop",
            "topic.prefix": "s",
            "incremental.snapshot.chunk.size": "3",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": "s.notifications",
            "signal.poll.interval.ms": "100",
            "signal.file": str(self.signals),
            "poll.interval.ms": "20",
        } | settings

    def start(self, **settings: str) -> None:
        """Start the connector where it stopped."""
        file = self._folder / "settings"
        file.write_text("".join(f"{k}={v}\n" for k, v in (self._settings | settings).items()))
        command = ["java", "-cp", f"{self._jars}/*", str(_PROGRAM), str(file)]
        with self.records.open("a") as out, (self._folder / "errors").open("a") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=errors)

    def stop(self) -> None:
        """Stop the connector in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_PATIENCE)

    def kill(self) -> None:
        """Kill the connector."""
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Delete the connector's position."""
        (self._folder / "offsets").unlink()
        (self._folder / "schemas").unlink()

    def lines(self) -> list[Record]:
        """Return the records that the connector has returned."""
        return [json.loads(line) for line in self.records.read_text().splitlines()]

    def wait(self, what: str, is_awaited: Callable[[dict[str, Any]], bool], times: int = 1) -> None:
        """Wait until a number of records have payloads that `is_awaited` accepts."""
        for _ in range(_PATIENCE * 20):
            if sum(map(is_awaited, (payload(line) for line in self.lines()))) >= times:
                return
            assert self._process.poll() is None, (self._folder / "errors").read_text()[-3000:]
            time.sleep(0.05)
        raise AssertionError(f"{what} does not come")

    def wait_for_change(self, table: str, op: str, key: int) -> None:
        """Wait for a change of a row."""

        def is_awaited(p: dict[str, Any]) -> bool:
            row = p.get("after") or p.get("before") or {}
            return p.get("op") == op and p["source"]["table"] == table and row.get("id") == key

        self.wait(f"{op} of {table} {key}", is_awaited)

    def wait_for_notification(self, aggregate: str, kind: str, times: int = 1) -> None:
        """Wait for a notification about a snapshot."""
        self.wait(f"{aggregate} {kind}", lambda p: (p.get("aggregate_type"), p.get("type")) == (aggregate, kind), times)


def payload(line: Record) -> dict[str, Any]:
    """Return the content of a record; {} without a value."""
    value = json.loads(base64.b64decode(line["value"])) if line["value"] else {}
    content: dict[str, Any] = value.get("payload", value)
    return content


def rows(server: MariaDB) -> dict[str, dict[int, str]]:
    """Return the rows of the tables."""
    return {table: dict(server.run(f"SELECT id, v FROM shop.{table} ORDER BY id")) for table in _TABLES}


def begin(server: MariaDB) -> None:
    """Create the tables with their first rows."""
    server.run(
        "SET GLOBAL binlog_format = 'ROW'",
        "SET SESSION binlog_format = 'ROW'",
        "CREATE DATABASE shop",
        "CREATE TABLE shop.signals (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))",
    )
    for table in _TABLES:
        server.run(
            f"CREATE TABLE shop.{table} (id int PRIMARY KEY, v varchar(20))",
            f"INSERT INTO shop.{table} VALUES " + ", ".join(f"({n}, '{table[0]}{n}')" for n in range(1, 9)),
        )


def signal(server: MariaDB, number: int, kind: str, *tables: str, **more: Any) -> None:
    """Send the connector a signal through its table."""
    data = json.dumps({"data-collections": [f"shop.{t}" for t in tables], "type": "incremental"} | more)
    with other(server) as run:
        run(f"INSERT INTO shop.signals VALUES ('signal-{number}', '{kind}', '{data}')")


@contextmanager
def other(server: MariaDB) -> Iterator[Callable[[str], object]]:
    """Return another session."""
    connection = server.connect()
    with connection.cursor() as cursor:
        yield cursor.execute
    connection.close()


@contextmanager
def locked(server: MariaDB, table: str) -> Iterator[Callable[[str], object]]:
    """Yield a session that alone can read and change a table: no chunk of it is read meanwhile."""
    with other(server) as run:
        run(f"LOCK TABLES shop.{table} WRITE")
        yield run
        run("UNLOCK TABLES")


def repaired(server: MariaDB, debezium: Debezium) -> dict[str, Any]:
    """Let the connector lose its position and changes; one signal has all tables read again, one of them empty.

    While the first chunk is read, a row changes, one is deleted and one is inserted. The deleted rows are inserted
    again before or after the snapshot.
    """
    debezium.start()
    debezium.wait_for_notification("Initial Snapshot", "COMPLETED")
    server.run("UPDATE shop.customers SET v = 'c1b' WHERE id = 1", "INSERT INTO shop.customers VALUES (9, 'c9')")
    debezium.wait_for_change("customers", "c", 9)
    debezium.stop()
    sent_rows = rows(server)
    server.run(
        "DELETE FROM shop.customers WHERE id IN (2, 3, 8)",
        "UPDATE shop.customers SET v = 'c4b' WHERE id = 4",
        "INSERT INTO shop.customers VALUES (10, 'c10')",
        "DELETE FROM shop.orders WHERE id = 8",
        "DELETE FROM shop.drained",
        "FLUSH BINARY LOGS",
    )
    (last,) = server.run("SHOW MASTER STATUS")
    server.run(f"PURGE BINARY LOGS TO '{last[0]}'")
    missed = rows(server)
    debezium.forget()
    debezium.start(**{"snapshot.mode": "no_data"})
    debezium.wait_for_notification("Initial Snapshot", "COMPLETED", 2)
    server.run("INSERT INTO shop.customers VALUES (3, 'c3b')")
    debezium.wait_for_change("customers", "c", 3)
    time.sleep(2)
    before = rows(server)
    with locked(server, "customers") as run:
        signal(server, 1, "execute-snapshot", "customers", "drained", "orders")
        debezium.wait_for_notification("Incremental Snapshot", "STARTED")
        run("UPDATE shop.customers SET v = 'c5b' WHERE id = 5")
        run("DELETE FROM shop.customers WHERE id = 1")
        run("INSERT INTO shop.customers VALUES (0, 'c0')")
    debezium.wait_for_notification("Incremental Snapshot", "COMPLETED")
    server.run("INSERT INTO shop.customers VALUES (8, 'c8b')", "UPDATE shop.orders SET v = 'o1b' WHERE id = 1")
    debezium.wait_for_change("orders", "u", 1)
    debezium.stop()
    return {"known": sent_rows, "missed": missed, "before": before, "final": rows(server)}


def stopped(server: MariaDB, debezium: Debezium) -> dict[str, Any]:
    """Take three snapshots of a table: of some rows, one that is stopped, and one during which the connector dies."""
    debezium.start()
    debezium.wait_for_notification("Initial Snapshot", "COMPLETED")
    sent_rows = rows(server)
    # The connector cannot read changes that the binlog does not have.
    server.run(
        "SET SESSION sql_log_bin = 0", "DELETE FROM shop.customers WHERE id IN (2, 7)", "SET SESSION sql_log_bin = 1"
    )
    missed = rows(server)
    only = [{"data-collection": "shop.customers", "filter": "id < 5"}]
    signal(server, 1, "execute-snapshot", "customers", **{"additional-conditions": only})
    debezium.wait_for_notification("Incremental Snapshot", "COMPLETED")
    time.sleep(2)
    with locked(server, "customers"):
        signal(server, 2, "execute-snapshot", "customers")
        debezium.wait_for_notification("Incremental Snapshot", "STARTED", 2)
        signal(server, 3, "stop-snapshot", "customers")
    debezium.wait_for_notification("Incremental Snapshot", "ABORTED")
    time.sleep(2)
    with locked(server, "customers") as run:
        signal(server, 4, "execute-snapshot", "customers")
        debezium.wait_for_notification("Incremental Snapshot", "STARTED", 3)
        run("UPDATE shop.customers SET v = 'c3b' WHERE id = 3")
        time.sleep(1)
        debezium.kill()
    debezium.start()
    debezium.wait_for_notification("Incremental Snapshot", "COMPLETED", 3)
    server.run("INSERT INTO shop.customers VALUES (7, 'c7b')")
    debezium.wait_for_change("customers", "c", 7)
    debezium.stop()
    return {"known": sent_rows, "missed": missed, "before": missed, "final": rows(server)}


def read_only(server: MariaDB, debezium: Debezium) -> dict[str, Any]:
    """Take a snapshot without a signal table: GTIDs bound the chunks' windows, and a file has the signal."""
    debezium.start()
    debezium.wait_for_notification("Initial Snapshot", "COMPLETED")
    sent_rows = rows(server)
    server.run(
        "SET SESSION sql_log_bin = 0", "DELETE FROM shop.orders WHERE id IN (1, 8)", "SET SESSION sql_log_bin = 1"
    )
    missed = rows(server)
    server.run("UPDATE shop.orders SET v = 'o2b' WHERE id = 2")
    debezium.wait_for_change("orders", "u", 2)
    time.sleep(2)
    data = {"data-collections": ["shop.orders"], "type": "incremental"}
    debezium.signals.write_text(json.dumps({"id": "signal-1", "type": "execute-snapshot", "data": data}))
    debezium.wait_for_notification("Incremental Snapshot", "STARTED")
    for n in range(5):  # each window closes with a change
        server.run(f"UPDATE shop.orders SET v = 'o3-{n}' WHERE id = 3")
        time.sleep(0.2)
    debezium.wait_for_notification("Incremental Snapshot", "COMPLETED")
    debezium.stop()
    return {"known": sent_rows, "missed": missed, "before": missed, "final": rows(server)}


SCENARIOS: dict[str, tuple[Callable[[MariaDB, Debezium], dict[str, Any]], dict[str, str]]] = {
    "repaired": (repaired, {"signal.data.collection": "shop.signals"}),
    "stopped": (stopped, {"signal.data.collection": "shop.signals", "converter.schemas.enable": "false"}),
    "read-only": (read_only, {"read.only": "true", "signal.enabled.channels": "file"}),
}


def placed(lines: list[Record]) -> list[Record]:
    """Return the records with their partitions and offsets in Kafka."""
    offsets = Counter[tuple[str, int]]()
    records = []
    for line in lines:
        partition = zlib.crc32(base64.b64decode(line["key"] or "")) % (PARTITIONS if ".shop." in line["topic"] else 1)
        place = line["topic"], partition
        records.append({"topic": place[0], "partition": partition, "offset": offsets[place]} | line)
        offsets[place] += 1
    return records


def main() -> int:
    """Record each scenario with a server of its own."""
    SET.mkdir(parents=True, exist_ok=True)
    for name, (scenario, settings) in SCENARIOS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            server = MariaDB(folder / "server")
            try:
                begin(server)
                debezium = Debezium(folder, Path(sys.argv[1]), server, **settings)
                truth = scenario(server, debezium)
            finally:
                server.stop()
            records = "".join(json.dumps(r) + "\n" for r in placed(debezium.lines()))
            (SET / f"{name}.jsonl.gz").write_bytes(gzip.compress(records.encode(), mtime=0))
            (SET / f"{name}.truth.json").write_text(json.dumps(truth) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
