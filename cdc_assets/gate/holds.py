"""The gate's hold list: which tables wait, from where on, and why. What is held of one table may hold others."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from cdc_assets.feeds import Feed
from cdc_assets.gate.base import Axis, Gate, Held, Name, positions
from cdc_assets.gate.statements import Statement
from cdc_assets.tables.released_changes import Hold, HoldReason


def with_statements(
    holds: Iterable[Hold],
    statements: Sequence[tuple[Statement, AbstractSet[Name]]],
    feed: Feed,
    gate: Gate,
    before: Held,
    why_held: Callable[[Statement, set[Name]], str | None],
) -> list[Hold]:
    """The hold list, one entry a table, with what DDL statements add to it.

    A statement that waits for a decision holds all tables that it names, from its own position on; so does one that names a
    table which is held there already, as rows may go from that to the others.

    Args:
        holds: for other reasons, or of before.
        statements: each with the tables that it may change.
        feed: the feed.
        gate: the gate.
        before: where tables were held until now.
        why_held: why a statement, of these tables of the feed, waits for a decision; None: it does not.
    """
    found, axis = earliest(holds, gate.axis), gate.axis
    for each, named in sorted(statements, key=lambda s: (s[0].row[axis], s[0].row["commit_ts"])):
        tables = {name for name in named if feed.takes(*name)}
        if not gate.releases(each.row, tables, before, {}):
            continue
        at, held = each.row[axis], gate.held(found)
        linked = sorted(name for name in tables if held.get(name, at + 1) <= at)
        if linked:
            reason, why = HoldReason.LINKED, f"the statement leads to it from {'.'.join(linked[0])}, which waits"
        elif (said := why_held(each, tables)) is not None:
            reason, why = HoldReason.DDL, said
        else:
            continue
        mine = [_by_statement(each, name, reason, why, axis) for name in sorted(tables)]
        found = earliest([*found, *mine], axis)
    return found


def earliest(holds: Iterable[Hold], axis: Axis) -> list[Hold]:
    """One hold a table: the one that begins first."""
    found: dict[Name, Hold] = {}
    for hold in holds:
        name = hold.database, hold.table
        if name not in found or positions([hold], axis)[name] < positions([found[name]], axis)[name]:
            found[name] = hold
    return list(found.values())


def _by_statement(statement: Statement, name: Name, reason: HoldReason, why: str, axis: Axis) -> Hold:
    """The hold of a table by a statement."""
    row = statement.row
    first = {c: row[c] for c in ("topic", "partition", "offset")}
    first |= {"statement": statement.text, "statement_id": statement.id, "why": why}
    return Hold(*name, row["commit_ts"], reason, 0, first, row["batch"] if axis == "batch" else 0)
