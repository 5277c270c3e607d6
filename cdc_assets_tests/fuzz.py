"""Run the pipeline over bent records of every protocol, and check what must always be true.

usage: python -m cdc_assets_tests.fuzz [--records 20000] [--batch 2000] [--seed N] [NAME ...]     (what `make fuzz`
runs)

For each batch: no run fails twice in a row; every record is accounted for; every row in quarantine states where it
came from and what to do; no file lies outside its folder; and an undisturbed stream that comes before, between and
after the bent records makes the same histories as alone. Exit code 0: all of this is true.
"""

import argparse
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets.assets.checks.conservation import events_placed, records_decoded, records_taken
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.spark.session import spark_session
from cdc_assets_tests.mutants import Mutants
from cdc_assets_tests.registry import CONFLUENT, recorded_answers, running_registry
from cdc_assets_tests.support import RECORDED, Chain, Record, histories, read_lines, rows_in, tables_of

_FOLDERS = {
    "raw_records", "change_events", "table_schemas", "type_observations", "released_changes", "quarantine", "history",
    "history_progress", "registry_schemas",
}  # fmt: skip
# A folder name below the history: the characters that `path_segment` leaves.
_SEGMENT = re.compile(r"[A-Za-z0-9_~-]{1,200}|_delta_log")
_MOST_MEMORY = 2 << 30  # bytes, of this process
_MOST_HEAP_GROWTH = (
    1 << 30
)  # bytes, of the JVM's heap, which in a test session also holds what earlier tests left there


@dataclass(frozen=True)
class Kind:
    """A recorded configuration: its feed's settings, the form of its values, the bent sets, and the undisturbed set."""

    name: str
    settings: dict[str, Any]
    form: str
    bent: tuple[str, ...]
    undisturbed_set: str

    @contextmanager
    def feed_settings(self) -> Iterator[dict[str, Any]]:
        """Yield the settings of a feed of this kind, while the registry that they name runs."""
        if self.settings.get("encoding") != "avro" or self.settings["protocol"] != "debezium":
            yield self.settings
            return
        with running_registry(recorded_answers()) as registry:
            yield self.settings | {"schema_registry": {"url": registry.url + CONFLUENT}}


# A broken mapping would block its table, and here all events must reach the history.
_SETTINGS = {"type_mapping": "warn", "time_zone": "Asia/Tokyo"}


def _ticdc(name: str, form: str = "json", bent: tuple[str, ...] = ("orders", "types"), **settings: Any) -> Kind:
    return Kind(f"ticdc/{name}", settings | _SETTINGS, form, bent, "tz")


def _mysql(name: str, **settings: Any) -> Kind:
    return Kind(f"mysql/{name}", settings | _SETTINGS, "json", ("customers", "types"), "extra")


# One of each wire format, which `make test` runs.
KINDS = [
    _ticdc("canal-json_ext", protocol="canal-json", tidb_extension=True),
    _mysql("canal117-flat", protocol="canal-json"),
    _ticdc("open-protocol", "frames", protocol="open-protocol"),
    _ticdc("simple-json", protocol="simple"),
    _ticdc("simple-avro", "avro", protocol="simple", encoding="avro"),
    _mysql("dbz195-schemas", protocol="debezium"),
    _mysql("dbz350m-noschemas-tx", protocol="debezium"),
    Kind(
        "mysql/dbz350m-registry",
        {"protocol": "debezium", "encoding": "avro"} | _SETTINGS,
        "datum",
        ("customers-confluent", "types-confluent"),
        "extra-confluent",
    ),
]
OTHERS = [
    _ticdc("canal-json", protocol="canal-json"),
    _ticdc("canal-json_ext_content-compatible", bent=("nokey", "types"), protocol="canal-json", tidb_extension=True),
    _ticdc("open-protocol_only-updated", "frames", protocol="open-protocol"),
    _ticdc("debezium_ext_noschema", bent=("nopk", "types"), protocol="debezium"),
    _mysql("dbz195-string-hex", protocol="debezium"),
    _mysql("dbz350m-schemas", protocol="debezium"),
]


def read_undisturbed_lines(kind: Kind) -> list[Record]:
    """Return the undisturbed set, in topics of its own, because each topic has its own watermarks."""
    return [
        line | {"topic": f"whole.{line['topic']}"} for line in read_lines(RECORDED / kind.name / kind.undisturbed_set)
    ]


def undisturbed(made: Chain, kind: Kind) -> dict[str, list[dict[str, Any]]]:
    """Return the histories that the undisturbed set alone makes, in a new feed."""
    made.add(read_undisturbed_lines(kind))
    made.run()
    return histories(made.lake)


