"""JDBC codes: the tables of the Canal-JSON document, row by row, and what encoders were recorded to write."""

import json
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lakehouse.change_events import CHANGE_EVENTS
from cdc_assets.lakehouse.schema import conform
from cdc_assets.mysql_types.descriptors import TYPES
from cdc_assets.mysql_types.jdbc import JDBC, Source
from cdc_assets.protocols.canal_json.type_rules import CanalJsonRules, JdbcCodes
from cdc_assets.type_checks.validation import OK, find_broken_rules
from cdc_assets_tests.support import frame_of_rows
from cdc_assets_tests.type_checks.test_type_mapping import VALUES

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
    spark: SparkSession, cases: Sequence[tuple[str, str | None, int | None]], sources: frozenset[Source]
) -> list[bool]:
    """Return whether the rules allow the code for the type and the value, each case in a table of its own."""
    rows = []
    for at, (text, value, code) in enumerate(cases):
        image = {"c": VALUES.get(text, value) if value is not None else None}
        detail = map(json.dumps, (image, {"types": {"c": text}}, {} if code is None else {"c": code}))
        rows.append(("row", "d", str(at), "topic", 0, at, at, 1, *detail))
    shape = "kind string, database string, table string, topic string, partition int, offset long, commit_ts long"
    frame = frame_of_rows(spark, rows, f"{shape}, batch long, after string, layout string, jdbc_types string")
    observations = CanalJsonRules(sources).observe(conform(frame, CHANGE_EVENTS.columns).localCheckpoint(), (), {})
    assert sorted(int(o["table"]) for o in observations) == list(range(len(cases)))
    fine = {
        int(o["table"])
        for o, verdict in zip(observations, find_broken_rules(observations, JdbcCodes), strict=True)
        if verdict == OK
    }
    return [at in fine for at in range(len(cases))]


def test_each_type_and_range_has_the_code_of_the_document_and_no_other(spark: SparkSession) -> None:
    right: dict[tuple[str, str | None], int] = {(text, value): code for text, value, code in DOCUMENT}
    right |= {(text, None): code for text, code in NULLS}
    cases = [(text, value, other) for text, value in right for other in CODES]
    expected = [right[text, value] == other for text, value, other in cases]
    assert permitted(spark, cases, SPEC) == expected


def test_departures_of_canal(spark: SparkSession) -> None:
    cases: Sequence[tuple[str, str | None, int | None]] = [
        ("set('a','b')", None, 2004),
        ("set('a','b')", "1", 2004),  # in a message whose last row has NULL: see the case canal_set_null_rows
        ("json", "{}", 2004),
        ("point", "x", 2004),
        ("tinyint unsigned", None, 5),
        ("tinyint", "1", 5),
        ("int", "1", None),
    ]
    assert permitted(spark, cases, BOTH) == [True, True, True, True, True, False, False]
    assert permitted(spark, cases, SPEC) == [False] * len(cases)


def test_without_the_extension_ticdcs_codes_go_by_their_values_all_the_same(spark: SparkSession) -> None:
    """Official Canal prints types as they were declared: never a varchar without its length."""
    rows = []
    for at, text in enumerate(["varchar", "varchar(9)"]):
        types = {"c": "tinyint unsigned", "v": text}
        detail = map(json.dumps, ({"c": "1", "v": "x"}, {"types": types}, {"c": 5, "v": 12}))
        rows.append(("row", "d", str(at), "topic", 0, at, at, 1, *detail))
    shape = "kind string, database string, table string, topic string, partition int, offset long, commit_ts long"
    frame = frame_of_rows(spark, rows, f"{shape}, batch long, after string, layout string, jdbc_types string")
    observations = CanalJsonRules(BOTH).observe(conform(frame, CHANGE_EVENTS.columns).localCheckpoint(), (), {})
    classes = {(o["table"], o["column"]): o["value_class"] for o in observations}
    assert classes == {
        ("0", "c"): "not the code of this value",
        ("0", "v"): "any",
        ("1", "c"): "0..255",
        ("1", "v"): "any",
    }


@pytest.mark.fast
def test_every_type_has_codes() -> None:
    assert {row.base for row in JDBC} == set(TYPES)
