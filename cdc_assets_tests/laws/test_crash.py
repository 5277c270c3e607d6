"""Check the crash law: a run that is killed at any moment and repeated ends as an undisturbed run, row for row.

A run with new input for every stage makes eleven commits. For the contents of the tables, a kill immediately before a
commit is the same as a kill after the commit before it, or after the DDL on a history table in between: files that
were written by then belong to no table.
"""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.laws.crashing_run import Killed, be_killed, die_at, install, run_and_die
from cdc_assets_tests.laws.streams import PARTITIONS, short_stream
from cdc_assets_tests.support import TOPIC, Chain, contents, record

COMMITS = [
    "quarantine/f",  # lines that are no records
    "raw_records/f",
    "quarantine/f",  # undecodable records
    "change_events/f",
    "table_schemas/f",
    "type_observations/f",
    "released_changes/f",
    "quarantine/f",  # values of customers
    "history/f/shop/customers",
    "quarantine/f",  # values of orders
    "history/f/shop/orders",
]
MOMENTS = [
    "before 1",
    f"before {len(COMMITS)}",
    *[f"after {n}" for n in range(1, len(COMMITS) + 1)],
    "created history/f/shop/customers",
    "shaped",
]


class Prepared:
    """A lakehouse after a first run, with more records waiting.

    It also has the tables that an undisturbed second run makes, and a copy of the lakehouse at each moment of that
    run, as a kill at this moment leaves it.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        first, second = short_stream()
        self.first = Chain(spark, folder / "first", partitions=PARTITIONS)
        self.first.add(first)
        self.first.run()
        self.first.add([*second, record(b"{", 0, 1000), record(None, 1, 1000)])
        with (self.first.snapshots / "0001.jsonl").open("a") as file:
            file.write('{"topic":\n')
        self.undisturbed = self.copy("undisturbed")
        self.stood: dict[str, Chain] = {}
        self.commits: dict[str, list[str]] = {}  # that were made by a moment
        done: list[str] = []

        def reached(moment: str) -> None:
            if moment in MOMENTS and moment not in self.stood:
                self.stood[moment] = self.undisturbed.copy(folder / moment.replace("/", "_"))
                self.commits[moment] = [*done]

        with pytest.MonkeyPatch.context() as patched:
            install(reached, done.append, patched.setattr)
            self.undisturbed.run()
        self.expected = contents(self.undisturbed.lake)

    def copy(self, name: str) -> Chain:
        return self.first.copy(self.folder / name)


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(spark, tmp_path_factory.mktemp("crash"))


def commits(run: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.split()[1] for line in run.stdout.splitlines() if line.startswith("commit")]


def same(actual: dict[str, list[dict[str, Any]]], expected: dict[str, list[dict[str, Any]]]) -> None:
    assert actual.keys() == expected.keys()
    for name, rows in expected.items():
        assert actual[name] == rows, name


def test_the_undisturbed_run_touches_everything(prepared: Prepared) -> None:
    """The undisturbed run has every kind of quarantine, and rows in every table."""
    reasons = {(q["stage"], q["reason"]) for q in prepared.expected["quarantine/f"] if q["batch"] == 2}
    assert reasons == {
        ("ingest", "not_a_record"),
        ("decode", "malformed_json"),
        ("decode", "null_value"),
        ("history", "zero_date"),
    }
    assert {name for name, rows in prepared.expected.items() if rows} == set(COMMITS)
    counts = conserved(prepared.undisturbed.lake, prepared.undisturbed.feed)
    assert counts.undecodable == 2
    assert {r["topic"] for r in prepared.expected["raw_records/f"]} == {TOPIC}


def test_the_commits_of_a_run(prepared: Prepared) -> None:
    """The moments of the tests below match the commits."""
    run = run_and_die(prepared.copy("alive").folder, "never", prepared.spark)
    assert run.returncode == 0, run.stderr[-2000:]
    assert commits(run) == COMMITS


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_stops_at_a_commit_is_repeated(moment: str, prepared: Prepared) -> None:
    """The tables are copies from between commits; the tests below show that a killed process leaves the same."""
    chain = prepared.stood[moment]
    word, _, which = moment.partition(" ")
    if which.isdigit():
        assert prepared.commits[moment] == COMMITS[: int(which) - (word == "before")]
    chain.run()
    same(contents(chain.lake), prepared.expected)


@pytest.mark.parametrize("moment", ["after 4", "shaped", "before 11"])
def test_stopped_and_run_again_in_the_same_process(
    moment: str, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process keeps its caches: the run stops in a stage, and in a thread that writes a history."""
    chain, done = prepared.copy(f"stopped {moment}"), list[str]()
    with monkeypatch.context() as patched:
        install(die_at(moment, be_killed), done.append, patched.setattr)
        with pytest.raises(Killed):
            chain.run()
    assert done == prepared.commits[moment]
    chain.run()
    same(contents(chain.lake), prepared.expected)


@pytest.mark.parametrize("moment", ["after 2", "after 8"])
def test_killed_and_run_again(moment: str, prepared: Prepared) -> None:
    chain = prepared.copy(f"killed {moment}")
    killed = run_and_die(chain.folder, moment, prepared.spark)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert commits(killed) == COMMITS[: int(moment.split()[1])]
    chain.run()
    same(contents(chain.lake), prepared.expected)


@pytest.mark.extended
def test_killed_with_its_jvm(prepared: Prepared) -> None:
    """The Spark session dies with the process."""
    chain = prepared.copy("jvm")
    killed = run_and_die(chain.folder, "after 10")
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert commits(killed) == COMMITS[:10]
    chain.run()
    same(contents(chain.lake), prepared.expected)