def hold(made: Chain, kind: Kind, seed: int, count: int, expected: dict[str, list[dict[str, Any]]]) -> None:
    """Run a new feed over `count` bent records and the undisturbed set, and assert what must be true of it.

    Args:
        made: the feed, of the kind's settings.
        kind: what is bent.
        seed: how.
        count: the records that are bent.
        expected: `undisturbed`.
    """
    undisturbed_lines = read_undisturbed_lines(kind)
    lines = [line for each in kind.bent for line in read_lines(RECORDED / kind.name / each)]
    mutants = Mutants(lines, (kind.name, seed), kind.form)
    around = _around(made.folder)
    heap_before = _heap_in_use(made.lake.spark)
    # The feed must go on after the bent records.
    half, first = len(undisturbed_lines) // 2, mutants.take(count)
    for lines in ([*undisturbed_lines[:half], *first], undisturbed_lines[half:]):
        made.add(lines)
        try:
            report = made.run()
        except Exception:  # noqa: BLE001 -- what fails for one table may fail one run, and the next blocks that table
            traceback.print_exc()
            report = made.run()
        for verdict in (records_taken(report.ingest), records_decoded(report.decode), events_placed(report.release)):
            assert verdict.passed, verdict.violations
    _assert_quarantine_explains(made)
    assert _around(made.folder) == around, "data outside the root"
    _inside(made.folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 < _MOST_MEMORY
    assert _heap_in_use(made.lake.spark) - heap_before < _MOST_HEAP_GROWTH
    tables = tables_of(made.lake)
    assert expected
    assert expected.keys() <= tables.keys()
    rows = {name: rows_in(tables[name], made.lake.spark) for name in expected}
    assert rows == expected, "rows of tables that no bent record touches"


def _around(folder: Path) -> set[Path]:
    """Return the entries beside the feed's folder, and the folders with Parquet files in the working directory.

    Other tests run there at the same time, and tools leave files: a folder without data is theirs.
    """
    visible = (path for path in Path.cwd().iterdir() if path.name[0] != ".")
    return {*folder.parent.iterdir(), *(path for path in visible if next(path.rglob("*.parquet"), None))}


def _assert_quarantine_explains(made: Chain) -> None:
    """Assert that every row in quarantine states its reason, its place, and what to do."""
    for row in made.quarantine():
        assert row["reason"] in set(Reason), row
        assert row["message"], row
        placed = row["file"] is not None and row["line"] is not None
        assert placed or None not in (row["topic"], row["partition"], row["offset"]), row
    for row in made.lake.schema_rows():
        assert None not in (row["topic"], row["partition"], row["offset"]), row


def _inside(folder: Path) -> None:
    """Assert that the folder has only tables, under names that lead nowhere else."""
    assert {p.name for p in folder.iterdir()} == {"snapshots", "lake"}
    assert {p.name for p in (folder / "lake").iterdir()} <= _FOLDERS
    assert {p.stem for p in (folder / "lake").glob("*/*")} == {"f"}
    for path in (folder / "lake/history").glob("f/**/*"):
        depth = len(path.relative_to(folder / "lake/history/f").parts)
        assert depth > 2 or _SEGMENT.fullmatch(path.name), path


def _heap_in_use(spark: SparkSession) -> int:
    """Return the bytes of live objects in the JVM's heap."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def main() -> int:
    """Run the feeds over bent records, and print the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=20_000, help="of all configurations together")
    parser.add_argument("--batch", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("names", nargs="*", help="of configurations; default: all")
    given = parser.parse_args()
    kinds = [kind for kind in [*KINDS, *OTHERS] if not given.names or kind.name in given.names]
    warehouse = tempfile.mkdtemp(prefix="cdc-fuzz-warehouse-")
    spark = spark_session(
        {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": warehouse}
    )
    expected: dict[str, dict[str, list[dict[str, Any]]]] = {}
    done = failed = batches = 0
    while done < given.records:
        kind, seed = kinds[batches % len(kinds)], given.seed + batches // len(kinds)
        folder, began = Path(tempfile.mkdtemp(prefix="cdc-fuzz-")), time.monotonic()
        try:
            with kind.feed_settings() as settings:
                if kind.name not in expected:
                    expected[kind.name] = undisturbed(Chain(spark, folder / "alone", **settings), kind)
                hold(Chain(spark, folder / "bent", **settings), kind, seed, given.batch, expected[kind.name])
        except Exception:  # noqa: BLE001 -- it is told, and the other batches are tried
            failed += 1
            print(f"WRONG: {kind.name}, seed {seed}; it is in {folder}\n{traceback.format_exc()[-6000:]}", flush=True)
        else:
            shutil.rmtree(folder)
        done, batches = done + given.batch, batches + 1
        print(f"{done:>9}: {kind.name}, seed {seed}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{'FAILED' if failed else 'PASSED'}: {done} bent records, {failed} of {batches} batches went wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
