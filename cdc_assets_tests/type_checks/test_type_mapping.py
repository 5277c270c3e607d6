"""The JDBC and mysqlType mappings: a departure from the document fails with its record; recorded streams pass."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.assets.checks import types
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.lakehouse.change_events import CHANGE_EVENTS
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.type_observations import Refused, TypesCursor
from cdc_assets.stages import DECODE, INGEST, SCHEMAS, TYPES
from cdc_assets.stages import types as stage_of_types
from cdc_assets.type_checks.rules import NO_SUCH_TYPE, NO_TYPE
from cdc_assets_tests.laws.test_dialects import records_of, settings_of
from cdc_assets_tests.support import RECORDED, Chain, Rows, Stream, ddl, frame_of_rows, make_feed, tso, watermark
from cdc_assets_tests.type_checks.judging import check_types

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
# Values that are no numbers, from the document's examples and FINDINGS-ticdc.md; other types have the value `1`.
VALUES = {
    "date": "2020-02-29",
    "datetime": "2020-02-20 02:20:20",
    "timestamp": "2020-02-20 02:20:20.123456",
    "time": "-838:59:59",
    "year": "2020",
    "json": '{"key1": "value1"}',
}

Case = tuple[str, str | None, int | None]  # type, value, code (None: not in the message)


def event(offset: int, case: Case, **more: Any) -> dict[str, Any]:
    """Return a row event; each case has a table of its own, with the one column `c`."""
    text, value, code = case
    return {
        "topic": "topic",
        "partition": 1,
        "offset": offset,
        "index": 0,
        "batch": 1,
        "commit_ts": tso(offset),
        "kind": "row",
        "op": "insert",
        "database": "db",
        "table": f"t{offset}",
        "after": json.dumps({"c": value}),
        "layout": json.dumps({"key": [], "types": {"c": text}}),
        "jdbc_types": json.dumps({} if code is None else {"c": code}),
    } | more


def checked(spark: SparkSession, events: list[dict[str, Any]], **settings: Any) -> tuple[Verdict, Verdict]:
    """Return the verdicts of the mysqlType check and of the JDBC check."""
    columns = CHANGE_EVENTS.columns
    rows = [tuple(e.get(name) for name in columns.names) for e in events]
    verdicts = check_types(frame_of_rows(spark, rows, columns), make_feed(RECORDED, **settings))
    return verdicts.mysql_types, verdicts.codes


def broken(spark: SparkSession, cases: list[Case], **settings: Any) -> list[tuple[bool, bool]]:
    """Return for each case whether its record breaks the mysqlType check, and whether it breaks the JDBC check."""
    verdicts = checked(spark, [event(n, case) for n, case in enumerate(cases)], **settings)
    # The metadata shows all observations; the violations are cut.
    wrong = [{o["offset"] for o in v.metadata["observations"] if o["verdict"] != "ok"} for v in verdicts]
    return [(n in wrong[0], n in wrong[1]) for n in range(len(cases))]


def test_each_type_passes_with_its_code_and_with_no_other(spark: SparkSession) -> None:
    cases: list[Case] = [(text, VALUES.get(text, "1"), code) for text in BY_TYPE for code in CODES]
    expected = [(False, code != BY_TYPE[text]) for text, _, code in cases]
    # 500 observations are shown, so in two halves.
    half = len(cases) // 2
    assert broken(spark, cases[:half]) + broken(spark, cases[half:]) == expected


def test_an_unsigned_integers_code_depends_on_its_value(spark: SparkSession) -> None:
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


def test_a_type_that_mysql_does_not_have_breaks_both_checks(spark: SparkSession) -> None:
    texts = ["varchr", "int5", "", "decimal(", "varchar(10) unsigned x", "unsigned"]
    right = event(99, ("varchar", "1", 12))
    mysql, jdbc = checked(spark, [right, *(event(n, (text, "1", 12)) for n, text in enumerate(texts))])
    assert not mysql.passed
    shown = [
        (r["topic"], r["partition"], r["offset"], r["database"], r["table"], r["column"]) for r in mysql.violations
    ]
    assert sorted(shown) == [("topic", 1, n, "db", f"t{n}", "c") for n in range(len(texts))]
    assert {r["offset"]: r["mysql_type"] for r in mysql.violations} == dict(enumerate(texts))
    assert {r["offset"]: (r["verdict"], r["expected"]) for r in jdbc.violations} == dict.fromkeys(
        range(len(texts)), (NO_SUCH_TYPE, "no such type")
    )


def test_a_code_that_no_type_has_breaks_the_jdbc_check(spark: SparkSession) -> None:
    codes = [0, 99, -999, 2**31 - 1]
    mysql, jdbc = checked(spark, [event(n, ("varchar", "x", code)) for n, code in enumerate(codes)])
    assert mysql.passed
    shown = ["0 (NULL)", "99", "-999", "2147483647"]
    assert {r["offset"]: r["jdbc_code"] for r in jdbc.violations} == dict(enumerate(shown))
    assert all(r["expected"] == "12 (VARCHAR)" and "not one of the codes" in r["verdict"] for r in jdbc.violations)


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
    assert tuple(row[name] for name in shown) == ("other", 2, 20, "c", "int unsigned", "4 (INTEGER)", "3000000000", 1)
    assert row["expected"] == "-5 (BIGINT) for 2147483648..4294967295, 4 (INTEGER) for 0..2147483647"
    assert "1 of 2 observations" in jdbc.description
    assert "in 1 events" in jdbc.description


# The type, code and value of a column `c` -> what is wrong with it; each rule of values is broken once.
UNTYPED, NOT_OF_ROW = "in the row, and not among the columns that have a type", "not in the row"
VALUE_CASES: list[tuple[Case, str]] = [
    (("tinyint", "300", -6), "outside the range of the type"),
    (("tinyint", "-129", -6), "outside the range of the type"),
    (("smallint", "32768", 5), "outside the range of the type"),
    (("mediumint", "8388608", 4), "outside the range of the type"),
    (("mediumint unsigned", "-1", 4), "outside the range of the type"),
    (("int", "2147483648", 4), "outside the range of the type"),
    (("bigint", "9223372036854775808", -5), "outside the range of the type"),
    (("bigint", " 1", -5), "outside the range of the type"),
    (("decimal(4,2)", "100.00", 3), "outside the range of the type"),
    (("decimal(4,2)", "1.001", 3), "outside the range of the type"),
    (("decimal", "1e3", 3), "no value of the type"),
    (("decimal", "9" * 39, 3), "outside the range of the type"),
    (("decimal unsigned", "-1.5", 3), "outside the range of the type"),
    (("float", "1e39", 7), "outside the range of the type"),
    (("double unsigned", "-0.5", 8), "outside the range of the type"),
    (("double", "NaN", 8), "no value of the type"),
    (("char(2)", "abc", 1), "too long for the type"),
    (("tinytext", "x" * 256, 2005), "too long for the type"),
    (("varbinary(2)", "abc", 2004), "too long for the type"),
    (("blob", "\u0100", 2004), "no value of the type"),
    (("date", "2020-13-01", 91), "no value of the type"),
    (("datetime", "2020-01-01 25:00:00", 93), "no value of the type"),
    (("timestamp", "2039-01-01 00:00:00", 93), "outside the range of the type"),
    (("time", "839:00:00", 92), "no value of the type"),
    (("year", "1900", 12), "outside the range of the type"),
    (("enum('a','b')", "3", 4), "outside the range of the type"),
    (("set('a','b')", "4", -7), "outside the range of the type"),
    (("bit(3)", "8", -7), "outside the range of the type"),
    (("json", "{}", 4), "not a code of this type"),
    (("varchar", "x", None), "no jdbc_code"),
]
FINE_CASES: list[Case] = [
    ("decimal(4,2)", "-0099.9900", 3),
    ("decimal", "-" + "9" * 38, 3),
    ("float", "3.4028234663852886e38", 7),
    ("double", "4.9e-324", 8),
    ("char(2)", "é😀", 1),
    ("varbinary(2)", "\u00ff\u0000", 2004),
    ("date", "0000-00-00", 91),
    ("date", "2023-02-31", 91),  # with ALLOW_INVALID_DATES: the history quarantines it as a zero date
    ("timestamp", "0000-00-00 00:00:00.000", 93),
    ("year", "0", 12),
    ("enum('a','b')", "0", 4),
    ("enum('a','b')", "b", 4),
    ("bit(64)", "18446744073709551615", -7),
    ("tinyint", None, -6),
]


def test_each_rule_of_values_is_broken_by_something(spark: SparkSession) -> None:
    cases = [*(case for case, _ in VALUE_CASES), *FINE_CASES]
    _, jdbc = checked(spark, [event(n, case) for n, case in enumerate(cases)])
    verdicts = {o["offset"]: o["verdict"] for o in jdbc.violations}
    assert verdicts == {n: verdict for n, (_, verdict) in enumerate(VALUE_CASES)}
    samples = {o["offset"]: o["sample_value"] for o in jdbc.violations}
    assert samples == {n: case[1] and case[1][:200] for n, (case, _) in enumerate(VALUE_CASES)} | {
        n: None for n, (_, verdict) in enumerate(VALUE_CASES) if verdict in {"not a code of this type", "no jdbc_code"}
    }


def test_columns_of_types_codes_and_values_are_the_same(spark: SparkSession) -> None:
    case = ("int", "1", 4)
    events = [
        event(1, case, after=json.dumps({"c": "1", "d": "2"})),
        event(2, case, after=json.dumps({"d": "2"})),
        event(3, case, jdbc_types=json.dumps({"c": 4, "d": 4})),
        event(4, case, layout=json.dumps({"key": [], "types": {"c": "int", "d": "int"}})),
    ]
    events.append(event(5, case, after=json.dumps({"c": "1", "d": "2"}), jdbc_types=json.dumps({"c": 4, "d": 4})))
    mysql, jdbc = checked(spark, events)
    assert {(v["offset"], v["column"]): v["verdict"] for v in mysql.violations} == {
        (1, "d"): UNTYPED,
        (2, "d"): UNTYPED,
        (3, "d"): NO_TYPE,
        (5, "d"): NO_TYPE,
    }
    assert {(v["offset"], v["column"]): v["verdict"] for v in jdbc.violations} == {
        (1, "d"): f"{NO_SUCH_TYPE}; no jdbc_code",
        (2, "d"): f"{NO_SUCH_TYPE}; no jdbc_code",
        (2, "c"): NOT_OF_ROW,
        (3, "d"): f"{NO_SUCH_TYPE}; {NOT_OF_ROW}",
        (4, "d"): f"{NOT_OF_ROW}; no jdbc_code",
        (5, "d"): NO_SUCH_TYPE,
    }


def test_a_column_without_a_type_blocks_its_table_until_the_feeds_file_gives_one(chain: Callable[..., Chain]) -> None:
    """`data` and `sqlType` have the column, `mysqlType` does not; with `columns:` the history has it."""
    made, sent = chain(partitions=1), Stream(1)
    row = Rows().insert(tso(5), 1, "x") | RIGHT_CODES | {"mysqlType": {"id": "bigint"}}
    made.add([sent.send(row), sent.send(watermark(tso(9)))])
    (refused,) = made.run().types.refused
    assert (refused.table, refused.first["column"]) == ("orders", "v")
    assert refused.first["problem"] == f"{NO_TYPE}; {NO_SUCH_TYPE}"
    made.feed = make_feed(made.snapshots, partitions=1, columns={"shop.orders.v": "varchar(9)"})
    assert made.run().types.refused == []
    assert [(r["id"], r["v"]) for r in made.history()] == [(1, "x")]


def test_null_where_a_statement_says_not_null(chain: Callable[..., Chain]) -> None:
    made, sent = chain(partitions=2), Stream(2)
    types_of = {"id": "bigint", "v": "varchar"}
    row = Rows(types=types_of).insert(tso(5), 1, None) | RIGHT_CODES
    made.add([sent.send(row, 1)])
    assert not made.run().types.refused
    create = "CREATE TABLE `shop`.`orders` (`id` BIGINT, `v` VARCHAR(9) NOT NULL)"
    made.add([sent.send(ddl(create, tso(1))), sent.send(Rows(types=types_of).insert(tso(6), 2, None) | RIGHT_CODES, 1)])
    (refused,) = made.run().types.refused
    assert (refused.commit_ts, refused.first["problem"]) == (tso(6), "NULL in a NOT NULL column")
    # A late statement, by which the column may have been NULL before, ends the hold.
    made.add([sent.send(ddl("ALTER TABLE `shop`.`orders` MODIFY `v` VARCHAR(9) NULL", tso(2), ddl_type="ALTER"))])
    assert made.run().types.refused == []


def test_a_type_that_the_feeds_file_gives_has_to_hold_the_value(spark: SparkSession) -> None:
    given = {"db.t1.c": "smallint", "db.t2.c": "tinyint", "db.t3.c": "int"}
    events = [event(1, ("tinyint", "300", -6)), event(2, ("tinyint", "300", -6)), event(3, ("intt", "7", 99))]
    mysql, jdbc = checked(spark, events, columns=given)
    assert [(v["offset"], v["verdict"]) for v in jdbc.violations] == [(2, "outside the range of the type")]
    assert mysql.passed


def test_an_updates_code_depends_on_the_new_value_and_a_deletes_on_the_old(spark: SparkSession) -> None:
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


def test_ddl_and_watermarks_are_not_checked(spark: SparkSession) -> None:
    mysql, jdbc = checked(spark, [event(1, ("nonsense", "x", 99), kind="ddl")])
    assert mysql.passed
    assert jdbc.passed


def test_a_run_without_row_events_passes(spark: SparkSession) -> None:
    mysql, jdbc = checked(spark, [])
    assert mysql.passed
    assert jdbc.passed


def test_all_violations_are_counted_and_some_are_shown(spark: SparkSession) -> None:
    _, jdbc = checked(spark, [event(n, ("varchar", "x", 4)) for n in range(60)])
    assert len(jdbc.violations) == 50
    assert jdbc.description.startswith("60 of 60 observations")


# Recorded streams that no test of the laws runs, one feed for each list; in the laws a broken mapping blocks the table.
REAL = {
    "ticdc": [
        ["canal-json_ext/ddl", "canal-json_ext_content-compatible/ddl", "canal-json_ext_delete-handle-only/ddl"],
        ["canal-json/nokey"],
        ["open-protocol/tz", "open-protocol_only-updated/tz", "open-protocol/ddl", "open-protocol_batch1/ddl",
         "open-protocol_delete-handle-only/ddl", "open-protocol_only-updated/ddl"],
        ["simple-json/ddl"],
        ["simple-avro/ddl", "simple-avro_handle-key-only/large"],
        ["debezium_ext_noschema/ddl"],
    ],
    "mysql": [
        ["canal117-flat-gtid/ddl", "canal117-flat-dyn3-shanghai/ddl"],
        ["dbz195-noschemas-tx/ddl"],
        ["dbz195-string-hex/ddl"],
        ["dbz350m-noschemas-tx/ddl", "dbz350m-string-hex/ddl"],
    ],
}  # fmt: skip


@pytest.mark.parametrize(("family", "streams"), [(f, s) for f, sets in REAL.items() for s in sets], ids=str)
def test_recorded_streams_pass(chain: Callable[..., Chain], family: str, streams: list[str]) -> None:
    paths = [RECORDED / family / stream for stream in streams]
    made = chain(**settings_of(paths[0]))
    for path in paths:
        made.add(records_of(path))
    for stage in (INGEST, DECODE, SCHEMAS):
        stage.run(made.lake, made.feed)
    report = TYPES.run(made.lake, made.feed)
    assert report.observations
    for verdict in (types.mysql_type_mapping(report), types.jdbc_type_mapping(report)):
        assert verdict.passed, verdict.violations


WRONG_CODES = {"sqlType": {"id": -5, "v": 4}}  # v is a varchar
RIGHT_CODES = {"sqlType": {"id": -5, "v": 12}}


def test_canals_own_codes_count_only_where_canal_may_be_the_sender(chain: Callable[..., Chain]) -> None:
    """JSON of a MariaDB server has 2004 in Canal's messages, which the document does not have."""
    for extended in (True, False):
        made, sent = chain(tidb_extension=extended), Stream()
        message = Rows(types={"id": "bigint", "v": "json"}).insert(tso(1), 1, "{}")
        sent.send(message | {"sqlType": {"id": -5, "v": 2004}})
        made.add(sent.records)
        assert bool(made.run().types.refused) is extended


