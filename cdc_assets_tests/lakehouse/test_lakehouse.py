"""Paths of tables, which no name can leave, and two runs at once."""

import hashlib
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cdc_assets.config.locations import LocationError
from cdc_assets.lakehouse.lakehouse import Lakehouse, history_tables, lakehouse_root, path_segment
from cdc_assets.lakehouse.query import Arrow
from cdc_assets.lakehouse.schema import frame_of, quoted
from cdc_assets.lakehouse.table import ConcurrentRunError, LakeTable
from cdc_assets.stages import HISTORY, LOAD, STAGES, Stage
from cdc_assets_tests.lakehouse.numbers import NUMBERS, NumbersCursor
from cdc_assets_tests.support import Chain, Rows, Stream, contents, ddl, tso

NAMES = st.text(st.characters(codec="utf-8"), max_size=64)
PLAIN = {*string.ascii_letters, *string.digits, "_", "-"}


@pytest.mark.fast
@given(NAMES)
@example("..")
@example(".")
@example("../../x")
@example("")
@example("%")
@example("%2E%2E")
@example("~root")
@example("a\\b")
@example("new\nline\0")
@example("_delta_log")
@example("表" * 64)
@example("." * 70)
def test_path_segment_is_one_plain_folder_name(name: str) -> None:
    segment = path_segment(name)
    assert re.fullmatch(r"[A-Za-z0-9_~-]{1,200}", segment)
    assert segment != "_delta_log", "Delta reads such a folder as a table's log"
    assert path_segment(name) == segment


@pytest.mark.fast
@given(NAMES)
@example("")
@example("_delta_log")
@example("~2E")
@example("a" * 200)
@example("." * 66)
def test_a_segment_that_is_not_cut_has_the_complete_name(name: str) -> None:
    segment = path_segment(name)
    if "~-" in segment:
        assert sum(1 if c in PLAIN else 3 * len(c.encode()) for c in name) > 200
    else:
        assert unquote(segment.replace("~", "%")) == (name or "%")


@pytest.mark.fast
@given(NAMES, NAMES)
@example("a.b", "a%2Eb")
@example("a.b", "a~2Eb")
@example("", " ")
@example("", "~")
@example("表" * 64, "表" * 63 + "面")
@example("表" * 64, "表" * 65)
@example("a" * 201, "a" * 202)
def test_path_segments_of_different_names_differ(one: str, other: str) -> None:
    assert (path_segment(one) == path_segment(other)) == (one == other)


@pytest.mark.fast
@given(NAMES)
@example("表" * 64)
@example("a" * 201)
def test_no_name_has_the_segment_of_another_name(name: str) -> None:
    segment = path_segment(name)
    assert path_segment(segment) != segment or name == segment


@pytest.mark.fast
@pytest.mark.parametrize("name", ["shop", "Orders_2024-a", "A", "_", "a" * 200])
def test_plain_names_stay_readable(name: str) -> None:
    assert path_segment(name) == name


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("a.b", "a~2Eb"),
        ("~", "~7E"),
        ("%", "~25"),
        ("_delta_log", "~5Fdelta_log"),
        ("注文", "~E6~B3~A8~E6~96~87"),
        ("表" * 64, "~E8~A1~A8" * 18 + "~E8" + "~-" + hashlib.sha256(("表" * 64).encode()).hexdigest()[:32]),
    ],
)
def test_path_segments_are_as_documented(name: str, segment: str) -> None:
    assert path_segment(name) == segment


@pytest.mark.fast
def test_the_root_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CDC_LAKEHOUSE", raising=False)
    assert lakehouse_root() == str(tmp_path / "data/lakehouse")
    monkeypatch.setenv("CDC_LAKEHOUSE", "elsewhere")
    assert lakehouse_root() == str(tmp_path / "elsewhere")
    for uri in ("s3a://bucket/lake", "hdfs://host:9000/x", "file:/tmp/x"):
        monkeypatch.setenv("CDC_LAKEHOUSE", uri)
        assert lakehouse_root() == uri


@pytest.mark.fast
@pytest.mark.parametrize("folder", ["a%2Eb", "a%e3", "x#y", "x?y", "x[1]", "a|b", "a^b", "a\\b", "tab\t"])
def test_a_root_that_deltalake_misreads_is_refused(tmp_path: Path, folder: str) -> None:
    for root in (tmp_path / folder, f"s3://bucket/{folder}/lake"):
        with pytest.raises(
            LocationError, match=r"the lakehouse's path contains .* Choose a path without it\.$"
        ) as refused:
            lakehouse_root(str(root))
        assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("folder", ["plain", "a b", "注文", "100%", "a~2Eb", "a.b", "it's `a`", "{a}*", "~"])
