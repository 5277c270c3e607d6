"""What a message of Canal-JSON states, of TiCDC's and of official Canal."""

from collections.abc import Iterator, Mapping
from typing import Any

from cdc_assets.operations.inspect.facts import CANAL_JSON, CLAIM_CHECK, HANDLE_KEY_ONLY, MessageFacts, TableFacts

_ROWS = {"INSERT", "UPDATE", "DELETE"}
_NO_ROWS = {"XACOMMIT", "XAROLLBACK", "GTIDLOG", "MHEARTBEAT"}


def facts_of(message: Mapping[str, Any]) -> MessageFacts | None:
    """Return what a JSON object states; None where it is no message of Canal-JSON."""
    if not {"isDdl", "type", "es", "database", "table"} <= message.keys():
        return None
    extension = message.get("_tidb")
    is_official = "gtid" in message or bool(message.get("id"))
    kind, tables = _kind(message), tuple(_tables(message))
    switches = set()
    if isinstance(extension, dict):
        dialect, evidence = "TiCDC Canal-JSON with enable-tidb-extension", "the field _tidb"
        switches.add("enable-tidb-extension")
        switches |= {CLAIM_CHECK} if extension.get("claimCheckLocation") else set()
        switches |= {HANDLE_KEY_ONLY} if extension.get("onlyHandleKey") else set()
    elif is_official:
        dialect, evidence = (
            "official Canal",
            "the field gtid, or an id above 0" if "gtid" in message else "an id above 0",
        )
    else:
        dialect, evidence = "TiCDC Canal-JSON without enable-tidb-extension", "id 0, and neither gtid nor _tidb"
    if not is_official:
        types = message.get("mysqlType") or {}
        if any("(" in str(t) for t in types.values() if not str(t).startswith(("enum", "set"))):
            switches.add("content-compatible")
        old, data = message.get("old"), message.get("data")
        if message["type"] == "UPDATE" and old and data and old[0].keys() < data[0].keys():
            switches.add("only-output-updated-columns")
    fields = extension if isinstance(extension, dict) else {}
    return MessageFacts(
        CANAL_JSON,
        dialect,
        kind,
        evidence,
        switches=frozenset(switches),
        tables=tables,
        watermark=fields.get("watermarkTs"),
        claim=fields.get("claimCheckLocation"),
    )


def _kind(message: Mapping[str, Any]) -> str:
    if message["type"] == "TIDB_WATERMARK":
        return "watermark"
    if message["type"] in _NO_ROWS:
        return "transaction"
    if message["isDdl"]:
        return "schema" if message["type"] == "CREATE" else "ddl"
    return "row" if message["type"] in _ROWS else "statement"


def _tables(message: Mapping[str, Any]) -> Iterator[TableFacts]:
    types, data = message.get("mysqlType") or {}, message.get("data") or []
    if message["type"] in _ROWS and data and isinstance(data[0], dict):
        key = message.get("pkNames")
        large = message.get("_tidb") or {}
        is_complete = message["type"] != "DELETE" and not (
            large.get("onlyHandleKey") or large.get("claimCheckLocation")
        )
        columns = {name: str(types.get(name, "")) for name in data[0]}
        yield TableFacts(message["database"], message["table"], tuple(key or ()), columns, is_complete)
