"""Run the job as a user does: `dagster`, `cdc-assets run` and the web server, each in a process of its own.

One story is run once, because a process with a Spark session takes long, and many tests look at it: a first run; a
second run without new records, where no JVM can start; a run that a broken type mapping stops; a run from the web
server after `type_mapping: warn`; and the audit.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from pyspark.sql import SparkSession

from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets_tests.support import Message, Record, Rows, Stream, no_java, tso, users_environment
from cdc_assets_tests.web_server import LOG, start_web_server

PROJECT = Path(__file__).parents[2]
JOB = [sys.executable, "-m", "dagster", "job", "execute", "-m", "cdc_assets.definitions", "-j", "cdc_pipeline"]
RUN = [sys.executable, "-m", "cdc_assets", "run"]
SESSION = [sys.executable, "-c", "from cdc_assets.spark.session import spark_session; spark_session()"]
ORDERS, ODD = Rows("shop", "orders"), Rows("shop", "注文 a.b")
# The document's codes of bigint and varchar, and a code that no document has for varchar.
CODES, WRONG = {"id": -5, "v": 12}, {"id": -5, "v": 3}

FEEDS = """
feeds:
  shop:
    protocol: canal-json
    tidb_extension: true
    type_mapping: {mapping}
    source: {{recorded: snapshots, partitions: 2}}
"""


@dataclass
class Story:
    """What each chapter left: exit codes and outputs of the processes, commits of the lakehouse, answers of GraphQL."""

    home: Path
    server: str = ""
    codes: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, int]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)

    @property
    def server_log(self) -> str:
        """Return the log of the web server and of the runs that it launched."""
        return (self.home / LOG).read_text()

    def feeds(self, mapping: str) -> None:
        (self.home / "feeds.yaml").write_text(FEEDS.format(mapping=mapping))

    def snapshot(self, name: str, records: list[Record]) -> None:
        (self.home / "snapshots").mkdir(exist_ok=True)
        (self.home / "snapshots" / name).write_text("".join(json.dumps(r) + "\n" for r in records))

    def execute(self, chapter: str, command: list[str], **more: str) -> None:
        done = subprocess.run(
            command,
            env=users_environment(self.home, **more),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        self.codes[chapter], self.outputs[chapter] = done.returncode, done.stdout + done.stderr
        self.count(chapter)

    def count(self, chapter: str) -> None:
        root = self.home / "lake"
        commit_counts: dict[str, int] = {}
        for commit in root.glob("**/_delta_log/*.json"):
            table = str(commit.parent.parent.relative_to(root))
            commit_counts[table] = commit_counts.get(table, 0) + 1
        self.commits[chapter] = commit_counts

    def ask(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.server}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            answered = json.load(answer)
        assert "errors" not in answered, answered
        return answered["data"]

    def launch(self, chapter: str, job: str) -> None:
        """Launch a run in the web server, as its button does, and wait for its end."""
        params = {
            "selector": {"repositoryLocationName": "cdc_assets", "repositoryName": "__repository__", "jobName": job},
            "runConfigData": {},
        }
        launched = self.ask(LAUNCH, params=params)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        self.runs[chapter] = launched["run"]["runId"]
        for _ in range(2000):
            status = self.ask(STATUS, run=self.runs[chapter])["runOrError"]["status"]
            if status in {"SUCCESS", "FAILURE", "CANCELED"}:
                break
            time.sleep(0.2)
        self.outputs[chapter] = status
        self.count(chapter)


LAUNCH = """
mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
STATUS = "query($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }"
ASSETS = """
{ assetNodes {
  assetKey { path } groupName description staleStatus
  assetMaterializations(limit: 1) { runId metadataEntries { label
    ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text }
    ... on TableMetadataEntry { table { records } }
    ... on TableSchemaMetadataEntry { schema { columns { name type description } } }
    ... on TableColumnLineageMetadataEntry { lineage { columnName columnDeps { assetKey { path } columnName } } } } }
  assetChecksOrError { ... on AssetChecks { checks { name blocking
    executionForLatestMaterialization { runId status evaluation { success severity description
      metadataEntries { label ... on TableMetadataEntry { table { records } } } } } } } } } }
"""


