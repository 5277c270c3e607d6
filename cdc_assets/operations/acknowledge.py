"""Acknowledge: what a person decides about a DDL statement that holds its tables."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_assets.ddl.readers import read_statement
from cdc_assets.lakehouse.decisions import Decision, DecisionsCursor, Verdict
from cdc_assets.lakehouse.decisions import statement_id as id_of
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, HoldReason
from cdc_assets.mysql_types.tokens import SqlSyntaxError


class AcknowledgeError(ValueError):
    """The decision cannot be taken. The message is one line, and says what can be."""


@dataclass(frozen=True)
class HeldStatement:
    """A DDL statement that waits for a decision, and the tables that it holds."""

    id: str
    statement: str
    why: str
    commit_ts: int
    tables: list[tuple[str, str]]


def held_statements(lake: Lakehouse) -> list[HeldStatement]:
    """The statements that wait, oldest first, without Spark."""
    released = lake.released_changes.cursor()
    by_id: dict[str, list[Hold]] = {}
    for hold in released.holds if released else []:
        if hold.reason == HoldReason.DDL:
            by_id.setdefault(hold.first["statement_id"], []).append(hold)
    found = [
        HeldStatement(
            key,
            holds[0].first["statement"],
            holds[0].first["why"],
            holds[0].since,
            sorted((h.database, h.table) for h in holds),
        )
        for key, holds in by_id.items()
    ]
    return sorted(found, key=lambda s: s.commit_ts)


def acknowledge(lake: Lakehouse, statement_id: str, decision: Decision) -> HeldStatement:
    """Keep a decision about a statement that waits; the pipeline's next run goes by it. Without Spark.

    Raises:
        AcknowledgeError: no such statement waits, or the one to apply cannot be read.
        ConcurrentRunError: somebody else decided something at the same moment.
    """
    waiting = {s.id: s for s in held_statements(lake)}
    if statement_id in lake.decided():
        raise AcknowledgeError(f"{statement_id}: decided already, and that stays; the pipeline's next run goes by it")
    if statement_id not in waiting:
        known = ", ".join(waiting) or "none"
        raise AcknowledgeError(
            f"{statement_id}: no such statement waits in the feed {lake.feed}; those that do: {known}"
        )
    held = waiting[statement_id]
    if (why := _why_unreadable(lake, held, decision)) is not None:
        allowed = "allowed: ignore, or as, with a statement that can"
        raise AcknowledgeError(f"it cannot be read: {decision.text(held.statement)}; {allowed} ({why})")
    cursor = lake.decisions.cursor() or DecisionsCursor(sequence=0)
    rows = [_row(held, decision)]
    lake.decisions.commit(lake.decisions.stage_rows(rows), DecisionsCursor(sequence=cursor.sequence + 1))
    return held


def _why_unreadable(lake: Lakehouse, held: HeldStatement, decision: Decision) -> str | None:
    """Return why the statement that the decision applies cannot be read; None if it can, or if none is applied.

    The held statement was read by the stage `table_schemas`, which keeps its actions. Only a statement that replaces it is
    read here.
    """
    if decision.verdict is Verdict.APPLY:
        rows = [r for r in lake.schema_rows() if r["ddl_statement"] is not None]
        mine = [r for r in rows if id_of(r["commit_ts"], r["default_database"], r["ddl_statement"]) == held.id]
        return next((r["error"] for r in mine if r["error"] and r["actions"] is None), None)
    if decision.read_as is not None:
        try:
            read_statement(decision.read_as)
        except SqlSyntaxError as error:
            return str(error)
    return None


def _row(held: HeldStatement, decision: Decision) -> dict[str, Any]:
    database, table = held.tables[0]
    return {
        "statement_id": held.id,
        "verdict": str(decision.verdict),
        "read_as": decision.read_as,
        "decided_at": datetime.now(UTC),
        "commit_ts": held.commit_ts,
        "database": database,
        "table": table,
        "ddl_statement": held.statement,
    }


def decision_of(verdict: Verdict, read_as: str | None) -> Decision:
    """A decision, of what a person has given.

    Raises:
        AcknowledgeError: a statement is missing, or there is one too many.
    """
    if (verdict is Verdict.AS) != bool(read_as):
        raise AcknowledgeError("a statement to read it as goes with as, and with nothing else")
    return Decision(verdict, read_as)
