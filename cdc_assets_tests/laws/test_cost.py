"""Law: a run costs what is new. Counted in Spark jobs, which are the same on every machine; seconds are the benchmarks'."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.changes import Changes
from benchmarks.measuring import jobs_started
from cdc_assets.history import work
from cdc_assets.stages import STAGES
from cdc_assets.storage import Store
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.log import TableLog
from cdc_assets_tests.support import Chain, delta_versions, run_core

# A run of few changes to any number of tables starts no job: its plans are computed where they are asked for.
SMALL_RUN = {stage.name: 0 for stage in STAGES}
# Where the open versions are too many to be written anew: the bounds of the keys, 1; the table's state and the files that
# may hold them, 4; the keys, 1; those versions, 1; where those stand that close, 2; their files, 3; the rows written, 1; and
# the table's state once more, as Delta looks at it after a commit, 4.
A_LARGE_TABLE = 17

SETTINGS = {
    "watermarks": {"protocol": "canal-json", "tidb_extension": True},
    "no watermarks": {"protocol": "canal-json", "tidb_extension": False},
}


def no_session() -> SparkSession:
    raise AssertionError("a Spark session was asked for")


def jobs_by_stage(chain: Chain) -> dict[str, int]:
    """How many jobs each stage of one run starts."""
    started, counts = jobs_started(chain.lake.spark), {}
    for stage in STAGES:
        stage.run(chain.lake, chain.feed)
        now = jobs_started(chain.lake.spark)
        counts[stage.name], started = now - started, now
    return counts


def over(counts: Mapping[str, int], budget: dict[str, int]) -> dict[str, int]:
    """The stages that start more jobs than they may, with how many."""
    return {name: jobs for name, jobs in counts.items() if jobs > budget[name]}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_run_without_news_asks_for_no_spark(chain: Callable[..., Chain], settings: dict[str, Any]) -> None:
    ran = chain(**settings)
    Changes(tables=2).write(ran.snapshots)
    ran.run()
    before, started = delta_versions(ran.lake), jobs_started(ran.lake.spark)
    idle = Lakehouse(no_session, ran.lake.root, ran.lake.feed)
    assert [stage.name for stage in STAGES if stage.due(idle, ran.feed)] == []
    run_core(idle, ran.feed)
    assert jobs_started(ran.lake.spark) == started
    assert delta_versions(ran.lake) == before


def test_a_small_run_starts_no_job(chain: Callable[..., Chain]) -> None:
    ran, changes = chain(), Changes()
    for _ in range(3):
        changes.write(ran.snapshots)
        assert over(jobs_by_stage(ran), SMALL_RUN) == {}
    versions = ran.history("t0000")
    assert sum(v["_cdc_closed_by"] == "update" for v in versions) > 100  # the runs had something to do


def test_a_wide_table_takes_none_either(chain: Callable[..., Chain]) -> None:
    ran, changes = chain(), Changes(columns=60)
    for _ in range(2):
        changes.write(ran.snapshots)
        counts = jobs_by_stage(ran)
    assert over(counts, SMALL_RUN) == {}


def test_nor_do_further_tables(chain: Callable[..., Chain]) -> None:
    ran, changes = chain(), Changes(tables=5)
    for touched in (None, None, [3]):
        changes.write(ran.snapshots, touched=touched)
        assert over(jobs_by_stage(ran), SMALL_RUN) == {}


def test_what_closes_in_a_large_table_keeps_to_its_jobs(
    chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("REWRITTEN", "REWRITTEN_A_CHANGE"):
        monkeypatch.setattr(work, limit, -1)  # any table is large
    ran, changes = chain(), Changes()
    for _ in range(3):
        changes.write(ran.snapshots)
        counts = jobs_by_stage(ran)
    assert over(counts, SMALL_RUN | {"history": A_LARGE_TABLE}) == {}


def test_logs_are_read_once_a_commit_however_many_runs_there_were(
    chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so are the commits since the last checkpoint."""
    ran, changes, read = chain(), Changes(), list[str]()
    read_log = TableLog.of

    def noting(uri: str, store: Store) -> TableLog | None:
        read.append(uri)
        return read_log(uri, store)

    monkeypatch.setattr(TableLog, "of", noting)
    for _ in range(3):
        changes.write(ran.snapshots)
        read.clear()
        ran.run()
    there = Counter(Path(uri).name for uri in read if Path(uri, "_delta_log").exists())
    written = {"f": 4, "t0000": 1}  # raw records, events, observations and changes; and the history
    assert over(there, written) == {}
