"""Which of the source's tables a feed takes: the patterns of `tables:` as a Spark expression."""

import functools
import operator
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.config import Feed, split_pattern


def taken_tables(feed: Feed) -> Column:
    """Whether the feed's `tables:` take the event's table; DDL without a table goes by its database."""

    def matches(patterns: Iterable[str]) -> Column:
        each = []
        for pattern in patterns:
            database, table = split_pattern(pattern)
            name = F.col("table").like(_like(table)) | F.col("table").isNull()
            each.append(F.col("database").like(_like(database)) & name)
        return functools.reduce(operator.or_, each, F.lit(False))

    if feed.tables.include == ("*.*",) and not feed.tables.exclude:
        return F.lit(True)
    return F.coalesce(matches(feed.tables.include) & ~matches(feed.tables.exclude), F.lit(False))


def _like(pattern: str) -> str:
    """`*` and `?`, and nothing else, as SQL's LIKE has them."""
    escaped = "".join(f"\\{c}" if c in "\\%_" else c for c in pattern)
    return escaped.replace("*", "%").replace("?", "_")
