"""Measure an initial load from a dump, beside the same files appended to a Delta table by `spark.read.csv`."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import generate
from benchmarks.form import Bench
from benchmarks.measuring import Ratio, Section, Timing, median, timed, total
from benchmarks.stages import prepare, run_stages

_ALLOWED = 2.0
_MANY_FILES = 1_000
_FILES = 8
_MOST = 1_000_000  # rows in other forms than plain CSV
_CREATE = (
    "CREATE TABLE `orders` (`id` bigint NOT NULL, `name` varchar(40), `amount` decimal(12,2), `status` enum('new','paid'), "
    "`note` text, `at` datetime(3), PRIMARY KEY (`id`));\n"
)
_COLUMNS = "id BIGINT, name STRING, amount DECIMAL(12,2), status STRING, note STRING, at TIMESTAMP_NTZ"
_NAMES = ("id", "name", "amount", "status", "note", "at")
_HEADER = ",".join(f'"{name}"' for name in _NAMES)


@dataclass(frozen=True)
class _Form:
    """How the rows are written: the beginning of a file and of a row (`n`: its number), the end of a row and a file."""

    name: str  # as in the feeds file
    suffix: str
    head: str
    row: str
    end: str
    last: str


_CSV = '{n},"name {n}",{n}.10,"new","a note of some length, number {n}","2024-05-01 10:00:00.123"'
_SQL = "({n},'name {n}',{n}.10,'new','a note\\nof \\'some\\' length, number {n}','2024-05-01 10:00:00.123')"
_PLAIN = _Form("dumpling-csv", "", f"{_HEADER}\r\n", _CSV, "\r\n", "\r\n")
_FORMS = (
    replace(_PLAIN, suffix=", with escapes in each", row=_CSV.replace("some", '\\"some\\"').replace(" of", "\\nof")),
    _Form(
        "dumpling-sql",
        " as SQL",
        f"INSERT INTO `orders` ({','.join(f'`{n}`' for n in _NAMES)}) VALUES\n",
        _SQL,
        ",\n",
        ";\n",
    ),
)


def measure(bench: Bench) -> Section:
    """Load into new tables; then the same rows from many files; then fewer rows in other forms."""
    rows, fewer_rows = bench.form.loaded, min(bench.form.loaded, _MOST)
    cases = [(_PLAIN, rows, _FILES), (_PLAIN, rows, _MANY_FILES), *((form, fewer_rows, _FILES) for form in _FORMS)]
    timings, ratios = [], []
    for form, count, files in cases:
        label = f"{count:,} rows{form.suffix} in {files:,} files"
        mine, plain = _measured(bench, form, count, files, label)
        timings += [median(mine, f"{label}: load"), median(plain, f"{label}: spark.read.csv and append")]
        ratios.append(Ratio(f"{label}: load / plain", timings[-2].seconds / timings[-1].seconds, _ALLOWED))
    return Section(
        "loading",
        "An initial load, beside spark.read.csv and a Delta append of the same rows",
        "Files as Dumpling writes them, 6 columns. The load is all stages of a feed without a record: its rows "
        "are released, typed, and become versions of a new history. Beside SQL the plain append is of the same rows as CSV.",
        timings,
        ratios,
    )


def _measured(bench: Bench, form: _Form, rows: int, files: int, label: str) -> tuple[list[Timing], list[Timing]]:
    """Return the timings of the loads, and of the plain appends, over some rounds."""
    dump = _dumped(bench, form, rows, files)
    csv = dump if form.name == _PLAIN.name else _dumped(bench, _FORMS[0], rows, files)
    mine: list[Timing] = []
    plain: list[Timing] = []
    for number in range(1 + bench.form.load_rounds):
        first = timed("plain", lambda n=number: _append(bench, csv, n), bench.spark)  # type: ignore[misc]
        load = {"path": str(dump), "format": form.name, "position": generate.TABLE_TS}
        home = bench.again(f"loading-{number}")
        place = prepare(home, protocol="canal-json", tidb_extension=True, initial_load=load)
        second = total(run_stages(bench.spark, place), "load")
        bench.say(
            f"  {label}: {second.seconds:.1f} s, plain {first.seconds:.1f} s; "
            f"processor {second.cpu_seconds:.1f} s, plain {first.cpu_seconds:.1f} s"
        )
        if number or not bench.form.load_rounds:  # the first round compiles
            mine.append(second)
            plain.append(first)
    return mine, plain


def _append(bench: Bench, dump: Path, number: int) -> None:
    read = bench.spark.read.csv(f"{dump}/*.csv", header=True, schema=_COLUMNS, escape="\\", nullValue="\\N")
    read.write.format("delta").mode("append").save(str(bench.again(f"plain-{number}")))


def _dumped(bench: Bench, form: _Form, rows: int, files: int) -> Path:
    """Return the folder of a dump with these numbers of rows and files."""
    dump = bench.again(f"dump-{form.name}-{files}")
    dump.mkdir(parents=True)
    (dump / "bench.orders-schema.sql").write_text(_CREATE)
    per, kind = math.ceil(rows / files), "csv" if form.name == _PLAIN.name else "sql"
    for file in range(files):
        with (dump / f"bench.orders.{file:09}.{kind}").open("w") as out:
            numbers = range(file * per, min(rows, (file + 1) * per))
            out.write(form.head)
            for n in numbers:
                out.write(form.row.format(n=n) + (form.last if n == numbers[-1] else form.end))
    return dump
