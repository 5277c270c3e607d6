"""Plan what a run does for each history table: which releases and statements, in which layouts, and in which order."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.history.evolution import Evolution, Recover, Rekey
from cdc_assets.history.planned_columns import type_overrides
from cdc_assets.history.progress import Name
from cdc_assets.history.schema_evolution import evolve_tables
from cdc_assets.history.statements import Ddl
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.protocols import protocol_of
from cdc_assets.stages.history.new_releases import NewReleases, read_new_releases
from cdc_assets.stages.history.table_planner import TablePlanner


class LinkedTableError(Exception):
    """A table cannot be applied because a RENAME links it to another table, which failed."""

    def __init__(self, other: Name, cause: Exception) -> None:
        super().__init__(
            f"A RENAME links it to {'.'.join(other)}, which failed. Both go on with the run that can apply that table."
        )
        self.cause = cause


def plan_tables(
    lake: Lakehouse,
    feed: Feed,
    due: Iterable[Name],
    through: int,
    errors: dict[Name, Exception],
    blocked: AbstractSet[Name],
) -> list[list[TablePlan]]:
    """Return what a run does for the tables `due`, up to a release; nothing for tables without changes.

    Each inner list has the parts of linked tables, in order: the part of a table whose rows move to another one comes first.

    Args:
        lake: the feed's tables.
        feed: the feed.
        due: the tables to plan.
        through: the release.
        errors: the errors of tables that have failed already: tables that a RENAME links to them wait with them. The errors
            of tables that cannot be planned are added.
        blocked: blocked tables. One that a RENAME links to a table that is due is tried with that table, because what it
            gets may reach the other.
    """
    cursors: dict[Name, HistoryCursor] = {}
    for name in sorted(set(due) - set(errors)):
        try:
            cursors[name] = lake.history(*name).cursor() or HistoryCursor(sequence=0)
        except Exception as error:  # noqa: BLE001 -- an error of one table blocks that table only
            errors[name] = error
    if not cursors:
        return []
    releases = read_new_releases(lake, feed, cursors)
    units = _group_linked_tables(cursors, releases)
    if linked := (blocked - set(cursors) - set(errors)) & set[Name]().union(*units):
        # A blocked table has applied fewer releases than the tables that are due, so read more releases.
        return plan_tables(lake, feed, {*cursors, *linked}, through, errors, blocked)
    planned = []
    for names in units:
        if failed := sorted(names & set(errors)):
            linked_error = LinkedTableError(failed[0], errors[failed[0]])
            errors.update(dict.fromkeys(names & set(cursors), linked_error))
            continue
        try:
            planned.append(_plan_unit(lake, feed, names, cursors, releases, through))
        except Exception as error:  # noqa: BLE001 -- an error of one unit blocks its tables only
            errors.update(dict.fromkeys(names & set(cursors), error))
    return [parts for parts in planned if parts]


def _group_linked_tables(cursors: Mapping[Name, HistoryCursor], releases: NewReleases) -> list[set[Name]]:
    """Return the tables that are due, each with all tables that a RENAME ever linked to it.

    A late change of one of them may reach the others.
    """
    units = {name: {name} for name in cursors}
    for ddl in (*releases.all_ddls.values(), *(d for _, d in releases.new_ddls.values())):
        for pair in ddl.moved.items():
            joined = set().union(*(units.get(name, {name}) for name in pair))
            units |= dict.fromkeys(joined, joined)
    different = {id(unit): unit for unit in units.values() if unit & set(cursors)}
    return sorted(different.values(), key=min)


def _plan_unit(
    lake: Lakehouse,
    feed: Feed,
    names: set[Name],
    cursors: Mapping[Name, HistoryCursor],
    releases: NewReleases,
    through: int,
) -> list[TablePlan]:
    """Return the parts of tables that a RENAME links, in order."""
    taken = sorted(name for name in names if feed.takes(*name))
    tables = [TablePlanner(lake, feed, name, cursors.get(name), releases, through) for name in taken]
    applied = {d.id: d for t in tables for d in t.applied_statements}
    new = {d.id: d for t in tables for d in t.new_statements if d.id not in applied}
    ordered = sorted([*applied.values(), *new.values()], key=lambda d: d.spot.order)

    def evolve(statements: Sequence[Ddl], *, with_rows: bool = True) -> dict[Name, Evolution]:
        """Return the evolution of the tables; `with_rows`: with the columns that rows and histories show."""
        return evolve_tables(
            statements,
            {t.name: t.list_seen_columns() for t in tables} if with_rows else {},
            lambda name, column: column in type_overrides(feed, name),
            releases.loaded,
            lambda name: feed.takes(*name),
            protocol_of(feed).changes_key_text,
            of_tidb=protocol_of(feed).source_kind(feed) == "tidb",
            keyed_by_messages={t.name for t in tables if t.is_keyed_by_messages},
        )

    before = evolve([d for d in ordered if d.id in applied], with_rows=False)
    for table in tables:
        table.before = before.get(table.name, Evolution(table.name))
    after = evolve(ordered)
    if not _plan_replays(tables, after):
        # Late statements that cannot be applied at their positions any more act on the rows that are open now.
        ordered.sort(key=lambda d: (d.spot.commit_ts, d.id in new, d.spot.order))
    after = evolve(ordered)
    parts = [part for t in tables for part in t.plan_parts(after.get(t.name, Evolution(t.name)), ordered)]
    return sorted(parts, key=_part_order)


def _plan_replays(tables: list[TablePlanner], evolutions: Mapping[Name, Evolution]) -> bool:
    """Plan from which position on each table is replayed; also tables to which rows of a replayed table have moved since.

    Returns:
        Whether any table is replayed.
    """
    evolving = {t.name: t for t in tables if t.name in evolutions}
    replayed = [t for t in evolving.values() if t.plan_replay(evolutions[t.name])]
    waiting = list(evolving.values())
    while waiting:
        table = waiting.pop()
        begin = table.first_position
        since = [s for s in evolutions[table.name].steps if begin is not None and s.spot.commit_ts >= begin]
        reached = [
            evolving[new]
            for step in since
            for new, old in step.ddl.moved.items()
            if old == table.name
            and new in evolving
            and step.ddl.id in evolving[new].applied_ids
            and evolving[new].extend_replay(step.spot.commit_ts)
        ]
        replayed, waiting = [*replayed, *reached], [*waiting, *reached]
    return bool(replayed)


def _part_order(part: TablePlan) -> tuple[Any, ...]:
    """Return the sort key of a part: rows come from a part of this table or another that closes them and begins earlier."""
    begins_with_rows = part.arrivals or any(
        isinstance(op, Recover | Rekey) for step in part.steps[:1] for op in step.ops
    )
    return part.steps[0].spot.order if begins_with_rows else ()
