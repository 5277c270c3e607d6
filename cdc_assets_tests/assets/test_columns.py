"""Check that every column of the project has a description on the asset's page, and that source columns have none."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from cdc_assets.assets.common import describe_columns, describe_table
from cdc_assets.lakehouse.history import CDC_COLUMNS, COPY, RESERVED, history_name
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.table import LakeTable


def never() -> SparkSession:
    raise AssertionError("a Spark session was asked for")


LAKE = Lakehouse(never, "nowhere", "f")
HISTORY_COLUMNS = [*CDC_COLUMNS, COPY]


@pytest.mark.parametrize("table", LAKE.stage_tables, ids=lambda table: table.name)
def test_every_column_of_the_project_is_described(table: LakeTable) -> None:  # type: ignore[type-arg]
    """The page has the descriptions whether the table exists or not."""
    for column in describe_table(table)["dagster/column_schema"].columns:
        assert len(column.description or "") > 5, column.name


def test_every_column_of_the_project_in_a_history_is_described() -> None:
    for column in describe_columns(StructType(HISTORY_COLUMNS)).columns:
        assert len(column.description or "") > 5, column.name


def test_an_existing_table_describes_its_columns(tmp_path: Path) -> None:
    """Delta keeps the descriptions for readers with other tools."""
    for table in Lakehouse(never, str(tmp_path), "f").stage_tables:
        planned = describe_table(table)["dagster/column_schema"]
        table.create()
        assert describe_table(table)["dagster/column_schema"] == planned


def test_a_source_column_never_has_a_description_of_the_project() -> None:
    assert all(column.name.startswith(RESERVED) for column in HISTORY_COLUMNS)
    assert not history_name(CDC_COLUMNS[0].name).startswith(RESERVED)
    (shown,) = describe_columns(StructType([StructField("commit_ts", LongType())])).columns
    assert shown.description is None
