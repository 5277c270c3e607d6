"""The type check of Debezium feeds: each rule has something that breaks it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets.lakehouse.raw_records import RAW_RECORDS
from cdc_assets.lakehouse.table_schemas import TABLE_SCHEMAS
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.debezium.semantics import DECIMAL
from cdc_assets_tests.protocols.debezium_encoder import envelope, source, text, with_schema
from cdc_assets_tests.support import frame_of_rows, make_feed
from cdc_assets_tests.type_checks.judging import Verdicts, check_types

KEY = text({"id": 1})


def column(connect: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": connect, "optional": True, "field": "c"} | ({"name": name, "version": 1} if name else {}) | more


def described(
    type_name: str,
    jdbc_type: int,
    length: int | None = None,
    scale: int | None = None,
    *,
    seconds: int = 0,
    table: str = "customers",
) -> dict[str, Any]:
    """Return a schema-change record of a table of one column."""
    columns = [{"name": "c", "jdbcType": jdbc_type, "typeName": type_name, "length": length, "scale": scale}]
    shape = {"columns": columns, "primaryKeyColumnNames": []}
    change = {"type": "ALTER", "id": f'"inventory"."{table}"', "table": shape}
    statement = f"ALTER TABLE {table} MODIFY c {type_name}"
    at = source(seconds=seconds)
    return {"source": at, "databaseName": "inventory", "ddl": statement, "tableChanges": [change]}


def inserted(
    field: dict[str, Any], *, seconds: int = 0, table: str = "customers", row: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return an insert into a table of that column, with NULL unless a row is given."""
    image = {"c": None} if row is None else row
    return with_schema(envelope("c", None, image, source(seconds=seconds, table=table)), [field])


def checked(
    spark: SparkSession, folder: Path, *values: dict[str, Any], schemas: Iterable[dict[str, Any]] = ()
) -> Verdicts:
    """Return the verdicts over these messages; `schemas`: rows of table_schemas."""
    messages = [text(value) for value in values]
    rows: list[tuple[Any, ...]] = [("t", 0, n, None, 1, KEY, value, [], None) for n, value in enumerate(messages)]
    feed = make_feed(folder, protocol="debezium")
    raw = frame_of_rows(spark, rows, RAW_RECORDS.columns)
    return check_types(protocol_of(feed).decode(raw, feed), feed, list(schemas))


_NOT_OF_IT = "not a semantic type of this MySQL type"
_CODE = "not the JDBC code of this MySQL type"
Described = tuple[Any, ...] | None  # the column as the schema-change record describes it, if there is one
BROKEN: list[tuple[dict[str, Any], Described, str]] = [
    (column("string", "io.debezium.data.Xml"), None, "not a type of Debezium's for MySQL"),
    (column("int32", "io.debezium.time.Timestamp"), None, "not the Connect type of this semantic type"),
    (column("int64", "io.debezium.time.MicroTime"), ("DATETIME", 93, 6), _NOT_OF_IT),
    (column("int16"), ("INT UNSIGNED", 4, 10), _NOT_OF_IT),
    (column("string"), ("DATE", 91), _NOT_OF_IT),
    (column("int64", parameters={"__debezium.source.column.type": "YEAR"}), None, _NOT_OF_IT),
    (column("int64"), ("BIGINT UNSIGNED", 4, 20), _CODE),
    (column("string"), ("CHAR", 12, 10), _CODE),
]
FINE: list[tuple[dict[str, Any], Described]] = [
    (column("int64"), ("BIGINT UNSIGNED", -5, 20)),
    (column("int16"), ("TINYINT UNSIGNED", 5, 3)),
    (column("int16"), ("BOOLEAN", 16)),
    (column("string"), ("VARBINARY", -3, 20)),
    (column("double"), ("FLOAT", 6, 7, 2)),
    (column("bytes", DECIMAL, parameters={"scale": "0"}), ("BIGINT UNSIGNED", -5, 20)),
    (column("string", "io.debezium.data.Enum", parameters={"allowed": "a,b"}), ("ENUM", 1, 1)),
]


def table_each(cases: Iterable[tuple[dict[str, Any], Described]]) -> list[dict[str, Any]]:
    """Return, for each case, an insert into a table of its own and its schema-change record."""
    sent = []
    for n, (field, described_column) in enumerate(cases):
        sent.append(inserted(field, table=f"t{n}"))
        sent += [described(*described_column, table=f"t{n}")] if described_column else []
    return sent


def test_each_rule_is_broken_by_something(spark: SparkSession, tmp_path: Path) -> None:
    sent = table_each((field, described_column) for field, described_column, _ in BROKEN)
    violations = {v["table"]: v for v in checked(spark, tmp_path, *sent).codes.violations}
    assert violations.keys() == {f"t{n}" for n in range(len(BROKEN))}
    for n, (_, _, rule) in enumerate(BROKEN):
        violation = violations[f"t{n}"]
        assert violation["verdict"].startswith(rule)
        is_from_statement = "ddl" in sent[violation["offset"]]
        assert (violation["topic"], is_from_statement) == ("t", rule == _CODE)


def test_what_connectors_send_is_fine(spark: SparkSession, tmp_path: Path) -> None:
    report = checked(spark, tmp_path, *table_each(FINE))
    assert report.observations == 2 * len(FINE)
    assert report.mysql_types.passed, report.mysql_types.violations
    assert report.codes.passed, report.codes.violations


