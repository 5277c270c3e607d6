"""The generated stream of `generate`, event for event, as Debezium's connector would carry it.

In JSON with its schema or without, or in Avro with ids of a schema registry.
"""

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import fastavro

_DEBEZIUM, _CONNECT = "io.debezium.", "org.apache.kafka.connect.data."
_DECIMAL = {"scale": "2", "connect.decimal.precision": "12"}
# Connect type, semantic name and parameters of each column.
_COLUMNS: dict[str, tuple[str, str | None, dict[str, str] | None]] = {
    "id": ("int64", None, None),
    "buyer": ("int64", None, None),
    "region": ("string", None, None),
    "status": ("string", f"{_DEBEZIUM}data.Enum", {"allowed": "new,paid,sent,done"}),
    "amount": ("bytes", f"{_CONNECT}Decimal", _DECIMAL),
    "qty": ("int64", None, None),
    "weight": ("double", None, None),
    "note": ("string", None, None),
    "token": ("bytes", None, None),
    "gift": ("int16", None, None),
    "created": ("int64", f"{_DEBEZIUM}time.Timestamp", None),
    "updated": ("string", f"{_DEBEZIUM}time.ZonedTimestamp", None),
}
_OPS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}


def _field(name: str) -> dict[str, Any]:
    connect, semantic, parameters = _COLUMNS[name]
    named = {"name": semantic, "version": 1} if semantic else {}
    return {"type": connect, "optional": name != "id", **named, "field": name} | (
        {"parameters": parameters} if parameters else {}
    )


def _schema() -> dict[str, Any]:
    fields = [_field(name) for name in _COLUMNS]
    images: list[dict[str, Any]] = [
        {"type": "struct", "fields": fields, "optional": True, "name": "bench.bench.orders.Value", "field": image}
        for image in ("before", "after")
    ]
    source_types = {"version": "string", "connector": "string", "name": "string", "ts_ms": "int64", "snapshot": "string",
            "db": "string", "sequence": "string", "table": "string", "server_id": "int64", "gtid": "string",
            "file": "string", "pos": "int64", "row": "int32", "thread": "int64", "query": "string"}  # fmt: skip
    source = {
        "type": "struct",
        "fields": [{"type": t, "optional": True, "field": name} for name, t in source_types.items()],
        "optional": False,
        "name": f"{_DEBEZIUM}connector.mysql.Source",
        "field": "source",
    }
    rest = [{"type": "string", "optional": False, "field": "op"}, {"type": "int64", "optional": True, "field": "ts_ms"}]
    return {
        "type": "struct",
        "fields": [*images, source, *rest],
        "optional": False,
        "name": "bench.bench.orders.Envelope",
    }


_SCHEMA = _schema()
_KEY_SCHEMA = {"type": "struct", "fields": [_field("id")], "optional": False, "name": "bench.bench.orders.Key"}
# The numbers of the schemas in the registry.
_KEY_ID, _VALUE_ID = 1, 2
_AVRO_TYPES = {"int16": "int", "int32": "int", "int64": "long"}
_Encode = Callable[[dict[str, Any], dict[str, Any]], tuple[bytes, bytes]]


def _avro_schema(schema: Mapping[str, Any], names: set[str]) -> Any:  # noqa: ANN401 -- JSON
    """A Connect schema as Connect's Avro converters write it; of the records `names` the names alone."""
    kind = schema["type"]
    made: Any = schema.get("name")
    if kind != "struct":
        made = {"type": _AVRO_TYPES.get(kind, kind)} | ({"connect.type": kind} if kind == "int16" else {})
        made |= {f"connect.{each}": schema[each] for each in ("name", "version", "parameters") if each in schema}
    elif made not in names:
        names.add(made)
        fields = [{"name": each["field"], "type": _avro_schema(each, names)} for each in schema["fields"]]
        made = {"type": "record", "name": made, "fields": fields}
    return ["null", made] if schema["optional"] else made


