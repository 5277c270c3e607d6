"""The JDBC and mysqlType mappings: what the document does not have is found, with the record; real streams pass."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.checks.jdbc_codes import rules, sources_of
from cdc_assets.checks.observations import judge, mysql_type_schema
from cdc_assets.checks.type_mapping import check_types
from cdc_assets.checks.verdict import Verdict
from cdc_assets.mysql_types.reference import Source
from cdc_assets.protocols.decode import decode
from cdc_assets.protocols.events import SCHEMA
from cdc_assets.sources.ingest import ingest
from cdc_assets_tests.support import RECORDED, Chain, make_feed, read_lines

SPEC: frozenset[Source] = frozenset({"spec"})

# The document, "SQL Type": type -> code.
BY_TYPE = {
    "boolean": -6,
    "float": 7,
    "double": 8,
    "decimal": 3,
    "char": 1,
    "varchar": 12,
    "binary": 2004,
    "varbinary": 2004,
    "tinytext": 2005,
    "text": 2005,
    "mediumtext": 2005,
    "longtext": 2005,
    "tinyblob": 2004,
    "blob": 2004,
    "mediumblob": 2004,
    "longblob": 2004,
    "date": 91,
    "datetime": 93,
    "timestamp": 93,
    "time": 92,
    "year": 12,
    "enum": 4,
    "set": -7,
    "bit": -7,
    "json": 12,
    # and the signed integers of its table of integers
    "tinyint": -6,
    "smallint": 5,
    "mediumint": 4,
    "int": 4,
    "bigint": -5,
    "mediumint unsigned": 4,
}
# Unsigned integers: the largest value of the smaller code, that code, the largest value of all, the larger code.
BY_VALUE = {
    "tinyint unsigned": (127, -6, 255, 5),
    "smallint unsigned": (32767, 5, 65535, 4),
    "int unsigned": (2147483647, 4, 4294967295, -5),
    "bigint unsigned": (9223372036854775807, -5, 18446744073709551615, 3),
}
CODES = sorted({*BY_TYPE.values()})

Case = tuple[str, str | None, int | None]  # type, value, code (None: not in the message)


def event(offset: int, case: Case, **more: Any) -> dict[str, Any]:
    """A row event, each case in a table of its own, whose one column is `c`."""
    text, value, code = case
    return {
        "topic": "topic",
        "partition": 1,
        "offset": offset,
        "index": 0,
        "kind": "row",
        "op": "insert",
        "database": "db",
        "table": f"t{offset}",
        "after": json.dumps({"c": value}),
        "mysql_types": json.dumps({"c": text}),
        "jdbc_types": json.dumps({} if code is None else {"c": code}),
    } | more


def checked(
    spark: SparkSession, events: list[dict[str, Any]], sources: frozenset[Source] = SPEC
) -> tuple[Verdict, Verdict]:
    """The mysqlType check's verdict, and the JDBC check's."""
    rows = [tuple(e.get(name) for name in SCHEMA.names) for e in events]
    prescribed = rules(sources)
    observed = prescribed.observe(spark.createDataFrame(rows, SCHEMA))
    mysql = judge(observed, mysql_type_schema(), prescribed, "mysqlType")
    return mysql, judge(observed, prescribed.codes, prescribed, "JDBC type")


def broken(spark: SparkSession, cases: list[Case]) -> list[tuple[bool, bool]]:
    """For each case whether the mysqlType check, and whether the JDBC check, is broken at its record."""
    verdicts = checked(spark, [event(n, case) for n, case in enumerate(cases)])
    # The metadata shows all observations; the violations are cut.
    wrong = [{o["offset"] for o in v.metadata["observations"] if o["verdict"] != "ok"} for v in verdicts]
    return [(n in wrong[0], n in wrong[1]) for n in range(len(cases))]


def test_each_type_passes_with_its_code_and_with_no_other(spark: SparkSession) -> None:
    cases: list[Case] = [(text, "1", code) for text in BY_TYPE for code in CODES]
    expected = [(False, code != BY_TYPE[text]) for text, _, code in cases]
    # 500 observations are shown, so in two halves.
    half = len(cases) // 2
    assert broken(spark, cases[:half]) + broken(spark, cases[half:]) == expected


def test_an_unsigned_integers_code_goes_by_its_value(spark: SparkSession) -> None:
    expected: dict[Case, bool] = {}
    for text, (middle, small, top, large) in BY_VALUE.items():
        for value in (0, middle, middle + 1, top):
            right = small if value <= middle else large
            expected |= {(text, str(value), code): code != right for code in (small, large)}
        # NULL has the code of the small values; a value outside the type's range has none.
        expected |= {(text, None, small): False, (text, None, large): True}
        expected |= {(text, str(v), code): True for v in (-1, top + 1) for code in (small, large)}
        expected |= {(text, "1.5", small): True, (text, "one", small): True}
    assert broken(spark, list(expected)) == [(False, wrong) for wrong in expected.values()]


def test_a_type_that_mysql_does_not_have_breaks_the_mysql_type_check_only(spark: SparkSession) -> None:
    texts = ["varchr", "int5", "", "decimal(", "varchar(10) unsigned x", "unsigned"]
    right = event(99, ("varchar", "1", 12))
    mysql, jdbc = checked(spark, [right, *(event(n, (text, "1", 12)) for n, text in enumerate(texts))])
    assert not mysql.passed
    shown = [
        (r["topic"], r["partition"], r["offset"], r["database"], r["table"], r["column"]) for r in mysql.violations
    ]
    assert sorted(shown) == [("topic", 1, n, "db", f"t{n}", "c") for n in range(len(texts))]
    assert {r["offset"]: r["mysql_type"] for r in mysql.violations} == dict(enumerate(texts))
    assert jdbc.passed


def test_a_code_that_no_type_has_breaks_the_jdbc_check(spark: SparkSession) -> None:
    codes = [0, 99, -999, 2**31 - 1]
    mysql, jdbc = checked(spark, [event(n, ("varchar", "x", code)) for n, code in enumerate(codes)])
    assert mysql.passed
    assert {r["offset"]: r["jdbc_code"] for r in jdbc.violations} == dict(enumerate(codes))
    assert all(r["expected_codes"] == "12" and "not one of the codes" in r["verdict"] for r in jdbc.violations)


def test_a_column_without_a_code_breaks_the_jdbc_check(spark: SparkSession) -> None:
    _, jdbc = checked(spark, [event(7, ("varchar", "x", None)), event(8, ("int unsigned", "1", None))])
    assert sorted(row["offset"] for row in jdbc.violations) == [7, 8]


def test_the_one_wrong_record_among_many_right_ones_is_shown_with_its_value(spark: SparkSession) -> None:
    same = {"table": "t"}
    right = [event(n, ("int unsigned", str(n), 4), **same) for n in range(20)]
    wrong = event(20, ("int unsigned", "3000000000", 4), **same, partition=2, topic="other")
    mysql, jdbc = checked(spark, [*right, wrong])
    assert mysql.passed
    assert not jdbc.passed
    (row,) = jdbc.violations
    shown = ("topic", "partition", "offset", "column", "mysql_type", "jdbc_code", "sample_value", "events")
    assert tuple(row[name] for name in shown) == ("other", 2, 20, "c", "int unsigned", 4, "3000000000", 1)
    assert row["expected_codes"] == "-5"
    assert "1 of 2 observations" in jdbc.description
    assert "in 1 events" in jdbc.description


def test_an_updates_code_goes_by_the_new_value_and_a_deletes_by_the_old(spark: SparkSession) -> None:
    small, large = json.dumps({"c": "1"}), json.dumps({"c": "3000000000"})
    text = "int unsigned"
    events = [
        event(1, (text, None, -5), op="update", before=small, after=large),
        event(2, (text, None, 4), op="update", before=small, after=large),
        event(3, (text, None, -5), op="delete", before=large, after=None),
        event(4, (text, None, 4), op="delete", before=large, after=None),
    ]
    _, jdbc = checked(spark, events)
    assert sorted(row["offset"] for row in jdbc.violations) == [2, 4]


def test_ddl_and_watermarks_are_not_looked_at(spark: SparkSession) -> None:
    mysql, jdbc = checked(spark, [event(1, ("nonsense", "x", 99), kind="ddl")])
    assert mysql.passed
    assert jdbc.passed


def test_nothing_to_look_at_passes(spark: SparkSession) -> None:
    mysql, jdbc = checked(spark, [])
    assert mysql.passed
    assert jdbc.passed


def test_many_violations_are_counted_whole_and_shown_in_part(spark: SparkSession) -> None:
    _, jdbc = checked(spark, [event(n, ("varchar", "x", 4)) for n in range(60)])
    assert len(jdbc.violations) == 50
    assert jdbc.description.startswith("60 of 60 observations")


@pytest.mark.parametrize("scenario", ["orders", "tz", "nopk", "types", "ddl"])
def test_what_ticdc_really_sends_passes(spark: SparkSession, tmp_path: Path, scenario: str) -> None:
    assert_passes(spark, tmp_path, RECORDED / "ticdc/canal-json_ext" / scenario)


@pytest.mark.parametrize("scenario", ["orders", "nopk", "types", "nokey"])
def test_what_ticdc_really_sends_in_open_protocol_passes(spark: SparkSession, tmp_path: Path, scenario: str) -> None:
    assert_passes(spark, tmp_path, RECORDED / "ticdc/open-protocol" / scenario, protocol="open-protocol")


@pytest.mark.parametrize("scenario", ["types", "ddl"])
def test_what_canal_really_sends_passes(spark: SparkSession, tmp_path: Path, scenario: str) -> None:
    assert_passes(spark, tmp_path, RECORDED / "mysql/canal117-flat" / scenario, tidb_extension=False)


def assert_passes(spark: SparkSession, folder: Path, recording: Path, **settings: Any) -> None:
    made = Chain(spark, folder, **settings)
    made.add(read_lines(recording))
    ingest(made.lake, made.feed)
    decode(made.lake, made.feed)
    found = check_types(made.lake.change_events.read(), made.feed)
    assert found.observations > 0
    for verdict in (found.mysql_types, found.codes):
        assert verdict.passed, verdict.violations


def test_canals_own_codes_count_only_where_canal_may_be_the_sender(tmp_path: Path) -> None:
    assert sources_of(make_feed(tmp_path, tidb_extension=True)) == {"spec"}
    assert sources_of(make_feed(tmp_path, tidb_extension=False)) == {"spec", "canal"}
