"""Debezium's values as MySQL prints them, by the connector's documentation of each semantic type."""

import base64
import json
import struct
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from cdc_assets.mysql_types.types import MySQLType, parse_type
from cdc_assets.protocols.debezium.semantics import (
    BITS,
    DECIMAL,
    GEOMETRY,
    SEMANTICS,
    UNSTATED,
    Field,
    assumed_field,
    column_type,
    layout,
    stands_for,
)
from cdc_assets.protocols.debezium.texts import mysql_text

TIME, DATA, CONNECT = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."


def number(value: int) -> str:
    """Return Java's BigInteger.toByteArray in base64."""
    size = (value + (value < 0)).bit_length() // 8 + 1
    return base64.b64encode(value.to_bytes(size, "big", signed=True)).decode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


POINT = struct.pack("<BIdd", 1, 1, 1.0, 2.0)
GEO = f'{{"wkb":"{b64(POINT)}","srid":%s}}'
NINES = int("9" * 65)

# semantic type, parameters, MySQL type, the JSON value's text, MySQL's text (None: not readable)
CASES: list[tuple[str, dict[str, str], str, str, str | None]] = [
    ("boolean", {}, "bit(1)", "true", "1"),
    ("boolean", {}, "tinyint(1)", "false", "0"),
    ("boolean", {}, "bit(1)", "2", None),
    ("int64", {}, "bigint", "-1", "-1"),
    ("int64", {}, "bigint unsigned", "-1", "18446744073709551615"),
    ("int64", {}, "bigint unsigned", "-9223372036854775808", "9223372036854775808"),
    ("int64", {}, "bigint unsigned", "9223372036854775807", "9223372036854775807"),
    ("int64", {}, "int unsigned", "4294967295", "4294967295"),
    ("double", {}, "decimal(10,2)", "12.5", "12.5"),
    ("double", {}, "decimal(65,30)", "1.0E-30", "0.000000000000000000000000000001"),
    ("double", {}, "decimal(65,30)", "-1.4272626187002554E10", "-14272626187.002554"),
    ("double", {}, "decimal(38,0)", "1.0E37", "1" + "0" * 37),
    ("double", {}, "decimal(10,4)", "1.0E-4", "0.0001"),
    ("double", {}, "decimal(20,1)", "1.2345678901E8", "123456789.01"),
    # The largest DECIMAL(20,5) is no double; this is the nearest.
    ("double", {}, "decimal(20,5)", "-1.0E15", "-999999999999999.99999"),
    ("double", {}, "decimal(5,5)", "0.99999", "0.99999"),
    ("string", {}, "decimal(10,2)", "-0.50", "-0.50"),
    ("string", {}, "varchar(10)", "00ff", "00ff"),
    ("string", {}, "varbinary(10)", "00ff", "hex:00ff"),
    ("string", {}, "varbinary(10)", "", "hex:"),
    ("string", {}, "blob", "AP8=", "AP8="),
    ("string", {}, "blob", "_-8=", "/+8="),
    # Three bytes have four characters of base64, and six hexadecimal digits.
    ("string", {}, "binary(3)", "abcd", "abcd"),
    ("string", {}, "binary(3)", "abcdef", "hex:abcdef"),
    ("bytes", {}, "longblob", "AP8=", "AP8="),
    (BITS, {"length": "12"}, "bit(12)", "AQg=", "2049"),
    (BITS, {"length": "64"}, "bit(64)", b64(b"\xff" * 8), "18446744073709551615"),
    (BITS, {"length": "5"}, "bit(5)", "AA==", "0"),
    (BITS, {"length": "5"}, "bit(5)", "?", None),
    (DECIMAL, {"scale": "2"}, "decimal(10,2)", "/w==", "-0.01"),
    (DECIMAL, {"scale": "2"}, "decimal(10,2)", number(0), "0.00"),
    (DECIMAL, {"scale": "0"}, "decimal(10,0)", number(-128), "-128"),
    (DECIMAL, {"scale": "5"}, "decimal(5,5)", number(99999), "0.99999"),
    (DECIMAL, {"scale": "0"}, "bigint unsigned", number((1 << 64) - 1), "18446744073709551615"),
    (DECIMAL, {"scale": "0"}, "decimal(38,0)", number(10**38 - 1), "9" * 38),
    (DECIMAL, {"scale": "0"}, "decimal(38,0)", number(-(1 << 64)), "-18446744073709551616"),
    (DECIMAL, {"scale": "0"}, "decimal(38,0)", number(-(1 << 63)), "-9223372036854775808"),
    (DECIMAL, {"scale": "30"}, "decimal(65,30)", number(NINES), "9" * 35 + "." + "9" * 30),
    (DECIMAL, {"scale": "30"}, "decimal(65,30)", number(-NINES), "-" + "9" * 35 + "." + "9" * 30),
    (DECIMAL, {"scale": "20"}, "decimal(65,20)", number(10**18 * 10**18), "1" + "0" * 16 + "." + "0" * 20),
    (DECIMAL, {"scale": "2"}, "decimal(10,2)", "12.34", None),
    (f"{TIME}Date", {}, "date", "-354285", "1000-01-01"),
    (f"{CONNECT}Date", {}, "date", "2932896", "9999-12-31"),
    (f"{TIME}Date", {}, "date", "1.5", None),
    (f"{TIME}MicroTime", {}, "time", "3020399000000", "838:59:59"),
    (f"{TIME}MicroTime", {}, "time(6)", "-1", "-00:00:00.000001"),
    (f"{TIME}MicroTime", {}, "time(3)", "3723004000", "01:02:03.004"),
    (f"{TIME}MicroTime", {}, "time(3)", "3723000000", "01:02:03.000"),
    (f"{CONNECT}Time", {}, "time", "86399999", "23:59:59.999"),
    (f"{TIME}NanoTime", {}, "time", "1000000001000", "00:16:40.000001"),
    (f"{TIME}Timestamp", {}, "datetime(3)", "1577934245000", "2020-01-02 03:04:05"),
    (f"{TIME}Timestamp", {}, "datetime(3)", "-500", "1969-12-31 23:59:59.5"),
    (f"{TIME}MicroTimestamp", {}, "datetime(6)", "253402300799999999", "9999-12-31 23:59:59.999999"),
    (f"{TIME}MicroTimestamp", {}, "datetime(6)", "-30610224000000000", "1000-01-01 00:00:00"),
    (f"{CONNECT}Timestamp", {}, "datetime(3)", "1729911840123", "2024-10-26 03:04:00.123"),
    (f"{TIME}Timestamp", {}, "datetime", "9223372036854775807", None),
    (f"{TIME}ZonedTimestamp", {}, "timestamp(6)", "2018-06-20T06:37:03.12Z", "2018-06-20 06:37:03.12"),
    (f"{TIME}ZonedTimestamp", {}, "timestamp", "2018-06-20T06:37:03Z", "2018-06-20 06:37:03"),
    (f"{TIME}ZonedTimestamp", {}, "timestamp", "1970-01-01T00:00:00Z", "0000-00-00 00:00:00"),
    (f"{TIME}ZonedTimestamp", {}, "timestamp(6)", "1970-01-01T00:00:00.000000Z", "0000-00-00 00:00:00"),
    (f"{TIME}ZonedTimestamp", {}, "timestamp", "2018-06-20 06:37:03", None),
    (f"{TIME}Year", {}, "year", "1900", "0"),
    (f"{TIME}Year", {}, "year", "2155", "2155"),
    (f"{DATA}Enum", {}, "enum('a','d,e')", r"d\,e", "d,e"),
    (f"{DATA}Enum", {}, "enum('a','d,e')", "d,e", "d,e"),
    (f"{DATA}Enum", {}, r"enum('d\\,e','d,e')", r"d\,e", r"d\,e"),
    (f"{DATA}Enum", {}, "enum", r"d\,e", "d,e"),
    (f"{DATA}EnumSet", {}, "set('x','y')", "x,y", "x,y"),
    (f"{DATA}Json", {}, "json", '{"a": 1}', '{"a": 1}'),
    (GEOMETRY, {}, "geometry", GEO % "null", "hex:00000000" + POINT.hex().upper()),
    (GEOMETRY, {}, "geometry", GEO % "4326", "hex:E6100000" + POINT.hex().upper()),
]  # fmt: skip


