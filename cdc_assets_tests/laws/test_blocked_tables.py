"""Check the isolation law over several runs: a table that fails twice in a row is blocked, and fails no further run.

A blocked table is tried again when changes of it are released, when the settings or the version change, when a user
asks for it, and after some time. After a successful write nothing remains of the failure.
"""

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from dagster import AssetCheckEvaluation, ExecuteInProcessResult
from pyspark.sql import SparkSession

from cdc_assets import cli
from cdc_assets.history import progress as progress_file
from cdc_assets.history.progress import Progress
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import HoldReason
from cdc_assets.lakehouse.table import ConcurrentRunError
from cdc_assets.operations.finality import find_final_position
from cdc_assets.operations.report.collect import collect_report
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.stages import DECODE, HISTORY, INGEST, RELEASE, SCHEMAS, STAGES, TYPES
from cdc_assets.stages.history import stage
from cdc_assets.stages.history.progress_file import list_holds, read_progress, retry_tables, write_progress
from cdc_assets.stages.history.stage import HistoryReport
from cdc_assets.stages.history.writer import apply_plan as write
from cdc_assets_tests.jobs import Job, evaluations, failures, materialised
from cdc_assets_tests.support import Chain, Rows, Stream, ddl, histories, tso

ORDERS, ITEMS = Rows(table="orders"), Rows(table="items")
TOO_LONG = OSError(errno.ENAMETOOLONG, "File name too long", "/lake/items")
TOO_LONG_TEXT = "OSError: [Errno 36] File name too long: '/lake/items'"


