"""Load the Dagster graph from the real definitions: check its assets, and what each job selects."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckKey,
    AssetKey,
    DagsterInstance,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    Definitions,
    DynamicPartitionsDefinition,
    FreshnessPolicy,
    OpDefinition,
    ScheduleDefinition,
    build_schedule_context,
    build_sensor_context,
)
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_pyspark import LazyPySparkResource
from dagster_shared.serdes import serialize_value
from pyspark import SparkContext

from cdc_assets.assets.resources import SparkResource
from cdc_assets.config import FeedsError, load_feeds
from cdc_assets.definitions import defs
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
LIVE = """
feeds:
  live:
    protocol: canal-json
    tidb_extension: true
    freshness_minutes: 30
    source: {kafka: {bootstrap_servers: "127.0.0.1:1", topics: [t]}}
"""
VERIFIED = TWO_FEEDS.replace(
    "    owners:",
    '    verify: {jdbc: "jdbc:mysql://db.example/", tables: ["sales.*"], cron: "30 4 * * 1-5"}\n    owners:',
)
# Names that MySQL allows.
HISTORIES = [
    ("sales", "orders"),
    ("sales", "a.b"),
    ("sales", "a_b"),
    ("sales", "a/b"),
    ("sales", "注文"),
    ("sales", "顧客"),
    ("sales", "ORDERS"),
    ("sales", "orders_conservation"),
    ("sales__orders", "x"),
    ("sales", "orders__x"),
    ("../../x", "` $`"),
]

Load = Callable[..., Definitions]


def keep(home: Path, feed: str, root: str, tables: list[tuple[str, str]]) -> None:
    """Write the table list that a run writes."""
    (home / ".cdc_state").mkdir(exist_ok=True)
    (home / f".cdc_state/{feed}.json").write_text(
        json.dumps({"root": root, "release": 1, "tables": tables, "blocked": []})
    )


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load the definitions, as Dagster does, for the text of a feeds file and the history tables of shop."""

    # The definitions shorten tracebacks if the feeds file is wrong; undo this for other tests.
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)

    def fresh(feeds: str = TWO_FEEDS, histories: list[tuple[str, str]] | None = None) -> Definitions:
        (tmp_path / "feeds.yaml").write_text(feeds)
        if histories is not None:
            keep(tmp_path, "shop", str(tmp_path / "lake"), histories)
        monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
        monkeypatch.setenv("CDC_LAKEHOUSE", str(tmp_path / "lake"))
        loaded = defs()
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
    assets = graph(load())
    assert assets.get_all_asset_keys() == stages("shop") | stages("crm")
    for feed in ("shop", "crm"):
        for name, upstream in PARENTS.items():
            assert assets.get(AssetKey([feed, name])).parent_keys == {AssetKey([feed, each]) for each in upstream}


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ("protocol: canal-json\n    tidb_extension: true", "tidb"),  # TiCDC's alone
        ("protocol: open-protocol", "tidb"),
        ("protocol: simple", "tidb"),
        ("protocol: canal-json", "mysql"),  # official Canal's, or TiCDC's without the extension
        ("protocol: debezium", "mysql"),  # Debezium's, or TiCDC's
    ],
)
def test_a_source_has_the_kind_that_the_settings_show(load: Load, settings: str, kind: str) -> None:
    feeds = f"\nfeeds:\n  shop:\n    {settings}\n    source: {{recorded: shop}}\n"
    assets = graph(load(feeds, histories=[("sales", "orders")]))
    assert assets.get(AssetKey(["shop", "source", "sales", "orders"])).kinds == {kind}


def test_each_asset_has_a_description_a_group_kinds_and_owners(load: Load) -> None:
    assets = graph(load(histories=[("sales", "orders")]))
    owners = {"shop": ["team:data", "ann@example.com"], "crm": []}
    source = assets.get(AssetKey(["shop", "source", "sales", "orders"]))
    assert (source.kinds, source.is_executable, source.parent_keys) == ({"tidb"}, False, set())
    for key in assets.get_all_asset_keys() - {source.key}:
        node = assets.get(key)
        assert len(node.description) > 20
        assert node.tags["cdc/feed"] == key.path[0]
        assert node.tags["cdc/protocol"] == "canal-json"
        assert node.group_name == key.path[0]
        assert "deltalake" in node.kinds
        assert node.owners == owners[key.path[0]]
        assert node.code_version
        # A run reports the history tables that it wrote, and plans none.
        assert node.is_executable == (len(key.path) == 2)
    assert assets.get(AssetKey(["shop", "change_events"])).kinds == {"pyspark", "deltalake"}


