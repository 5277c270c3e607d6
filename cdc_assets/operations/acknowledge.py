"""A person's decisions about DDL statements that block tables."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_assets.ddl.readers import read_statement
from cdc_assets.lakehouse.decisions import Decision, DecisionsCursor, DecisionVerdict, identify_statement
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, HoldReason
from cdc_assets.mysql_types.tokens import SqlSyntaxError


class AcknowledgeError(ValueError):
    """The decision cannot be recorded; the message is one line, and says what to do."""


@dataclass(frozen=True)
class HeldStatement:
    """A DDL statement that waits for a decision.

    Attributes:
        id: its id.
        statement: its SQL.
        why: why it was not applied.
        commit_ts: its position.
        tables: the (database, table) pairs that it blocks.
    """

    id: str
    statement: str
    why: str
    commit_ts: int
    tables: list[tuple[str, str]]


def list_held_statements(lake: Lakehouse) -> list[HeldStatement]:
    """Return the statements that wait for a decision, oldest first."""
    released = lake.released_changes.cursor()
    by_id: dict[str, list[Hold]] = {}
    for hold in released.holds if released else []:
        if hold.reason == HoldReason.DDL:
            by_id.setdefault(hold.first["statement_id"], []).append(hold)
    statements = [
        HeldStatement(
            statement_id,
            holds[0].first["statement"],
            holds[0].first["why"],
            holds[0].since,
            sorted((hold.database, hold.table) for hold in holds),
        )
        for statement_id, holds in by_id.items()
    ]
    return sorted(statements, key=lambda statement: statement.commit_ts)


def build_decision(verdict: DecisionVerdict, read_as: str | None) -> Decision:
    """Return a decision.

    Args:
        verdict: what to do with the statement.
        read_as: the statement to apply instead; only with the verdict `as`.

    Raises:
        AcknowledgeError: `read_as` is missing, or goes with another verdict.
    """
    if (verdict is DecisionVerdict.AS) != bool(read_as):
        raise AcknowledgeError("Give a statement to apply instead with the verdict as, and with no other verdict.")
    return Decision(verdict, read_as)


def record_decision(lake: Lakehouse, statement_id: str, decision: Decision) -> HeldStatement:
    """Record a decision about a statement that waits, and return the statement; the pipeline's next run follows it.

    Raises:
        AcknowledgeError: the statement does not wait, was decided before, or is to be applied and cannot be read.
        ConcurrentRunError: somebody else recorded a decision at the same moment.
    """
    held = {statement.id: statement for statement in list_held_statements(lake)}
    if statement_id in lake.read_decisions():
        raise AcknowledgeError(
            f"Statement {statement_id} was decided before, and a decision is final: the pipeline's next run follows it."
        )
    if statement_id not in held:
        raise AcknowledgeError(
            f"No statement {statement_id} waits in feed {lake.feed}. These wait: {', '.join(held) or 'none'}."
        )
    statement = held[statement_id]
    if (problem := _find_reading_error(lake, statement, decision)) is not None:
        raise AcknowledgeError(
            f"The statement cannot be read: {decision.text(statement.statement)} ({problem}). Ignore it, or give one "
            "that can be read with as."
        )
    cursor = lake.decisions.cursor() or DecisionsCursor(sequence=0)
    rows = [_build_row(statement, decision)]
    lake.decisions.commit(lake.decisions.stage_rows(rows), DecisionsCursor(sequence=cursor.sequence + 1))
    return statement


def _find_reading_error(lake: Lakehouse, statement: HeldStatement, decision: Decision) -> str | None:
    """Return why the statement that the decision applies cannot be read; None if it can, or if none is applied.

    The stage `table_schemas` has read the held statement and keeps its actions. Only its replacement is read here.
    """
    if decision.verdict is DecisionVerdict.APPLY:
        rows = [row for row in lake.schema_rows() if row["ddl_statement"] is not None]
        own = [r for r in rows if identify_statement(r) == statement.id]
        return next((row["error"] for row in own if row["error"] and row["actions"] is None), None)
    if decision.read_as is not None:
        try:
            read_statement(decision.read_as)
        except SqlSyntaxError as error:
            return str(error)
    return None


def _build_row(statement: HeldStatement, decision: Decision) -> dict[str, Any]:
    database, table = statement.tables[0]
    return {
        "statement_id": statement.id,
        "verdict": str(decision.verdict),
        "read_as": decision.read_as,
        "decided_at": datetime.now(UTC),
        "commit_ts": statement.commit_ts,
        "database": database,
        "table": table,
        "ddl_statement": statement.statement,
    }
