"""Values: expected results from MySQL's ranges and the protocol documents, or from recorded truth."""

import base64
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from cdc_assets.mysql_types.casting import decode, problem, spark_type, widen
from cdc_assets.mysql_types.types import parse_type
from cdc_assets_tests.support import frame_of_rows

RECORDED = Path(__file__).parent.parent / "recorded"
BAD, ZERO = "bad_value", "zero_date"
E64 = ",".join(f"'e{n:02}'" for n in range(1, 65))
ENUM = "enum('red','green','b''lue','日本,x','7')"
ALL_BYTES = "".join(map(chr, range(256)))


def as_text(typed: Column, target: DataType) -> Column:
    return F.lower(F.hex(typed)) if isinstance(target, BinaryType) else typed.cast("string")


def decoded(
    spark: SparkSession,
    cases: list[tuple[str, str | None]],
    wire: str = "canal-json",
    time_zone: str = "UTC",
    targets: list[DataType] | None = None,
) -> list[tuple[str | None, str | None]]:
    """What becomes of each (type, text), as text (bytes as hex), and its problem.

    One job: a column for each type, whose rows are the texts of that type.
    """
    target_types = targets or [spark_type(parse_type(text)) for text, _ in cases]
    texts: dict[tuple[str, DataType], list[str | None]] = {}
    places = []
    for (type_text, text), target in zip(cases, target_types, strict=True):
        column = texts.setdefault((type_text, target), [])
        places.append(((type_text, target), len(column)))
        column.append(text)
    height = max(map(len, texts.values()))
    rows = [[str(at), *(column[at] if at < len(column) else None for column in texts.values())] for at in range(height)]
    schema = StructType([StructField(f"v{at}", StringType()) for at in range(-1, len(texts))])
    columns = {}
    for at, (type_text, target) in enumerate(texts):
        value, mysql_type = F.col(f"v{at}"), parse_type(type_text)
        typed = decode(value, mysql_type, wire, time_zone, target)
        columns[type_text, target] = (as_text(typed, target), problem(value, typed, mysql_type))
    flat = [column for pair in columns.values() for column in pair]
    frame = frame_of_rows(spark, rows, schema).orderBy(F.col("v-1").cast("int")).coalesce(1)
    results = frame.select(*(column.alias(f"r{at}") for at, column in enumerate(flat))).collect()
    order = {key: 2 * at for at, key in enumerate(columns)}
    return [(results[row][order[key]], results[row][order[key] + 1]) for key, row in places]


