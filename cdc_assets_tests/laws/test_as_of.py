"""Check the as-of law: the histories of recorded streams equal the recorded truth, interval for interval.

Two sets of versions with the same rows in the same intervals give the same answer at every commit_ts. The tests turn
the truth's text into the expected value by their own rules, not by the pipeline's casting.
"""

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cdc_assets_tests.laws.test_dialects import with_defaults
from cdc_assets_tests.support import RECORDED, Chain, bytes_of, read_lines, rows_in

SCENARIOS = ["orders", "tz", "nopk"]
ZONES = {"tz": "Asia/Tokyo"}

# By the design's table of types.
SPARK_TYPES = {
    ("orders", "orders"): {
        "region": "string",
        "order_id": "bigint",
        "customer": "string",
        "qty": "bigint",
        "amount": "decimal(12,2)",
        "status": "string",
        "note": "string",
        "updated_at": "timestamp_ntz",
    },
    ("tz", "tz_c_t"): {
        "id": "int",
        "ts0": "timestamp",
        "ts6": "timestamp",
        "dt3": "timestamp_ntz",
        "d": "date",
        "ti": "string",
        "added": "timestamp",
    },
    ("nopk", "uk_only_public"): {"region": "int", "v": "string", "code": "string", "n": "decimal(20,0)"},
    ("nopk", "pk_and_uk"): {"id": "int", "email": "string", "nick": "string", "v": "int", "g_stored": "bigint"},
}

Version = dict[str, Any]


def truth(scenario: str, what: str) -> list[dict[str, Any]]:
    return read_lines(RECORDED / "ticdc/truth" / f"{scenario}.{what}")


def column_types(scenario: str) -> dict[str, dict[str, str]]:
    """Table -> column -> MySQL type, over all shapes that the table had."""
    types: dict[str, dict[str, str]] = defaultdict(dict)
    for shape in truth(scenario, "tables"):
        types[shape["table"]] |= {c["name"]: c["type"] for c in shape["columns"] if not c["virtual_generated"]}
    return types


def expected_value(text: str | None, mysql_type: str, zone: str) -> Any:
    """Return the value that the history must hold for MySQL's text; instants are UTC text."""
    base = mysql_type.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    if text is None or base in {"varchar", "text", "enum", "time"}:
        return text
    if base in {"int", "bigint"}:
        return Decimal(text) if mysql_type == "bigint unsigned" else int(text)
    if base == "decimal":
        return Decimal(text)
    if base == "date":
        return dt.date.fromisoformat(text)
    if base == "datetime":
        return dt.datetime.fromisoformat(text)
    assert base == "timestamp", mysql_type
    local = dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))
    return local.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def instant(commit_ts: int | None) -> str | None:
    """Return the physical part of a TSO as UTC text."""
    if commit_ts is None:
        return None
    when = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=commit_ts >> 18)
    return when.strftime("%Y-%m-%d %H:%M:%S.%f")


def expected_versions(scenario: str) -> dict[str, dict[tuple[Any, ...], Version]]:
    """Return table -> (key, from) -> the version that the truth has."""
    types = column_types(scenario)
    expected: dict[str, dict[tuple[Any, ...], Version]] = defaultdict(dict)
    for line in truth(scenario, "history"):
        if line["kind"] != "version":
            continue
        table = line["table"]
        complete_row = with_defaults(scenario, line)
        values = {
            c: expected_value(complete_row.get(c), mysql_type, ZONES.get(scenario, "UTC"))
            for c, mysql_type in types[table].items()
        }
        key = tuple(values[c] for c in line["key_cols"])
        expected[table][*key, line["valid_from"]] = values | {
            "_cdc_from_ts": line["valid_from"],
            "_cdc_to_ts": line["valid_to"],
            "_cdc_valid_from": instant(line["valid_from"]),
            "_cdc_valid_to": instant(line["valid_to"]),
            "_cdc_is_current": line["valid_to"] is None,
            "_cdc_closed_by": line["closed_by"],
        }
    return expected


def key_columns(scenario: str) -> dict[str, list[str]]:
    return {shape["table"]: shape["key"] for shape in truth(scenario, "tables")}


def actual_versions(chain: Chain, table: str, key: list[str]) -> dict[tuple[Any, ...], Version]:
    rows = chain.history(table)
    by_place = {(*[r[c] for c in key], r["_cdc_from_ts"]): r for r in rows}
    assert len(by_place) == len(rows), "two versions of one key begin at one commit_ts"
    return by_place


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_history_is_the_recorded_truth(scenario: str, recorded: Callable[[str], Chain]) -> None:
    expected, keys = expected_versions(scenario), key_columns(scenario)
    counted = truth(scenario, "history")[0]["versions"]
    assert sum(len(v) for v in expected.values()) == counted
    for table, versions in expected.items():
        actual = actual_versions(recorded(scenario), table, keys[table])
        assert actual.keys() == versions.keys()
        for place, version in versions.items():
            assert {c: actual[place][c] for c in version} == version


