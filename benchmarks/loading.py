"""An initial load out of a dump, beside the same files appended to a Delta table by `spark.read.csv`."""

import math
from pathlib import Path

from benchmarks import generate
from benchmarks.form import Bench
from benchmarks.measuring import Ratio, Section, Timing, median, timed, total
from benchmarks.stages import prepare, run_stages

_ALLOWED = 2.0
_MANY_FILES = 1_000
_FILES = 8
_CREATE = (
    "CREATE TABLE `orders` (`id` bigint NOT NULL, `name` varchar(40), `amount` decimal(12,2), `status` enum('new','paid'), "
    "`note` text, `at` datetime(3), PRIMARY KEY (`id`));\n"
)
_COLUMNS = "id BIGINT, name STRING, amount DECIMAL(12,2), status STRING, note STRING, at TIMESTAMP_NTZ"
_HEADER = '"id","name","amount","status","note","at"'


def measure(bench: Bench) -> Section:
    """In turn, into tables that are not there; then the same rows in many files."""
    rows, timings, ratios = bench.form.loaded, [], []
    for files in (_FILES, _MANY_FILES):
        dump = _dumped(bench, rows, files)
        mine: list[Timing] = []
        plain: list[Timing] = []
        for number in range(1 + bench.form.load_rounds):
            first = timed("plain", lambda d=dump, n=number: _append(bench, d, n), bench.spark)  # type: ignore[misc]
            load = {"path": str(dump), "format": "dumpling-csv", "position": generate.TABLE_TS}
            home = bench.again(f"loading-{files}-{number}")
            place = prepare(home, protocol="canal-json", tidb_extension=True, initial_load=load)
            second = total(run_stages(bench.spark, place), "load")
            bench.say(f"  {rows:,} rows in {files:,} files: {second.seconds:.1f} s, plain {first.seconds:.1f} s")
            if number or not bench.form.load_rounds:  # the first of all compiles
                mine.append(second)
                plain.append(first)
        told = f"{rows:,} rows in {files:,} files"
        timings += [median(mine, f"{told}: load"), median(plain, f"{told}: spark.read.csv and append")]
        ratios.append(Ratio(f"{told}: load / plain", timings[-2].seconds / timings[-1].seconds, _ALLOWED))
    return Section(
        "loading",
        "An initial load, beside spark.read.csv and a Delta append of the same files",
        "CSV as Dumpling writes it, 6 columns. The load is all stages of a feed without a record: its rows are released, "
        "typed, and become versions of a new history.",
        timings,
        ratios,
    )


def _append(bench: Bench, dump: Path, number: int) -> None:
    read = bench.spark.read.csv(f"{dump}/*.csv", header=True, schema=_COLUMNS, escape="\\", nullValue="\\N")
    read.write.format("delta").mode("append").save(str(bench.again(f"plain-{number}")))


def _dumped(bench: Bench, rows: int, files: int) -> Path:
    """A dump of so many rows in so many files."""
    dump = bench.again(f"dump-{files}")
    dump.mkdir(parents=True)
    (dump / "bench.orders-schema.sql").write_text(_CREATE)
    per = math.ceil(rows / files)
    for file in range(files):
        with (dump / f"bench.orders.{file:09}.csv").open("w") as out:
            out.write(f"{_HEADER}\r\n")
            for n in range(file * per, min(rows, (file + 1) * per)):
                out.write(
                    f'{n},"name {n}",{n}.10,"new","a note of some length, number {n}","2024-05-01 10:00:00.123"\r\n'
                )
    return dump
