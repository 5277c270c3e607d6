"""Decide about held DDL statements: `apply` uses what the stage `table_schemas` has read, not the SQL."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.ddl.actions import Statement, encode_statement
from cdc_assets.errors import OperationError
from cdc_assets.lakehouse.decisions import Decision, DecisionVerdict, statement_id
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, HoldReason, ReleaseCursor
from cdc_assets.lakehouse.table_schemas import TABLE_SCHEMAS, SchemasCursor
from cdc_assets.operations.acknowledge import record_decision

pytestmark = pytest.mark.fast

TEXT = "TRUNCATE TABLE orders"
ID = statement_id(7, "shop", TEXT)
ACTIONS = encode_statement(Statement("truncate_table"))


def never() -> SparkSession:
    raise AssertionError("a Spark session was asked for")


def lake_with_held(folder: Path, *, actions: str | None, error: str | None) -> Lakehouse:
    """Return a lakehouse whose table orders waits at the statement TEXT, with these actions and this error."""
    lake = Lakehouse(never, str(folder), "f")
    row: dict[str, Any] = dict.fromkeys(TABLE_SCHEMAS.columns.names)
    row |= {"commit_ts": 7, "default_database": "shop", "ddl_statement": TEXT, "actions": actions, "error": error}
    lake.table_schemas.commit(lake.table_schemas.stage_rows([row]), SchemasCursor(sequence=1))
    first = {"statement": TEXT, "statement_id": ID, "why": error or "schema_changes is stop"}
    hold = Hold("shop", "orders", 7, HoldReason.DDL, 0, first)
    lake.released_changes.commit(lake.released_changes.stage_rows([]), ReleaseCursor(sequence=1, holds=[hold]))
    return lake


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        pytest.param(ACTIONS, None, id="schema_changes says stop"),
        pytest.param(ACTIONS, "by the statement it has ...", id="its message carries another table"),
        pytest.param(None, None, id="its message carries the table, so its text does not matter"),
    ],
)
def test_a_statement_that_is_understood_can_be_applied(tmp_path: Path, actions: str | None, error: str | None) -> None:
    lake = lake_with_held(tmp_path, actions=actions, error=error)
    record_decision(lake, ID, Decision(DecisionVerdict.APPLY))
    assert lake.read_decisions() == {ID: Decision(DecisionVerdict.APPLY)}


def test_a_statement_without_a_certain_table_cannot_be_applied(tmp_path: Path) -> None:
    """The text can be read, but the table that it means is not known."""
    lake = lake_with_held(tmp_path, actions=None, error="the database of orders is not known")
    with pytest.raises(OperationError, match=r"cannot be read: .*the database of orders is not known"):
        record_decision(lake, ID, Decision(DecisionVerdict.APPLY))
    with pytest.raises(OperationError, match="cannot be read: TRUNCATE orders, items"):
        record_decision(lake, ID, Decision(DecisionVerdict.AS, "TRUNCATE orders, items"))
    assert lake.read_decisions() == {}
    record_decision(lake, ID, Decision(DecisionVerdict.AS, "TRUNCATE TABLE shop.orders"))
    assert lake.read_decisions() == {ID: Decision(DecisionVerdict.AS, "TRUNCATE TABLE shop.orders")}
