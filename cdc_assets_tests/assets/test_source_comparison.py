"""Compare a feed's histories with a real MariaDB server by the job, and show the results in Dagster."""

from typing import Any

import pytest
from dagster import AssetCheckKey, AssetCheckSeverity, AssetKey, ExecuteInProcessResult

from cdc_assets import cli
from cdc_assets.config.jdbc import PASSWORD, USER
from cdc_assets_tests import mariadb
from cdc_assets_tests.jobs import Job, evaluated, evaluations
from cdc_assets_tests.mariadb import MariaDB
from cdc_assets_tests.support import Rows, Stream, tso

ORDERS, ITEMS, OTHERS = Rows("shop", "orders"), Rows("shop", "items"), Rows("other", "orders")
POSITION = tso(100) - 1


@pytest.fixture
def compared(job: Job, mariadb_server: MariaDB, monkeypatch: pytest.MonkeyPatch) -> Job:
    """The feed shop with three tables, of which `verify:` names two; the server has the rows of one of them."""
    monkeypatch.setenv(USER, mariadb.USER)
    monkeypatch.setenv(PASSWORD, mariadb.PASSWORD)
    monkeypatch.setenv("SHOP_JDBC", mariadb_server.url)
    settings = 'verify: {jdbc: "${SHOP_JDBC}", tables: ["shop.*"], cron: "0 4 * * *", settle_minutes: 0}'
    feeds = job.home / "feeds.yaml"
    feeds.write_text(feeds.read_text().replace("freshness_minutes: 30", settings))
    stream = Stream()
    for table in (ORDERS, ITEMS, OTHERS):
        for key in range(3):
            stream.send(table.insert(tso(10), key, f"v{key}"))
    stream.watermark(tso(100))
    job.add("shop", stream.records)
    job.add("crm", [])
    assert job.run("cdc_pipeline_shop").success
    mariadb_server.run(
        "DROP DATABASE IF EXISTS shop",
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, v VARCHAR(20), w JSON)",
        "INSERT INTO shop.orders (id, v) VALUES (0, 'v0'), (1, 'v1'), (2, 'v2')",
    )
    return job


def shown(done: ExecuteInProcessResult, *key: str) -> dict[str, Any]:
    """Return the metadata of the check on an asset."""
    return {name: value.value for name, value in evaluations(done, *key)["matches_source"].metadata.items()}


def rows(table: Any) -> list[dict[str, Any]]:
    return [dict(record.data) for record in table]


HISTORY = ("shop", "history", "shop")


def test_each_table_has_its_check_and_record(
    compared: Job, mariadb_server: MariaDB, capsys: pytest.CaptureFixture[str]
) -> None:
    first = compared.run("verify_shop")
    assert first.success
    assert {tuple(each.asset_key.path): each.check_name for each in evaluated(first)} == {
        (*HISTORY, "orders"): "matches_source",
        (*HISTORY, "items"): "matches_source",
    }
    orders = evaluations(first, *HISTORY, "orders")["matches_source"]
    items = evaluations(first, *HISTORY, "items")["matches_source"]
    assert orders.passed
    assert (items.passed, items.severity) == (False, AssetCheckSeverity.ERROR)
    assert "Table 'shop.items' doesn't exist" in str(items.description)
    record = shown(first, *HISTORY, "orders")
    assert (record["position"], record["position_time"]) == (str(POSITION), "2023-11-14 22:13:20.099 UTC")
    assert (record["rows_compared"], record["source_rows"], record["chunks"]) == (3, 3, 1)
    assert record["digest"] == record["source_digest"]
    assert "MariaDB" in record["server"]
    assert [each["software"] for each in rows(record["versions"].records)] == ["cdc-assets", "pyspark", "delta-spark"]
    assert rows(record["columns_not_compared"].records) == [{"column": "w", "why": "only the source has it"}]
    assert cli.main(["verify", "shop", "shop.orders", "--jdbc", mariadb_server.url]) == 0
    assert f"; digest {record['digest']}.\n" in capsys.readouterr().out

    mariadb_server.run(
        "UPDATE shop.orders SET v = 'other' WHERE id = 1",
        "DELETE FROM shop.orders WHERE id = 2",
        "INSERT INTO shop.orders (id, v) VALUES (7, 'never sent')",
    )
    alone = compared.by_hand(AssetCheckKey(AssetKey([*HISTORY, "orders"]), "matches_source"))
    (failed,) = evaluated(alone)
    assert (failed.passed, failed.severity) == (False, AssetCheckSeverity.ERROR)
    assert ": 1 missing, 1 extra, 1 changed." in str(failed.description)
    violations = rows(shown(alone, *HISTORY, "orders")["violations"].records)
    assert [(row["kind"], row["key"], row["values"]) for row in violations] == [
        ("missing", 'id="7"', 'id="7", v="never sent"'),
        ("extra", 'id="2"', 'id="2", v="v2"'),
        ("changed", 'id="1"', 'v: "v1" in the history, "other" in the source'),
    ]
    assert violations[0]["why"] == "The feed has no event of this key."
    assert violations[1]["why"].startswith("The row is there, unchanged since ")
    assert cli.main(["verify", "shop", "shop.orders", "--jdbc", mariadb_server.url]) == 1
    record = shown(alone, *HISTORY, "orders")
    digests = f"; digest of the history {record['digest']}, of the source {record['source_digest']}.\n"
    assert digests in capsys.readouterr().out


def test_a_database_that_is_one_asset_has_one_check_with_the_record_of_each_table(compared: Job) -> None:
    feeds = compared.home / "feeds.yaml"
    feeds.write_text(feeds.read_text().replace("    verify:", "    max_table_assets: 1\n    verify:"))
    done = compared.run("verify_shop")
    assert done.success
    (check,) = evaluated(done)
    assert (check.asset_key, check.passed, check.severity) == (AssetKey(HISTORY), False, AssetCheckSeverity.ERROR)
    assert str(check.description).startswith("Failing tables of the database (1): items. ")
    records = rows(shown(done, *HISTORY)["tables"].records)
    assert [(row["table"], row["outcome"], row["rows_compared"]) for row in sorted(records, key=str)] == [
        ("items", "error", ""),
        ("orders", "passed", 3),
    ]


def test_a_blocked_table_warns(compared: Job) -> None:
    stream = Stream(topic="later")
    odd = ITEMS.insert(tso(110), 9, "b") | {"sqlType": {"id": -5, "v": 3}}  # DECIMAL's code beside varchar
    stream.send(odd)
    stream.watermark(tso(120))
    compared.add("shop", stream.records)
    compared.run("cdc_pipeline_shop")
    items = evaluations(compared.run("verify_shop"), *HISTORY, "items")["matches_source"]
    assert (items.passed, items.severity) == (False, AssetCheckSeverity.WARN)
    assert "the table is blocked from commit_ts" in str(items.description)