CASES: list[tuple[str, str | None, str | None, str | None]] = [
    # integers at their limits and one beyond
    *(
        case
        for base, low, high in [
            ("tinyint", -(2**7), 2**7 - 1),
            ("tinyint unsigned", 0, 2**8 - 1),
            ("tinyint(1)", -128, 127),
            ("smallint", -(2**15), 2**15 - 1),
            ("smallint unsigned", 0, 2**16 - 1),
            ("mediumint", -(2**23), 2**23 - 1),
            ("mediumint unsigned", 0, 2**24 - 1),
            ("int", -(2**31), 2**31 - 1),
            ("int(8) unsigned zerofill", 0, 2**32 - 1),
            ("bigint", -(2**63), 2**63 - 1),
            ("bigint unsigned", 0, 2**64 - 1),
            ("bit", 0, 2**64 - 1),
            ("bit(1)", 0, 1),
            ("bit(10)", 0, 1023),
            ("bit(63)", 0, 2**63 - 1),
            ("bit(64)", 0, 2**64 - 1),
        ]
        for case in [
            (base, str(low), str(low), None),
            (base, str(high), str(high), None),
            (base, str(low - 1), None, BAD),
            (base, str(high + 1), None, BAD),
            (base, "9" * 40, None, BAD),
            (base, None, None, None),
        ]
    ),
    *(
        ("int", text, None, BAD)
        for text in ["", " 1", "1 ", "1\n", "+1", "1e3", "1.0", "0x1", "--1", "-", "\u0661", "NaN", "1L", "1_0"]
    ),
    ("int", "-0", "0", None),
    ("int", "00042", "42", None),
    # decimals: the scale is restored, nothing is rounded
    ("decimal(10,4)", "123.456", "123.4560", None),
    ("decimal(10,4)", "-999999.9999", "-999999.9999", None),
    ("decimal(10,4)", "999999.9999", "999999.9999", None),
    ("decimal(10,4)", "1000000", None, BAD),
    ("decimal(10,4)", "0.00001", None, BAD),
    ("decimal(10,4)", "0.000100", "0.0001", None),
    ("decimal(10,2)", "0.0", "0.00", None),
    ("decimal(10,2)", "1e2", None, BAD),
    ("decimal(10,2)", "+1", None, BAD),
    ("decimal(10,2)", "1.00\n", None, BAD),
    ("decimal(10,2)", "NaN", None, BAD),
    ("decimal(10,2)", "", None, BAD),
    ("decimal(12,2) unsigned", "0.00", "0.00", None),
    ("decimal(12,2) unsigned", "-0.00", "0.00", None),
    ("decimal(12,2) unsigned", "-0.01", None, BAD),
    ("decimal(38,0)", "9" * 38, "9" * 38, None),
    ("decimal(38,0)", "-" + "9" * 38, "-" + "9" * 38, None),
    ("decimal(38,0)", "1" + "0" * 38, None, BAD),
    ("decimal(5,5)", "0.99999", "0.99999", None),
    ("decimal(5,5)", "1", None, BAD),
    ("decimal(65,30)", "1.0", "1." + "0" * 30, None),
    ("decimal(65,30)", "0." + "0" * 27, "0." + "0" * 30, None),
    ("decimal(65,30)", "-0.0", "0." + "0" * 30, None),
    ("decimal(65,30)", "-" + "9" * 35 + "." + "9" * 30, "-" + "9" * 35 + "." + "9" * 30, None),
    ("decimal(65,30)", "1" + "0" * 35, None, BAD),
    ("decimal(65,30)", "0." + "0" * 30 + "1", None, BAD),
    ("decimal(65,30)", "0001.5", "1.5" + "0" * 29, None),
    ("decimal(65,0)", "9" * 65, "9" * 65, None),
    ("decimal(65,0)", "9" * 66, None, BAD),
    ("decimal(65,30)", "1e3", None, BAD),
    ("decimal(65,30)", "", None, BAD),
    # floats: plain decimals of any length, and Java's text
    ("float", "3.4028235E38", "3.4028235E38", None),
    ("float", "340282346638528860000000000000000000000", "3.4028235E38", None),
    ("float", "1e39", None, BAD),
    ("float", "0.1", "0.1", None),
    ("float unsigned", "-0.1", None, BAD),
    ("double", "1.23456789011234E10", "1.23456789011234E10", None),
    ("double", "0." + "0" * 323 + "5", "4.9E-324", None),
    ("double", "17976931348623157" + "0" * 292, "1.7976931348623157E308", None),
    ("double", "-1.7976931348623157e+308", "-1.7976931348623157E308", None),
    ("double", "1e400", None, BAD),
    ("double", "NaN", None, BAD),
    ("double", "Infinity", None, BAD),
    ("double", "1d", None, BAD),
    ("double", " 1", None, BAD),
    # text as it is
    *(
        (base, text, text, None)
        for base in ["char(20)", "varchar(40)", "tinytext", "text", "mediumtext", "longtext"]
        for text in ["", "😀 \0\n'\"\\", "NULL", '{"a": [1.10, "é"]}', "  blanks  "]
    ),
    # a JSON document as it is written, and nothing else
    *(
        ("json", text, text, None)
        for text in ['{"a": [1.10, "é😀"]}', "[]", "{}", '"a\\u0000"', "-1.5e-7", "true", "null", ' {"a": null} ']
    ),
    *(
        ("json", text, None, BAD)
        for text in [
            "JSON_REPLACE(doc, '$.level', 2)",
            "JSON_SET(`doc`, '$.a', 1)",
            "JSON_REMOVE(doc, '$[0]')",
            "NULL",
            "{'a': 1}",
            "NaN",
            "1 2",
            "1,",
            '{"a": 1} x',
            '{"a": 1',
            '{"a": 1,}',
            "[1,]",
            "01",
            "  ",
            '"a',
        ]
    ),
    # Canal's text of MySQL's empty bytes
    ("json", "", "null", None),
    # bytes as ISO-8859-1 characters
    *(
        (base, ALL_BYTES, bytes(range(256)).hex(), None)
        for base in ["binary(256)", "varbinary(300)", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point"]
    ),
    ("blob", "", "", None),
    ("blob", "aĀ", None, BAD),
    ("blob", "日本", None, BAD),
    ("blob", "😀", None, BAD),
    ("blob", None, None, None),
    ("binary(4)", "\0ÿ", "00ff0000", None),
    ("binary(4)", "", "00000000", None),
    ("binary(4)", "abcd", "61626364", None),
    ("binary", "a", "61", None),
    ("varbinary(4)", "a", "61", None),
    # the document's own
    ("varbinary(16)", "\x05\x07\n\x0f$2+cx<&ÿþ-7F", "05070a0f24322b63783c26fffe2d3746", None),
    # enum and set
    (ENUM, "1", "red", None),
    (ENUM, "4", "日本,x", None),
    (ENUM, "5", "7", None),
    (ENUM, "7", "7", None),
    (ENUM, "0", "", None),
    (ENUM, "6", None, BAD),
    (ENUM, "b'lue", "b'lue", None),
    (ENUM, "RED", None, BAD),
    (ENUM, "", None, BAD),
    (ENUM, "99999999999", None, BAD),
    (ENUM, None, None, None),
    ("enum", "3", "3", None),
    ("enum", "0", "", None),
    ("set('a','b','c','d é')", "0", "", None),
    ("set('a','b','c','d é')", "9", "a,d é", None),
    ("set('a','b','c','d é')", "15", "a,b,c,d é", None),
    ("set('a','b','c','d é')", "16", None, BAD),
    ("set('a','b','c','d é')", "-1", None, BAD),
    ("set('a','b','c','d é')", None, None, None),
    (f"set({E64})", str(2**63), "e64", None),
    (f"set({E64})", str(2**63 + 1), "e01,e64", None),
    (f"set({E64})", str(2**64 - 1), ",".join(f"e{n:02}" for n in range(1, 65)), None),
    (f"set({E64})", str(2**64), None, BAD),
    ("set", str(2**64 - 1), str(2**64 - 1), None),
    ("set", "0", "", None),
    ("set", "a,b", None, BAD),
    # dates
    ("date", "1000-01-01", "1000-01-01", None),
    ("date", "9999-12-31", "9999-12-31", None),
    ("date", "0001-01-01", "0001-01-01", None),
    ("date", "1582-10-10", "1582-10-10", None),
    ("date", "2020-02-29", "2020-02-29", None),
    ("date", "0000-00-00", None, ZERO),
    ("date", "2020-00-00", None, ZERO),
    ("date", "2020-05-00", None, ZERO),
    ("date", "2020-02-30", None, ZERO),
    ("date", "0000-05-05", None, ZERO),
    ("date", "2020-13-01", None, BAD),
    ("date", "2020-01-32", None, BAD),
    *(
        ("date", text, None, BAD)
        for text in ["2020", "2020-1-1", " 2020-01-01", "2020-01-01\n", "10000-01-01", "", "x"]
    ),
    ("date", "2020-01-01 00:00:00", None, BAD),
    ("date", None, None, None),
    ("datetime", "1000-01-01 00:00:00", "1000-01-01 00:00:00", None),
    ("datetime(6)", "9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999", None),
    ("datetime(3)", "2018-06-20 06:37:03.100", "2018-06-20 06:37:03.1", None),
    ("datetime(3)", "0000-00-00 00:00:00.000", None, ZERO),
    ("datetime", "2020-05-00 10:11:12", None, ZERO),
    ("datetime", "2020-02-30 10:11:12", None, ZERO),
    ("datetime", "2020-05-00 25:11:12", None, BAD),
    *(
        ("datetime", text, None, BAD)
        for text in [
            "2020-01-01",
            "2020-01-01T00:00:00",
            "2020-01-01 24:00:00",
            "2020-01-01 00:60:00",
            "2020-01-01 00:00:60",
            "2020-01-01 00:00:00Z",
            "2020-01-01 00:00:00.1234567",
            "2020-01-01 0:00:00",
        ]
    ),
    ("timestamp", "1970-01-01 00:00:01", "1970-01-01 00:00:01", None),
    ("timestamp(6)", "2038-01-19 03:14:07.999999", "2038-01-19 03:14:07.999999", None),
    ("timestamp", "1970-01-01 00:00:00", None, BAD),
    ("timestamp", "2038-01-19 03:14:08", None, BAD),
    ("timestamp", "0000-00-00 00:00:00", None, ZERO),
    ("timestamp(3)", "0000-00-00 00:00:00.000", None, ZERO),
    ("timestamp", "2020-02-30 00:00:00", None, BAD),  # TIMESTAMP always needs a valid date
    ("timestamp", None, None, None),
    # time and year
    ("time", "00:00:00", "00:00:00", None),
    ("time", "-838:59:59", "-838:59:59", None),
    ("time(6)", "838:59:59.000000", "838:59:59.000000", None),
    ("time(6)", "838:59:58.999999", "838:59:58.999999", None),
    ("time(6)", "-00:00:00.000001", "-00:00:00.000001", None),
    ("time", "012:00:00", "12:00:00", None),
    ("time", "100:00:00", "100:00:00", None),
    *(
        ("time", text, None, BAD)
        for text in [
            "838:59:59.000001",
            "839:00:00",
            "-839:00:00",
            "00:60:00",
            "00:00:60",
            "1:2:3",
            "+01:00:00",
            "",
            "01:00",
            "1000:00:00",
            "01:00:00\n",
            "01:00:00.",
        ]
    ),
    ("year", "1901", "1901", None),
    ("year", "2155", "2155", None),
    ("year", "0000", "0", None),
    ("year(4)", "0", "0", None),
    ("year", "1900", None, BAD),
    ("year", "2156", None, BAD),
    ("year", "-1", None, BAD),
    ("year", "", None, BAD),
]


def test_values_of_canal_json(spark: SparkSession) -> None:
    results = decoded(spark, [case[:2] for case in CASES])
    wrong = [(case, got) for case, got in zip(CASES, results, strict=True) if got != case[2:]]
    assert not wrong


def test_timestamps_in_the_zone_of_the_feed(spark: SparkSession) -> None:
    for time_zone, cases in {
        "Asia/Tokyo": {
            "2026-05-28 16:27:54.000000": "2026-05-28 07:27:54",
            "1970-01-01 09:00:01": "1970-01-01 00:00:01",
        },
        "+05:30": {"2020-01-01 05:30:00": "2020-01-01 00:00:00"},
        # 2021: clocks forward on March 28 at 02:00, back on October 31 at 03:00
        "Europe/Berlin": {
            "2021-03-28 01:59:59": "2021-03-28 00:59:59",
            "2021-03-28 03:00:00": "2021-03-28 01:00:00",
            "2021-10-31 01:59:59": "2021-10-30 23:59:59",
            "2021-10-31 03:00:00": "2021-10-31 02:00:00",
        },
    }.items():
        results = decoded(spark, [("timestamp(6)", text) for text in cases], time_zone=time_zone)
        assert results == [(instant, None) for instant in cases.values()]
        # DATETIME has no zone.
        local = decoded(spark, [("datetime", "2021-10-31 02:30:00")], time_zone=time_zone)
        assert local == [("2021-10-31 02:30:00", None)]


@pytest.mark.parametrize(
    ("time_zone", "text"),
    [
        ("Europe/Berlin", "2021-10-31 02:00:00"),
        ("Europe/Berlin", "2021-10-31 02:59:59.999999"),
        ("Europe/Berlin", "2021-03-28 02:30:00"),  # does not exist
        ("America/New_York", "2024-11-03 01:30:00"),
        ("Australia/Lord_Howe", "2024-04-07 01:45:00"),  # clocks go back by half an hour
        ("Antarctica/Troll", "2024-10-27 01:30:00"),  # by two hours
        ("Asia/Shanghai", "1991-09-15 01:30:00"),  # had summer time until 1991
    ],
)
def test_a_timestamp_whose_local_time_does_not_say_the_instant(spark: SparkSession, time_zone: str, text: str) -> None:
    assert decoded(spark, [("timestamp(6)", text)], time_zone=time_zone) == [(None, "unclear_time")]
    located = json.dumps({"location": time_zone, "value": text}, separators=(",", ":"))
    assert decoded(spark, [("timestamp(6)", located)], wire="simple") == [(None, "unclear_time")]


@pytest.mark.parametrize(
    ("time_zone", "text", "instant"),
    [
        ("Europe/Berlin", "2021-10-31 01:59:59", "2021-10-30 23:59:59"),
        ("Europe/Berlin", "2021-10-31 03:00:00", "2021-10-31 02:00:00"),
        ("Australia/Lord_Howe", "2024-04-07 01:15:00", "2024-04-06 14:15:00"),
        ("Australia/Lord_Howe", "2024-04-07 02:15:00", "2024-04-06 15:45:00"),
        ("Antarctica/Troll", "2024-10-27 00:59:59", "2024-10-26 22:59:59"),
        ("Antarctica/Troll", "2024-10-27 03:00:00", "2024-10-27 03:00:00"),
    ],
)
def test_a_timestamp_beside_a_change_of_clocks(spark: SparkSession, time_zone: str, text: str, instant: str) -> None:
    assert decoded(spark, [("timestamp(6)", text)], time_zone=time_zone) == [(instant, None)]


def test_timestamps_do_not_depend_on_the_zone_of_the_session(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        value = F.lit("2021-01-01 12:00:00")
        typed = decode(value, parse_type("timestamp"), "canal-json", "Asia/Tokyo", TimestampType())
        seconds = spark.range(1).select(F.unix_seconds(typed)).collect()[0][0]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert seconds == 1609470000  # 2021-01-01T03:00:00Z


def test_values_into_columns_of_other_types(spark: SparkSession) -> None:
    """A value that the column holds is unchanged; any other is NULL with a reason, never rounded, cut or reinterpreted."""
    cases: list[tuple[str, str, DataType, str | None]] = [
        ("int", "5", DateType(), None),
        ("int", "5", TimestampNTZType(), None),
        ("int", "5", BinaryType(), None),
        ("int", "5", StringType(), "5"),
        ("int", "16777216", FloatType(), "1.6777216E7"),
        ("int", "16777217", FloatType(), None),
        ("bigint", "9007199254740992", DoubleType(), "9.007199254740992E15"),
        ("bigint", "9007199254740993", DoubleType(), None),
        ("double", "2", IntegerType(), "2"),
        ("double", "1.5", IntegerType(), None),
        ("double", "1e10", IntegerType(), None),
        ("decimal(10,2)", "1.25", DoubleType(), "1.25"),
        ("decimal(38,30)", "12345678.012345678901234567890123456789", DoubleType(), None),
        ("decimal(10,2)", "7.00", IntegerType(), "7"),
        ("decimal(10,2)", "7.50", IntegerType(), None),
        ("date", "2020-01-02", TimestampNTZType(), "2020-01-02 00:00:00"),
        ("date", "2020-01-02", IntegerType(), None),
        ("datetime", "2020-01-02 00:00:00", DateType(), "2020-01-02"),
        ("datetime", "2020-01-02 03:04:05", DateType(), None),
        ("varchar(10)", "7", IntegerType(), "7"),
        ("varchar(10)", "07", IntegerType(), None),
        ("varchar(10)", "7.5", IntegerType(), None),
        ("varchar(10)", "x", DateType(), None),
        ("varchar(10)", "é", BinaryType(), "c3a9"),
        ("blob", "abc", StringType(), "abc"),
        ("blob", "\u00ff", StringType(), None),
        ("blob", "5", IntegerType(), None),
    ]
    results = decoded(spark, [case[:2] for case in cases], targets=[case[2] for case in cases])
    assert [(*case, got) for case, got in zip(cases, results, strict=True) if got[0] != case[3]] == []
    assert all((got is None) == (reason == BAD) for got, reason in results)


def test_values_into_wider_columns(spark: SparkSession) -> None:
    cases: list[tuple[str, str, DataType, str | None]] = [
        ("tinyint", "127", LongType(), "127"),
        ("tinyint", "128", LongType(), None),
        ("bigint unsigned", str(2**64 - 1), DecimalType(30, 2), f"{2**64 - 1}.00"),
        ("decimal(10,2)", "1.5", DecimalType(14, 3), "1.500"),
        ("decimal(10,2)", "1.555", DecimalType(14, 3), None),
        ("decimal(4,2)", "100", DecimalType(14, 3), None),
        ("decimal", "1.5", DecimalType(38, 4), "1.5000"),
        ("decimal", "1.55555", DecimalType(38, 4), None),
        ("decimal unsigned", "-1", DecimalType(38, 4), None),
        ("decimal(65,30)", "1.25", DecimalType(38, 2), "1.25"),
        ("decimal", "1.50", StringType(), "1.50"),
        # the column's older values were widened from the same float
        ("float", "0.1", DoubleType(), "0.10000000149011612"),
    ]
    results = decoded(spark, [case[:2] for case in cases], targets=[case[2] for case in cases])
    assert [text for text, _ in results] == [case[3] for case in cases]


def test_defaults_of_ddl(spark: SparkSession) -> None:
    cases = [
        ("enum('2','1')", "2", "2"),  # a label here, not an ordinal
        ("enum('a')", "1", None),
        ("set('a','b')", "b,a", "b,a"),
        ("set('a','b')", "", ""),
        ("set('a','b')", "c", None),
        ("timestamp", "2020-01-01", "2020-01-01 00:00:00"),
        ("datetime(3)", "2020-01-01 10:11:12", "2020-01-01 10:11:12"),
        ("binary(2)", "ÿ", "ff00"),
        ("bit(4)", "5", "5"),
        ("decimal(14,3)", "0.000", "0.000"),
    ]
    assert [text for text, _ in decoded(spark, [case[:2] for case in cases], wire="ddl")] == [case[2] for case in cases]


def test_an_unknown_dialect_is_an_error(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="canal-json"):
        decode(F.lit("1"), parse_type("int"), "telegraph", "UTC", IntegerType())


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=40))
def test_integers_are_exact_or_bad_values(spark: SparkSession, numbers: list[int]) -> None:
    for base, low, high in [("int", -(2**31), 2**31 - 1), ("bigint unsigned", 0, 2**64 - 1)]:
        results = decoded(spark, [(base, str(number)) for number in numbers])
        assert results == [(str(number), None) if low <= number <= high else (None, BAD) for number in numbers]


