"""Kill the pipeline at random moments, run it again each time, and compare the end with an undisturbed run.

usage: python -m cdc_assets_tests.soak [--kills 30] [--seed N]     (what `make soak` runs)

The job runs as a user runs it, through the `dagster` command, and is killed with SIGKILL, with its JVM. Before each
start a snapshot file is added, and sometimes one that repeats records. At the end the history tables must be equal,
row for row, to those of one undisturbed run over all files, and the soaked tables must obey the conservation law.
Exit code 0: both are true.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.spark.session import spark_session
from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.support import Record, Rows, Stream, ddl, histories, make_feed, tso

ROOT = Path(__file__).parents[1]
COMMAND = [
    str(Path(sys.executable).with_name("dagster")),
    "job", "execute", "-m", "cdc_assets.definitions", "-j", "cdc_pipeline",
]  # fmt: skip
FEEDS = "feeds: {f: {protocol: canal-json, tidb_extension: true, source: {recorded: snapshots, partitions: 3}}}\n"
PARTITIONS = 3
TABLES = {"orders": Rows(), "customers": Rows(table="customers")}


def chunks(rng: random.Random, count: int) -> list[list[Record]]:
    """Return a stream over two tables, cut into files: changes, moving keys, duplicates, watermarks."""
    it = Stream(PARTITIONS)
    present: dict[tuple[str, int], str | None] = {}
    at = 0
    for table in TABLES:
        at += 1
        it.send(ddl(f"CREATE TABLE `shop`.`{table}` (`id` BIGINT PRIMARY KEY,`v` VARCHAR(20))", tso(at), table=table))
    ends = []
    for _ in range(count):
        for _ in range(rng.randint(3, 12)):
            at += 1
            table, key = rng.choice(list(TABLES)), rng.randint(1, 12)
            _change(rng, it, present, (table, key), at)
        if rng.random() < 0.7:
            at += 1
            it.watermark(tso(at))
        if rng.random() < 0.3:
            it.send(b"{ no message", rng.randrange(PARTITIONS))
        ends.append(len(it.records))
    it.watermark(tso(at + 1))
    ends[-1] = len(it.records)
    files = [it.records[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    for n, file in enumerate(files[1:], start=1):
        if rng.random() < 0.3:
            file.extend(rng.sample(files[n - 1], min(3, len(files[n - 1]))))
    return files


def _change(
    rng: random.Random, it: Stream, present: dict[tuple[str, int], str | None], place: tuple[str, int], at: int
) -> None:
    """Change one key by a record, or by two in one transaction; the producer sends some twice."""
    rows, key = TABLES[place[0]], place[1]
    v = rng.choice(["a", "b", "c", None])
    free = [k for k in range(1, 13) if (place[0], k) not in present]
    if place not in present:
        messages = [rows.insert(tso(at), key, v)]
        present[place] = v
    elif rng.random() < 0.2:
        messages = [rows.delete(tso(at), key, present.pop(place))]
    elif rng.random() < 0.3 and free:
        moved = rng.choice(free)
        old = present.pop(place)
        messages = [rows.delete(tso(at), key, old), rows.insert(tso(at), moved, v)]
        present[place[0], moved] = v
    else:
        messages = [rows.update(tso(at), key, v, present[place])]
        present[place] = v
    for message in messages:
        partition = int(message["data"][0]["id"]) % PARTITIONS
        for _ in range(1 + (rng.random() < 0.1)):
            it.send(message, partition)


class Instance:
    """A feeds file, a lakehouse and a Dagster instance of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.snapshots = folder / "snapshots"
        self.snapshots.mkdir(parents=True)
        (folder / "home").mkdir()
        shutil.copy(ROOT / "dagster.yaml", folder / "home/dagster.yaml")
        (folder / "feeds.yaml").write_text(FEEDS)
        self.log = folder / "job.log"

    def add(self, number: int, records: list[Record]) -> None:
        """Add a snapshot file by a rename, as a recorder does."""
        unfinished = self.snapshots / f"{number:04}.tmp"
        unfinished.write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
        unfinished.rename(self.snapshots / f"{number:04}.jsonl")

    def start(self) -> subprocess.Popen[bytes]:
        """Start the job, in a process group of its own."""
        env = os.environ | {
            "CDC_FEEDS": str(self.folder / "feeds.yaml"),
            "CDC_LAKEHOUSE": str(self.folder / "lake"),
            "DAGSTER_HOME": str(self.folder / "home"),
        }
        with self.log.open("wb") as log:
            return subprocess.Popen(
                COMMAND, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def run(self) -> float:
        """Run the job to its end; return the seconds."""
        began = time.monotonic()
        code = self.start().wait()
        if code:
            raise SystemExit(f"the job failed with exit code {code}:\n{self.log.read_text(errors='replace')[-4000:]}")
        return time.monotonic() - began


def kill(job: subprocess.Popen[bytes], seconds: float) -> str:
    """Kill the process group after a number of seconds; return what happened."""
    try:
        code = job.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        return "killed"
    return "had ended" if code == 0 else f"had failed ({code})"


def compare(soaked: Instance, undisturbed: Instance) -> list[str]:
    """Return what is wrong with the soaked tables."""
    spark = spark_session({"spark.sql.shuffle.partitions": "2"})
    lakes = [Lakehouse(lambda: spark, str(instance.folder / "lake"), "f") for instance in (soaked, undisturbed)]
    of_lakes: list[dict[str, list[dict[str, Any]]]] = [histories(lake) for lake in lakes]
    wrong = (
        [f"tables {sorted(of_lakes[0])}, not {sorted(of_lakes[1])}"] if of_lakes[0].keys() != of_lakes[1].keys() else []
    )
    for name, rows in of_lakes[1].items():
        if of_lakes[0].get(name) != rows:
            wrong.append(
                f"{name}: {len(of_lakes[0].get(name, []))} versions that are not the {len(rows)} undisturbed ones"
            )
        print(f"{name}: {len(rows)} versions")
    try:
        counts = [conserved(lake, make_feed(soaked.snapshots, PARTITIONS)) for lake in lakes]
    except AssertionError as error:
        return [*wrong, f"conservation: {error}"]
    print(f"soaked: {counts[0]}\nundisturbed: {counts[1]}")
    if (counts[0].records, counts[0].undecodable) != (counts[1].records, counts[1].undecodable):
        wrong.append("other records were taken in")
    return wrong


def finish(wrong: list[str], seed: int, folder: Path) -> int:
    """Print the result, and return the exit status; after a failure the folder stays."""
    for line in wrong:
        print(f"WRONG: {line}")
    if wrong:
        print(f"FAILED with seed {seed}; everything is in {folder}")
        return 1
    shutil.rmtree(folder)
    print("PASSED: the soaked history tables equal the undisturbed ones, row for row")
    return 0


def main() -> int:
    """Soak, compare, and print the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    rng = random.Random(given.seed)
    print(f"seed {given.seed}, {given.kills} kills", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="cdc-soak-"))
    undisturbed, soaked = Instance(folder / "undisturbed"), Instance(folder / "soaked")
    files = chunks(rng, given.kills)
    for number, records in enumerate(files):
        undisturbed.add(number, records)
    undisturbed_seconds = undisturbed.run()
    print(f"undisturbed: {sum(map(len, files))} lines in {undisturbed_seconds:.1f} s", flush=True)
    for number, records in enumerate(files):
        soaked.add(number, records)
        # The first third of a run only starts processes, and hardly anything can go wrong there.
        seconds = rng.uniform(0.25, 1.0) * undisturbed_seconds
        what = kill(soaked.start(), seconds)
        print(f"{number + 1:>3} of {given.kills}: after {seconds:4.1f} s {what}", flush=True)
        if what.startswith("had failed"):
            print(soaked.log.read_text(errors="replace")[-4000:])
            return 1
    print(f"last run: {soaked.run():.1f} s", flush=True)
    wrong = compare(soaked, undisturbed)
    return finish(wrong, given.seed, folder)


if __name__ == "__main__":
    sys.exit(main())
