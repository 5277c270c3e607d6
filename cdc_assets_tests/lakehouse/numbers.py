"""A table of numbers, for tests of what all tables have."""

from dataclasses import dataclass, field

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, STRING, struct
from cdc_assets.lakehouse.table import Definition


@dataclass(frozen=True, kw_only=True)
class NumbersCursor(Cursor):
    """As some stage's: counts, and something within something."""

    by: str = ""
    upto: dict[str, list[int]] = field(default_factory=dict)


NUMBERS = Definition(columns=struct(n=BIGINT), cursor=NumbersCursor)
# In partitions, with statistics.
NAMED = Definition(
    columns=struct(kind=STRING, n=BIGINT, name=STRING),
    cursor=NumbersCursor,
    partition_by=("kind",),
    statistics=("n", "name"),
)
