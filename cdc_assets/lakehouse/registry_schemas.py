"""registry_schemas: the schemas that a feed's records name by id, as the schema registry gave them.

A schema never changes under its id, so each is asked for once, and kept: a rebuild, which decodes again, asks for none.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, STRING, TIMESTAMP, column
from cdc_assets.lakehouse.table import Definition


class IdKind(StrEnum):
    """What an id numbers."""

    SCHEMA = "schema"  # in Confluent's API
    GLOBAL = "globalId"  # in Apicurio's: an artifact's version
    CONTENT = "contentId"  # in Apicurio's: a content, which several versions may have


class SchemaId(NamedTuple):
    """An id of a schema in the feed's registry."""

    kind: IdKind
    number: int


@dataclass(frozen=True, kw_only=True)
class RegistryCursor(Cursor):
    """`sequence` is the number of commits."""


REGISTRY_SCHEMAS = Definition(
    columns=StructType(
        [
            column("id_kind", STRING, f"What the id numbers: {', '.join(IdKind)}."),
            column("id", BIGINT, "The schema's id, as records have it."),
            column("schema", STRING, "The schema, as the registry gave it; null: the registry had none of this id."),
            column("fetched_at", TIMESTAMP, "When the registry was asked."),
        ]
    ),
    cursor=RegistryCursor,
)
