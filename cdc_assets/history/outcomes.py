"""What each DDL statement did to a history table, for people: in words, and how many versions it touched."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.history.evolution import Arrive, Close, Convert, Fill, Flag, Forget, Op, Recover, Rekey, Step
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.table import Staged

_BY_DDL = ("truncate", "drop", "rename", "ddl")  # in _cdc_closed_by


def outcomes(work: TablePlan, staged: Staged) -> list[dict[str, Any]]:
    """One entry a statement of the part: commit_ts, statement, done, versions.

    Args:
        work: the part.
        staged: the versions that it writes.
    """
    if not work.evolves:
        return []
    versions = work.table.fetch(staged.files, "_cdc_from_ts", "_cdc_to_ts", "_cdc_op", "_cdc_closed_by")
    told: dict[str, dict[str, Any]] = {}
    for step in work.steps:
        # One statement may be several steps: rows end, and others come.
        entry = told.setdefault(
            step.ddl.id, {"commit_ts": step.spot.commit_ts, "statement": step.ddl.text, "done": "", "versions": 0}
        )
        words = [entry["done"], *(_said(op) for op in step.ops)]
        entry["done"] = "; ".join(w for w in words if w)
        entry["versions"] = max(entry["versions"], _touched(versions, step))
    return [entry | {"done": entry["done"] or "no row is touched"} for entry in told.values()]


def together(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What several parts of one run told, one entry a statement: its rows may end in one and come in in the next."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for entry in parts:
        key = entry["commit_ts"], entry["statement"]
        if (before := found.get(key)) is None:
            found[key] = entry
        else:
            done = f"{before['done']}; {entry['done']}"
            found[key] = before | {"done": done, "versions": before["versions"] + entry["versions"]}
    return list(found.values())


def _touched(versions: pa.Table, step: Step) -> int:
    """How many versions the statement ended, opened, or gave another value."""
    if not versions.num_rows:
        return 0
    ts = step.spot.commit_ts
    begin, end = versions["_cdc_from_ts"], versions["_cdc_to_ts"]
    by_ddl = pa.array(_BY_DDL, pa.string())
    ended = pc.and_kleene(pc.equal(end, ts), pc.is_in(versions["_cdc_closed_by"], by_ddl))
    opened = pc.and_kleene(pc.equal(begin, ts), pc.equal(versions["_cdc_op"], "ddl"))
    # The part of a table that replaces this one writes the versions anew that the part before has ended.
    found = opened if step.replaces_table else pc.or_kleene(ended, opened)
    if any(isinstance(op, Fill | Convert) for op in step.ops):
        there = pc.or_kleene(pc.is_null(end), pc.greater(end, ts))
        found = pc.or_kleene(found, pc.and_kleene(pc.less(begin, ts), there))
    return int(pc.sum(found).as_py() or 0)


def _said(op: Op) -> str:
    match op:
        case Close(reason):
            said = f"all rows end ({reason})"
        case Fill(slot, _, None):
            said = f"{slot.name}: NULL in open rows, as only the source knows the value"
        case Fill(slot, _, text):
            said = f"{slot.name}: {text} in open rows"
        case Convert(slot, origin):
            said = f"{slot.name}: in open rows what MySQL makes of {origin.column}"
        case Forget(slot):
            said = f"{slot.column}: NULL from then on"
        case Arrive(origin, replaced=replaced):
            go_on = "" if replaced is None else ", and versions of equal rows go on"
            said = f"the rows of {'.'.join(origin)} come in{go_on}"
        case Recover():
            said = "the rows that the DROP ended come back"
        case Rekey(columns):
            said = f"rows go on under the key {', '.join(slot.name for slot in columns) or 'of the whole row'}"
        case Flag(why):
            said = why
    return said
