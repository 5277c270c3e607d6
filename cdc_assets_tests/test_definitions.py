"""The Dagster graph, loaded from the real definitions: what stands in it, and what each job takes of it."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetCheckKey, AssetKey, DefaultScheduleStatus, DefaultSensorStatus, Definitions
from pyspark import SparkContext

from cdc_assets.feeds import FeedsError
from cdc_assets_tests.support import no_java, users_environment

TWO_FEEDS = """
feeds:
  shop:
    protocol: canal-json
    tidb_extension: true
    owners: ["team:data", "ann@example.com"]
    source: {recorded: shop}
  crm:
    protocol: canal-json
    tidb_extension: true
    type_mapping: warn
    source: {recorded: crm}
"""
# The folder of a history table's database or table -> its name, for names that MySQL allows. The encoding is the
# contract's: percent-encoded UTF-8.
HISTORIES = {
    ("sales", "orders"): ("sales", "orders"),
    ("sales", "a%2Eb"): ("sales", "a.b"),
    ("sales", "a_b"): ("sales", "a_b"),
    ("sales", "a%2Fb"): ("sales", "a/b"),
    ("sales", "%E6%B3%A8%E6%96%87"): ("sales", "注文"),
    ("sales", "%E9%A1%A7%E5%AE%A2"): ("sales", "顧客"),
    ("sales", "ORDERS"): ("sales", "ORDERS"),
    ("sales", "orders_conservation"): ("sales", "orders_conservation"),
    ("sales__orders", "x"): ("sales__orders", "x"),
    ("sales", "orders__x"): ("sales", "orders__x"),
    ("%2E%2E%2F%2E%2E%2Fx", "%60%20%24%60"): ("../../x", "` $`"),
}

Load = Callable[..., Definitions]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Import definitions.py afresh, as Dagster does, for the text of a feeds file and folders of history tables."""

    # The module shortens tracebacks when the feeds file is wrong: not for the rest of the tests.
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)

    def fresh(feeds: str = TWO_FEEDS, histories: list[tuple[str, str]] | None = None) -> Definitions:
        (tmp_path / "feeds.yaml").write_text(feeds)
        for database, table in histories or []:
            (tmp_path / "lake/history/shop" / database / table / "_delta_log").mkdir(parents=True)
        monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
        monkeypatch.setenv("CDC_LAKEHOUSE", str(tmp_path / "lake"))
        monkeypatch.delitem(sys.modules, "cdc_assets.definitions", raising=False)
        loaded: Definitions = importlib.import_module("cdc_assets.definitions").defs
        Definitions.validate_loadable(loaded)
        return loaded

    return fresh


PARENTS: dict[str, set[str]] = {
    "raw_records": set(),
    "change_events": {"raw_records"},
    "table_schemas": {"change_events"},
    "type_observations": {"change_events", "table_schemas"},
    "released_changes": {"change_events", "table_schemas", "type_observations"},
    "history": {"released_changes", "table_schemas"},
    "quarantine": {"raw_records", "released_changes", "history"},
}


def stages(feed: str) -> set[AssetKey]:
    return {AssetKey([feed, name]) for name in PARENTS}


def graph(loaded: Definitions) -> Any:
    return loaded.resolve_asset_graph()


def test_each_feed_is_one_chain(load: Load) -> None:
    found = graph(load())
    assert found.get_all_asset_keys() == stages("shop") | stages("crm")
    for feed in ("shop", "crm"):
        for name, upstream in PARENTS.items():
            assert found.get(AssetKey([feed, name])).parent_keys == {AssetKey([feed, each]) for each in upstream}


def test_each_asset_has_a_description_a_group_kinds_and_owners(load: Load) -> None:
    found = graph(load(histories=[("sales", "orders")]))
    owners = {"shop": ["team:data", "ann@example.com"], "crm": []}
    for key in found.get_all_asset_keys():
        node = found.get(key)
        assert len(node.description) > 20
        assert node.group_name == key.path[0]
        assert "deltalake" in node.kinds
        assert node.owners == owners[key.path[0]]
        assert node.code_version
        # A run tells of the history tables that it touched, and plans none.
        assert node.is_executable == (len(key.path) == 2)
    assert found.get(AssetKey(["shop", "change_events"])).kinds == {"pyspark", "deltalake"}