@pytest.mark.parametrize(("scenario", "table"), SPARK_TYPES)
def test_columns_have_the_types_of_the_design(scenario: str, table: str, recorded: Callable[[str], Chain]) -> None:
    schema = recorded(scenario).lake.history("shop", table).schema()
    assert schema is not None
    own = {f.name: f.dataType.simpleString() for f in schema if not f.name.startswith("_cdc_")}
    assert own == SPARK_TYPES[scenario, table]
    assert {f.name: f.dataType.simpleString() for f in schema if f.name.startswith("_cdc_")} == {
        "_cdc_key": "string",
        "_cdc_from_ts": "bigint",
        "_cdc_to_ts": "bigint",
        "_cdc_valid_from": "timestamp",
        "_cdc_valid_to": "timestamp",
        "_cdc_is_current": "boolean",
        "_cdc_op": "string",
        "_cdc_closed_by": "string",
        "_cdc_topic": "string",
        "_cdc_partition": "int",
        "_cdc_offset": "bigint",
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_op_is_the_change_that_opened_the_version(scenario: str, recorded: Callable[[str], Chain]) -> None:
    types, keys = column_types(scenario), key_columns(scenario)
    ops: dict[tuple[Any, ...], str] = {}
    for event in truth(scenario, "events"):
        if event["op"] in {"insert", "update"}:
            key = [expected_value(event["key"][c], types[event["table"]][c], "UTC") for c in keys[event["table"]]]
            ops[event["table"], *key, event["commit_ts"]] = event["op"]
    checked = 0
    for table, key_cols in keys.items():
        for place, version in actual_versions(recorded(scenario), table, key_cols).items():
            assert version["_cdc_op"] == ops[table, *place]
            checked += 1
    assert checked == truth(scenario, "history")[0]["versions"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_coordinates_are_those_of_the_record_that_opened_the_version(
    scenario: str, recorded: Callable[[str], Chain]
) -> None:
    """If a record was sent several times, the first one of its partition counts."""
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in read_lines(RECORDED / "ticdc/canal-json_ext" / scenario):
        message = json.loads(bytes_of(line))
        if message["type"] in {"INSERT", "UPDATE"}:
            row = json.dumps(message["data"], sort_keys=True)
            copy = first.setdefault((message["table"], message["_tidb"]["commitTs"], row), line)
            assert copy["partition"] == line["partition"]
            assert copy["offset"] <= line["offset"]
    opened_by = {(r["topic"], r["partition"], r["offset"]): json.loads(bytes_of(r)) for r in first.values()}
    keys = key_columns(scenario)
    for table, key_cols in keys.items():
        for version in recorded(scenario).history(table):
            message = opened_by[version["_cdc_topic"], version["_cdc_partition"], version["_cdc_offset"]]
            assert (message["table"], message["_tidb"]["commitTs"]) == (table, version["_cdc_from_ts"])
            assert [message["data"][0][c] for c in key_cols] == [str(version[c]) for c in key_cols]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_pending_is_in_the_history(scenario: str, recorded: Callable[[str], Chain]) -> None:
    first, *lines = truth(scenario, "history")
    assert [line for line in lines if line["kind"] == "pending"], "the scenario has pending changes"
    below = first["watermark_ts"]
    open_keys = 0
    for table, key in key_columns(scenario).items():
        versions = recorded(scenario).history(table)
        assert all(v["_cdc_from_ts"] < below and (v["_cdc_to_ts"] or 0) < below for v in versions)
        current = [tuple(v[c] for c in key) for v in versions if v["_cdc_is_current"]]
        assert len(set(current)) == len(current), "two open versions of one key"
        open_keys += len(current)
    assert open_keys == first["open_versions"]


def test_an_as_of_query_at_every_commit_gives_the_rows_of_that_time(recorded: Callable[[str], Chain]) -> None:
    """Replay the truth's events and compare them with what a user's `from <= p < to` returns."""
    types, keys = column_types("nopk"), key_columns("nopk")
    below = truth("nopk", "history")[0]["watermark_ts"]
    events = [e for e in truth("nopk", "events") if e["op"] != "ddl" and e["commit_ts"] < below]
    histories = {table: recorded("nopk").history(table) for table in keys}
    state: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {table: {} for table in keys}
    for position in sorted({e["commit_ts"] for e in events}):
        now = [e for e in events if e["commit_ts"] == position]
        for event in sorted(now, key=lambda e: e["op"] != "delete"):
            typed = {c: expected_value(v, types[event["table"]][c], "UTC") for c, v in (event["after"] or {}).items()}
            key = tuple(event["key"][c] for c in keys[event["table"]])
            if event["op"] == "delete":
                del state[event["table"]][key]
            else:
                state[event["table"]][key] = typed
        for table, rows in histories.items():
            seen = [
                {c: r[c] for c in types[table]}
                for r in rows
                if r["_cdc_from_ts"] <= position and (r["_cdc_to_ts"] is None or position < r["_cdc_to_ts"])
            ]
            assert sorted(seen, key=repr) == sorted(
                state[table].values(), key=lambda r: repr({c: r[c] for c in types[table]})
            )
    assert any(state.values())


def test_the_recorded_records_are_kept_verbatim(recorded: Callable[[str], Chain]) -> None:
    lines = {(r["topic"], r["partition"], r["offset"]): r for r in read_lines(RECORDED / "ticdc/canal-json_ext/nopk")}
    lake = recorded("nopk").lake
    stored = rows_in(lake.raw_records, lake.spark)
    assert len(stored) == len(lines)
    for row in stored:
        line = lines[row["topic"], row["partition"], row["offset"]]
        assert row["value"] == bytes_of(line)
        assert row["key"] == (None if line["key"] is None else b"")
        assert row["timestamp"] == instant(line["timestamp"] << 18)
