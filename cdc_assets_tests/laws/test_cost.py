"""Check that a run costs what is new; benchmarks measure the seconds."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.changes import Changes
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import TableLog
from cdc_assets.stages import STAGES
from cdc_assets.stores.storage import Store
from cdc_assets_tests.support import Chain, delta_versions, run_core

SETTINGS = {
    "watermarks": {"protocol": "canal-json", "tidb_extension": True},
    "no watermarks": {"protocol": "canal-json", "tidb_extension": False},
}


def no_session() -> SparkSession:
    raise AssertionError("a Spark session was asked for")


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_run_without_new_records_asks_for_no_spark(chain: Callable[..., Chain], settings: dict[str, Any]) -> None:
    ran = chain(**settings)
    Changes(tables=2).write(ran.snapshots)
    ran.run()
    before = delta_versions(ran.lake)
    idle = Lakehouse(no_session, ran.lake.root, ran.lake.feed)
    assert [stage.name for stage in STAGES if stage.due(idle, ran.feed)] == []
    run_core(idle, ran.feed)
    assert delta_versions(ran.lake) == before


def test_logs_are_read_once_a_commit_whatever_the_number_of_runs(
    chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits since the last checkpoint are read once, too."""
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
    delta_reads = Counter(Path(uri).name for uri in read if Path(uri, "_delta_log").exists())
    written = {"f": 4, "t0000": 1}  # raw records, events, observations and changes; and the history
    assert {name: times for name, times in delta_reads.items() if times > written[name]} == {}
