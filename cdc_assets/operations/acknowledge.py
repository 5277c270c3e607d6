"""A person's decisions about DDL statements that block tables."""

from dataclasses import dataclass
from datetime import UTC, datetime

from cdc_assets.ddl.readers import read_statement
from cdc_assets.errors import OperationError
from cdc_assets.lakehouse.decisions import Decision, DecisionsCursor, DecisionVerdict, identify_statement
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, HoldReason
from cdc_assets.mysql_types.tokens import SqlSyntaxError


@dataclass(frozen=True)
class HeldStatement:
    """A DDL statement that waits for a decision.

    Attributes:
        id: its id.
        statement: its SQL.
        commit_ts: its position.
        tables: the (database, table) pairs that it blocks.
    """

    id: str
    statement: str
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
            statement_id, holds[0].first["statement"], holds[0].since, sorted((h.database, h.table) for h in holds)
        )
        for statement_id, holds in by_id.items()
    ]
    return sorted(statements, key=lambda statement: statement.commit_ts)


def record_decision(lake: Lakehouse, statement_id: str, decision: Decision) -> HeldStatement:
    """Record a decision about a statement that waits, and return the statement; the pipeline's next run follows it.

    Raises:
        OperationError: the decision has no statement to apply instead, or one that its verdict does not use; the statement
            does not wait, was decided before, or is to be applied and cannot be read.
        ConcurrentRunError: somebody else recorded a decision at the same moment.
    """
    if (decision.verdict is DecisionVerdict.AS) != bool(decision.read_as):
        raise OperationError("Give a statement to apply instead with the verdict as, and with no other verdict.")
    held = {statement.id: statement for statement in list_held_statements(lake)}
    if statement_id in lake.read_decisions():
        raise OperationError(
            f"Statement {statement_id} was decided before, and a decision is final: the pipeline's next run follows it."
        )
    if statement_id not in held:
        raise OperationError(
            f"No statement {statement_id} waits in feed {lake.feed}. These wait: {', '.join(held) or 'none'}."
        )
    statement = held[statement_id]
    if (problem := _find_reading_error(lake, statement, decision)) is not None:
        raise OperationError(
            f"The statement cannot be read: {decision.text(statement.statement)} ({problem}). Ignore it, or give one "
            "that can be read with as."
        )
    cursor = lake.decisions.cursor() or DecisionsCursor(sequence=0)
    database, table = statement.tables[0]
    row = {
        "statement_id": statement.id,
        "verdict": str(decision.verdict),
        "read_as": decision.read_as,
        "decided_at": datetime.now(UTC),
        "commit_ts": statement.commit_ts,
        "database": database,
        "table": table,
        "ddl_statement": statement.statement,
    }
    lake.decisions.commit(lake.decisions.stage_rows([row]), DecisionsCursor(sequence=cursor.sequence + 1))
    return statement


def _find_reading_error(lake: Lakehouse, statement: HeldStatement, decision: Decision) -> str | None:
    """Return why the statement that the decision applies cannot be read; None if it can, or if none is applied.

    The stage `table_schemas` has read the held statement and keeps its actions. Only its replacement is read here.
    """
    if decision.verdict is DecisionVerdict.APPLY:
        rows = [row for row in lake.schema_rows() if row["ddl_statement"] is not None]
        errors = (row["error"] for row in rows if row["actions"] is None and identify_statement(row) == statement.id)
        return next(filter(None, errors), None)
    if decision.read_as is not None:
        try:
            read_statement(decision.read_as)
        except SqlSyntaxError as error:
            return str(error)
    return None