class Broken:
    """Makes writing these tables fail, each with its error."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.errors: dict[str, Exception] = {}
        self.tried: list[str] = []

        def failing(lake: Lakehouse, session: SparkSession, feed: Any, work: Any) -> Any:
            self.tried.append(work.name[1])
            if work.name[1] in self.errors:
                raise self.errors[work.name[1]]
            return write(lake, session, feed, work)

        patch.setattr(stage, "apply_plan", failing)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Broken:
    return Broken(monkeypatch)


def send(chain: Chain, stream: Stream, *messages: Any, until: int) -> None:
    before = len(stream.records)
    for message in messages:
        stream.send(message)
    stream.watermark(until)
    chain.add(stream.records[before:])


def run(chain: Chain) -> HistoryReport:
    """Run every stage, and return the report of the last one, history."""
    return [each.run(chain.lake, chain.feed) for each in STAGES][-1]  # type: ignore[no-any-return]


def outcome(report: HistoryReport) -> tuple[list[str], list[str], list[str]]:
    """Return the tables that were written, those that failed the run, and those that are blocked."""
    return (
        [t.table for t in report.tables],
        [f.table for f in report.failures if not f.is_blocked],
        [f.table for f in report.failures if f.is_blocked],
    )


def blocked(lake: Lakehouse) -> list[str]:
    return [hold.table for hold in list_holds(lake) if hold.reason == HoldReason.WRITE]


def refuse() -> SparkSession:
    raise AssertionError("a Spark session was asked for")


def assert_idle(chain: Chain) -> None:
    """Assert that a run without new changes tries no table and starts no session."""
    lake = replace(chain.lake, session=refuse)
    assert not HISTORY.due(lake, chain.feed)
    assert outcome(HISTORY.run(lake, chain.feed)) == ([], [], [])


def let_time_pass(lake: Lakehouse, time: timedelta) -> None:
    """Move the time of the last try into the past."""
    progress = read_progress(lake)
    assert progress is not None

    def earlier(text: str) -> str:
        return (datetime.fromisoformat(text) - time).isoformat()

    failed = [
        replace(each, failing_since=earlier(each.failing_since), tried_at=earlier(each.tried_at))
        for each in progress.failed
    ]
    write_progress(lake, replace(progress, failed=tuple(failed)))


@pytest.fixture
def held(chain: Callable[..., Chain], broken: Broken) -> tuple[Chain, Stream]:
    """A feed whose table `items` could not be written twice."""
    it, stream = chain(), Stream()
    send(it, stream, ORDERS.insert(tso(1), 1, "a"), ITEMS.insert(tso(2), 1, "x"), until=tso(5))
    assert outcome(run(it)) == (["items", "orders"], [], [])
    broken.errors["items"] = TOO_LONG
    send(it, stream, ORDERS.update(tso(11), 1, "b", "a"), ITEMS.update(tso(12), 1, "y", "x"), until=tso(15))
    assert outcome(run(it)) == (["orders"], ["items"], [])
    assert list_holds(it.lake) == []
    assert HISTORY.due(it.lake, it.feed)
    assert outcome(run(it)) == ([], [], ["items"])
    assert_idle(it)
    return it, stream


def changes_of_it(it: Chain, stream: Stream, _: pytest.MonkeyPatch, number: int) -> None:
    send(it, stream, ITEMS.insert(tso(20 + number), 20 + number, "new"), until=tso(21 + number))
    for each in (INGEST, DECODE, SCHEMAS, TYPES, RELEASE):
        each.run(it.lake, it.feed)


def other_settings(it: Chain, _: Stream, __: pytest.MonkeyPatch, number: int) -> None:
    it.feed = it.feed.model_copy(update={"owners": (f"team:{number}",)})


def another_version(_: Chain, __: Stream, patch: pytest.MonkeyPatch, number: int) -> None:
    for module in (stage, progress_file):
        patch.setattr(module, "code_version", lambda: f"9.{number}")


def somebody_asks(it: Chain, _: Stream, __: pytest.MonkeyPatch, ___: int) -> None:
    assert retry_tables(it.lake, [("shop", "orders")]) == []
    assert retry_tables(it.lake, [("shop", "items")]) == [("shop", "items")]


def an_hour(it: Chain, _: Stream, __: pytest.MonkeyPatch, ___: int) -> None:
    let_time_pass(it.lake, timedelta(minutes=59))
    assert_idle(it)
    let_time_pass(it.lake, timedelta(minutes=1))


@pytest.mark.parametrize(
    "reason",
    [
        changes_of_it,
        somebody_asks,
        *(pytest.param(r, marks=pytest.mark.extended) for r in (other_settings, another_version, an_hour)),
    ],
)
def test_a_blocked_table_is_tried_again_for_a_reason(
    reason: Callable[..., None],
    held: tuple[Chain, Stream],
    broken: Broken,
    chain: Callable[..., Chain],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it, stream = held
    reason(it, stream, monkeypatch, 1)
    # It fails no further run, and stays blocked.
    assert outcome(HISTORY.run(it.lake, it.feed)) == ([], [], ["items"])
    assert_idle(it)
    # New changes of other tables are no reason to try it.
    send(it, stream, ORDERS.update(tso(30), 1, "c", "b"), until=tso(31))
    broken.tried.clear()
    assert outcome(run(it)) == (["orders"], [], [])
    assert broken.tried == ["orders"]
    assert blocked(it.lake) == ["items"]

    broken.errors.clear()
    assert_idle(it)
    if reason is an_hour:
        # It has been failing for an hour, so the next try is in another hour.
        reason(it, stream, monkeypatch, 2)
    else:
        reason(it, stream, monkeypatch, 12)
    assert outcome(HISTORY.run(it.lake, it.feed)) == (["items"], [], [])
    assert read_progress(it.lake) == Progress(RELEASES[reason], frozenset(), ())
    assert list_holds(it.lake) == []
    undisturbed = chain()
    undisturbed.add(stream.records)
    undisturbed.run()
    assert histories(it.lake) == histories(undisturbed.lake)


# The releases in the end: three of the test, and those of the reason.
RELEASES = {changes_of_it: 5, other_settings: 3, another_version: 3, somebody_asks: 3, an_hour: 3}


def test_everything_that_shows_holds_shows_a_blocked_table(held: tuple[Chain, Stream]) -> None:
    it, _ = held
    (hold,) = list_holds(it.lake)
    assert (hold.database, hold.table, hold.since, hold.reason, hold.events) == (
        "shop", "items", tso(12), HoldReason.WRITE, 1,
    )  # fmt: skip
    assert hold.first["why"] == TOO_LONG_TEXT
    assert hold.first["failing_since"] <= hold.first["tried_at"]
    ends = find_final_position(it.lake, "shop", "items")
    assert (ends.position, ends.reason) == (
        tso(12) - 1,
        f"the table is blocked from commit_ts {tso(12)} on, reason write",
    )
    assert find_final_position(it.lake, "shop", "orders").position == tso(15) - 1
    (line,) = collect_report(it.lake, it.feed).attention
    assert line.startswith(f"shop.items: the table is blocked from commit_ts {tso(12)} (")
    assert f": {TOO_LONG_TEXT}; remove the cause, then run cdc-assets retry f shop.items; " in line
    step = explain_row(it.lake, it.feed, "shop.items", ["1"]).steps[0]
    assert str(step.fate) == "pending"
    assert TOO_LONG_TEXT in str(step.reason)


def test_new_changes_in_each_run_do_not_fail_each_run(chain: Callable[..., Chain], broken: Broken) -> None:
    """A table with new changes is tried in each run, but fails only the first."""
    it, stream = chain(), Stream()
    broken.errors["items"] = TOO_LONG
    outcomes = []
    for n in range(1, 4):
        send(it, stream, ITEMS.insert(tso(10 * n), n, "x"), until=tso(10 * n + 1))
        outcomes.append(outcome(run(it)))
    assert outcomes == [([], ["items"], []), ([], [], ["items"]), ([], [], ["items"])]
    (hold,) = list_holds(it.lake)
    assert (hold.since, hold.events) == (tso(10), 3)


def test_other_settings_after_the_first_error_are_a_first_try(chain: Callable[..., Chain], broken: Broken) -> None:
    it, stream = chain(), Stream()
    broken.errors["items"] = TOO_LONG
    send(it, stream, ITEMS.insert(tso(1), 1, "x"), until=tso(2))
    assert outcome(run(it)) == ([], ["items"], [])
    other_settings(it, stream, pytest.MonkeyPatch(), 1)
    assert outcome(run(it)) == ([], ["items"], [])
    assert outcome(run(it)) == ([], [], ["items"])


def test_what_is_no_fault_of_the_table_never_blocks_it(chain: Callable[..., Chain], broken: Broken) -> None:
    it, stream = chain(), Stream()
    broken.errors["items"] = ConcurrentRunError("another run was faster")
    send(it, stream, ITEMS.insert(tso(1), 1, "x"), until=tso(2))
    for _ in range(3):
        assert outcome(run(it)) == ([], ["items"], [])
    broken.errors.clear()
    assert outcome(run(it)) == (["items"], [], [])


def test_after_an_outage_all_tables_go_on_by_themselves(chain: Callable[..., Chain], broken: Broken) -> None:
    it, stream = chain(), Stream()
    broken.errors = dict.fromkeys(("items", "orders"), OSError("the store does not answer"))
    send(it, stream, ORDERS.insert(tso(1), 1, "a"), ITEMS.insert(tso(2), 1, "x"), until=tso(3))
    assert outcome(run(it)) == ([], ["items", "orders"], [])
    assert outcome(run(it)) == ([], [], ["items", "orders"])
    broken.errors.clear()
    assert_idle(it)
    let_time_pass(it.lake, timedelta(hours=1))
    assert outcome(run(it)) == (["items", "orders"], [], [])
    assert list_holds(it.lake) == []


def test_the_longer_a_table_fails_the_rarer_it_is_tried_but_once_a_day(held: tuple[Chain, Stream]) -> None:
    it, _ = held
    progress = read_progress(it.lake)
    assert progress is not None
    (failed,) = progress.failed
    now = datetime.fromisoformat("2026-01-31T00:00:00+00:00")

    def is_due(failing: timedelta, ago: timedelta) -> bool:
        tried = now - ago
        return replace(failed, tried_at=tried.isoformat(), failing_since=(tried - failing).isoformat()).is_due(
            it.feed, now
        )

    hour, day = timedelta(hours=1), timedelta(days=1)
    assert [is_due(5 * hour, ago * hour) for ago in (1, 4, 5, 6)] == [False, False, True, True]
    assert [is_due(30 * day, ago * hour) for ago in (1, 23, 24)] == [False, False, True]


def run_and_be_killed(chain: Chain) -> None:
    """Run every stage, up to the moment before history writes its progress."""

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "write_progress", die)
        with pytest.raises(KeyboardInterrupt):
            run(chain)


def test_a_failure_counts_only_if_the_run_wrote_its_progress(chain: Callable[..., Chain], broken: Broken) -> None:
    it, stream = chain(), Stream()
    broken.errors["items"] = TOO_LONG
    send(it, stream, ORDERS.insert(tso(1), 1, "a"), ITEMS.insert(tso(2), 1, "x"), until=tso(3))
    run_and_be_killed(it)
    broken.tried.clear()
    assert outcome(run(it)) == ([], ["items"], [])
    assert broken.tried == ["items"]
    run_and_be_killed(it)
    assert outcome(run(it)) == ([], [], ["items"])
    broken.errors.clear()
    # The table was written before the kill: the next run sees that it has all changes.
    retry_tables(it.lake, [("shop", "items")])
    run_and_be_killed(it)
    assert blocked(it.lake) == ["items"]
    done = run(it)
    assert (outcome(done), done.recovered) == (([], [], []), [("shop", "items")])
    assert blocked(it.lake) == []
    assert [(v["id"], v["v"]) for v in it.versions("items")] == [(1, "x")]


def test_tables_that_a_rename_links_wait_together(chain: Callable[..., Chain], broken: Broken) -> None:
    """`items` becomes `archive`, which has further changes; `orders` is not affected."""
    archive = Rows(table="archive")
    it, stream = chain(), Stream()
    send(it, stream, ITEMS.insert(tso(1), 1, "x"), ORDERS.insert(tso(2), 1, "a"), until=tso(3))
    assert outcome(run(it)) == (["items", "orders"], [], [])
    broken.errors["items"] = TOO_LONG
    rename = ddl("RENAME TABLE items TO archive", tso(11), table="items", ddl_type="RENAME")
    send(it, stream, ITEMS.update(tso(10), 1, "y", "x"), rename, archive.insert(tso(12), 2, "z"), until=tso(13))
    assert outcome(run(it)) == ([], ["archive", "items"], [])
    second = run(it)
    assert outcome(second) == ([], [], ["archive", "items"])
    assert "A RENAME links it to shop.items" in str(second.failures[0].error)
    assert blocked(it.lake) == ["archive", "items"]
    assert_idle(it)
    # New changes of one table are a reason to try the other, from its own position.
    send(it, stream, archive.insert(tso(21), 3, "w"), ORDERS.insert(tso(22), 2, "b"), until=tso(23))
    assert outcome(run(it)) == (["orders"], [], ["archive", "items"])
    assert_idle(it)
    broken.errors.clear()
    send(it, stream, archive.insert(tso(31), 4, "v"), until=tso(32))
    assert outcome(run(it)) == (["archive", "items"], [], [])
    assert blocked(it.lake) == []
    undisturbed = chain()
    undisturbed.add(stream.records)
    undisturbed.run()
    assert histories(it.lake) == histories(undisturbed.lake)


# --- the job


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    def command(*arguments: str) -> str:
        assert cli.main(arguments) == 0
        return capsys.readouterr().out

    return command  # type: ignore[return-value]


def test_the_job_fails_once_and_then_the_check_alone(job: Job, broken: Broken, run_command: Callable[..., str]) -> None:
    stream = Stream()
    for table in (ORDERS, ITEMS):
        stream.send(table.insert(tso(1), 1, "first"))
    stream.watermark(tso(2))
    job.add("shop", stream.records)
    job.add("crm", [])
    broken.errors["items"] = TOO_LONG
    items, orders = ("shop", "history", "shop", "items"), ("shop", "history", "shop", "orders")

    def conservation(done: ExecuteInProcessResult) -> AssetCheckEvaluation:
        return evaluations(done, *items)["conservation"]

    def assets(done: ExecuteInProcessResult) -> set[tuple[str, ...]]:
        return set(materialised(done))

    first = job.run()
    assert not first.success
    (failure,) = failures(first).values()
    assert f"shop.items was not written; the next run tries again: {TOO_LONG_TEXT}" in failure
    assert orders in assets(first)
    assert not conservation(first).passed
    assert f"The table was not written: {TOO_LONG_TEXT}. Mend the cause: the next run tries again" in str(
        conservation(first).description
    )
    assert run_command("holds", "shop") == "No table is blocked.\n"

    second = job.run()
    assert second.success
    assert items not in assets(second)
    waits = conservation(second)
    assert not waits.passed
    assert str(waits.description).startswith(
        f"Blocked: the table could not be written twice in a row. 1 row events wait, from commit_ts {tso(1)} "
        f"(2023-11-14 22:13:20.001 UTC) on. The error is: {TOO_LONG_TEXT}. Mend the cause, then have the table tried again: "
        "`cdc-assets retry shop shop.items`."
    )

    third = job.run()
    assert third.success
    assert assets(third) == set()
    assert not conservation(third).passed, "and so it does in a run without news"
    assert "reason=write  events=1  why=OSError: " in run_command("holds", "shop")

    broken.errors.clear()
    assert cli.main(["retry", "shop", "shop.orders"]) == 1
    assert run_command("retry", "shop") == "shop.items: the pipeline's next run tries again\n"
    last = job.run()
    assert last.success
    assert items in assets(last)
    assert conservation(last).passed
    assert run_command("holds", "shop") == "No table is blocked.\n"
    assert run_command("retry", "shop") == "no table: the pipeline's next run tries again\n"


def test_a_table_without_a_report_fails_the_run_after_the_others_are_reported(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cdc_assets.assets import history  # noqa: PLC0415 -- after Dagster's own modules

    tells = history._report_table

    def tell(context: Any, lake: Any, run: Any, report: Any, *more: Any) -> Any:
        if report.table == "items":
            raise ValueError("no such column")
        return tells(context, lake, run, report, *more)

    monkeypatch.setattr(history, "_report_table", tell)
    stream = Stream()
    for table in (ITEMS, ORDERS):
        stream.send(table.insert(tso(1), 1, "first"))
    stream.watermark(tso(2))
    job.add("shop", stream.records)
    job.add("crm", [])
    done = job.run()
    assert not done.success
    assert ("shop", "history", "shop", "orders") in materialised(done)
    assert evaluations(done, "shop", "history", "shop", "orders")["conservation"].passed
    assert job.run().success
