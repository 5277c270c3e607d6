"""Check the isolation law: a history table that cannot be written delays only itself, and its check fails.

After the cause is removed, the next run goes on from the table's position; after two failures, the next run that
tries the table again.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetCheckEvaluation, AssetCheckSeverity, ExecuteInProcessResult
from pyspark.sql import DataFrame, SparkSession

from cdc_assets import cli
from cdc_assets.lakehouse.table import LakeTable, Staged
from cdc_assets.operations.acknowledge import list_held_statements
from cdc_assets.stages import HISTORY, STAGES
from cdc_assets.stages.history.progress_file import retry_tables
from cdc_assets.stages.history.stage import HistoryReport
from cdc_assets_tests.jobs import Job, evaluations, failures, materialised
from cdc_assets_tests.support import TOPIC, Chain, Rows, Stream, ddl, record, rows_in, tso, watermark

ORDERS, ITEMS = Rows(table="orders"), Rows(table="items")
Damage = Callable[[Path], AbstractContextManager[None]]
# The folder of a history table.
CHECKS = ("conservation", "history_intervals", "ddl_applied", "type_mapping", "reload_required", "changes_continue")
# No CREATE TABLE was seen.
ALL_FINE = dict.fromkeys((*CHECKS, "column_schema_change"), True) | {"history_complete": False}

# --- damage to a table's folder


@contextmanager
def corrupt_log(folder: Path) -> Iterator[None]:
    """Make the newest commit unreadable."""
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    bad = log / f"{len(list(log.glob('*.json'))):020}.json"
    bad.write_text("no commit")
    yield
    bad.unlink()


@contextmanager
def file_in_its_place(folder: Path) -> Iterator[None]:
    """Put a file where the folder must be, so that nothing can be written there."""
    kept = folder.with_name("kept")
    if folder.exists():
        folder.rename(kept)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("no folder")
    yield
    folder.unlink()
    if kept.exists():
        kept.rename(folder)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make the folder readable, but not writable."""
    writes = LakeTable.stage

    def refuse(table: LakeTable[Any], rows: DataFrame, **how: Any) -> Staged:
        if table.path == str(folder):
            raise PermissionError(f"{folder}: read-only\nand a long stack")
        return writes(table, rows, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LakeTable, "stage", refuse)
        yield


# --- the stage


def run(chain: Chain) -> HistoryReport:
    """Run every stage, and return the report of the last one, history."""
    return [stage.run(chain.lake, chain.feed) for stage in STAGES][-1]  # type: ignore[no-any-return]


def versions(chain: Chain, table: str) -> list[tuple[Any, ...]]:
    return [(r["id"], r["v"], r["_cdc_from_ts"], r["_cdc_to_ts"]) for r in chain.versions(table)]


def written(report: HistoryReport) -> tuple[list[str], list[str]]:
    """Return the tables that were written, and those that failed."""
    return [t.table for t in report.tables], [f.table for f in report.failures]


@pytest.mark.parametrize(
    ("damage", "exists"),
    [(corrupt_log, True), (read_only, True), (file_in_its_place, False)],
    ids=["the log of a table that is there", "its folder", "the place of a new table"],
)
def test_a_history_that_could_not_be_written_goes_on_from_its_position(
    chain: Callable[..., Chain],
    damage: Damage,
    exists: bool,
) -> None:
    feed, stream = chain(), Stream()
    folder = feed.folder / "lake/history/f/shop/items"

    def send(*messages: Any, until: int) -> None:
        before = len(stream.records)
        for message in messages:
            stream.send(message)
        stream.watermark(until)
        feed.add(stream.records[before:])

    send(ORDERS.insert(tso(1), 1, "a"), until=tso(5))
    if exists:
        send(ITEMS.insert(tso(2), 1, "x"), ITEMS.insert(tso(3), 2, "stays"), until=tso(5))
    assert written(run(feed)) == (["items", "orders"] if exists else ["orders"], [])

    with damage(folder):
        send(ORDERS.update(tso(11), 1, "b", "a"), ITEMS.insert(tso(12), 3, "y"), until=tso(15))
        assert written(run(feed)) == (["orders"], ["items"])
        send(ORDERS.update(tso(21), 1, "c", "b"), ITEMS.update(tso(22), 3, "z", "y"), until=tso(25))
        assert written(run(feed)) == (["orders"], ["items"])
        assert versions(feed, "orders") == [
            (1, "a", tso(1), tso(11)),
            (1, "b", tso(11), tso(21)),
            (1, "c", tso(21), None),
        ]
        # The second failure blocks the table, so it is not tried again without a reason.
        assert written(run(feed)) == ([], [])

    assert retry_tables(feed.lake, [("shop", "items")]) == [("shop", "items")]
    assert written(run(feed)) == (["items"], [])
    before = [(1, "x", tso(2), None), (2, "stays", tso(3), None)] if exists else []
    assert versions(feed, "items") == [*before, (3, "y", tso(12), tso(22)), (3, "z", tso(22), None)]
    assert not HISTORY.due(feed.lake, feed.feed)


