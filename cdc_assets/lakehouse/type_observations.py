"""type_observations: what messages have stated of each column's type, and whether the protocol's tables permit it."""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, INT, STRING, column, struct
from cdc_assets.lakehouse.table import Definition


@dataclass(frozen=True)
class Refused:
    """A table that the gate must hold, because its events break a type mapping and the feed has `type_mapping: block`.

    Attributes:
        database: the source's database.
        table: the source's table.
        commit_ts: the lowest commit_ts of an event that breaks a mapping.
        batch: the lowest raw batch of such an event.
        first: the event with the lowest commit_ts: topic, partition, offset, record_ms (Kafka's time), `column`, `problem`
            (what is wrong, for people) and, if the advice differs from the usual, `advice`.
    """

    database: str
    table: str
    commit_ts: int
    batch: int
    first: dict[str, Any]


@dataclass(frozen=True)
class Doubted:
    """A table whose events are checked again when table_schemas has more rows about it.

    Attributes:
        database: the source's database.
        table: the source's table.
        after: events of later raw batches than this one are checked again.
        schemas: how many rows table_schemas had about the table.
    """

    database: str
    table: str
    after: int
    schemas: int


@dataclass(frozen=True, kw_only=True)
class TypesCursor(Cursor):
    """How far the types of events are checked.

    Attributes:
        batch: the newest raw batch whose events are checked.
        settings: the feed's settings that the verdicts depend on, and the version of the rules.
        refused: the tables that break a type mapping.
        doubted: the tables to check again: those in `refused`, and those with rows whose schema has not come.
        schemas: the sequence of table_schemas that was used.
        distinct: how many different observations the table has.
    """

    batch: int = 0
    settings: str = ""
    refused: list[Refused] = field(default_factory=list)
    doubted: list[Doubted] = field(default_factory=list)
    schemas: int = 0
    distinct: int = 0


_PLACE = struct(commit_ts=BIGINT, topic=STRING, partition=INT, offset=BIGINT)

TYPE_OBSERVATIONS = Definition(
    columns=StructType(
        [
            column("database", STRING, "The source's database."),
            column("table", STRING, "The source's table."),
            column("column", STRING, "The source's column."),
            column("mysql_type", STRING, "Its MySQL type, as messages or the table's schema state it."),
            column(
                "stated", STRING, "What else messages state of its type, in the protocol's own terms: a JSON object."
            ),
            column("expected", STRING, "What the protocol prescribes for that type."),
            column("mysql_type_verdict", STRING, "ok, or what is wrong with the MySQL type."),
            column("code_verdict", STRING, "ok, or what is wrong with `stated`."),
            column("events", BIGINT, "How many events the run saw with it, in raw batches that no earlier row counts."),
            column("first_batch", BIGINT, "The lowest raw batch of these events."),
            column("batch", BIGINT, "The newest raw batch of the run that saw them."),
            column("first", _PLACE, "The event with the lowest commit_ts."),
            column("last", _PLACE, "The event with the highest commit_ts."),
            column(
                "sample_value", STRING, "The column's value in the first event, if the verdict depends on the value."
            ),
        ]
    ),
    cursor=TypesCursor,
    statistics=("batch",),
)
