"""Run a feed with more tables than `max_table_assets`: one asset for each database, one partition for each table."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetCheckKey, AssetKey, DagsterInstance, ExecuteInProcessResult, TableMetadataValue

from cdc_assets.assets.table_assets import add_partitions, build_table_asset, format_partition
from cdc_assets_tests.jobs import Job, evaluated, evaluations, materialised
from cdc_assets_tests.support import Rows, Stream, tso

DATABASE = ("shop", "history", "shop")
NEXT_DAY = 2 * 60 * 60 * 1000  # `tso` begins at 22:13


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("orders", "orders"),
        ("a.b", "a.b"),
        ("注文 a/b", "注文 a/b"),
        ("a...b", "a%2E%2E.b"),
        ("a%2E%2E.b", "a%252E%252E.b"),
        ("line\nbreak", "line%0Abreak"),
    ],
)
def test_a_partition_has_its_tables_name_in_a_form_that_dagster_accepts(table: str, expected: str) -> None:
    assert format_partition(table) == expected
    with DagsterInstance.ephemeral() as instance:
        asset = build_table_asset("shop", "sales", table, per_table=False)
        for _ in range(2):  # the second call changes nothing
            add_partitions(instance, [asset, build_table_asset("shop", "sales", table, per_table=True)])
        assert instance.get_dynamic_partitions("shop/history/sales") == [expected]


def materialised_columns(done: ExecuteInProcessResult) -> dict[str, list[str]]:
    """Return the partitions of the database that a run materialised, each with the source columns of its lineage."""
    events = [e for e in done.all_events if e.event_type_value == "ASSET_MATERIALIZATION"]
    materializations = [
        e.step_materialization_data.materialization for e in events if e.asset_key == AssetKey(DATABASE)
    ]
    return {
        str(m.partition): sorted(
            dep.column_name
            for deps in m.metadata["dagster/column_lineage"].value.deps_by_column.values()
            for dep in deps
        )
        for m in materializations
    }


NODE = """
{ assetNodeOrError(assetKey: {path: ["shop", "history", "shop"]}) { ... on AssetNode {
  partitionKeyConnection(limit: 10, ascending: true) { results }
  partitionStats { numPartitions numMaterialized }
  assetMaterializations(partitions: ["items"]) { runId }
  assetObservations(partitions: ["orders"]) { partition metadataEntries { label ... on MarkdownMetadataEntry { mdStr } } }
  assetChecksOrError { ... on AssetChecks { checks { name } } } } } }
"""


def asked(query: str, file: Path) -> Any:
    """Return the web server's answer, over the instance that DAGSTER_HOME names."""
    command = [str(Path(sys.executable).with_name("dagster-graphql")), "-m", "cdc_assets.definitions", "-t", query]
    subprocess.run([*command, "-o", str(file)], capture_output=True, check=True)
    answer = json.loads(file.read_text())
    assert "errors" not in answer, answer
    return answer["data"]


@pytest.mark.extended
def test_two_tables_with_one_table_asset_at_most(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    (job.home / "dagster").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(job.home / "dagster"))
    job.instance = DagsterInstance.get()
    feeds = job.home / "feeds.yaml"
    feeds.write_text(feeds.read_text().replace("    freshness_minutes: 30\n", "    max_table_assets: 1\n"))
    job.add("crm", [])
    orders, items = Rows("shop", "orders"), Rows("shop", "items")
    stream = Stream()
    stream.send(orders.insert(tso(10), 1, "a"))
    # No document has this code for VARCHAR: the table is blocked.
    stream.send(items.insert(tso(11), 1, "a"))
    stream.send(items.insert(tso(12), 2, "b") | {"sqlType": {"id": -5, "v": 3}})
    stream.watermark(tso(20))
    job.add("shop", stream.records)
    first = job.run()
    assert first.success
    assert materialised_columns(first) == {"items": ["items.id", "items.v"], "orders": ["orders.id", "orders.v"]}
    assert not [path for path in materialised(first) if len(path) == 4]
    assert sorted(job.instance.get_dynamic_partitions("/".join(DATABASE))) == ["items", "orders"]
    verdicts = evaluations(first, *DATABASE)
    assert len([each for each in evaluated(first) if each.asset_key == AssetKey(DATABASE)]) == len(verdicts) == 8
    assert {name for name, each in verdicts.items() if not each.passed} == {"type_mapping", "history_complete"}
    assert str(verdicts["type_mapping"].description).startswith("Failing tables of the database (1): items. ")

    seen = len(stream.records)
    stream.send(orders.update(tso(NEXT_DAY), 1, "b", "a"))
    stream.watermark(tso(NEXT_DAY + 1))
    job.add("shop", stream.records[seen:])
    second = job.run()
    assert second.success
    assert materialised_columns(second).keys() == {"orders"}
    cursor = job.lake("shop").history("shop", "orders").cursor()
    assert cursor
    assert cursor.days == {"2023-11-14": 1, "2023-11-15": 1}
    newest = job.instance.get_latest_materialization_event(AssetKey(DATABASE))
    assert "](data:image/svg+xml;base64," in str(newest.asset_materialization.metadata["versions_by_day"].value)
    # Also those of the table that the run did not write.
    shown = evaluations(second, *DATABASE)["type_mapping"].metadata["violations"]
    assert isinstance(shown, TableMetadataValue)
    assert [record.data["table"] for record in shown.records] == ["items"]
    row = {"feed": "shop", "table": "shop.orders", "key": ["1"]}
    assert job.run("why", {"ops": {"tell_why": {"config": row}}}).success
    answered = asked(NODE, job.home / "answer.json")["assetNodeOrError"]
    assert sorted(answered["partitionKeyConnection"]["results"]) == ["items", "orders"]
    assert answered["partitionStats"] == {"numPartitions": 2, "numMaterialized": 2}
    assert [each["runId"] for each in answered["assetMaterializations"]] == [first.run_id]
    (why,) = answered["assetObservations"]
    (entry,) = why["metadataEntries"]
    assert (why["partition"], entry["label"]) == ("orders", "why")
    assert "2023-11-15 00:13:20.000 UTC" in entry["mdStr"]
    # The tables have no foreign key.
    assert {each["name"] for each in answered["assetChecksOrError"]["checks"]} == {*verdicts, "parents_exist"}
    audit = job.by_hand(AssetCheckKey(AssetKey(DATABASE), "history_intervals"))
    assert audit.success
    assert [each.description for each in evaluated(audit)] == ["No table of the database fails."]
