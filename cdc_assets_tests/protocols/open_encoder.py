"""Encode the Open Protocol, written from the document (and Go's for `strconv.Quote`), independent of the decoder."""

import base64
import json
from collections.abc import Iterable
from typing import Any

Event = tuple[Any, Any]  # key, value: JSON values, or bytes as they are; b"" for no value

BINARY, HANDLE_KEY, GENERATED, PRIMARY_KEY, UNIQUE_KEY, MULTIPLE_KEY, NULLABLE, UNSIGNED = (1 << n for n in range(8))


def json_bytes(value: Any) -> bytes:
    """Return JSON as Go's encoding/json writes it."""
    if isinstance(value, bytes):
        return value
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def message(*events: Event, version: int = 1) -> tuple[bytes, bytes]:
    """Return key and value of a record that holds these events."""
    key = version.to_bytes(8, "big") + b"".join(frame(json_bytes(k)) for k, _ in events)
    return key, b"".join(frame(json_bytes(v)) for _, v in events)


def row_key(ts: int, table: str = "t1", schema: str = "test", **more: Any) -> dict[str, Any]:
    return {"ts": ts, "scm": schema, "tbl": table, **more, "t": 1}


def resolved(ts: int) -> Event:
    return {"ts": ts, "t": 3}, b""


def ddl(ts: int, query: str, code: int, table: str = "t1", schema: str = "test") -> Event:
    return {"ts": ts, "scm": schema, "tbl": table, "t": 2}, {"q": query, "t": code}


def column(code: int, value: Any, flags: int = 0, *, handle: bool = False) -> dict[str, Any]:
    """Return a column; `h` is left out if it is false, as the encoder does."""
    return {"t": code, **({"h": True} if handle else {}), "f": flags, "v": value}


def key_column(value: Any, code: int = 3) -> dict[str, Any]:
    return column(code, value, BINARY | HANDLE_KEY | PRIMARY_KEY, handle=True)


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_NAMED = {7: "a", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t", 11: "v"}


def go_quote(data: bytes) -> str:
    """Return bytes as strconv.Quote does, without the quotation marks."""
    return "".join(_quoted(part) for part in _runes(data))


def _runes(data: bytes) -> Iterable[str | int]:
    """Return the characters of UTF-8, and the bytes that belong to no character as numbers."""
    at = 0
    while at < len(data):
        for size in range(1, 5):
            try:
                yield data[at : at + size].decode("utf-8")
            except UnicodeDecodeError:
                continue
            at += size
            break
        else:
            yield data[at]
            at += 1


def _quoted(part: str | int) -> str:
    if isinstance(part, int):
        return f"\\x{part:02x}"
    code = ord(part)
    if part in '"\\':
        return "\\" + part
    if part.isprintable():
        return part
    if code in _NAMED:
        return "\\" + _NAMED[code]
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
