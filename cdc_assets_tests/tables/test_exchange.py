"""Rows that go from a table and rows that come into it, in one commit, by the places where those stand that go."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.tables.schema import frame_of
from cdc_assets.tables.table import ConcurrentRunError, LakeTable
from cdc_assets_tests.tables.numbers import NAMED, NumbersCursor

MARKED = replace(NAMED, properties={"delta.enableDeletionVectors": "true"})
# A folder and a partition; of the odd ones Polars cannot read.
PLAIN = ("table", "one")
ODD = ("shop.a b~2Eb", "a b/ü=%")


@pytest.fixture(params=[PLAIN, ODD], ids=lambda p: p[0])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable[NumbersCursor]:
    """1 to 9 in one file of one partition, 10 in one of another."""
    folder, partition = request.param
    made = LakeTable(str(tmp_path / folder), "numbers", MARKED)
    rows = [{"kind": partition, "n": n, "name": str(n)} for n in range(1, 10)]
    made.commit(made.stage_rows([*rows, {"kind": "other", "n": 10}]), NumbersCursor(sequence=1))
    return made


def partition(table: LakeTable[NumbersCursor]) -> str:
    return dict([PLAIN, ODD])[Path(table.path).name]


def places(spark: SparkSession, table: LakeTable[NumbersCursor], *numbers: int) -> DataFrame:
    found = table.read(spark).selectExpr("n", "_metadata.file_path AS file", "_metadata.row_index AS row")
    return found.where(found.n.isin(*numbers)).localCheckpoint()


def exchange(
    spark: SparkSession, table: LakeTable[NumbersCursor], gone: DataFrame, come: list[int], sequence: int
) -> None:
    rows = frame_of(spark, [{"kind": "new", "n": n} for n in come], NAMED.columns)
    table.exchange(spark.newSession(), gone, rows, f"kind = '{partition(table)}'", NumbersCursor(sequence=sequence))


def by_spark(spark: SparkSession, table: LakeTable[NumbersCursor]) -> list[int]:
    return sorted(r["n"] for r in table.read(spark).collect())


def by_others(table: LakeTable[NumbersCursor]) -> list[int]:
    """What deltalake's SQL finds, and so does Polars."""
    there = DeltaTable(table.path)
    found = sorted(pa.table(QueryBuilder().register("t", there).execute("SELECT n FROM t").read_all())["n"].to_pylist())
    if partition(table) == "one":
        assert sorted(pl.read_delta(table.path)["n"].to_list()) == found
    return found


def test_rows_go_and_come_in_one_commit(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    assert by_others(table) == list(range(1, 11))
    before = table.log()
    exchange(spark, table, places(spark, table, 2, 9), [20, 21], 2)
    after = table.log()
    assert before is not None
    assert after is not None
    assert (after.version, after.plain) == (before.version + 1, False)
    assert table.cursor() == NumbersCursor(sequence=2)
    left = [1, 3, 4, 5, 6, 7, 8, 10, 20, 21]
    assert by_spark(spark, table) == left
    assert by_others(table) == left
    assert {f.path for f in before.files()} < {f.path for f in table.files()}  # none was written anew


def test_marks_are_added_to_marks_until_the_file_goes(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    (whole,) = table.files(kind=partition(table))
    for sequence, gone in enumerate(([1, 5], [2, 9], [3]), start=2):
        exchange(spark, table, places(spark, table, *gone), [], sequence)
    assert by_spark(spark, table) == [4, 6, 7, 8, 10]
    assert by_others(table) == [4, 6, 7, 8, 10]
    assert table.files(kind=partition(table)) == [whole]
    exchange(spark, table, places(spark, table, 4, 6, 7, 8), [], 5)
    assert table.files(kind=partition(table)) == []
    assert by_spark(spark, table) == [10]
    assert by_others(table) == [10]


def written_anew(spark: SparkSession, table: LakeTable[NumbersCursor], sequence: int) -> None:
    """Two files of one partition are put together."""
    table.commit(table.stage_rows([{"kind": partition(table), "n": 11}]), NumbersCursor(sequence=sequence))
    table.alter(spark.newSession(), NumbersCursor(sequence=sequence), lambda t: t.optimize().executeCompaction())


def test_what_delta_writes_anew_has_no_marks(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    exchange(spark, table, places(spark, table, 1, 2), [], 2)
    written_anew(spark, table, 3)
    log = table.log()
    assert log is not None
    assert log.plain
    assert by_spark(spark, table) == by_others(table) == list(range(3, 12))


def test_a_partition_with_marks_is_replaced(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    exchange(spark, table, places(spark, table, 1, 2), [], 2)
    table.commit(
        table.stage_rows([{"kind": partition(table), "n": 5}]),
        NumbersCursor(sequence=3),
        over={"kind": partition(table)},
    )
    assert by_spark(spark, table) == [5, 10]
    assert by_others(table) == [5, 10]


def test_a_sequence_is_committed_once(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    gone, other = places(spark, table, 1), places(spark, table, 2)
    exchange(spark, table, gone, [20], 2)
    with pytest.raises(ConcurrentRunError, match="numbers: another run"):
        exchange(spark, table, other, [30], 2)
    assert by_spark(spark, table) == [*range(2, 11), 20]


def test_places_in_files_that_were_replaced_are_refused(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    exchange(spark, table, places(spark, table, 1), [], 2)
    gone = places(spark, table, 2)
    written_anew(spark, table, 3)
    with pytest.raises(ConcurrentRunError, match="numbers: another run"):
        exchange(spark, table, gone, [20], 4)
    assert by_spark(spark, table) == list(range(2, 12))
    exchange(spark, table, places(spark, table, 2), [20], 4)
    assert by_spark(spark, table) == [*range(3, 12), 20]
