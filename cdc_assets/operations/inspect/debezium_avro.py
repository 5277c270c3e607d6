"""What Debezium's records in Avro state, decoded as the pipeline does, by the schemas of a schema registry."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Row, SparkSession

from cdc_assets.config import Feed
from cdc_assets.lakehouse.raw_records import RAW_RECORDS, RecordPlace, record_place
from cdc_assets.operations.inspect.debezium import facts_of_payload
from cdc_assets.operations.inspect.facts import MessageFacts, unknown
from cdc_assets.operations.inspect.messages import has_schema_id
from cdc_assets.operations.inspect.samples import SampledRecord, TopicSample
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.debezium import avro
from cdc_assets.protocols.debezium.decoding import PAYLOAD
from cdc_assets.sources.schema_registry import default_id_kind, fetch_schema
from cdc_assets.spark.session import session_for
from cdc_assets.stages.decoding import split_by_schemas


def read_avro(
    start_spark: Callable[[], SparkSession], feed: Feed, samples: Iterable[TopicSample]
) -> dict[RecordPlace, MessageFacts]:
    """Return what each sampled record with a schema id states.

    Args:
        start_spark: returns the session; not called if no record has an id.
        feed: a feed with `schema_registry`.
        samples: records of topics.

    Raises:
        RegistryError: the registry does not answer.
    """
    registry = feed.schema_registry
    records = [record for sample in samples for record in sample.records if has_schema_id(record)]
    if registry is None or not records:
        return {}
    session = session_for(start_spark(), len(records))
    raw = session.createDataFrame([_raw_record(each) for each in records], RAW_RECORDS.columns)
    parts = split_by_schemas(
        raw, protocol_of(feed).schema_ids(feed), lambda ids: {each: fetch_schema(registry, each) for each in ids}
    )
    read = (avro.read_records(part, schemas, default_id_kind(registry), PAYLOAD) for part, schemas in parts)
    rows = [row for part in read for row in part.collect()]
    return {record_place(row.asDict()): _facts(row) for row in rows}


def _raw_record(record: SampledRecord) -> dict[str, Any]:
    """Return a record as a row of `raw_records`."""
    headers = [{"key": each.key, "value": each.value} for each in record.headers or ()]
    return dict.fromkeys(RAW_RECORDS.columns.names) | {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key,
        "value": record.value,
        "headers": headers,
    }


def _facts(row: Row) -> MessageFacts:
    """Return what a record states; in: a row of `avro.read_records`."""
    payload = {} if row["e"] is None else _payload(row["e"].asDict(recursive=True))
    # The pipeline uses the keys of rows only.
    if reason := row["value_reason"] or ("op" in payload and row["key_reason"]):
        return unknown(f"an Avro record that cannot be decoded ({reason}): {row['schema_note']}")
    key = None if row["key_names"] is None else dict.fromkeys(row["key_names"])
    facts = facts_of_payload(payload, json.loads(row["row_fields"] or "[]"), key)
    if facts is None:
        return unknown(f"an Avro record with the fields {', '.join(sorted(payload))}")
    return replace(facts, encoding="avro", evidence=f"Avro with schema ids; {facts.evidence}")


def _payload(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with its JSON texts parsed, and without the fields that are NULL."""
    fields = {name: value for name, value in message.items() if value is not None}
    return {name: json.loads(value) if PAYLOAD[name] == "json" else value for name, value in fields.items()}
