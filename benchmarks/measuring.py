"""Measure what one step took: seconds, processor time, memory, and Spark jobs; compare figures with their limits."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.memory import processor_seconds, watched


@dataclass(frozen=True)
class Timing:
    """What one step took."""

    name: str
    seconds: float
    cpu_seconds: float = 0  # of all processes and cores
    jobs: int | None = None  # that Spark started; None: not counted
    jvm_mb: float = 0
    total_mb: float = 0


@dataclass(frozen=True)
class Ratio:
    """A ratio of two figures, the allowed value, and the intended one."""

    name: str
    value: float
    allowed: float
    aim: float | None = None

    @property
    def verdict(self) -> str:
        """Return whether the ratio is allowed."""
        return "pass" if self.value <= self.allowed else "FAIL"


@dataclass(frozen=True)
class Section:
    """One part of the report: what was measured, and the results."""

    name: str  # as the command has it
    title: str
    text: str
    timings: list[Timing] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)


def jobs_started(spark: SparkSession) -> int:
    """Return the number of jobs that Spark has started since it began, in all sessions and threads.

    The scheduler has this number; the status store keeps only the newest jobs, and learns of them later.
    """
    jobs: int = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()  # noqa: SLF001
    return jobs


def timed(name: str, step: Callable[[], Any], spark: SparkSession | None = None) -> Timing:
    """Run `step`; return its time, the peak memory, and the number of jobs that it started in `spark`."""
    with watched() as peak:
        before = jobs_started(spark) if spark else 0
        cpu, start = processor_seconds(), time.perf_counter()
        step()
        seconds, cpu = time.perf_counter() - start, processor_seconds() - cpu
        jobs = jobs_started(spark) - before if spark else None
    return Timing(name, seconds, cpu, jobs, peak.jvm, peak.total)


def median(timings: Sequence[Timing], name: str | None = None) -> Timing:
    """Return the medians of several runs of one step, but the largest memory."""
    jobs = [t.jobs for t in timings if t.jobs is not None]
    return Timing(
        name or timings[0].name,
        statistics.median(t.seconds for t in timings),
        statistics.median(t.cpu_seconds for t in timings),
        statistics.median_high(jobs) if jobs else None,
        max(t.jvm_mb for t in timings),
        max(t.total_mb for t in timings),
    )


def medians(rounds: Sequence[Sequence[Timing]]) -> list[Timing]:
    """Return the median of each step over several rounds."""
    return [median(same) for same in zip(*rounds, strict=True)]


def total(timings: Sequence[Timing], name: str) -> Timing:
    """Return steps that ran one after the other as one."""
    jobs = [t.jobs for t in timings if t.jobs is not None]
    return Timing(
        name,
        sum(t.seconds for t in timings),
        sum(t.cpu_seconds for t in timings),
        sum(jobs) if jobs else None,
        max(t.jvm_mb for t in timings),
        max(t.total_mb for t in timings),
    )
