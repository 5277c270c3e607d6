"""Compare histories with their source, live: MariaDB, Debezium or Canal, a broker and the pipeline under a seeded load.

usage: python -m cdc_assets_tests.live [--reader debezium|canal] [--minutes 60] [--seed N] [--keep FOLDER]
(`make soak` runs it)

A grammar of DDL and DML changes the tables of a real MariaDB, in several sessions. A real Debezium or Canal sends the
changes to a real broker; it is killed and moved back at random. The pipeline's job runs at random moments. Now and then
everything is ingested, and every table is compared with its history by `verify`. At a difference the run ends: it prints the
difference and the table's statements, keeps them and the records in the folder, and looks for fewer statements with the same
outcome. If Debezium or Canal fails by its own fault, another run begins with the next seed.
Exit status 0: no difference; 1: a difference; 2: a run of an hour or more in which some rule of the grammar or type is rare.
"""

import argparse
import random
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from cdc_assets_tests.live.compare import Difference
from cdc_assets_tests.live.counts import Counts
from cdc_assets_tests.live.run import READERS, RULES, Live, ReaderError


def main() -> int:
    """Run, and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m cdc_assets_tests.live")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--reader", choices=READERS, default="debezium")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="cdc-live-"))
    print(f"{given.reader}, seed {given.seed}, {given.minutes:g} minutes, in {folder}", flush=True)
    counts, end = Counts(), time.monotonic() + 60 * given.minutes
    differences: list[Difference] = []
    for life in count():
        try:
            differences = Live(folder / str(life), given.seed + life, given.reader, counts).run(end)
        except ReaderError as error:
            print(f"the reader failed: {error}", flush=True)
            counts.sums["failures of the reader"] += 1
        if differences or time.monotonic() > end:
            break
    counts.sums["differences"] = len(differences)
    is_rare = counts.show(RULES)
    return 1 if differences else 2 if is_rare and given.minutes >= 60 else 0


if __name__ == "__main__":
    sys.exit(main())