def coded(event: Message, codes: dict[str, int] = CODES) -> Message:
    return event | {"sqlType": codes}


def first_records() -> Stream:
    stream = Stream(partitions=2)
    stream.send(coded(ORDERS.insert(tso(10), 1, "a")), 0)
    stream.send(coded(ORDERS.insert(tso(20), 2, "b")), 1)
    stream.send(coded(ORDERS.update(tso(30), 1, "c", old="a")), 0)
    stream.send(coded(ODD.insert(tso(40), 7, "odd")), 1)
    stream.watermark(tso(100))
    stream.send(coded(ORDERS.insert(tso(150), 3, "pending")), 0)
    return stream


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    story = Story(tmp_path_factory.mktemp("project"))
    (story.home / "dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text())
    story.feeds("block")
    stream = first_records()
    story.snapshot("1.jsonl", stream.records)
    story.execute("first", JOB)
    story.execute("second", RUN, **no_java(story.home))
    story.execute("unstarted", SESSION, **no_java(story.home))
    before = len(stream.records)
    stream.send(coded(ORDERS.insert(tso(210), 4, "wrong code"), WRONG), 1)
    stream.send(coded(ODD.update(tso(220), 7, "still odd", old="odd")), 0)
    stream.watermark(tso(300))
    story.snapshot("2.jsonl", stream.records[before:])
    story.execute("held", [*RUN, "shop", "--strict"])
    story.feeds("warn")
    # Without a table list, as before the first run.
    (story.home / ".cdc_state/shop.json").unlink()
    with serve(story):
        story.answers["unknown"] = story.ask(ASSETS)["assetNodes"]
        story.launch("fixed", "cdc_pipeline")
        story.launch("audit", "audit")
        nodes = story.ask(ASSETS)["assetNodes"]
        story.answers["assets"] = [node for node in nodes if node["assetKey"]["path"][1] != "source"]
        yield story


class serve:  # noqa: N801 -- a context manager
    """Run what `make ui` starts, on a free port: web server and daemon, with the project's workspace file."""

    def __init__(self, story: Story) -> None:
        self.story = story

    def __enter__(self) -> None:
        self.story.server, self.process = start_web_server(self.story.home)

    def __exit__(self, *_: object) -> None:
        # Kill the server with its children: stopping them one by one takes seconds.
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def node(story: Story) -> Callable[..., dict[str, Any]]:
    """Return an asset as GraphQL shows it at the story's end, with metadata by label and checks by name."""

    def find(*path: str) -> dict[str, Any]:
        (asset,) = [n for n in story.answers["assets"] if n["assetKey"]["path"] == list(path)]
        (newest,) = asset["assetMaterializations"]
        entries = {e["label"]: e for e in newest["metadataEntries"]}
        checks = {c["name"]: c for c in asset["assetChecksOrError"]["checks"]}
        return {**asset, "run": newest["runId"], "entries": entries, "checks": checks}

    return find


def failed(check: dict[str, Any]) -> bool:
    return not check["executionForLatestMaterialization"]["evaluation"]["success"]


def test_the_first_run_ends_well_and_writes_every_table(story: Story) -> None:
    assert story.codes["first"] == 0, story.outputs["first"][-3000:]
    assert set(story.commits["first"]) == {
        "raw_records/shop",
        "change_events/shop",
        "table_schemas/shop",
        "type_observations/shop",
        "released_changes/shop",
        "quarantine/shop",
        "history/shop/shop/orders",
        "history/shop/shop/~E6~B3~A8~E6~96~87~20a~2Eb",
    }


def test_each_stage_logs_a_line_with_counts_and_seconds(story: Story) -> None:
    # Tables are written at the same time, so their order is not fixed.
    log = re.sub(r"\([12] of 2\)", "(N of 2)", story.outputs["first"])
    for line in (
        "raw_records/shop: 1 files, 7 lines, 7 records ingested, 0 lines quarantined, ",
        "change_events/shop: 5 row, 2 watermark, ",
        "released_changes/shop: 4 released, 0 duplicate, 0 late, 1 pending, 0 DDL, ",
        "history/shop shop.orders (N of 2): 3 changes, 3 versions opened, 0 closed, 2 rows current, ",
    ):
        (logged,) = [text for text in log.splitlines() if line in text]
        assert logged.endswith(" s")


def test_a_second_run_commits_nothing_and_says_so(story: Story) -> None:
    assert story.codes["second"] == 0, story.outputs["second"][-3000:]
    assert story.commits["second"] == story.commits["first"]
    assert "No new records: nothing was ingested, and no Delta table got a commit." in story.outputs["second"]


def test_a_run_without_new_records_starts_no_jvm(story: Story) -> None:
    assert story.codes["unstarted"] != 0  # in this environment none can start
    assert story.codes["second"] == 0, story.outputs["second"][-3000:]


def test_the_summary_has_counts_watermark_and_history(story: Story) -> None:
    lines = [" ".join(line.split()) for line in story.outputs["second"].splitlines()]
    for line in (
        "Feed shop (canal-json): nothing new; counts of the last run that changed something",
        "records ingested 7",
        "row events decoded 5",
        "quarantined 0",
        "released 4",
        "pending 1",
        "duplicate 0",
        "late 0",
        # 100 ms after 1,700,000,000 s; the TSO is the milliseconds << 18
        f"watermark {1_700_000_000_100 * 2**18} 2023-11-14 22:13:20.100 UTC (shop_changes)",
        "shop.orders 3 versions, 2 current rows",
        "shop.注文 a.b 1 versions, 1 current rows",
    ):
        assert line in lines
    assert lines[-1].startswith("Runs, checks and metadata: `cdc-assets ui`")


def test_a_broken_type_mapping_blocks_only_its_table(story: Story) -> None:
    # The job succeeded: only `--strict` makes the command fail.
    assert story.codes["held"] == 1, story.outputs["held"][-3000:]
    assert "The job" not in story.outputs["held"]
    moved = {table for table, n in story.commits["held"].items() if n > story.commits["second"][table]}
    # The pending event of orders is before the record with the wrong code.
    assert moved == {
        "raw_records/shop",
        "change_events/shop",
        "type_observations/shop",
        "released_changes/shop",
        "history/shop/shop/orders",
        "history/shop/shop/~E6~B3~A8~E6~96~87~20a~2Eb",
    }


def test_the_summary_says_which_checks_fail(story: Story) -> None:
    failing = [line for line in story.outputs["held"].splitlines() if line.startswith("Failing: ")]
    assert any(line.startswith("Failing: shop/type_observations: jdbc_type_mapping: 1 of 5 ") for line in failing)
    (held,) = [line for line in failing if line.startswith("Failing: shop/history/shop/orders: type_mapping: ")]
    assert "Blocked: column `v` of `shop`.`orders` breaks a type mapping at topic " in held
    assert len(failing) == 2
    assert "Traceback" not in story.outputs["held"]


def test_after_the_fix_the_run_goes_on_and_nothing_is_lost(story: Story, spark: SparkSession) -> None:
    assert story.outputs["fixed"] == "SUCCESS", story.server_log[-3000:]
    lake = Lakehouse(lambda: spark, str(story.home / "lake"), "shop")
    columns = ["id", "v", "_cdc_from_ts", "_cdc_to_ts", "_cdc_op", "_cdc_closed_by"]
    orders = lake.history("shop", "orders").read(spark).select(*columns).collect()
    assert sorted((tuple(r) for r in orders), key=lambda r: r[2]) == [
        (1, "a", tso(10), tso(30), "insert", "update"),
        (2, "b", tso(20), None, "insert", None),
        (1, "c", tso(30), None, "update", None),
        (3, "pending", tso(150), None, "insert", None),
        (4, "wrong code", tso(210), None, "insert", None),
    ]
    odd = lake.history("shop", "注文 a.b").read(spark).select(*columns).collect()
    assert sorted((tuple(r) for r in odd), key=lambda r: r[2]) == [
        (7, "odd", tso(40), tso(220), "insert", "update"),
        (7, "still odd", tso(220), None, "update", None),
    ]


def test_a_run_launched_in_the_web_server_materialises_what_changed_and_nothing_is_stale(
    story: Story, node: Callable[..., dict[str, Any]]
) -> None:
    names = ["raw_records", "change_events", "table_schemas", "type_observations", "released_changes", "history"]
    names += ["quarantine"]
    paths = [[name] for name in names] + [["history", "shop", "orders"], ["history", "shop", "注文 a.b"]]
    assert len(story.answers["assets"]) == len(paths)
    for path in paths:
        asset = node("shop", *path)
        assert asset["groupName"] == "shop"
        assert asset["staleStatus"] == "FRESH"
        # The other table was not blocked and had nothing new; nor had the stages before the types.
        stages = (["type_observations"], ["released_changes"], ["history"], ["quarantine"])
        touched = path in (*stages, ["history", "shop", "orders"])
        assert (asset["run"] == story.runs["fixed"]) == touched, path


def test_tables_that_a_run_meets_are_assets_in_the_web_server_that_is_running(
    story: Story, node: Callable[..., dict[str, Any]]
) -> None:
    before = {tuple(each["assetKey"]["path"]) for each in story.answers["unknown"]}
    assert ("shop", "raw_records") in before
    assert not any("history" in path[:-1] for path in before)
    assert node("shop", "history", "shop", "注文 a.b")["checks"]


def test_metadata_has_dagsters_own_keys(node: Callable[..., dict[str, Any]]) -> None:
    orders = node("shop", "history", "shop", "orders")["entries"]
    assert orders["dagster/row_count"]["intValue"] == 5
    assert orders["current_rows"]["intValue"] == 4
    assert orders["dagster/table_name"]["text"] == "history/shop/shop/orders"
    columns = {c["name"]: c for c in orders["dagster/column_schema"]["schema"]["columns"]}
    assert (columns["id"]["type"], columns["v"]["type"]) == ("bigint", "string")
    assert (columns["id"]["description"], columns["v"]["description"]) == ("bigint", "varchar")
    assert "null while open" in columns["_cdc_to_ts"]["description"]
    # The project's own columns have no source column.
    assert orders["dagster/column_lineage"]["lineage"] == [
        {
            "columnName": column,
            "columnDeps": [{"assetKey": {"path": ["shop", "source", "shop", "orders"]}, "columnName": column}],
        }
        for column in ("id", "v")
    ]
    raw = node("shop", "raw_records")["entries"]
    # partition 0: two changes, a watermark, the pending one; then the odd update and a watermark
    assert [json.loads(r) for r in raw["offsets_held"]["table"]["records"]] == [
        {"topic": "shop_changes", "partition": 0, "from": 0, "to": 5},
        {"topic": "shop_changes", "partition": 1, "from": 0, "to": 4},
    ]
    gate = node("shop", "released_changes")["entries"]
    # As text: a browser's numbers end at 2**53.
    assert [json.loads(r) for r in gate["watermarks"]["table"]["records"]] == [
        {"topic": "shop_changes", "watermark": str(tso(300)), "time": "2023-11-14 22:13:20.300 UTC"}
    ]


def test_a_warning_mapping_shows_the_record_and_lets_the_rest_pass(node: Callable[..., dict[str, Any]]) -> None:
    checks = node("shop", "type_observations")["checks"]
    mapping = checks["jdbc_type_mapping"]
    assert mapping["blocking"] is False
    evaluation = mapping["executionForLatestMaterialization"]["evaluation"]
    assert (evaluation["success"], evaluation["severity"]) == (False, "WARN")
    (violations,) = [e["table"]["records"] for e in evaluation["metadataEntries"] if e["label"] == "violations"]
    (broken,) = [json.loads(r) for r in violations]
    assert (broken["topic"], broken["partition"], broken["offset"]) == ("shop_changes", 1, 3)
    assert (broken["table"], broken["column"], broken["jdbc_code"]) == ("orders", "v", "3 (DECIMAL)")
    assert broken["expected"] == "12 (VARCHAR)"
    assert not failed(checks["mysql_type_mapping"])
    assert not failed(node("shop", "change_events")["checks"]["conservation"])


def test_every_check_keeps_its_last_verdict_and_the_audit_evaluates_the_same_checks(
    story: Story, node: Callable[..., dict[str, Any]]
) -> None:
    """The verdict may be of any run; no check is shown as skipped."""
    assert story.outputs["audit"] == "SUCCESS", story.server_log[-3000:]
    assert story.commits["audit"] == story.commits["fixed"]
    audited = 0
    for each in story.answers["assets"]:
        path = each["assetKey"]["path"]
        for name, check in node(*path)["checks"].items():
            run = check["executionForLatestMaterialization"]
            if name == "parents_exist":  # the tables have no foreign key
                assert run is None
                continue
            assert run["status"] == ("FAILED" if failed(check) else "SUCCEEDED")
            # No CREATE TABLE is among the records.
            should_fail = name in {"jdbc_type_mapping", "history_complete"}
            assert failed(check) == should_fail, (path, name, run["evaluation"]["description"])
            audited += run["runId"] == story.runs["audit"]
            # `type_mapping: warn` holds for the audit, too.
            assert not failed(check) or run["evaluation"]["severity"] == "WARN"
    # Of each stage with a law of its own, and of both history tables.
    assert audited == 5 + 2


def test_the_web_server_starts_without_warnings(story: Story) -> None:
    # The lines of the runs that it launched are in its log, too.
    start = story.server_log.partition("Serving dagster-webserver")[0].lower()
    # The daemon has not looked for failed runs before, and says so.
    lines = [line for line in start.splitlines() if "no cursor for event type" not in line]
    assert [line for line in lines if "warning" in line or "error" in line] == []


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        pytest.param(
            "locations/cdc_assets/asset-groups/shop",
            ["raw_records", "released_changes", "history", "orders", "注文 a.b", "1 / 2 Passed"],
            id="the graph of a feed",
        ),
        pytest.param(
            # The last run that materialised it was the one before the last.
            "assets/shop/raw_records?view=overview",
            ["2 partitions of 1 topics are held up to their offsets; offsets left for later runs: 0; losses: 0"],
            id="an asset after a run without news",
        ),
        pytest.param(
            "assets/shop/type_observations?view=checks&checkDetail=jdbc_type_mapping",
            ["violations", "not a code of this type", "compare the record at the coordinates"],
            id="a check that failed",
        ),
        pytest.param(
            "automation",
            ["new_records", "cdc_pipeline_hourly", "maintenance_nightly", "audit_weekly"],
            id="the automation",
        ),
    ],
)
def test_a_person_sees_in_a_browser(story: Story, page: Page, path: str, shown: list[str]) -> None:
    page.goto(f"{story.server}/{path}")
    for text in shown:
        expect(page.get_by_text(text).first).to_be_visible()


def test_a_person_sees_the_page_that_a_run_has_made(story: Story, page: Page) -> None:
    page.goto((story.home / ".cdc_state/shop.html").as_uri())
    expect(page.get_by_text("1 observations of column types break a mapping").first).to_be_visible()
    assert page.locator("svg").count() >= 3


@pytest.mark.parametrize("command", [JOB, RUN], ids=["dagster", "run"])
def test_a_wrong_feeds_file_is_one_line_with_file_path_and_allowed_values(tmp_path: Path, command: list[str]) -> None:
    story = Story(tmp_path)
    (tmp_path / "dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text())
    story.feeds("ignore")
    story.execute("wrong", command)
    assert story.codes["wrong"] != 0
    line = (
        f'{tmp_path}/feeds.yaml: feeds.shop.type_mapping: found "ignore"; allowed: block, warn, or a mapping of patterns '
        "database.table to these"
    )
    lines = story.outputs["wrong"].splitlines()
    assert lines[-1].removeprefix("cdc_assets.config.FeedsError: ") == line
    assert len(lines) < 6  # a notice of the dagster command's own, or two, and no traceback
