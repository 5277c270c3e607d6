"""Write the generated stream of `generate` as TiCDC's Simple Protocol would, in JSON and in Avro."""

import base64
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_Message = dict[str, Any]
_VERSION, _TABLE_ID = 470590849862074378, 116
# name, mysqlType, length, decimal, elements, unsigned, nullable, and the branch of Avro's union of values
_COLUMNS: list[tuple[str, str, int, int | None, list[str] | None, bool, bool, str]] = [
    ("id", "bigint", 20, None, None, False, False, "long"),
    ("buyer", "bigint", 20, None, None, True, False, "UnsignedBigint"),
    ("region", "varchar", 16, None, None, False, True, "string"),
    ("status", "enum", 9, None, ["new", "paid", "shipped", "cancelled"], False, True, "long"),
    ("amount", "decimal", 12, 2, None, False, True, "string"),
    ("qty", "int", 10, None, None, True, True, "long"),
    ("weight", "double", 22, None, None, False, True, "double"),
    ("note", "varchar", 64, None, None, False, True, "string"),
    ("token", "varbinary", 32, None, None, False, True, "bytes"),
    ("gift", "tinyint", 1, None, None, False, True, "long"),
    ("created", "datetime", 19, None, None, False, True, "string"),
    ("updated", "timestamp", 23, 3, None, False, True, "Timestamp"),
]
_BRANCH = {column[0]: column[-1] for column in _COLUMNS}


def json_lines(lines: Iterable[str], _: int) -> Iterator[str]:
    """Return recorded lines of Simple in JSON for Canal-JSON lines, at the same offsets."""
    return _translated(lines, lambda message: json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode())


def avro_lines(lines: Iterable[str], _: int) -> Iterator[str]:
    """Return recorded lines of Simple in Avro for Canal-JSON lines, at the same offsets."""
    return _translated(lines, _avro)


def _translated(lines: Iterable[str], encode: Callable[[_Message], bytes]) -> Iterator[str]:
    for text in lines:
        line = json.loads(text)
        value = encode(_message(json.loads(base64.b64decode(line["value"]))))
        yield json.dumps(line | {"value": base64.b64encode(value).decode()}, separators=(",", ":"))


def _message(canal: dict[str, Any]) -> _Message:
    times = {"commitTs": canal["_tidb"].get("watermarkTs") or canal["_tidb"]["commitTs"], "buildTs": canal["ts"]}
    if canal["type"] == "TIDB_WATERMARK":
        return {"version": 1, "type": "WATERMARK", **times}
    if canal["isDdl"]:
        return {"version": 1, "type": canal["type"], "sql": canal["sql"], **times, "tableSchema": _schema()}
    place = {"database": "bench", "table": "orders", "tableID": _TABLE_ID, "type": canal["type"]}
    images = {"data": canal["data"][0]} if canal["type"] != "DELETE" else {"old": canal["data"][0]}
    if canal["old"]:
        images["old"] = canal["old"][0]
    sorted_images = {name: dict(sorted((c, _value(c, v)) for c, v in image.items())) for name, image in images.items()}
    return {"version": 1, **place, **times, "schemaVersion": _VERSION, **sorted_images}


def _value(column: str, text: str | None) -> str | dict[str, str] | None:
    if text is None:
        return None
    if column == "token":
        return base64.b64encode(text.encode("latin-1")).decode()
    return {"location": "UTC", "value": text} if column == "updated" else text


def _schema() -> dict[str, Any]:
    columns = []
    for name, kind, length, decimal, elements, unsigned, nullable, _ in _COLUMNS:
        optional_fields = {"decimal": decimal, "elements": elements, "unsigned": unsigned or None}
        data_type = {"mysqlType": kind, "charset": "binary", "collate": "binary", "length": length}
        data_type |= {k: v for k, v in optional_fields.items() if v is not None}
        columns.append({"name": name, "dataType": data_type, "nullable": nullable, "default": None})
    index = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}
    head = {"schema": "bench", "table": "orders", "tableID": _TABLE_ID, "version": _VERSION}
    return {**head, "columns": columns, "indexes": [index]}


# --- Avro's binary encoding (its specification, section "Binary Encoding") of these messages


def _avro(message: _Message) -> bytes:
    times = _long(message["commitTs"]) + _long(message["buildTs"])
    if message["type"] == "WATERMARK":
        return b"\x16\x00\x00" + _long(1) + times
    if "sql" in message:
        ddl_type = _long(["CREATE", "ALTER"].index(message["type"]))
        schema = b"\x02" + _table(message["tableSchema"])
        return b"\x16\x04\x04" + _long(1) + ddl_type + _text(message["sql"]) + times + schema + b"\x00"
    place = _text(message["database"]) + _text(message["table"]) + _long(message["tableID"])
    dml_type = _long(["INSERT", "UPDATE", "DELETE"].index(message["type"]))
    nothing = b"\x00" * 3  # claimCheckLocation, handleKeyOnly, checksum
    images = b"".join(_image(message.get(name)) for name in ("data", "old"))
    return b"\x16\x06\x06" + _long(1) + place + dml_type + times + _long(_VERSION) + nothing + images


def _table(schema: dict[str, Any]) -> bytes:
    columns = b"".join(_column(c) for c in schema["columns"])
    (index,) = schema["indexes"]
    key = _text(index["name"]) + b"\x01\x01\x00" + _long(1) + _text(index["columns"][0]) + b"\x00"
    head = _text(schema["schema"]) + _text(schema["table"]) + _long(schema["tableID"]) + _long(schema["version"])
    return head + _long(len(schema["columns"])) + columns + b"\x00" + _long(1) + key + b"\x00"


def _column(column: dict[str, Any]) -> bytes:
    data_type = column["dataType"]
    out = b"".join(_text(data_type[each]) for each in ("mysqlType", "charset", "collate")) + _long(data_type["length"])
    out += b"\x02" + _long(data_type["decimal"]) if "decimal" in data_type else b"\x00"
    labels = data_type.get("elements")
    out += b"\x02" + _long(len(labels)) + b"".join(map(_text, labels)) + b"\x00" if labels else b"\x00"
    out += (b"\x02\x01" if data_type.get("unsigned") else b"\x02\x00") + b"\x02\x00"
    return _text(column["name"]) + out + (b"\x01" if column["nullable"] else b"\x00") + b"\x00"


def _image(image: dict[str, Any] | None) -> bytes:
    if image is None:
        return b"\x00"
    values = b"".join(_text(name) + _branch(_BRANCH[name], value) for name, value in image.items())
    return b"\x02" + _long(len(image)) + values + b"\x00"


def _branch(branch: str, value: Any) -> bytes:  # noqa: ANN401 -- whatever a column holds
    if value is None:
        return b"\x00"
    number, encode = _BRANCHES[branch]
    return _long(number) + encode(value)


def _data(text: str) -> bytes:
    data = base64.b64decode(text)
    return _long(len(data)) + data


def _text(text: str) -> bytes:
    data = text.encode()
    return _long(len(data)) + data


def _long(number: int) -> bytes:
    rest, out = number << 1 ^ number >> 63, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


# Branch of the union of values -> its number, and how its values are written.
_BRANCHES: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "long": (1, lambda value: _long(int(value))),
    "double": (3, lambda value: struct.pack("<d", float(value))),
    "string": (4, _text),
    "bytes": (5, _data),
    "Timestamp": (6, lambda value: _text(value["location"]) + _text(value["value"])),
    "UnsignedBigint": (7, lambda value: _long(int(value))),  # below 2^63 here
}
