"""The connector's and the converter's settings that change what messages look like: each with a message and its typed value.

The values are those of the documentation (the connector's on data types, KIP-481 on `decimal.format`), or follow from what
it says of the semantic type.
"""

import base64
import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets_tests.protocols.debezium_encoder import envelope, key_with_schema, source, text, with_schema
from cdc_assets_tests.support import Chain, Record, record

TIME, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
SOME_TIME = datetime.fromisoformat("2018-06-20T06:37:03")  # no zone: a DATETIME
ID = {"type": "int32", "optional": False, "field": "id"}


def field(connect: str, semantic: str | None = None, declared: str | None = None, **more: Any) -> dict[str, Any]:
    """Return the field `v` of a schema; `declared`: its MySQL type, as column.propagate.source.type states it."""
    parameters: dict[str, str] = dict(more.pop("parameters", {}))
    if declared:
        base, *numbers = re.findall(r"[A-Za-z ]+|[0-9]+", declared)
        parts = zip(("type", "length", "scale"), (base, *numbers), strict=False)
        parameters |= {f"__debezium.source.column.{name}": value for name, value in parts}
    named = {"name": semantic, "version": 1} if semantic else {}
    return {"type": connect, "optional": True, "field": "v"} | named | {"parameters": parameters} | more


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return field(
        "bytes", f"{CONNECT}Decimal", parameters={"scale": str(scale), "connect.decimal.precision": str(precision)}
    )


def number(digits: str) -> str:
    """Return a JSON number with exactly these digits, for `row`."""
    return f"@{digits}@"


def row(table: str, value: Any, column: dict[str, Any] | None, key: int = 1, **others: Any) -> bytes:
    after = {"id": key, "v": value} | others
    payload = envelope("c", None, after, source(table=table))
    extra = [{"type": "double", "optional": True, "field": name} for name in others]
    message = payload if column is None else with_schema(payload, [ID, column, *extra])
    return re.sub(rb'"@([^"@]+)@"', rb"\1", text(message))


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


