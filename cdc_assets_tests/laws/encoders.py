"""Write the model's log as Kafka records of TiCDC: Canal-JSON with the TiDB extension, Open Protocol, Simple in JSON.

The fields are those of the recorded records (`recorded/ticdc`). The encoders share no code with the decoders. Those
of the binlog's readers, Canal and Debezium, are in `binlog_encoders`.
"""

import base64
import json
import struct
import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from cdc_assets_tests.laws.mysql_model import (
    INTEGER_BYTES,
    Column,
    Ddl,
    Event,
    Row,
    RowChange,
    Shape,
    Statement,
    TableDdl,
    Type,
    Watermark,
)
from cdc_assets_tests.support import Record, Stream, canal_message

TOPIC = "evolving"


def index_or_mask(text: str, of: Type) -> int:
    """Return the number for an enum's label (from 1) or for the labels of a set (one bit each)."""
    if of.base == "enum":
        return of.labels.index(text) + 1
    return sum(1 << of.labels.index(label) for label in text.split(",") if label)


def bytes_in(text: str) -> bytes:
    """Return the bytes of a binary value of the model."""
    return bytes.fromhex(text[2:])


_CODES = {
    "tinyint": -6,
    "smallint": 5,
    "mediumint": 4,
    "int": 4,
    "bigint": -5,
    "decimal": 3,
    "double": 8,
    "char": 1,
    "varchar": 12,
    "text": 2005,
    "varbinary": 2004,
    "date": 91,
    "datetime": 93,
    "timestamp": 93,
    "enum": 4,
    "set": -7,
}
_PROMOTED = {"tinyint": 5, "smallint": 4, "int": -5, "bigint": 3}


def java_code(text: str | None, of: Type) -> int:
    """Return the java.sql.Types code of a value: large unsigned numbers have the code of a wider type."""
    if text is not None and of.unsigned and of.base in _PROMOTED and int(text) >= 1 << 8 * INTEGER_BYTES[of.base] - 1:
        return _PROMOTED[of.base]
    return _CODES[of.base]


def canal_text(text: str | None, of: Type) -> str | None:
    """Return a value of Canal-JSON: a text, or null."""
    if text is None:
        return None
    if of.base in {"enum", "set"}:
        return str(index_or_mask(text, of))
    return bytes_in(text).decode("latin-1") if of.base == "varbinary" else text


CANAL_KINDS = defaultdict(
    lambda: "ALTER",
    {
        Ddl.CREATE: "CREATE",
        Ddl.DROP: "ERASE",
        Ddl.TRUNCATE: "TRUNCATE",
        Ddl.RENAME: "RENAME",
        Ddl.ADD_INDEX: "CINDEX",
        Ddl.DROP_INDEX: "DINDEX",
        Ddl.CREATE_DATABASE: "QUERY",
        Ddl.DROP_DATABASE: "QUERY",
    },
)


def go_json(value: Any) -> bytes:
    """Return JSON as Go writes it: no blanks, and only `<`, `>` and `&` are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode()


@dataclass
class Encoder(ABC):
    """Turns events of the model into the records of one protocol's stream.

    Attributes:
        partitions: of the topic.
        stream: what has been sent.
    """

    partitions: int = 1
    stream: Stream = field(init=False)

    protocol: ClassVar[dict[str, Any]]  # the feed's settings
    gated: ClassVar[bool] = True  # whether it sends watermarks
    has_databases: ClassVar[bool] = True  # whether it sends DDL of databases
    lanes_apart: ClassVar[bool] = True  # whether a partition or topic may be ingested before the others

    def __post_init__(self) -> None:
        self.stream = Stream(self.partitions, TOPIC)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of such a feed in the feeds file."""
        return {**self.protocol, "partitions": self.partitions}

    def encode(self, log: list[Event]) -> list[Record]:
        """Return the records of events, in the order in which they are sent."""
        before = len(self.stream.records)
        for event in log:
            if isinstance(event, RowChange):
                for change in self.split(event):
                    self.row(change)
            elif isinstance(event, Statement):
                self.ddl(event)
            else:
                self.watermark(event)
        self.flush()
        return self.stream.records[before:]

    def split(self, change: RowChange) -> Iterator[RowChange]:
        """Return an update of the key as a deletion and an insertion, as TiCDC sends it."""
        if change.moves:
            yield RowChange(change.ts, change.shape, change.before, None)
            yield RowChange(change.ts, change.shape, None, change.after)
        else:
            yield change

    def place(self, change: RowChange) -> int:
        """Return the partition of a row, by table and key."""
        image = change.after or change.before or {}
        names = (change.shape.database, change.shape.table, *change.key(image))
        return zlib.crc32(repr(names).encode()) % self.partitions

    @abstractmethod
    def row(self, change: RowChange) -> None:
        """Send a row event."""

    @abstractmethod
    def ddl(self, statement: Statement) -> None:
        """Send a DDL event."""

    def watermark(self, mark: Watermark) -> None:  # noqa: B027 -- some have none
        """Send a watermark."""

    def flush(self) -> None:  # noqa: B027 -- most wait for nothing
        """Send the events that wait to be packed into one record."""


