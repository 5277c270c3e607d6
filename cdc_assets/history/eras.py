"""The eras of changes and column layouts: how many statements came before them."""

from dataclasses import replace
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.binlog import is_after_place
from cdc_assets.history.statements import Spot, is_in_partition
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC


def era_column(plan: TablePlan) -> Column:
    """Return the era of a change: how many statements came before it. INT.

    The expression reads commit_ts, topic, partition, offset, sent_ms and source.
    """
    low, high = plan.among
    spots = [step.spot for step in plan.evolution.steps[low:high]]
    later = [F.when(_is_after(spot, has_exact_order=plan.has_exact_order), 1).otherwise(0) for spot in spots]
    return reduce(add, later, F.lit(low))


def _is_after(spot: Spot, *, has_exact_order: bool) -> Column:
    """Return whether a change came after a statement: by the binlog, else by offset in one partition, else by commit_ts.

    Clocks come last, the source's before the sender's. A statement that waited for a lock has an older time than the changes
    before it, and Debezium 1.9 gives statements the time of its own clock.
    """
    is_behind = F.col("offset") > spot.offset
    is_later, is_same = F.col("commit_ts") > spot.commit_ts, F.col("commit_ts") == spot.commit_ts
    if has_exact_order or spot.topic == LOAD_TOPIC:
        return is_later | (is_same & is_in_partition(spot) & is_behind)
    sent_later = F.coalesce(F.col("sent_ms") > F.lit(spot.sent_ms), F.lit(False))
    by_offset = F.when(is_in_partition(spot), is_behind).otherwise(is_later | (is_same & sent_later))
    return by_offset if spot.place is None else F.coalesce(is_after_place(spot.place), by_offset)


def is_unordered(spot: Spot) -> Column:
    """Return whether clocks do not tell if a row of another partition came before or after a statement. BOOLEAN.

    They are equal, or the row's message states no time of sending, or the two clocks contradict each other.
    """
    sent_ms, is_elsewhere = F.lit(spot.sent_ms).cast("bigint"), ~is_in_partition(spot)
    is_undecided = (F.col("commit_ts") == spot.commit_ts) & F.coalesce(F.col("sent_ms") == sent_ms, F.lit(True))
    is_contradicted = (F.col("commit_ts") > spot.commit_ts) & F.coalesce(F.col("sent_ms") < sent_ms, F.lit(False))
    return is_elsewhere & (is_undecided | is_contradicted)


def drop_unused_layouts(plan: TablePlan, changes: DataFrame) -> TablePlan:
    """Return the plan with only those layouts that its changes have.

    A layout that the source uses again after a statement is planned for every era between its uses.
    """
    if len({layout.era for layout in plan.layouts}) <= 1:
        return plan
    rows = changes.select("layout_id", "era").distinct().toArrow()
    used = {(r["layout_id"], r["era"]) for r in rows.to_pylist()}
    return replace(plan, layouts=[each for each in plan.layouts if (each.layout_id, each.era) in used])