# setting -> the field of the schema, the JSON value, and the typed value
SETTINGS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "decimal.handling.mode=precise": (decimal(10, 2), base64_of((1234511).to_bytes(3, "big")), Decimal("12345.11")),
    "decimal.format=NUMERIC": (decimal(10, 2), number("12345.11"), Decimal("12345.11")),
    "NUMERIC, as in KIP-481": (decimal(6, 4), number("10.2345"), Decimal("10.2345")),
    "NUMERIC, negative": (decimal(5, 2), number("-0.05"), Decimal("-0.05")),
    "NUMERIC, trailing zeros": (decimal(5, 2), number("7.00"), Decimal("7.00")),
    "NUMERIC, exponent": (decimal(38, 0), number("1.2345678987654322e+32"), Decimal(123456789876543220000000000000000)),
    "NUMERIC, small": (decimal(10, 7), number("1E-7"), Decimal("0.0000001")),
    # 2^53 + 1.5 is no double.
    "NUMERIC, 17 digits": (decimal(18, 1), number("9007199254740993.5"), Decimal("9007199254740993.5")),
    "NUMERIC, 38 digits": (decimal(38, 12), number("12345678901234567890123456.789012345678"),
                           Decimal("12345678901234567890123456.789012345678")),
    "NUMERIC, 65 digits": (decimal(65, 30), number("-" + "9" * 35 + "." + "8" * 30), "-" + "9" * 35 + "." + "8" * 30),
    "NUMERIC, no fraction": (decimal(10, 0), number("1234"), Decimal(1234)),
    # The same characters as base64 are the bytes d7 6d f8.
    "BASE64, looks like a number": (decimal(10, 0), "1234", Decimal(-0x289208)),
    "decimal.handling.mode=string": (field("string", None, "DECIMAL(10,2)"), "3.14", Decimal("3.14")),
    "decimal.handling.mode=double": (field("double", None, "DECIMAL(10,2)"), 3.14, Decimal("3.14")),
    "binary.handling.mode=bytes": (field("bytes", None, "VARBINARY(9)"), "//4=", b"\xff\xfe"),
    "binary.handling.mode=base64": (field("string", None, "VARBINARY(9)"), "//4=", b"\xff\xfe"),
    "binary.handling.mode=base64-url-safe": (field("string", None, "VARBINARY(9)"), "__4=", b"\xff\xfe"),
    "binary.handling.mode=hex": (field("string", None, "VARBINARY(9)"), "fffe", b"\xff\xfe"),
    "bigint.unsigned.handling.mode=long": (field("int64", None, "BIGINT UNSIGNED"), -1, Decimal(2**64 - 1)),
    "bigint.unsigned.handling.mode=precise": (decimal(20, 0), base64_of((2**64 - 1).to_bytes(9, "big")),
                                              Decimal(2**64 - 1)),
    "precise, NUMERIC": (decimal(20, 0), number(str(2**64 - 1)), Decimal(2**64 - 1)),
    "time.precision.mode: a date": (field("int32", f"{TIME}Date"), 17702, date(2018, 6, 20)),
    "time.precision.mode=connect: a date": (field("int32", f"{CONNECT}Date"), 17702, date(2018, 6, 20)),
    "time.precision.mode=isostring: a date": (field("string", f"{TIME}IsoDate"), "2018-06-20Z", date(2018, 6, 20)),
    "adaptive_time_microseconds: a time": (field("int64", f"{TIME}MicroTime"), 64264777000, "17:51:04.777"),
    "time.precision.mode=adaptive: a time": (field("int32", f"{TIME}Time"), 64264777, "17:51:04.777"),
    "time.precision.mode=connect: a time": (field("int32", f"{CONNECT}Time"), 64264777, "17:51:04.777"),
    "time.precision.mode=nanoseconds: a time": (field("int64", f"{TIME}NanoTime"), 64264777000000, "17:51:04.777"),
    "time.precision.mode=isostring: a time": (field("string", f"{TIME}IsoTime"), "17:51:04.777Z", "17:51:04.777"),
    # The documentation's example of a DATETIME.
    "adaptive_time_microseconds: DATETIME": (field("int64", f"{TIME}Timestamp"), 1529476623000,
                                             SOME_TIME),
    "time.precision.mode=connect: DATETIME": (field("int64", f"{CONNECT}Timestamp"), 1529476623000,
                                              SOME_TIME),
    "time.precision.mode=microseconds: DATETIME": (field("int64", f"{TIME}MicroTimestamp"), 1529476623000001,
                                                   SOME_TIME.replace(microsecond=1)),
    "time.precision.mode=nanoseconds: DATETIME": (field("int64", f"{TIME}NanoTimestamp"), 1529476623000001000,
                                                  SOME_TIME.replace(microsecond=1)),
    "time.precision.mode=isostring: DATETIME": (field("string", f"{TIME}IsoTimestamp"), "2018-06-20T06:37:03.000001Z",
                                                SOME_TIME.replace(microsecond=1)),
    "replace.null.with.default=false": (field("int32", None, "INT", default=7), None, None),
    "replace.null.with.default=true": (field("int32", None, "INT", default=7), 7, 7),
}  # fmt: skip
# The declared types, by schema-change records, of tables whose messages have no schema.
WITHOUT_SCHEMA: dict[str, tuple[str, Any, Any]] = {
    "schemas.enable=false": ("INT", 7, 7),
    "schemas.enable=false, NUMERIC": ("DECIMAL(30,20)", number("0.12345678901234567890"), Decimal("0.12345678901234567890")),
    "schemas.enable=false, NUMERIC, whole": ("DECIMAL(10,0)", number("1234"), Decimal(1234)),
    "schemas.enable=false, precise": ("BIGINT UNSIGNED", base64_of((2**64 - 1).to_bytes(9, "big")), Decimal(2**64 - 1)),
    "schemas.enable=false, precise, NUMERIC": ("BIGINT UNSIGNED", number(str(2**64 - 1)), Decimal(2**64 - 1)),
    "schemas.enable=false, long": ("BIGINT UNSIGNED", -1, Decimal(2**64 - 1)),
    "schemas.enable=false, string": ("DECIMAL(10,2)", "3.14", Decimal("3.14")),
}  # fmt: skip

# Settings of the connector that the feeds file gives -> declared types, wire values and expected values of messages
# without a schema.
GIVEN: list[tuple[dict[str, str], list[tuple[str, Any, Any]]]] = [
    ({"time.precision.mode": "adaptive_time_microseconds", "decimal.handling.mode": "precise",
      "binary.handling.mode": "bytes"},
     [("DATE", 17702, date(2018, 6, 20)),
      ("TIME(3)", 64264777000, "17:51:04.777"),
      ("DATETIME", 1529476623000, SOME_TIME),
      ("DATETIME(6)", 1529476623000001, SOME_TIME.replace(microsecond=1)),
      ("DECIMAL(10,0)", "1234", Decimal(-0x289208)),
      ("DECIMAL(10,2)", base64_of((1234511).to_bytes(3, "big")), Decimal("12345.11")),
      ("VARBINARY(9)", "abcd", bytes.fromhex("69b71d"))]),
    ({"time.precision.mode": "adaptive", "decimal.handling.mode": "string", "binary.handling.mode": "base64"},
     [("TIME(3)", 64264777, "17:51:04.777"),
      ("TIME(6)", 64264777001, "17:51:04.777001"),
      ("DATETIME(3)", 1529476623001, SOME_TIME.replace(microsecond=1000)),
      ("DATETIME(6)", 1529476623000001, SOME_TIME.replace(microsecond=1)),
      ("DECIMAL(10,0)", "1234", Decimal(1234)),
      ("DECIMAL(10,0)", "-1234", Decimal(-1234)),
      ("DECIMAL(10,2)", "12345.11", Decimal("12345.11")),
      ("VARBINARY(9)", "abcd", bytes.fromhex("69b71d"))]),
    ({"time.precision.mode": "connect", "decimal.handling.mode": "double", "binary.handling.mode": "base64-url-safe"},
     [("DATE", 17702, date(2018, 6, 20)),
      ("TIME", 64264000, "17:51:04"),
      ("TIME(6)", 64264777, "17:51:04.777000"),
      ("DATETIME(6)", 1529476623001, SOME_TIME.replace(microsecond=1000)),
      ("DECIMAL(10,2)", 3.14, Decimal("3.14")),
      ("VARBINARY(9)", "__4=", b"\xff\xfe")]),
    ({"time.precision.mode": "microseconds", "binary.handling.mode": "hex"},
     [("TIME", 64264000000, "17:51:04"),
      ("DATETIME", 1529476623000000, SOME_TIME),
      # Two minutes after the epoch, which is also a time in milliseconds.
      ("DATETIME", 120_000_000, datetime.fromisoformat("1970-01-01T00:02:00")),
      ("BLOB", "abcd", b"\xab\xcd"),
      ("BINARY(2)", "00ff", b"\x00\xff")]),
    ({"time.precision.mode": "nanoseconds"},
     [("TIME(6)", 64264777001000, "17:51:04.777001"),
      ("DATETIME(3)", 1529476623001000000, SOME_TIME.replace(microsecond=1000))]),
    ({"time.precision.mode": "isostring"},
     [("DATE", "2018-06-20Z", date(2018, 6, 20)),
      ("TIME(3)", "17:51:04.777Z", "17:51:04.777"),
      ("DATETIME(6)", "2018-06-20T06:37:03.000001Z", SOME_TIME.replace(microsecond=1)),
      ("TIMESTAMP", "2018-06-20T06:37:03Z", "2018-06-20 06:37:03.000000")]),
]  # fmt: skip


