"""Data files, written by Spark and without it, in all types that tables have."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from cdc_assets.lakehouse import files
from cdc_assets.lakehouse.schema import BIGINT, STRING, TIMESTAMP, literal, struct
from cdc_assets.lakehouse.table import Definition, LakeTable
from cdc_assets.stores.storage import LOCAL
from cdc_assets_tests.lakehouse.numbers import NumbersCursor

# A Spark type, a value in SQL, and the same value in Python.
VALUES: list[tuple[str, str, Any]] = [
    ("BOOLEAN", "true", True),
    ("TINYINT", "-128", -128),
    ("SMALLINT", "32767", 32767),
    ("INT", "-2147483648", -(2**31)),
    ("BIGINT", "9223372036854775807", 2**63 - 1),
    ("FLOAT", "-0.5", -0.5),
    ("DOUBLE", "1.7976931348623157E308D", 1.7976931348623157e308),
    ("DECIMAL(5,2)", "-999.99", Decimal("-999.99")),
    ("DECIMAL(18,6)", "123456789012.345678", Decimal("123456789012.345678")),
    ("DECIMAL(38,10)", "-9999999999999999999999999999.0123456789", Decimal("-9999999999999999999999999999.0123456789")),
    ("STRING", literal("ü\0'\\ 😀"), "ü\0'\\ 😀"),
    ("BINARY", "X'00FF80'", b"\0\xff\x80"),
    ("DATE", "DATE '0001-01-01'", date(1, 1, 1)),
    (
        "TIMESTAMP_NTZ",
        "TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'",
        datetime.fromisoformat("9999-12-31 23:59:59.999999"),
    ),
    ("ARRAY<STRING>", "array('a', NULL)", ["a", None]),
    ("ARRAY<STRUCT<key: STRING, value: BINARY>>", "array(struct('k', X'01'))", [{"key": "k", "value": b"\1"}]),
    ("STRUCT<file: STRING, position: BIGINT>", "struct('f', 4L)", {"file": "f", "position": 4}),
]


def table_of(folder: Path, **kinds: DataType) -> LakeTable[NumbersCursor]:
    """Return a table with columns of these types, and N."""
    columns = struct(**kinds, N=BIGINT)
    return LakeTable(str(folder / "table"), "table", Definition(columns=columns, cursor=NumbersCursor))


@pytest.mark.parametrize("by_spark", [True, False])
def test_values_of_every_type_and_null_are_read_back(spark: SparkSession, tmp_path: Path, *, by_spark: bool) -> None:
    casts = [f"CAST(v{n} AS {kind}) AS `{kind}.x`" for n, (kind, *_) in enumerate(VALUES)]
    values, nulls = ", ".join(sql for _, sql, _ in VALUES), ", ".join("NULL" for _ in VALUES)
    names = ", ".join(f"v{n}" for n, _ in enumerate(VALUES))
    rows = spark.sql(f"SELECT {', '.join(casts)}, n AS N FROM VALUES ({values}, 1L), ({nulls}, 2L) AS t({names}, n)")
    table = table_of(tmp_path, **{f.name: f.dataType for f in rows.schema if f.name != "N"})
    plain = [r.asDict(recursive=True) for r in rows.collect()]
    table.commit(table.stage(rows) if by_spark else table.stage_rows(plain), NumbersCursor(sequence=1))
    result = table.read(spark)
    assert [f.dataType for f in result.schema] == [f.dataType for f in table.definition.columns]
    values_row, null_row = (r.asDict(recursive=True) for r in result.orderBy("N").collect())
    assert values_row == {f"{kind}.x": value for kind, _, value in VALUES} | {"N": 1}
    assert null_row == {f"{kind}.x": None for kind, *_ in VALUES} | {"N": 2}
    assert result.where(" AND ".join(f"`{kind}.x` IS NULL" for kind, *_ in VALUES)).count() == 1


def test_a_timestamp_is_the_same_instant_for_all_readers(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"a.b": TIMESTAMP})
    rows = spark.sql("SELECT TIMESTAMP '2024-02-29 12:34:56.789012+09:00' AS `a.b`, 1L AS N")
    table.commit(table.stage(rows), NumbersCursor(sequence=1))
    fetched = table.fetch(table.files(), "a.b")["a.b"].to_pylist()
    assert fetched == [datetime(2024, 2, 29, 3, 34, 56, 789012, UTC)]
    assert table.read(spark).where("`a.b` = TIMESTAMP '2024-02-29 03:34:56.789012Z'").count() == 1


def test_staging_no_rows_writes_no_file(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"a.b": STRING})
    assert table.stage(spark.sql("SELECT 'x' AS `a.b`, 1L AS N WHERE false")).files == []
    assert table.stage_rows([]).files == []


def test_a_column_may_have_any_name(tmp_path: Path) -> None:
    """A hostile message may use any name, also one with a NUL, which ends a text in C."""
    columns, row = struct(**{"\0": STRING, "a`b": STRING, "": STRING}), {"\0": "x", "a`b": "y", "": "z"}
    (file,) = files.write_rows([row], str(tmp_path), "folder", columns, (), (), LOCAL)
    assert parquet.read_table(file.path).to_pylist() == [row]