_AVRO = {_KEY_ID: _avro_schema(_KEY_SCHEMA, set()), _VALUE_ID: _avro_schema(_SCHEMA, set())}
_PARSED = {number: fastavro.parse_schema(schema) for number, schema in _AVRO.items()}
# The answers of the registry, by path.
REGISTRY = {f"/schemas/ids/{n}": json.dumps({"schema": json.dumps(schema)}) for n, schema in _AVRO.items()}


def translate(lines: Iterable[str], offset: int) -> Iterator[str]:
    """Return recorded Debezium lines, from `offset` on, for Canal-JSON lines; Debezium has no watermarks."""
    return _translated(
        lines,
        offset,
        lambda key, value: (
            _json({"schema": _KEY_SCHEMA, "payload": key}),
            _json({"schema": _SCHEMA, "payload": value}),
        ),
    )


def bare_lines(lines: Iterable[str], offset: int) -> Iterator[str]:
    """Return the lines of `translate` without schemas."""
    return _translated(lines, offset, lambda key, value: (_json(key), _json(value)))


def avro_lines(lines: Iterable[str], offset: int) -> Iterator[str]:
    """Return the lines of `translate` in Avro."""
    return _translated(lines, offset, lambda key, value: (_avro(_KEY_ID, key), _avro(_VALUE_ID, _with_bytes(value))))


def _translated(lines: Iterable[str], offset: int, encode: _Encode) -> Iterator[str]:
    offsets = Counter[int]()
    for text in lines:
        line = json.loads(text)
        message = json.loads(base64.b64decode(line["value"]))
        if not message["data"]:
            continue
        partition = line["partition"]
        key, value = encode({"id": int(message["data"][0]["id"])}, _payload(message, line["offset"]))
        made = {
            "topic": "bench.bench.orders",
            "partition": partition,
            "offset": offset + offsets[partition],
            "timestamp": line["timestamp"],
            "key": base64.b64encode(key).decode(),
            "value": base64.b64encode(value).decode(),
            "headers": [],
        }
        offsets[partition] += 1
        yield json.dumps(made, separators=(",", ":"))


def _payload(message: dict[str, Any], position: int) -> dict[str, Any]:
    row = _image(message["data"][0])
    deleted = message["type"] == "DELETE"
    source = {
        "version": "1.9.5.Final", "connector": "mysql", "name": "bench", "ts_ms": message["es"], "snapshot": "false",
        "db": "bench", "sequence": None, "table": "orders", "server_id": 1, "gtid": None, "file": "mysql-bin.000001",
        "pos": 100 * position, "row": 0, "thread": None, "query": None,
    }  # fmt: skip
    return {
        "before": row if deleted else _image(message["old"][0]) if message["old"] else None,
        "after": None if deleted else row,
        "source": source,
        "op": _OPS[message["type"]],
        "ts_ms": message["ts"],
        "transaction": None,
    }


def _image(row: dict[str, str | None]) -> dict[str, Any]:
    return {name: None if text is None else _value(name, text) for name, text in row.items()}


def _value(name: str, text: str) -> Any:  # noqa: ANN401 -- JSON
    connect, semantic, _ = _COLUMNS[name]
    if name == "amount":
        unscaled = round(float(text) * 100)
        return base64.b64encode(unscaled.to_bytes(4, "big", signed=True)).decode()
    if name == "token":
        return base64.b64encode(text.encode("latin-1")).decode()
    if name == "created":
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    if name == "updated":
        return text.replace(" ", "T") + "Z"
    if connect in {"int64", "int16"} and not semantic:
        return int(text)
    return float(text) if connect == "double" else text


def _with_bytes(payload: dict[str, Any]) -> dict[str, Any]:
    """A message with bytes for the base64 of its rows."""
    images = {
        image: payload[image]
        and {
            name: base64.b64decode(value) if value is not None and _COLUMNS[name][0] == "bytes" else value
            for name, value in payload[image].items()
        }
        for image in ("before", "after")
    }
    return payload | images


def _avro(number: int, value: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, _PARSED[number], value)
    return b"\x00" + number.to_bytes(4, "big") + out.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