def test_a_table_is_written_where_spark_reads_it_and_nowhere_else(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    root = Path(lakehouse_root(str(tmp_path / folder)))
    table = LakeTable(str(root / path_segment("a.b 注文")), "numbers", NUMBERS)
    assert not table.exists()
    table.commit(table.stage(frame_of(spark, [{"n": 1}], NUMBERS.columns)), NumbersCursor(sequence=1))
    table.commit(table.stage_rows([{"n": 2}]), NumbersCursor(sequence=2))
    by_path = f"SELECT n FROM delta.{quoted(table.path)}"
    assert sorted(r["n"] for r in spark.sql(by_path).collect()) == [1, 2]
    assert sorted(Arrow().run("SELECT n FROM t", {"t": table})["n"].to_pylist()) == [1, 2]
    assert sorted(table.fetch(table.files(), "n")["n"].to_pylist()) == [1, 2]
    assert [entry.name for entry in tmp_path.iterdir()] == [folder]


def test_history_tables_are_listed_by_their_logs_under_their_source_names(tmp_path: Path) -> None:
    named = {
        "sales/orders": ("sales", "orders"),
        "sales/a~2Eb": ("sales", "a.b"),
        "sales/a_b": ("sales", "a_b"),
        "sales/~E6~B3~A8~E6~96~87": ("sales", "注文"),
        "~2E~2E~2F~2E~2E~2Fx/~60~20~24~60": ("../../x", "` $`"),
        "~/~5Fdelta_log": ("", "_delta_log"),
    }
    for folder in named:
        (tmp_path / "history/shop" / folder / "_delta_log").mkdir(parents=True)
    (tmp_path / "history/shop/sales/half").mkdir()
    assert history_tables(str(tmp_path), "shop") == sorted(named.values())
    assert history_tables(str(tmp_path), "crm") == []


def test_names_that_are_cut_in_the_path_come_from_the_properties(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lakehouse(lambda: spark, str(tmp_path), "shop")
    long, cut = "表" * 64, path_segment("表" * 64)
    names = [("sales", "orders"), ("sales", long), (long, "orders"), (long, long), (long, "表" * 63 + "`$' \"")]
    for name in names:
        lake.history(*name).create()
    assert lake.histories() == sorted(names)
    unreadable = tmp_path / "history/shop/sales" / cut / "_delta_log" / f"{1:020}.json"
    unreadable.write_text("no commit")
    (tmp_path / "history/shop/sales" / f"{cut}0" / "_delta_log").mkdir(parents=True)
    assert lake.histories() == sorted(set(names) - {("sales", long)})


def test_of_two_runs_from_one_cursor_the_second_writes_nothing(
    chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each stage: another run commits after this run has read the cursor and before this run's commit."""
    it = chain()
    rows = Rows()
    stream = Stream()
    stream.send(ddl("CREATE TABLE `shop`.`orders` (`id` BIGINT PRIMARY KEY,`v` VARCHAR(20))", tso(1)))
    stream.send(rows.insert(tso(2), 1, "one"))
    stream.send(rows.insert(tso(2), 2, "two"))
    stream.watermark(tso(3))
    it.add(stream.records)
    for stage in (s for s in STAGES if s is not LOAD):  # LOAD needs a dump, which this feed does not have.
        # Histories are committed by Spark.
        method = "transact" if stage is HISTORY else "commit"
        original = getattr(LakeTable, method)

        def run(stage: Stage = stage) -> None:
            report = stage.run(it.lake, it.feed)
            for failure in getattr(report, "failures", []):
                raise failure.error

        def other_first(
            self: LakeTable[Any],
            *args: Any,
            stage: Stage = stage,
            run: Callable[[], None] = run,
            method: str = method,
            original: Callable[..., Any] = original,
            **more: Any,
        ) -> Any:
            if self.name.startswith(stage.name):
                monkeypatch.setattr(LakeTable, method, original)
                run()
            return original(self, *args, **more)

        monkeypatch.setattr(LakeTable, method, other_first)
        with pytest.raises(ConcurrentRunError, match=stage.name):
            run()
        assert getattr(LakeTable, method) is original
    undisturbed = chain()
    undisturbed.add(stream.records)
    undisturbed.run()
    assert contents(it.lake) == contents(undisturbed.lake)


def test_of_two_runs_that_merge_the_second_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A MERGE is committed by Spark, which skips a transaction version that is committed already, without an error."""
    table = LakeTable(str(tmp_path / "t"), "t", NUMBERS)
    table.commit(table.stage(frame_of(spark, [{"n": 1}], NUMBERS.columns)), NumbersCursor(sequence=1))
    mine = spark.newSession()
    table.transact(mine, NumbersCursor(sequence=2), lambda it: it.update("n = 1", {"n": "2"}))
    with pytest.raises(ConcurrentRunError, match="t: another run has already committed step 2"):
        table.transact(spark.newSession(), NumbersCursor(sequence=2), lambda it: it.update("n = 2", {"n": "3"}))
    assert [r["n"] for r in table.read(spark).collect()] == [2]
