"""The position from which on a history is complete: from there on it has every row that the source had."""

from collections.abc import Callable
from dataclasses import dataclass

from cdc_assets.history.evolution import EMPTYING_KINDS, Arrive, Step
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.tso import time_text

NEVER = -1
_REMEDY = "Begin the table with a dump: initial_load in the feeds file."


@dataclass(frozen=True)
class Complete:
    """The position from which on a history has every row that the source had, for people.

    Attributes:
        position: the commit_ts of that position; `NEVER` if no position is proven.
        met: how many rows came first with an UPDATE or a DELETE since.
        reason: both in words, and what to do.
    """

    position: int
    met: int
    reason: str

    @property
    def is_complete(self) -> bool:
        """Whether a position is proven, and no later row contradicts it."""
        return self.position != NEVER and not self.met


def describe_completeness(position: int, met: int) -> Complete:
    """Return the two facts of a history's cursor with a text about them.

    Args:
        position: `HistoryCursor.complete`.
        met: `HistoryCursor.met`.
    """
    late = f"{met} rows were met first by an UPDATE or a DELETE"
    if position == NEVER:
        reason = (
            "No load, end of a connector's snapshot, CREATE TABLE or TRUNCATE proves from where on the history is complete; "
            f"{late}. Rows that have not been touched since the feed began are missing. {_REMEDY}"
        )
        return Complete(position, met, reason)
    proven = f"The history is complete from {position} ({time_text(position)}) on"
    reason = f"{proven}, but {late} since: others may be missing. {_REMEDY}" if met else f"{proven}."
    return Complete(position, met, reason)


def find_complete_position(plan: TablePlan, history: Callable[[str, str], LakeTable[HistoryCursor]]) -> int:
    """Return the commit_ts from which on a history is complete after a part of a run; `NEVER` if no position is proven.

    Args:
        plan: the part.
        history: returns the history table of a database and a table.
    """

    def brings_unknown_rows(step: Step) -> bool:
        """Return whether the statement brings rows into the table of which not all are known."""
        return any(isinstance(op, Arrive) and not _has_all_rows(op, step, history) for op in step.ops)

    before = plan.cursor.complete
    loses = any(brings_unknown_rows(step) for step in plan.steps)
    # A reload proves a new position only if a statement before it has left wrong rows in the history.
    is_repaired = bool(plan.reload_positions and plan.cursor.reload)
    if before != NEVER and not plan.cursor.met and not is_repaired and not loses:
        return before
    proven, lost_at = list[int](), NEVER
    for step in plan.evolution.steps[: plan.eras[1]]:
        if brings_unknown_rows(step):
            proven, lost_at = [], step.spot.commit_ts
        elif step.ddl.kind in EMPTYING_KINDS or any(isinstance(op, Arrive) for op in step.ops):
            proven.append(step.spot.commit_ts)
    before = NEVER if loses else before
    loads = [*plan.dumps, *(s.until for s in plan.snapshots), *([] if plan.loaded is None else [plan.loaded])]
    if before == NEVER:  # otherwise these snapshots may be repeated messages
        loads += plan.read
    proven += [at for at in loads if at > lost_at]
    # A row that was met too late existed at the first of these positions, and may have been deleted by the last one.
    return (max if before != NEVER else min)(proven, default=before)


def _has_all_rows(arrive: Arrive, step: Step, history: Callable[[str, str], LakeTable[HistoryCursor]]) -> bool:
    """Return whether the history of the origin has all rows that move with the statement."""
    if not arrive.is_taken or arrive.is_complete:
        return arrive.is_taken
    cursor = history(*arrive.origin).cursor()
    return cursor is not None and NEVER != cursor.complete <= step.spot.commit_ts


def count_met(plan: TablePlan, since: int, met: int) -> int:
    """Return `HistoryCursor.met` after a part of a run.

    Args:
        plan: the part.
        since: `HistoryCursor.complete` after the part.
        met: how many of the part's rows came first with an UPDATE or a DELETE.
    """
    before = plan.cursor.met if since == plan.cursor.complete else 0
    # A replay meets the same rows once more.
    return met + before if plan.replay is None else max(met, before)
