"""What one Kafka record states, in one form for all protocols."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

CANAL_JSON, OPEN_PROTOCOL, SIMPLE, DEBEZIUM = "canal-json", "open-protocol", "simple", "debezium"
CLAIM_CHECK, HANDLE_KEY_ONLY = (
    "large-message-handle-option: claim-check",
    "large-message-handle-option: handle-key-only",
)
_FRAMES = {b"\x04\x22\x4d\x18": "lz4", b"\xff\x06\x00\x00sNaPpY": "snappy"}  # how a frame begins -> its compression


@dataclass(frozen=True)
class TableFacts:
    """What a message states about one source table.

    Attributes:
        database: its database.
        table: its name.
        key: the columns of its key; None if the message does not state it.
        columns: name -> type, as the message has it; "" if it states none.
        has_complete_row: whether `columns` are those of an after image, or of a schema.
    """

    database: str
    table: str
    key: tuple[str, ...] | None
    columns: Mapping[str, str]
    has_complete_row: bool


@dataclass(frozen=True)
class MessageFacts:
    """What one record states.

    Attributes:
        protocol: as in the feeds file; None where the record is of no protocol that this project reads.
        dialect: who writes such messages, for people.
        kind: row; schema (a table as it begins), ddl (a statement that changes one), statement (the text of another),
            watermark, heartbeat, transaction, notification, tombstone, other.
        evidence: what in the record shows the protocol.
        encoding: json or avro.
        switches: settings of the sender that the record shows.
        tables: what it states about tables.
        watermark: commit_ts of a watermark.
        claim: where the value lies that did not fit into the record.
        source: name of Debezium's connector (`topic.prefix`).
    """

    protocol: str | None
    dialect: str
    kind: str
    evidence: str
    encoding: str = "json"
    switches: frozenset[str] = frozenset()
    tables: tuple[TableFacts, ...] = ()
    watermark: int | None = None
    claim: str | None = None
    source: str | None = None


def unknown(reason: str) -> MessageFacts:
    """Return the facts of a record that no protocol explains."""
    return MessageFacts(None, "unknown", "other", reason)


def json_of(text: bytes | str | None) -> object:
    """Return the value of a JSON text; None where it is none."""
    try:
        return json.loads(text) if text else None
    except (ValueError, UnicodeDecodeError, RecursionError):
        return None


def decompressed(value: bytes) -> tuple[bytes, str | None]:
    """Return the value as it was before `large-message-handle-compression`, and the compression; None: there was none."""
    try:
        for begins, name in _FRAMES.items():
            if value.startswith(begins):
                return pa.CompressedInputStream(pa.BufferReader(value), name).read(), name
        if not value.startswith((b"{", b"\x16")) and (size := _snappy_size(value)):
            return pa.Codec("snappy").decompress(value, size).to_pybytes(), "snappy"
    except (OSError, pa.ArrowException):
        pass  # the value only begins like compressed bytes
    return value, None


def _snappy_size(value: bytes) -> int:
    """Return the length that a raw Snappy block states (a varint); 0 where it states none that is likely."""
    size = 0
    for n, byte in enumerate(value[:5]):
        size |= (byte & 0x7F) << (7 * n)
        if byte < 0x80:
            return size if len(value) <= size + size // 6 + 32 and size < 1 << 28 else 0
    return 0
