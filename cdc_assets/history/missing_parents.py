"""Find open rows whose parent row has ended: the source changed or deleted them by a foreign key, without row events.

MySQL before 9.6 and MariaDB carry out CASCADE, SET NULL and SET DEFAULT of foreign keys in the storage engine, and
do not write the child's row changes to the binlog. At the source, no row of the child keeps its values when its
parent is deleted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.ddl.actions import ForeignKey
from cdc_assets.history.open_versions import copy_expression
from cdc_assets.lakehouse.history import covers, history_name
from cdc_assets.lakehouse.schema import quoted

SHOWN = 50
ColumnPairs = Sequence[tuple[str, str]]  # the history column of the child, and that of the parent


@dataclass(frozen=True)
class MissingParents:
    """The open rows of a history whose parent row has ended.

    Attributes:
        count: how many rows.
        sample: at most `SHOWN` of them for each foreign key: foreign_key, key, parent, parent_values, removed_ts.
        errors: why foreign keys could not be checked.
    """

    count: int = 0
    sample: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __add__(self, other: "MissingParents") -> "MissingParents":
        """Return the rows of two foreign keys of one table."""
        return MissingParents(self.count + other.count, self.sample + other.sample, self.errors + other.errors)


def pair_columns(key: ForeignKey, children: Iterable[str], parents: Iterable[str]) -> ColumnPairs | None:
    """Return the history columns that a foreign key compares; None if one of the histories lacks a column.

    MySQL ignores the letter case of column names.

    Args:
        key: the foreign key, with the parent's columns.
        children: the columns of the child's history.
        parents: the columns of the parent's history.
    """
    by_lower_name = [{name.lower(): name for name in names} for names in (children, parents)]
    if not key.columns or len(key.columns) != len(key.parent_columns):
        return None
    pairs = [
        tuple(names.get(history_name(name).lower()) for names, name in zip(by_lower_name, pair, strict=True))
        for pair in zip(key.columns, key.parent_columns, strict=True)
    ]
    existing = [(child, parent) for child, parent in pairs if child is not None and parent is not None]
    return existing if len(existing) == len(pairs) else None


def find_rows_without_parent(
    children: DataFrame, parents: DataFrame, pairs: ColumnPairs, *, by_update: bool
) -> DataFrame:
    """Return the open rows of a child whose parent row ended after they began.

    Args:
        children: the versions of the child's history.
        parents: the versions of the parent's history.
        pairs: the columns that the foreign key compares.
        by_update: whether the foreign key changes rows when the parent's columns change. An UPDATE that changes the parent's
            key ends its version as a delete does, so deletes always count.

    Returns:
        One row for each such row: `key` STRING, `parent_values` STRING, `removed_ts` BIGINT: the commit_ts at which
        the parent first ended while the row was open. A row with NULL in a column of the foreign key has no parent.
    """
    names = [f"value_{n}" for n in range(len(pairs))]
    rows = children.where("_cdc_is_current").select(
        F.col("_cdc_key").alias("key"),
        F.col("_cdc_from_ts").alias("begin"),
        F.expr(copy_expression(children.columns)).alias("copy"),
        *[F.col(quoted(child)).alias(name) for name, (child, _) in zip(names, pairs, strict=True)],
    )
    values = [F.col(quoted(parent)).alias(name) for name, (_, parent) in zip(names, pairs, strict=True)]
    reasons = ["delete", "update"] if by_update else ["delete"]
    ended = parents.where(F.col("_cdc_closed_by").isin(reasons)).select(
        F.col("_cdc_to_ts").alias("removed_ts"), *values
    )
    ended = ended.distinct().alias("ended")
    rows = rows.alias("rows")
    # A row that began in the tick in which its parent ended needed the parent, so it began before that.
    lost = rows.join(ended, _are_equal("rows", "ended", names) & (F.col("begin") <= F.col("removed_ts"))).select(
        "rows.*", "removed_ts"
    )
    # Another version of the parent may have the same values from then on: an UPDATE of other columns began it.
    others = parents.select("_cdc_from_ts", "_cdc_to_ts", *values).alias("others")
    lost = lost.alias("lost")
    goes_on = _are_equal("lost", "others", names) & F.expr(covers("removed_ts"))
    return (
        lost.join(others, goes_on, "left_anti")
        .groupBy("key", "begin", "copy", *names)
        .agg(F.min("removed_ts").alias("removed_ts"))
        .select(
            "key",
            F.concat_ws(", ", *[F.col(name).cast("string") for name in names]).alias("parent_values"),
            "removed_ts",
        )
    )


def _are_equal(left: str, right: str, names: Sequence[str]) -> Column:
    """Return whether two rows have equal values in all these columns; NULL if a value is NULL. BOOLEAN."""
    return reduce(and_, [F.col(f"{left}.{name}") == F.col(f"{right}.{name}") for name in names])


def summarize(rows: DataFrame, key: ForeignKey) -> MissingParents:
    """Return the number and a sample of the rows of `find_rows_without_parent`."""
    sample = [row.asDict() for row in rows.orderBy("removed_ts", "key").limit(SHOWN).collect()]
    count = rows.count() if len(sample) == SHOWN else len(sample)
    place = {"foreign_key": key.name, "parent": ".".join(key.parent)}
    return MissingParents(count, [place | row for row in sample])
