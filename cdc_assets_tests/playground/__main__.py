"""A shop whose tables change, and the pipeline that follows them: MariaDB, Debezium, a broker, and Dagster's UI.

usage: python -m cdc_assets_tests.playground [--keep FOLDER]     (what `make playground` runs; PLAYGROUND=FOLDER)

All of it listens on free ports of the loopback address, and needs no root. The sensor and the schedules are on: they run the
pipeline each minute, and compare its histories with the database every five. Ctrl-C ends everything. With `--keep` the files
stay, and `cdc-assets why` can be asked still.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from cdc_assets.config import Kafka
from cdc_assets.config.jdbc import PASSWORD as VERIFY_PASSWORD
from cdc_assets.config.jdbc import USER as VERIFY_USER
from cdc_assets.sources.broker import Broker
from cdc_assets_tests.broker import TestBroker
from cdc_assets_tests.live.connect import Connect
from cdc_assets_tests.mariadb import PASSWORD, USER, MariaDB
from cdc_assets_tests.playground.processes import adopt_orphans, end_children, forget_ended_children
from cdc_assets_tests.playground.project import FEED, shell_command, write_project
from cdc_assets_tests.playground.shop import DATABASE, TABLES, Shop
from cdc_assets_tests.web_server import LOG, start_web_server

_PREFIX = "shop"  # of the topics; the schema-change topic is named so
_TOPIC_PATTERN = rf"{_PREFIX}([.].*)?"
_CONNECTOR = {
    "name": _PREFIX,
    "topic.prefix": _PREFIX,
    "database.include.list": DATABASE,
    "topic.creation.default.partitions": "1",
}
_SECONDS = 120
_SECONDS_BETWEEN_SCHEMA_CHANGES = 45
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run until a signal comes; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m cdc_assets_tests.playground")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty or new folder; its files stay")
    kept = parser.parse_args().keep
    if kept and kept.exists() and any(kept.iterdir()):
        parser.error(f"{kept}: is not empty. Name a new folder.")
    adopt_orphans()
    for each in _SIGNALS:
        signal.signal(each, _interrupt)
    status = 0
    with tempfile.TemporaryDirectory(prefix="cdc-playground-") as scratch:
        folder = kept.absolute() if kept else Path(scratch)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _run(folder, scratch)
        except KeyboardInterrupt:
            pass
        except RuntimeError as error:
            print(error, file=sys.stderr)
            status = 1
        finally:
            for each in _SIGNALS:
                signal.signal(each, signal.SIG_IGN)
            _print("\nEnding all processes.")
            end_children()
    return status


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(folder: Path, scratch: str) -> None:
    """Start everything, and run the shop until a signal comes.

    Args:
        folder: for feeds file, lakehouse, logs, and the servers' data.
        scratch: for temporary files.

    Raises:
        RuntimeError: a server has ended, or does not answer.
    """
    _print("The first start fetches the servers' programs, which may take some minutes.")
    _print("MariaDB ...")
    server = MariaDB(folder / "mariadb")
    shop = Shop(server, folder / "statements.log", random.Random())
    _print("Broker ...")
    broker = TestBroker(folder / "broker")
    _print("Debezium ...")
    connect = Connect(folder / "connect", server, broker.servers, _CONNECTOR)
    connect.start()
    _wait_for_snapshot(connect, broker.servers)
    _print("Dagster ...")
    write_project(folder, server, broker.servers, _TOPIC_PATTERN)
    login = {VERIFY_USER: USER, VERIFY_PASSWORD: PASSWORD}
    address, ui = start_web_server(folder, TMPDIR=scratch, SPARK_LOCAL_DIRS=scratch, **login)
    _print(_describe(folder, address, shop.newest_order()))
    next_schema_change = time.monotonic() + _SECONDS_BETWEEN_SCHEMA_CHANGES
    while ui.poll() is None:
        shop.change_rows()
        if time.monotonic() > next_schema_change:
            _print(f"{time.strftime('%H:%M:%S')}  {shop.change_schema()}")
            next_schema_change += _SECONDS_BETWEEN_SCHEMA_CHANGES
            _check(connect)
        forget_ended_children()
        time.sleep(1)
    raise RuntimeError(f"The UI has ended; its log is {folder / LOG}.")


def _check(connect: Connect) -> None:
    if failure := connect.failure():
        raise RuntimeError(f"Debezium has failed. The end of its log:\n{failure}")


def _wait_for_snapshot(connect: Connect, servers: str) -> None:
    """Wait until Debezium has made the topics of all tables that have rows."""
    kafka = Kafka.model_validate({"bootstrap_servers": servers, "topic_pattern": _TOPIC_PATTERN})
    expected = {f"{_PREFIX}.{DATABASE}.{table}" for table in TABLES} - {f"{_PREFIX}.{DATABASE}.carts"}
    end = time.monotonic() + _SECONDS
    with Broker(kafka) as broker:
        while not expected <= broker.snapshot().keys():
            _check(connect)
            if time.monotonic() > end:
                raise RuntimeError("Debezium sends no records.")
            time.sleep(0.5)


def _describe(folder: Path, address: str, order: int) -> str:
    """Return what a person can look at."""
    return f"""
  UI            {address}
  feeds file    {folder / "feeds.yaml"}
  lakehouse     {folder / "lake"}
  statements    {folder / "statements.log"}   (what the shop executes, about one a second)

What the UI shows, once the first run has ended, in a minute or so:
  runs          {address}/runs
  assets        {address}/asset-groups/{FEED}
  comparison    {address}/assets/{FEED}/history/{DATABASE}/orders?view=checks&checkDetail=matches_source

Why an order is as it is; the log of statements has the numbers of others that have just changed:
  {shell_command(folder, "why", FEED, f"{DATABASE}.orders", str(order))}

Ctrl-C ends everything. Statements that change the tables are printed here:
"""


def _print(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
