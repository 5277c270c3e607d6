"""Decode Debezium's Avro with a schema registry: the events of the JSON records in every wire format, and bad input."""

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cdc_assets.lakehouse.registry_schemas import IdKind, SchemaId
from cdc_assets.operations.rebuild import compare_with_rebuild
from cdc_assets.sources.schema_registry import RegistryError
from cdc_assets.stages import DECODE, INGEST
from cdc_assets.stages.decode import DecodeReport
from cdc_assets_tests.record_registry import JSON_SET, SET
from cdc_assets_tests.registry import CONFLUENT, NATIVE, Registry, recorded_answers, running_registry
from cdc_assets_tests.support import Chain, Record, histories, read_lines, rows_in

# Wire format -> the API that has its ids.
APIS = {"confluent": CONFLUENT, "native": NATIVE, "headers": NATIVE}
# The wire format and scenario that `make test` has.
CHEAPEST = ("composite", "confluent")
# Columns of an event that depend on the encoding, or on the rows before.
_OTHER = {"record_bytes", "layout_id"}


def in_avro(registry: Registry, api: str = CONFLUENT) -> dict[str, Any]:
    """Return the settings of a feed with this registry."""
    return {"protocol": "debezium", "encoding": "avro", "schema_registry": {"url": registry.url + api}}


def decoded(made: Chain, records: list[Record]) -> DecodeReport:
    made.add(records)
    INGEST.run(made.lake, made.feed)
    return DECODE.run(made.lake, made.feed)


def events(made: Chain) -> list[dict[str, Any]]:
    """Return all events in the order of their records, without the columns `_OTHER`, and with layouts as JSON."""
    rows = rows_in(made.lake.change_events, made.lake.spark)
    rows.sort(key=lambda e: (e["topic"], e["partition"], e["offset"]))
    without = [{c: v for c, v in row.items() if c not in _OTHER} for row in rows]
    # A writer of JSON may write a character as itself or as an escape.
    read = {name: partial(json.loads, parse_float=str) for name in ("layout", "before", "after")}
    return [row | {name: row[name] and of(row[name]) for name, of in read.items()} for row in without]


@pytest.mark.parametrize(
    ("scenario", "wire_format"),
    [
        pytest.param(scenario, wire_format, marks=() if (scenario, wire_format) == CHEAPEST else pytest.mark.extended)
        for scenario in ("composite", "extra")
        for wire_format in APIS
    ],
)
def test_a_wire_format_gives_the_events_of_json(chain: Callable[..., Chain], scenario: str, wire_format: str) -> None:
    as_json = chain(protocol="debezium")
    decoded(as_json, read_lines(JSON_SET / scenario))
    expected = events(as_json)
    assert {e["kind"] for e in expected} >= {"row", "ddl", "tombstone"}
    with running_registry(recorded_answers()) as registry:
        in_registry = chain(**in_avro(registry, APIS[wire_format]))
        assert not decoded(in_registry, read_lines(SET / f"{scenario}-{wire_format}")).undecodable
    assert events(in_registry) == expected


@pytest.mark.soak
def test_every_scenario_gives_the_events_of_json(chain: Callable[..., Chain]) -> None:
    """The records name more schemas than one query plan holds."""
    with running_registry(recorded_answers()) as registry:
        made, as_json = chain(**in_avro(registry)), chain(protocol="debezium")
        for n, scenario in enumerate(("customers", "composite", "extra", "bulk", "types", "ddl")):
            for one, path in ((made, SET / f"{scenario}-confluent"), (as_json, JSON_SET / scenario)):
                one.add([line | {"topic": f"{n}.{line['topic']}"} for line in read_lines(path)])
        for one in (made, as_json):
            INGEST.run(one.lake, one.feed)
            assert not DECODE.run(one.lake, one.feed).undecodable
        assert events(made) == events(as_json)
        assert len(registry.paths) == len(set(registry.paths)) > 40


def value_of(record: Record) -> bytes:
    return base64.b64decode(record["value"])


def with_value(record: Record, offset: int, value: bytes, key: bytes | None = None) -> Record:
    changed = {"offset": offset, "value": base64.b64encode(value).decode()}
    return record | changed | ({"key": base64.b64encode(key).decode()} if key is not None else {})