def test_each_value_as_mysql_prints_it(spark: SparkSession) -> None:
    def text(case: tuple[Any, ...]) -> Column:
        semantic, parameters, mysql_type, wire, _ = case
        field = Field("c", semantic, SEMANTICS[semantic].connect, tuple(parameters.items()))
        return mysql_text(F.lit(wire), field, parse_type(mysql_type))

    row = spark.range(1).select(*[text(case).alias(str(n)) for n, case in enumerate(CASES)]).head()
    assert row is not None
    expected = [f"unreadable: {case[3]}" if case[4] is None else case[4] for case in CASES]
    assert list(zip(CASES, row, strict=True)) == list(zip(CASES, expected, strict=True))


def test_null_is_null(spark: SparkSession) -> None:
    null = F.lit(None).cast("string")
    fields = [Field("c", name, row.connect) for name, row in SEMANTICS.items()]
    row = spark.range(1).select(*[mysql_text(null, f, f.alone or parse_type("bit(1)")) for f in fields]).head()
    assert row is not None
    assert set(row) == {None}


@pytest.mark.parametrize(
    ("schema", "declared", "expected"),
    [
        ({"type": "int16"}, None, "smallint"),
        ({"type": "int16"}, "tinyint(1)", "tinyint(1)"),
        ({"type": "int16"}, "int", "smallint"),
        ({"type": "boolean"}, "tinyint(1) unsigned", "tinyint(1) unsigned"),
        ({"type": "int64"}, "bigint(20) unsigned", "bigint(20) unsigned"),
        ({"type": "bytes", "name": BITS, "parameters": {"length": "12"}}, None, "bit(12)"),
        (
            {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "8"}},
            None,
            "decimal(8,2)",
        ),
        ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "0"}}, "bigint unsigned", "bigint unsigned"),
        ({"type": "string"}, "varbinary(10)", "varbinary(10)"),
        ({"type": "string"}, "date", "longtext"),
        (
            {"type": "int64", "parameters": {"__debezium.source.column.type": "BIGINT UNSIGNED"}},
            None,
            "bigint unsigned",
        ),
        ({"type": "string", "name": "io.debezium.data.Xml"}, None, None),
    ],
)
def test_a_column_has_its_declared_type_if_the_field_may_stand_for_it(
    schema: dict[str, Any], declared: str | None, expected: str | None
) -> None:
    (field,) = layout(json.dumps([schema | {"field": "c", "optional": True}]))
    resolved = field.resolve(parse_type(declared) if declared else None)
    assert (resolved and str(resolved)) == expected