# --- Canal-JSON


@dataclass
class CanalJson(Encoder):
    """Encode TiCDC's Canal-JSON with the TiDB extension: DDL in partition 0 only, watermarks in every partition."""

    partitions: int = 2
    protocol: ClassVar[dict[str, Any]] = {"protocol": "canal-json", "tidb_extension": True}

    def row(self, change: RowChange) -> None:
        columns = change.shape.columns
        image = change.after or change.before or {}
        body = canal_message(change.shape.database, change.shape.table, change.op.upper(), change.ts) | {
            "pkNames": [c.name for c in columns if c.name in change.shape.key],
            "sqlType": {c.name: java_code(image[c.name], c.type) for c in columns},
            "mysqlType": {c.name: c.type.base + (" unsigned" if c.type.unsigned else "") for c in columns},
            "old": [self._texts(change.shape, change.before)] if change.before and change.after else None,
            "data": [self._texts(change.shape, image)],
            "_tidb": {"commitTs": change.ts},
        }
        self.stream.send(go_json(body), self.place(change), key=b"")

    @staticmethod
    def _texts(shape: Shape, image: Row) -> Row:
        return {c.name: canal_text(image[c.name], c.type) for c in shape.columns}

    def ddl(self, statement: Statement) -> None:
        for table in statement.tables:
            body = canal_message(*table.name, CANAL_KINDS[statement.kind], statement.ts)
            statement_fields = {"isDdl": True, "sql": table.tidb_sql, "_tidb": {"commitTs": statement.ts}}
            self.stream.send(go_json(body | statement_fields), 0)

    def watermark(self, mark: Watermark) -> None:
        body = canal_message("", "", "TIDB_WATERMARK", mark.ts) | {"_tidb": {"watermarkTs": mark.ts}}
        for partition in range(self.partitions):
            self.stream.send(go_json(body), partition)


# --- Open Protocol

_OPEN_TYPES = {
    "tinyint": 1,
    "smallint": 2,
    "int": 3,
    "double": 5,
    "timestamp": 7,
    "bigint": 8,
    "mediumint": 9,
    "date": 10,
    "datetime": 12,
    "varchar": 15,
    "varbinary": 15,
    "decimal": 246,
    "enum": 247,
    "set": 248,
    "text": 252,
    "char": 254,
}
_OPEN_KINDS = {
    Ddl.CREATE_DATABASE: 1,
    Ddl.DROP_DATABASE: 2,
    Ddl.CREATE: 3,
    Ddl.DROP: 4,
    Ddl.ADD_COLUMN: 5,
    Ddl.DROP_COLUMN: 6,
    Ddl.ADD_INDEX: 7,
    Ddl.DROP_INDEX: 8,
    Ddl.TRUNCATE: 11,
    Ddl.MODIFY_COLUMN: 12,
    Ddl.RENAME: 14,
    Ddl.SET_DEFAULT: 15,
    Ddl.OTHER: 17,
    Ddl.REKEY: 61,
    Ddl.SEVERAL: 61,
}
_BINARY, _HANDLE, _PRIMARY, _MULTIPLE, _NULLABLE, _UNSIGNED = 1, 2, 8, 32, 64, 128
_LETTERS = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def go_quoted(raw: bytes) -> str:
    """Return bytes as Go's strconv.Quote does, without the quotes: printable ASCII stays."""
    return "".join(_LETTERS.get(b) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in raw)