def test_a_refused_table_stays_refused_until_the_settings_change(chain: Callable[..., Chain]) -> None:
    made, sent = chain(), Stream()
    made.add([sent.send(Rows().insert(tso(1), 1, "a") | RIGHT_CODES)])
    assert not made.run().types.refused
    made.add([sent.send(Rows().insert(tso(2), 2, "b") | WRONG_CODES)])
    first = made.run().types
    assert [(o["column"], o["first"]["offset"]) for o in first.wrong] == [("v", 1)]
    place = {"topic": "shop_changes", "partition": 0, "offset": 1, "record_ms": 1_700_000_000_001}
    reason = {"column": "v", "problem": "not a code of this type"}
    (refused,) = first.refused
    assert refused == Refused("shop", "orders", tso(2), 2, place | reason)
    # Neither a run without events nor a run with right events changes that.
    assert not TYPES.due(made.lake, made.feed)
    assert TYPES.run(made.lake, made.feed).refused == [refused]
    made.add([sent.send(Rows().insert(tso(3), 3, "c") | RIGHT_CODES)])
    again = made.run().types
    assert (again.refused, [(o["column"], o["first"]["offset"]) for o in again.wrong]) == ([refused], [("v", 1)])
    cursor = made.lake.type_observations.cursor()
    assert cursor is not None
    assert cursor.refused == [refused]


