"""One release: classify the events by the window, deduplicate those inside, stage the changes, and commit them.

This module is long because all steps of a release share its window, its gate and its cursor.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import (
    Hold,
    HoldReason,
    LeftOut,
    ReleaseCursor,
    ReleasedKind,
)
from cdc_assets.lakehouse.table import Staged
from cdc_assets.protocols import protocol_of
from cdc_assets.release.base import EventGroup, Gate, HoldPositions, Part, QualifiedName, WindowFacts
from cdc_assets.release.changes import fill_keys, split_by_shared_key
from cdc_assets.release.holds import (
    add_statement_holds,
    find_load_holds,
    find_retried_holds,
    find_type_holds,
    keep_earliest,
)
from cdc_assets.release.late import NO_LATE_EVENTS, LateEvents, find_late_events
from cdc_assets.release.layouts import (
    LayoutSchemas,
    build_layout_rows,
    fill_key_columns,
    list_unkeyed_tables,
    match_schemas,
)
from cdc_assets.release.new_events import NewEvents
from cdc_assets.release.statements import DdlEvent, build_ddl_events, explain_hold, keep_first_records, list_row_ends
from cdc_assets.release.tables import taken_tables
from cdc_assets.release.window import (
    EventCounts,
    count_by_table,
    count_events,
    find_first_events,
    group_events,
    have_distinct_keys,
)
from cdc_assets.spark.session import INTERPRETED_ROW_LIMIT, session_for
from cdc_assets.stages.load.release import (
    mark_covered,
)
from cdc_assets.stages.release.gate_choice import choose_gate
from cdc_assets.stages.release.report import ReleaseReport, report_state
from cdc_assets.stages.release.snapshot_events import advance_source_snapshots, advance_table_scans
from cdc_assets.stages.release.staging import count_written, narrow_groups, stage_changes


def list_retried_holds(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor) -> Sequence[Hold]:
    """Return the holds whose reason may be gone."""
    if not cursor.holds:
        return []
    refused = lake.type_observations.last_cursor().refused
    return find_retried_holds(cursor, lake.table_schemas.last_cursor().sequence, _hold_settings(feed), refused)


def _hold_settings(feed: Feed) -> str:
    """Return the feed's settings that holds depend on, as text."""
    return json.dumps([feed.schema_changes, feed.tidb_extension])


@dataclass(frozen=True)
class _Window:
    """The row events of a run, classified.

    Attributes:
        release: the number of the release.
        groups: all row events that the run read.
        taken: those that it releases.
        schemas: the schemas and keys that complete their layouts.
        holds: the list of holds after the run.
        facts: properties of the events in `taken`.
        held: the hold positions after the run.
        statements: the DDL events that it releases, one row of released_changes for each.
        named: the tables that these statements name.
    """

    release: int
    groups: list[EventGroup]
    taken: list[EventGroup]
    schemas: LayoutSchemas
    holds: list[Hold]
    facts: WindowFacts
    held: HoldPositions
    statements: list[dict[str, Any]]
    named: set[QualifiedName]


