"""Run the pipeline in a loop against a broker under load, and kill it and the broker at random; then check the laws.

usage: python -m cdc_assets_tests.soak_broker [--minutes 15] [--seed N]     (what `make soak` runs, too)

The job runs as a user runs it, through the `dagster` command, and is killed with SIGKILL, its JVM and all; so is the broker,
which comes back with what it has on disk. A thread produces all the time. At the end the history tables must be equal, row
for row, to those of one undisturbed run over the same records from files; the soaked tables must obey the conservation law,
and hold each record once. Exit code 0: they are and do.
"""

import argparse
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets.assets.checks.audit import all_events_placed, all_records_decoded, each_record_once
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.spark.session import spark_session
from cdc_assets_tests.broker import Client, TestBroker
from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.soak import PARTITIONS, Instance, chunks, finish, kill
from cdc_assets_tests.support import TOPIC, Record, histories, make_feed

FEEDS = (
    "feeds: {{f: {{protocol: canal-json, tidb_extension: true, "
    "source: {{kafka: {{bootstrap_servers: '{servers}', topics: [{topic}]}}}}}}}}\n"
)


class Load(threading.Thread):
    """Produces the records, evenly over the time; its producer sends again, in order, what a stopped broker refuses."""

    def __init__(self, client: Client, files: list[list[Record]], seconds: float) -> None:
        super().__init__(daemon=True)
        self.client, self.files, self.pause = client, files, seconds / len(files)

    def run(self) -> None:
        for records in self.files:
            self.client.send(records)
            time.sleep(self.pause)


def without_offsets(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    """Return the tables without offsets, because the broker numbers the records itself."""
    return {
        name: sorted(repr({k: v for k, v in r.items() if k != "_cdc_offset"}) for r in rows)
        for name, rows in tables.items()
    }


def compare(spark: SparkSession, soaked: Instance, undisturbed: Instance, records: int) -> list[str]:
    """Return what is wrong with the soaked tables."""
    one, other = (Lakehouse(lambda: spark, str(each.folder / "lake"), "f") for each in (soaked, undisturbed))
    actual, expected = without_offsets(histories(one)), without_offsets(histories(other))
    wrong = [
        f"{name}: other versions" for name in actual.keys() | expected.keys() if actual.get(name) != expected.get(name)
    ]
    feed = make_feed(undisturbed.snapshots, PARTITIONS)
    for verdict in (each_record_once(one), all_records_decoded(one), all_events_placed(one, feed)):
        wrong += [] if verdict.passed else [verdict.description]
    count = one.raw_records.read(spark).count()
    wrong += [] if count == records else [f"{count} records of {records}"]
    try:
        print(f"soaked: {conserved(one, feed)}")
    except AssertionError as error:
        wrong.append(f"conservation: {error}")
    print(", ".join(f"{name}: {len(rows)} versions" for name, rows in expected.items()))
    return wrong


def main() -> int:
    """Soak, compare, and print the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    rng = random.Random(given.seed)
    print(f"seed {given.seed}, {given.minutes:g} minutes", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="cdc-soak-broker-"))
    files = [list({(r["partition"], r["offset"]): r for r in f}.values()) for f in chunks(rng, int(given.minutes * 12))]
    seen: set[tuple[int, int]] = set()
    for file in files:  # without the repeats across files, to which the broker would give new offsets
        file[:] = [r for r in file if (r["partition"], r["offset"]) not in seen]
        seen |= {(r["partition"], r["offset"]) for r in file}
    records = sum(map(len, files))
    undisturbed, soaked = Instance(folder / "undisturbed"), Instance(folder / "soaked")
    undisturbed.add(0, [r for file in files for r in file])
    undisturbed_seconds = undisturbed.run()
    print(f"undisturbed: {records} records in {undisturbed_seconds:.1f} s", flush=True)
    spark = spark_session(
        {"spark.master": "local[1]", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    )
    broker = TestBroker(folder / "broker")
    try:
        client = Client(spark, broker)
        client.create(TOPIC, PARTITIONS)
        (soaked.folder / "feeds.yaml").write_text(FEEDS.format(servers=broker.servers, topic=TOPIC))
        load, end = Load(client, files, given.minutes * 60), time.monotonic() + given.minutes * 60
        load.start()
        while time.monotonic() < end:
            job, what = soaked.start(), rng.choice(["job", "job", "broker", "nothing"])
            if what == "broker":
                time.sleep(rng.uniform(0.2, 0.8) * undisturbed_seconds)
                broker.kill()
                time.sleep(rng.uniform(0, 5))
                broker.start()
            outcome = kill(job, rng.uniform(0.25, 1.0) * undisturbed_seconds if what == "job" else 600)
            print(f"{end - time.monotonic():5.0f} s left: {what} to be killed, the job {outcome}", flush=True)
        load.join(300)
        for _ in range(2):  # the first one continues what a killed run has planned
            print(f"last runs: {soaked.run():.1f} s", flush=True)
        wrong = compare(spark, soaked, undisturbed, records)
    finally:
        broker.kill()
    return finish(wrong, given.seed, folder)


if __name__ == "__main__":
    raise SystemExit(main())
