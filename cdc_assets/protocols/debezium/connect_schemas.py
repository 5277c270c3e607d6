"""Avro schemas of Kafka Connect's converters: the schema by which Spark reads a datum, and Connect's own schema as JSON.

Connect's converters write each Connect schema as an Avro schema. What Avro cannot express is in the properties
`connect.type`, `connect.name`, `connect.version`, `connect.doc`, `connect.parameters` and `connect.default`.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructField, StructType

from cdc_assets.lakehouse.schema import BIGINT, BINARY, BOOLEAN, INT, STRING
from cdc_assets.protocols.debezium.semantics import COLUMN_NAME

# Avro's primitive type -> Connect's name of the type, and Spark's type.
_PRIMITIVES: Mapping[str, tuple[str, DataType]] = {
    "boolean": ("boolean", BOOLEAN),
    "int": ("int32", INT),
    "long": ("int64", BIGINT),
    "float": ("float", FloatType()),
    "double": ("double", DoubleType()),
    "string": ("string", STRING),
    "bytes": ("bytes", BINARY),
}


class SchemaError(ValueError):
    """A schema that Connect's converters do not write for Debezium's records. The message is a predicate without subject."""


@dataclass(frozen=True)
class ConnectSchema:
    """A schema, or a part of one.

    Attributes:
        avro: an Avro schema that reads the same bytes. Its fields are named by their positions, because `a` and `A` are the
            same name to Spark. It has no logical types, so that values are as in Connect's JSON.
        type: Spark's type of the values, with the fields' own names.
        json: the schema as Connect's JSON converter writes it.
        fields: name -> position and schema of each field, if this is the schema of a record.
    """

    avro: Any
    type: DataType
    json: Mapping[str, Any]
    fields: Mapping[str, tuple[int, "ConnectSchema"]] = field(default_factory=dict)


def parse_connect_schema(text: str) -> ConnectSchema:
    """Parse the text of an Avro schema.

    Raises:
        SchemaError: the text is not an Avro schema, or not one that Connect's converters write.
    """
    try:
        return _Parser().parse(json.loads(text), "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError("is not an Avro schema") from error


class _Parser:
    """Parses one schema. A reference to a named type becomes a copy of the type, so that each field has its own."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self._open: list[str] = []
        self._records = 0

    def parse(self, schema: Any, namespace: str) -> ConnectSchema:  # noqa: ANN401 -- JSON
        if isinstance(schema, list):
            return self._optional(schema, namespace)
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.parse(kind, namespace)
        if kind in _PRIMITIVES:
            connect, spark = _PRIMITIVES[kind]
            return ConnectSchema(kind, spark, _connect_json(schema.get("connect.type", connect), schema))
        if kind in {"array", "map"}:
            return self._collection(schema, namespace)
        if kind != "record":
            return self._named_type(kind, namespace)
        name = _full_name(schema["name"], schema.get("namespace", namespace))
        self._named[name] = schema, name.rpartition(".")[0]
        return self._record(name)

    def _collection(self, schema: Mapping[str, Any], namespace: str) -> ConnectSchema:
        kind = schema["type"]
        part = "items" if kind == "array" else "values"
        each = self.parse(schema[part], namespace)
        spark = ArrayType(each.type) if kind == "array" else MapType(STRING, each.type)
        keys = {} if kind == "array" else {"keys": {"type": "string", "optional": False}}
        connect_json = {"type": kind, **keys, part: each.json} | _connect_json(None, schema)
        return ConnectSchema({"type": kind, part: each.avro}, spark, connect_json)

    def _optional(self, branches: list[Any], namespace: str) -> ConnectSchema:
        others = [each for each in branches if each != "null"]
        if len(branches) != 2 or len(others) != 1:
            raise SchemaError("has a union of several types, which Debezium's records do not have")
        required = self.parse(others[0], namespace)
        avro = ["null" if each == "null" else required.avro for each in branches]
        return replace(required, avro=avro, json={**required.json, "optional": True})

    def _named_type(self, name: str, namespace: str) -> ConnectSchema:
        full = _full_name(name, namespace)
        if full not in self._named:
            raise SchemaError(f"has the type {name}, which Debezium's records do not have")
        return self._record(full)

    def _record(self, name: str) -> ConnectSchema:
        if name in self._open:
            raise SchemaError(f"has the type {name} inside itself")
        schema, namespace = self._named[name]
        self._open.append(name)
        self._records += 1
        number = self._records
        fields: dict[str, tuple[int, ConnectSchema]] = {}
        for position, each in enumerate(schema["fields"]):
            part = self.parse(each["type"], namespace)
            # The column's name in MySQL, if the connector propagates it: Avro's may be adjusted.
            column = part.json.get("parameters", {}).get(COLUMN_NAME, each["name"])
            if column in fields:
                raise SchemaError(f"has two fields of the name {column}")
            fields[column] = position, part
        self._open.pop()
        avro_fields = [{"name": f"f{position}", "type": part.avro} for position, part in fields.values()]
        json_fields = [{**part.json, "field": column} for column, (_, part) in fields.items()]
        return ConnectSchema(
            {"type": "record", "name": f"r{number}", "fields": avro_fields},
            StructType([StructField(column, part.type) for column, (_, part) in fields.items()]),
            {"type": "struct", "fields": json_fields} | _connect_json(None, {"connect.name": name, **schema}),
            fields,
        )


def _connect_json(kind: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of the Connect schema, with the keys in the order of Connect's JSON converter."""
    properties: dict[str, Any] = {"type": kind} if kind else {}
    properties["optional"] = False
    for part in ("name", "version", "doc", "parameters", "default"):
        if (value := schema.get(f"connect.{part}")) is not None:
            properties[part] = value
    if schema["type"] == "bytes" and isinstance(properties.get("default"), str):
        # Avro writes a byte as the character of that number, Connect's JSON converter writes base64.
        properties["default"] = base64.b64encode(properties["default"].encode("latin-1")).decode()
    return properties


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