class ReleaseRun:
    """Releases what came since the release before: one commit with the rows and the watermarks."""

    def __init__(self, lake: Lakehouse, feed: Feed, new: NewEvents) -> None:
        self.lake, self.feed, self.new, self.cursor = lake, feed, new, new.cursor
        self.protocol = protocol_of(feed)
        # Held events are read again only if the reason of a hold may be gone.
        retried = list_retried_holds(lake, feed, self.cursor)
        self.kept_holds = [] if retried else self.cursor.holds
        self.gate: Gate = choose_gate(lake, feed, new, retried, partial(session_for, lake.spark))
        self.held_before = self.gate.held_before
        self.files = self.gate.select_files()
        rows = sum(f.rows for f in self.files)
        self.is_small = rows <= INTERPRETED_ROW_LIMIT
        # A load whose position is below all events covers none of them.
        oldest = min((f.low["commit_ts"] for f in self.files), default=0)
        self.loads = [each for each in self.cursor.loads if not each.is_reload and each.position >= oldest]
        self.spark: SparkSession = session_for(lake.spark, rows)
        self.events = self._normalize_keys(lake.change_events.read_files(self.spark, self.files))
        self.schema_sequence = lake.table_schemas.last_cursor().sequence
        ddl = build_ddl_events(new.ddl, self._statement_schemas, lake.read_decisions()) if new.ddl else []
        self.statements = [(event, frozenset(event.tables)) for event in ddl]

    @cached_property
    def _statement_schemas(self) -> list[dict[str, Any]]:
        """The rows of table_schemas that come from statements.

        A schema that a message brings by its number may have a lower commit_ts than the statement that made it.
        """
        return [r for r in self.lake.schema_rows() if r["ddl_statement"] is not None]

    @cached_property
    def _released_tables(self) -> set[QualifiedName]:
        return self.lake.released_tables()

    def release(self) -> ReleaseReport:
        """Classify the events by the window, deduplicate those inside, stage the changes, and commit them."""
        window = self._classify()
        changes, late_inside = self._deduplicate(window)
        late = self._find_late(window) or late_inside
        counts = count_events(window.groups, late_inside, self._count_new_rows(), self.cursor)
        cursor = self._advance_cursor(window, counts, late)
        staged = self._stage(window, changes)
        self.lake.released_changes.commit(staged, cursor)
        return self._report(window, counts, late, cursor, staged)

    # Classify events by the window.

    def _classify(self) -> _Window:
        """Find the holds, and count the row events by what becomes of them."""
        refused = find_type_holds(self.lake.type_observations.last_cursor().refused, self.gate)
        unloaded = find_load_holds(self.gate, lambda: self._released_tables)
        first_holds = keep_earliest([*self.kept_holds, *refused, *unloaded], self.gate.axis)
        held = self.gate.hold_positions(first_holds)
        groups = self._group_events(held)
        schemas = self._look_up_schemas(_select_taken(groups))
        holds = self._add_holds(first_holds, schemas, groups)
        if self.gate.hold_positions(holds) != held:
            held = self.gate.hold_positions(holds)
            groups = self._group_events(held)
        taken = _select_taken(groups)
        facts = WindowFacts(
            has_unkeyed=any(g.unkeyed for g in taken),
            has_places=any(g.placed for g in taken),
            has_distinct_keys=self.is_small and have_distinct_keys(taken),
            tables=frozenset((g.database, g.table) for g in taken),
        )
        holds = _complete_holds(holds, groups, schemas)
        statements, named = self._select_statements(held)
        return _Window(self.cursor.sequence + 1, groups, taken, schemas, holds, facts, held, statements, named)

    def _add_holds(self, holds: list[Hold], schemas: LayoutSchemas, groups: list[EventGroup]) -> list[Hold]:
        """Add the holds of tables whose schema is missing, and those by DDL events."""
        without_schema = [
            Hold(*name, since, HoldReason.SCHEMA, 0, {}) for name, since in sorted(schemas.missing.items())
        ]
        return add_statement_holds(
            [*holds, *without_schema],
            self.statements,
            self.feed,
            self.gate,
            lambda event, tables: self._explain_hold(event, tables, groups),
        )

    def _explain_hold(self, event: DdlEvent, tables: set[QualifiedName], groups: list[EventGroup]) -> str | None:
        """Return why a DDL event waits for a decision; None: it does not wait."""
        commit_ts = event.row["commit_ts"]

        def existed(name: QualifiedName) -> bool:
            has_statement = any(
                (r["database"], r["table"]) == name and r["commit_ts"] < commit_ts for r in self._statement_schemas
            )
            has_rows = any((g.database, g.table) == name and g.first < commit_ts for g in groups)
            return has_statement or has_rows or name in self._released_tables

        return explain_hold(event, tables, self.feed, self._statement_schemas, existed)

    def _group_events(self, held: HoldPositions) -> list[EventGroup]:
        """Count the row events by what becomes of them; `held`: the hold positions from now on."""
        if not self.files:
            return []
        events = self.events.withColumns(
            {
                "part": self._part(self.held_before, held),
                "taken": taken_tables(self.feed),
                "reached": self._is_newly_held() if held else F.lit(False),
            }
        )
        return group_events(
            events,
            self.gate.group_columns,
            self.cursor.batch,
            has_snapshots=self.protocol.takes_snapshots,
            collects_keys=self.is_small,
        )

    def _part(self, before: HoldPositions, after: HoldPositions) -> Column:
        """Return the `Part` of a row event, STRING, as `Gate.classify` with the loads."""
        return mark_covered(self.gate.classify(before, after), self.loads)

    def _is_newly_held(self) -> Column:
        """Return whether only its table's hold keeps an event from the window, and no hold has counted it. BOOLEAN."""
        # If a table's hold is kept, only new events are newly held. Either all holds are kept, or none.
        before = {} if self.kept_holds else self.held_before
        return self._part(before, {}).isin(str(Part.INSIDE), str(Part.LATE))

    def _select_statements(self, held: HoldPositions) -> tuple[list[dict[str, Any]], set[QualifiedName]]:
        """Return the DDL events in the window, each statement once, and the tables that they name."""
        inside = [
            (event.row, tables)
            for event, tables in self.statements
            # A statement without a table may change any table.
            if (any(self.feed.takes(*name) for name in tables) or (not tables and event.row["table"] is None))
            and self.gate.releases_statement(event.row, tables, held)
        ]
        return keep_first_records(row for row, _ in inside), {name for _, tables in inside for name in tables}

    # Deduplicate the events in the window.

    def _deduplicate(self, window: _Window) -> tuple[DataFrame | None, LateEvents]:
        """Return the changes of the window, with columns of released_changes, and the late events that they show.

        The changes are None if the window is empty.
        """
        if not window.taken:
            return None, NO_LATE_EVENTS
        facts = window.facts
        if self.gate.axis == "batch" and not facts.has_places:
            records = [event.row for event, _ in self.statements]
            facts = replace(facts, row_ends=list_row_ends(self._statement_schemas, records, facts.tables))
        is_inside = (self._part(self.held_before, window.held) == str(Part.INSIDE)) & taken_tables(self.feed)
        events = self._fill_keys(self.events.where(is_inside), window.schemas, has_unkeyed=facts.has_unkeyed)
        if facts.has_distinct_keys and not facts.has_unkeyed and not self.gate.compares_with_released():
            changes, late = self.gate.build_single_changes(events), None
        elif self.is_small or self.gate.compares_with_released():
            changes, late = self.gate.build_changes(events, self._read_released, facts)
        else:
            single, others = split_by_shared_key(events, *self.gate.group_columns)
            changes, late = self.gate.build_changes(others, self._read_released, facts)
            changes = self.gate.build_single_changes(single).unionByName(changes, allowMissingColumns=True)
        return changes, late or NO_LATE_EVENTS

    def _look_up_schemas(self, groups: Sequence[EventGroup]) -> LayoutSchemas:
        """Return the schemas and keys of groups whose messages have no key."""
        unkeyed = list_unkeyed_tables(groups)
        return match_schemas(self.lake.schema_rows(unkeyed), self.protocol, groups) if unkeyed else LayoutSchemas()

    def _find_late(self, window: _Window) -> LateEvents | None:
        """Return the events below the window; None without one."""
        groups = [g for g in window.groups if g.part == Part.LATE]
        if not groups:
            return None
        rows = self.events.where(self._part(self.held_before, {}) == str(Part.LATE))
        schemas = self._look_up_schemas(groups)
        return find_late_events(
            self._fill_keys(rows, schemas, has_unkeyed=True), self._read_released(min(g.first for g in groups))
        )

    def _fill_keys(self, rows: DataFrame, schemas: LayoutSchemas, *, has_unkeyed: bool) -> DataFrame:
        """Fill `key` and `key_before` of row events whose table has a key."""
        if not has_unkeyed:
            return rows
        return self._normalize_keys(fill_keys(fill_key_columns(rows, schemas)))

    def _normalize_keys(self, rows: DataFrame) -> DataFrame:
        """Return row events with keys in the one form in which equal keys have equal text."""
        normal = {c: self.protocol.normalize_key(F.col(c), F.col("layout")) for c in ("key", "key_before")}
        return rows.withColumns(normal)

    def _read_released(self, lowest: int) -> DataFrame:
        """Read the rows of released_changes of kind `row` and `repeat` at or above a commit_ts."""
        files = [
            f
            for kind in (ReleasedKind.ROW, ReleasedKind.REPEAT)
            for f in self.lake.released_changes.files(kind=str(kind))
            if f.high["commit_ts"] >= lowest
        ]
        return self.lake.released_changes.read_files(self.spark, files).where(F.col("commit_ts") >= lowest)

    def _count_new_rows(self) -> int | None:
        """Return how many row events are new, by file statistics; None if maintenance has merged new and old events."""
        has_new_only = all(f.low["batch"] > self.cursor.batch for f in self.new.new_row_files)
        return self.new.rows if has_new_only else None

    # Stage and commit.

    def _advance_cursor(self, window: _Window, counts: EventCounts, late: LateEvents) -> ReleaseCursor:
        """Return the cursor of the release."""
        snapshots, read = advance_source_snapshots(
            self.lake, self.feed, self.cursor, window.taken, lambda name: name not in self._released_tables
        )
        scans = advance_table_scans(
            self.lake, self.feed, self.new, window.groups, lambda: self._part(self.held_before, window.held)
        )
        # A read of one table can complete the snapshot of another.
        named = window.named | {(s.database, s.table) for s in snapshots if s.release == window.release}
        # A scan of a table that was always empty changes no history.
        scanned = {(s.database, s.table) for s in scans if s.release == window.release}
        rejoined = [each for each in self.cursor.left_out if self.feed.takes(each.database, each.table)]
        named |= {(each.database, each.table) for each in rejoined}
        named |= scanned and scanned & self._released_tables
        return ReleaseCursor(
            sequence=window.release,
            batch=self.new.last_batch,
            tables=self._list_tables(window.taken, named),
            pending=counts.pending,
            oldest_pending=counts.oldest_pending,
            holds=window.holds,
            schemas=self.schema_sequence,
            settings=_hold_settings(self.feed),
            highest=max(self.cursor.highest, self.new.highest),
            newest=max(self.cursor.newest, self.new.newest),
            source=max(self.cursor.source, self.new.source),
            totals=counts.add_to_totals(self.cursor.totals, late),
            trimmed=self.cursor.trimmed,
            loads=self.cursor.loads,
            planned=self.cursor.planned,
            refused=self.cursor.refused,
            read=read,
            left_out=self._list_left_out(window),
            rejoined=rejoined,
            snapshots=snapshots,
            scans=scans,
            **self.gate.build_cursor_fields(window.facts),
        )

    def _list_left_out(self, window: _Window) -> list[LeftOut]:
        """Return the tables with a history of which changes are left out, in this release or before."""
        before = [each for each in self.cursor.left_out if not self.feed.takes(each.database, each.table)]
        changes = [
            LeftOut(g.database, g.table, g.count, g.last)
            for g in window.groups
            if g.part == Part.INSIDE and not g.taken
        ]
        changes += [
            LeftOut(*name, 1, event.row["commit_ts"])
            for event, tables in self.statements
            if self.gate.releases_statement(event.row, tables, window.held)
            for name in tables
            if not self.feed.takes(*name)
        ]
        totals = {(each.database, each.table): each for each in before}
        for each in changes:
            name = each.database, each.table
            if name in totals:
                total = totals[name]
                totals[name] = replace(total, events=total.events + each.events, last=max(total.last, each.last))
            elif self.lake.history(*name).exists():
                totals[name] = each
        return [each for _, each in sorted(totals.items())]

    def _list_tables(self, taken: list[EventGroup], named: set[QualifiedName]) -> list[tuple[str, str, int]]:
        """Return [database, table, row events] of the release; `named`: tables that it concerns, with or without events."""
        counts = {name: 0 for name in named if self.feed.takes(*name)} | count_by_table(taken)
        return [(database, table, count) for (database, table), count in sorted(counts.items())]

    def _stage(self, window: _Window, changes: DataFrame | None) -> Staged:
        """Write the rows of the release, without a commit: changes, statements and column layouts."""
        staged = None if changes is None else stage_changes(self.lake, window.release, changes)
        groups = window.taken
        if staged is not None and self.gate.moves_changes:
            groups = narrow_groups(self.lake, groups, staged)
        others = [*window.statements, *build_layout_rows(self.protocol, window.schemas, groups)]
        rest = self.lake.released_changes.stage_rows([row | {"release": window.release} for row in others])
        return rest if staged is None else rest + staged

    def _report(
        self, window: _Window, counts: EventCounts, late: LateEvents, cursor: ReleaseCursor, staged: Staged
    ) -> ReleaseReport:
        released, duplicate = count_written(self.lake, staged)
        return replace(
            report_state(self.feed, self.cursor, cursor),
            **asdict(counts),
            release=window.release,
            released=released,
            duplicate=duplicate,
            late_repeated=late.repeated,
            late_unseen=late.unseen,
            late_sample=late.sample,
            ddl=len(window.statements),
            tables=len(window.facts.tables),
            overtaken=self._list_overtaken_statements(cursor),
        )

    def _list_overtaken_statements(self, after: ReleaseCursor) -> list[dict[str, Any]]:
        """Return the DDL events of earlier batches that wait in topics that other topics have passed in an earlier release.

        A topic that only lags has caught up by then. Each statement comes once, as a row of released_changes.

        Args:
            after: the cursor of the release.
        """
        passed = max(self.cursor.watermarks.values(), default=0)
        return keep_first_records(
            event.row
            for event, tables in self.statements
            if after.ungated < event.row["batch"] <= self.cursor.batch
            and after.watermarks.get(event.row["topic"], 0) <= event.row["commit_ts"] < passed
            and any(self.feed.takes(*name) for name in tables)
        )


def _select_taken(groups: list[EventGroup]) -> list[EventGroup]:
    """Return the groups in the window whose tables the feed takes."""
    return [g for g in groups if g.part == Part.INSIDE and g.taken]


def _complete_holds(holds: list[Hold], groups: list[EventGroup], schemas: LayoutSchemas) -> list[Hold]:
    """Add to each hold the number of its events and, if a schema is missing, the first event without it."""
    held = [g for g in groups if g.part == Part.PENDING and g.reached]
    counts = count_by_table(held)
    firsts = find_first_events(g for g in held if g.layout_id in schemas.missing_layouts)
    result = []
    for hold in holds:
        name = hold.database, hold.table
        lacks_first = hold.reason == HoldReason.SCHEMA and not hold.first
        first = firsts.get(name, hold.first) if lacks_first else hold.first
        result.append(replace(hold, events=hold.events + counts.get(name, 0), first=first))
    return result