@settings(max_examples=5, deadline=None)
@given(st.lists(st.decimals(-(10**12), 10**12, allow_nan=False, places=4), min_size=1, max_size=40))
def test_decimals_are_exact_or_bad_values(spark: SparkSession, numbers: list[Decimal]) -> None:
    results = decoded(spark, [("decimal(12,2)", f"{number:f}") for number in numbers])
    for number, (text, reason) in zip(numbers, results, strict=True):
        if abs(number) < 10**10 and number == number.quantize(Decimal("0.01")):
            assert (Decimal(str(text)), reason) == (number, None)
        else:
            assert (text, reason) == (None, BAD)


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress((RECORDED / name).read_bytes()).decode().strip().split("\n")]


def test_recorded_ticdc_rows_equal_the_truth(spark: SparkSession) -> None:
    (table,) = [json.loads(line) for line in (RECORDED / "ticdc/truth/types.tables.jsonl").read_text().splitlines()]
    types = {column["name"]: parse_type(column["type"]) for column in table["columns"]}
    truth = {
        (event["commit_ts"], event["after"]["id"]): event["after"]
        for event in recorded("ticdc/truth/types.events.jsonl.gz")
        if event.get("after")
    }
    rows = {}
    for record in recorded("ticdc/canal-json_ext/types.jsonl.gz"):
        event = json.loads(base64.b64decode(record["value"]))
        if event["type"] in {"INSERT", "UPDATE"}:
            rows[event["_tidb"]["commitTs"], event["data"][0]["id"]] = event["data"][0]
    assert rows.keys() == truth.keys()
    compare(spark, types, [(rows[key], truth[key]) for key in rows])


