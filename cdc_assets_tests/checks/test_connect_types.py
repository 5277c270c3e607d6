"""The type check of Debezium feeds: each rule has something that breaks it."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets.checks.connect_types import RULES
from cdc_assets.checks.observations import judge, mysql_type_schema
from cdc_assets.checks.verdict import Verdict
from cdc_assets.mysql_types.debezium import DECIMAL
from cdc_assets.protocols.debezium import decode
from cdc_assets.sources.ingest import SCHEMA
from cdc_assets_tests.protocols.debezium_encoder import envelope, source, text, with_schema
from cdc_assets_tests.support import make_feed

KEY = text({"id": 1})


def column(connect: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": connect, "optional": True, "field": "c"} | ({"name": name, "version": 1} if name else {}) | more


def described(type_name: str, length: int | None = None, scale: int | None = None) -> dict[str, Any]:
    """A schema-change record of a table of one column."""
    columns = [{"name": "c", "jdbcType": 4, "typeName": type_name, "length": length, "scale": scale}]
    change = {"type": "CREATE", "id": '"inventory"."customers"', "table": {"columns": columns}}
    return {"source": source(), "databaseName": "inventory", "ddl": "CREATE TABLE customers", "tableChanges": [change]}


def checked(
    spark: SparkSession, folder: Path, field: dict[str, Any], schema_change: dict[str, Any] | None = None
) -> tuple[Verdict, Verdict]:
    """The verdicts over one insert of a table of that column."""
    values = [text(with_schema(envelope("c", None, {"c": None}, source()), [field]))]
    values += [text(schema_change)] if schema_change else []
    rows = [("t", 0, n, None, 1, KEY, value, []) for n, value in enumerate(values)]
    feed = make_feed(folder, protocol="debezium")
    observed = RULES.observe(decode(spark.createDataFrame(rows, SCHEMA), feed))
    return judge(observed, mysql_type_schema(), RULES, "mysqlType"), judge(observed, RULES.codes, RULES, RULES.called)


BROKEN: list[tuple[dict[str, Any], dict[str, Any] | None, str]] = [
    (column("string", "io.debezium.data.Xml"), None, "not a type of Debezium's for MySQL"),
    (column("int32", "io.debezium.time.Timestamp"), None, "not the Connect type of this semantic type"),
    (column("int64", "io.debezium.time.MicroTime"), described("DATETIME", 6), "not a semantic type of this MySQL type"),
    (column("int16"), described("INT UNSIGNED", 10), "not a semantic type of this MySQL type"),
    (column("string"), described("DATE"), "not a semantic type of this MySQL type"),
    (column("int64", parameters={"__debezium.source.column.type": "YEAR"}), None, "not a semantic type of this MySQL"),
]
FINE: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    (column("int64"), described("BIGINT UNSIGNED", 20)),
    (column("int16"), described("TINYINT UNSIGNED", 3)),
    (column("string"), described("VARBINARY", 20)),
    (column("double"), described("FLOAT", 7, 2)),
    (column("bytes", DECIMAL, parameters={"scale": "0"}), described("BIGINT UNSIGNED", 20)),
    (column("string", "io.debezium.data.Enum", parameters={"allowed": "a,b"}), described("ENUM", 1)),
]


def test_each_rule_is_broken_by_something(spark: SparkSession, tmp_path: Path) -> None:
    for field, schema_change, rule in BROKEN:
        _, codes = checked(spark, tmp_path, field, schema_change)
        assert not codes.passed, field
        (violation,) = codes.violations
        assert rule in violation["verdict"]
        assert (violation["topic"], violation["partition"], violation["offset"]) == ("t", 0, 0)


def test_what_connectors_send_is_fine(spark: SparkSession, tmp_path: Path) -> None:
    for field, schema_change in FINE:
        mysql_types, codes = checked(spark, tmp_path, field, schema_change)
        assert mysql_types.passed, mysql_types.violations
        assert codes.passed, codes.violations