def test_a_table_is_refused_from_the_lowest_commit_ts_and_batch_on(chain: Callable[..., Chain]) -> None:
    """The lowest position counts, in whatever order the events come; other tables are not refused."""
    made, sent = chain(partitions=2), Stream(2)
    made.add([sent.send(Rows().insert(tso(9), 1, "a") | WRONG_CODES)])
    made.run()
    made.add(
        [
            sent.send(Rows().insert(tso(2), 2, "b") | WRONG_CODES, 1),
            sent.send(Rows(table="items").insert(tso(3), 1, "a")),
        ]
    )
    (refused,) = made.run().types.refused
    first = (refused.table, refused.commit_ts, refused.batch, refused.first["partition"], refused.first["offset"])
    assert first == ("orders", tso(2), 1, 1, 0)


@pytest.mark.parametrize("settings", [{"type_mapping": "warn"}, {"columns": {"shop.orders.v": "varchar(20)"}}])
def test_other_settings_end_the_refusal(chain: Callable[..., Chain], settings: dict[str, Any]) -> None:
    made, sent = chain(), Stream()
    made.add([sent.send(Rows().insert(tso(1), 1, "a") | WRONG_CODES)])
    assert made.run().types.refused
    changed = make_feed(made.snapshots, **settings)
    assert TYPES.due(made.lake, changed)
    made.add([sent.send(Rows(table="items").insert(tso(2), 1, "a") | RIGHT_CODES)])
    INGEST.run(made.lake, made.feed)
    DECODE.run(made.lake, made.feed)
    report = TYPES.run(made.lake, changed)
    assert not report.refused
    assert types.jdbc_type_mapping(report).passed is ("columns" in settings), "with `warn` the check still fails"
    counts = [(o["table"], o["events"]) for o in report.observations if o["column"] == "v"]
    assert sorted(counts) == [("items", 1), ("orders", 1)], "judged again, not counted twice"
    assert not TYPES.due(made.lake, changed)


