"""Find the tables that a DDL statement may change, and decide whether the statement waits for a decision."""

from typing import Any

import pytest

from cdc_assets.config import Feed, FeedsFile
from cdc_assets.lakehouse.decisions import Decision, DecisionVerdict, statement_id
from cdc_assets.protocols import protocol_of
from cdc_assets.release.statements import DdlEvent, build_ddl_events, explain_hold
from cdc_assets.stages.schemas import apply_statements

pytestmark = pytest.mark.fast

CREATED = (
    "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, v VARCHAR(20), KEY i (v))",
    "CREATE TABLE shop.Items (id INT)",
    "CREATE TABLE crm.orders (id INT)",
)


def feed(**settings: Any) -> Feed:
    entry = {"protocol": "canal-json", "source": {"recorded": "x"}, **settings}
    return FeedsFile.model_validate({"feeds": {"f": entry}}).feeds["f"]


def schema_input(offset: int, text: str) -> dict[str, Any]:
    row = {"commit_ts": 10 * (offset + 1), "topic": "t", "partition": 0, "offset": offset, "ddl_statement": text}
    return row | {"default_database": "shop", "message_table": None, "table_schemas": None, "ddl_type": None}


def read_statement(text: str, decision: Decision | None = None) -> tuple[DdlEvent, list[dict[str, Any]]]:
    """Return a statement after those in `CREATED`, and all rows of table_schemas, as the stage schemas writes them."""
    statements = [schema_input(n, each) for n, each in enumerate((*CREATED, text))]
    commit_ts = statements[-1]["commit_ts"]
    decided = {statement_id(commit_ts, "shop", text): decision} if decision else {}
    shapes, _ = apply_statements(protocol_of(feed()), statements, decided)
    row = {"commit_ts": commit_ts, "database": "shop", "table": "orders", "ddl_statement": text}
    (event,) = build_ddl_events([row], shapes, decided)
    return event, shapes


def statement(text: str, decision: Decision | None = None) -> DdlEvent:
    return read_statement(text, decision)[0]


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("ALTER TABLE orders ADD COLUMN w INT", {("shop", "orders")}),
        ("RENAME TABLE orders TO crm.a, crm.b TO orders", {("shop", "orders"), ("crm", "a"), ("crm", "b")}),
        ("DROP DATABASE shop", {("shop", "orders"), ("shop", "Items")}),
        ("ALTER TABLE orders FROBNICATE", {("shop", "orders")}),
        ("ALTER TABLE `ORDERS` FROBNICATE", {("shop", "orders")}),
        ("ALTER TABLE crm.orders FROBNICATE", {("crm", "orders")}),
        ("FROBNICATE items, crm . orders", {("shop", "Items"), ("crm", "orders")}),
        ("ALTER TABLE others FROBNICATE COMMENT 'orders'", set()),
        ("ALTER TABLE orders COMMENT 'not closed", set()),
        ("CREATE VIEW v AS SELECT 1", set()),
    ],
)
def test_the_tables_that_a_statement_may_change(text: str, tables: set[tuple[str, str]]) -> None:
    assert statement(text).tables == tables


def test_a_replaced_statement_may_change_the_tables_of_both() -> None:
    decided = statement("ALTER TABLE orders ADD COLUMN", Decision(DecisionVerdict.AS, "TRUNCATE TABLE crm.x"))
    assert decided.tables == {("shop", "orders"), ("crm", "x")}


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("ALTER TABLE orders ADD COLUMN w INT", True),
        ("ALTER TABLE orders MODIFY v VARCHAR(30)", True),
        ("ALTER TABLE orders DROP PRIMARY KEY", True),
        ("ALTER TABLE orders TRUNCATE PARTITION p", True),
        ("TRUNCATE TABLE orders", True),
        ("DROP TABLE orders", True),
        ("RENAME TABLE orders TO o", True),
        ("CREATE INDEX j ON orders (v)", False),
        ("ALTER TABLE orders DROP INDEX i, COMMENT 'x'", False),
        ("ALTER TABLE orders ENGINE = InnoDB", False),
        ("CREATE TABLE IF NOT EXISTS orders (x INT)", False),
        ("ALTER TABLE orders MODIFY v VARCHAR(20)", False),
    ],
)
def test_stop_holds_what_changes_columns_key_or_rows(text: str, waits: bool) -> None:
    tables = {("shop", "orders")}
    stop, existed = feed(schema_changes="stop"), lambda _: True
    each, shapes = read_statement(text)
    why = explain_hold(each, tables, stop, shapes, existed)
    assert why == ("schema_changes is stop for shop.orders" if waits else None)
    assert explain_hold(each, tables, feed(), shapes, existed) is None, "it evolves"
    assert explain_hold(each, tables, stop, shapes, lambda _: False) is None, "there was no such table"
    decided, shapes = read_statement(text, Decision(DecisionVerdict.APPLY))
    assert explain_hold(decided, tables, stop, shapes, existed) is None


def test_a_statement_that_is_not_understood_waits() -> None:
    tables = {("shop", "orders")}
    unread, shapes = read_statement("ALTER TABLE orders FROBNICATE")
    why = explain_hold(unread, tables, feed(), shapes, lambda _: True)
    assert why is not None
    assert why.startswith("the statement could not be read, and may change the table: ALTER TABLE ... FROBNICATE")
    assert explain_hold(unread, set(), feed(), shapes, lambda _: True) is None
