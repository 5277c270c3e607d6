"""Which tables a DDL statement may change, and when it waits for a decision."""

from typing import Any

import pytest

from cdc_assets.feeds import Feed, FeedsFile
from cdc_assets.gate.statements import Statement, mentioned, statement_of, why_held
from cdc_assets.mysql_types.ddl import apply_ddl
from cdc_assets.tables.decisions import Decision, Verdict, statement_id

pytestmark = pytest.mark.fast

KNOWN = {("shop", "orders"), ("shop", "Items"), ("crm", "orders")}
CREATED = "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20), KEY i (v))"


def feed(**settings: Any) -> Feed:
    entry = {"protocol": "canal-json", "source": {"recorded": "x"}, **settings}
    return FeedsFile.model_validate({"feeds": {"f": entry}}).feeds["f"]


def statement(text: str, table: str | None = "orders", decision: Decision | None = None) -> Statement:
    row = {"commit_ts": 20, "database": "shop", "table": table, "ddl_statement": text}
    key = statement_id(20, "shop", text)
    return statement_of(row, {key: decision} if decision else {})


def shapes(text: str) -> list[dict[str, Any]]:
    """As the stage before the gate tells: the table as it was created, and as the statement leaves it."""
    before = apply_ddl({}, CREATED, "shop")
    rows = []
    for commit_ts, said, effect in ((10, CREATED, before), (20, text, apply_ddl(before.tables, text, "shop"))):
        for name in effect.affected:
            table = effect.tables.get(name)
            rows.append(
                {"commit_ts": commit_ts, "default_database": "shop", "ddl_statement": said}
                | {"database": name.database, "table": name.table}
                | {"columns": table and list(table.columns), "primary_key": table and table.primary_key}
                | {"key_columns": table and table.key_columns}
            )
    return rows


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ALTER TABLE orders FROBNICATE", {("shop", "orders")}),
        ("ALTER TABLE `ORDERS` FROBNICATE", {("shop", "orders")}),
        ("ALTER TABLE crm.orders FROBNICATE", {("crm", "orders")}),
        ("FROBNICATE items, crm . orders", {("shop", "Items"), ("crm", "orders")}),
        ("ALTER TABLE others COMMENT 'orders'", set()),
        ("ALTER TABLE orders COMMENT 'not closed", set()),
    ],
)
def test_the_tables_that_a_statement_mentions(text: str, found: set[tuple[str, str]]) -> None:
    assert mentioned(text, "shop", KNOWN) == found


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("ALTER TABLE orders ADD COLUMN w INT", {("shop", "orders")}),
        ("RENAME TABLE orders TO crm.a, crm.b TO orders", {("shop", "orders"), ("crm", "a"), ("crm", "b")}),
        ("DROP DATABASE shop", {("shop", "orders"), ("shop", "Items")}),
        ("ALTER TABLE crm.orders ADD COLUMN w FANCYTYPE", {("shop", "orders"), ("crm", "orders")}),
        ("CREATE VIEW v AS SELECT 1", set()),
    ],
)
def test_the_tables_that_a_statement_may_change(text: str, tables: set[tuple[str, str]]) -> None:
    assert statement(text).tables(lambda: KNOWN) == tables


def test_in_whose_place_another_stands_may_change_the_tables_of_both() -> None:
    decided = statement("ALTER TABLE orders ADD COLUMN", decision=Decision(Verdict.AS, "TRUNCATE TABLE crm.x"))
    assert decided.tables(lambda: KNOWN) == {("shop", "orders"), ("crm", "x")}


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
    stop, seen = feed(schema_changes="stop"), lambda _: True
    said = why_held(statement(text), tables, stop, shapes(text), seen)
    assert said == ("schema_changes is stop for shop.orders" if waits else None)
    assert why_held(statement(text), tables, feed(), shapes(text), seen) is None, "it evolves"
    assert why_held(statement(text), tables, stop, shapes(text), lambda _: False) is None, "there was no such table"
    decided = statement(text, decision=Decision(Verdict.APPLY))
    assert why_held(decided, tables, stop, shapes(text), seen) is None


def test_what_cannot_be_read_waits_unless_its_message_tells_the_table() -> None:
    tables, text = {("shop", "orders")}, "ALTER TABLE orders ADD COLUMN w FANCYTYPE"
    unread = statement(text)
    assert why_held(unread, tables, feed(), [], lambda _: True) == (
        "the statement could not be read, and may change the table"
    )
    assert why_held(unread, set(), feed(), [], lambda _: True) is None
    told = [r | {"commit_ts": 20, "ddl_statement": text} for r in shapes("")]
    assert why_held(unread, tables, feed(), told, lambda _: True) is None
