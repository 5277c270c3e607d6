"""Measure `cdc-assets verify` of a large table against a real MariaDB server: seconds, and the command's own memory."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from benchmarks import generate
from benchmarks.asking import append
from benchmarks.form import Bench
from benchmarks.measuring import Section, Timing, timed
from benchmarks.memory import high_water
from benchmarks.stages import FEED, Place, prepare, run_stages
from cdc_assets.config.jdbc import PASSWORD, USER
from cdc_assets_tests import mariadb
from cdc_assets_tests.mariadb import MariaDB

_TABLE = ("bench", "orders")
_CHUNK = 1_000_000  # rows that are written at once
_BEGIN = "2026-01-01 00:00:00"
_MB = 1_000_000
# The row of each n in the source; `_values` has the same values.
_ROW = (
    "n, n * 7, NULL, ELT(n % 4 + 1, 'new', 'paid', 'shipped', 'cancelled'), (n - 5000) / 100, n % 1000, n / 8, "
    f"CONCAT('note of order ', n), UNHEX(LPAD(HEX(n), 8, '0')), n % 2, '{_BEGIN}' + INTERVAL n SECOND, "
    f"'{_BEGIN}' + INTERVAL n * 1000 MICROSECOND"
)


def measure(bench: Bench) -> Section:
    """Verify tables of each size: with equal rows, with ten changed rows, then with all rows changed."""
    timings: list[Timing] = []
    for size in bench.form.versions:
        place, server = _filled(bench, size), MariaDB(bench.again(f"mariadb-{size}"))
        try:
            server.run(
                "SET SESSION time_zone = '+00:00'",
                "CREATE DATABASE bench",
                "USE bench",
                generate.CREATE_TABLE,
                f"INSERT INTO orders SELECT {_ROW} FROM (SELECT CAST(seq AS SIGNED) AS n FROM seq_1_to_{size}) AS s",
            )
            timings.append(_verified(f"equal, {size:,} rows", place, server, 0))
            server.run(f"UPDATE orders SET qty = qty + 1 WHERE id % {size // 10} = 0")
            timings.append(_verified(f"ten rows differ, of {size:,}", place, server, 1))
            server.run("UPDATE orders SET amount = amount + 1")
            timings.append(_verified(f"all {size:,} rows differ", place, server, 1))
        finally:
            server.stop()
    return Section(
        "verifying",
        "A history against the source's own rows",
        "Tables of 12 columns, the server on the same machine. The whole command in a process of its own, without a JVM; "
        "the memory is that process's alone, the processor time also the server's.",
        timings,
    )


def _verified(name: str, place: Place, server: MariaDB, code: int) -> Timing:
    """Run the command, which must end with this exit code."""
    environment = os.environ | {"CDC_FEEDS": str(place.feeds_file), "CDC_LAKEHOUSE": str(place.root)}
    environment |= {USER: mariadb.USER, PASSWORD: mariadb.PASSWORD}
    command = [sys.executable, "-m", "cdc_assets", "verify", FEED, ".".join(_TABLE), "--jdbc", server.url]
    most = 0.0

    def run() -> None:
        nonlocal most
        running = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        while running.poll() is None:
            most = max(most, high_water(running.pid))
            time.sleep(0.02)
        if running.returncode != code:
            raise RuntimeError(f"{name}: ended with {running.returncode}")

    return replace(timed(name, run), jvm_mb=0, total_mb=most)


def _filled(bench: Bench, size: int) -> Place:
    """Return a feed that the pipeline made of one row, which is then replaced by many rows."""
    bench.say(f"A table of {size:,} rows ...")
    place = prepare(bench.again(f"verifying-{size}"))
    generate.write_updates(place.snapshots / "begin.jsonl", 1, 0, 0)
    run_stages(bench.spark, place)
    history = place.lake(bench.spark).history(*_TABLE)
    log = history.log()
    if log is None:
        raise RuntimeError(f"{history.name} was not made")
    log.table.delete()
    for start in range(1, size + 1, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, size + 1))
        append(history, _values(numbers), len(numbers))
    return place


def _values(n: np.ndarray) -> dict[str, object]:
    """Return the columns of these rows' open versions."""
    began = np.datetime64(_BEGIN, "us")
    return {
        "_cdc_key": _texts(f'["{i}"]' for i in n),
        "_cdc_from_ts": pa.array(np.full(len(n), generate.TABLE_TS + 1)),
        "_cdc_is_current": True,
        "_cdc_op": "insert",
        "_cdc_topic": FEED,
        "_cdc_partition": 0,
        "_cdc_offset": pa.array(n),
        "id": pa.array(n),
        "buyer": pa.array(n * 7),
        "status": _texts(np.array(["new", "paid", "shipped", "cancelled"])[n % 4]),
        "amount": _texts(f"{(i - 5000) / 100:.2f}" for i in n),
        "qty": pa.array(n % 1000),
        "weight": pa.array(n / 8),
        "note": _texts(f"note of order {i}" for i in n),
        "token": pa.array([int(i).to_bytes(4, "big") for i in n]),
        "gift": pa.array(n % 2),
        "created": pa.array(began + n * np.timedelta64(1, "s")),
        "updated": pa.array(began + n * np.timedelta64(1, "ms")),
    }


def _texts(values: Iterable[str]) -> pa.Array:
    return pa.array([str(v) for v in values])
