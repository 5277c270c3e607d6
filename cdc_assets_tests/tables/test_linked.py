"""A table whose folder has a `%` in its name, which deltalake alone would look for elsewhere."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.tables.lakehouse import path_segment
from cdc_assets.tables.linked import deltalake_place
from cdc_assets.tables.schema import frame_of
from cdc_assets.tables.table import LakeTable
from cdc_assets_tests.tables.numbers import NUMBERS, NumbersCursor


@pytest.mark.parametrize("name", ["a.b", "注文", "a b", "../../x", "%2E", "` $`"])
def test_what_is_written_is_where_spark_looks_for_it_and_nowhere_else(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    folder = path_segment(name)
    table = LakeTable(str(tmp_path / folder), "numbers", NUMBERS)
    assert not table.exists()
    table.commit(table.stage(frame_of(spark, [{"n": 1}], NUMBERS.columns)), NumbersCursor(sequence=1))
    table.commit(table.stage_rows([{"n": 2}]), NumbersCursor(sequence=2))
    assert sorted(r["n"] for r in table.read(spark).collect()) == [1, 2]
    assert table.fetch(table.files(), "n")["n"].to_pylist() in ([1, 2], [2, 1])
    assert [each.name for each in tmp_path.iterdir()] == [folder]


def test_deleted_rows_are_seen(spark: SparkSession, tmp_path: Path) -> None:
    table = LakeTable(str(tmp_path / "a%2Eb"), "numbers", NUMBERS)
    table.commit(
        table.stage(frame_of(spark, [{"n": n} for n in range(9)], NUMBERS.columns).coalesce(1)),
        NumbersCursor(sequence=1),
    )
    log = table.log()
    assert log
    assert log.plain
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
    spark.sql(f"DELETE FROM delta.`{table.path}` WHERE n = 3")
    assert list((tmp_path / "a%2Eb").glob("deletion_vector_*"))
    log = table.log()
    assert log
    assert not log.plain


def test_other_paths_are_left_as_they_are() -> None:
    for path in ("/data/lake/x", "relative/a%2Eb", "s3://bucket/a%2Eb"):
        assert deltalake_place(path) == path