def schema_change(table: str, declared: str) -> bytes:
    statement = f"CREATE TABLE `{table}` (id INT PRIMARY KEY, v {declared})"
    value = {"source": source(1, table=table, ts_ms=1_600_000_000_000), "databaseName": "inventory", "ddl": statement}
    return text(value | {"tableChanges": []})


def without_schema(tables: Iterable[tuple[str, str, Sequence[Any]]]) -> list[Record]:
    """Return records without a schema: a statement for each table, and a row for each value."""
    records: list[Record] = []
    for table, declared, values in tables:
        sent: list[tuple[bytes, dict[str, int] | None]] = [(schema_change(table, declared), None)]
        sent += [(row(table, value, None, key=n), {"id": n}) for n, value in enumerate(values, 1)]
        for value, key in sent:
            records.append(record(value, 0, len(records), "s", key=text(key) if key else None))
    return records


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """Run one feed in which each setting has a table of its own."""
    feed = Chain(spark, tmp_path_factory.mktemp("settings"), protocol="debezium")
    records: list[Record] = []

    def send(value: bytes | None) -> None:
        records.append(record(value, 0, len(records), "s", key=text(key_with_schema({"id": 1}))))

    for n, (column, value, _) in enumerate(SETTINGS.values()):
        send(row(f"t{n}", value, column))
    for n, (declared, value, _) in enumerate(WITHOUT_SCHEMA.values()):
        send(schema_change(f"u{n}", declared))
        send(row(f"u{n}", value, None))
    send(row("beside", number("0.123456789012345678"), decimal(18, 18), d=0.30000000000000004))
    feed.add(records)
    feed.run()
    return feed


@pytest.mark.parametrize(("n", "setting"), list(enumerate(SETTINGS)))
def test_messages_are_read_under_each_setting(n: int, setting: str, made: Chain) -> None:
    (version,) = made.history(f"t{n}", "inventory")
    expected = SETTINGS[setting][2]
    assert (version["v"], type(version["v"])) == (expected, type(expected))


@pytest.mark.parametrize(("n", "setting"), list(enumerate(WITHOUT_SCHEMA)))
def test_messages_without_a_schema_are_read_by_their_declared_types(n: int, setting: str, made: Chain) -> None:
    (version,) = made.history(f"u{n}", "inventory")
    assert version["v"] == WITHOUT_SCHEMA[setting][2]


@pytest.mark.parametrize(("settings", "cases"), GIVEN, ids=[given["time.precision.mode"] for given, _ in GIVEN])
def test_messages_without_a_schema_are_read_by_the_connectors_settings_in_the_feeds_file(
    settings: dict[str, str], cases: list[tuple[str, Any, Any]], spark: SparkSession, tmp_path: Path
) -> None:
    feed = Chain(spark, tmp_path, protocol="debezium", connector_settings=settings)
    feed.add(without_schema((f"t{n}", declared, [value]) for n, (declared, value, _) in enumerate(cases)))
    report = feed.run().types
    assert (report.wrong, report.unproven) == ([], [])
    read = [feed.history(f"t{n}", "inventory")[0]["v"] for n in range(len(cases))]
    assert read == [expected for *_, expected in cases]
    assert feed.quarantine() == []


def test_a_double_beside_a_long_decimal_stays_a_double(made: Chain) -> None:
    (version,) = made.history("beside", "inventory")
    assert (version["v"], version["d"]) == (Decimal("0.123456789012345678"), 0.30000000000000004)


def test_nothing_is_quarantined(made: Chain) -> None:
    assert made.quarantine() == []
