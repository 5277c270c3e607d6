"""Materialise in Dagster what a run changed, and nothing else."""

import pytest
from dagster import AssetCheckKey, AssetKey, ExecuteInProcessResult

from cdc_assets.assets import raw_records
from cdc_assets.assets.checks.conservation import records_taken
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.assets.verdicts import find_last_evaluation
from cdc_assets.stages import DECODE, INGEST
from cdc_assets.stages.ingest import IngestReport
from cdc_assets_tests.jobs import Job, evaluated, failures, materialised
from cdc_assets_tests.support import Rows, Stream, ddl, make_feed, rows_in, rows_of, tso

ROWS = Rows()
STAGES = ["raw_records", "change_events", "table_schemas", "type_observations", "released_changes", "history"]
STAGES += ["quarantine"]
# The checks that each run plans.
PLANNED = {
    ("raw_records", "conservation"),
    ("change_events", "conservation"),
    ("type_observations", "mysql_type_mapping"),
    ("type_observations", "jdbc_type_mapping"),
    ("released_changes", "conservation"),
}


def first_records() -> Stream:
    stream = Stream()
    stream.send(ROWS.insert(tso(10), 1, "a"))
    stream.watermark(tso(20))
    return stream


@pytest.fixture
def both(job: Job) -> Job:
    """The job over two feeds with the same records."""
    for feed in ("shop", "crm"):
        job.add(feed, first_records().records, f"{feed}1.jsonl")
    return job


def names(done: ExecuteInProcessResult) -> list[tuple[str, ...]]:
    return [(*each.asset_key.path, each.check_name) for each in evaluated(done)]


def test_a_run_without_new_records_materialises_nothing_and_repeats_its_verdicts(both: Job) -> None:
    first = both.run()
    assert first.success
    table = ("history", "shop", "orders")
    every = [(feed, *path) for feed in ("shop", "crm") for path in [[name] for name in STAGES] + [list(table)]]
    assert sorted(materialised(first)) == sorted(every)
    verdicts = both.verdicts()
    # The records are three years old, and no CREATE TABLE is among them.
    stale = ("shop", "released_changes", "watermark_freshness")
    begun_in_the_middle = {(feed, *table, "history_complete") for feed in ("shop", "crm")}
    assert {key for key, status in verdicts.items() if status != "SUCCEEDED"} == {stale, *begun_in_the_middle}
    assert len(verdicts) == 2 * (3 + 2 + 2 + 1 + 8) + 1
    pages = [both.home / f".cdc_state/{feed}.html" for feed in ("shop", "crm")]
    made = [page.stat().st_mtime_ns for page in pages]
    idle = both.run()
    assert idle.success
    assert materialised(idle) == []
    assert [page.stat().st_mtime_ns for page in pages] == made
    # Time passes without new records.
    assert sorted(names(idle)) == sorted([stale, *((feed, *check) for feed in ("shop", "crm") for check in PLANNED)])
    assert both.verdicts() == verdicts
    first_evaluations = {
        (*e.asset_key.path, e.check_name): (e.passed, e.severity, e.description) for e in evaluated(first)
    }
    for each in evaluated(idle):
        if (name := (*each.asset_key.path, each.check_name)) != stale:
            assert (each.passed, each.severity, each.description) == first_evaluations[name]


def test_the_next_run_reports_what_a_killed_run_committed(both: Job) -> None:
    assert both.run().success
    stream = first_records()
    stream.send(ROWS.insert(tso(30), 2, "b"))
    stream.watermark(tso(40))
    both.add("shop", stream.records[2:])
    lake = both.lake("shop")
    feed = make_feed(both.home / "shop")
    for stage in (INGEST, DECODE):
        stage.run(lake, feed)
    done = both.run()
    assert done.success
    expected_assets = [("shop", name) for name in STAGES] + [("shop", "history", "shop", "orders")]
    assert sorted(materialised(done)) == sorted(expected_assets)
    assert materialised(both.run()) == []
    # After two releases there is something to draw; the page has it, and the asset.
    assert "<svg" in (both.home / ".cdc_state/shop.html").read_text()
    newest = both.instance.get_latest_materialization_event(AssetKey(["shop", "released_changes"]))
    assert newest
    assert newest.asset_materialization
    over_time = str(newest.asset_materialization.metadata["over_time"].value)
    assert over_time.startswith("Seconds from the released watermark to the newest record")
    assert over_time.count("](data:image/svg+xml;base64,") == 1


