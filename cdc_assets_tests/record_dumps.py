"""Record `recorded/dumps` again: dumps, by real tools, of the tables of recorded scenarios during their streams.

usage: python -m cdc_assets_tests.record_dumps dumpling-VERSION=PROGRAM

The server is the tests' MariaDB, filled from the recorded truth. Each program runs once for each of the `OPTIONS`
with which its name begins; its files stay unchanged, except the times in `metadata`.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cdc_assets_tests.mariadb import PASSWORD, USER, MariaDB
from cdc_assets_tests.support import RECORDED, read_lines

DUMPS = RECORDED / "dumps"
TRUTH = RECORDED / "ticdc/truth"
# Scenario -> the position of its dumps, which have the tables' rows at this position. No change has this position.
POSITIONS = {
    "orders": 470590863000000000,
    "types": 470590944777863182,
    "nopk": 470590891242029058,
    "nokey": 470590903674208269,
}
# A name with the characters that separate database and table in file names.
ODD = "odd.na-me"
_CONNECT = ["-h", "127.0.0.1", "-u", USER, "-p", PASSWORD, "-B", "shop"]
# Beginning of the program's name -> name of a dump's folder -> options.
OPTIONS: dict[str, dict[str, list[str]]] = {
    "dumpling-": {
        "csv": ["--filetype", "csv"],
        "sql": ["--filetype", "sql", "--params", "time_zone=+00:00", "-r", "2", "-c", "gzip", "--complete-insert"],
    },
}


def rows_at_position(scenario: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that each table of a scenario had at the position of the dumps, in MySQL's text."""
    at = POSITIONS[scenario]
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in read_lines(TRUTH / f"{scenario}.history"):
        if line["kind"] == "version" and line["valid_from"] <= at < (line["valid_to"] or at + 1):
            rows.setdefault(line["table"], []).append(line["values"])
    return rows


def types_of(scenario: str) -> dict[str, dict[str, str]]:
    """Return table -> column -> MySQL type."""
    shapes = read_lines(TRUTH / f"{scenario}.tables")
    return {s["table"]: {c["name"]: c["type"] for c in s["columns"]} for s in shapes}


def fill(server: MariaDB) -> None:
    """Create the tables, and insert their rows."""
    server.run(
        "SET SESSION sql_mode = '', time_zone = '+00:00', NAMES utf8mb4",
        "CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    )
    for scenario in POSITIONS:
        for event in read_lines(TRUTH / f"{scenario}.events"):
            if event.get("ddl_type") == "create_table":
                # MariaDB does not know this word of TiDB's.
                server.run(re.sub(r"\) clustered\)$", "))", event["sql"]))
        types = types_of(scenario)
        for table, rows in rows_at_position(scenario).items():
            for row in rows:
                # The truth also has the values of stored generated columns.
                given = {c: v for c, v in row.items() if not c.startswith("g_")}
                values = ", ".join(_literal(v, types[table][c]) for c, v in given.items())
                server.run(f"INSERT INTO shop.{table} ({', '.join(f'`{c}`' for c in given)}) VALUES ({values})")
    server.run(f"CREATE TABLE shop.`{ODD}` (id int PRIMARY KEY)", f"INSERT INTO shop.`{ODD}` VALUES (7)")
    server.run("CREATE VIEW shop.all_orders AS SELECT * FROM shop.orders")


def _literal(text: str | None, mysql_type: str) -> str:
    if text is None:
        return "NULL"
    if mysql_type.startswith("bit"):
        return text
    if re.match(r"(var)?binary|\w*blob", mysql_type):
        return f"x'{text.removeprefix('0x')}'"
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def dump(server: MariaDB, name: str, program: str, under: Path) -> Iterator[Path]:
    """Run a program with each of its options; return the folder of each dump."""
    (options,) = [o for beginning, o in OPTIONS.items() if name.startswith(beginning)]
    for folder, more in options.items():
        place = under / name / folder
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([program, *_CONNECT, "-P", str(server.port), "-o", str(place), *more], check=True)
        yield place


def record(server: MariaDB, name: str, program: str) -> None:
    """Keep the files of a program."""
    for place in dump(server, name, program, DUMPS):
        metadata = place / "metadata"
        text = re.sub(r"(dump at: ).*", r"\g<1>2026-11-23 12:00:00", metadata.read_text("utf-8"))
        metadata.write_text(text, "utf-8")


def main() -> int:
    """Fill the server, and dump it."""
    with tempfile.TemporaryDirectory() as folder:
        server = MariaDB(Path(folder))
        try:
            fill(server)
            for given in sys.argv[1:]:
                record(server, *given.split("=", 1))
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
