"""What a message of the Simple Protocol states, in JSON and in Avro."""

from collections.abc import Mapping
from functools import cache
from io import BytesIO
from typing import Any

import fastavro

from cdc_assets.operations.inspect.facts import CLAIM_CHECK, HANDLE_KEY_ONLY, SIMPLE, MessageFacts, TableFacts, unknown
from cdc_assets.protocols.simple import avro as simple_avro

_ROWS = {"INSERT", "UPDATE", "DELETE"}


def facts_of_json(message: Mapping[str, Any]) -> MessageFacts | None:
    """Return what a JSON object states; None where it is no message of the Simple Protocol."""
    if not {"version", "type", "commitTs", "buildTs"} <= message.keys():
        return None
    return _facts(message, "json", "the fields version, type, commitTs, buildTs")


def facts_of_avro(value: bytes) -> MessageFacts:
    """Return what a value states whose first byte is that of the protocol's Avro encoding."""
    source = BytesIO(value[1:])
    try:
        message: Any = fastavro.schemaless_reader(source, _avro_schema())
    except (EOFError, IndexError, ValueError, UnicodeDecodeError, KeyError, StopIteration, OverflowError):
        return unknown("the first byte is that of the Simple Protocol's Avro; but the value is not a complete message")
    if source.read(1):
        return unknown("the first byte is that of the Simple Protocol's Avro; but bytes follow the message")
    payload = message["payload"]
    kind = message["type"] if message["type"] in {"WATERMARK", "BOOTSTRAP"} else payload["type"]
    fields = {"type": kind, **payload}
    if fields.get("tableSchema"):
        fields["tableSchema"] = {**fields["tableSchema"], "schema": fields["tableSchema"]["database"]}
    return _facts(fields, "avro", "Avro data of the branch Message, without a header")


@cache
def _avro_schema() -> str | list[Any] | dict[Any, Any]:
    return fastavro.parse_schema(simple_avro.MESSAGE)


def _facts(message: Mapping[str, Any], encoding: str, evidence: str) -> MessageFacts:
    kinds = {"WATERMARK": "watermark", "BOOTSTRAP": "schema"} | dict.fromkeys(_ROWS, "row")
    kind = kinds.get(message["type"], "ddl")
    switches = set()
    if message.get("checksum"):
        switches.add("integrity-check-level")
    if message.get("claimCheckLocation"):
        switches.add(CLAIM_CHECK)
    if message.get("handleKeyOnly"):
        switches.add(HANDLE_KEY_ONLY)
    schema, tables = message.get("tableSchema"), []
    if schema:
        columns = {c["name"]: str(c["dataType"]["mysqlType"]) for c in schema.get("columns") or ()}
        key = next((tuple(i["columns"]) for i in schema.get("indexes") or () if i.get("primary")), ())
        tables.append(
            TableFacts(schema.get("schema", ""), schema.get("table", ""), key, columns, has_complete_row=True)
        )
    elif kind == "row":
        columns = dict.fromkeys(message.get("data") or message.get("old") or {}, "")
        tables.append(TableFacts(message["database"], message["table"], None, columns, has_complete_row=False))
    return MessageFacts(
        SIMPLE,
        f"TiCDC Simple Protocol in {'JSON' if encoding == 'json' else 'Avro'}",
        kind,
        evidence,
        encoding,
        frozenset(switches),
        tuple(tables),
        message["commitTs"] if kind == "watermark" else None,
        message.get("claimCheckLocation"),
    )
