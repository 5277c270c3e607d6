"""Choose the columns of a history table, and the types by which each row is read.

Schema-change records state the types of tables whose messages have no schema, each from its time on.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.history.columns import Layout, collect_readings
from cdc_assets.history.evolution import Slot
from cdc_assets.lakehouse.history import history_name
from cdc_assets.mysql_types.types import parse_type
from cdc_assets.protocols.base import WireColumn
from cdc_assets.protocols.canal_json import CanalJson
from cdc_assets_tests.protocols.debezium_encoder import MS, envelope, source, text
from cdc_assets_tests.support import Chain, Record, record, rows_in

LABELS = ["'a'", "'b,c'"]


def described(seconds: int, statement: str, *columns: dict[str, Any]) -> dict[str, Any]:
    """Return a schema-change record of Debezium 3.5: `columns` are all columns after the statement."""
    head = {"length": None, "scale": None, "optional": True, "generated": False, "enumValues": None}
    table = {"columns": [head | c for c in columns], "primaryKeyColumnNames": ["id"]}
    change = {"type": "ALTER", "id": '"inventory"."customers"', "table": table}
    at = source(pos=seconds, seconds=seconds)
    return {"source": at, "databaseName": "inventory", "ddl": statement, "tableChanges": [change]}


def inserted(seconds: int, key: int, **values: Any) -> dict[str, Any]:
    return envelope("c", None, {"id": key} | values, source(pos=seconds, seconds=seconds))


ID = {"name": "id", "typeName": "INT", "jdbcType": 4, "optional": False}
AT = {"name": "at", "typeName": "DATETIME", "jdbcType": 93}
KIND = {"name": "kind", "typeName": "ENUM", "jdbcType": 1, "length": 1, "enumValues": LABELS}


def records(*values: dict[str, Any]) -> list[Record]:
    """Return the records: rows are in the table's topic, under their key, the others in the connector's topic."""
    out = []
    for offset, value in enumerate(values):
        row = value.get("after")
        topic, key = ("s.customers", text({"id": row["id"]})) if row else ("s", None)
        out.append(record(text(value), 0, offset, topic, key=key))
    return out


def test_each_row_is_read_by_the_types_of_its_time(spark: SparkSession, tmp_path: Path) -> None:
    """DATETIME is sent in milliseconds, DATETIME(6) in microseconds; the feed has no CREATE TABLE."""
    chain = Chain(spark, tmp_path, protocol="debezium")
    milliseconds = MS + 123
    chain.add(
        records(
            described(1, "ALTER TABLE customers ADD kind ENUM('a','b,c')", ID, AT | {"length": 3}, KIND),
            inserted(2, 1, at=milliseconds, kind="b\\,c"),
            described(3, "ALTER TABLE customers MODIFY at DATETIME(6)", ID, AT | {"length": 6}, KIND),
            inserted(4, 2, at=milliseconds * 1000 + 456, kind="a"),
        )
    )
    schemas = chain.run().schemas
    assert schemas.errors == []
    assert schemas.tables == 1
    (first, second) = sorted(chain.history("customers", "inventory"), key=lambda row: row["id"])
    assert (str(first["at"]), first["kind"]) == ("2023-11-14 22:13:20.123000", "b,c")
    assert (str(second["at"]), second["kind"]) == ("2023-11-14 22:13:20.123456", "a")
    learnt = sorted(rows_in(chain.lake.table_schemas, spark), key=lambda row: row["commit_ts"])
    assert [[c["type"] for c in row["columns"]] for row in learnt] == [
        ["int", "datetime(3)", "enum('a','b,c')"],
        ["int", "datetime(6)", "enum('a','b,c')"],
    ]
    assert [row["primary_key"] for row in learnt] == [["id"], ["id"]]


def test_labels_come_from_the_statement(spark: SparkSession, tmp_path: Path) -> None:
    """Debezium 1.9.5 describes an enum without its labels, and states no defaults."""
    chain = Chain(spark, tmp_path, protocol="debezium")
    kind = {k: v for k, v in KIND.items() if k != "enumValues"}
    statement = "CREATE TABLE customers (id INT NOT NULL PRIMARY KEY, kind ENUM('a','b,c') NOT NULL DEFAULT 'a')"
    chain.add(records(described(1, statement, ID, kind), inserted(2, 1, kind="b\\,c")))
    chain.run()
    (learnt,) = rows_in(chain.lake.table_schemas, spark)
    assert [(c["type"], c["default"]) for c in learnt["columns"]] == [("int", None), ("enum('a','b,c')", "a")]
    assert [row["kind"] for row in chain.history("customers", "inventory")] == ["b,c"]


def test_an_invalid_schema_change_record_is_quarantined_with_its_statement(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is taken from a record that breaks the protocol."""
    chain = Chain(spark, tmp_path, protocol="debezium")
    broken: list[Any] = [
        "no array", {"id": 1}, [1], [{"id": None}], [{"id": '"a"."b"', "table": {"columns": [{"name": "x"}]}}]
    ]  # fmt: skip
    statements = [f"CREATE TABLE t{n} (id INT PRIMARY KEY)" for n in range(len(broken))]
    sent = [described(n, s) | {"tableChanges": broken[n]} for n, s in enumerate(statements)]
    chain.add(records(*sent))
    chain.run()
    assert rows_in(chain.lake.table_schemas, spark) == []
    reasons = {row["offset"]: row["reason"] for row in chain.quarantine()}
    assert reasons.keys() == set(range(len(broken)))
    assert set(reasons.values()) <= {"wrong_type", "missing_field"}


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("id", "id"),
        ("_cdc_op", "_source_cdc_op"),
        ("_CDC_X", "_source_CDC_X"),
        ("_cdc", "_cdc"),
        ("x_cdc_op", "x_cdc_op"),
    ],
)
def test_source_columns_with_reserved_names_are_kept(name: str, kept: str) -> None:
    assert history_name(name) == kept


