"""Avro's binary encoding of Simple Protocol messages, both ways, written from the documents, independent of the decoder."""

import json
import struct
from typing import Any

Schema = (
    Any  # a primitive's name, or ("enum", size), ("array" | "map", items), ("union", [...]), ("record", {name: schema})
)

_MAYBE_TEXT, _MAYBE_FLAG = ("union", ["null", "string"]), ("union", ["null", "boolean"])
_LABELS = ("union", ["null", ("array", "string")])
_DATA_TYPE: dict[str, Any] = {"mysqlType": "string", "charset": "string", "collate": "string", "length": "long"}
_DATA_TYPE |= {"decimal": ("union", ["null", "int"]), "elements": _LABELS}
_DATA_TYPE |= {"unsigned": _MAYBE_FLAG, "zerofill": _MAYBE_FLAG}
_COLUMN = {"name": "string", "dataType": ("record", _DATA_TYPE), "nullable": "boolean", "default": _MAYBE_TEXT}
_INDEX: dict[str, Any] = {"name": "string", "unique": "boolean", "primary": "boolean", "nullable": "boolean"}
_INDEX |= {"columns": ("array", "string")}
_TABLE = ("record", {
    "database": "string", "table": "string", "tableID": "long", "version": "long",
    "columns": ("array", ("record", _COLUMN)), "indexes": ("array", ("record", _INDEX)),
})  # fmt: skip
_VALUE = ("union", [
    "null", "long", "float", "double", "string", "bytes",
    ("record", {"location": "string", "value": "string"}), ("record", {"value": "long"}),
])  # fmt: skip
_IMAGE = ("union", ["null", ("map", _VALUE)])
_CHECKSUM = ("record", {"version": "int", "corrupted": "boolean", "current": "long", "previous": "long"})
_PAYLOADS = [
    {"version": "int", "commitTs": "long", "buildTs": "long"},
    {"version": "int", "buildTs": "long", "tableSchema": _TABLE},
    {
        "version": "int", "type": ("enum", 8), "sql": "string", "commitTs": "long", "buildTs": "long",
        "tableSchema": ("union", ["null", _TABLE]), "preTableSchema": ("union", ["null", _TABLE]),
    },
    {
        "version": "int", "database": "string", "table": "string", "tableID": "long", "type": ("enum", 3),
        "commitTs": "long", "buildTs": "long", "schemaVersion": "long", "claimCheckLocation": _MAYBE_TEXT,
        "handleKeyOnly": _MAYBE_FLAG, "checksum": ("union", ["null", _CHECKSUM]), "data": _IMAGE, "old": _IMAGE,
    },
]  # fmt: skip
# The branch of the union at the top is a number in front: Message is the twelfth record.
_BRANCH = 11
_MESSAGE = ("record", {"type": ("enum", 4), "payload": ("union", [("record", each) for each in _PAYLOADS])})


def read_message(data: bytes) -> Any:
    """Return a message as plain values; a union is `[branch, value]`."""
    branch, at = _number(data, 0)
    assert branch == _BRANCH
    value, at = _read(_MESSAGE, data, at)
    assert at == len(data)
    return value


def message_bytes(message: Any) -> bytes:
    """Return the bytes of a message in the form of `read_message`; values are converted to the schema's types."""
    return _varint(_BRANCH) + _write(_MESSAGE, message)


def _number(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at


def _varint(number: int) -> bytes:
    zigzag = ((number << 1) ^ (number >> 63)) & (1 << 64) - 1
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


_FIXED = {"float": ("<f", 4), "double": ("<d", 8)}


def _read(schema: Schema, data: bytes, at: int) -> tuple[Any, int]:
    kind, inner = schema if isinstance(schema, tuple) else (schema, None)
    if kind == "null":
        return None, at
    if kind == "boolean":
        return bool(data[at]), at + 1
    if kind in _FIXED:
        form, size = _FIXED[kind]
        return struct.unpack(form, data[at : at + size])[0], at + size
    if kind == "record":
        record = {}
        for name, field in inner.items():
            record[name], at = _read(field, data, at)
        return record, at
    number, at = _number(data, at)
    if kind in {"int", "long", "enum"}:
        return number, at
    if kind in {"string", "bytes"}:
        raw = data[at : at + number]
        return (raw.decode() if kind == "string" else raw), at + number
    if kind == "union":
        value, at = _read(inner[number], data, at)
        return [number, value], at
    items: list[Any] = []
    while number:
        if number < 0:
            number, (_, at) = -number, _number(data, at)
        for _ in range(number):
            if kind == "map":
                name, at = _read("string", data, at)
                value, at = _read(inner, data, at)
                items.append((name, value))
            else:
                value, at = _read(inner, data, at)
                items.append(value)
        number, at = _number(data, at)
    return (dict(items) if kind == "map" else items), at


def _write(schema: Schema, value: Any) -> bytes:
    kind, inner = schema if isinstance(schema, tuple) else (schema, None)
    number = int(value) if isinstance(value, int | float) and -(1 << 63) <= value < 1 << 63 else 0
    if kind == "null":
        return b""
    if kind == "boolean":
        return bytes([bool(value)])
    if kind in _FIXED:
        form, _ = _FIXED[kind]
        fits = isinstance(value, float) and (kind == "double" or abs(value) < 3.41e38)
        return struct.pack(form, value if fits else number)
    if kind in {"int", "long"}:
        return _varint(number if kind == "long" else max(min(number, (1 << 31) - 1), -(1 << 31)))
    if kind == "enum":
        return _varint(number)
    if kind in {"string", "bytes"}:
        raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass") if isinstance(
            value, str) else json.dumps(value, default=repr).encode()  # fmt: skip
        return _varint(len(raw)) + raw
    if kind == "record":
        given = value if isinstance(value, dict) else {}
        return b"".join(_write(field, given.get(name)) for name, field in inner.items())
    if kind == "union":
        fits = isinstance(value, list) and len(value) == 2 and value[0] in range(len(inner))
        branch, held = value if fits else (0, None)
        return _varint(int(branch)) + _write(inner[int(branch)], held)
    if kind == "map":
        pairs = list(value.items()) if isinstance(value, dict) else []
        body = b"".join(_write("string", name) + _write(inner, held) for name, held in pairs)
    else:
        pairs = value if isinstance(value, list) else []
        body = b"".join(_write(inner, held) for held in pairs)
    return (_varint(len(pairs)) + body if pairs else b"") + b"\x00"
