"""Run every stage of a feed once, in a process of its own with default settings, to measure the memory of a run.

python -m benchmarks.alone FOLDER     (a folder that `benchmarks.stages.prepare` made)
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.measuring import Timing, total
from benchmarks.stages import Place, run_stages
from cdc_assets.spark.session import spark_session


def in_own_process(place: Place, name: str) -> Timing:
    """Run the stages over a place in a process of its own, and return what they took."""
    command = [sys.executable, "-m", "benchmarks.alone", str(place.folder)]
    cwd = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True)
    timing_fields = json.loads(done.stdout.splitlines()[-1])
    return Timing(**timing_fields | {"name": name})


def main() -> None:
    """Run the stages, and print what they took."""
    spark = spark_session()
    taken = total(run_stages(spark, Place(Path(sys.argv[1]))), "all stages")
    spark.stop()
    print(json.dumps(asdict(taken)))


if __name__ == "__main__":
    main()
