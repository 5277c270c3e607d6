"""What a record of the Open Protocol states."""

from collections.abc import Iterator

from cdc_assets.operations.inspect.facts import (
    CLAIM_CHECK,
    HANDLE_KEY_ONLY,
    OPEN_PROTOCOL,
    MessageFacts,
    TableFacts,
    decompressed,
    json_of,
    unknown,
)
from cdc_assets.operations.inspect.samples import SampledRecord
from cdc_assets.protocols.open_protocol.codes import ColumnFlag, type_text

# Version 1, as 8 bytes, begins every key.
BEGINS = (1).to_bytes(8, "big")
_KINDS = {1: "row", 2: "ddl", 3: "watermark"}


def facts_of(record: SampledRecord) -> MessageFacts:
    """Return what a record states whose key has the protocol's first bytes."""
    evidence = "keys that begin with the 8 bytes of version 1, then lengths and JSON"
    try:
        pairs = list(_pairs((record.key or b"")[8:], record.value or b""))
    except (ValueError, IndexError):
        return unknown(f"{evidence}; but the lengths do not fit the record")
    events = [event for pair in pairs if (event := _event(*pair)) is not None]
    if not events or len(events) < len(pairs):
        return unknown(f"{evidence}; but an event is no JSON object")
    return MessageFacts(
        OPEN_PROTOCOL,
        "TiCDC Open Protocol",
        events[0].kind,
        evidence,
        switches=frozenset().union(*(e.switches for e in events))
        | ({"batches of events"} if len(events) > 1 else set()),
        tables=tuple(t for e in events for t in e.tables),
        watermark=max((e.watermark for e in events if e.watermark), default=None),
        claim=next((e.claim for e in events if e.claim), None),
    )


def _pairs(keys: bytes, values: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Return the events of a record: each key and each value stands behind its length of 8 bytes."""
    while keys:
        key, keys = _framed(keys)
        value, values = _framed(values) if values else (b"", b"")
        yield key, value


def _framed(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:8], "big")
    if len(data) < 8 + size:
        raise ValueError("cut")
    return data[8 : 8 + size], data[8 + size :]


def _event(key: bytes, value: bytes) -> MessageFacts | None:
    head = json_of(key)
    if not isinstance(head, dict) or head.get("t") not in _KINDS:
        return None
    kind = _KINDS[head["t"]]
    text, compression = decompressed(value)
    body = json_of(text)
    switches = {f"compression: {compression}"} if compression else set()
    claim = head.get("ccl")
    if claim:
        switches.add(CLAIM_CHECK)
    if head.get("ohk"):
        switches.add(HANDLE_KEY_ONLY)
    tables: tuple[TableFacts, ...] = ()
    if kind == "row" and isinstance(body, dict):
        image, before = body.get("u") or body.get("d") or {}, body.get("p")
        if before is not None and before.keys() < image.keys():
            switches.add("only-output-updated-columns")
        flags = {name: column.get("f", 0) for name, column in image.items()}
        columns = {name: type_text(column.get("t"), flags[name]) or "" for name, column in image.items()}
        names = tuple(name for name, flag in flags.items() if flag & ColumnFlag.HANDLE_KEY or image[name].get("h"))
        is_complete = "u" in body and not (claim or head.get("ohk"))
        tables = (TableFacts(head.get("scm", ""), head.get("tbl", ""), names, columns, is_complete),)
    watermark = head.get("ts") if kind == "watermark" else None
    return MessageFacts(
        OPEN_PROTOCOL, "", kind, "", switches=frozenset(switches), tables=tables, watermark=watermark, claim=claim
    )
