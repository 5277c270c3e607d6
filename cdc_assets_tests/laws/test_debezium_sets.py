"""Compare Debezium's recorded streams, of both connectors and in every mode, with the recorded truth.

Where Debezium itself loses something (docs/protocols.md), `sent` returns what its documentation makes of the value in
MySQL. Nothing is taken from the decoder.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lakehouse.lakehouse import history_tables
from cdc_assets.mysql_types.descriptors import SPATIAL
from cdc_assets.stages import TYPES
from cdc_assets_tests.laws.test_dialects import MYSQL, Row, assert_nothing_left, compare_sequences, sound, take, truth
from cdc_assets_tests.laws.test_dialects import records_of as scenario_records
from cdc_assets_tests.support import Chain, Record, bytes_of, histories

SCENARIOS = ("customers", "composite", "extra", "bulk", "types")
CONFIGS = {
    "dbz195-schemas": SCENARIOS,
    "dbz195-string-hex": SCENARIOS,
    "dbz195-noschemas-tx": SCENARIOS,
    "dbz195-double-connect": ("types",),
    "dbz350m-schemas": SCENARIOS,
    "dbz350m-string-hex": SCENARIOS,
    "dbz350m-noschemas-tx": SCENARIOS,
    "dbz350m-double-connect": ("types",),
    "dbz350m-schemas-keepnull": ("types-rowmeta-minimal",),
}
Run = Callable[[str], Chain]


def records_of(config: str, scenarios: Iterable[str]) -> list[Record]:
    """Return the records of some scenarios of a configuration as one stream."""
    return [record for scenario in scenarios for record in scenario_records(MYSQL / config / scenario)]


def run(spark: SparkSession, folder: Path, records: list[Record], cuts: int = 1) -> Chain:
    made = Chain(spark, folder, protocol="debezium")
    for n in range(cuts):
        made.add(records[len(records) * n // cuts : len(records) * (n + 1) // cuts])
        sound(made.run())
    assert_nothing_left(made)
    return made


@pytest.fixture(scope="module")
def debezium(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The streams of a configuration, run once; tests do not change them."""
    done: dict[str, Chain] = {}

    def made(config: str) -> Chain:
        if config not in done:
            folder = tmp_path_factory.mktemp(config)
            done[config] = run(spark, folder, records_of(config, CONFIGS[config]))
        return done[config]

    return made


def tables_of(scenario: str) -> dict[str, dict[str, Any]]:
    """Return table -> its columns, primary key and CREATE TABLE."""
    schemas: dict[str, dict[str, Any]] = json.loads((MYSQL / "truth" / f"{scenario}.schema.json").read_text())
    return schemas


def lost_of(config: str) -> set[tuple[str, str]]:
    """Return the JSON columns that Debezium 1.9.5 lost: MariaDB has no binary JSON, which it expects."""
    return {("docs_json", "j")} if "195" in config else set()


def columns_of(config: str, scenario: str) -> dict[str, dict[str, str]]:
    """Return table -> column -> type, without spatial columns and those that the connector cannot read."""
    lost = lost_of(config)
    return {
        name: {
            c["name"]: c["column_type"]
            for c in table["columns"]
            if c["data_type"] not in SPATIAL and (name, c["name"]) not in lost
        }
        for name, table in tables_of(scenario).items()
    }


def keys_of(scenario: str) -> dict[str, list[str]]:
    """Return table -> what Debezium takes as the key: the primary key, else the unique key without NULL."""
    return {name: table["pk"] or {"uniq_only": ["code"]}.get(name, []) for name, table in tables_of(scenario).items()}


# What types_nn declares: the default that stands for NULL (where the column may be NULL) and for a zero date (where not).
DEFAULTS = {"n_int": "7", "n_str": "ndef", "n_dec": "9.90", "v_date": "2020-01-02", "v_dt": "2020-01-02 03:04:05"}
EPOCH = "1970-01-01 00:00:00"


def sent(config: str, column: str, column_type: str, value: str | None) -> str | None:
    """Return what of a value is sent."""
    base = column_type.partition("(")[0].split(" ")[0]
    if value is None:
        return None if "keepnull" in config else {k: v for k, v in DEFAULTS.items() if k.startswith("n_")}.get(column)
    zero = base in {"date", "datetime"} and (value[5:7] == "00" or value[8:10] == "00")
    if zero and column.startswith("v_"):
        return DEFAULTS.get(column, EPOCH)
    if base in {"date", "datetime"} and value.startswith("0001-"):
        return "2" + value[1:]
    if "connect" in config and base == "time":
        seconds_text, _, fraction = value.partition(".")
        within = not value.startswith("-") and int(value.split(":")[0]) < 24
        return f"{seconds_text}.{fraction[:3] or '0'}" if within else None
    if "connect" in config and base == "datetime" and "." in value:
        return value[: value.index(".") + 4]
    return value