def compare(spark: SparkSession, types: dict[str, Any], pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    names = list(types)
    schema = StructType([StructField(name, StringType()) for name in names])
    frame = frame_of_rows(spark, [tuple(wire[name] for name in names) for wire, _ in pairs], schema)
    targets = {name: spark_type(types[name]) for name in names}
    typed = {name: decode(F.col(name), types[name], "canal-json", "UTC", targets[name]) for name in names}
    assert [field.dataType for field in frame.select(*typed.values()).schema] == list(targets.values())
    rows = frame.select(
        *(as_text(typed[name], targets[name]).alias(name) for name in names),
        *(problem(F.col(name), typed[name], types[name]).alias(f"problem {name}") for name in names),
    ).collect()
    for row, (wire, expected) in zip(rows, pairs, strict=True):
        for name in names:
            got = (row[name], row[f"problem {name}"])
            assert got == expectation(expected[name], targets[name], row[name]), (name, types[name], wire[name])


def expectation(truth: str | None, target: DataType, got: str | None) -> tuple[str | None, str | None]:
    """The truth's text as `as_text` writes it. Fractions and floats are compared as values."""
    if truth is None:
        return None, None
    if isinstance(target, (DateType, TimestampType, TimestampNTZType)):
        if truth.startswith("0000") or "-00" in truth:
            return None, ZERO
        integer, _, fraction = truth.partition(".")
        return f"{integer}.{fraction.rstrip('0')}".rstrip("."), None
    if isinstance(target, BinaryType):
        return truth.removeprefix("0x"), None
    if isinstance(target, (FloatType, DoubleType)):
        number = np.float32 if isinstance(target, FloatType) else np.float64
        same = got is not None and number(got) == number(truth)
        # The mysql client prints a FLOAT with six digits only.
        same = same or (
            isinstance(target, FloatType) and got is not None and f"{float(got):.6g}" == f"{float(truth):.6g}"
        )
        return (got if same else truth), None
    if isinstance(target, (ByteType, ShortType, IntegerType, LongType)):
        return str(int(truth)), None
    return truth, None


@pytest.mark.fast
@pytest.mark.parametrize(
    ("old", "new", "common"),
    [
        (ByteType(), ShortType(), ShortType()),
        (LongType(), ByteType(), LongType()),
        (ByteType(), LongType(), LongType()),
        (IntegerType(), DecimalType(20, 0), DecimalType(20, 0)),
        (LongType(), DecimalType(20, 0), DecimalType(20, 0)),
        (LongType(), DecimalType(10, 2), DecimalType(22, 2)),
        (ByteType(), DecimalType(5, 2), DecimalType(12, 2)),  # Delta widens integers to 10 digits at least
        (DecimalType(5, 2), ByteType(), DecimalType(5, 2)),
        (DecimalType(5, 2), IntegerType(), DecimalType(12, 2)),
        (DecimalType(10, 2), DecimalType(14, 3), DecimalType(14, 3)),
        (DecimalType(10, 2), DecimalType(10, 4), DecimalType(12, 4)),
        (DecimalType(38, 0), DecimalType(10, 2), None),
        (FloatType(), DoubleType(), DoubleType()),
        (DoubleType(), FloatType(), DoubleType()),
        (DoubleType(), DecimalType(10, 2), None),
        (IntegerType(), StringType(), None),
        (StringType(), IntegerType(), None),
        (DateType(), TimestampType(), None),
        (StringType(), StringType(), StringType()),
        (StringType(), BinaryType(), None),
    ],
)
def test_widen(old: DataType, new: DataType, common: DataType | None) -> None:
    assert widen(old, new) == common


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tinyint", ByteType()), ("tinyint(1)", ByteType()), ("tinyint unsigned", ShortType()),
        ("smallint", ShortType()), ("smallint unsigned", IntegerType()), ("mediumint", IntegerType()),
        ("mediumint unsigned", IntegerType()), ("int", IntegerType()), ("int unsigned", LongType()),
        ("bigint", LongType()), ("bigint unsigned", DecimalType(20, 0)), ("float", FloatType()),
        ("float unsigned", FloatType()), ("double", DoubleType()), ("decimal(10,4)", DecimalType(10, 4)),
        ("decimal(38,30)", DecimalType(38, 30)), ("decimal(39,0)", StringType()), ("decimal", DecimalType(38, 0)),
        ("bit(1)", LongType()), ("bit(63)", LongType()), ("bit(64)", DecimalType(20, 0)), ("bit", DecimalType(20, 0)),
        ("year", ShortType()), ("time(6)", StringType()), ("date", DateType()), ("datetime(6)", TimestampNTZType()),
        ("timestamp", TimestampType()), ("json", StringType()), ("enum", StringType()), ("set", StringType()),
        ("char(3)", StringType()), ("longtext", StringType()), ("binary(3)", BinaryType()), ("blob", BinaryType()),
    ],
)  # fmt: skip
def test_spark_type(text: str, expected: DataType) -> None:
    assert spark_type(parse_type(text)) == expected


