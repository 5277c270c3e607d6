"""Rebuild one table: its history is derived again from released changes, and nothing else changes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dagster import Failure, build_op_context
from pyspark.sql import SparkSession

from cdc_assets import cli
from cdc_assets.assets.operations import RebuildConfig, _rebuild_one_table
from cdc_assets.errors import OperationError
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.table import ConcurrentRunError
from cdc_assets.operations import rebuild_table as rebuilding
from cdc_assets.operations.diff import SampleRow
from cdc_assets.operations.maintenance.retention import trim_changes
from cdc_assets.operations.new_tables import ReplacedTable
from cdc_assets.operations.rebuild_table import compare_table_with_rebuild, rebuild_table
from cdc_assets_tests.laws.crashing_run import Killed, be_killed, die_at, install
from cdc_assets_tests.operations.example_feed import EXCLUDED, FEED, Lived, live
from cdc_assets_tests.operations.test_operations import at
from cdc_assets_tests.support import (
    Chain,
    Rows,
    Stream,
    change,
    ddl,
    delta_versions,
    double,
    histories,
    remove,
    rows_in,
    tso,
)

ORDERS = ("shop", "orders")
EQUAL = "shop.orders: versions 0 inserted, 0 deleted, 0 updated"
# What `damage` changes, as `cdc-assets rebuild` shows it.
DAMAGED = (
    "shop.orders: versions 1 inserted, 1 deleted, 2 updated; they differ from "
    f"{tso(8)} (2023-11-14 22:13:20.008 UTC) on"
)


@pytest.fixture(scope="module")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """The feed; tests do not change it."""
    return live(spark, tmp_path_factory.mktemp("lived"))


def copy(lived: Lived, folder: Path) -> Chain:
    """The feed in another folder, for a test that changes it."""
    it = lived.it.copy(folder)
    it.lake = replace(it.lake, feed=FEED)
    return it


def damage(lake: Lakehouse) -> None:
    """Change the history of orders by hand, from commit_ts 8 on."""
    orders = lake.history(*ORDERS)
    double(orders, "_cdc_key = '[\"40\"]'")
    change(orders, f"_cdc_key = '[\"40\"]' AND _cdc_from_ts = {tso(12)}", v="'by hand'")
    change(orders, f"_cdc_key = '[\"2\"]' AND _cdc_to_ts = {tso(11)}", _cdc_to_ts=f"{tso(10)}")
    remove(orders, f"_cdc_key = '[\"3\"]' AND _cdc_from_ts = {tso(8)}")


@pytest.fixture
def damaged(lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """A copy of the feed with a damaged history, where a user's commands find it."""
    it = copy(lived, tmp_path / "damaged")
    damage(it.lake)
    source = f"{{recorded: '{it.snapshots}', partitions: 2}}"
    entry = f"protocol: canal-json, tidb_extension: true, tables: {{exclude: {EXCLUDED}}}, source: {source}"
    (tmp_path / "feeds.yaml").write_text(f"feeds: {{{FEED}: {{{entry}}}}}")
    monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
    monkeypatch.setenv("CDC_LAKEHOUSE", it.lake.root)
    return it


def files_beside(lake: Lakehouse, *, orders: bool = False) -> dict[str, bytes]:
    """Return the files of the lakehouse with their content, by default without those of the history of orders."""
    left_out = () if orders else (lake.history(*ORDERS).path, lake.place("rebuilding"))
    files = (path for path in Path(lake.root).rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if not str(path).startswith(left_out)}


def test_rebuilt_histories_of_all_kinds_are_equal(lived: Lived) -> None:
    """They come from two releases: without a key, with odd names, a widened column, a TRUNCATE."""
    it = lived.it
    before = files_beside(it.lake, orders=True)
    differences = [
        compare_table_with_rebuild(it.lake, it.feed, name) for name in it.lake.histories() if name[1] != "ledger"
    ]
    assert {d.table for d in differences} == {
        f"shop.{t}" for t in ("orders", "logs", "odd.keys", "pairs", "ended", "wide")
    }
    assert [d for d in differences if not d.is_equal] == []
    assert files_beside(it.lake, orders=True) == before