def open_value(text: str | None, of: Type) -> Any:
    """Return a value of Open Protocol: numbers are JSON numbers."""
    if text is None:
        return None
    if of.is_integer:
        return int(text)
    if of.base == "double":
        return float(text)
    if of.base in {"enum", "set"}:
        return index_or_mask(text, of)
    if of.base == "varbinary":
        return go_quoted(bytes_in(text))
    return base64.b64encode(text.encode()).decode() if of.base == "text" else text


@dataclass
class OpenProtocol(Encoder):
    """Encode TiCDC's Open Protocol: several events in a record, DDL and resolved events in every partition."""

    partitions: int = 2
    batch: int = 4
    protocol: ClassVar[dict[str, Any]] = {"protocol": "open-protocol"}
    _waiting: dict[int, list[tuple[Any, Any]]] = field(default_factory=lambda: defaultdict(list))

    def row(self, change: RowChange) -> None:
        shape = change.shape
        key: dict[str, Any] = {"ts": change.ts, "scm": shape.database, "tbl": shape.table}
        image = change.after or change.before or {}
        if len(shape.key) == 1 and shape[shape.key[0]].type.is_integer:
            key["rid"] = int(image[shape.key[0]] or 0)
        value: dict[str, Any] = {}
        if change.after is None:
            value["d"] = self._columns(shape, image)
        else:
            value["u"] = self._columns(shape, image)
            if change.before is not None:
                value["p"] = self._columns(shape, change.before)
        place = self.place(change)
        self._waiting[place].append((key | {"t": 1}, value))
        if len(self._waiting[place]) >= self.batch:
            self._send(place)

    @staticmethod
    def _columns(shape: Shape, image: Row) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for column in sorted(shape.columns, key=lambda c: c.name):
            of = column.type
            is_key = column.name in shape.key
            flags = 0 if of.is_text or of.labels else _BINARY
            flags |= _HANDLE | _PRIMARY | (_MULTIPLE if len(shape.key) > 1 else 0) if is_key else 0
            flags |= (_NULLABLE if column.nullable else 0) | (_UNSIGNED if of.unsigned else 0)
            handle = {"h": True} if is_key else {}
            value = open_value(image[column.name], of)
            shown[column.name] = {"t": _OPEN_TYPES[of.base], **handle, "f": flags, "v": value}
        return shown

    def ddl(self, statement: Statement) -> None:
        self.flush()
        for table in statement.tables:
            database, name = table.name
            key = {"ts": statement.ts, "scm": database} | ({"tbl": name} if name else {}) | {"t": 2}
            value = {"q": table.tidb_sql, "t": _OPEN_KINDS[statement.kind]}
            for partition in range(self.partitions):
                self._waiting[partition].append((key, value))
            self.flush()

    def watermark(self, mark: Watermark) -> None:
        self.flush()
        for partition in range(self.partitions):
            self._waiting[partition].append(({"ts": mark.ts, "t": 3}, None))
        self.flush()

    def flush(self) -> None:
        for partition in range(self.partitions):
            if self._waiting[partition]:
                self._send(partition)

    def _send(self, partition: int) -> None:
        events = self._waiting.pop(partition)
        keys, values = struct.pack(">q", 1), b""
        for key, value in events:
            key_text, body = go_json(key), b"" if value is None else go_json(value)
            keys += struct.pack(">q", len(key_text)) + key_text
            values += struct.pack(">q", len(body)) + body
        self.stream.send(values, partition, key=keys)


# --- Simple

_LENGTHS = {
    "tinyint": (4, 3),
    "smallint": (6, 5),
    "mediumint": (9, 8),
    "int": (11, 10),
    "bigint": (20, 20),
    "double": (22, 22),
    "date": (10, 10),
    "text": (65535, 65535),
}


def simple_type(of: Type) -> dict[str, Any]:
    """Return a type as Simple's table schemas describe it."""
    name = "utf8mb4" if of.is_text or of.labels else "binary"
    data_type: dict[str, Any] = {
        "mysqlType": of.base,
        "charset": name,
        "collate": "utf8mb4_bin" if name != "binary" else name,
    }
    if of.base in {"datetime", "timestamp"}:
        data_type["length"] = 19 + (of.fraction + 1 if of.fraction else 0)
        return data_type | ({"decimal": of.fraction} if of.fraction else {})
    if of.base == "enum":
        return data_type | {"length": max(len(label.encode()) for label in of.labels), "elements": list(of.labels)}
    if of.base == "set":
        return data_type | {"length": len(",".join(of.labels).encode()), "elements": list(of.labels)}
    data_type["length"] = of.size[0] if of.size else _LENGTHS[of.base][of.unsigned]
    if of.scale:
        data_type["decimal"] = of.scale
    return data_type | ({"unsigned": True} if of.unsigned else {})


