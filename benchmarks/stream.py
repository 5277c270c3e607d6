"""Measure a stream from a broker through every stage, then a tenth more, beside the hand-written pipeline."""

from pathlib import Path

from benchmarks import generate
from benchmarks.alone import in_own_process
from benchmarks.form import Bench
from benchmarks.measuring import Ratio, Section, Timing, medians, timed, total
from benchmarks.peers import handwritten
from benchmarks.stages import Place, prepare, run_stages
from benchmarks.topics import Topic, Topics
from cdc_assets.lakehouse.lakehouse import history_tables

_GB = 1_000
_WARM_UP_EVENTS = 2_000
_Round = tuple[list[Timing], Timing, list[Timing], Timing]


def measure(bench: Bench) -> Section:
    """Run rounds of both, each with new topics, lakehouses and tables; which of both is first alternates."""
    form = bench.form
    bench.say(f"{form.events:,} events from a broker, then {form.more:,} more ...")
    first, more = _streams(bench, "stream", form.events, form.more)
    topics = Topics(bench.again("broker"))
    try:
        warm_up = _streams(bench, "warm-up", _WARM_UP_EVENTS, _WARM_UP_EVENTS)
        for number in range(2):
            _round(bench, topics, f"warm-up-{number}", warm_up, ours_first=True)
        rounds = []
        for number in range(form.stream_rounds):
            rounds.append(_round(bench, topics, f"stream-{number}", (first, more), ours_first=number % 2 == 0))
            _tell(bench, rounds[-1])
        alone = _alone(bench, topics, first)
    finally:
        topics.close()
    return _section(bench, rounds, alone, _size(first))


def _streams(bench: Bench, name: str, events: int, more: int) -> tuple[Path, Path]:
    """Return the records of a stream, and the following ones of the same keys and of new keys."""
    paths = (bench.folder / f"{name}-first.jsonl", bench.folder / f"{name}-more.jsonl")
    generate.write(paths[0], events, after=more, into=paths[1])
    return paths


def _round(bench: Bench, topics: Topics, name: str, streams: tuple[Path, Path], *, ours_first: bool) -> _Round:
    topic = topics.create(name, generate.PARTITIONS)
    place = prepare(bench.again(f"{name}-lake"), topic.source(), protocol="canal-json", tidb_extension=True)
    table = bench.again(f"{name}-table")
    taken: list[tuple[list[Timing], Timing]] = []
    for stream, what in zip(streams, ("", " more"), strict=True):
        after = dict(topic.offsets)
        with stream.open() as lines:
            topic.produce(lines)
        if ours_first:
            ours = run_stages(bench.spark, place)
        theirs = _theirs(bench, topic, after, table, f"hand-written{what}")
        if not ours_first:
            ours = run_stages(bench.spark, place)
        taken.append((ours, theirs))
    _compare(bench, place, table)
    (ours, theirs), (ours_more, theirs_more) = taken
    return ours, theirs, ours_more, theirs_more


def _theirs(bench: Bench, topic: Topic, after: dict[int, int], table: Path, name: str) -> Timing:
    return timed(name, lambda: handwritten.run(bench.spark, topic, after, table), bench.spark)


def _compare(bench: Bench, place: Place, table: Path) -> None:
    """Print how many versions each has: the hand-written pipeline has too many of some keys, and lacks others."""
    lake = place.lake(bench.spark)
    cursors = [lake.history(*name).cursor() for name in history_tables(str(place.root), lake.feed)]
    ours = sum(cursor.versions for cursor in cursors if cursor)
    theirs = bench.spark.read.format("delta").load(str(table)).count()
    bench.say(f"  versions: {ours:,}; of the hand-written {theirs:,}")


def _tell(bench: Bench, taken: _Round) -> None:
    ours, theirs, ours_more, theirs_more = taken
    for mine, other in ((ours, theirs), (ours_more, theirs_more)):
        steps = ", ".join(f"{t.name} {t.seconds:.1f}" for t in mine)
        bench.say(f"  {total(mine, '').seconds:.1f} s ({steps}); {other.name} {other.seconds:.1f} s")


def _alone(bench: Bench, topics: Topics, first: Path) -> Timing:
    """Run the stages in a new process, because the benchmark's process holds memory of earlier rounds."""
    topic = topics.create("alone", generate.PARTITIONS)
    with first.open() as lines:
        topic.produce(lines)
    place = prepare(bench.again("alone"), topic.source(), protocol="canal-json", tidb_extension=True)
    return in_own_process(place, "all stages, in a new process")


def _size(recorded: Path) -> tuple[int, int]:
    """Return the number of records, and the bytes of their Kafka values."""
    with recorded.open() as lines:
        sizes = [generate.value_size(line) for line in lines]
    return len(sizes), sum(sizes)


def _section(bench: Bench, rounds: list[_Round], alone: Timing, size: tuple[int, int]) -> Section:
    form, (records, volume) = bench.form, size
    stages, (theirs, theirs_more) = medians([r[0] for r in rounds]), medians([(r[1], r[3]) for r in rounds])
    stages_more = [Timing(f"{t.name}, more", t.seconds, t.cpu_seconds, t.jobs) for t in medians([r[2] for r in rounds])]
    ours, ours_more = total(stages, "all stages"), total(stages_more, "all stages, more")
    return Section(
        "stream",
        f"{form.events:,} events from a broker, then {form.more:,} more",
        f"{records:,} Canal-JSON records of {volume / records:.0f} bytes on average ({volume / 1e6:.0f} MB of Kafka "
        "values): one table of 12 columns, 3 partitions, inserts, updates, deletes, 2 % repeats; then more of them. Memory "
        "is that of the benchmark's whole process, but for the stages in a new one, with the default settings.",
        [*stages, ours, theirs, *stages_more, ours_more, theirs_more, alone],
        [
            Ratio(f"{form.events:,} events, stages / hand-written", ours.seconds / theirs.seconds, 1.5, 1.2),
            Ratio(f"{form.more:,} more, stages / hand-written", ours_more.seconds / theirs_more.seconds, 1.5, 1.2),
            Ratio("peak memory of the driver's JVM there, GB", alone.jvm_mb / _GB, 3),
        ],
    )