def images(config: str, scenario: str) -> dict[tuple[Any, ...], list[Row | None]]:
    """Return the row images of each key after each change, None after a delete, from the truth's statements."""
    keys, columns = keys_of(scenario), columns_of(config, scenario)
    images_by_key: dict[tuple[Any, ...], list[Row | None]] = defaultdict(list)
    for event in truth(MYSQL, scenario, "events"):
        table = event["table"]
        if event["op"] not in {"insert", "update", "delete"} or not event.get("in_binlog", True) or not keys[table]:
            continue
        before, after = (
            {
                c: None if (table, c) in lost_of(config) else sent(config, c, columns[table].get(c, ""), v)
                for c, v in event[image].items()
            }
            if event[image]
            else None
            for image in ("before", "after")
        )
        if before == after:
            continue
        before, after = (image and {c: v for c, v in image.items() if c in columns[table]} for image in (before, after))
        place, key = (event["db"], table), keys[table]
        if before and (after is None or any(before[c] != after[c] for c in key)):
            images_by_key[*place, *(before[c] for c in key)].append(None)
        if after:
            images_by_key[*place, *(after[c] for c in key)].append(after)
    return images_by_key


@pytest.mark.parametrize("config", CONFIGS)
def test_each_key_has_the_versions_of_the_truth(config: str, debezium: Run) -> None:
    made = debezium(config)
    for scenario in CONFIGS[config]:
        expected, columns = images(config, scenario), columns_of(config, scenario)
        types = {(db, table): columns[table] for (db, table, *_) in expected}
        more = {"hexadecimal_bits": True, "lossy": True, "double_decimals": "double" in config}
        checked = compare_sequences(made, expected, types, **more)
        assert checked == sum(after is not None for sequence in expected.values() for after in sequence)
        assert checked
    assert {row["reason"] for row in made.quarantine()} <= {"zero_date"}


@pytest.mark.parametrize("config", CONFIGS)
def test_the_values_prove_how_they_are_written_where_messages_do_not_state_it(config: str, debezium: Run) -> None:
    made = debezium(config)
    assert TYPES.run(made.lake, made.feed).unproven == []


@pytest.mark.parametrize("config", ["dbz195-schemas", "dbz350m-noschemas-tx"])
def test_rows_of_a_table_without_a_key_are_counted(config: str, debezium: Run) -> None:
    made, types = debezium(config), columns_of(config, "composite")["audit_log"]
    current = [r for r in made.history("audit_log", "dbz_multi") if r["_cdc_is_current"]]
    final_rows = [r["row"] for r in truth(MYSQL, "composite", "final") if r["table"] == "audit_log"]
    assert final_rows
    assert all(take(row, current, types) for row in final_rows)
    assert not current


def test_chop(spark: SparkSession, tmp_path: Path) -> None:
    """The stream has transaction markers: the next run releases what waits at a cut."""
    records = records_of("dbz350m-noschemas-tx", ["composite"])
    undivided, cut = run(spark, tmp_path / "whole", records), run(spark, tmp_path / "cut", records, cuts=3)
    assert histories(cut.lake) == histories(undivided.lake)
    assert any(histories(undivided.lake).values())


@pytest.mark.soak
def test_compaction_leaves_the_current_rows(spark: SparkSession, tmp_path: Path, debezium: Run) -> None:
    """The tables' topics have only the last record of each key, which states the current row."""
    config = "dbz350m-noschemas-tx"
    complete, records = debezium(config), records_of(config, ("customers", "extra"))
    topics = {r["topic"] for r in records if r["value"] and b'"op":' in bytes_of(r)}

    def key_of(r: Record) -> tuple[Any, ...] | None:
        keyed = r["topic"] in topics and r["key"] is not None
        return (r["topic"], r["partition"], r["key"]) if keyed else None

    last = {key_of(r): r["offset"] for r in records}
    left = [r for r in records if key_of(r) is None or last[key_of(r)] == r["offset"]]
    assert len(left) < len(records)
    made = run(spark, tmp_path, left)

    def current(chain: Chain, database: str, table: str) -> list[Row]:
        rows = [v for v in chain.history(table, database) if v["_cdc_is_current"] and "_cdc_copy" not in v]
        return sorted(({c: v for c, v in r.items() if not c.startswith("_cdc_")} for r in rows), key=repr)

    tables = history_tables(made.lake.root, made.lake.feed)
    assert tables
    for database, table in tables:
        assert current(made, database, table) == current(complete, database, table)
