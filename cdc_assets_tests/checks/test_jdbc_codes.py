"""JDBC codes: the tables of the Canal-JSON document, row by row, and what encoders were recorded to write."""

import base64
import gzip
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.checks.jdbc_codes import expected_codes, observe
from cdc_assets.mysql_types.reference import JDBC, TYPES, Source
from cdc_assets.mysql_types.types import parse_type
from cdc_assets.tables.change_events import CHANGE_EVENTS
from cdc_assets.tables.schema import conform

RECORDED = Path(__file__).parent.parent / "recorded"
SPEC: frozenset[Source] = frozenset({"spec"})
BOTH: frozenset[Source] = frozenset({"spec", "canal"})

# The document: "SQL Type", then the table of the integers.
DOCUMENT = [
    *[("boolean", "1", -6), ("float", "1", 7), ("double", "1", 8), ("decimal", "1", 3), ("char", "1", 1)],
    *[("varchar", "1", 12), ("binary", "1", 2004), ("varbinary", "1", 2004), ("tinytext", "1", 2005)],
    *[("text", "1", 2005), ("mediumtext", "1", 2005), ("longtext", "1", 2005), ("tinyblob", "1", 2004)],
    *[("blob", "1", 2004), ("mediumblob", "1", 2004), ("longblob", "1", 2004), ("date", "1", 91)],
    *[("datetime", "1", 93), ("timestamp", "1", 93), ("time", "1", 92), ("year", "1", 12), ("enum", "1", 4)],
    *[("set", "1", -7), ("bit", "1", -7), ("json", "1", 12)],
    *[("tinyint", "-128", -6), ("tinyint", "127", -6)],
    *[("tinyint unsigned", "0", -6), ("tinyint unsigned", "127", -6)],
    *[("tinyint unsigned", "128", 5), ("tinyint unsigned", "255", 5)],
    *[("smallint", "-32768", 5), ("smallint", "32767", 5)],
    *[("smallint unsigned", "0", 5), ("smallint unsigned", "32767", 5)],
    *[("smallint unsigned", "32768", 4), ("smallint unsigned", "65535", 4)],
    *[("mediumint", "-8388608", 4), ("mediumint", "8388607", 4)],
    *[("mediumint unsigned", "0", 4), ("mediumint unsigned", "16777215", 4)],
    *[("int", "-2147483648", 4), ("int", "2147483647", 4)],
    *[("int unsigned", "0", 4), ("int unsigned", "2147483647", 4)],
    *[("int unsigned", "2147483648", -5), ("int unsigned", "4294967295", -5)],
    *[("bigint", "-9223372036854775808", -5), ("bigint", "9223372036854775807", -5)],
    *[("bigint unsigned", "0", -5), ("bigint unsigned", "9223372036854775807", -5)],
    *[("bigint unsigned", "9223372036854775808", 3), ("bigint unsigned", "18446744073709551615", 3)],
]
# Recorded TiCDC: NULL has the code of the small values.
NULLS = [("tinyint unsigned", -6), ("smallint unsigned", 5), ("int unsigned", 4), ("bigint unsigned", -5), ("set", -7)]
CODES = [-7, -6, -5, 1, 3, 4, 5, 7, 8, 12, 91, 92, 93, 2004, 2005]


def permitted(
    spark: SparkSession, cases: list[tuple[str, str | None, int | None]], sources: frozenset[Source]
) -> list[bool]:
    """Whether the check's reference has the code beside the type and the value, each case in a table of its own."""
    rows = [
        ("row", "d", str(at), "topic", 0, at, *map(json.dumps, ({"c": value}, {"types": {"c": text}}, {"c": code})))
        for at, (text, value, code) in enumerate(cases)
    ]
    shape = "kind string, database string, table string, topic string, partition int, offset long"
    frame = spark.createDataFrame(rows, f"{shape}, after string, layout string, jdbc_types string")
    observed = {int(o["table"]): o for o in observe(conform(frame, CHANGE_EVENTS.columns), sources)}
    assert sorted(observed) == list(range(len(cases)))
    return [
        code in expected_codes(text, observed[at]["value_class"], sources) for at, (text, _, code) in enumerate(cases)
    ]


def test_each_type_and_range_has_the_code_of_the_document_and_no_other(spark: SparkSession) -> None:
    right = {(text, value): code for text, value, code in DOCUMENT} | {(text, None): code for text, code in NULLS}
    cases = [(text, value, other) for text, value in right for other in CODES]
    expected = [right[text, value] == other for text, value, other in cases]
    assert permitted(spark, cases, SPEC) == expected


def test_departures_of_canal(spark: SparkSession) -> None:
    cases: list[tuple[str, str | None, int | None]] = [
        ("set", None, 2004),
        ("set", "1", 2004),
        ("json", "{}", 2004),
        ("point", "x", 2004),
        ("tinyint unsigned", None, 5),
        ("tinyint", "1", 5),
        ("int", "1", None),
    ]
    assert permitted(spark, cases, BOTH) == [True, False, True, True, True, False, False]
    assert permitted(spark, cases, SPEC) == [False] * len(cases)


@pytest.mark.parametrize(
    ("file", "sources"), [("ticdc/canal-json_ext/types.jsonl.gz", SPEC), ("mysql/canal117-flat/types.jsonl.gz", BOTH)]
)
def test_recorded_codes_are_all_permitted(spark: SparkSession, file: str, sources: frozenset[Source]) -> None:
    # One value each that is small, large or NULL is enough for the codes: the rest repeats.
    seen: dict[tuple[str, int, str | None], None] = {}
    for line in gzip.decompress((RECORDED / file).read_bytes()).decode().strip().split("\n"):
        event = json.loads(base64.b64decode(json.loads(line)["value"]))
        for row in event["data"] or []:
            for name, value in row.items():
                is_number = value is not None and value.lstrip("-").isdecimal() and len(value) <= 20
                text = "x" if value is not None and not is_number else value
                seen[str(parse_type(event["mysqlType"][name])), event["sqlType"][name], text] = None
    cases: list[tuple[str, str | None, int | None]] = [(text, value, code) for text, code, value in seen]
    refused = [case for case, yes in zip(cases, permitted(spark, cases, sources), strict=True) if not yes]
    assert not refused


@pytest.mark.fast
def test_every_type_has_codes() -> None:
    assert {row.base for row in JDBC} == set(TYPES)
