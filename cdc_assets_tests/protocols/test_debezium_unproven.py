"""Check values whose form no message states: what they prove of the connector's settings, and which may be wrong."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.assets.checks.types import connector_settings, jdbc_type_mapping
from cdc_assets.lakehouse.raw_records import RAW_RECORDS
from cdc_assets.protocols import protocol_of
from cdc_assets.stages import TYPES
from cdc_assets.stages.type_verdicts import breaks_any_mapping, check_event_types
from cdc_assets.type_checks.row_images import Observation
from cdc_assets_tests.protocols.debezium_encoder import text
from cdc_assets_tests.protocols.test_debezium_settings import (
    SOME_TIME,
    field,
    row,
    schema_change,
    without_schema,
)
from cdc_assets_tests.support import Chain, frame_of_rows, make_feed

TIME_MODE, DECIMAL_MODE, BINARY_MODE = "time.precision.mode", "decimal.handling.mode", "binary.handling.mode"
AS_HEX, AS_BASE64 = "VARBINARY(9), schema", "VARBINARY(9)"  # without a schema base64 is assumed
# The column's type, its values -> the values that may be wrong, as they were read, and as they would be read otherwise.
Doubt = tuple[str, str, str]
CASES: dict[str, tuple[list[tuple[str, list[Any]]], Doubt | None]] = {
    # 45 minutes in microseconds are 750 hours in milliseconds.
    "a short time": ([("TIME", [2_700_000_000])], ("2700000000", "00:45:00 in microseconds", "750:00:00 in milliseconds")),
    "a longer time": ([("TIME", [3_021_000_000])], None),
    "a longer time beside it": ([("TIME", [2_700_000_000, 3_021_000_000])], None),
    "a longer time in another table": ([("TIME", [2_700_000_000]), ("TIME(3)", [64264777000])], None),
    "zero and NULL show nothing": (
        [("TIME", [0, None, 2_700_000_000])],
        ("2700000000", "00:45:00 in microseconds", "750:00:00 in milliseconds"),
    ),
    "zero and NULL are right in any unit": ([("TIME", [0, None]), ("DATETIME(6)", [0, None])], None),
    # A TIME without digits after the point has no milliseconds, so 36001000 cannot be microseconds.
    "connect": ([("TIME", [36_001_000])], ("36001000", "00:00:36.001000 in microseconds", "10:00:01 in milliseconds")),
    "connect, a DATETIME(6)": (
        [("DATETIME(6)", [1529476623001])],
        ("1529476623001", "1970-01-18 16:51:16.623001 in microseconds", "2018-06-20 06:37:03.001000 in milliseconds"),
    ),
    "a DATETIME(6) in microseconds": ([("DATETIME(6)", [1529476623000001])], None),
    "a DATETIME in milliseconds": ([("DATETIME", [1529476623000])], None),
    "microseconds near the epoch": (
        [("DATETIME", [120_000_000]), ("DATETIME(6)", [1529476623000001])],
        ("120000000", "1970-01-02 09:20:00 in milliseconds", "1970-01-01 00:02:00 in microseconds"),
    ),
    "digits that are also base64": ([("DECIMAL(10,0)", ["1234"])], ("1234", "1234 in digits", "-2658824 in base64")),
    "digits that are no base64": ([("DECIMAL(10,0)", ["1234", "12345"])], None),
    "a minus sign": ([("DECIMAL(10,0)", ["1234", "-123"])], None),
    "base64 beside digits": ([("DECIMAL(10,0)", ["1234", "BNI="])], ("1234", "1234 in digits", "-2658824 in base64")),
    "base64 alone": ([("DECIMAL(10,0)", ["BNI=", None])], None),
    "numbers": ([("DECIMAL(10,0)", ["@1234@"])], None),
    "hex or base64": (
        [(AS_HEX, ["abcd"])], ("abcd", "the bytes ABCD in hex", "the bytes 69B71D in base64"),
    ),
    "hex": ([(AS_HEX, ["abcd", "abcdef", "", None])], None),
    "hex by the length of a BINARY(n)": ([(AS_HEX, ["abcd"]), ("BINARY(3), schema", ["abcdef"])], None),
    "base64 that looks like hex": (
        [(AS_HEX, ["abcd", "//4="])], ("abcd", "the bytes ABCD in hex", "the bytes 69B71D in base64"),
    ),
    "without a schema: hex or base64": (
        [(AS_BASE64, ["abcd"])], ("abcd", "the bytes 69B71D in base64", "the bytes ABCD in hex"),
    ),
    "without a schema: base64": ([(AS_BASE64, ["abcd", "//4="])], None),
    "without a schema: hex": (
        [(AS_BASE64, ["abcd", "abcdef"])], ("abcd", "the bytes 69B71D in base64", "the bytes ABCD in hex"),
    ),
}  # fmt: skip
# A declared type, a value -> whether it breaks the mapping, under the settings of the feeds file.
FITS: list[tuple[str, Any, dict[str, str], bool]] = [
    ("TIME", 3_020_399_000_001, {}, False),
    ("TIME", "10:00:00Z", {}, False),
    ("TIME", "10:00:00Z", {TIME_MODE: "isostring"}, True),
    ("TIME", 36_000_000_000, {TIME_MODE: "connect"}, False),
    ("DATETIME", 1529476623000000, {}, False),
    ("DATETIME", 1529476623000000, {TIME_MODE: "microseconds"}, True),
    ("DATETIME", 1529476623000000, {TIME_MODE: "isostring"}, False),
    ("DATE", 17702, {}, True),
    ("DATE", 17702, {TIME_MODE: "isostring"}, False),
    ("DATE", "2018-06-20Z", {}, False),
    ("TIMESTAMP", "2018-06-20T06:37:03Z", {}, True),
    ("TIMESTAMP", 1529476623000, {}, False),
    ("DECIMAL(10,2)", "3.14", {DECIMAL_MODE: "string"}, True),
    ("DECIMAL(10,0)", "BNI=", {DECIMAL_MODE: "string"}, False),
    ("DECIMAL(10,0)", "12345", {DECIMAL_MODE: "precise"}, False),
    ("DECIMAL(10,2)", "BNI=", {DECIMAL_MODE: "double"}, False),
    ("VARBINARY(9)", "//4=", {BINARY_MODE: "hex"}, False),
    ("VARBINARY(9)", "abcdef", {BINARY_MODE: "base64"}, True),
    ("VARBINARY(9)", "abcde", {}, False),
]


def observed(
    spark: SparkSession, folder: Path, tables: Mapping[str, tuple[str, list[Any]]], **settings: Any
) -> list[Observation]:
    """Return the observations of tables: name -> type, of messages with a schema if it says so, and values."""
    records: list[tuple[bytes | None, bytes]] = []
    for table, (declared, values) in tables.items():
        kind, _, has_schema = declared.partition(", ")
        records.append((None, schema_change(table, kind)))
        schema = field("string", None, kind) if has_schema else None
        records += [(text({"id": n}), row(table, value, schema, key=n)) for n, value in enumerate(values, 1)]
    feed = make_feed(folder, protocol="debezium", **settings)
    rows: list[tuple[Any, ...]] = [("t", 0, n, None, 1, key, value, [], None) for n, (key, value) in enumerate(records)]
    events = protocol_of(feed).decode(frame_of_rows(spark, rows, RAW_RECORDS.columns), feed).localCheckpoint()
    columns = {
        table: [{"name": "id", "type": "int"}, {"name": "v", "type": declared.partition(", ")[0].lower()}]
        for table, (declared, _) in tables.items()
    }
    schemas = [
        {"database": "inventory", "table": table, "commit_ts": 1, "columns": of_table, "key_columns": ["id"]}
        | {"schema_version": None, "source": None, "sequence": 1, "topic": "s", "partition": 0, "offset": 0}
        for table, of_table in columns.items()
    ]
    return check_event_types(events, schemas, feed)


@pytest.fixture(scope="module")
def observations(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Observation]:
    """The observations of all cases."""
    tables = {f"t{n}_{m}": t for n, (of_case, _) in enumerate(CASES.values()) for m, t in enumerate(of_case)}
    return observed(spark, tmp_path_factory.mktemp("unproven"), tables)


@pytest.mark.parametrize(("n", "case"), list(enumerate(CASES)))
def test_unproven_values_are_reported(n: int, case: str, observations: list[Observation], tmp_path: Path) -> None:
    protocol = protocol_of(make_feed(tmp_path, protocol="debezium"))
    of_case = [o for o in observations if o["table"].startswith(f"t{n}_")]
    unproven = [
        (u.observation["sample_value"], u.as_read, u.otherwise) for u in protocol.find_unproven_settings(of_case)
    ]
    assert unproven == ([CASES[case][1]] if CASES[case][1] else [])
    assert not any(breaks_any_mapping(o) for o in of_case)


def test_values_that_the_setting_cannot_have_written_break_the_mapping(spark: SparkSession, tmp_path: Path) -> None:
    by_settings: dict[str, tuple[dict[str, str], dict[str, tuple[str, list[Any]]]]] = {}
    for n, (declared, value, settings, _) in enumerate(FITS):
        by_settings.setdefault(str(settings), (settings, {}))[1][f"t{n}"] = (declared, [value])
    broken = set()
    for settings, tables in by_settings.values():
        observations = observed(spark, tmp_path, tables, connector_settings=settings)
        broken |= {o["table"] for o in observations if breaks_any_mapping(o)}
    assert broken == {f"t{n}" for n, (*_, fits) in enumerate(FITS) if not fits}


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Chain:
    """A feed without a setting, with a value that proves nothing and one that the default cannot have written."""
    chain = Chain(spark, tmp_path, protocol="debezium")
    chain.add(without_schema([("short", "TIME", [2_700_000_000]), ("day", "DATETIME", [1529476623000000])]))
    return chain


def test_the_check_says_what_to_state_and_passes_when_it_is_stated(feed: Chain) -> None:
    report = feed.run().types
    verdict = connector_settings(report)
    assert not verdict.passed
    assert verdict.description == (
        "Messages do not state time.precision.mode. Column inventory.short.v (time) of topic s, partition 0, offset 1 has "
        "2700000000. It was read as 00:45:00 in microseconds; it may be 750:00:00 in milliseconds; no other record shows "
        "which of the two is right. State time.precision.mode under connector_settings: of the feed. If it is not "
        "adaptive_time_microseconds or microseconds, then run the job rebuild."
    )
    (blocked,) = report.refused
    assert (blocked.table, blocked.first["problem"]) == ("day", "outside the range of the type")
    assert "time.precision.mode under connector_settings: of the feed" in jdbc_type_mapping(report).description

    stated = feed.copy(feed.folder.parent / "stated")
    stated.settings |= {"connector_settings": {TIME_MODE: "microseconds"}}
    stated.feed = make_feed(stated.snapshots, **stated.settings)
    report = stated.run().types
    assert connector_settings(report).passed
    assert report.refused == []
    assert [v["v"] for v in stated.history("day", "inventory")] == [SOME_TIME]


def test_a_later_value_proves_what_earlier_runs_read(feed: Chain) -> None:
    assert not connector_settings(feed.run().types).passed
    records = without_schema([("long", "TIME", [64_264_000_000])])
    feed.add([r | {"offset": 10 + n} for n, r in enumerate(records)])
    assert connector_settings(feed.run().types).passed


def test_a_later_value_proves_that_earlier_runs_read_wrongly(feed: Chain) -> None:
    feed.run()
    records = without_schema([("other", "TIME", [36_001_000])])
    feed.add([r | {"offset": 10 + n} for n, r in enumerate(records)])
    verdict = connector_settings(feed.run().types)
    assert "other records show that time.precision.mode is adaptive or connect" in verdict.description


def test_a_setting_that_is_stated_without_new_records_passes_at_once(spark: SparkSession, tmp_path: Path) -> None:
    feed = Chain(spark, tmp_path, protocol="debezium")
    feed.add(without_schema([("short", "TIME", [2_700_000_000])]))
    feed.run()
    assert not TYPES.due(feed.lake, feed.feed)
    feed.feed = make_feed(feed.snapshots, protocol="debezium", connector_settings={TIME_MODE: "microseconds"})
    assert TYPES.due(feed.lake, feed.feed)
    assert connector_settings(TYPES.run(feed.lake, feed.feed)).passed
    assert not TYPES.due(feed.lake, feed.feed)
