"""A report for people on what each DDL statement did to a history table, and how many versions it touched."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.history.evolution import Arrive, Close, Convert, Fill, Flag, Forget, Recover, Rekey, Step, StepOp
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.table import Staged

# The values of _cdc_closed_by that say that a DDL statement closed the version.
_CLOSED_BY_DDL = ("truncate", "drop", "rename", "ddl")


def report_statements(plan: TablePlan, staged: Staged) -> list[dict[str, Any]]:
    """Return one entry for each statement of the part: commit_ts, statement, done (in words), versions (a count).

    Args:
        plan: the part.
        staged: the versions that the part writes.
    """
    if not plan.evolves:
        return []
    versions = plan.table.fetch(staged.files, "_cdc_from_ts", "_cdc_to_ts", "_cdc_op", "_cdc_closed_by")
    entries: dict[str, dict[str, Any]] = {}
    for step in plan.steps:
        # One statement may be two steps: one that closes rows and one that opens rows.
        entry = entries.setdefault(
            step.ddl.id, {"commit_ts": step.spot.commit_ts, "statement": step.ddl.text, "done": "", "versions": 0}
        )
        phrases = [entry["done"], *(_describe(op) for op in step.ops)]
        entry["done"] = "; ".join(phrase for phrase in phrases if phrase)
        entry["versions"] = max(entry["versions"], _count_touched(versions, step))
    return [entry | {"done": entry["done"] or "no row is touched"} for entry in entries.values()]


def merge_statement_reports(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry for each statement, from the entries of several parts of one run.

    A part may close the rows of a table with a statement, and the next part open the rows that come with that statement.
    """
    merged: dict[tuple[int, str], dict[str, Any]] = {}
    for entry in entries:
        key = entry["commit_ts"], entry["statement"]
        if (earlier := merged.get(key)) is None:
            merged[key] = entry
        else:
            done = f"{earlier['done']}; {entry['done']}"
            merged[key] = earlier | {"done": done, "versions": earlier["versions"] + entry["versions"]}
    return list(merged.values())


def _count_touched(versions: pa.Table, step: Step) -> int:
    """Return how many versions the statement closed, opened, or gave another value."""
    if not versions.num_rows:
        return 0
    ts = step.spot.commit_ts
    begin, end = versions["_cdc_from_ts"], versions["_cdc_to_ts"]
    by_ddl = pa.array(_CLOSED_BY_DDL, pa.string())
    is_closed = pc.and_kleene(pc.equal(end, ts), pc.is_in(versions["_cdc_closed_by"], by_ddl))
    is_opened = pc.and_kleene(pc.equal(begin, ts), pc.equal(versions["_cdc_op"], "ddl"))
    # Where a table replaces another, this part writes again the versions that the part before has closed and counted.
    is_touched = is_opened if step.replaces_table else pc.or_kleene(is_closed, is_opened)
    if any(isinstance(op, Fill | Convert) for op in step.ops):
        is_open_after = pc.or_kleene(pc.is_null(end), pc.greater(end, ts))
        is_touched = pc.or_kleene(is_touched, pc.and_kleene(pc.less(begin, ts), is_open_after))
    return int(pc.sum(is_touched).as_py() or 0)


def _describe(op: StepOp) -> str:
    """Return in words what an operation did to rows; an empty text if it did nothing."""
    text = ""
    match op:
        case Close(reason):
            text = f"all rows end ({reason})"
        case Fill(slot, _, None):
            text = f"{slot.name}: NULL in open rows, as only the source knows the value"
        case Fill(slot, _, value):
            text = f"{slot.name}: {value} in open rows"
        case Convert(slot, origin):
            text = f"{slot.name}: in open rows what MySQL makes of {origin.column}"
        case Forget(slot):
            text = f"{slot.column}: NULL from then on"
        case Arrive(origin, replaced=replaced):
            continued = "" if replaced is None else ", and versions of equal rows go on"
            text = f"the rows of {'.'.join(origin)} come in{continued}"
        case Recover():
            text = "the rows that the DROP ended come back"
        case Rekey(columns):
            text = f"rows go on under the key {', '.join(slot.name for slot in columns) or 'of the whole row'}"
        case Flag(why):
            text = why
    return text
