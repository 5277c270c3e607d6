"""`make bench`: every stage on a generated stream, beside what the same bytes cost without the pipeline's care.

Everything runs in one process and one Spark session, after a warm-up on a stream of its own, so that neither the
session's start nor the loading and first compilation of classes is in the numbers. Each figure is the best of several:
on a shared machine other processes slow down single runs, never speed them up.
"""

import argparse
import base64
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks import debezium, floors, generate, open_protocol, simple
from benchmarks.report import Decoded, Measured, SmallRun, write_report
from benchmarks.small import small_runs
from benchmarks.stages import Place, Timing, prepare, run_decoding, run_stages, timed
from cdc_assets.session import spark_session

WARM_UP_EVENTS = 20_000
# What the tables hold before the stream is measured: they exist, as in every run but the first.
EARLIER_EVENTS = 1_000
# The generated Canal-JSON lines, from an offset on, in other protocols; and the feed's settings for each.
_Translation = Callable[[Iterable[str], int], Iterator[str]]
OTHERS: dict[str, tuple[_Translation, dict[str, str]]] = {
    "open-protocol": (open_protocol.translate, {"protocol": "open-protocol"}),
    "simple, JSON": (simple.json_lines, {"protocol": "simple"}),
    "simple, Avro": (simple.avro_lines, {"protocol": "simple", "encoding": "avro"}),
    "debezium": (debezium.translate, {"protocol": "debezium"}),
}
_LATER_MS, _LATER_OFFSET, _LATER_ID = 10_000_000, 1_000_000, 1_000_000


