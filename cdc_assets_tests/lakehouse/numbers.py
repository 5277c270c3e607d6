"""A table of numbers, for tests of what all tables have in common."""

from dataclasses import dataclass, field

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, STRING, struct
from cdc_assets.lakehouse.table import Definition


@dataclass(frozen=True, kw_only=True)
class NumbersCursor(Cursor):
    """A cursor with a text and a nested value."""

    by: str = ""
    upto: dict[str, list[int]] = field(default_factory=dict)


NUMBERS = Definition(columns=struct(n=BIGINT), cursor=NumbersCursor)
# A table with partitions and statistics.
NAMED = Definition(
    columns=struct(kind=STRING, n=BIGINT, name=STRING),
    cursor=NumbersCursor,
    partition_by=("kind",),
    statistics=("n", "name"),
)