@pytest.mark.fast
def test_the_latest_type_on_the_wire_wins_in_the_tables_order() -> None:
    """The codes are in the table's order, the types in none."""
    canal = CanalJson()
    older, newer = (
        canal.layout_of({"layout": json.dumps({"key": [], "types": types}), "jdbc_types": json.dumps(codes)})
        for types, codes in [
            ({"b": "int", "a": "int", "gone": "int"}, {"a": 4, "gone": 4, "b": 4}),
            ({"b": "bigint", "a": "int", "c": "date"}, {"a": 4, "b": -5, "c": 91}),
        ]
    )
    slots = {name: Slot(name, name, None) for name in ("a", "b", "c", "gone")}
    layouts = [Layout(n, 0, tuple(canal.columns(text)), {}, slots=slots) for n, text in enumerate((older, newer))]
    readings = {slot.name: each for slot, each in collect_readings(canal, layouts, {}).items()}
    newest = {name: str(each[-1].type) for name, each in readings.items()}
    assert newest == {"a": "int", "gone": "int", "b": "bigint", "c": "date"}
    assert list(newest) == ["a", "b", "c", "gone"]
    assert [(str(r.type), r.layouts) for r in readings["b"]] == [("int", (0,)), ("bigint", (1,))]
    assert [(str(r.type), r.layouts) for r in readings["a"]] == [("int", (0, 1))]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("wire", "declared", "override", "resolved"),
    [
        ("decimal", "decimal(12,2)", None, "decimal(12,2)"),
        ("decimal(10,4)", "decimal(12,2)", None, "decimal(10,4)"),  # the messages state it
        ("enum", "enum('a','b')", None, "enum('a','b')"),
        ("bigint unsigned", "bigint", None, "bigint unsigned"),
        ("int", "decimal(12,2)", None, "int"),  # the DDL concerns an earlier time
        ("decimal", None, None, "decimal"),
        ("decimal", "decimal(12,2)", "decimal(20,6)", "decimal(20,6)"),
        ("nonsense", None, "varchar(3)", "varchar(3)"),
    ],
)
def test_what_type_a_column_has(wire: str, declared: str | None, override: str | None, resolved: str) -> None:
    assert CanalJson().resolve(WireColumn("c", wire), declared, override) == parse_type(resolved)


@pytest.mark.fast
def test_an_unknown_type_has_no_spark_type() -> None:
    assert CanalJson().resolve(WireColumn("c", "nonsense"), None, None) is None
