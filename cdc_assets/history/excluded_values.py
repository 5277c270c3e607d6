"""Find open rows with a value that a statement has excluded: the source changed them without row events.

MODIFY to NOT NULL, to a shorter text, to a narrower or unsigned number or to fewer labels changes such values if
the server's SQL mode is not strict, and is refused if it is. MODIFY to CHAR removes blanks at the end in any mode.
The source sends no row events for these changes. So after the statement no row of the source has such a value.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StructType

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.effects import UnappliedStatement, describe_unapplied
from cdc_assets.history.evolution import Restrict
from cdc_assets.history.open_versions import copy_expression
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.version_rows import CLOSED, PART
from cdc_assets.lakehouse.history import COPY
from cdc_assets.lakehouse.schema import quoted
from cdc_assets.lakehouse.table import Staged
from cdc_assets.mysql_types.descriptors import TYPES, Family
from cdc_assets.mysql_types.types import MySQLType, capacity, value_range

_VERSION = ["_cdc_key", "_cdc_from_ts", COPY.name]


def list_excluded_values(
    session: SparkSession, plan: TablePlan, columns: Iterable[SourceColumn], shape: StructType, staged: Staged
) -> list[UnappliedStatement]:
    """Return the statements of the commit that exclude a value of a row which stays open.

    A row that ends in this commit is left out, because the clock of the change may be later than that of a statement after
    it. `changes_continue` compares such rows.

    Args:
        session: runs the queries.
        plan: the commit.
        columns: the columns of the history.
        shape: the columns of the history table.
        staged: the versions that the commit writes.
    """
    names = {c.id: c.column for c in columns}
    restrictions = [
        (step, op)
        for step in plan.steps
        for op in step.ops
        if isinstance(op, Restrict) and op.slot.id in names and not op.slot.virtual
    ]
    if not restrictions:
        return []
    rows = _read_open_rows(session, plan, shape, staged)
    # A version that is open now was open at the statement if it began before it.
    conditions = [(F.col("_cdc_from_ts") < step.spot.commit_ts) & _is_excluded(op, names) for step, op in restrictions]
    excluded = rows.agg(*[F.coalesce(F.max(each), F.lit(False)) for each in conditions]).head() or ()
    return [
        describe_unapplied(step, _explain(op, names), reload=True)
        for (step, op), is_excluded in zip(restrictions, excluded, strict=True)
        if is_excluded
    ]


def _read_open_rows(session: SparkSession, plan: TablePlan, shape: StructType, staged: Staged) -> DataFrame:
    """Return the rows that are open after the commit. Out: `shape`."""
    rows = plan.table.read_staged(session, staged, shape).where("_cdc_is_current")
    if plan.present is None or plan.rewrites_all_open or plan.reopens:
        return rows
    before = _with_copy(plan.table.read(session).where(F.col("_cdc_is_current") == F.lit(True)))
    closed = plan.table.read_staged(session, staged.in_partition(**{PART: CLOSED}), shape)
    ended = _with_copy(closed).select(*_VERSION)
    return rows.unionByName(before.join(ended, _VERSION, "left_anti"), allowMissingColumns=True)


def _with_copy(versions: DataFrame) -> DataFrame:
    """Return versions whose copy number is 0 for rows with a key, so that `_VERSION` identifies a version."""
    return versions.withColumn(COPY.name, F.expr(copy_expression(versions.columns)))


def _is_excluded(op: Restrict, names: Mapping[str, str]) -> Column:
    """Return whether a row has a value that the statement excludes."""
    value = F.col(quoted(names[op.slot.id]))
    conditions = [value.isNull()] if op.not_null else []
    if op.type is not None:
        conditions.append(F.coalesce(does_not_fit(value, op.type), F.lit(False)))
    return reduce(or_, conditions)


def does_not_fit(value: Column, new: MySQLType) -> Column:
    """Return whether a type does not hold a value as it is; MySQL ignores the letter case of labels."""
    if new.labels is not None:
        labels = [label.lower() for label in new.labels]
        given = F.split(F.lower(value), ",") if new.base == "set" else F.array(F.lower(value))
        return F.exists(given, lambda label: ~label.isin("", *labels))
    if (numbers := value_range(new)) is not None:
        low, high = (F.lit(str(bound)).cast(DecimalType(20, 0)) for bound in (numbers.low, numbers.high))
        return ~value.between(low, high)
    if TYPES[new.base].family in {Family.DECIMAL, Family.FLOAT}:
        return value < 0
    has_blanks = value.endswith(" ") if new.base == "char" else F.lit(False)
    return has_blanks | (F.length(value) > F.lit(capacity(new)))


def _explain(op: Restrict, names: Mapping[str, str]) -> str:
    values = ["NULL"] if op.not_null else []
    if op.type is not None:
        values.append("a label that the column lost" if op.type.labels else f"a value that {op.type} does not hold")
    return (
        f"open rows from before the statement have {' or '.join(values)} in {names[op.slot.id]}, which the statement "
        "excludes: the source changed them without row events, as its SQL mode is not strict or CHAR removes blanks at the "
        "end, or events were lost"
    )