def test_listed_history_tables_are_assets_under_their_own_names(load: Load) -> None:
    assets = graph(load(histories=HISTORIES))
    tables = {AssetKey(["shop", "history", *name]): AssetKey(["shop", "source", *name]) for name in HISTORIES}
    assert assets.get_all_asset_keys() == stages("shop") | stages("crm") | tables.keys() | set(tables.values())
    for key, source in tables.items():
        assert assets.get(key).parent_keys == {AssetKey(["shop", "history"]), source}
    checks = {
        "conservation",
        "history_intervals",
        "ddl_applied",
        "reload_required",
        "type_mapping",
        "history_complete",
        "changes_continue",
        "parents_exist",
        "column_schema_change",
    }
    for key in tables:
        assert {check.name for check in assets.asset_check_keys if check.asset_key == key} == checks


def test_above_the_limit_of_the_feeds_file_each_database_is_an_asset_with_its_tables_as_partitions(load: Load) -> None:
    limit = f"max_table_assets: {len(HISTORIES) - 1}\n    owners:"
    loaded = load(TWO_FEEDS.replace("owners:", limit), histories=HISTORIES)
    assets = graph(loaded)
    databases = {database for database, _ in HISTORIES}
    histories = {AssetKey(["shop", "history", each]): AssetKey(["shop", "source", each]) for each in databases}
    assert assets.get_all_asset_keys() == stages("shop") | stages("crm") | histories.keys() | set(histories.values())
    for key, source in histories.items():
        node = assets.get(key)
        assert node.parent_keys == {AssetKey(["shop", "history"]), source}
        assert isinstance(node.partitions_def, DynamicPartitionsDefinition)
        assert node.partitions_def.name == "/".join(key.path)
        checks = [check for check in assets.asset_check_keys if check.asset_key == key]
        assert len(checks) == 9
        assert all("table of the database" in assets.get_check_spec(check).description for check in checks)
    audited = loaded.resolve_job_def("audit").asset_layer.asset_graph.asset_check_keys
    assert {check for check in audited if check.asset_key in histories} == {
        AssetCheckKey(key, "history_intervals") for key in histories
    }


def test_a_feed_that_begins_with_a_dump_lists_its_tables(load: Load) -> None:
    own = "source: {recorded: shop}"
    dumped = TWO_FEEDS.replace(own, own + "\n    initial_load: {path: dump, format: dumpling-csv}")
    assets = graph(load(dumped)).get_all_asset_keys()
    assert assets == stages("shop") | stages("crm") | {AssetKey(["shop", "initial_load"])}


@pytest.mark.parametrize(
    "kept", ["", "{", '{"tables": 3}', '{"root": "/another/lake", "release": 1, "tables": [["a", "b"]]}']
)
def test_without_a_table_list_no_history_table_is_an_asset_and_nothing_fails(
    load: Load, tmp_path: Path, kept: str
) -> None:
    (tmp_path / ".cdc_state").mkdir()
    (tmp_path / ".cdc_state/shop.json").write_text(kept)
    (tmp_path / "lake/history/shop/sales/orders/_delta_log").mkdir(parents=True)  # which is not read
    assert graph(load()).get_all_asset_keys() == stages("shop") | stages("crm")


