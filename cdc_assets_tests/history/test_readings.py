"""Tables whose messages come without their schema: schema-change records tell the types, each from its time on."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets_tests.protocols.debezium_encoder import MS, envelope, source, text
from cdc_assets_tests.support import Chain, Record, record

LABELS = ["'a'", "'b,c'"]


def described(seconds: int, statement: str, *columns: dict[str, Any]) -> dict[str, Any]:
    """A schema-change record, of 3.5: `columns` are the whole table's after the statement."""
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
    """Rows lie in the table's topic, under their key; the others in the connector's."""
    out = []
    for offset, value in enumerate(values):
        row = value.get("after")
        topic, key = ("s.customers", text({"id": row["id"]})) if row else ("s", None)
        out.append(record(text(value), 0, offset, topic, key=key))
    return out


def test_each_row_is_read_by_the_types_of_its_time(spark: SparkSession, tmp_path: Path) -> None:
    """DATETIME is sent in milliseconds, DATETIME(6) in microseconds; nobody saw the table's CREATE."""
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
    learnt = chain.lake.table_schemas.read().orderBy("commit_ts").collect()
    assert [[c["type"] for c in row["columns"]] for row in learnt] == [
        ["int", "datetime(3)", "enum('a','b,c')"],
        ["int", "datetime(6)", "enum('a','b,c')"],
    ]
    assert [row["primary_key"] for row in learnt] == [["id"], ["id"]]


def test_labels_come_from_the_statement(spark: SparkSession, tmp_path: Path) -> None:
    """1.9.5 describes an enum without its labels, and says nothing of defaults."""
    chain = Chain(spark, tmp_path, protocol="debezium")
    kind = {k: v for k, v in KIND.items() if k != "enumValues"}
    statement = "CREATE TABLE customers (id INT NOT NULL PRIMARY KEY, kind ENUM('a','b,c') NOT NULL DEFAULT 'a')"
    chain.add(records(described(1, statement, ID, kind), inserted(2, 1, kind="b\\,c")))
    chain.run()
    (learnt,) = chain.lake.table_schemas.read().collect()
    assert [(c["type"], c["default"]) for c in learnt["columns"]] == [("int", None), ("enum('a','b,c')", "a")]
    assert [row["kind"] for row in chain.history("customers", "inventory")] == ["b,c"]


def test_a_description_that_is_none_leaves_the_statement(spark: SparkSession, tmp_path: Path) -> None:
    chain = Chain(spark, tmp_path, protocol="debezium")
    broken: list[Any] = [
        "no array", {"id": 1}, [1], [{"id": None}], [{"id": '"a"."b"', "table": {"columns": [{"name": "x"}]}}]
    ]  # fmt: skip
    statements = [f"CREATE TABLE t{n} (id INT PRIMARY KEY)" for n in range(len(broken))]
    sent = [described(n, s) | {"tableChanges": broken[n]} for n, s in enumerate(statements)]
    chain.add(records(*sent))
    chain.run()
    learnt = chain.lake.table_schemas.read().orderBy("commit_ts").collect()
    assert [(row["table"], [c["type"] for c in row["columns"]]) for row in learnt] == [
        (f"t{n}", ["int"]) for n in range(len(broken))
    ]
    assert chain.quarantine() == []
