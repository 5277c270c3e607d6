"""What a message of a Debezium connector states, or of TiCDC's Debezium output."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc_assets.operations.inspect.facts import DEBEZIUM, MessageFacts, TableFacts, json_of
from cdc_assets.operations.inspect.samples import SampledRecord

# The schema of an envelope, as Connect's JSON converter writes it; None: there is none.
_Schema = Mapping[str, Any] | None
_Field = Mapping[str, Any]  # the schema of one field

_METADATA_SWITCH = "provide.transaction.metadata=true"
_NOTIFICATION = {"id", "aggregate_type", "type"}


def facts_of(message: Mapping[str, Any], record: SampledRecord) -> MessageFacts | None:
    """Return what a JSON object states; None where no connector of Debezium sends such an object."""
    has_schema = {"schema", "payload"} <= message.keys()
    payload = message["payload"] if isinstance(message.get("payload"), dict) and len(message) <= 2 else message
    schema = message["schema"] if has_schema else None
    row_fields = _fields_of(schema, "after") or _fields_of(schema, "before")
    facts = facts_of_payload(payload, row_fields, _key_of(record))
    if facts is None:
        return None
    return replace(facts, switches=facts.switches | {f"schemas.enable={str(bool(schema)).lower()}"})


def facts_of_payload(
    payload: Mapping[str, Any], row_fields: Iterable[_Field], key: Mapping[str, Any] | None
) -> MessageFacts | None:
    """Return what a message states; None where no connector of Debezium sends such a message.

    Args:
        payload: the message, without its schema.
        row_fields: the fields of the row's schema, as Connect's JSON converter writes them; empty without a schema.
        key: the record's key, without its schema; None where the record has none.
    """
    return _change(payload, row_fields, key) or _schema_change(payload) or _control_message(payload, key)


def _change(
    payload: Mapping[str, Any], row_fields: Iterable[_Field], key_columns: Mapping[str, Any] | None
) -> MessageFacts | None:
    source = payload.get("source")
    if not isinstance(source, dict) or "op" not in payload or "connector" not in source:
        return None
    fields = {str(each.get("field")): each for each in row_fields}
    image = payload.get("after") or payload.get("before") or {}
    columns = {name: _connect_type(fields.get(name)) for name in image}
    switches = _modes(fields.values()) | ({_METADATA_SWITCH} if payload.get("transaction") else set())
    evidence = "the fields op and source"
    if payload["op"] == "m":
        return _of_connector(source, "watermark", evidence, switches, watermark=source.get("commit_ts"))
    name, key = (source.get("db") or "", source.get("table") or ""), tuple(key_columns or ())
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


def _control_message(payload: Mapping[str, Any], key: Mapping[str, Any] | None) -> MessageFacts | None:
    """Return what a message states that is about no table: of a transaction, a snapshot, or a heartbeat."""
    if payload.get("status") in {"BEGIN", "END"} and "id" in payload:
        switches = frozenset({_METADATA_SWITCH})
        return MessageFacts(DEBEZIUM, "Debezium", "transaction", "the fields status, id", switches=switches)
    if payload.keys() >= _NOTIFICATION:
        return MessageFacts(DEBEZIUM, "Debezium", "notification", "the fields id, aggregate_type, type")
    if set(payload) != {"ts_ms"} or "serverName" not in (key or {}):
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


def _fields_of(schema: _Schema, image: str) -> Sequence[_Field]:
    for part in (schema or {}).get("fields") or ():
        if part.get("field") == image:
            return part.get("fields") or ()
    return ()


def _connect_type(field_schema: _Field | None) -> str:
    if field_schema is None:
        return ""
    source = (field_schema.get("parameters") or {}).get("__debezium.source.column.type")
    return str(source or field_schema.get("name") or field_schema.get("type") or "")


def _modes(fields: Iterable[_Field]) -> set[str]:
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