def test_bad_input_is_in_quarantine_with_its_schema_id(chain: Callable[..., Chain]) -> None:
    (row,) = [r for r in read_lines(SET / "extra-confluent") if r["value"] and "parent" in r["topic"]][:1]
    good, key = value_of(row), base64.b64decode(row["key"])
    answers = recorded_answers()
    # A row without its envelope, whose columns have the names of a transaction marker's fields.
    columns = [{"name": name, "type": "string"} for name in ("id", "status", "v")]
    answers[f"{CONFLUENT}/schemas/ids/901"] = json.dumps(
        {"schema": json.dumps({"type": "record", "name": "Order", "fields": columns})}
    )
    answers[f"{CONFLUENT}/schemas/ids/902"] = json.dumps({"schema": '{"type": "object"}', "schemaType": "JSON"})
    bad = {
        "cut": (good[:-1], None, "malformed_avro"),
        "half": (good[: len(good) // 2], None, "malformed_avro"),
        "id alone": (good[:5], None, "malformed_avro"),
        "less than an id": (good[:4], None, "malformed_avro"),
        "one byte more": (good + b"\x00", None, "malformed_avro"),
        "twice": (good + good[5:], None, "malformed_avro"),
        "no id": (good[6:], None, "malformed_avro"),
        "JSON": (b'{"op": "c", "source": {}, "ts_ms": 1}', None, "malformed_avro"),
        "unknown": (b"\x00\x00\x00\x03\x84" + good[5:], None, "unknown_schema"),
        "no message": (b"\x00\x00\x00\x03\x85\x02", None, "unusable_schema"),
        "no Avro": (b"\x00\x00\x00\x03\x86{}", None, "unusable_schema"),
        "no text": (good.replace(b"mariadb", b"mari\xffdb"), None, "invalid_utf8"),
        "empty": (b"", None, "empty_value"),
        "cut key": (good, key[:-1], "bad_key"),
        "longer key": (good, key + b"\x00", "bad_key"),
        "unknown key": (good, b"\x00\x00\x00\x03\x84\x02", "unknown_schema"),
        "JSON key": (good, b'{"id": 1}', "bad_key"),
    }
    records = [with_value(row, n, value, key) for n, (value, key, _) in enumerate(bad.values())]
    with running_registry(answers) as registry:
        made = chain(**in_avro(registry))
        report = decoded(made, [*records, with_value(row, len(bad), good)])
    assert report.events == {"row": 1, "undecodable": len(bad)}
    rows = {q["offset"]: (q["reason"], q["message"]) for q in made.quarantine()}
    assert {name: rows[n][0] for n, name in enumerate(bad)} == {name: reason for name, (_, _, reason) in bad.items()}
    messages = {name: rows[n][1] for n, name in enumerate(bad)}
    assert "the value's schema id is 900" in messages["unknown"]
    assert "the value's schema id is 901, which is not the schema of a Debezium message" in messages["no message"]
    assert "the value's schema id is 902, which has the type object" in messages["no Avro"]
    assert "the key's schema id is 900" in messages["unknown key"]
    assert "encoding: json" in messages["JSON"]


@pytest.mark.extended
def test_columns_of_another_tables_schema_are_reported(chain: Callable[..., Chain]) -> None:
    """A registry that was set up again has the schema of `trg_log` (id, msg) under the id of that of `parent` (id, nm)."""
    records = read_lines(SET / "extra-confluent")
    parent, log = (
        next(int.from_bytes(value_of(r)[1:5], "big") for r in records if r["value"] and r["topic"].endswith(name))
        for name in ("parent", "trg_log")
    )
    answers = recorded_answers()
    answers[f"{CONFLUENT}/schemas/ids/{parent}"] = answers[f"{CONFLUENT}/schemas/ids/{log}"]
    with running_registry(answers) as registry:
        made = chain(**in_avro(registry))
        made.add(records)
        reports = {each.table: each for each in made.run().history}
    (contradiction,) = reports["parent"].contradictions
    assert (contradiction["column"], contradiction["stated"]) == ("msg", "the table has no such column")
    assert not any(each.contradictions for table, each in reports.items() if table != "parent")


@pytest.mark.extended
def test_a_schema_is_fetched_once_and_not_for_a_rebuild(chain: Callable[..., Chain]) -> None:
    records = read_lines(SET / "extra-confluent")
    with running_registry(recorded_answers()) as registry:
        made = chain(**in_avro(registry))
        made.add(records)
        registry.status = 503
        INGEST.run(made.lake, made.feed)
        with pytest.raises(RegistryError, match="503"):
            DECODE.run(made.lake, made.feed)
        assert made.lake.change_events.cursor() is None
        registry.status = None
        registry.asked.clear()
        made.run()
        paths = list(registry.paths)
        assert len(paths) == len(set(paths)) > 5
        made.add([records[-1] | {"offset": 1000}])
        assert made.run().decode.events
        assert registry.paths == paths
    assert any(histories(made.lake).values())
    # The registry has stopped.
    rebuilt = dict(compare_with_rebuild(made.lake, made.feed))
    assert rebuilt
    assert not any(d is None or d.inserted or d.deleted or d.updated for d in rebuilt.values())


@pytest.mark.extended
def test_an_unknown_schema_is_fetched_again(chain: Callable[..., Chain]) -> None:
    record = next(r for r in read_lines(SET / "extra-confluent") if r["value"])
    number = int.from_bytes(value_of(record)[1:5], "big")
    path = f"{CONFLUENT}/schemas/ids/{number}"
    with running_registry(recorded_answers()) as registry:
        schema, made = registry.answers.pop(path), chain(**in_avro(registry))
        assert decoded(made, [record]).undecodable
        registry.status = 503
        # The registry's first answer counts as long as it gives no other.
        assert decoded(made, [record | {"offset": 1}]).undecodable
        registry.status, registry.answers[path] = None, schema
        assert not decoded(made, [record | {"offset": 2}]).undecodable
    assert made.lake.kept_schemas()[SchemaId(IdKind.SCHEMA, number)] == json.loads(schema)["schema"]