@pytest.mark.fast
def test_spark_type_of_a_decimal_without_parameters_has_the_scale_seen() -> None:
    assert spark_type(parse_type("decimal"), scale_seen=4) == DecimalType(38, 4)


# Canal decodes these as UTF-8, whatever the column's charset is: their text is lost before it comes here.
LOST_IN_CANAL = {"c_vlatin", "c_tlatin", "c_vsjis", "c_vgbk", "c_vucs2"}


def test_recorded_canal_rows_equal_the_truth(spark: SparkSession) -> None:
    truth = [
        event["after"]
        for event in recorded("mysql/truth/types.events.jsonl.gz")
        if event["phase"] == "stream" and event["op"] in {"insert", "update"} and event["table"] == "types_all"
    ]
    rows = []
    types: dict[str, Any] = {}
    for record in recorded("mysql/canal117-flat/types.jsonl.gz"):
        event = json.loads(base64.b64decode(record["value"]))
        if event["table"] == "types_all" and event["type"] in {"INSERT", "UPDATE"}:
            types = types or {name: parse_type(text) for name, text in event["mysqlType"].items()}
            rows += event["data"]
    assert len(rows) == len(truth) > 0
    # The mysql client rounds a DOUBLE(15,4) to four digits when it prints it; the binlog has the number itself.
    kept = {
        name: mysql_type
        for name, mysql_type in types.items()
        if name not in LOST_IN_CANAL and not (mysql_type.base == "double" and mysql_type.scale is not None)
    }
    compare(spark, kept, [(row, as_ticdc_truth(after, kept)) for row, after in zip(rows, truth, strict=True)])


def as_ticdc_truth(after: dict[str, Any], types: dict[str, Any]) -> dict[str, Any]:
    """The truth of the MySQL recordings, where bytes and bits are hexadecimal, in the form of the TiCDC ones."""
    return {
        name: str(int(text, 16))
        if text is not None and types[name].base == "bit"
        else text.lower()
        if text is not None and isinstance(spark_type(types[name]), BinaryType)
        else text
        for name, text in after.items()
        if name in types
    }
