"""Write the generated stream of `generate` as TiCDC's Open Protocol would: in batches of 16 events."""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

_BATCH = 16  # TiCDC's default
_TABLE = {"scm": "bench", "tbl": "orders"}
# Code and flags of each column: binary 1, handle key 2, primary key 8, nullable 64, unsigned 128.
_COLUMNS: dict[str, tuple[int, int]] = {
    "id": (8, 11), "buyer": (8, 129), "region": (15, 64), "status": (247, 64), "amount": (246, 65), "qty": (3, 193),
    "weight": (5, 65), "note": (15, 64), "token": (15, 65), "gift": (1, 65), "created": (12, 65), "updated": (7, 65),
}  # fmt: skip
_NUMBERS = {"id": int, "buyer": int, "status": int, "qty": int, "weight": float, "gift": int}


def translate(lines: Iterable[str], offset: int) -> Iterator[str]:
    """Return recorded Open Protocol lines, from `offset` on, for Canal-JSON lines; each batch is of one partition."""
    waiting: dict[int, list[tuple[bytes, bytes]]] = {}
    offsets: dict[int, int] = {}

    def record(partition: int, timestamp: int) -> str:
        key = (1).to_bytes(8, "big") + b"".join(_framed(k) for k, _ in waiting[partition])
        value = b"".join(_framed(v) for _, v in waiting.pop(partition))
        offsets[partition] = at = offsets.get(partition, offset - 1) + 1
        line = {
            "topic": "bench",
            "partition": partition,
            "offset": at,
            "timestamp": timestamp,
            "key": base64.b64encode(key).decode(),
            "value": base64.b64encode(value).decode(),
            "headers": [],
        }
        return json.dumps(line, separators=(",", ":"))

    partition = timestamp = 0
    for text in lines:
        line = json.loads(text)
        partition, timestamp = line["partition"], line["timestamp"]
        message = json.loads(base64.b64decode(line["value"]))
        waiting.setdefault(partition, []).append(_event(message))
        if len(waiting[partition]) == _BATCH or not message["data"]:
            yield record(partition, timestamp)
    for rest in sorted(waiting):
        yield record(rest, timestamp)


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def _event(message: dict[str, Any]) -> tuple[bytes, bytes]:
    if message["type"] == "TIDB_WATERMARK":
        return _json({"ts": message["_tidb"]["watermarkTs"], "t": 3}), b""
    place = {"ts": message["_tidb"]["commitTs"], **_TABLE}
    if message["isDdl"]:
        return _json({**place, "t": 2}), _json({"q": message["sql"], "t": 3})
    row = _image(message["data"][0])
    value = {"d": row} if message["type"] == "DELETE" else {"u": row}
    if message["old"]:
        value["p"] = _image(message["old"][0])
    return _json({**place, "rid": int(message["data"][0]["id"]), "t": 1}), _json(value)


def _image(row: dict[str, str | None]) -> dict[str, Any]:
    image: dict[str, Any] = {}
    for name, text in sorted(row.items()):
        code, flags = _COLUMNS[name]
        value: Any = text
        if text is not None and name in _NUMBERS:
            value = _NUMBERS[name](text)
        elif text is not None and name == "token":
            value = "".join(f"\\x{ord(c):02x}" if not " " <= c <= "~" or c in '\\"' else c for c in text)
        image[name] = {"t": code, **({"h": True} if flags & 2 else {}), "f": flags, "v": value}
    return image


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