def simple_default(column: Column) -> str | None:
    """Return a column's default as table schemas state it."""
    return "CURRENT_TIMESTAMP" if column.now else column.default


def simple_schema(shape: Shape) -> dict[str, Any]:
    """Return a table schema; its columns are in the order of their ids, wherever they were added."""
    integer_key = len(shape.key) == 1 and shape[shape.key[0]].type.is_integer
    return {
        "schema": shape.database,
        "table": shape.table,
        "tableID": shape.table_id,
        "version": _schema_version(shape),
        "columns": [
            {
                "name": c.name,
                "dataType": simple_type(c.type),
                "nullable": c.nullable,
                "default": simple_default(c),
            }
            for c in sorted(shape.columns, key=lambda c: c.uid)
        ],
        "indexes": [
            {
                "name": "primary" if integer_key else "PRIMARY",
                "unique": True,
                "primary": True,
                "nullable": False,
                "columns": list(shape.key),
            }
        ],
    }


def _schema_version(shape: Shape) -> int:
    """Return a schema's version: a TSO somewhat below the commit_ts of its statement."""
    return shape.version - 7


def simple_value(text: str | None, of: Type) -> Any:
    """Return a value of Simple in JSON."""
    if text is None:
        return None
    if of.base in {"enum", "set"}:
        return str(index_or_mask(text, of))
    if of.base == "varbinary":
        return base64.b64encode(bytes_in(text)).decode()
    return {"location": "UTC", "value": text} if of.base == "timestamp" else text


@dataclass
class Simple(Encoder):
    """Encode TiCDC's Simple Protocol in JSON.

    DDL, bootstraps and watermarks are in every partition, schemas in the first two.
    """

    partitions: int = 2
    protocol: ClassVar[dict[str, Any]] = {"protocol": "simple"}
    _sent_shapes: set[tuple[Any, ...]] = field(default_factory=set)

    def row(self, change: RowChange) -> None:
        shape = change.shape
        # A table that has no bootstrap yet gets it before its first row.
        if (shape.database, shape.table, shape.table_id) not in self._sent_shapes:
            self._sent_shapes.add((shape.database, shape.table, shape.table_id))
            body = {"version": 1, "type": "BOOTSTRAP", "commitTs": 0} | self._built(change.ts)
            self._everywhere(body | {"tableSchema": simple_schema(shape)}, b"")
        body = {
            "version": 1,
            "database": shape.database,
            "table": shape.table,
            "tableID": shape.table_id,
            "type": change.op.upper(),
            "commitTs": change.ts,
            **self._built(change.ts),
            "schemaVersion": _schema_version(shape),
        }
        for name, image in (("data", change.after), ("old", change.before)):
            if image is not None:
                values = {c.name: simple_value(image[c.name], c.type) for c in shape.columns}
                body[name] = dict(sorted(values.items()))
        self.stream.send(go_json(body), self.place(change), key=b"")

    def ddl(self, statement: Statement) -> None:
        for table in statement.tables:
            body = {"version": 1, "type": CANAL_KINDS[statement.kind], "sql": table.tidb_sql, "commitTs": statement.ts}
            self._everywhere(body | self._built(statement.ts) | self._schemas(table), None)

    @staticmethod
    def _schemas(table: TableDdl) -> dict[str, Any]:
        # A dropped table is in both.
        after = table.after or table.before
        shown = {"tableSchema": simple_schema(after)} if after else {}
        return shown | ({"preTableSchema": simple_schema(table.before)} if table.before else {})

    def watermark(self, mark: Watermark) -> None:
        self._everywhere({"version": 1, "type": "WATERMARK", "commitTs": mark.ts} | self._built(mark.ts), None)

    def _everywhere(self, body: dict[str, Any], key: bytes | None) -> None:
        for partition in range(self.partitions):
            self.stream.send(go_json(body), partition, key=key)

    @staticmethod
    def _built(ts: int) -> dict[str, int]:
        return {"buildTs": (ts >> 18) + 700}


TICDC: dict[str, type[Encoder]] = {
    "canal-json": CanalJson,
    "open-protocol": OpenProtocol,
    "simple": Simple,
}
