"""Write the model's log as Kafka records of the readers of MySQL's binlog: Canal's FlatMessage and Debezium's envelopes.

The fields are those of the recorded records (`recorded/mysql`). Neither reader sends watermarks, and both clocks have
seconds only.
"""

import base64
import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

from cdc_assets_tests.laws.encoders import CANAL_KINDS, Encoder, bytes_in, canal_text, java_code
from cdc_assets_tests.laws.mysql_model import Column, Ddl, Row, RowChange, Shape, Statement, TableDdl, Type
from cdc_assets_tests.support import Stream


def seconds(ts: int) -> int:
    """Return a moment as the binlog keeps it: milliseconds, cut to seconds."""
    return (ts >> 18) // 1000 * 1000


def compact(value: Any) -> bytes:
    """Return JSON without blanks; characters are not escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# --- Canal


def flat_text(text: str | None, of: Type) -> str | None:
    """Return a value as Java prints it: a decimal without a fraction keeps one zero."""
    if text is None:
        return None
    if of.base == "decimal" and of.scale and Decimal(text) == int(Decimal(text)):
        return f"{int(Decimal(text))}.0"
    return repr(float(text)) if of.base == "double" else canal_text(text, of)


@dataclass
class Canal(Encoder):
    """Encode Alibaba Canal's FlatMessage: one partition, types as the user wrote them, `old` with the changed columns."""

    protocol: ClassVar[dict[str, Any]] = {"protocol": "canal-json"}
    gated: ClassVar[bool] = False
    has_databases: ClassVar[bool] = False

    def split(self, change: RowChange) -> Iterator[RowChange]:
        # An update of the key is one message, and no row is ever sent again.
        if not change.resent:
            yield change

    def row(self, change: RowChange) -> None:
        columns, before = change.shape.columns, change.before
        image = change.after or before or {}
        changed = None
        if change.after and before:
            changed = [{c.name: flat_text(before[c.name], c.type) for c in columns if before[c.name] != image[c.name]}]
        body = {
            "data": [{c.name: flat_text(image[c.name], c.type) for c in columns}],
            "database": change.shape.database,
            "isDdl": False,
            "mysqlType": {c.name: c.type.sql for c in columns},
            "old": changed,
            "pkNames": [c.name for c in columns if c.name in change.shape.key],
            "sql": "",
            "sqlType": {c.name: _canal_code(image[c.name], c.type) for c in columns},
            "table": change.shape.table,
            "type": change.op.upper(),
        }
        self._send(body, change.ts)

    def ddl(self, statement: Statement) -> None:
        if statement.kind in {Ddl.CREATE_DATABASE, Ddl.DROP_DATABASE}:
            return
        body = {
            "data": None,
            "database": statement.tables[0].name[0],
            "isDdl": True,
            "mysqlType": None,
            "old": None,
            "pkNames": None,
            "sql": statement.mysql_sql,
            "sqlType": None,
            "table": statement.tables[0].name[1],
            "type": CANAL_KINDS[statement.kind],
        }
        self._send(body, statement.ts)

    def _send(self, body: dict[str, Any], ts: int) -> None:
        es = seconds(ts)
        body |= {"es": es, "gtid": "", "id": 1 + len(self.stream.records) // 5, "ts": es + 1500}
        self.stream.send(compact(dict(sorted(body.items()))), 0)


def _canal_code(text: str | None, of: Type) -> int:
    return 2004 if of.base == "set" and text is None else java_code(text, of)


# --- Debezium

SERVER = "mysql-server-1"
_FILE = "mysql-bin.000011"

_FIELDS = {
    "tinyint": "int16",
    "smallint": "int16",
    "mediumint": "int32",
    "int": "int32",
    "bigint": "int64",
    "double": "double",
    "varbinary": "bytes",
}
_JDBC = {
    "tinyint": 5,
    "smallint": 5,
    "mediumint": 4,
    "int": 4,
    "bigint": -5,
    "decimal": 3,
    "double": 8,
    "char": 1,
    "varchar": 12,
    "text": 12,
    "varbinary": -3,
    "date": 91,
    "datetime": 93,
    "timestamp": 2014,
    "enum": 1,
    "set": 1,
}


def field_of(column: Column) -> dict[str, Any]:
    """Return a column's field in a row's schema."""
    of = column.type
    base = _FIELDS.get(of.base, "string")
    if of.unsigned:
        base = {"tinyint": "int16", "smallint": "int32", "mediumint": "int32"}.get(of.base, "int64")
    more: dict[str, Any] = {}
    if of.base == "decimal":
        base, more = "bytes", {"name": "org.apache.kafka.connect.data.Decimal", "version": 1}
        more["parameters"] = {"scale": str(of.scale), "connect.decimal.precision": str(of.size[0])}
    elif of.base == "date":
        base, more = "int32", {"name": "io.debezium.time.Date", "version": 1}
    elif of.base == "datetime":
        micro = "MicroTimestamp" if of.fraction > 3 else "Timestamp"
        base, more = "int64", {"name": f"io.debezium.time.{micro}", "version": 1}
    elif of.base == "timestamp":
        more = {"name": "io.debezium.time.ZonedTimestamp", "version": 1}
    elif of.labels:
        kind = "Enum" if of.base == "enum" else "EnumSet"
        allowed = ",".join(label.replace(",", "\\,") for label in of.labels)
        more = {"name": f"io.debezium.data.{kind}", "version": 1, "parameters": {"allowed": allowed}}
    if column.now:
        more["default"] = "1970-01-01T00:00:00Z" if of.base == "timestamp" else 0
    elif column.default is not None:
        more["default"] = connect_value(column.default, of)
    return {"type": base, "optional": column.nullable, **more, "field": column.name}


def connect_value(text: str | None, of: Type) -> Any:
    """Return a value as the JSON converter writes it in the connector's default modes."""
    if text is None:
        return None
    if of.is_integer:
        number = int(text)
        return number - 2**64 if of.unsigned and number >= 2**63 else number
    if of.base == "decimal":
        unscaled = int(Decimal(text).scaleb(of.scale))
        size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
    if of.base == "double":
        return float(text)
    if of.base == "date":
        return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days
    if of.base == "datetime":
        since = dt.datetime.fromisoformat(text) - dt.datetime(1970, 1, 1)  # noqa: DTZ001 a wall clock
        return since // dt.timedelta(microseconds=1 if of.fraction > 3 else 1000)
    if of.base == "timestamp":
        return text.replace(" ", "T") + "Z"
    return base64.b64encode(bytes_in(text)).decode() if of.base == "varbinary" else text


_ENUM = {"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"}
_SOURCE = {
    "type": "struct",
    "fields": [
        {"type": "string", "optional": False, "field": "version"},
        {"type": "string", "optional": False, "field": "connector"},
        {"type": "string", "optional": False, "field": "name"},
        {"type": "int64", "optional": False, "field": "ts_ms"},
        {
            "type": "string",
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": _ENUM,
            "default": "false",
            "field": "snapshot",
        },
        {"type": "string", "optional": False, "field": "db"},
        {"type": "string", "optional": True, "field": "sequence"},
        {"type": "int64", "optional": True, "field": "ts_us"},
        {"type": "int64", "optional": True, "field": "ts_ns"},
        {"type": "string", "optional": True, "field": "table"},
        {"type": "int64", "optional": False, "field": "server_id"},
        {"type": "string", "optional": True, "field": "gtid"},
        {"type": "string", "optional": False, "field": "file"},
        {"type": "int64", "optional": False, "field": "pos"},
        {"type": "int32", "optional": False, "field": "row"},
        {"type": "int64", "optional": True, "field": "thread"},
        {"type": "string", "optional": True, "field": "query"},
    ],
    "optional": False,
    "name": "io.debezium.connector.mariadb.Source",
    "version": 1,
    "field": "source",
}


@dataclass
class Debezium(Encoder):
    """Encode Debezium 3.5: one topic for each table and one for schema changes.

    A TRUNCATE is a record in the table's topic. A NULL is never replaced by the default.

    Attributes:
        schemas: whether each record carries its schema, or is the bare payload.
    """

    schemas: bool = True
    protocol: ClassVar[dict[str, Any]] = {"protocol": "debezium"}
    gated: ClassVar[bool] = False
    _topics: dict[str, Stream] = field(default_factory=dict)
    _position: int = 400

    @property
    def settings(self) -> dict[str, Any]:
        return self.protocol

    def split(self, change: RowChange) -> Iterator[RowChange]:
        if not change.resent:
            yield change

    def row(self, change: RowChange) -> None:
        self._position += 100
        place = change.shape.database, change.shape.table
        at = self._source(change.ts, *place)
        if not change.moves:
            op = {"insert": "c", "update": "u", "delete": "d"}[change.op]
            self._change(change.shape, op, change.before, change.after, at, [])
            return
        # A changed key is a deletion, its tombstone and a creation, at one binlog position.
        before, after = change.before or {}, change.after or {}
        headers = [("__debezium.newkey", compact(self._key(change.shape, after)))]
        self._change(change.shape, "d", before, None, at, headers)
        self._change(
            change.shape, "c", None, after, at, [("__debezium.oldkey", compact(self._key(change.shape, before)))]
        )

    def _change(
        self,
        shape: Shape,
        op: str,
        before: Row | None,
        after: Row | None,
        at: dict[str, Any],
        headers: list[tuple[str, bytes]],
    ) -> None:
        payload: dict[str, Any] = {
            "before": self._image(shape, before),
            "after": self._image(shape, after),
            "source": at,
        }
        payload |= {"transaction": None, "op": op} | self._clocks(at["ts_ms"] + 400)
        topic = f"{SERVER}.{shape.database}.{shape.table}"
        key = compact(self._key(shape, after or before or {}))
        self._send(topic, compact(self._envelope(shape, payload)), key, headers)
        if op == "d":
            self._send(topic, None, key, headers)

    @staticmethod
    def _image(shape: Shape, image: Row | None) -> dict[str, Any] | None:
        return None if image is None else {c.name: connect_value(image[c.name], c.type) for c in shape.columns}

    def _key(self, shape: Shape, image: Row) -> dict[str, Any]:
        payload = {k: connect_value(image[k], shape[k].type) for k in shape.key}
        if not self.schemas:
            return payload
        fields = [field_of(shape[k]) for k in shape.key]
        name = f"{SERVER}.{shape.database}.{shape.table}.Key"
        return {"schema": {"type": "struct", "fields": fields, "optional": False, "name": name}, "payload": payload}

    def _envelope(self, shape: Shape, payload: dict[str, Any]) -> dict[str, Any]:
        if not self.schemas:
            return payload
        name = f"{SERVER}.{shape.database}.{shape.table}"
        fields = [field_of(c) for c in shape.columns]
        images = [
            {"type": "struct", "fields": fields, "optional": True, "name": f"{name}.Value", "field": image}
            for image in ("before", "after")
        ]
        clocks = [{"type": "int64", "optional": True, "field": f} for f in ("ts_ms", "ts_us", "ts_ns")]
        rest = [_SOURCE, {"type": "string", "optional": False, "field": "op"}, *clocks]
        schema = {
            "type": "struct",
            "fields": [*images, *rest],
            "optional": False,
            "name": f"{name}.Envelope",
            "version": 2,
        }
        return {"schema": schema, "payload": payload}

    def ddl(self, statement: Statement) -> None:
        self._position += 100
        if statement.kind is Ddl.TRUNCATE:
            (table,) = statement.tables
            at = self._source(statement.ts, *table.name)
            truncate: dict[str, Any] = {"before": None, "after": None, "source": at, "transaction": None, "op": "t"}
            assert table.before is not None
            body = self._envelope(table.before, truncate | self._clocks(at["ts_ms"] + 400))
            self._send(f"{SERVER}.{'.'.join(table.name)}", compact(body), None, [])
            return
        # Debezium sends one message for each table, each with the complete statement.
        for table in statement.tables:
            database, name = table.name
            payload = {
                "source": self._source(statement.ts, statement.database, name or None),
                "ts_ms": seconds(statement.ts) + 400,
                "databaseName": database,
                "schemaName": None,
                "ddl": table.tidb_sql if statement.kind is Ddl.DROP else statement.mysql_sql,
                "tableChanges": [_table_change(statement.kind, table)] if name else [],
            }
            key = {"databaseName": database}
            body = {"schema": _SCHEMA_CHANGE, "payload": payload} if self.schemas else payload
            record_key = {"schema": _SCHEMA_CHANGE_KEY, "payload": key} if self.schemas else key
            self._send(SERVER, compact(body), compact(record_key), [])

    def _source(self, ts: int, database: str, table: str | None) -> dict[str, Any]:
        ms = seconds(ts)
        return {
            "version": "3.5.0.Final",
            "connector": "mariadb",
            "name": SERVER,
            "ts_ms": ms,
            "snapshot": "false",
            "db": database,
            "sequence": None,
            "ts_us": ms * 1000,
            "ts_ns": ms * 1_000_000,
            "table": table,
            "server_id": 223344,
            "gtid": f"0-223344-{self._position // 100}",
            "file": _FILE,
            "pos": self._position,
            "row": 0,
            "thread": None,
            "query": None,
        }

    @staticmethod
    def _clocks(ms: int) -> dict[str, int]:
        return {"ts_ms": ms, "ts_us": ms * 1000, "ts_ns": ms * 1_000_000}

    def _send(self, topic: str, value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        stream = self._topics.setdefault(topic, Stream(1, topic))
        self.stream.records.append(stream.send(value, 0, key=key, headers=headers))


def _table_change(kind: Ddl, table: TableDdl) -> dict[str, Any]:
    identifier = f'"{table.name[0]}"."{table.name[1]}"'
    if table.after is None:
        return {"type": "DROP", "id": identifier, "table": None}
    shape = table.after
    columns = [_described(c, n) for n, c in enumerate(shape.columns, 1)]
    described = {"defaultCharsetName": "utf8mb4", "primaryKeyColumnNames": list(shape.key), "columns": columns}
    return {
        "type": "CREATE" if kind is Ddl.CREATE else "ALTER",
        "id": identifier,
        "table": described | {"comment": None},
    }


def _described(column: Column, position: int) -> dict[str, Any]:
    of = column.type
    name = of.base.upper() + (" UNSIGNED" if of.unsigned else "")
    length = of.size[0] if of.size else None
    if of.labels:
        length = 1 if of.base == "enum" else len(",".join(of.labels))
    return {
        "name": column.name,
        "jdbcType": _JDBC[of.base],
        "nativeType": None,
        "typeName": name,
        "typeExpression": name,
        "charsetName": "utf8mb4" if of.is_text or of.labels else None,
        "length": length,
        "scale": of.scale if of.base == "decimal" else None,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": False,
        "generated": False,
        "comment": None,
        "defaultValueExpression": "1970-01-01 00:00:00" if column.now else column.default,
        "enumValues": [f"'{label}'" for label in of.labels] or None,
    }


_SCHEMA_CHANGE_KEY = {
    "type": "struct",
    "fields": [{"type": "string", "optional": False, "field": "databaseName"}],
    "optional": False,
    "name": "io.debezium.connector.mariadb.SchemaChangeKey",
    "version": 1,
}
# Readers use the payload only, so the outermost level of the schema is enough.
_SCHEMA_CHANGE = {
    "type": "struct",
    "fields": [
        _SOURCE,
        {"type": "int64", "optional": False, "field": "ts_ms"},
        {"type": "string", "optional": True, "field": "databaseName"},
        {"type": "string", "optional": True, "field": "schemaName"},
        {"type": "string", "optional": True, "field": "ddl"},
        {"type": "array", "optional": False, "field": "tableChanges"},
    ],
    "optional": False,
    "name": "io.debezium.connector.mariadb.SchemaChangeValue",
    "version": 1,
}


@dataclass
class DebeziumWithoutSchemas(Debezium):
    """Encode with `schemas.enable=false`: only the schema changes state the types of values."""

    schemas: bool = False
    # A row that comes before its table's CREATE TABLE cannot be typed.
    lanes_apart: ClassVar[bool] = False


BINLOG: dict[str, type[Encoder]] = {
    "canal": Canal,
    "debezium": Debezium,
    "debezium-noschemas": DebeziumWithoutSchemas,
}
