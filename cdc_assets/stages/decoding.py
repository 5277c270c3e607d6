"""Decoding of raw records into change events, with the registry schemas that the records name.

The stage change_events decodes new records, and replay_quarantine decodes undecodable records again.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial, reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.config import Feed, SchemaRegistry
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.registry_schemas import IdKind, RegistryCursor, SchemaId
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import SchemaTexts
from cdc_assets.protocols.events import reject_watermarks_ahead
from cdc_assets.sources.schema_registry import RegistryError, fetch_schema

# Spark plans a reader for each schema, and the size of a plan must not follow the number of tables.
_SCHEMAS_A_PLAN = 16

# The schemas that one record names, in the order of `Protocol.schema_ids`; None for a part without an id.
_Ids = tuple[SchemaId | None, ...]


def decode_records(lake: Lakehouse, feed: Feed, raw: DataFrame) -> Iterator[DataFrame]:
    """Decode records: yield one frame, or several if the records name many schemas.

    In: rows of `raw_records`. Out: rows of `change_events`; all events of a record are in one of the frames.

    Raises:
        RegistryError: a schema is not kept yet, and the registry does not answer.
    """
    protocol, settings = protocol_of(feed), feed.schema_registry
    id_columns = protocol.schema_ids(feed)
    if settings is None or not id_columns:
        yield reject_watermarks_ahead(protocol.decode(raw, feed), feed.max_watermark_lead)
        return
    for records, schemas in split_by_schemas(raw, id_columns, partial(_complete_schemas, lake, settings)):
        decoded = protocol.with_schemas(schemas).decode(records, feed)
        yield reject_watermarks_ahead(decoded, feed.max_watermark_lead)


def split_by_schemas(
    raw: DataFrame, id_columns: tuple[Column, ...], fetch: Callable[[set[SchemaId]], SchemaTexts]
) -> Iterator[tuple[DataFrame, SchemaTexts]]:
    """Yield the records in parts that name few schemas, each with the texts of its schemas.

    Args:
        raw: rows of `raw_records`.
        id_columns: the ids of the schemas that a record names, as of `Protocol.schema_ids`.
        fetch: returns the texts of the schemas of these ids.
    """
    combinations = _list_combinations(raw, id_columns)
    schemas = fetch({schema for ids in combinations for schema in ids if schema})
    size = _SCHEMAS_A_PLAN // len(id_columns)
    groups = [combinations[start : start + size] for start in range(0, len(combinations) or 1, size)]
    for group in groups:
        is_single = len(groups) == 1
        records = raw if is_single else raw.where(reduce(or_, (_has_ids(id_columns, ids) for ids in group)))
        yield records, {schema: schemas[schema] for ids in group for schema in ids if schema}


def _list_combinations(raw: DataFrame, id_columns: tuple[Column, ...]) -> list[_Ids]:
    """Return the distinct combinations of schemas that single records name."""
    rows = raw.select(*[column.alias(f"id_{n}") for n, column in enumerate(id_columns)]).distinct().collect()
    combinations = [tuple(SchemaId(IdKind(id_["kind"]), id_["number"]) if id_ else None for id_ in row) for row in rows]
    return sorted(combinations, key=lambda ids: [(schema is not None, schema or ()) for schema in ids])


def _has_ids(id_columns: tuple[Column, ...], ids: _Ids) -> Column:
    """Return whether a record names exactly these schemas. BOOLEAN, never NULL."""
    is_same = F.lit(True)
    for column, schema in zip(id_columns, ids, strict=True):
        number = F.lit(schema.number if schema else None).cast("bigint")
        kind = F.lit(str(schema.kind) if schema else None).cast("string")
        is_same = is_same & column["number"].eqNullSafe(number) & column["kind"].eqNullSafe(kind)
    return is_same


def _complete_schemas(lake: Lakehouse, settings: SchemaRegistry, ids: set[SchemaId]) -> dict[SchemaId, str | None]:
    """Return the texts of the schemas of these ids; fetch those that are not kept, and keep them.

    An id without a schema is fetched again, because the schema may have been restored. If the registry does not answer
    then, its first answer counts.
    """
    kept = lake.kept_schemas()
    fetched: dict[SchemaId, str | None] = {}
    for schema in sorted(ids):
        if kept.get(schema) is None:
            try:
                fetched[schema] = fetch_schema(settings, schema)
            except RegistryError:
                if schema not in kept:
                    raise
    rows = [
        {"id_kind": str(schema.kind), "id": schema.number, "schema": text, "fetched_at": datetime.now(UTC)}
        for schema, text in fetched.items()
        if schema not in kept or text is not None
    ]
    if rows:
        cursor = lake.registry_schemas.cursor() or RegistryCursor(sequence=0)
        staged = lake.registry_schemas.stage_rows(rows)
        lake.registry_schemas.commit(staged, RegistryCursor(sequence=cursor.sequence + 1))
    return {schema: (kept | fetched)[schema] for schema in ids}
