"""Decide which tables a run examines for rows that a foreign key changed without row events, and report these rows."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.sql import SparkSession

from cdc_assets.assets.checks.history import parents_exist
from cdc_assets.history.missing_parents import MissingParents
from cdc_assets.history.progress import Name
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages.missing_parents import find_missing_parents
from cdc_assets_tests.support import RECORDED, Chain, Message, Stream, ddl, dml, read_lines, tso

ORDERS, NOTES, TYPES = ("shop", "orders"), ("shop", "notes"), {"id": "bigint", "customer_id": "bigint"}
_CHILD = "(id BIGINT PRIMARY KEY, customer_id BIGINT, FOREIGN KEY (customer_id) REFERENCES customers (id)"
TABLES = (
    ("customers", "CREATE TABLE customers (id BIGINT PRIMARY KEY)"),
    (
        "orders",
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer_id BIGINT REFERENCES customers ON DELETE CASCADE)",
    ),
    ("notes", f"CREATE TABLE notes {_CHILD} ON DELETE SET NULL)"),
    ("plain", f"CREATE TABLE plain {_CHILD})"),
)


def no_spark() -> NoReturn:
    pytest.fail("Spark is used")


def change(op: str, at: int, table: str, key: int, customer: int | None = None) -> Message:
    row = {"id": str(key)} | ({} if customer is None else {"customer_id": str(customer)})
    return dml(op, tso(at), row, TYPES, table=table)


def run(it: Chain, stream: Stream, *messages: Message, failing: Collection[Name] = ()) -> dict[Name, MissingParents]:
    """Return the rows that a run over these messages reports; `failing`: the tables that had such rows before."""
    start = len(stream.records)
    for message in messages:
        stream.send(message)
    it.add(stream.records[start:])
    return find_missing_parents(it.lake, it.feed, it.run().history, failing.__contains__)


def test_rows_that_a_foreign_key_changed(chain: Callable[..., Chain]) -> None:
    it, stream = chain(tidb_extension=False), Stream()
    start = [
        *(ddl(text, tso(1), table=table) for table, text in TABLES),
        *(change("INSERT", 2, "customers", key) for key in (1, 2)),
        *(change("INSERT", 3, table, 10 * key, key) for table in ("orders", "notes", "plain") for key in (1, 2)),
    ]
    assert run(it, stream, *start) == {}, "no parent has ended"

    own = [change("DELETE", 4, table, 10, 1) for table in ("orders", "notes")]
    missing = run(it, stream, *own, change("DELETE", 5, "customers", 1))
    assert missing == {ORDERS: MissingParents(), NOTES: MissingParents()}, "the children's own DELETEs came"

    rename = ddl("RENAME TABLE customers TO clients", tso(6), table="clients", ddl_type="RENAME")
    missing = run(it, stream, rename, change("DELETE", 7, "clients", 2))
    assert {name: each.count for name, each in missing.items()} == {ORDERS: 1, NOTES: 1}
    (row,) = missing[ORDERS].sample
    assert (row["foreign_key"], row["parent"], row["parent_values"], row["removed_ts"]) == (
        "orders_ibfk_1", "shop.clients", "2", tso(7),
    )  # fmt: skip
    verdict = parents_exist("shop.orders", missing[ORDERS])
    assert not verdict.passed
    assert "`shop.clients` (foreign key orders_ibfk_1)" in verdict.description

    missing = run(it, stream, change("DELETE", 8, "orders", 20, 2), failing=[ORDERS])
    assert {name: each.count for name, each in missing.items()} == {ORDERS: 0}, "the child's own DELETE came later"
    assert parents_exist("shop.orders", missing[ORDERS]).passed


def test_spark_does_not_run_while_no_version_of_the_parent_has_ended(chain: Callable[..., Chain]) -> None:
    it, stream = chain(tidb_extension=False), Stream()
    for table, text in TABLES[:2]:
        stream.send(ddl(text, tso(1), table=table))
    stream.send(change("INSERT", 2, "customers", 1))
    stream.send(change("INSERT", 3, "orders", 10, 1))
    it.add(stream.records)
    reports = it.run().history
    lake = Lakehouse(no_spark, it.lake.root, "f", it.lake.store)
    had_missing = [ORDERS].__contains__
    assert find_missing_parents(lake, it.feed, reports, had_missing) == {ORDERS: MissingParents()}
    with_watermarks = it.feed.model_copy(update={"tidb_extension": True})
    assert find_missing_parents(lake, with_watermarks, reports, had_missing) == {}, "TiDB sends what foreign keys do"
    assert find_missing_parents(lake, it.feed, [], had_missing) == {}


def test_a_cascade_of_a_real_server(spark: SparkSession, tmp_path: Path) -> None:
    """The records of Debezium lack the DELETEs of the rows 10 and 11, whose parent 1 was deleted within the same second."""
    it = Chain(spark, tmp_path, protocol="debezium")
    it.add(read_lines(RECORDED / "mysql/dbz350m-schemas/extra"))
    by_table = find_missing_parents(it.lake, it.feed, it.run().history, [].__contains__)
    assert by_table.keys() == {("dbz_extra", "child")}
    (missing,) = by_table.values()
    assert [(row["key"], row["parent"], row["parent_values"]) for row in missing.sample] == [
        ('["10"]', "dbz_extra.parent", "1"),
        ('["11"]', "dbz_extra.parent", "1"),
    ]
