"""Which protocol a Kafka record is of, and what it states."""

from dataclasses import replace

from cdc_assets.lakehouse.registry_schemas import IdKind
from cdc_assets.operations.inspect import canal_json, debezium, open_protocol, simple
from cdc_assets.operations.inspect.facts import MessageFacts, decompressed, json_of, unknown
from cdc_assets.operations.inspect.samples import SampledRecord

_ID_BYTES = 5  # 0, then a schema id
_ID_HEADERS = {kind.header("value") for kind in (IdKind.GLOBAL, IdKind.CONTENT)}


def facts_of(record: SampledRecord) -> MessageFacts:
    """Return what a record states. A record that no protocol explains has `protocol` None, and the reason as `evidence`."""
    if record.value is None:
        return MessageFacts(None, "tombstone", "tombstone", "a record without a value")
    value, compression = decompressed(record.value)
    try:
        facts = _recognised(record, value)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return unknown("a message of which a field has another type than its protocol prescribes")
    return replace(facts, switches=facts.switches | {f"compression: {compression}"}) if compression else facts


def has_schema_id(record: SampledRecord) -> bool:
    """Return whether the value or a header has the id of a schema in a schema registry."""
    value, headers = record.value or b"", record.headers or ()
    if value[:1] == b"\x00":
        return len(value) > _ID_BYTES
    # JSON may have such a header, too. No Avro of Debezium begins like JSON: `{` would be a negative length or branch.
    return value[:1] not in (b"", b"{") and any(each.key in _ID_HEADERS for each in headers)


def _recognised(record: SampledRecord, value: bytes) -> MessageFacts:
    if (record.key or b"").startswith(open_protocol.BEGINS):
        return open_protocol.facts_of(record)
    if has_schema_id(record):
        return unknown("the value, or a header, has a schema id in a wire format of a schema registry")
    if value[:1] == b"\x16":
        return simple.facts_of_avro(value)
    message = json_of(value)
    if not isinstance(message, dict):
        return unknown(f"the value is no JSON object; it begins with the bytes {value[:16].hex(' ')}")
    facts = canal_json.facts_of(message) or simple.facts_of_json(message) or debezium.facts_of(message, record)
    return facts or unknown(f"a JSON object with the fields {', '.join(sorted(message)[:12])}")
