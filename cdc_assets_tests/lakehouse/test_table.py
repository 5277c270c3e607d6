"""One Delta table: rows and cursor in one commit, and reads without Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cdc_assets.lakehouse.cursor import CursorError, read_note
from cdc_assets.lakehouse.schema import frame_of
from cdc_assets.lakehouse.table import ConcurrentRunError, LakeTable, Staged
from cdc_assets_tests.lakehouse.numbers import NAMED, NUMBERS, NumbersCursor


@pytest.fixture
def table(tmp_path: Path) -> LakeTable[NumbersCursor]:
    made = LakeTable(str(tmp_path / "a table"), "numbers", NUMBERS)
    made.create()
    return made


@pytest.fixture
def named(tmp_path: Path) -> LakeTable[NumbersCursor]:
    return LakeTable(str(tmp_path / "named"), "named", NAMED)


def put(spark: SparkSession, table: LakeTable[NumbersCursor], n: int, cursor: NumbersCursor) -> None:
    table.commit(table.stage(frame_of(spark, [{"n": n}], NUMBERS.columns)), cursor)


def numbers(spark: SparkSession, table: LakeTable[NumbersCursor]) -> list[int]:
    return sorted(r["n"] for r in table.read(spark).collect())


def rows(spark: SparkSession, table: LakeTable[NumbersCursor]) -> list[tuple[Any, ...]]:
    return sorted(tuple(r) for r in table.read(spark).collect())


def test_rows_and_cursor_come_in_one_commit(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    assert table.cursor() is None
    cursor = NumbersCursor(sequence=1, upto={"a": [1, 2**60]})
    put(spark, table, 1, cursor)
    assert table.cursor() == cursor
    log = table.log()
    assert log is not None
    assert [c.version for c in log.commits() if read_note(c.note)] == [1]
    # A commit by hand has no cursor, and does not hide the cursor before it.
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('a' = 'b')")
    assert table.cursor() == cursor
    table.create()
    assert numbers(spark, table) == [1]


def test_a_sequence_is_committed_once(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    put(spark, table, 1, NumbersCursor(sequence=1, by="one"))
    with pytest.raises(ConcurrentRunError, match="numbers: another run"):
        put(spark, table, 2, NumbersCursor(sequence=1, by="another"))
    assert numbers(spark, table) == [1]
    assert table.cursor() == NumbersCursor(sequence=1, by="one")
    put(spark, table, 3, NumbersCursor(sequence=2))
    assert numbers(spark, table) == [1, 3]


def test_a_sequence_has_no_gaps(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    with pytest.raises(ConcurrentRunError, match="numbers"):
        put(spark, table, 1, NumbersCursor(sequence=2))
    assert numbers(spark, table) == []


def test_a_commit_by_hand_between_does_not_matter(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    put(spark, table, 1, NumbersCursor(sequence=1))
    staged = table.stage(frame_of(spark, [{"n": 2}], NUMBERS.columns))
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('a' = 'b')")
    table.commit(staged, NumbersCursor(sequence=2))
    assert numbers(spark, table) == [1, 2]


def test_a_failed_commit_leaves_no_settings_behind(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    def fail(_: object) -> None:
        raise ValueError("on the way")

    session = spark.newSession()
    with pytest.raises(ValueError, match="on the way"):
        table.transact(session, NumbersCursor(sequence=1), fail)
    frame_of(session, [{"n": 7}], NUMBERS.columns).write.format("delta").mode("append").save(table.path)
    log = table.log()
    assert log is not None
    assert not any(read_note(c.note) for c in log.commits())
    assert numbers(spark, table) == [7]


def test_rows_without_a_cursor_are_an_error_that_says_what_to_do(
    spark: SparkSession, table: LakeTable[NumbersCursor]
) -> None:
    frame_of(spark, [{"n": 7}], NUMBERS.columns).write.format("delta").mode("append").save(table.path)
    with pytest.raises(CursorError, match=r"numbers: the table has rows, and no commit .*run the job rebuild"):
        table.cursor()


def test_a_restored_table_has_a_cursor_only_with_the_rows_that_the_cursor_counts(
    spark: SparkSession, table: LakeTable[NumbersCursor]
) -> None:
    def restore(version: int) -> None:
        spark.sql(f"RESTORE TABLE delta.`{table.path}` TO VERSION AS OF {version}")

    for n in (1, 2):
        put(spark, table, n, NumbersCursor(sequence=n))
    restore(1)
    assert numbers(spark, table) == [1]
    with pytest.raises(CursorError, match=r"numbers: RESTORE has brought back .* restore version 2 of the table at .*"):
        table.cursor()
    restore(2)
    assert table.last_cursor().sequence == 2
    put(spark, table, 3, NumbersCursor(sequence=3))
    assert numbers(spark, table) == [1, 2, 3]
    DeltaTable(table.path).restore(3)
    with pytest.raises(CursorError, match="restore version 5"):
        table.cursor()


def test_an_alteration_repeats_the_cursor(spark: SparkSession, table: LakeTable[NumbersCursor]) -> None:
    cursor = NumbersCursor(sequence=1, by="one")
    put(spark, table, 1, cursor)
    table.alter(spark.newSession(), cursor, lambda it: it.optimize().executeCompaction())
    session = spark.newSession()
    table.alter(
        session, cursor, lambda _: session.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('a' = 'b')")
    )
    newest = table.cursor_with_commit()
    log = table.log()
    assert newest is not None
    assert log is not None
    assert (newest.cursor, newest.commit.version) == (cursor, log.version)
    put(spark, table, 2, NumbersCursor(sequence=2))
    assert [c.sequence for c in table.cursors()] == [2, 1]
    assert numbers(spark, table) == [1, 2]


def test_staged_rows_are_invisible_before_their_commit(spark: SparkSession, named: LakeTable[NumbersCursor]) -> None:
    named.create()
    staged = named.stage_rows([{"kind": "a", "n": 1}, {"kind": "b", "n": 2, "name": "x"}])
    assert staged.rows == 2
    assert rows(spark, named) == []
    assert sorted(tuple(r) for r in named.read_staged(spark, staged).collect()) == [("a", 1, None), ("b", 2, "x")]
    named.commit(staged.in_partition(kind="b"), NumbersCursor(sequence=1))
    assert rows(spark, named) == [("b", 2, "x")]


LONG = "ü" * 40


def by_spark(spark: SparkSession, table: LakeTable[NumbersCursor], some: list[dict[str, Any]]) -> Staged:
    return table.stage(frame_of(spark, some, NAMED.columns).coalesce(1))


def plain_rows(_: SparkSession, table: LakeTable[NumbersCursor], some: list[dict[str, Any]]) -> Staged:
    return table.stage_rows(some)


@pytest.mark.parametrize("staging", [by_spark, plain_rows])
def test_files_have_the_statistics_that_delta_would_write(
    spark: SparkSession, named: LakeTable[NumbersCursor], staging: Callable[..., Staged]
) -> None:
    """And Delta finds rows by these statistics, whether Spark or pyarrow wrote the files."""
    some = [
        {"kind": "a b/ü=%", "n": 5, "name": "x"},
        {"kind": "a b/ü=%", "n": -3},
        {"kind": "plain", "n": 2**60, "name": LONG},
    ]
    named.commit(staging(spark, named, some), NumbersCursor(sequence=1))
    odd, plain = sorted(named.files(), key=lambda f: f.rows, reverse=True)
    assert (odd.partition, odd.rows) == ({"kind": "a b/ü=%"}, 2)
    assert (odd.low["n"], odd.high["n"], odd.nulls) == (-3, 5, {"n": 0, "name": 1})
    assert plain.low["n"] == plain.high["n"] == 2**60
    assert plain.low.get("name") is None or plain.low["name"] <= LONG <= plain.high["name"]
    assert [f.rows for f in named.files(kind="plain")] == [1]
    assert named.fetch([odd], "kind", "n").sort_by("n").to_pydict() == {"kind": ["a b/ü=%"] * 2, "n": [-3, 5]}
    frame = named.read(spark)
    assert sorted(tuple(r) for r in frame.where("kind = 'a b/ü=%'").collect()) == sorted(
        [("a b/ü=%", 5, "x"), ("a b/ü=%", -3, None)]
    )
    assert [r["n"] for r in frame.where(f"name = '{LONG}'").collect()] == [2**60]


def test_files_of_different_writers_are_fetched_together(spark: SparkSession, named: LakeTable[NumbersCursor]) -> None:
    """Spark declares a column as never NULL in a file if the plan says so."""
    named.commit(named.stage_rows([{"kind": "a", "n": None}]), NumbersCursor(sequence=1))
    never_null = spark.sql("SELECT 'a' AS kind, 1L AS n, 'x' AS name")
    named.commit(named.stage(never_null), NumbersCursor(sequence=2))
    assert sorted(named.fetch(named.files(), "n")["n"].to_pylist(), key=str) == [1, None]


def test_staged_rows_are_appended_or_replace_all(spark: SparkSession, named: LakeTable[NumbersCursor]) -> None:
    named.commit(named.stage_rows([{"kind": "a", "n": 1}, {"kind": "b", "n": 2}]), NumbersCursor(sequence=1))
    named.commit(named.stage_rows([{"kind": "a", "n": 3}]), NumbersCursor(sequence=2))
    assert sorted(r[:2] for r in rows(spark, named)) == [("a", 1), ("a", 3), ("b", 2)]
    named.commit(named.stage_rows([{"kind": "c", "n": 4}]), NumbersCursor(sequence=3), replaces=True)
    assert [r[:2] for r in rows(spark, named)] == [("c", 4)]


def test_a_table_that_does_not_exist_is_empty(spark: SparkSession, named: LakeTable[NumbersCursor]) -> None:
    assert not named.exists()
    assert (named.log(), named.schema(), named.cursor(), named.files()) == (None, None, None, [])
    assert rows(spark, named) == []
    assert named.read(spark).columns == NAMED.columns.names
    assert named.fetch([], "n").to_pydict() == {"n": []}


def test_files_are_read_without_delta_only_if_no_row_is_marked_as_deleted(
    spark: SparkSession, table: LakeTable[NumbersCursor]
) -> None:
    table.commit(table.stage_rows([{"n": 1}, {"n": 3}]), NumbersCursor(sequence=1))
    put(spark, table, 2, NumbersCursor(sequence=2))
    newest = [f for f in table.files() if table.fetch([f], "n")["n"].to_pylist() == [2]]
    assert [tuple(r) for r in table.read_files(spark, newest).collect()] == [(2,)]
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    table.transact(spark.newSession(), NumbersCursor(sequence=3), lambda it: it.delete("n = 1"))
    with pytest.raises(ValueError, match="read this table through Delta"):
        table.read_files(spark, table.files())