def test_the_state_folder_can_be_configured(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(histories=[("sales", "orders")])
    (tmp_path / ".cdc_state").rename(tmp_path / "elsewhere")
    monkeypatch.setenv("CDC_STATE", str(tmp_path / "elsewhere"))
    assert AssetKey(["shop", "history", "sales", "orders"]) in graph(load()).get_all_asset_keys()


CHECKS = {
    # asset -> check -> whether what comes after it waits
    "raw_records": {"conservation": True},
    "change_events": {"conservation": True},
    "type_observations": {"mysql_type_mapping": False, "jdbc_type_mapping": False},
    "released_changes": {"conservation": True, "watermark_progress": False, "late_events_seen_before": False},
    "quarantine": {"nothing_quarantined": False},
}
# The checks that can examine everything in the tables.
AUDITED = {
    ("raw_records", "conservation"),
    ("change_events", "conservation"),
    ("type_observations", "mysql_type_mapping"),
    ("type_observations", "jdbc_type_mapping"),
    ("released_changes", "conservation"),
}


def test_checks_and_which_of_them_block(load: Load) -> None:
    assets = graph(load())
    expected = {
        AssetCheckKey(AssetKey([feed, asset]), check): blocks
        for feed in ("shop", "crm")
        for asset, checks in CHECKS.items()
        for check, blocks in checks.items()
    }
    assert {key: assets.get_check_spec(key).blocking for key in assets.asset_check_keys} == expected


@pytest.mark.parametrize(
    "feeds",
    [
        TWO_FEEDS,
        VERIFIED,
        LIVE,
        *(LIVE.replace("canal-json", p).replace("tidb_extension: true", "") for p in ("simple", "debezium")),
    ],
)
def test_each_check_says_what_to_do_when_it_fails(load: Load, feeds: str) -> None:
    assets = graph(load(feeds, histories=None if "live:" in feeds else [("sales", "orders")]))
    for key in assets.asset_check_keys:
        assert re.search(r"\. If (not|one|none|it|the)\b.*[,:] ", assets.get_check_spec(key).description), key


def test_the_pipeline_and_the_audit_plan_their_checks(
    load: Load,
) -> None:
    """Dagster shows a planned check without an evaluation as skipped, so each job plans only its own."""
    loaded = load(histories=[("sales", "orders")])
    pipeline = loaded.resolve_job_def("cdc_pipeline").asset_layer
    assert set(pipeline.selected_asset_keys) == stages("shop") | stages("crm")
    of_stages = {AssetCheckKey(AssetKey([feed, name]), check) for feed in ("shop", "crm") for name, check in AUDITED}
    assert set(pipeline.asset_graph.asset_check_keys) == of_stages
    steps = {node.name for node in loaded.resolve_job_def("cdc_pipeline").nodes}
    assert steps == {"shop__raw_to_history", "crm__raw_to_history"}
    alone = loaded.resolve_job_def("cdc_pipeline_shop").asset_layer
    assert set(alone.selected_asset_keys) == stages("shop")
    assert set(alone.asset_graph.asset_check_keys) == {key for key in of_stages if key.asset_key.path[0] == "shop"}
    audit = loaded.resolve_job_def("audit").asset_layer
    assert set(audit.selected_asset_keys) == set()
    of_table = AssetCheckKey(AssetKey(["shop", "history", "sales", "orders"]), "history_intervals")
    assert set(audit.asset_graph.asset_check_keys) == of_stages | {of_table}


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_assets_link_to_their_code_where_the_feeds_file_says_it_is(load: Load) -> None:
    place = '{git_url: "https://git.example/me/fork", git_branch: v1, platform: gitlab}'
    assets = graph(load(TWO_FEEDS + f"code_references: {place}"))
    for key in stages("shop"):
        references = assets.get(key).metadata["dagster/code_references"]
        (link,) = references.code_references
        assert link.url.startswith("https://git.example/me/fork/-/tree/v1/cdc_assets/assets/feed.py#L")
    assert "dagster/code_references" not in graph(load()).get(AssetKey(["shop", "history"])).metadata


@pytest.mark.parametrize("automation", [None, "stopped", "running"])
def test_schedules_and_the_sensor_are_stopped_unless_the_feeds_file_says_otherwise(
    load: Load, automation: str | None
) -> None:
    loaded = load(VERIFIED + (f"automation: {automation}\n" if automation else ""))
    status = "RUNNING" if automation == "running" else "STOPPED"
    assert {schedule.default_status for schedule in loaded.schedules or []} == {DefaultScheduleStatus[status]}
    assert {sensor.default_status for sensor in loaded.sensors or []} == {DefaultSensorStatus[status]}


def test_the_tick_of_each_schedule_starts_one_run_of_its_job(load: Load) -> None:
    loaded = load()
    schedules = loaded.schedules or []
    assert {s.name: (s.job_name, s.cron_schedule) for s in schedules if isinstance(s, ScheduleDefinition)} == {
        "cdc_pipeline_hourly": ("cdc_pipeline", "0 * * * *"),
        "maintenance_nightly": ("maintenance", "30 2 * * *"),
        "delete_old_runs_nightly": ("delete_old_runs", "45 3 * * *"),
        "audit_weekly": ("audit", "30 4 * * 0"),
    }
    for schedule in schedules:
        context = build_schedule_context(scheduled_execution_time=datetime(2026, 11, 1, tzinfo=UTC))
        tick = loaded.resolve_schedule_def(schedule.name).evaluate_tick(context)
        assert tick.skip_message is None
        (request,) = tick.run_requests or []
        assert dict(request.run_config) == {}


def test_the_histories_of_a_feed_with_verify_are_compared_on_its_schedule_and_no_others(load: Load) -> None:
    loaded = load(VERIFIED, histories=[("sales", "orders"), ("sales", "a.b"), ("stock", "items")])
    checks = {
        AssetCheckKey(AssetKey(["shop", "history", "sales", table]), "matches_source") for table in ("orders", "a.b")
    }
    assert {key for key in graph(loaded).asset_check_keys if key.name == "matches_source"} == checks
    job = loaded.resolve_job_def("verify_shop")
    assert set(job.asset_layer.selected_asset_keys) == set()
    assert set(job.asset_layer.asset_graph.asset_check_keys) == checks
    schedule = loaded.resolve_schedule_def("verify_shop_schedule")
    assert (schedule.job_name, schedule.cron_schedule) == ("verify_shop", "30 4 * * 1-5")
    assert not loaded.get_repository_def().has_job("verify_crm")
    for name in ("cdc_pipeline", "cdc_pipeline_shop", "audit"):
        assert not checks & set(loaded.resolve_job_def(name).asset_layer.asset_graph.asset_check_keys)


def test_comparisons_are_in_a_pool_of_their_own(load: Load) -> None:
    """They wait for runs of the pipeline. With one at a time they take one place in the queue, and none of a feed."""
    nodes = load(VERIFIED, histories=[("sales", "orders")]).resolve_job_def("verify_shop").nodes
    assert {node.name: node.definition.pools for node in nodes} == {"shop__source_comparison": {"verify"}}


def test_before_the_first_run_no_table_can_be_compared(load: Load) -> None:
    job = load(VERIFIED).resolve_job_def("verify_shop")
    with DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(instance=instance).success


def test_the_tick_of_the_sensor_starts_the_pipeline_of_each_feed_with_new_records(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load()
    for feed, text in {"shop": "{}\n", "crm": None}.items():
        (tmp_path / feed).mkdir()
        if text:
            (tmp_path / feed / "1.jsonl").write_text(text)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", refuse)
    with DagsterInstance.ephemeral() as instance:
        tick = loaded.resolve_sensor_def("new_records").evaluate_tick(build_sensor_context(instance=instance))
    (request,) = tick.run_requests or []
    assert request.job_name == "cdc_pipeline_shop"
    assert (request.run_key or "").startswith("shop-")
    assert request.tags["cdc/reason"] == "1 files are new or have changed"


def test_each_feed_is_a_pool(load: Load) -> None:
    nodes = load().resolve_job_def("cdc_pipeline").nodes
    assert {node.name: node.definition.pools for node in nodes} == {
        "shop__raw_to_history": {"feed_shop"},
        "crm__raw_to_history": {"feed_crm"},
    }


def test_every_job_runs_in_one_process(load: Load) -> None:
    loaded = load()
    jobs = ("cdc_pipeline", "audit", "maintenance", "rebuild", "replay_quarantine", "delete_old_runs")
    assert {loaded.resolve_job_def(job).executor_def.name for job in jobs} == {"in_process"}


def test_one_sensor_for_all_feeds(load: Load) -> None:
    (sensor,) = load(TWO_FEEDS + LIVE.removeprefix("\nfeeds:\n")).sensors or []
    assert sensor.name == "new_records"
    expected = {"cdc_pipeline_shop", "cdc_pipeline_crm", "cdc_pipeline_live"}
    assert {target.job_name for target in sensor.targets} == expected


def test_alerts_are_running_sensors_if_a_webhook_is_configured(load: Load) -> None:
    sensors = load(TWO_FEEDS + 'alerts: {webhook: "https://chat.example/x"}').sensors or []
    assert {sensor.name for sensor in sensors if sensor.default_status == DefaultSensorStatus.RUNNING} == {
        "alert_on_failed_runs",
        "alert_on_failed_checks",
    }


def test_freshness_is_checked_if_the_feeds_file_sets_it(load: Load) -> None:
    assets = graph(load(LIVE))
    spec = assets.get_check_spec(AssetCheckKey(AssetKey(["live", "released_changes"]), "watermark_freshness"))
    assert not spec.blocking
    assert "30 minutes" in spec.description
    policies = {key.path[1]: assets.get(key).freshness_policy for key in assets.get_all_asset_keys()}
    assert {name: policy for name, policy in policies.items() if policy} == {
        "released_changes": FreshnessPolicy.time_window(fail_window=timedelta(minutes=30))
    }
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
        assert "The feeds file has no feed shops; its feeds: shop, crm" in str(failed.step_failure_data)


def test_the_ui_shows_no_setting_of_the_feeds_file(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of Spark and of the broker may be secrets."""
    monkeypatch.setenv("SECRET", "hunter2")
    settings = 'spark: {spark.hadoop.fs.s3a.secret.key: "${SECRET}"}'
    options = 'topics: [t], options: {kafka.ssl.key.password: "${SECRET}"}'
    loaded = load(LIVE.replace("topics: [t]", options) + settings)
    assert load_feeds().spark == {"spark.hadoop.fs.s3a.secret.key": "hunter2"}
    shown = serialize_value(RepositorySnap.from_def(loaded.get_repository_def()))
    assert '"pyspark"' in shown
    assert "hunter2" not in shown


def test_assets_and_jobs_declare_the_spark_resource(load: Load) -> None:
    loaded = load(VERIFIED, histories=[("sales", "orders")])
    resource = (loaded.resources or {})["pyspark"]
    assert isinstance(resource, SparkResource)
    assert isinstance(resource, LazyPySparkResource)
    names = (
        "cdc_pipeline",
        "audit",
        "maintenance",
        "rebuild",
        "replay_quarantine",
        "acknowledge",
        "why",
        "verify_shop",
    )
    for job in names:
        for node in loaded.resolve_job_def(job).nodes:
            assert isinstance(node.definition, OpDefinition)
            assert "pyspark" in node.definition.required_resource_keys, (job, node.name)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("a Spark session was asked for")


def test_loading_starts_no_spark(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_ensure_initialized", refuse)
    load(histories=[("sales", "orders")])


# Run in a process that can reach nothing and start no JVM; the lakehouse is on an object store that is not there.
UNPLUGGED = """
import os, socket, subprocess, sys
import dagster  # which asks a process of its own what machine this is

def refuse(*_, **__):
    raise AssertionError("the network, or another process, was asked for")

socket.socket.connect = socket.getaddrinfo = subprocess.Popen = refuse
before = dict(os.environ)
import cdc_assets.definitions
repository = cdc_assets.definitions.defs().get_repository_def()
repository.get_all_jobs()
assert dict(os.environ) == before, "the environment was changed"
assert not {"pandas", "pandera"} & set(sys.modules), "what only runs need was imported"
print(len(repository.asset_graph.get_all_asset_keys()))
"""


def test_fifty_feeds_load_without_java_jars_network_lakehouse_and_changes(tmp_path: Path) -> None:
    """`make bench` measures the time."""
    live = LIVE.removeprefix("\nfeeds:\n")
    (tmp_path / "feeds.yaml").write_text("feeds:\n" + "".join(live.replace("live:", f"f{n}:") for n in range(50)))
    for n in range(50):
        keep(tmp_path, f"f{n}", "s3a://nowhere/lake", [("sales", f"t{m}") for m in range(4)])
    env = users_environment(tmp_path, CDC_LAKEHOUSE="s3://nowhere/lake", **no_java(tmp_path))
    command = [sys.executable, "-c", UNPLUGGED]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 50 * (len(PARENTS) + 2 * 4)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"feeds.yaml", ".cdc_state"}


def test_a_wrong_feeds_file_is_one_line_and_no_chain_of_errors(load: Load, tmp_path: Path) -> None:
    with pytest.raises(FeedsError) as raised:
        load(TWO_FEEDS.replace("type_mapping: warn", "type_mapping: ignore"))
    assert str(raised.value) == (
        f'{tmp_path}/feeds.yaml: feeds.crm.type_mapping: found "ignore"; allowed: block, warn, or a mapping of patterns '
        "database.table to these"
    )
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