TIME, YEAR = "io.debezium.time", "io.debezium.time.Year"
OUTSIDE, UNREADABLE, JSON = (
    "outside the range of the type",
    "no value of the type",
    "not the JSON type of this Connect type",
)
# A field, what the schema-change record says, a row -> what is wrong with it.
ROWS: list[tuple[dict[str, Any], Described, dict[str, Any], str | None]] = [
    (column("int16"), ("TINYINT UNSIGNED", 5, 3), {"c": 300}, OUTSIDE),
    (column("int16"), ("TINYINT UNSIGNED", 5, 3), {"c": 255}, None),
    (column("int16"), None, {"c": 40000}, OUTSIDE),
    (column("int64"), ("BIGINT UNSIGNED", -5, 20), {"c": -1}, None),  # wrapped around
    (column("int64"), ("INT UNSIGNED", 4, 10), {"c": -1}, OUTSIDE),
    (column("int32"), None, {"c": "7"}, JSON),
    (column("string"), None, {"c": 7}, JSON),
    (column("boolean"), None, {"c": 1}, JSON),
    (column("boolean"), None, {"c": True}, None),
    (column("string"), ("VARCHAR", 12, 2), {"c": "abc"}, "too long for the type"),
    (column("string"), ("DECIMAL", 3, 4, 2), {"c": "100.00"}, OUTSIDE),
    (column("bytes"), ("VARBINARY", -3, 2), {"c": "AAEC"}, "too long for the type"),
    (column("bytes"), None, {"c": "?"}, UNREADABLE),
    (column("bytes", DECIMAL, parameters={"scale": "2"}), ("DECIMAL", 3, 4, 2), {"c": "J1Q="}, None),  # 100.68
    # as numbers, by a setting of the converter
    (column("bytes", DECIMAL, parameters={"scale": "2"}), ("DECIMAL", 3, 12, 2), {"c": 12345.11}, None),
    (column("bytes", DECIMAL, parameters={"scale": "0"}), None, {"c": 1.2345678987654322e32}, None),
    (column("bytes", DECIMAL, parameters={"scale": "0"}), None, {"c": 7}, None),
    (column("bytes", DECIMAL, parameters={"scale": "2"}), None, {"c": {}}, f"{JSON}; {UNREADABLE}"),
    (column("int32", f"{TIME}.Date"), None, {"c": 2_932_897}, OUTSIDE),  # after 9999
    (column("int64", f"{TIME}.Timestamp"), None, {"c": 253_402_300_800_000}, OUTSIDE),
    (column("int64", f"{TIME}.MicroTime"), None, {"c": 3_020_399_000_001}, OUTSIDE),  # 838:59:59
    (column("int64", f"{TIME}.MicroTime"), None, {"c": -3_020_399_000_000}, None),
    (column("string", f"{TIME}.ZonedTimestamp"), None, {"c": "2024-01-01 00:00:00"}, UNREADABLE),
    (column("string", f"{TIME}.ZonedTimestamp"), None, {"c": "2024-01-01T00:00:00.5Z"}, None),
    (column("int32", YEAR), None, {"c": 2156}, OUTSIDE),
    (column("int32") | {"optional": False}, None, {"c": None}, "NULL in a NOT NULL column"),
    (column("int32"), None, {}, "not in the row"),
]


def test_each_rule_of_values_is_broken_by_something(spark: SparkSession, tmp_path: Path) -> None:
    sent = []
    for n, (field, described_column, row, _) in enumerate(ROWS):
        sent += [described(*described_column, table=f"t{n}")] if described_column else []
        sent.append(inserted(field, table=f"t{n}", row=row, seconds=1))
    verdicts = {v["table"]: v["verdict"] for v in checked(spark, tmp_path, *sent).codes.violations}
    assert verdicts == {f"t{n}": wrong for n, (*_, wrong) in enumerate(ROWS) if wrong}


def test_a_type_that_mysql_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    report = checked(spark, tmp_path, described("VECTOR", 1111, 3))
    assert [v["mysql_type"] for v in report.mysql_types.violations] == ["VECTOR"]


def test_rows_are_checked_against_the_type_of_their_time(spark: SparkSession, tmp_path: Path) -> None:
    """The column's type changes between the two rows; a third row has the old form after that."""
    number, date = column("int32"), column("int32", "io.debezium.time.Date")
    changes = [described("INT", 4, 11, seconds=1), described("DATE", 91, seconds=5)]
    fine = [inserted(number, seconds=2), inserted(date, seconds=6)]
    assert checked(spark, tmp_path, *changes, *fine).codes.passed
    report = checked(spark, tmp_path, *changes, *fine[1:], inserted(number, seconds=7))
    assert [(v["mysql_type"], v["semantic_type"]) for v in report.codes.violations] == [("date", "int32")]


def test_types_learnt_in_earlier_runs_count(spark: SparkSession, tmp_path: Path) -> None:
    columns = [{"name": "c", "type": "date", "nullable": True, "default": None, "generated": False}]
    learnt = {"database": "inventory", "table": "customers", "commit_ts": 1, "columns": columns}
    schemas = [dict.fromkeys(TABLE_SCHEMAS.columns.names) | learnt]
    wrong = inserted(column("string"))
    assert checked(spark, tmp_path, wrong).codes.passed
    assert not checked(spark, tmp_path, wrong, schemas=schemas).codes.passed
