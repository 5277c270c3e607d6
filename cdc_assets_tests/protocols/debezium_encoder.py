"""An encoder of Debezium's messages, written from the document and the recorded connectors, independent of the decoder."""

import json
from typing import Any

from cdc_assets_tests.support import Record, record

MS = 1_700_000_000_000
KEY_FIELDS = [{"type": "int32", "optional": False, "field": "id"}]
FIELDS = [*KEY_FIELDS, {"type": "string", "optional": True, "field": "v"}]


def source(
    pos: int = 4,
    *,
    seconds: int = 0,
    row: int = 0,
    file: str | None = "mysql-bin.000003",
    server_id: int = 223344,
    gtid: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the source block of a change, `seconds` after an instant in 2023."""
    return {
        "version": "1.9.5.Final", "connector": "mysql", "name": "mysql-server-1", "ts_ms": MS + 1000 * seconds,
        "snapshot": "false", "db": "inventory", "sequence": None, "table": "customers", "server_id": server_id,
        "gtid": gtid, "file": file, "pos": pos, "row": row, "thread": 7, "query": None,
    } | more  # fmt: skip


def read_source(pos: int = 4, *, milliseconds: int = 0, **more: Any) -> dict[str, Any]:
    """Return the source block of a snapshot's read."""
    return source(pos, server_id=0, snapshot="true", ts_ms=MS + milliseconds, **more)


def envelope(
    op: str, before: dict[str, Any] | None, after: dict[str, Any] | None, at: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Return the payload of a change."""
    return {"before": before, "after": after, "source": at, "op": op, "ts_ms": MS + 500, "transaction": None} | more


def with_schema(payload: dict[str, Any], fields: list[dict[str, Any]] = FIELDS) -> dict[str, Any]:
    """Return the payload beside its schema, as JsonConverter writes it."""
    images = [
        {"type": "struct", "fields": fields, "optional": True, "name": "s.inventory.customers.Value", "field": f}
        for f in ("before", "after")
    ]
    rest = [{"type": "string", "optional": False, "field": "op"}]
    schema = {"type": "struct", "fields": [*images, *rest], "optional": False, "name": "s.inventory.customers.Envelope"}
    return {"schema": schema, "payload": payload}


def key_with_schema(key: dict[str, Any]) -> dict[str, Any]:
    """Return a record's key beside its schema."""
    return {"schema": {"type": "struct", "fields": KEY_FIELDS, "optional": False, "name": "s.Key"}, "payload": key}


def text(value: Any) -> bytes:
    """Return JSON as the converter writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def change(
    op: str, key: int, before: str | None, after: str | None, at: dict[str, Any], offset: int = 0, **more: Any
) -> Record:
    """Return a record of a table (id, v): `before` and `after` are v; op c, u, d or r decides which images there are."""
    rows = [{"id": key, "v": v} for v in (before, after)]
    payload = envelope(op, rows[0] if op in "ud" else None, rows[1] if op != "d" else None, at, **more)
    key_bytes = text(key_with_schema({"id": key}))
    return record(text(with_schema(payload)), 0, offset, f"s.inventory.{at['table']}", key=key_bytes)


def marker(status: str, transaction: str, events: dict[str, int] | None = None, offset: int = 0) -> Record:
    """Return the BEGIN or END marker of a transaction; the end has the number of events of each table."""
    collections = [{"data_collection": f"inventory.{t}", "event_count": n} for t, n in (events or {}).items()]
    value: dict[str, Any] = {"status": status, "id": transaction, "event_count": sum((events or {}).values()) or None}
    value["data_collections"] = collections or None
    return record(text(value), 0, offset, "s.transaction", key=text({"id": transaction}))
