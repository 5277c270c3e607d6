"""Measure runs without new records, each in a process of its own, beside a job that does nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.form import Bench
from benchmarks.measuring import Ratio, Section, Timing, median, timed
from cdc_assets.config import load_feeds
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages import STAGES

_REPOSITORY = Path(__file__).parents[1]


def measure(bench: Bench) -> Section:
    """Run the five feeds of the demo once, and then several times without new records."""
    bench.say("Runs without news, each in a new process ...")
    home = bench.again("idle")
    shutil.copytree(_REPOSITORY / "data", home / "data", ignore=shutil.ignore_patterns("lakehouse"))
    shutil.copy(_REPOSITORY / "dagster.yaml", home)
    feeds = load_feeds(home / "data/feeds.yaml").feeds
    for name, feed in feeds.items():
        lake = Lakehouse(lambda: bench.spark, str(home / "lakehouse"), name)
        for stage in STAGES:
            stage.run(lake, feed)
    ours, empty = ("cdc_assets.definitions", "cdc_pipeline"), ("benchmarks.peers.empty_assets", "empty")
    rounds: list[tuple[Timing, Timing]] = []
    for _ in range(bench.form.rounds + 1):  # the first one creates Dagster's database
        pair = [timed(job, lambda m=module, j=job: _execute(home, m, j)) for module, job in (ours, empty)]  # type: ignore[misc]
        bench.say("  " + ", ".join(f"{t.name} {t.seconds:.1f} s" for t in pair))
        rounds.append((pair[0], pair[1]))
    idle = median([a for a, _ in rounds[1:]], f"`dagster job execute`, {len(feeds)} feeds without news")
    nothing = median([b for _, b in rounds[1:]], "`dagster job execute`, 30 empty assets")
    return Section(
        "idle",
        f"{len(feeds)} feeds without news",
        "The demo's feeds, whose records are all taken in. There is no Java where the processes could find it.",
        [_without_memory(idle), _without_memory(nothing)],
        [Ratio("job without news, new process / a job of 30 empty assets", idle.seconds / nothing.seconds, 1.5)],
    )


def _without_memory(t: Timing) -> Timing:
    """Return a timing without memory, because the measured memory is that of the benchmark's own JVM."""
    return Timing(t.name, t.seconds, t.cpu_seconds, 0 if "feeds" in t.name else None)


def _execute(home: Path, module: str, job: str) -> None:
    mine = {
        "CDC_FEEDS": str(home / "data/feeds.yaml"),
        "CDC_LAKEHOUSE": str(home / "lakehouse"),
        "DAGSTER_HOME": str(home),
        # Starting a JVM fails.
        "JAVA_HOME": str(home / "no_java"),
        "CDC_JARS": str(home / "no_jars"),
    }
    command = [sys.executable, "-m", "dagster", "job", "execute", "-m", module, "-j", job]
    done = subprocess.run(command, env=os.environ | mine, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
