"""Paths that nothing escapes from, cursors, and two runs at once."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdc_assets.gate.release import release
from cdc_assets.history.apply import apply, pending_tables
from cdc_assets.lakehouse import ConcurrentRunError, LakeTable, lakehouse_root, next_sequence, path_segment
from cdc_assets.protocols.decode import decode
from cdc_assets.schema import BIGINT, struct
from cdc_assets.sources.ingest import ingest
from cdc_assets.table_schemas import learn
from cdc_assets_tests.support import Chain, Rows, Stream, contents, ddl, tso

NAMES = st.text(st.characters(codec="utf-8"), max_size=64)
SCHEMA: StructType = struct(n=BIGINT)


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
def test_path_segment_is_one_plain_folder_name(name: str) -> None:
    segment = path_segment(name)
    assert segment
    assert segment.isascii()
    assert segment.isprintable()
    assert not set(segment) & set("/\\.~ :*?\"<>|'`$")
    assert Path("root", segment).resolve().parent == Path("root").resolve()
    assert unquote(segment) == (name or "%")


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


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> LakeTable:
    made = LakeTable(spark, str(tmp_path / "a table"), "numbers")
    made.create(SCHEMA)
    return made


def numbers(table: LakeTable) -> list[int]:
    return sorted(r["n"] for r in table.read().collect())


def test_rows_and_cursor_come_in_one_commit(spark: SparkSession, table: LakeTable) -> None:
    assert table.cursor() is None
    assert next_sequence(None) == 1
    table.append(spark.createDataFrame([(1,)], SCHEMA), {"sequence": 1, "upto": {"a": [1, 2**60]}})
    assert table.cursor() == {"sequence": 1, "upto": {"a": [1, 2**60]}}
    assert next_sequence(table.cursor()) == 2
    log = table.delta().history().collect()
    assert [r["version"] for r in log if r["userMetadata"]] == [1]
    # A commit by hand has no cursor, and hides none.
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('a' = 'b')")
    assert table.cursor() == {"sequence": 1, "upto": {"a": [1, 2**60]}}
    table.create(SCHEMA)
    assert numbers(table) == [1]


def test_a_sequence_is_committed_once(spark: SparkSession, table: LakeTable) -> None:
    table.append(spark.createDataFrame([(1,)], SCHEMA), {"sequence": 1, "by": "one"})
    with pytest.raises(ConcurrentRunError, match="numbers: another run"):
        table.append(spark.createDataFrame([(2,)], SCHEMA), {"sequence": 1, "by": "another"})
    assert numbers(table) == [1]
    assert table.cursor() == {"sequence": 1, "by": "one"}
    table.append(spark.createDataFrame([(3,)], SCHEMA), {"sequence": 2})
    assert numbers(table) == [1, 3]


def test_a_failed_commit_leaves_no_settings_behind(spark: SparkSession, table: LakeTable) -> None:
    def fail() -> None:
        with table.transaction({"sequence": 1}):
            raise ValueError("on the way")

    with pytest.raises(ValueError, match="on the way"):
        fail()
    spark.createDataFrame([(7,)], SCHEMA).write.format("delta").mode("append").save(table.path)
    assert table.cursor() is None
    assert numbers(table) == [7]


STAGES: dict[str, Callable[[Chain], object]] = {
    "raw_records": lambda it: ingest(it.lake, it.feed),
    "change_events": lambda it: decode(it.lake, it.feed),
    "table_schemas": lambda it: learn(it.lake, it.feed),
    "released_changes": lambda it: release(it.lake, it.feed),
    "history": lambda it: list(apply(it.lake, it.feed, pending_tables(it.lake))),
}


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
    original = LakeTable.transaction
    for name, stage in STAGES.items():

        def other_first(self: LakeTable, cursor: dict[str, object], name: str = name, stage=stage):
            if self.name.startswith(name):
                monkeypatch.setattr(LakeTable, "transaction", original)
                stage(it)
            return original(self, cursor)

        monkeypatch.setattr(LakeTable, "transaction", other_first)
        with pytest.raises(ConcurrentRunError, match=name):
            stage(it)
        assert LakeTable.transaction is original
    undisturbed = chain()
    undisturbed.add(stream.records)
    undisturbed.run()
    assert contents(it.lake) == contents(undisturbed.lake)