@dataclass(frozen=True)
class _Work:
    """The folder that everything is written to, and the session."""

    folder: Path
    spark: SparkSession

    def again(self, name: str) -> Path:
        """The folder `name` in it, empty."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path


def main() -> None:
    """Measure, print, and write to benchmarks/results/."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000, help="row events of the generated stream")
    parser.add_argument("--rounds", type=int, default=3, help="how often the whole stream is run")
    parser.add_argument("--small-runs", type=int, default=5, help="how often 100 new records are run")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    started = time.perf_counter()
    spark = spark_session()
    session_seconds = time.perf_counter() - started
    folder = Path(tempfile.mkdtemp(prefix="cdc-bench-"))
    try:
        work = _Work(folder, spark)
        _say(f"Session started in {session_seconds:.1f} s. Warming up on {WARM_UP_EVENTS:,} events ...")
        _warm_up(work)
        measured, place = _big_run(work, options.events, options.rounds)
        small = _small_run(work, place, options.small_runs)
        canal = Decoded("canal-json", measured.records, measured.size, measured.step("ingest"), measured.step("decode"))
        others = [_other_protocol(work, name, options.rounds) for name in OTHERS]
        write_report(options.results, measured, small, [canal, *others], session_seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()


def _say(line: str) -> None:
    print(line, flush=True)


def _warm_up(work: _Work) -> None:
    """Run everything that is measured, twice, on a small stream."""
    place = prepare(work.again("warm-up"))
    last = 0
    for name, events in (("first", WARM_UP_EVENTS), ("second", WARM_UP_EVENTS // 2), ("third", 100)):
        file = place.snapshots / f"{name}.jsonl"
        generate.write(file, events, after_ms=last, offsets=[last] * generate.PARTITIONS)
        last += 10_000_000
        run_stages(work.spark, place)
        _floors(work, file, _messages(file, work.folder / "warm-up.txt"))


def _big_run(work: _Work, events: int, rounds: int) -> tuple[Measured, Place]:
    """The stream through the stages, and the floors between, `rounds` times; the lakehouse of the last round stays."""
    recorded = work.folder / "stream.jsonl"
    generate.write(recorded, events, after_ms=_LATER_MS, offsets=[_LATER_OFFSET] * 3, first_id=_LATER_ID)
    generate.write(work.folder / "earlier.jsonl", EARLIER_EVENTS)
    plain = _messages(recorded, work.folder / "stream.txt")
    records, size = _size(recorded)
    _say(f"{records:,} records of {size / records:.0f} bytes on average ({size / 1e6:.0f} MB of values).")
    stages: list[list[Timing]] = []
    floor: list[list[Timing]] = []
    for number in range(1, rounds + 1):
        place = _with_tables(work, prepare(work.again("big")), work.folder / "earlier.jsonl")
        shutil.copy(recorded, place.snapshots / recorded.name)
        floor.append(_floors(work, recorded, plain))
        stages.append(run_stages(work.spark, place))
        _say(f"Round {number} of {rounds}: " + ", ".join(f"{t.name} {t.seconds:.1f} s" for t in floor[-1] + stages[-1]))
    return Measured(records, size, _best(stages), _best(floor)), place


def _with_tables(work: _Work, place: Place, earlier: Path) -> Place:
    """A place whose tables hold a few events already."""
    shutil.copy(earlier, place.snapshots / "earlier.jsonl")
    run_stages(work.spark, place)
    return place


def _other_protocol(work: _Work, protocol: str, rounds: int) -> Decoded:
    """The same events in another protocol, through the stages that differ."""
    translate, settings = OTHERS[protocol]
    recorded = work.folder / f"{protocol}.jsonl"
    earlier = work.folder / f"{protocol}-earlier.jsonl"
    for source, file, offset in (("stream", recorded, _LATER_OFFSET), ("earlier", earlier, 0)):
        with (work.folder / f"{source}.jsonl").open() as lines, file.open("w") as out:
            out.writelines(line + "\n" for line in translate(lines, offset))
    records, size = _size(recorded)
    timings = []
    for _ in range(rounds + 1):  # the first warms up what only this protocol runs
        place = _with_tables(work, prepare(work.again(protocol), **settings), earlier)
        shutil.copy(recorded, place.snapshots / recorded.name)
        timings.append(run_decoding(work.spark, place))
    ingest, decode = _best(timings[1:])
    _say(f"{protocol}: ingest {ingest.seconds:.1f} s, decode {decode.seconds:.1f} s.")
    return Decoded(protocol, records, size, ingest, decode)


def _best(rounds: list[list[Timing]]) -> list[Timing]:
    """Of each step the fastest time, and the most memory."""
    return [
        Timing(
            same[0].name,
            min(t.seconds for t in same),
            min(t.cpu_seconds for t in same),
            max(t.jvm_mb for t in same),
            max(t.total_mb for t in same),
        )
        for same in zip(*rounds, strict=True)
    ]


def _floors(work: _Work, recorded: Path, plain: Path) -> list[Timing]:
    spark = work.spark

    def appended(rows: DataFrame, into: str) -> Callable[[], None]:
        return lambda: floors.append(rows, work.folder / into)

    return [
        timed("parse", lambda: floors.discard(floors.recorded(spark, recorded))),
        timed("parse + append", appended(floors.recorded(spark, recorded), "floor")),
        timed("plain parse", lambda: floors.discard(floors.plain(spark, plain))),
        timed("plain parse + append", appended(floors.plain(spark, plain), "plain-floor")),
    ]


def _messages(recorded: Path, into: Path) -> Path:
    """The messages of a recorded file alone, one a line, without the recording's JSON and base64 around them."""
    with recorded.open() as lines, into.open("wb") as out:
        for line in lines:
            out.write(base64.b64decode(json.loads(line)["value"]) + b"\n")
    return into


def _size(recorded: Path) -> tuple[int, int]:
    """Records, and bytes of their Kafka values."""
    sizes = [len(base64.b64decode(json.loads(line)["value"])) for line in recorded.open()]
    return len(sizes), sum(sizes)


def _small_run(work: _Work, place: Place, runs: int) -> SmallRun:
    """100 new records through the job, into the lakehouse that holds the stream, against three plain appends."""
    _say(f"{runs} runs of the job on 100 new records ...")
    pairs = small_runs(work.spark, place, work.folder, runs)
    for job, appends in pairs:
        _say(f"  job {job.seconds:.2f} s, three plain appends {appends.seconds:.2f} s")
    jobs, appends = _best([[job, appends] for job, appends in pairs])
    return SmallRun(jobs, appends, runs)


if __name__ == "__main__":
    main()
