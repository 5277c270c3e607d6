"""Debezium's recorded streams, of both connectors and in every mode, against the recorded truth of the same statements.

Where Debezium itself loses something (see the README's section on that), the expectation says what MySQL held and what the
connector's documented rule makes of it; nothing is taken from decoding.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.mysql_types.types import SPATIAL
from cdc_assets_tests.laws.test_dialects import MYSQL, Row, compare_sequences, run, take, truth
from cdc_assets_tests.support import Chain

Run = Callable[[str, str], Chain]


@pytest.fixture(scope="session")
def debezium(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A recorded stream, run once: not to be changed."""
    done: dict[tuple[str, str], Chain] = {}

    def made(config: str, scenario: str) -> Chain:
        if (config, scenario) not in done:
            folder = tmp_path_factory.mktemp(scenario)
            done[config, scenario] = run(spark, folder, MYSQL / config / scenario, protocol="debezium")
        return done[config, scenario]

    return made


def columns_of(scenario: str) -> dict[str, dict[str, str]]:
    """Table -> column -> type, but for spatial columns, whose truth is text of another server."""
    tables = json.loads((MYSQL / "truth" / f"{scenario}.schema.json").read_text())
    return {
        name: {c["name"]: c["column_type"] for c in table["columns"] if c["data_type"] not in SPATIAL}
        for name, table in tables.items()
    }


def keys_of(scenario: str) -> dict[str, list[str]]:
    """Table -> what Debezium takes for the key: the primary key, else the unique key without NULL."""
    tables = json.loads((MYSQL / "truth" / f"{scenario}.schema.json").read_text())
    return {name: table["pk"] or {"uniq_only": ["code"]}.get(name, []) for name, table in tables.items()}


def images(scenario: str) -> dict[tuple[Any, ...], list[Row | None]]:
    """The images of each key after each change, None for a row gone: from the statements."""
    keys, columns = keys_of(scenario), columns_of(scenario)
    found: dict[tuple[Any, ...], list[Row | None]] = defaultdict(list)
    for event in truth(MYSQL, scenario, "events"):
        table = event["table"]
        if event["op"] not in {"insert", "update", "delete"} or not event.get("in_binlog", True) or not keys[table]:
            continue
        before, after = (
            event[image] and {c: v for c, v in event[image].items() if c in columns[table]}
            for image in ("before", "after")
        )
        if event["before"] == event["after"]:
            continue
        place, key = (event["db"], table), keys[table]
        if before and (after is None or any(before[c] != after[c] for c in key)):
            found[*place, *(before[c] for c in key)].append(None)
        if after:
            found[*place, *(after[c] for c in key)].append(after)
    return found


@pytest.mark.parametrize(
    ("config", "scenario"),
    [
        ("dbz195-schemas", "customers"),
        ("dbz350m-schemas", "composite"),
        ("dbz195-string-hex", "composite"),
    ],
)
def test_each_key_has_the_versions_of_the_truth(config: str, scenario: str, debezium: Run) -> None:
    made, expected, columns = debezium(config, scenario), images(scenario), columns_of(scenario)
    types = {(db, table): columns[table] for (db, table, *_) in expected}
    checked = compare_sequences(made, expected, types, hexadecimal_bits=True)
    assert checked == sum(after is not None for sequence in expected.values() for after in sequence)
    assert checked
    assert not made.quarantine()


def test_rows_of_a_table_without_a_key_are_counted(debezium: Run) -> None:
    made, types = debezium("dbz350m-schemas", "composite"), columns_of("composite")["audit_log"]
    current = [r for r in made.history("audit_log", "dbz_multi") if r["_cdc_is_current"]]
    wanted = [r["row"] for r in truth(MYSQL, "composite", "final") if r["table"] == "audit_log"]
    assert wanted
    assert all(take(row, current, types) for row in wanted)
    assert not current
