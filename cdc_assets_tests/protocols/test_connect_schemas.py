"""Compare schemas that a real converter registered with Connect's JSON schemas of the same records."""

import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdc_assets.protocols.debezium.connect_schemas import SchemaError, parse_connect_schema
from cdc_assets_tests.record_registry import JSON_SET, SET
from cdc_assets_tests.registry import CONFLUENT, recorded_answers
from cdc_assets_tests.support import Record


def lines(folder: Any, name: str) -> list[Record]:
    return [json.loads(line) for line in gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()).splitlines()]


def pairs(scenario: str, part: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Return the schema of each key or value in JSON, and its id in Avro."""
    for in_json, in_avro in zip(lines(JSON_SET, scenario), lines(SET, f"{scenario}-confluent"), strict=True):
        if in_json[part] is not None:
            number = int.from_bytes(base64.b64decode(in_avro[part])[1:5], "big")
            yield json.loads(base64.b64decode(in_json[part]))["schema"], number


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("scenario", ["composite", "types"])
def test_a_schema_is_that_of_json(scenario: str, part: str) -> None:
    answers = recorded_answers()
    seen = {}
    for schema, number in pairs(scenario, part):
        if number not in seen:
            text = json.loads(answers[f"{CONFLUENT}/schemas/ids/{number}"])["schema"]
            seen[number] = parse_connect_schema(text)
        assert dict(seen[number].json) == schema
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no JSON", "is not an Avro schema"),
        ("[]", "has a union of several types"),
        ('["int", "string"]', "has a union of several types"),
        ('{"type": "record", "name": "r"}', "is not an Avro schema"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "Missing"}]}', "has the type Missing"),
        (
            '{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}',
            "has the type r inside itself",
        ),
        ('{"type": "enum", "name": "e", "symbols": ["A"]}', "has the type enum"),
        ("[" * 100_000, "is not an Avro schema"),
    ],
)
def test_a_schema_that_no_converter_writes_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        parse_connect_schema(text)


def test_the_source_column_s_own_name_is_used() -> None:
    """`column.propagate.source.type` puts the name into the schema, also if Avro allows no such field name."""
    column = {
        "type": "string",
        "connect.parameters": {"__debezium.source.column.type": "VARCHAR", "__debezium.source.column.name": "a-b"},
    }
    fields = [{"name": "id", "type": "int"}, {"name": "a_b", "type": ["null", column]}]
    schema = parse_connect_schema(json.dumps({"type": "record", "name": "Value", "fields": fields}))
    assert [each["field"] for each in schema.json["fields"]] == ["id", "a-b"]
    assert list(schema.fields) == ["id", "a-b"]
