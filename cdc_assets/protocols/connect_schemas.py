"""Avro schemas that Kafka Connect's converters register: what Spark reads a datum by, and what Connect's JSON would say.

Connect's converters write each Connect schema as an Avro schema, with what Avro lacks in the properties `connect.type`,
`connect.name`, `connect.version`, `connect.doc`, `connect.parameters` and `connect.default`.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructField, StructType

from cdc_assets.lakehouse.schema import BIGINT, BINARY, BOOLEAN, INT, STRING
from cdc_assets.mysql_types.debezium import COLUMN_NAME

# Avro's primitive types: Connect's name of each, and Spark's type.
_PRIMITIVES: Mapping[str, tuple[str, DataType]] = MappingProxyType(
    {
        "boolean": ("boolean", BOOLEAN),
        "int": ("int32", INT),
        "long": ("int64", BIGINT),
        "float": ("float", FloatType()),
        "double": ("double", DoubleType()),
        "string": ("string", STRING),
        "bytes": ("bytes", BINARY),
    }
)


class SchemaError(ValueError):
    """A schema of another form than Connect's converters give to Debezium's records; the message goes on after "it"."""


@dataclass(frozen=True)
class ConnectSchema:
    """One schema, or a part of it.

    Attributes:
        avro: the Avro schema that reads the same bytes: under field names of its own, since Spark takes `a` and `A` for one,
            and without logical types, so that values are as Connect's JSON has them.
        type: what Spark makes of it, under the fields' own names.
        json: the schema as Connect's JSON converter writes it.
        fields: name -> position and schema of each field, where it is a record.
    """

    avro: Any
    type: DataType
    json: Mapping[str, Any]
    fields: Mapping[str, tuple[int, "ConnectSchema"]] = field(default_factory=dict)


def parse_connect_schema(text: str) -> ConnectSchema:
    """Parse the text of an Avro schema.

    Raises:
        SchemaError: it is none, or none that Connect's converters write.
    """
    try:
        return _Parser().parse(json.loads(text), "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError("is no Avro schema") from error


class _Parser:
    """Parses one schema. A named type that is referred to is written out again, so that each place has its own."""

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
            return ConnectSchema(kind, spark, _told(schema.get("connect.type", connect), schema))
        if kind in {"array", "map"}:
            return self._collection(schema, namespace)
        if kind != "record":
            return self._referred(kind, namespace)
        name = _full_name(schema["name"], schema.get("namespace", namespace))
        self._named[name] = schema, name.rpartition(".")[0]
        return self._record(name)

    def _collection(self, schema: Mapping[str, Any], namespace: str) -> ConnectSchema:
        kind = schema["type"]
        part = "items" if kind == "array" else "values"
        each = self.parse(schema[part], namespace)
        spark = ArrayType(each.type) if kind == "array" else MapType(STRING, each.type)
        keys = {} if kind == "array" else {"keys": {"type": "string", "optional": False}}
        told = {"type": kind, **keys, part: each.json} | _told(None, schema)
        return ConnectSchema({"type": kind, part: each.avro}, spark, told)

    def _optional(self, branches: list[Any], namespace: str) -> ConnectSchema:
        others = [each for each in branches if each != "null"]
        if len(branches) != 2 or len(others) != 1:
            raise SchemaError("has a union of several types, which Debezium's records have not")
        found = self.parse(others[0], namespace)
        avro = ["null" if each == "null" else found.avro for each in branches]
        return replace(found, avro=avro, json={**found.json, "optional": True})

    def _referred(self, name: str, namespace: str) -> ConnectSchema:
        full = _full_name(name, namespace)
        if full not in self._named:
            raise SchemaError(f"has the type {name}, which Debezium's records have not")
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
            own = part.json.get("parameters", {}).get(COLUMN_NAME, each["name"])
            if own in fields:
                raise SchemaError(f"has two fields of the name {own}")
            fields[own] = position, part
        self._open.pop()
        listed = [{"name": f"f{position}", "type": part.avro} for position, part in fields.values()]
        told = [{**part.json, "field": own} for own, (_, part) in fields.items()]
        return ConnectSchema(
            {"type": "record", "name": f"r{number}", "fields": listed},
            StructType([StructField(own, part.type) for own, (_, part) in fields.items()]),
            {"type": "struct", "fields": told} | _told(None, {"connect.name": name, **schema}),
            fields,
        )


def _told(kind: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a schema says of a Connect schema, with the keys in the order of Connect's JSON converter."""
    told: dict[str, Any] = {"type": kind} if kind else {}
    told["optional"] = False
    for part in ("name", "version", "doc", "parameters", "default"):
        if (value := schema.get(f"connect.{part}")) is not None:
            told[part] = value
    if schema["type"] == "bytes" and isinstance(told.get("default"), str):
        # Avro has a byte as the character of its number, Connect's JSON has base64.
        told["default"] = base64.b64encode(told["default"].encode("latin-1")).decode()
    return told


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
