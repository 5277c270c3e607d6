"""Which protocol a Kafka record is of, and what it states."""

from dataclasses import replace

from cdc_assets.operations.inspect import canal_json, debezium, open_protocol, simple
from cdc_assets.operations.inspect.facts import MessageFacts, decompressed, json_of, unknown
from cdc_assets.operations.inspect.samples import SampledRecord

_REGISTRY_HEADER = 5  # bytes: 0, then a schema id


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


def _recognised(record: SampledRecord, value: bytes) -> MessageFacts:
    if (record.key or b"").startswith(open_protocol.BEGINS):
        return open_protocol.facts_of(record)
    if value[:1] == b"\x00" and len(value) > _REGISTRY_HEADER:
        return unknown("the value begins with byte 0 and a schema id: the wire format of a schema registry")
    if value[:1] == b"\x16":
        return simple.facts_of_avro(value)
    message = json_of(value)
    if not isinstance(message, dict):
        return unknown(f"the value is no JSON object; it begins with the bytes {value[:16].hex(' ')}")
    facts = canal_json.facts_of(message) or simple.facts_of_json(message) or debezium.facts_of(message, record)
    return facts or unknown(f"a JSON object with the fields {', '.join(sorted(message)[:12])}")