@pytest.mark.parametrize(
    ("mysql_type", "mode", "semantic"),
    [
        ("datetime(3)", None, f"{TIME}Timestamp"),
        ("datetime(4)", None, f"{TIME}MicroTimestamp"),
        ("bit(1)", None, "boolean"),
        ("bit(2)", None, BITS),
        ("time(6)", None, f"{TIME}MicroTime"),
        ("time(3)", "adaptive", f"{TIME}Time"),
        ("time(4)", "adaptive", f"{TIME}MicroTime"),
        ("time(4)", "connect", f"{TIME}Time"),
        ("datetime(4)", "connect", f"{TIME}Timestamp"),
        ("datetime", "microseconds", f"{TIME}MicroTimestamp"),
        ("time", "nanoseconds", f"{TIME}NanoTime"),
        ("date", "nanoseconds", f"{TIME}Date"),
        ("date", "isostring", f"{TIME}IsoDate"),
        ("timestamp", "isostring", f"{TIME}ZonedTimestamp"),
    ],
)
def test_without_a_schema_the_given_mode_counts_else_the_connectors_default(
    mysql_type: str, mode: str | None, semantic: str
) -> None:
    settings = {} if mode is None else {"time.precision.mode": mode}
    assert assumed_field(Field("c", UNSTATED, UNSTATED), parse_type(mysql_type), settings).semantic == semantic


@pytest.mark.parametrize(
    ("name", "length", "scale", "expected"),
    [
        ("DECIMAL UNSIGNED", 20, 5, MySQLType("decimal", 20, 5, unsigned=True)),
        ("INT UNSIGNED ZEROFILL", 8, None, MySQLType("int", 8, unsigned=True, zerofill=True)),
        ("ENUM", 1, None, MySQLType("enum")),
        ("DOUBLE PRECISION", 15, 4, MySQLType("double", 15, 4)),
        ("NOT A TYPE", None, None, None),
    ],
)
def test_a_type_described_in_parts(
    name: str, length: int | None, scale: int | None, expected: MySQLType | None
) -> None:
    assert column_type(name, length, scale) == expected


def test_every_named_type_is_a_mysql_type() -> None:
    for row in SEMANTICS.values():
        assert all(stands_for(parse_type(name)) == name for name in row.types)
