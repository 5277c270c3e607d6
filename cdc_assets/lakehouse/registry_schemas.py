"""registry_schemas: the schemas that a feed's records name by id, as the schema registry gave them.

A schema never changes under its id, so each is fetched once and kept. A rebuild, which decodes again, needs no registry.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, STRING, TIMESTAMP, column
from cdc_assets.lakehouse.table import Definition


class IdKind(StrEnum):
    """The kinds of schema ids."""

    SCHEMA = "schema"  # Confluent's API has only these
    GLOBAL = "globalId"  # Apicurio's API: the id of a version of an artifact
    CONTENT = "contentId"  # Apicurio's API: the id of a content, which several versions may have

    def header(self, part: str) -> str:
        """Return the name of Apicurio's header with the id of a record's `key` or `value`."""
        return f"apicurio.{part}.{self}"


class SchemaId(NamedTuple):
    """An id of a schema in the feed's registry."""

    kind: IdKind
    number: int


@dataclass(frozen=True, kw_only=True)
class RegistryCursor(Cursor):
    """The cursor of registry_schemas; `sequence` is the number of commits."""


REGISTRY_SCHEMAS = Definition(
    columns=StructType(
        [
            column("id_kind", STRING, f"The kind of the id: {', '.join(IdKind)}."),
            column("id", BIGINT, "The schema's id in records."),
            column("schema", STRING, "The text of the schema; null if the registry had no schema of this id."),
            column("fetched_at", TIMESTAMP, "When the schema was fetched."),
        ]
    ),
    cursor=RegistryCursor,
)
