"""The feed's filter of tables as a Spark expression."""

import functools
import operator
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.config import Feed, split_pattern


def taken_tables(feed: Feed) -> Column:
    """Return whether the feed's `tables:` include the event's table. BOOLEAN, never NULL.

    A DDL event without a table is matched by its database alone.
    """

    def matches(patterns: Iterable[str]) -> Column:
        conditions = []
        for pattern in patterns:
            database, table = split_pattern(pattern)
            name = F.col("table").like(_like(table)) | F.col("table").isNull()
            conditions.append(F.col("database").like(_like(database)) & name)
        return functools.reduce(operator.or_, conditions, F.lit(False))

    if feed.tables.include == ("*.*",) and not feed.tables.exclude:
        return F.lit(True)
    return F.coalesce(matches(feed.tables.include) & ~matches(feed.tables.exclude), F.lit(False))


def _like(pattern: str) -> str:
    """Return a pattern with the wildcards `*` and `?` as a pattern of SQL's LIKE."""
    escaped = "".join(f"\\{c}" if c in "\\%_" else c for c in pattern)
    return escaped.replace("*", "%").replace("?", "_")
