"""The type check of Open Protocol feeds: each rule has something that breaks it."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.lakehouse.raw_records import RAW_RECORDS
from cdc_assets.protocols import protocol_of
from cdc_assets_tests.protocols.open_encoder import (
    BINARY,
    HANDLE_KEY,
    NULLABLE,
    PRIMARY_KEY,
    UNSIGNED,
    column,
    key_column,
    message,
    row_key,
)
from cdc_assets_tests.support import frame_of_rows, make_feed
from cdc_assets_tests.type_checks.judging import check_types


def checked(spark: SparkSession, folder: Path, *columns: dict[str, Any]) -> tuple[Verdict, Verdict]:
    """Return the verdicts over one insert for each of these columns, called c0, c1, ..., with a right one before each.

    All inserts have one commit_ts, so no row lacks a column of an earlier row.
    """
    events = [(row_key(1), {"u": {"id": key_column(1), f"c{n}": c}}) for n, c in enumerate(columns)]
    rows: list[tuple[Any, ...]] = [("t", 0, n, None, 1, *message(event), []) for n, event in enumerate(events)]
    feed = make_feed(folder, protocol="open-protocol")
    raw = frame_of_rows(spark, [(*row, None) for row in rows], RAW_RECORDS.columns)
    report = check_types(protocol_of(feed).decode(raw, feed), feed)
    return report.mysql_types, report.codes


BROKEN = [
    (column(200, 1), "not one of the codes"),
    (column(300, 1), "not one of the codes"),
    (column(3, 1, 256), "flags that the type cannot have"),
    (column(15, "x", UNSIGNED), "flags that the type cannot have"),
    (column(12, "2026-01-01 00:00:00", UNSIGNED), "flags that the type cannot have"),
    (column(3, 1, NULLABLE | PRIMARY_KEY), "flags that the type cannot have"),
    (column(3, 1, NULLABLE | HANDLE_KEY), "flags that the type cannot have"),
    (column(3, "1"), "not the JSON type that the code prescribes"),
    (column(15, 1), "not the JSON type that the code prescribes"),
    (column(246, 1.5), "not the JSON type that the code prescribes"),
    (column(13, "1970"), "not the JSON type that the code prescribes"),
    (column(6, 1), "not the JSON type that the code prescribes"),
    (column(3, True), "not the JSON type that the code prescribes"),
    (column(15, {"a": 1}), "not the JSON type that the code prescribes"),
    (column(15, [1]), "not the JSON type that the code prescribes"),
    (column(1, 128), "outside the range of the type"),
    (column(1, -129), "outside the range of the type"),
    (column(1, 256, UNSIGNED), "outside the range of the type"),
    (column(1, -1, UNSIGNED), "outside the range of the type"),
    (column(2, 32768), "outside the range of the type"),
    (column(2, 65536, UNSIGNED), "outside the range of the type"),
    (column(9, 2**23), "outside the range of the type"),
    (column(9, 2**24, UNSIGNED), "outside the range of the type"),
    (column(3, 2**31), "outside the range of the type"),
    (column(3, 2**32, UNSIGNED), "outside the range of the type"),
    (column(8, 2**63), "outside the range of the type"),
    (column(8, 2**64, UNSIGNED), "outside the range of the type"),
    (column(3, 1.5), "outside the range of the type"),
]


def test_each_rule_is_broken_by_something(spark: SparkSession, tmp_path: Path) -> None:
    _, verdict = checked(spark, tmp_path, *[c for c, _ in BROKEN])
    assert not verdict.passed
    shown = {v["column"]: v for v in verdict.violations}
    assert shown.keys() == {f"c{n}" for n in range(len(BROKEN))}
    for n, (broken, rule) in enumerate(BROKEN):
        assert rule in shown[f"c{n}"]["verdict"], (broken, shown[f"c{n}"])
        assert shown[f"c{n}"]["offset"] == n


def test_a_violation_is_shown_with_what_was_expected_and_where(spark: SparkSession, tmp_path: Path) -> None:
    _, verdict = checked(spark, tmp_path, column(1, 255, UNSIGNED), column(1, 300, UNSIGNED))
    (shown,) = verdict.violations
    assert shown == {
        "database": "test", "table": "t1", "column": "c1", "mysql_type": "tinyint unsigned", "type_code": 1, "flags": 128,
        "wire_type": "number", "value_class": "outside the range of the type", "expected": "JSON number, 0..255",
        "verdict": "outside the range of the type", "events": 1, "events_in_this_run": 0,
        "topic": "t", "partition": 0, "offset": 1, "commit_ts": 1, "sample_value": "300",
        "last_topic": "t", "last_partition": 0, "last_offset": 1, "last_commit_ts": 1,
    }  # fmt: skip


def test_a_code_that_stands_for_no_type_breaks_both_checks(spark: SparkSession, tmp_path: Path) -> None:
    types, codes = checked(spark, tmp_path, column(200, None))
    assert [v["mysql_type"] for v in types.violations] == ["code 200"]
    assert [v["type_code"] for v in codes.violations] == [200]


INTEGERS = [(1, 8), (2, 16), (9, 24), (3, 32), (8, 64)]  # code, bits


def test_ends_of_the_ranges_null_and_meaningless_flags_pass(spark: SparkSession, tmp_path: Path) -> None:
    fine = [
        *[column(code, value) for code, bits in INTEGERS for value in (-(1 << bits - 1), (1 << bits - 1) - 1)],
        *[column(code, value, UNSIGNED) for code, bits in INTEGERS for value in (0, (1 << bits) - 1)],
        *[column(code, None, BINARY | NULLABLE) for code in (1, 3, 5, 7, 10, 15, 245, 246, 252, 254)],
        column(6, None),
        column(13, 1970, BINARY | NULLABLE | UNSIGNED),
        column(16, 2**64 - 1, BINARY | UNSIGNED),
        column(248, 2**64 - 1),
        column(4, 1e-45),
        column(5, -1.7976931348623157e308),
        {"t": 3, "v": 1},
    ]  # fmt: skip
    for verdict in checked(spark, tmp_path, *fine):
        assert verdict.passed, verdict.violations
