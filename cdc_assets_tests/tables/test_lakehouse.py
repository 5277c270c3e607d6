"""Paths that nothing escapes from, and two runs at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cdc_assets.stages import LOAD, STAGES, Stage
from cdc_assets.tables.lakehouse import history_tables, lakehouse_root, path_segment
from cdc_assets.tables.schema import frame_of
from cdc_assets.tables.table import ConcurrentRunError, LakeTable
from cdc_assets_tests.support import Chain, Rows, Stream, contents, ddl, tso
from cdc_assets_tests.tables.numbers import NUMBERS, NumbersCursor

NAMES = st.text(st.characters(codec="utf-8"), max_size=64)


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
def test_path_segment_is_one_plain_folder_name(name: str) -> None:
    segment = path_segment(name)
    assert segment
    assert segment.isascii()
    assert segment.isprintable()
    assert not set(segment) & set("/\\.~ :*?\"<>|'`$")
    assert Path("root", segment).resolve().parent == Path("root").resolve()
    assert unquote(segment) == (name or "%")
    assert segment != "_delta_log", "Delta takes it for a table's log"


@pytest.mark.fast
@given(NAMES, NAMES)
@example("a.b", "a%2Eb")
@example("", " ")
def test_path_segments_of_different_names_differ(one: str, other: str) -> None:
    assert (path_segment(one) == path_segment(other)) == (one == other)


@pytest.mark.fast
@pytest.mark.parametrize("name", ["shop", "Orders_2024-a", "A", "_"])
def test_plain_names_stay_readable(name: str) -> None:
    assert path_segment(name) == name


@pytest.mark.fast
def test_an_empty_name_is_not_the_percent_sign() -> None:
    assert path_segment("") != path_segment("%")
    assert path_segment("%") == "%25"


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


def test_history_tables_are_found_by_their_logs_and_called_by_their_own_names(tmp_path: Path) -> None:
    """The encoding is the contract's: percent-encoded UTF-8."""
    named = {
        "sales/orders": ("sales", "orders"),
        "sales/a%2Eb": ("sales", "a.b"),
        "sales/a_b": ("sales", "a_b"),
        "sales/%E6%B3%A8%E6%96%87": ("sales", "注文"),
        "%2E%2E%2F%2E%2E%2Fx/%60%20%24%60": ("../../x", "` $`"),
    }
    for folder in named:
        (tmp_path / "history/shop" / folder / "_delta_log").mkdir(parents=True)
    (tmp_path / "history/shop/sales/half").mkdir()
    assert history_tables(str(tmp_path), "shop") == sorted(named.values())
    assert history_tables(str(tmp_path), "crm") == []


def test_of_two_runs_from_one_cursor_the_second_writes_nothing(
    chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stage in turn: another run commits between this run's look at the cursor and its own commit."""
    it = chain()
    rows = Rows()
    stream = Stream()
    stream.send(ddl("CREATE TABLE `shop`.`orders` (`id` BIGINT PRIMARY KEY,`v` VARCHAR(20))", tso(1)))
    stream.send(rows.insert(tso(2), 1, "one"))
    stream.send(rows.insert(tso(2), 2, "two"))
    stream.watermark(tso(3))
    it.add(stream.records)
    original = LakeTable.commit
    for stage in (each for each in STAGES if each is not LOAD):  # of a dump, which this feed has not

        def run(stage: Stage = stage) -> None:
            report = stage.run(it.lake, it.feed)
            for failure in getattr(report, "failures", []):
                raise failure.error

        def other_first(
            self: LakeTable[Any], *args: Any, stage: Stage = stage, run: Callable[[], None] = run, **more: Any
        ) -> None:
            if self.name.startswith(stage.name):
                monkeypatch.setattr(LakeTable, "commit", original)
                run()
            original(self, *args, **more)

        monkeypatch.setattr(LakeTable, "commit", other_first)
        with pytest.raises(ConcurrentRunError, match=stage.name):
            run()
        assert LakeTable.commit is original
    undisturbed = chain()
    undisturbed.add(stream.records)
    undisturbed.run()
    assert contents(it.lake) == contents(undisturbed.lake)


def test_of_two_runs_that_merge_the_second_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A MERGE goes through Spark's own commit, which skips, without a word, what is committed already."""
    table = LakeTable(str(tmp_path / "t"), "t", NUMBERS)
    table.commit(table.stage(frame_of(spark, [{"n": 1}], NUMBERS.columns)), NumbersCursor(sequence=1))
    mine = spark.newSession()
    table.transact(mine, NumbersCursor(sequence=2), lambda it: it.update("n = 1", {"n": "2"}))
    with pytest.raises(ConcurrentRunError, match="t: another run has already committed step 2"):
        table.transact(spark.newSession(), NumbersCursor(sequence=2), lambda it: it.update("n = 2", {"n": "3"}))
    assert [r["n"] for r in table.read(spark).collect()] == [2]
