"""type_observations: what messages have said of each column's type, and whether that is as the protocol's tables have it."""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, INT, STRING, column, struct
from cdc_assets.lakehouse.table import Definition


@dataclass(frozen=True)
class Refused:
    """A table whose events break a mapping, which the feed's settings do not accept: what the gate is to hold.

    Attributes:
        database: of the table.
        table: its name.
        commit_ts: the lowest of an event that breaks a mapping.
        batch: the lowest raw batch of one.
        first: of the event with the lowest commit_ts: topic, partition, offset, record_ms (Kafka's time), and `column` and
            `told`, what is wrong with it in words; `advice`: what to do, where it is something of its own.
    """

    database: str
    table: str
    commit_ts: int
    batch: int
    first: dict[str, Any]


@dataclass(frozen=True)
class Doubted:
    """A table whose events are judged again when more is known of it, or accepted.

    Attributes:
        database: of the table.
        table: its name.
        after: the events of later raw batches.
        schemas: how many rows table_schemas had about it.
    """

    database: str
    table: str
    after: int
    schemas: int


@dataclass(frozen=True, kw_only=True)
class TypesCursor(Cursor):
    """Up to which raw batch the types of events are judged.

    Attributes:
        batch: the newest raw batch.
        settings: what the verdicts go by of the feed's settings, and the version of the rules.
        refused: the tables that are refused.
        doubted: those that are refused, and those with rows whose schema is not known.
        schemas: the sequence of table_schemas that they were looked up in.
        distinct: how many different observations there are.
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
            column("mysql_type", STRING, "Its MySQL type, as messages or the table's schema have it."),
            column("told", STRING, "What else messages say of it, in the protocol's own words: a JSON object."),
            column("expected", STRING, "What the protocol's tables have beside that type."),
            column("mysql_type_verdict", STRING, "ok, or what is wrong with the MySQL type."),
            column("code_verdict", STRING, "ok, or what is wrong with the rest."),
            column(
                "events", BIGINT, "In how many events of the raw batches up to `batch`, after those of rows before."
            ),
            column("first_batch", BIGINT, "The lowest raw batch of one of them."),
            column("batch", BIGINT, "The newest raw batch of the run that saw them."),
            column("first", _PLACE, "The one with the lowest commit_ts."),
            column("last", _PLACE, "The one with the highest commit_ts."),
            column("sample_value", STRING, "The column's value in the first, where the value matters."),
        ]
    ),
    cursor=TypesCursor,
    statistics=("batch",),
)