def test_a_stage_whose_law_is_broken_stops_its_feed_alone(both: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Verdict(passed=False, description="one record is lost")

    def of_shop(report: IngestReport) -> Verdict:
        return lost if report.files == ["shop1.jsonl"] else records_taken(report)

    monkeypatch.setattr(raw_records, "records_taken", of_shop)
    done = both.run()
    assert not done.success
    assert failures(done).keys() == {"shop__raw_to_history"}
    assert [path for path in materialised(done) if path[0] == "shop"] == [("shop", "raw_records")]
    assert [key for key in names(done) if key[0] == "shop"] == [("shop", "raw_records", "conservation")]
    assert [path[1] for path in materialised(done) if path[0] == "crm"][-1] == "quarantine"
    monkeypatch.setattr(raw_records, "records_taken", records_taken)
    # Without new records the last verdict holds, and the feed stays stopped until the audit of that check passes.
    stopped = both.run()
    assert not stopped.success
    assert materialised(stopped) == []
    (repeated,) = [each for each in evaluated(stopped) if each.asset_key.path[0] == "shop"]
    assert (repeated.passed, repeated.description) == (False, "one record is lost")
    assert both.by_hand(AssetCheckKey(AssetKey(["shop", "raw_records"]), "conservation")).success
    again = both.run()
    assert again.success
    # Materialisations of the killed run stay; the next run adds the missing ones.
    assert {path[:2] for path in materialised(again)} == {("shop", name) for name in STAGES[1:]}


def test_a_verdict_is_read_behind_many_runs_that_ended_before_it(job: Job) -> None:
    """Each of these runs plans the check `conservation`, and fails because the feed's folder is missing."""
    job.add("shop", first_records().records)
    assert job.run("cdc_pipeline_shop").success
    shop, away = job.home / "shop", job.home / "away"
    shop.rename(away)
    for _ in range(11):
        assert not job.run("cdc_pipeline_shop").success
    away.rename(shop)
    check = AssetCheckKey(AssetKey(["shop", "raw_records"]), "conservation")
    last = find_last_evaluation(job.instance, check)
    assert last
    assert last.description == "2 read: 2 records ingested, 0 ingested before, 0 quarantined."


def test_a_strict_feed_fails_with_its_check_and_goes_on_failing_without_new_records(job: Job) -> None:
    """It fails after all of its work, and the other feed's run succeeds. A check that only warns does not count."""
    feeds = job.home / "feeds.yaml"
    feeds.write_text(feeds.read_text().replace("    freshness_minutes: 30\n", "    strict: true\n"))
    stream = first_records()
    # No document has this code for VARCHAR.
    stream.send(ROWS.insert(tso(21), 2, "b") | {"sqlType": {"id": -5, "v": 3}})
    stream.watermark(tso(30))
    job.add("shop", stream.records[:2], "1.jsonl")
    job.add("crm", stream.records)
    assert job.run().success
    assert job.verdicts()["shop", "history", "shop", "orders", "history_complete"] == "FAILED"  # it warns
    job.add("shop", stream.records[2:], "2.jsonl")
    for has_new_records in (True, False):
        done = job.run()
        assert not done.success
        (failed,) = failures(done).items()
        assert failed[0] == "shop__raw_to_history"
        assert "shop is strict: shop/type_observations: jdbc_type_mapping: " in failed[1]
        assert "shop/history/shop/orders: type_mapping: Blocked: column " in failed[1]
        assert bool(materialised(done)) == has_new_records
    assert rows_in(job.lake("shop").history("shop", "orders"), job.spark)


def test_a_check_by_hand_examines_everything_or_repeats_the_last_verdict(both: Job) -> None:
    assert both.run().success
    raw, gate = AssetKey(["shop", "raw_records"]), AssetKey(["shop", "released_changes"])
    table = AssetKey(["shop", "history", "shop", "orders"])
    late = AssetCheckKey(gate, "late_events_seen_before")
    applied = AssetCheckKey(table, "ddl_applied")
    of_everything = [AssetCheckKey(raw, "conservation"), AssetCheckKey(table, "history_intervals")]
    done = both.by_hand(*of_everything, late, applied)
    assert done.success
    assert materialised(done) == []
    assert {(each.check_name, each.description) for each in evaluated(done)} == {
        ("conservation", "raw_records has each record once."),
        ("history_intervals", "Versions neither overlap nor leave unexplained gaps."),
        ("late_events_seen_before", "0 late events, all repeats of released events."),
        ("ddl_applied", "There was no DDL statement."),
    }
    assert set(both.verdicts().values()) == {"SUCCEEDED", "FAILED"}


def test_a_check_that_only_a_run_can_evaluate_says_so(both: Job) -> None:
    done = both.by_hand(AssetCheckKey(AssetKey(["shop", "released_changes"]), "late_events_seen_before"))
    assert not done.success
    (failure,) = failures(done).values()
    assert "shop/released_changes late_events_seen_before: only a run of the pipeline evaluates this check" in failure


def test_a_run_registers_the_tables_that_it_touches(job: Job) -> None:
    """A new table gets a view, and a new column replaces it."""
    feeds = job.home / "feeds.yaml"
    feeds.write_text(feeds.read_text().replace("    freshness_minutes: 30\n", "    views: cdc_news\n"))
    stream = first_records()
    job.add("shop", stream.records)
    job.add("crm", [])
    assert job.run().success
    current = "SELECT * FROM cdc_news.shop__orders__current"
    assert rows_of(job.spark.sql(current)) == [{"id": 1, "v": "a"}]
    stream.send(ddl("ALTER TABLE `orders` ADD COLUMN w INT DEFAULT 7", tso(30), ddl_type="ALTER"))
    stream.watermark(tso(40))
    job.add("shop", stream.records[2:])
    assert job.run().success
    assert rows_of(job.spark.sql(current)) == [{"id": 1, "v": "a", "w": 7}]
    job.spark.sql("DROP SCHEMA cdc_news CASCADE")


def test_stages_materialised_one_by_one_stop_where_a_run_of_all_stops(job: Job) -> None:
    stream = Stream()
    stream.send(ROWS.insert(tso(10), 1, "a"))
    # The code is VARCHAR's by no document.
    stream.send(ROWS.insert(tso(11), 2, "b") | {"sqlType": {"id": -5, "v": 3}})
    stream.watermark(tso(20))
    for feed in ("shop", "crm"):
        job.add(feed, stream.records)
    assert job.run("cdc_pipeline_crm").success
    for stage in STAGES:
        assert job.alone("shop", stage).success
    verdicts = job.verdicts()
    del verdicts["shop", "released_changes", "watermark_freshness"]
    of_feed = {
        feed: {key[1:]: verdict for key, verdict in verdicts.items() if key[0] == feed} for feed in ("shop", "crm")
    }
    assert of_feed["shop"] == of_feed["crm"]
    assert of_feed["crm"]["type_observations", "jdbc_type_mapping"] == "FAILED"
    assert of_feed["crm"]["history", "shop", "orders", "type_mapping"] == "FAILED"
    for feed in ("shop", "crm"):
        held = rows_in(job.lake(feed).history("shop", "orders"), job.spark)
        assert [(version["id"], version["_cdc_from_ts"]) for version in held] == [(1, tso(10))]