def test_history_tables_that_exist_are_assets_of_their_own_under_their_own_names(load: Load) -> None:
    found = graph(load(histories=list(HISTORIES)))
    tables = {AssetKey(["shop", "history", *name]) for name in HISTORIES.values()}
    assert found.get_all_asset_keys() == stages("shop") | stages("crm") | tables
    assert all(found.get(key).parent_keys == {AssetKey(["shop", "history"])} for key in tables)
    checks = {"conservation", "history_intervals", "ddl_applied", "reload_required", "type_mapping", "history_complete"}
    for key in tables:
        assert {check.name for check in found.asset_check_keys if check.asset_key == key} == checks


def test_a_feed_that_begins_with_a_dump_lists_its_tables(load: Load) -> None:
    own = "source: {recorded: shop}"
    dumped = TWO_FEEDS.replace(own, own + "\n    initial_load: {path: dump, format: dumpling-csv}")
    found = graph(load(dumped)).get_all_asset_keys()
    assert found == stages("shop") | stages("crm") | {AssetKey(["shop", "initial_load"])}


def test_a_folder_without_a_delta_log_is_no_table(load: Load, tmp_path: Path) -> None:
    (tmp_path / "lake/history/shop/sales/half").mkdir(parents=True)
    assert graph(load()).get_all_asset_keys() == stages("shop") | stages("crm")


CHECKS = {
    # asset -> check -> whether what comes after it waits
    "raw_records": {"conservation": True},
    "change_events": {"conservation": True},
    "type_observations": {"mysql_type_mapping": False, "jdbc_type_mapping": False},
    "released_changes": {"conservation": True, "watermark_progress": False, "late_events_seen_before": False},
    "quarantine": {"nothing_quarantined": False},
}
# Those that can look over everything that the tables hold.
AUDITED = {
    ("raw_records", "conservation"),
    ("change_events", "conservation"),
    ("type_observations", "mysql_type_mapping"),
    ("type_observations", "jdbc_type_mapping"),
    ("released_changes", "conservation"),
}


def test_checks_and_which_of_them_block(load: Load) -> None:
    found = graph(load())
    wanted = {
        AssetCheckKey(AssetKey([feed, asset]), check): blocks
        for feed in ("shop", "crm")
        for asset, checks in CHECKS.items()
        for check, blocks in checks.items()
    }
    assert {key: found.get_check_spec(key).blocking for key in found.asset_check_keys} == wanted
    assert all(len(found.get_check_spec(key).description) > 20 for key in found.asset_check_keys)


def test_the_pipeline_plans_each_stage_and_no_check_the_audit_what_can_look_over_everything(load: Load) -> None:
    """Checks that a run plans and does not come to would be shown as skipped: the step tells of those that it evaluated."""
    loaded = load(histories=[("sales", "orders")])
    pipeline = loaded.resolve_job_def("cdc_pipeline").asset_layer
    assert set(pipeline.selected_asset_keys) == stages("shop") | stages("crm")
    assert set(pipeline.asset_graph.asset_check_keys) == set()
    steps = {node.name for node in loaded.resolve_job_def("cdc_pipeline").nodes}
    assert steps == {"shop__raw_to_history", "crm__raw_to_history"}
    alone = loaded.resolve_job_def("cdc_pipeline_shop").asset_layer
    assert set(alone.selected_asset_keys) == stages("shop")
    assert set(alone.asset_graph.asset_check_keys) == set()
    audit = loaded.resolve_job_def("audit").asset_layer
    assert set(audit.selected_asset_keys) == set()
    of_stages = {AssetCheckKey(AssetKey([feed, name]), check) for feed in ("shop", "crm") for name, check in AUDITED}
    of_table = AssetCheckKey(AssetKey(["shop", "history", "sales", "orders"]), "history_intervals")
    assert set(audit.asset_graph.asset_check_keys) == of_stages | {of_table}


def test_one_schedule_on_the_pipeline_stopped_until_somebody_starts_it(load: Load) -> None:
    (schedule,) = load().schedules or []
    assert (schedule.name, schedule.job_name) == ("cdc_pipeline_hourly", "cdc_pipeline")
    assert schedule.cron_schedule == "0 * * * *"
    assert schedule.default_status == DefaultScheduleStatus.STOPPED