def test_a_damaged_history_is_shown_and_mended(
    lived: Lived, damaged: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = damaged.lake
    before, others, versions = files_beside(lake, orders=True), files_beside(lake), delta_versions(lake)
    command = ["rebuild", FEED, "--table", "shop.orders"]

    def run(*more: str) -> tuple[int, list[str]]:
        return cli.main([*command, *more]), capsys.readouterr().out.splitlines()

    code, shown = run("--check")
    assert (code, shown[:3]) == (
        1,
        [DAMAGED, "  column _cdc_to_ts differs in 1 rows", "  column v differs in 1 rows"],
    )
    assert f'  update ["40"] from {tso(12)} v: "by hand" -> "forty"' in shown
    assert files_beside(lake, orders=True) == before

    code, rebuilt = run()
    assert (code, rebuilt[:-1], rebuilt[-1]) == (0, shown, f"history/{FEED}/shop/orders: replaced, 6 versions")
    assert histories(lake) == histories(lived.it.lake)
    assert files_beside(lake) == others
    history = f"history/{FEED}/shop/orders"
    assert delta_versions(lake) == versions | {history: versions[history] + 1}

    assert run() == (0, [EQUAL, "Nothing was written."])
    assert run("--check") == (0, [EQUAL])
    assert delta_versions(lake)[history] == versions[history] + 1
    # The pipeline goes on from the new history.
    assert damaged.run().history == []


def test_a_rebuild_that_is_killed_leaves_one_of_both_histories(
    lived: Lived, damaged: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed at each commit in turn, so each rebuild repeats one that was killed before."""
    lake, feed = damaged.lake, damaged.feed
    others, spoiled = files_beside(lake), rows_in(lake.history(*ORDERS), lake.spark)
    mended = rows_in(lived.it.lake.history(*ORDERS), lake.spark)
    # A process that is killed deletes no folder.
    monkeypatch.setattr(rebuilding, "delete_new_tables", lambda _: None)

    def is_killed(moment: str) -> bool:
        with pytest.MonkeyPatch.context() as patched:
            install(die_at(moment, be_killed), lambda _: None, patched.setattr)
            try:
                rebuild_table(lake, feed, ORDERS)
            except Killed:
                return True
            return False

    commits = 0
    while is_killed(f"before {commits + 1}"):
        commits += 1
        assert rows_in(lake.history(*ORDERS), lake.spark) == spoiled
    assert commits >= 2, "at least the new table's first commit, and the one that replaces the history"
    assert rows_in(lake.history(*ORDERS), lake.spark) == mended
    damage(lake)
    assert is_killed(f"after {commits}")
    assert rows_in(lake.history(*ORDERS), lake.spark) == mended
    assert rebuild_table(lake, feed, ORDERS) is None
    assert files_beside(lake) == others


def test_from_a_position_on(damaged: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["rebuild", FEED, "--table", "shop.orders", "--from"]
    before = files_beside(damaged.lake, orders=True)
    assert cli.main([*command, "2023-11-14T22:13:20.008Z"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"shop.orders: the history would also change below commit_ts {tso(8, 2**18 - 1)}, from {tso(8)} on. Nothing was "
        f"written: give a position up to {tso(8)}, or none."
    )
    assert files_beside(damaged.lake, orders=True) == before
    assert cli.main([*command, str(tso(8)), "--check"]) == 1
    assert cli.main([*command, "2023-11-14T22:13:20.007Z"]) == 0
    assert capsys.readouterr().out.startswith(DAMAGED)
    assert cli.main([*command, str(tso(8) + 1)]) == 0, "equal histories"


def test_a_version_that_only_ends_elsewhere_differs_from_its_end_on(lived: Lived, tmp_path: Path) -> None:
    it = copy(lived, tmp_path / "ends")
    change(it.lake.history(*ORDERS), f"_cdc_to_ts = {tso(11)}", _cdc_to_ts="NULL", _cdc_is_current="true")
    difference = compare_table_with_rebuild(it.lake, it.feed, ORDERS, tso(11))
    assert (difference.updated, difference.earliest) == (1, tso(11))
    assert difference.samples == [
        SampleRow(
            "update",
            f'["2"] from {tso(5)}',
            {"_cdc_to_ts": None, "_cdc_is_current": True},
            {"_cdc_to_ts": tso(11), "_cdc_is_current": False},
        )
    ]


@pytest.mark.extended
def test_the_job(lived: Lived, tmp_path: Path) -> None:
    it, context = copy(lived, tmp_path / "job"), build_op_context()

    def run(table: str, **more: Any) -> None:
        config = RebuildConfig(feed=FEED, table=table, **more)
        _rebuild_one_table(context, config, it.lake, it.feed, table)

    damage(it.lake)
    with pytest.raises(Failure, match=r"A rebuild would change shop\.orders: the log shows how"):
        run("shop.orders", check=True)
    with pytest.raises(Failure, match="give a position up to"):
        run("shop.orders", start=str(tso(9)))
    run("shop.orders", start=str(tso(8)))
    assert histories(it.lake) == histories(lived.it.lake)
    with pytest.raises(Failure, match=r"shop\.order: feed shop has no such history table"):
        run("shop.order")


@pytest.mark.extended
def test_a_history_with_a_widened_column(lived: Lived, tmp_path: Path) -> None:
    """Only Spark reads and replaces it, also in one commit."""
    it = copy(lived, tmp_path / "wide")
    wide, versions = it.lake.history("shop", "wide"), delta_versions(it.lake)
    it.lake.spark.sql(f"UPDATE delta.`{wide.path}` SET n = 0 WHERE _cdc_is_current")
    replaced = rebuild_table(it.lake, it.feed, ("shop", "wide"))
    assert replaced == ReplacedTable(f"history/{FEED}/shop/wide", 2)
    assert histories(it.lake) == histories(lived.it.lake)
    assert delta_versions(it.lake) == versions | {wide.name: versions[wide.name] + 2}  # the damage, and the new history
    assert rebuild_table(it.lake, it.feed, ("shop", "wide")) is None


def test_wrong_arguments(damaged: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    for table, message in [
        ("shop.order", "shop.order: feed shop has no such history table. It has: shop.ended, "),
        (
            "shop.ledger",
            f"shop.ledger: the table is blocked from commit_ts {tso(11, 1)} on, reason ddl. Make it go on (see ",
        ),
    ]:
        assert cli.main(["rebuild", FEED, "--table", table]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(message)
    for arguments, message in [
        ([], "the following arguments are required: --table"),
        (["--table", "shop.orders", "--from", "yesterday"], "argument --from: yesterday is not a position; allowed: "),
    ]:
        with pytest.raises(SystemExit):
            cli.main(["rebuild", FEED, *arguments])
        assert message in capsys.readouterr().err
    assert list(Path(damaged.lake.root).glob("rebuilding/*/*")) == []


def test_rebuilds_that_are_refused(lived: Lived, tmp_path: Path) -> None:
    it = copy(lived, tmp_path / "refused")
    lake, feed, orders = it.lake, it.feed, it.lake.history(*ORDERS)
    progress = Path(lake.place("history_progress", f"{FEED}.json"))
    kept = progress.read_bytes()
    progress.unlink()
    with pytest.raises(OperationError, match="may lack released changes: run the feed's pipeline, then rebuild again"):
        rebuild_table(lake, feed, ORDERS)
    progress.write_bytes(kept)

    excluded = feed.model_copy(update={"tables": feed.tables.model_copy(update={"exclude": ["shop.*"]})})
    with pytest.raises(OperationError, match="because the feed's settings leave the table out"):
        rebuild_table(lake, excluded, ORDERS)

    def run_meanwhile(_: object) -> None:
        cursor = orders.cursor()
        assert cursor is not None
        orders.commit(orders.stage_rows([]), replace(cursor, sequence=cursor.sequence + 1))

    change(orders, "id = 40", v="'by hand'")
    with pytest.raises(ConcurrentRunError):
        rebuild_table(lake, feed, ORDERS, on_difference=run_meanwhile)
    assert {"by hand"} < {version["v"] for version in it.history()}

    assert trim_changes(lake, at(30)) > 0
    with pytest.raises(
        OperationError, match="maintenance has deleted the changes up to release 2, so the history of shop"
    ):
        rebuild_table(lake, feed, ORDERS)
    raw, ingested = lake.raw_records, lake.raw_records.cursor()
    assert ingested is not None
    raw.commit(raw.stage_rows([]), replace(ingested, sequence=ingested.sequence + 1, rebuilding=True))
    with pytest.raises(OperationError, match="this feed is being rebuilt"):
        rebuild_table(lake, feed, ORDERS)


@pytest.mark.extended
def test_rows_that_a_rename_brought(chain: Callable[..., Chain]) -> None:
    """The rows come from a history that is damaged, too: the new one is derived without it."""
    it, stream, rows = chain(partitions=1), Stream(1), Rows()
    stream.send(ddl("CREATE TABLE `shop`.`orders` (`id` BIGINT PRIMARY KEY,`v` VARCHAR(20))", tso(1)))
    stream.send(rows.insert(tso(2), 1, "one"))
    stream.watermark(tso(3))
    it.add(stream.records)
    it.run()
    count = len(stream.records)
    stream.send(ddl("RENAME TABLE `shop`.`orders` TO `shop`.`archive`", tso(4), ddl_type="RENAME"))
    stream.send(Rows(table="archive").update(tso(5), 1, "two", "one"))
    stream.watermark(tso(6))
    it.add(stream.records[count:])
    it.run()
    before = histories(it.lake)
    for table in ("orders", "archive"):
        change(it.lake.history("shop", table), f"_cdc_from_ts < {tso(5)}", v="'by hand'")
    assert rebuild_table(it.lake, it.feed, ("shop", "archive")).rows == 2
    assert [(r["v"], r["_cdc_from_ts"], r["_cdc_to_ts"]) for r in it.versions("archive")] == [
        ("one", tso(4), tso(5)),
        ("two", tso(5), None),
    ]
    assert [r["v"] for r in it.versions("orders")] == ["by hand"]
    rebuild_table(it.lake, it.feed, ORDERS)
    assert histories(it.lake) == before
