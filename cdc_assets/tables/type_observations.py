"""type_observations: what messages have said of each column's type, and whether that is as the protocol's tables have it."""

from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from cdc_assets.tables.cursor import Cursor
from cdc_assets.tables.schema import BIGINT, INT, STRING, column
from cdc_assets.tables.table import Definition


@dataclass(frozen=True)
class BrokenMapping:
    """A table whose types break the mapping, which nobody has accepted yet.

    Attributes:
        database: of the table.
        table: its name.
        since: the lowest commit_ts of an event that breaks it.
        batch: the oldest raw batch with such an event.
        first: that event's topic, partition and offset, and the column.
        observations: how many of the table's observations break it.
    """

    database: str
    table: str
    since: int
    batch: int
    first: dict[str, str | int | None]
    observations: int


@dataclass(frozen=True, kw_only=True)
class TypesCursor(Cursor):
    """Up to which raw batch the types of events are judged.

    Attributes:
        batch: the newest raw batch.
        settings: what of the feed's settings the verdicts go by, as a hash.
        broken: the tables that break a mapping.
        observations: how many different ones there are.
    """

    batch: int = 0
    settings: str = ""
    broken: list[BrokenMapping] = field(default_factory=list)
    observations: int = 0


TYPE_OBSERVATIONS = Definition(
    columns=StructType(
        [
            column("database", STRING, "The source's database."),
            column("table", STRING, "The source's table."),
            column("column", STRING, "The source's column."),
            column("mysql_type", STRING, "Its MySQL type, as messages or the table's schema have it."),
            column("told", STRING, "What else messages say of it, in the protocol's own words: a JSON object."),
            column("value_class", STRING, "The class of its values, where it matters."),
            column("expected", STRING, "What the protocol's tables have beside that type and class."),
            column("verdict", STRING, "ok, accepted, or which rules are broken."),
            column("events", BIGINT, "In how many events of this run; 0: only the verdict is new."),
            column("batch", BIGINT, "The newest raw batch of this run."),
            column("first_ts", BIGINT, "The lowest commit_ts of these events."),
            column("topic", STRING, "Topic of the record of that event."),
            column("partition", INT, "Its partition."),
            column("offset", BIGINT, "Its offset."),
            column("sample_value", STRING, "The column's value there."),
        ]
    ),
    cursor=TypesCursor,
)
