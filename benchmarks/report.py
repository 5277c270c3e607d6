"""The figures as a table, printed and kept below benchmarks/results/ as Markdown and JSON."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.stages import Timing

MAX_BIG, MAX_SMALL = 2.0, 15.0
# Debezium's messages are larger by their schema, of which little is read.
MAX_DECODE = {"open-protocol": 1.5, "simple, JSON": 1.5, "debezium": 1.0}
# Avro's messages are half as large as JSON's, with the same events.
MAX_AVRO = 1.0
_PACKAGES = ("pyspark", "delta-spark", "dagster")


@dataclass(frozen=True)
class Measured:
    """The whole stream: its stages, and the floors."""

    records: int
    size: int  # bytes of Kafka values
    stages: list[Timing]
    floors: list[Timing]

    def step(self, name: str) -> Timing:
        """The stage or the floor of that name."""
        return next(t for t in self.stages + self.floors if t.name == name)


@dataclass(frozen=True)
class Decoded:
    """The stream in one protocol, up to its change events."""

    protocol: str
    records: int
    size: int  # bytes of Kafka values
    ingest: Timing
    decode: Timing

    @property
    def mb_per_second(self) -> float:
        """How much is decoded in a second."""
        return self.size / 1e6 / self.decode.seconds

    @property
    def records_per_second(self) -> float:
        """How many records are decoded in a second."""
        return self.records / self.decode.seconds


@dataclass(frozen=True)
class SmallRun:
    """The job on 100 new records, and three plain appends."""

    job: Timing
    appends: Timing
    runs: int


@dataclass(frozen=True)
class Bar:
    """What a figure must not exceed."""

    name: str
    ratio: float
    allowed: float

    @property
    def verdict(self) -> str:
        """Whether it does."""
        return "pass" if self.ratio <= self.allowed else "FAIL"


def write_report(
    folder: Path, measured: Measured, small: SmallRun, protocols: list[Decoded], session_seconds: float
) -> None:
    """Print the report, and write it to `<date>.md` and `<date>.json`."""
    now = datetime.now(UTC)
    bars = _bars(measured, small, protocols)
    text = _markdown(now, measured, small, protocols, bars, session_seconds)
    print("\n" + text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{now:%Y-%m-%d}.md").write_text(text)
    everything = {
        "at": now.isoformat(timespec="seconds"),
        "machine": _machine(),
        "session_seconds": session_seconds,
        "stream": asdict(measured),
        "small_run": asdict(small),
        "protocols": [asdict(p) | {"mb_per_second": p.mb_per_second} for p in protocols],
        "bars": [asdict(bar) | {"verdict": bar.verdict} for bar in bars],
    }
    (folder / f"{now:%Y-%m-%d}.json").write_text(json.dumps(everything, indent=1) + "\n")


def _bars(measured: Measured, small: SmallRun, protocols: list[Decoded]) -> list[Bar]:
    both = measured.step("ingest").seconds + measured.step("decode").seconds
    canal, *others = protocols
    by_name = {p.protocol: p for p in others}
    avro, as_json = by_name["simple, Avro"], by_name["simple, JSON"]
    return [
        Bar(
            "ingest + decode, against reading, parsing and appending",
            both / measured.step("parse + append").seconds,
            MAX_BIG,
        ),
        Bar(
            "the job on 100 new records, against three plain appends",
            small.job.seconds / small.appends.seconds,
            MAX_SMALL,
        ),
        *[
            Bar(
                f"decoding {p.protocol}, by the MB, against Canal-JSON",
                canal.mb_per_second / p.mb_per_second,
                MAX_DECODE[p.protocol],
            )
            for p in others
            if p.protocol in MAX_DECODE
        ],
        Bar(
            "decoding simple in Avro, by the event, against JSON",
            as_json.records_per_second / avro.records_per_second,
            MAX_AVRO,
        ),
    ]


def _machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "load": round(os.getloadavg()[1], 1),
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
    }


def _markdown(
    now: datetime,
    measured: Measured,
    small: SmallRun,
    protocols: list[Decoded],
    bars: list[Bar],
    session_seconds: float,
) -> str:
    machine = _machine()
    packages = ", ".join(f"{package} {machine[package]}" for package in _PACKAGES)
    total = Timing(
        "all stages",
        sum(t.seconds for t in measured.stages),
        sum(t.cpu_seconds for t in measured.stages),
        max(t.jvm_mb for t in measured.stages),
        max(t.total_mb for t in measured.stages),
    )
    small_steps = [
        ("`cdc_pipeline` in Dagster, checks included", small.job),
        ("three plain Delta appends", small.appends),
    ]
    return "\n".join(
        [
            f"# Benchmark, {now:%Y-%m-%d %H:%M} UTC",
            "",
            f"{machine['cores']} cores, {machine['memory_gb']} GB of memory; Python {machine['python']}, {packages}.",
            f"The machine's load over the five minutes before the end: {machine['load']}.",
            "",
            f"{measured.records:,} Canal-JSON records of {measured.size / measured.records:.0f} bytes on average",
            f"({measured.size / 1e6:.0f} MB of Kafka values): 12 columns, 3 partitions, inserts, updates, deletes, repeats.",
            f"One process and one Spark session (its start, {session_seconds:.1f} s, is in no figure), warmed up on another",
            "stream; every figure is the best of several rounds. CPU seconds are those of all cores and processes.",
            "",
            "| step | seconds | CPU s | events/s | MB/s | peak JVM MB | peak MB, Python too |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *[_row(t, measured) for t in [*measured.stages, total]],
            *[_row(t, measured) for t in measured.floors],
            "",
            "Floors: *parse* reads the same recorded file, undoes its base64 and parses every message with one `from_json`",
            "into maps, into `noop`; *parse + append* appends that to a Delta table. *plain* is the same from a file that",
            "holds the bare messages, without the recording's own JSON and base64.",
            "",
            f"The best of {small.runs} runs of the whole job on 100 new records, into the tables that hold the stream:",
            "",
            "| step | seconds | CPU s |",
            "|---|---:|---:|",
            *[f"| {name} | {t.seconds:.2f} | {t.cpu_seconds:.1f} |" for name, t in small_steps],
            "",
            "The same events in each protocol:",
            "",
            "| protocol | records | MB | ingest s | decode s | decode CPU s | decode MB/s | records/s |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            *[
                f"| {p.protocol} | {p.records:,} | {p.size / 1e6:.0f} | {p.ingest.seconds:.1f} | {p.decode.seconds:.1f} | "
                f"{p.decode.cpu_seconds:.1f} | {p.mb_per_second:.0f} | {p.records_per_second:,.0f} |"
                for p in protocols
            ],
            "",
            "| bar | measured | allowed | |",
            "|---|---:|---:|---|",
            *[f"| {bar.name} | {bar.ratio:.2f}x | {bar.allowed:g}x | {bar.verdict} |" for bar in bars],
            "",
        ]
    )


def _row(t: Timing, measured: Measured) -> str:
    return (
        f"| {t.name} | {t.seconds:.2f} | {t.cpu_seconds:.1f} | {measured.records / t.seconds:,.0f} "
        f"| {measured.size / 1e6 / t.seconds:.1f} | {t.jvm_mb:,.0f} | {t.total_mb:,.0f} |"
    )