def test_excluded_tables_are_not_checked(chain: Callable[..., Chain]) -> None:
    made, sent = chain(tables={"exclude": ["shop.orders"]}), Stream()
    made.add([sent.send(Rows().insert(tso(1), 1, "a") | WRONG_CODES)])
    assert made.run().types.observations == []


def test_the_report_covers_every_run(chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_of_types, "_COMPACTION_FILES", 3)
    made, sent = chain(), Stream()
    for n in range(6):  # more files than the table keeps
        made.add([sent.send(Rows().insert(tso(n), n, "a") | RIGHT_CODES)])
        for stage in (INGEST, DECODE, TYPES):
            report = stage.run(made.lake, made.feed)
        assert len(report.new) == (2 if n == 0 else 0)
        assert list(report.events_by_identity.values()) == [1, 1]
        assert report.distinct == 2
    report = TYPES.run(made.lake, made.feed)  # without new events
    assert (report.new, report.events_by_identity) == ([], {})
    seen = {o["column"]: (o["events"], o["first"]["offset"], o["last"]["commit_ts"]) for o in report.observations}
    assert seen == {"id": (6, 0, tso(5)), "v": (6, 0, tso(5))}
    assert len(made.lake.type_observations.files()) <= 3


def test_the_report_shows_a_limited_number_of_observations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts all observations and shows violations first; each observation has the events of all runs."""
    monkeypatch.setattr(stage_of_types, "SHOWN", 3)
    (tmp_path / "snapshots").mkdir()
    lake = Lakehouse(lambda: pytest.fail("no Spark is needed"), str(tmp_path / "lake"), "f")
    feed = make_feed(tmp_path / "snapshots")

    def row(batch: int, table: str, verdict: str = "ok") -> dict[str, Any]:
        place = {"commit_ts": tso(batch), "topic": "t", "partition": 0, "offset": batch}
        what = {
            "database": "shop",
            "table": table,
            "column": "v",
            "mysql_type": "varchar",
            "stated": "{}",
            "expected": "",
        }
        seen = {"events": 2, "first_batch": batch, "batch": batch, "first": place, "last": place, "sample_value": None}
        return what | seen | {"mysql_type_verdict": "ok", "code_verdict": verdict}

    tables = ("a", "b", "c", "d", "wrong")
    for batch in (1, 2):
        rows = [row(batch, table, "not a code of this type" if table == "wrong" else "ok") for table in tables]
        cursor = TypesCursor(sequence=batch, batch=batch, distinct=len(tables))
        lake.type_observations.commit(lake.type_observations.stage_rows(rows), cursor)
    report = TYPES.run(lake, feed)
    assert report.distinct == 5
    shown = [(o["table"], o["events"], o["first"]["offset"], o["last"]["offset"]) for o in report.observations]
    assert shown == [("wrong", 4, 1, 2), ("a", 4, 1, 2), ("b", 4, 1, 2)]
    assert [(o["table"], o["events"]) for o in report.wrong] == [("wrong", 2)], "of the newest run"


def test_the_report_is_the_same_after_a_run_without_events(chain: Callable[..., Chain]) -> None:
    """It shows violations first, then new observations, then all, and their numbers."""
    made, sent = chain(), Stream()
    made.add([sent.send(Rows().insert(tso(1), 1, "a") | RIGHT_CODES)])
    made.run()
    made.add([sent.send(Rows().insert(tso(2), 2, "b") | WRONG_CODES)])
    first, idle = types.jdbc_type_mapping(made.run().types), types.jdbc_type_mapping(TYPES.run(made.lake, made.feed))
    for verdict, new in ((first, ["v"]), (idle, [])):
        assert not verdict.passed
        assert [o["column"] for o in verdict.metadata["new"]] == new
        (row,) = verdict.violations
        shown = ("column", "jdbc_code", "expected", "verdict", "offset", "commit_ts", "events", "events_in_this_run")
        wrong = ("v", "4 (INTEGER)", "12 (VARCHAR)", "not a code of this type", 1, tso(2), 1, len(new))
        assert tuple(row[name] for name in shown) == wrong
        # Violations come first.
        assert [o["verdict"] == "ok" for o in verdict.metadata["observations"]] == [False, True, True]
        numbers = ("violations_in_all", "events_with_violations", "refused_tables", "observations_in_all")
        assert tuple(verdict.metadata[name] for name in numbers) == (1, 1, 1, 3)
        (waits,) = verdict.metadata["refused"]
        assert (waits["table"], waits["commit_ts"], waits["batch"]) == ("orders", tso(2), 2)
    assert idle.description == first.description
