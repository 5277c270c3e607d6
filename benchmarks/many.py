"""Measure a feed of many tables of which a small number is touched, beside a feed of these tables alone."""

from benchmarks.changes import CHANGES, Changes
from benchmarks.form import Bench
from benchmarks.measuring import Ratio, Section, Timing, median, total
from benchmarks.stages import Place, prepare, run_job, run_stages

_TOUCHED = 5
_AT_ONCE = 100  # tables made in one run


def measure(bench: Bench) -> Section | None:
    """Make the tables of both feeds, then touch the same tables in both, in turn."""
    if bench.form.many is None:
        return None
    bench.say(f"A feed of {bench.form.many} tables, {_TOUCHED} of them touched ...")
    feeds = {n: (prepare(bench.again(f"{n}-tables")), Changes(n)) for n in (bench.form.many, _TOUCHED)}
    for place, changes in feeds.values():
        for first in range(0, changes.tables, _AT_ONCE):
            changes.write(place.snapshots, range(first, min(first + _AT_ONCE, changes.tables)))
            run_stages(bench.spark, place)
            bench.say(f"  {min(first + _AT_ONCE, changes.tables)} of {changes.tables} tables made")
    jobs: dict[int, list[Timing]] = {n: [] for n in feeds}
    stages: dict[int, list[Timing]] = {n: [] for n in feeds}
    for number in range(bench.form.warm_up + bench.form.rounds):
        for n, (place, changes) in feeds.items():
            job, alone = _run(bench, place, changes, f"{_TOUCHED} of {n} tables")
            if number >= bench.form.warm_up:
                jobs[n].append(job)
                stages[n].append(alone)
    many, touched = (median(jobs[n]) for n in feeds)
    many_stages, touched_stages = (median(stages[n]) for n in feeds)
    return Section(
        "many",
        f"{_TOUCHED} of {bench.form.many} tables touched",
        f"{CHANGES} changes to each of {_TOUCHED} tables, of a feed that has {bench.form.many} and of one that has no "
        "others: the job as Dagster runs it, checks included, and the stages alone.",
        [many, touched, many_stages, touched_stages],
        [
            Ratio(
                f"{_TOUCHED} of {bench.form.many} tables / of {_TOUCHED}, job",
                many.seconds / touched.seconds,
                1.2,
            ),
            Ratio("the same, stages alone", many_stages.seconds / touched_stages.seconds, 1.2),
        ],
    )


def _run(bench: Bench, place: Place, changes: Changes, name: str) -> tuple[Timing, Timing]:
    """Run one step through the job, and the next one through the stages."""
    changes.write(place.snapshots, range(_TOUCHED))
    job, _ = run_job(bench.spark, place, f"{name}, job")
    changes.write(place.snapshots, range(_TOUCHED))
    stages = total(run_stages(bench.spark, place), f"{name}, stages alone")
    bench.say(f"  {name}: job {job.seconds:.2f} s, stages {stages.seconds:.2f} s")
    return job, stages
