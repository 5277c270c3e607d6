"""Keep the list of holds: which tables are blocked, from which position on, and why."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from cdc_assets.config import Feed
from cdc_assets.lakehouse.released_changes import Hold, HoldReason, ReleaseCursor
from cdc_assets.lakehouse.type_observations import Refused
from cdc_assets.release.base import Axis, Gate, QualifiedName, position_of
from cdc_assets.release.statements import DdlEvent


def find_type_holds(refused: Iterable[Refused], gate: Gate) -> list[Hold]:
    """Return the holds of tables with events that break a type mapping. They begin after all released events.

    Args:
        refused: the tables that the type check refuses.
        gate: the gate.
    """
    cursor, before = gate.cursor, gate.held_before
    holds = []
    for each in refused:
        name = each.database, each.table
        since, batch = each.commit_ts, 0
        if gate.axis == "commit_ts":
            since = max(since, before.get(name, cursor.watermarks.get(each.first["topic"], 0)))
        else:
            batch = max(each.batch, before.get(name, cursor.batch + 1))
        holds.append(Hold(*name, since, HoldReason.TYPE, 0, each.first, batch))
    return holds


def find_load_holds(gate: Gate, read_released_tables: Callable[[], AbstractSet[QualifiedName]]) -> list[Hold]:
    """Return the holds of tables whose dump cannot be loaded and that have no released change.

    Args:
        gate: the gate.
        read_released_tables: returns the tables that have released changes.
    """
    cursor, before = gate.cursor, gate.held_before
    waiting = {(h.database, h.table) for h in cursor.holds if h.reason == HoldReason.LOAD}
    holds = []
    for each in cursor.refused:
        name = each.database, each.table
        if name in waiting or name not in read_released_tables():
            first, by_time = {"why": each.why}, gate.axis == "commit_ts"
            # Events below the released watermark were left out, if there were any.
            since = before.get(name, max(cursor.watermarks.values(), default=0)) if by_time else 0
            holds.append(
                Hold(*name, since, HoldReason.LOAD, 0, first, 0 if by_time else before.get(name, cursor.batch + 1))
            )
    return holds


def find_retried_holds(
    cursor: ReleaseCursor, schema_sequence: int, settings: str, refused: Sequence[Refused]
) -> Sequence[Hold]:
    """Return the holds whose reason may be gone: all of them if anything that holds depend on has changed, else none.

    Args:
        cursor: the cursor of the release before.
        schema_sequence: the sequence of table_schemas.
        settings: the feed's settings that the holds depend on.
        refused: the tables that the type check refuses now.
    """
    if schema_sequence > cursor.schemas or settings != cursor.settings:
        return cursor.holds
    refused_loads = {(r.database, r.table) for r in cursor.refused}
    if any(h.reason == HoldReason.LOAD and (h.database, h.table) not in refused_loads for h in cursor.holds):
        return cursor.holds
    by_table = {(r.database, r.table): r for r in refused}
    type_holds = [h for h in cursor.holds if h.reason == HoldReason.TYPE]
    has_moved = any(_has_moved(h, by_table.get((h.database, h.table))) for h in type_holds)
    return cursor.holds if has_moved else []


def _has_moved(hold: Hold, refused: Refused | None) -> bool:
    """Return whether the type check no longer refuses the table, or refuses it from a later position on."""
    return refused is None or (refused.batch > hold.batch if hold.batch else refused.commit_ts > hold.since)


def add_statement_holds(
    holds: Iterable[Hold],
    statements: Sequence[tuple[DdlEvent, AbstractSet[QualifiedName]]],
    feed: Feed,
    gate: Gate,
    explain: Callable[[DdlEvent, set[QualifiedName]], str | None],
) -> list[Hold]:
    """Return the list of holds, one for each table, with those that DDL events add.

    A statement that waits for a decision holds all tables that it names, from its own position on. So does a statement that
    names a table which is already held there, because the statement may move rows of that table to the others.

    Args:
        holds: the holds for other reasons, and those of before.
        statements: each DDL event with the tables that it may change.
        feed: the feed.
        gate: the gate.
        explain: returns why a DDL event waits for a decision, given its tables that the feed takes; None: it does not.
    """
    axis = gate.axis
    candidates = [(event, {name for name in names if feed.takes(*name)}) for event, names in statements]
    waiting = sorted(
        ((event, tables) for event, tables in candidates if gate.releases_statement(event.row, tables, {})),
        key=lambda s: (s[0].row[axis], s[0].row["commit_ts"]),
    )
    result, linked_before = keep_earliest(holds, axis), None
    # A hold begins with a whole batch, or commit_ts, so a statement may link tables that an earlier one there links, too.
    while (positions := gate.hold_positions(result)) != linked_before:
        linked_before = positions
        for event, tables in waiting:
            position, held = event.row[axis], gate.hold_positions(result)
            linked = sorted(name for name in tables if held.get(name, position + 1) <= position)
            if linked:
                reason, why = HoldReason.LINKED, f"the statement also names the blocked table {'.'.join(linked[0])}"
            elif (explanation := explain(event, tables)) is not None:
                reason, why = HoldReason.DDL, explanation
            else:
                continue
            added = [_build_statement_hold(event, name, reason, why, axis) for name in sorted(tables)]
            result = keep_earliest([*result, *added], axis)
    return result


def keep_earliest(holds: Iterable[Hold], axis: Axis) -> list[Hold]:
    """Return one hold for each table: the one with the lowest position."""
    earliest: dict[QualifiedName, Hold] = {}
    for hold in holds:
        name = hold.database, hold.table
        if name not in earliest or position_of(hold, axis) < position_of(earliest[name], axis):
            earliest[name] = hold
    return list(earliest.values())


def _build_statement_hold(event: DdlEvent, name: QualifiedName, reason: HoldReason, why: str, axis: Axis) -> Hold:
    """Return the hold of a table by a DDL event."""
    row = event.row
    first = {c: row[c] for c in ("topic", "partition", "offset")}
    first |= {"statement": event.text, "statement_id": event.id, "why": why}
    return Hold(*name, row["commit_ts"], reason, 0, first, row["batch"] if axis == "batch" else 0)
