"""type_observations: what messages have said of each column's type, and whether that is as the protocol's tables have it."""

from dataclasses import dataclass

from pyspark.sql.types import StructType

from cdc_assets.tables.cursor import Cursor
from cdc_assets.tables.schema import BIGINT, INT, STRING, column
from cdc_assets.tables.table import Definition


@dataclass(frozen=True, kw_only=True)
class TypesCursor(Cursor):
    """Up to which raw batch the types of events are judged.

    Attributes:
        batch: the newest raw batch.
        settings: what of the feed's settings the verdicts go by.
        refused_after: events of later batches break a mapping, and the feed's settings refuse that; None: none do.
        unknown_after: events of later batches name a schema that was not known; None: none do.
        schemas: the sequence of table_schemas that they were looked up in.
    """

    batch: int = 0
    settings: str = ""
    refused_after: int | None = None
    unknown_after: int | None = None
    schemas: int = 0


TYPE_OBSERVATIONS = Definition(
    columns=StructType(
        [
            column("database", STRING, "The source's database."),
            column("table", STRING, "The source's table."),
            column("column", STRING, "The source's column."),
            column("mysql_type", STRING, "Its MySQL type, as messages or the table's schema have it."),
            column("told", STRING, "What else messages say of it, in the protocol's own words: a JSON object."),
            column("expected", STRING, "What the protocol's tables have beside that type."),
            column("mysql_type_verdict", STRING, "ok, or what is wrong with the MySQL type."),
            column("code_verdict", STRING, "ok, or what is wrong with the rest."),
            column("events", BIGINT, "In how many events."),
            column("batch", BIGINT, "The newest raw batch of the run that saw them."),
            column("topic", STRING, "Topic of the record of one of them."),
            column("partition", INT, "Its partition."),
            column("offset", BIGINT, "Its offset."),
            column("sample_value", STRING, "The column's value there, where the value matters."),
        ]
    ),
    cursor=TypesCursor,
    statistics=("batch",),
)
