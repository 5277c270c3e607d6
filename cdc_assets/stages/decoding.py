"""Raw records -> change events, whoever asks: where records name schemas of a registry, with these schemas at hand."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.config import Feed, SchemaRegistry
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.registry_schemas import IdKind, RegistryCursor, SchemaId
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.events import believed
from cdc_assets.sources.schema_registry import RegistryError, fetch_schema

# Spark plans a reader for each schema, and a plan may not grow with the number of tables.
SCHEMAS_A_PLAN = 16

# The schemas that one record names, in the order of `Protocol.schema_ids`; None where it names none.
_Ids = tuple[SchemaId | None, ...]


def decode_records(lake: Lakehouse, feed: Feed, raw: DataFrame) -> Iterator[DataFrame]:
    """Decode records of `raw_records` into rows of `change_events`: one frame, or several where they name many schemas.

    Each record's events are in one of the frames.

    Raises:
        RegistryError: a schema is not kept yet, and the registry does not answer.
    """
    protocol, settings = protocol_of(feed), feed.schema_registry
    columns = protocol.schema_ids(feed)
    if settings is None or not columns:
        yield believed(protocol.decode(raw, feed), feed.max_watermark_lead)
        return
    named = _named_schemas(raw, columns)
    answers = _answers(lake, settings, {each for ids in named for each in ids if each})
    groups = list(_groups(named))
    for group in groups:
        records = raw if len(groups) == 1 else raw.where(reduce(or_, (_names(columns, ids) for ids in group)))
        mine = {each: answers[each] for ids in group for each in ids if each}
        yield believed(protocol.with_answers(mine).decode(records, feed), feed.max_watermark_lead)


def _named_schemas(raw: DataFrame, columns: tuple[Column, ...]) -> list[_Ids]:
    """Return the schemas that records name together, each combination once."""
    rows = raw.select(*[column.alias(f"id_{n}") for n, column in enumerate(columns)]).distinct().collect()
    found = [tuple(SchemaId(IdKind(each["kind"]), each["number"]) if each else None for each in row) for row in rows]
    return sorted(found, key=lambda ids: [(each is not None, each or ()) for each in ids])


def _groups(named: Iterable[_Ids]) -> Iterator[list[_Ids]]:
    """Put combinations into groups of no more than `SCHEMAS_A_PLAN` schemas; at least one group, maybe of nothing."""
    group: list[_Ids] = []
    schemas: set[SchemaId] = set()
    for ids in named:
        more = {each for each in ids if each}
        if group and len(schemas | more) > SCHEMAS_A_PLAN:
            yield group
            group, schemas = [], set()
        group.append(ids)
        schemas |= more
    yield group


def _names(columns: tuple[Column, ...], ids: _Ids) -> Column:
    """Whether a record names just these schemas. BOOLEAN, never NULL."""
    same = F.lit(True)
    for column, each in zip(columns, ids, strict=True):
        number = F.lit(each.number if each else None).cast("bigint")
        kind = F.lit(str(each.kind) if each else None).cast("string")
        same = same & column["number"].eqNullSafe(number) & column["kind"].eqNullSafe(kind)
    return same


def _answers(lake: Lakehouse, settings: SchemaRegistry, ids: set[SchemaId]) -> dict[SchemaId, str | None]:
    """Return the schemas of these ids: those that are kept; the others the registry gives, and they are kept from now on.

    For an id that the registry did not know it is asked again: the schema may have been restored. If it does not answer
    then, its first answer stands.
    """
    kept = lake.kept_schemas()
    new: dict[SchemaId, str | None] = {}
    for each in sorted(ids):
        if kept.get(each) is None:
            try:
                new[each] = fetch_schema(settings, each)
            except RegistryError:
                if each not in kept:
                    raise
    rows = [
        {"id_kind": str(each.kind), "id": each.number, "schema": schema, "fetched_at": datetime.now(UTC)}
        for each, schema in new.items()
        if each not in kept or schema is not None
    ]
    if rows:
        cursor = lake.registry_schemas.cursor() or RegistryCursor(sequence=0)
        staged = lake.registry_schemas.stage_rows(rows)
        lake.registry_schemas.commit(staged, RegistryCursor(sequence=cursor.sequence + 1))
    return {each: (kept | new)[each] for each in ids}
