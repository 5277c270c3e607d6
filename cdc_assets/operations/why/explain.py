"""Explains one row of a history: finds the table and the key that a person means, and puts the row's life together."""

from collections.abc import Sequence
from dataclasses import replace

from cdc_assets.config import Feed
from cdc_assets.errors import OperationError
from cdc_assets.history.completeness import describe_completeness
from cdc_assets.lakehouse.change_events import Kind, Op
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import Arrow
from cdc_assets.operations.finality import find_final_position
from cdc_assets.operations.formatting import format_position
from cdc_assets.operations.keys import (
    find_key_by_typed_values,
    find_key_columns,
    find_near_keys,
    match_key_columns,
    parse_key,
)
from cdc_assets.operations.why.details import StepDetails
from cdc_assets.operations.why.evidence import OPEN_END, Evidence, version_end
from cdc_assets.operations.why.fates import EventFates
from cdc_assets.operations.why.life import Fate, LifeStep, RowLife
from cdc_assets.operations.why.steps import StepBuilder

_ARROW = Arrow()


def explain_row(
    lake: Lakehouse, feed: Feed, name: str, key: Sequence[str], at: int | None = None, *, with_messages: bool = False
) -> RowLife:
    """Return the life of one row.

    Args:
        lake: the feed's tables.
        feed: the feed's settings.
        name: the source's table, `database.table`.
        key: the key's values in the order of its columns, as MySQL prints them, bytes as `0x...`; or all of them as one JSON
            array; or, of a table without a key, the row as one JSON object.
        at: the commit_ts up to which the life is described; None: to the end.
        with_messages: whether the steps have the decoded messages.

    Raises:
        OperationError: no run has been yet, there is no such table, or its key has other columns.
    """
    if not lake.change_events.exists():
        raise OperationError(f"Feed {lake.feed} has no records yet: run its pipeline first.")
    database, table = _find_table(lake, name)
    keys = find_key_columns(lake, database, table)
    try:
        parsed = parse_key(key, keys)
    except ValueError as error:
        raise OperationError(f"{name}: {error}") from None
    key_columns, until = match_key_columns(parsed, keys), OPEN_END if at is None else at
    evidence = Evidence(lake, feed, (database, table), key_columns, parsed, until)
    if evidence.is_empty and (typed := find_key_by_typed_values(lake, database, table, key_columns, key)):
        evidence = replace(evidence, key=typed)
    fates = EventFates(evidence)
    cursor = lake.history(database, table).cursor() or HistoryCursor(sequence=0)
    steps = StepBuilder(evidence, fates, StepDetails(evidence, with_messages)).build_steps()
    return RowLife(
        feed=lake.feed,
        database=database,
        table=table,
        key_columns=key_columns,
        key=evidence.key,
        at=at,
        verdict=_judge_row(steps, at),
        final=find_final_position(lake, database, table),
        complete=describe_completeness(cursor.complete, cursor.met),
        first_seen_by=_explain_first_sight(evidence, fates, cursor.complete),
        steps=steps,
        undecoded=evidence.read_undecoded_records(),
        near=find_near_keys(lake, database, table, evidence.key) if evidence.is_empty else None,
    )


def _find_table(lake: Lakehouse, name: str) -> tuple[str, str]:
    """Return database and table of `database.table`, where either name may have dots.

    Raises:
        OperationError: no history and no event has such a table.
    """
    if (history := lake.find_history(name)) is not None:
        return history
    table = _ARROW.name("table")
    sql = (
        f"SELECT database, {table} AS t FROM e WHERE kind IN ('{Kind.ROW}', '{Kind.DDL}') "
        f"AND database || '.' || {table} = {_ARROW.text(name)} LIMIT 1"
    )
    for row in _ARROW.run(sql, {"e": lake.change_events}).to_pylist():
        return row["database"], row["t"]
    histories = ", ".join(map(".".join, lake.histories())) or "none"
    raise OperationError(f"{name}: the feed has no event of this table. Tables with a history: {histories}.")


def _judge_row(steps: Sequence[LifeStep], at: int | None) -> str:
    """Return whether the row is in the history, or why it is not; `steps`: newest first."""
    as_of = "" if at is None else f" as of {format_position(at)}"
    count = sum(step.fate is Fate.PENDING for step in steps)
    pending = f" {count} {'event is' if count == 1 else 'events are'} pending." if count else ""
    current = next((step for step in steps if step.fate is Fate.VERSION and step.until is None), None)
    if current is not None:
        return f"The row is there{as_of}, unchanged since {format_position(current.commit_ts)}.{pending}"
    end = next((step for step in steps if step.fate is Fate.END), None)
    if end is not None:
        return f"The row is not there{as_of}: {end.op} at {format_position(end.commit_ts)}.{pending}"
    if steps:
        return f"The row is not there{as_of}. {steps[0].reason}"
    return f"The feed has no event of this key{as_of}."


def _explain_first_sight(evidence: Evidence, fates: EventFates, since: int) -> str | None:
    """Return how the history first saw a row that the source had before, in a sentence; None: it saw the row begin.

    Args:
        evidence: what the tables have of the row.
        fates: what became of its events.
        since: the position from which on the history is complete.
    """
    applied = (c for c in evidence.changes if c["commit_ts"] > since and c["release"] <= fates.applied_release)
    first = next(applied, None)
    if first is None or first["op"] not in {Op.UPDATE, Op.DELETE}:
        return None
    commit_ts = first["commit_ts"]
    # A version that ended before the history was complete is no earlier state of this row.
    if any(v["_cdc_from_ts"] < commit_ts and version_end(v) > since for v in evidence.versions):
        return None
    operation = f"{'an' if first['op'] == Op.UPDATE else 'a'} {first['op'].upper()}"
    at = format_position(commit_ts)
    return (
        f"The history first saw the row by {operation} at {at}: the source had it before, and since when is not known."
    )
