"""Measure what the driver needs for many events on a standalone cluster, which must not grow with their number.

python -m benchmarks.cluster MASTER FOLDER     (a folder that `benchmarks.stages.prepare` made): the driver's
process
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import generate
from benchmarks.form import Bench
from benchmarks.measuring import Ratio, Section, Timing, total
from benchmarks.stages import Place, prepare, run_stages
from cdc_assets.spark.session import spark_session
from cdc_assets.stores.storage import Store
from cdc_assets_tests.cluster import Standalone

_GB = 1_000
_ALLOWED_GB = 2
_WORKER_MEMORY = "5g"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "4g",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
}


@dataclass(frozen=True)
class Passed:
    """What one driver measured.

    Attributes:
        stages: each stage, with what the driver's process, its JVM and its Python, used.
        versions: the versions of the history.
    """

    stages: list[Timing]
    versions: int


def measure(bench: Bench) -> Section | None:
    """Process all events in one run, by a driver in a process of its own, on two executors of one core."""
    events = bench.form.cluster
    if events is None:
        return None
    bench.say(f"{events:,} events on a cluster ...")
    place = prepare(bench.again("on-cluster"))
    generate.write(place.snapshots / "0.jsonl", events)
    cluster = Standalone(bench.again("cluster"), worker_memory=_WORKER_MEMORY)
    try:
        passed = _driven(cluster.master, place)
    finally:
        cluster.stop()
    all_stages = total(passed.stages, "all stages")
    bench.say(
        f"  {all_stages.seconds:.0f} s, {passed.versions:,} versions; the driver's JVM {all_stages.jvm_mb:.0f} MB"
    )
    return Section(
        "cluster",
        f"{events:,} events in one run on a standalone cluster",
        "A master and two workers of one core, as processes of their own; CPU seconds and memory are the driver's, "
        "without the executors'. Recorded files of the same stream as in `stream`.",
        [*passed.stages, all_stages],
        [Ratio("peak memory of the driver, its JVM and Python, GB", all_stages.total_mb / _GB, _ALLOWED_GB)],
    )


def _driven(master: str, place: Place) -> Passed:
    command = [sys.executable, "-m", "benchmarks.cluster", master, str(place.folder)]
    cwd = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    return Passed([Timing(**each) for each in measured["stages"]], measured["versions"])


def main() -> None:
    """Run the stages, and print what they took."""
    master, place = sys.argv[1], Place(Path(sys.argv[2]))
    spark = spark_session({"spark.master": master, **_SETTINGS}, Store(locations=(str(place.root),)))
    stages = run_stages(spark, place)
    history = place.lake(spark).history("bench", "orders").cursor()
    spark.stop()
    print(json.dumps({"stages": [asdict(each) for each in stages], "versions": history.versions if history else 0}))


if __name__ == "__main__":
    main()
