"""The gate's hold list: which tables wait, from where on, and why. What is held of one table may hold others."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from cdc_assets.config import Feed
from cdc_assets.lakehouse.released_changes import Hold, HoldReason, ReleaseCursor
from cdc_assets.lakehouse.type_observations import Refused
from cdc_assets.release.base import Axis, Gate, Held, Name, positions
from cdc_assets.release.statements import Statement


def by_types(refused: Iterable[Refused], gate: Gate, cursor: ReleaseCursor, before: Held) -> list[Hold]:
    """The holds of tables whose events break a type mapping; what was released before stays released.

    Args:
        refused: what the type check refuses.
        gate: the gate.
        cursor: of the release before.
        before: where tables were held until now.
    """
    found = []
    for each in refused:
        name = each.database, each.table
        since, batch = each.commit_ts, 0
        if gate.axis == "commit_ts":
            since = max(since, before.get(name, cursor.watermarks.get(each.first["topic"], 0)))
        else:
            batch = max(each.batch, before.get(name, cursor.batch + 1))
        found.append(Hold(*name, since, HoldReason.TYPE, 0, each.first, batch))
    return found


def by_loads(cursor: ReleaseCursor, gate: Gate, before: Held, released: Callable[[], AbstractSet[Name]]) -> list[Hold]:
    """The holds of tables whose dump cannot be loaded, and of which no change is released: they wait as they are.

    Args:
        cursor: of the release before, with the loads that were refused.
        gate: the gate.
        before: where tables were held until now.
        released: the tables of which rows were released.
    """
    waiting = {(h.database, h.table) for h in cursor.holds if h.reason == HoldReason.LOAD}
    found = []
    for each in cursor.refused:
        name = each.database, each.table
        if name in waiting or name not in released():
            first, by_time = {"why": each.why}, gate.axis == "commit_ts"
            # What lies below was left out, if there was any.
            since = before.get(name, max(cursor.watermarks.values(), default=0)) if by_time else 0
            found.append(
                Hold(*name, since, HoldReason.LOAD, 0, first, 0 if by_time else before.get(name, cursor.batch + 1))
            )
    return found


def retried(
    cursor: ReleaseCursor, learnt: int, settings: str, refused: Callable[[], Sequence[Refused]]
) -> Sequence[Hold]:
    """The holds whose reason may have gone: all, when more is known or decided, or other settings are there; else none.

    Args:
        cursor: of the release before.
        learnt: the sequence of table_schemas.
        settings: those that tables are held by.
        refused: what the type check refuses now.
    """
    if not cursor.holds:
        return []
    if learnt > cursor.schemas or settings != cursor.settings:
        return cursor.holds
    refused_loads = {(r.database, r.table) for r in cursor.refused}
    if any(h.reason == HoldReason.LOAD and (h.database, h.table) not in refused_loads for h in cursor.holds):
        return cursor.holds
    by_type = [h for h in cursor.holds if h.reason == HoldReason.TYPE]
    if not by_type:
        return []
    still = {(r.database, r.table): r for r in refused()}
    gone = [h for h in by_type if _moved(h, still.get((h.database, h.table)))]
    return cursor.holds if gone else []


def _moved(hold: Hold, refused: Refused | None) -> bool:
    """Whether the type check refuses the table no longer, or from a later position on."""
    return refused is None or (refused.batch > hold.batch if hold.batch else refused.commit_ts > hold.since)


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
