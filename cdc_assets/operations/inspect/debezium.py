"""What a message of a Debezium connector states, or of TiCDC's Debezium output."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cdc_assets.operations.inspect.facts import DEBEZIUM, MessageFacts, TableFacts, json_of
from cdc_assets.operations.inspect.samples import SampledRecord

# The schema of an envelope, as Connect's JSON converter writes it; None: there is none.
_Schema = Mapping[str, Any] | None


def facts_of(message: Mapping[str, Any], record: SampledRecord) -> MessageFacts | None:
    """Return what a JSON object states; None where no connector of Debezium sends such an object."""
    has_schema = {"schema", "payload"} <= message.keys()
    payload = message["payload"] if isinstance(message.get("payload"), dict) and len(message) <= 2 else message
    for recognise in (_change, _schema_change, _transaction, _notification, _heartbeat):
        facts = recognise(payload, message.get("schema") if has_schema else None, record)
        if facts is not None:
            switches = facts.switches | {f"schemas.enable={str(bool(has_schema and message['schema'])).lower()}"}
            return replace(facts, switches=switches)
    return None


def _change(payload: Mapping[str, Any], schema: _Schema, record: SampledRecord) -> MessageFacts | None:
    source = payload.get("source")
    if not isinstance(source, dict) or "op" not in payload or "connector" not in source:
        return None
    fields = _fields_of(schema, "after") or _fields_of(schema, "before")
    image = payload.get("after") or payload.get("before") or {}
    columns = {name: _connect_type(fields.get(name)) for name in image}
    key = json_of(record.key)
    names = key.get("payload", key) if isinstance(key, dict) else None
    table = TableFacts(
        source.get("db") or "",
        source.get("table") or "",
        tuple(names) if isinstance(names, dict) else (),
        columns,
        bool(payload.get("after")),
    )
    switches = _modes(fields.values())
    if payload.get("transaction"):
        switches.add("provide.transaction.metadata=true")
    watermark = source.get("commit_ts") if payload["op"] == "m" else None
    kind = "watermark" if payload["op"] == "m" else "row"
    tables = (table,) if kind == "row" and table.table else ()
    return _of_connector(source, kind, "the fields op and source", switches, tables, watermark)


def _schema_change(payload: Mapping[str, Any], _: _Schema, __: SampledRecord) -> MessageFacts | None:
    source = payload.get("source")
    if not isinstance(source, dict) or "tableChanges" not in payload:
        return None
    tables = []
    for change in payload["tableChanges"] or ():
        table = change.get("table") or {}
        names = [part.strip('"') for part in str(change.get("id", "")).split(".")]
        columns = {
            c["name"]: str(c.get("typeExpression") or c.get("typeName") or "") for c in table.get("columns") or ()
        }
        if len(names) >= 2 and columns:
            tables.append(
                TableFacts(
                    names[-2],
                    names[-1],
                    tuple(table.get("primaryKeyColumnNames") or ()),
                    columns,
                    has_complete_row=True,
                )
            )
    is_new = all(change.get("type") == "CREATE" for change in payload["tableChanges"] or ())
    kind = "schema" if is_new else "ddl"
    return _of_connector(source, kind, "the fields source and tableChanges", {"schema-change topic"}, tuple(tables))


def _transaction(payload: Mapping[str, Any], _: _Schema, __: SampledRecord) -> MessageFacts | None:
    if not {"status", "id", "event_count"} <= payload.keys():
        return None
    switches = frozenset({"provide.transaction.metadata=true"})
    return MessageFacts(DEBEZIUM, "Debezium", "transaction", "the fields status, id, event_count", switches=switches)


def _notification(payload: Mapping[str, Any], _: _Schema, __: SampledRecord) -> MessageFacts | None:
    if not {"aggregate_type", "type", "id"} <= payload.keys():
        return None
    return MessageFacts(DEBEZIUM, "Debezium", "notification", "the fields id, aggregate_type, type")


def _heartbeat(payload: Mapping[str, Any], _: _Schema, record: SampledRecord) -> MessageFacts | None:
    key = json_of(record.key)
    key = key.get("payload", key) if isinstance(key, dict) else {}
    if set(payload) != {"ts_ms"} or "serverName" not in key:
        return None
    switches = frozenset({"heartbeat.interval.ms"})
    return MessageFacts(
        DEBEZIUM, "Debezium", "heartbeat", "the field ts_ms alone, and a key serverName", switches=switches
    )


def _of_connector(
    source: Mapping[str, Any],
    kind: str,
    evidence: str,
    switches: set[str],
    tables: tuple[TableFacts, ...],
    watermark: int | None = None,
) -> MessageFacts:
    is_ticdc = source.get("connector") == "TiCDC"
    dialect = (
        "TiCDC's Debezium output" if is_ticdc else f"Debezium {source.get('version')} for {source.get('connector')}"
    )
    return MessageFacts(
        DEBEZIUM,
        dialect,
        kind,
        f"{evidence}; connector {source.get('connector')}",
        switches=frozenset(switches),
        tables=tables,
        watermark=watermark,
        source=str(source.get("name") or ""),
    )


def _fields_of(schema: _Schema, image: str) -> dict[str, Mapping[str, Any]]:
    for part in (schema or {}).get("fields") or ():
        if part.get("field") == image:
            return {str(f.get("field")): f for f in part.get("fields") or ()}
    return {}


def _connect_type(field_schema: Mapping[str, Any] | None) -> str:
    if field_schema is None:
        return ""
    source = (field_schema.get("parameters") or {}).get("__debezium.source.column.type")
    return str(source or field_schema.get("name") or field_schema.get("type") or "")


def _modes(fields: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the settings of the connector that the types of its schema show."""
    modes = set()
    for each in fields:
        name = str(each.get("name") or "")
        if name == "org.apache.kafka.connect.data.Decimal":
            modes.add("decimal.handling.mode=precise")
        elif name.startswith("org.apache.kafka.connect.data."):
            modes.add("time.precision.mode=connect")
        elif name in {"io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp", "io.debezium.time.MicroTime"}:
            modes.add("time.precision.mode=adaptive_time_microseconds")
        elif name.startswith("io.debezium.time.Nano"):
            modes.add("time.precision.mode=nanoseconds")
        if "__debezium.source.column.type" in (each.get("parameters") or {}):
            modes.add("column.propagate.source.type")
    return modes
