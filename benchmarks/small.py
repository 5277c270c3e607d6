"""Measure small runs: 50 changes to one table, to a wide one, to each of several; beside plain appends and MERGEs."""

from collections.abc import Sequence

from benchmarks.changes import CHANGES, Change, Changes
from benchmarks.form import THREADS, Bench
from benchmarks.measuring import Ratio, Section, Timing, median, medians, timed, total
from benchmarks.peers import plain
from benchmarks.stages import Place, prepare, run_job, run_stages

_APPENDS = 10
_WIDE = 200


class _Case:
    """A feed of tables, run in steps with `CHANGES` to each."""

    def __init__(self, bench: Bench, name: str, changes: Changes) -> None:
        self.bench, self.name, self.changes = bench, name, changes
        self.place: Place = prepare(bench.again(name))
        self.jobs: list[Timing] = []
        self.histories: list[Timing] = []
        self.stages: list[list[Timing]] = []
        self.new_changes: list[Change] = []

    def run(self, *, counted: bool) -> None:
        """Run the next step through the job, and the one after it through the stages, each timed."""
        self.new_changes = self.changes.write(self.place.snapshots)
        job, history = run_job(self.bench.spark, self.place, f"{self.name}, job")
        self.changes.write(self.place.snapshots)
        stages = run_stages(self.bench.spark, self.place)
        self.bench.say(
            f"  {job.name}: {job.seconds:.2f} s, of which history {history.seconds:.2f} s, {job.jobs} Spark jobs"
        )
        if counted:
            self.jobs.append(job)
            self.histories.append(history)
            self.stages.append(stages)

    def idle(self) -> Timing:
        """Run the job without new records."""
        return run_job(self.bench.spark, self.place, f"{self.name}, job without news")[0]

    def lines(self) -> list[Timing]:
        """Return the timings of the runs."""
        steps = medians(self.stages)
        step_timings = [Timing(f"{self.name}, {t.name}", t.seconds, t.cpu_seconds, t.jobs) for t in steps]
        return [median(self.jobs), median(self.histories), *step_timings, total(steps, f"{self.name}, all stages")]


def measure(bench: Bench) -> Section:
    """Run the steps of all cases in turn."""
    tables, rounds = bench.form.tables, bench.form.rounds
    bench.say(f"Small runs: {CHANGES} changes to 1 table of 12 columns, 1 of {_WIDE}, {tables} of 12 ...")
    one = _Case(bench, "1 table", Changes())
    wide = _Case(bench, f"{_WIDE} columns", Changes(columns=_WIDE))
    several = _Case(bench, f"{tables} tables", Changes(tables))
    appends: list[Timing] = []
    merges: list[Timing] = []
    idle: list[Timing] = []
    for number in range(bench.form.warm_up + rounds):
        counted = number >= bench.form.warm_up
        for case in (one, wide, several):
            case.run(counted=counted)
        appended = _appends(bench, one.new_changes)
        merged = _merges(bench, one.new_changes, tables)
        empty = one.idle()
        if counted:
            appends.append(appended)
            merges.append(merged)
            idle.append(empty)
    return _section(bench, [one, wide, several], median(appends), median(merges), median(idle))


def _appends(bench: Bench, changes: Sequence[Change]) -> Timing:
    rows, path = plain.change_rows(bench.spark, changes), bench.folder / "appends"

    def ten() -> None:
        for _ in range(_APPENDS):
            plain.append(rows, path)

    return timed(f"{_APPENDS} plain appends", ten, bench.spark)


def _merges(bench: Bench, changes: Sequence[Change], tables: int) -> Timing:
    spark, rows = bench.spark, plain.version_rows(bench.spark, changes)
    paths = [bench.folder / "merges" / str(number) for number in range(tables)]
    for path in paths:
        if not path.exists():
            plain.create(spark, path, list(changes[0].row))
    name = f"plain MERGEs into {tables} tables, {THREADS} threads"
    return timed(name, lambda: plain.in_threads(lambda path: plain.merge(spark, path, rows), paths), spark)


def _section(bench: Bench, cases: list[_Case], appends: Timing, merges: Timing, idle: Timing) -> Section:
    one, wide, _ = cases
    tables = bench.form.tables
    history, of_wide, of_several = (median(case.histories).seconds for case in cases)
    further = (of_several - history) / (tables - 1)
    per_append, per_merge = appends.seconds / _APPENDS, merges.seconds / tables
    timings = [line for case in cases for line in case.lines()]
    timings += [
        idle,
        appends,
        merges,
        Timing("each further table, history", further),
        Timing("a plain MERGE", per_merge),
    ]
    job = median(one.jobs).seconds
    return Section(
        "small",
        f"{CHANGES} changes to each table",
        f"The job as Dagster runs it in the process, checks included, and after it the stages alone on {CHANGES} more; "
        f"beside them {_APPENDS} plain Delta appends of the same rows, and their plain MERGE into tables of versions.",
        timings,
        [
            Ratio("50 changes to a table of 12 columns, job / a plain append", job / per_append, 10, 8),
            Ratio("the same with 200 columns, job / 12 columns", median(wide.jobs).seconds / job, 2),
            Ratio("the same with 200 columns, history / 12 columns", of_wide / history, 2),
            Ratio("each further table / a plain MERGE of the same rows", further / per_merge, 1.5),
            Ratio("job without news in a running process / a plain append", idle.seconds / per_append, 1),
        ],
    )