def test_a_history_that_cannot_be_read_starts_no_session(chain: Callable[..., Chain]) -> None:
    def refuse() -> SparkSession:
        raise AssertionError("a Spark session was asked for")

    feed = chain()
    feed.add([record(ITEMS.insert(tso(1), 1, "x")), record(watermark(tso(5)), offset=1)])
    with corrupt_log(feed.folder / "lake/history/f/shop/items"):
        assert written(run(feed)) == ([], ["items"])
        assert written(HISTORY.run(replace(feed.lake, session=refuse), feed.feed)) == ([], ["items"])


# --- the job


def record_decision(job: Job, statement_id: str, **decision: str) -> ExecuteInProcessResult:
    given = {"feed": "shop", "statement_id": statement_id, **decision}
    return job.run("acknowledge", {"ops": {"decide": {"config": given}}})


def values(job: Job, feed: str, table: str) -> list[tuple[str, bool]]:
    """Return the values of `v` in a history, and whether their versions are open."""
    rows = sorted(rows_in(job.lake(feed).history("shop", table), job.spark), key=lambda r: r["_cdc_from_ts"])
    return [(r["v"], r["_cdc_is_current"]) for r in rows]


def test_the_job_fails_at_its_end_with_the_check_of_the_table(job: Job) -> None:
    shop, crm = Stream(), Stream()
    items = job.home / "lake/history/shop/shop/items"

    def send(commit: int, v: str) -> None:
        for feed, stream, tables in (("shop", shop, (ORDERS, ITEMS)), ("crm", crm, (ORDERS,))):
            before = len(stream.records)
            for table in tables:
                stream.send(table.insert(tso(commit), commit, v))
            stream.watermark(tso(commit + 1))
            job.add(feed, stream.records[before:])

    def assert_only_items_failed(done: ExecuteInProcessResult) -> None:
        assert not done.success
        assert failures(done).keys() == {"shop__raw_to_history"}
        written = {("shop", "history", "shop", "orders"), ("shop", "history"), ("crm", "history", "shop", "orders")}
        assert written <= set(materialised(done))
        assert ("shop", "history", "shop", "items") not in materialised(done)
        checks = evaluations(done, "shop", "history", "shop", "items")
        assert set(checks) == {"conservation"}
        assert not checks["conservation"].passed
        description = str(checks["conservation"].description)
        assert description.startswith("The table was not written: ")
        assert "\n" not in description
        for feed in ("shop", "crm"):
            others = evaluations(done, feed, "history", "shop", "orders")
            assert {name: check.passed for name, check in others.items()} == ALL_FINE

    # One table is not in the asset graph yet, the other is.
    with file_in_its_place(items):
        send(1, "first")
        assert_only_items_failed(job.run())
    assert job.run().success
    assert values(job, "shop", "items") == [("first", True)]
    with corrupt_log(items):
        send(11, "second")
        assert_only_items_failed(job.run())
    done = job.run()
    assert done.success
    checks = evaluations(done, "shop", "history", "shop", "items")
    assert {name: check.passed for name, check in checks.items()} == ALL_FINE
    every = [("first", True), ("second", True)]
    assert values(job, "shop", "items") == values(job, "shop", "orders") == values(job, "crm", "orders") == every


def test_a_table_that_waits_at_a_statement_fails_its_check_and_not_the_run(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = Stream()
    for table in (ORDERS, ITEMS):
        stream.send(table.insert(tso(1), 1, "first"))
    stream.send(ddl("ALTER TABLE items ADD COLUMN w INT FANCY", tso(2), table="items", ddl_type="ALTER"))
    for table in (ORDERS, ITEMS):
        stream.send(table.update(tso(3), 1, "second", "first"))
    stream.watermark(tso(4))
    job.add("shop", stream.records)
    job.add("crm", [])

    def waiting(done: ExecuteInProcessResult) -> AssetCheckEvaluation:
        assert done.success
        return evaluations(done, "shop", "history", "shop", "items")["ddl_applied"]

    first = waiting(job.run())
    assert not first.passed
    assert first.severity == AssetCheckSeverity.ERROR
    (statement,) = list_held_statements(job.lake("shop"))
    assert f"cdc-assets acknowledge shop {statement.id}" in str(first.description)
    assert values(job, "shop", "items") == [("first", True)]
    assert values(job, "shop", "orders") == [("first", False), ("second", True)]
    assert not waiting(job.run()).passed, "and so it does in a run without news"

    assert cli.main(["holds", "shop"]) == 0
    assert f"reason=ddl  events=1  topic={TOPIC}  partition=0  offset=2" in capsys.readouterr().out
    assert cli.main(["acknowledge", "shop", statement.id, "--apply"]) == 1
    assert "The statement cannot be read: ALTER TABLE items ADD COLUMN w INT FANCY (" in capsys.readouterr().err
    assert cli.main(["acknowledge", "shops", statement.id, "--ignore"]) == 1
    assert capsys.readouterr().err == "shops: the feeds file has no such feed; its feeds: shop, crm\n"
    wrong = record_decision(job, statement.id, verdict="AS")
    (failure,) = failures(wrong).values()
    assert "Give a statement to apply instead with the verdict as, and with no other verdict." in failure
    assert record_decision(
        job, statement.id, verdict="AS", read_as="ALTER TABLE items ADD COLUMN w INT DEFAULT 5"
    ).success
    assert waiting(job.run()).passed
    assert values(job, "shop", "items") == [("first", False), ("second", True)]
    assert cli.main(["holds", "shop"]) == 0
    assert capsys.readouterr().out == "No table is blocked.\n"
