"""What a message of a Debezium connector states, or of TiCDC's Debezium output."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cdc_assets.operations.inspect.facts import DEBEZIUM, MessageFacts, TableFacts, json_of
from cdc_assets.operations.inspect.samples import SampledRecord

# The schema of an envelope, as Connect's JSON converter writes it; None: there is none.
_Schema = Mapping[str, Any] | None

_METADATA_SWITCH = "provide.transaction.metadata=true"
# Kind -> the fields that such a message has, and the settings of the connector that it shows.
_CONTROL_MESSAGES = {
    "transaction": (("status", "id", "event_count"), {_METADATA_SWITCH}),
    "notification": (("id", "aggregate_type", "type"), set[str]()),
}


def facts_of(message: Mapping[str, Any], record: SampledRecord) -> MessageFacts | None:
    """Return what a JSON object states; None where no connector of Debezium sends such an object."""
    has_schema = {"schema", "payload"} <= message.keys()
    payload = message["payload"] if isinstance(message.get("payload"), dict) and len(message) <= 2 else message
    schema = message["schema"] if has_schema else None
    facts = _change(payload, schema, record) or _schema_change(payload) or _control_message(payload, record)
    if facts is None:
        return None
    return replace(facts, switches=facts.switches | {f"schemas.enable={str(bool(schema)).lower()}"})


def _change(payload: Mapping[str, Any], schema: _Schema, record: SampledRecord) -> MessageFacts | None:
    source = payload.get("source")
    if not isinstance(source, dict) or "op" not in payload or "connector" not in source:
        return None
    fields = _fields_of(schema, "after") or _fields_of(schema, "before")
    image = payload.get("after") or payload.get("before") or {}
    columns = {name: _connect_type(fields.get(name)) for name in image}
    switches = _modes(fields.values()) | ({_METADATA_SWITCH} if payload.get("transaction") else set())
    evidence = "the fields op and source"
    if payload["op"] == "m":
        return _of_connector(source, "watermark", evidence, switches, watermark=source.get("commit_ts"))
    name, key = (source.get("db") or "", source.get("table") or ""), tuple(_key_of(record) or ())
    tables = [TableFacts(*name, key, columns, has_complete_row=bool(payload.get("after")))] if name[1] else []
    return _of_connector(source, "row", evidence, switches, tables)


def _schema_change(payload: Mapping[str, Any]) -> MessageFacts | None:
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
            key = tuple(table.get("primaryKeyColumnNames") or ())
            tables.append(TableFacts(names[-2], names[-1], key, columns, has_complete_row=True))
    is_new = all(change.get("type") == "CREATE" for change in payload["tableChanges"] or ())
    evidence = "the fields source and tableChanges"
    return _of_connector(source, "schema" if is_new else "ddl", evidence, {"schema-change topic"}, tables)


def _control_message(payload: Mapping[str, Any], record: SampledRecord) -> MessageFacts | None:
    """Return what a message states that is about no table: of a transaction, a snapshot, or a heartbeat."""
    for kind, (fields, switches) in _CONTROL_MESSAGES.items():
        if payload.keys() >= set(fields):
            return MessageFacts(
                DEBEZIUM, "Debezium", kind, f"the fields {', '.join(fields)}", switches=frozenset(switches)
            )
    if set(payload) != {"ts_ms"} or "serverName" not in (_key_of(record) or {}):
        return None
    evidence = "the field ts_ms alone, and a key serverName"
    return MessageFacts(DEBEZIUM, "Debezium", "heartbeat", evidence, switches=frozenset({"heartbeat.interval.ms"}))


def _key_of(record: SampledRecord) -> dict[str, Any] | None:
    """Return the object that is a record's key; None where the key is none."""
    key = json_of(record.key)
    payload = key.get("payload", key) if isinstance(key, dict) else None
    return payload if isinstance(payload, dict) else None


def _of_connector(
    source: Mapping[str, Any],
    kind: str,
    evidence: str,
    switches: set[str],
    tables: Iterable[TableFacts] = (),
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
        tables=tuple(tables),
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
