"""Which events a release takes: by commit_ts the window of a topic, or of a table that waits; by name the feed's tables."""

import functools
import operator
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed, split_pattern
from cdc_assets.gate.watermarks import Watermarks, windows
from cdc_assets.lakehouse import Cursor
from cdc_assets.protocols.events import Kind

Waiting = dict[tuple[str, str], int]  # (database, table) -> commit_ts from which on its events wait for a schema


def waiting_tables(cursor: Cursor) -> Waiting:
    """The tables that wait, out of the stage's cursor."""
    return {(w["database"], w["table"]): w["since"] for w in cursor["waiting"]}


def gate_of(marks: Watermarks, waiting: Waiting) -> Column:
    """The commit_ts below which an event's table is released: its topic's watermark, or where it waits. BIGINT."""
    nothing = F.lit(0).cast("bigint")
    mark = functools.reduce(
        lambda when, each: when.when(F.col("topic") == each[0], F.lit(each[1])),
        marks.items(),
        F.when(F.lit(False), nothing),
    ).otherwise(nothing)
    return F.least(mark, waiting_since(waiting))  # of NULL and another, the other


def waiting_since(waiting: Waiting) -> Column:
    """The commit_ts from which on an event's table waits. BIGINT; NULL where it does not."""
    return functools.reduce(
        lambda when, each: when.when(
            (F.col("database") == each[0][0]) & (F.col("table") == each[0][1]), F.lit(each[1])
        ),
        waiting.items(),
        F.when(F.lit(False), F.lit(0).cast("bigint")),
    )


def at_or_above(previous: Watermarks, topics: Iterable[str], held: Waiting) -> Column:
    """Whether an event is at or above what its table has been released up to."""
    if held:
        lowest = min([*(previous.get(topic, 0) for topic in topics), *held.values()])
        return (F.col("commit_ts") >= lowest) & (F.col("commit_ts") >= gate_of(previous, held))
    bounds = {topic: previous.get(topic, 0) for topic in topics}
    exact = [(F.col("topic") == topic) & (F.col("commit_ts") >= bound) for topic, bound in bounds.items()]
    # By the lowest bound, a literal, Delta skips whole files.
    return (F.col("commit_ts") >= min(bounds.values(), default=0)) & functools.reduce(operator.or_, exact)


def late_row(previous: Watermarks, held: Waiting) -> Column:
    """Whether an event is a row event below what its table has been released up to."""
    if held:
        return (F.col("kind") == str(Kind.ROW)) & (F.col("commit_ts") < gate_of(previous, held))
    each = [(F.col("topic") == topic) & (F.col("commit_ts") < bound) for topic, bound in previous.items()]
    return (F.col("kind") == str(Kind.ROW)) & functools.reduce(operator.or_, each, F.lit(False))


def inside_window(previous: Watermarks, marks: Watermarks, held: Waiting, waiting: Waiting) -> Column:
    """Whether an event lies in its topic's release window, or its table's: `held` begins it, `waiting` ends it."""
    if held or waiting:
        commit_ts = F.col("commit_ts")
        return (commit_ts >= gate_of(previous, held)) & (commit_ts < gate_of(marks, waiting))
    each = [
        F.col("topic").isin(topics) & (F.col("commit_ts") >= start) & (F.col("commit_ts") < end)
        for (start, end), topics in windows(previous, marks).items()
    ]
    return functools.reduce(operator.or_, each, F.lit(False))


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