def test_every_job_runs_in_one_process(load: Load) -> None:
    loaded = load()
    jobs = ("cdc_pipeline", "audit", "maintenance", "rebuild", "replay_quarantine")
    assert {loaded.resolve_job_def(job).executor_def.name for job in jobs} == {"in_process"}


LIVE = """
feeds:
  live:
    protocol: canal-json
    tidb_extension: true
    freshness_minutes: 30
    source: {kafka: {bootstrap_servers: "127.0.0.1:1", topics: [t]}}
"""


def test_a_feed_of_a_broker_has_a_sensor_that_is_stopped_until_somebody_starts_it(load: Load) -> None:
    (sensor,) = load(TWO_FEEDS + LIVE.removeprefix("\nfeeds:\n")).sensors or []
    assert (sensor.name, sensor.job_name) == ("live_new_records", "cdc_pipeline_live")
    assert sensor.default_status == DefaultSensorStatus.STOPPED


def test_alerts_are_sensors_that_run_from_the_start_where_there_is_a_webhook(load: Load) -> None:
    assert load().sensors == []
    sensors = load(TWO_FEEDS + 'alerts: {webhook: "https://chat.example/x"}').sensors or []
    assert {sensor.name: sensor.default_status for sensor in sensors} == dict.fromkeys(
        ("alert_on_failed_runs", "alert_on_failed_checks"), DefaultSensorStatus.RUNNING
    )


def test_freshness_is_checked_where_the_feeds_file_says_how_much(load: Load) -> None:
    found = graph(load(LIVE))
    spec = found.get_check_spec(AssetCheckKey(AssetKey(["live", "released_changes"]), "watermark_freshness"))
    assert not spec.blocking
    assert "30 minutes" in spec.description
    with pytest.raises(FeedsError, match=r"feeds.live.freshness_minutes: found 30; allowed: .* only with watermarks"):
        load(LIVE.replace("tidb_extension: true", "tidb_extension: false"))


def test_operations_name_the_feeds_when_one_is_unknown(load: Load) -> None:
    loaded = load()
    wrong: list[tuple[str, str, dict[str, Any]]] = [
        ("maintenance", "maintain", {"feeds": ["shops"]}),
        ("rebuild", "derive_again", {"feed": "shops"}),
    ]
    for job, op, config in wrong:
        given = {"ops": {op: {"config": config}}}
        done = loaded.resolve_job_def(job).execute_in_process(run_config=given, raise_on_error=False)
        assert not done.success
        (failed,) = [e for e in done.all_events if e.event_type_value == "STEP_FAILURE"]
        assert "no feed shops in the feeds file; its feeds: shop, crm" in str(failed.step_failure_data)


def test_loading_starts_no_spark(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a Spark session was asked for")

    monkeypatch.setattr(SparkContext, "_ensure_initialized", refuse)
    load(histories=[("sales", "orders")])


# Run in a process that can reach nothing and start no JVM.
UNPLUGGED = """
import socket

def refuse(*_):
    raise AssertionError("the network was asked for")

socket.socket.connect = socket.getaddrinfo = refuse
import cdc_assets.definitions
print(len(cdc_assets.definitions.defs.resolve_asset_graph().get_all_asset_keys()))
"""


def test_loading_needs_no_java_no_jars_and_no_network(tmp_path: Path) -> None:
    (tmp_path / "feeds.yaml").write_text(TWO_FEEDS + LIVE.removeprefix("\nfeeds:\n"))
    (tmp_path / "lake/history/shop/sales/orders/_delta_log").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", UNPLUGGED],
        env=users_environment(tmp_path, **no_java(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 3 * len(PARENTS) + 1


def test_a_wrong_feeds_file_is_one_line_and_no_chain_of_errors(load: Load, tmp_path: Path) -> None:
    with pytest.raises(FeedsError) as raised:
        load(TWO_FEEDS.replace("type_mapping: warn", "type_mapping: ignore"))
    assert str(raised.value) == (
        f'{tmp_path}/feeds.yaml: feeds.crm.type_mapping: found "ignore"; allowed: block, warn, or a mapping of patterns '
        "database.table to these"
    )
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
