"""The stage released_changes, the gate: it releases the events below the watermark, deduplicated.

Released rows and watermark are in one commit. This module is long because it holds all steps of that commit in their order.
"""

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import (
    RELEASED_CHANGES,
    Hold,
    HoldReason,
    LoadedTable,
    PartitionWatermarks,
    ReleaseCursor,
    ReleasedKind,
    SourceSnapshot,
    TableScan,
    TopicWatermarks,
)
from cdc_assets.lakehouse.schema import conform
from cdc_assets.lakehouse.table import Staged
from cdc_assets.lakehouse.type_observations import Refused
from cdc_assets.protocols import protocol_of
from cdc_assets.release.base import EventGroup, Gate, HoldPositions, Part, QualifiedName, WindowFacts, hold_position
from cdc_assets.release.changes import fill_keys, find_shared_groups, hash_group
from cdc_assets.release.counts import EventCounts, count_events
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
from cdc_assets.release.source_snapshots import advance_snapshots, keep_unended, list_ended_tables
from cdc_assets.release.statements import DdlEvent, build_ddl_events, explain_hold, keep_first_records, list_row_ends
from cdc_assets.release.table_scans import ScanEvents, advance_scans, parse_scans
from cdc_assets.release.tables import taken_tables
from cdc_assets.release.watermarks import has_watermarks
from cdc_assets.release.window import count_by_table, find_first_events, group_events, have_distinct_keys
from cdc_assets.spark.session import INTERPRETED_ROW_LIMIT, checkpointed, session_for
from cdc_assets.stages.load.release import (
    find_due_reloads,
    is_plan_due,
    mark_covered,
    release_loads,
    release_reloads,
)
from cdc_assets.stages.release.gate_choice import choose_gate
from cdc_assets.stages.release.new_events import read_new_events
from cdc_assets.stages.release.snapshot_events import find_scan_events, may_lack_reads


@dataclass(frozen=True)
class ReleaseReport:
    """What one run of the stage did. Counts are of row events."""

    release: int | None = None  # number of the release; None: the run made no commit
    rows: int = 0  # new since the release before
    window: int = 0  # in the release window, as counted before the deduplication
    released: int = 0
    duplicate: int = 0
    late_repeated: int = 0  # late duplicates of released changes, which are harmless
    late_unseen: int = 0  # late and never seen before
    excluded: int = 0  # of tables that the feeds file leaves out
    covered: int = 0  # at or below the position of their table's dump
    pending: int = 0  # pending after this run
    pending_before: int = 0
    pending_new: int = 0  # new and pending
    ddl: int = 0
    tables: int = 0  # tables with changes
    watermarks: TopicWatermarks = field(default_factory=dict)
    watermarks_before: TopicWatermarks = field(default_factory=dict)
    partition_watermarks: PartitionWatermarks = field(default_factory=dict)
    late_sample: list[dict[str, Any]] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    newest: int = 0  # as `ReleaseCursor.newest`
    source: int = 0  # as `ReleaseCursor.source`
    loaded: list[LoadedTable] = field(default_factory=list)  # tables that this run loaded from a dump
    total: dict[str, int] = field(default_factory=dict)  # as `ReleaseCursor.totals`
    scans: list[TableScan] = field(default_factory=list)  # as `ReleaseCursor.scans`


class Release:
    """Raises the watermarks, and releases the events below them.

    The window is [released watermark, new watermark) by commit_ts over change_events. Events above it stay there, pending.
    The window of a held table ends at its hold, and begins there in the run that finds the hold's reason gone.
    """

    name = "released_changes"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Return whether new events, holds whose reason may be gone, or dumps to load wait."""
        cursor = _read_cursor(lake)
        if self._has_new_input(lake, feed, cursor):
            return True
        plan = lake.loads.cursor()
        return is_plan_due(plan, cursor) or bool(find_due_reloads(lake, plan, cursor))

    def _has_new_input(self, lake: Lakehouse, feed: Feed, cursor: ReleaseCursor) -> bool:
        decoded = lake.change_events.cursor()
        return decoded is not None and (decoded.batch > cursor.batch or bool(_retried_holds(lake, feed, cursor)))

    def run(self, lake: Lakehouse, feed: Feed) -> ReleaseReport:
        """Release the loads that begin histories, then the events, then the loads that replace rows.

        The loads that begin histories come first, a commit each, so that the gate knows which events their dumps cover. The
        events are one commit, whose cursor has the watermarks below which events may be dropped. A load that replaces rows
        needs all changes up to its dump released.

        Raises:
            ConcurrentRunError: another run released at the same time.
        """
        cursor, plan = _read_cursor(lake), lake.loads.cursor()
        loaded = []
        if plan is not None and is_plan_due(plan, cursor):
            loaded = release_loads(lake, feed, plan, cursor)
            cursor = _read_cursor(lake)
        new = read_new_events(lake, feed, cursor) if self._has_new_input(lake, feed, cursor) else None
        report = _report_state(feed, cursor, cursor) if new is None else _Run(lake, feed, new).release()
        if plan is not None:
            cursor = _read_cursor(lake)
            if reloads := find_due_reloads(lake, plan, cursor):
                loaded += release_reloads(lake, feed, cursor, reloads)
        return replace(report, release=report.release or cursor.sequence, loaded=loaded) if loaded else report


def _read_cursor(lake: Lakehouse) -> ReleaseCursor:
    return lake.released_changes.cursor() or ReleaseCursor(sequence=0)


def _schema_sequence(lake: Lakehouse) -> int:
    cursor = lake.table_schemas.cursor()
    return cursor.sequence if cursor else 0


def _hold_settings(feed: Feed) -> str:
    """Return the feed's settings that holds depend on, as text."""
    return json.dumps(feed.schema_changes)


def _read_refused(lake: Lakehouse) -> list[Refused]:
    """Return the tables that the type check refuses."""
    cursor = lake.type_observations.cursor()
    return cursor.refused if cursor else []


def _retried_holds(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor) -> Sequence[Hold]:
    """Return the holds whose reason may be gone."""
    if not cursor.holds:
        return []
    return find_retried_holds(cursor, _schema_sequence(lake), _hold_settings(feed), lambda: _read_refused(lake))


def _report_state(feed: Feed, before: ReleaseCursor, after: ReleaseCursor) -> ReleaseReport:
    """Return a report with the gate's state before and after a run, without the run's counts."""
    marks = after.partition_watermarks
    return ReleaseReport(
        watermarks=after.watermarks,
        watermarks_before=before.watermarks,
        partition_watermarks=marks if has_watermarks(feed, marks) else {},
        pending=after.pending,
        pending_before=before.pending,
        holds=after.holds,
        newest=after.newest,
        source=after.source,
        total=after.totals,
        scans=after.scans,
    )


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
    """

    release: int
    groups: list[EventGroup]
    taken: list[EventGroup]
    schemas: LayoutSchemas
    holds: list[Hold]
    facts: WindowFacts
    held: HoldPositions


@dataclass(frozen=True)
class _Statements:
    """The DDL events in the window: a row of released_changes each, and the tables that they name."""

    rows: list[dict[str, Any]]
    tables: set[QualifiedName]


class _Run:
    """One run of the stage."""

    def __init__(self, lake: Lakehouse, feed: Feed, new: NewEvents) -> None:
        self.lake, self.feed, self.new, self.cursor = lake, feed, new, new.cursor
        self.protocol = protocol_of(feed)
        # Held events are read again only if the reason of a hold may be gone.
        retried = _retried_holds(lake, feed, self.cursor)
        self.kept_holds = [] if retried else self.cursor.holds
        self.gate: Gate = choose_gate(lake, feed, new, retried, partial(session_for, lake.spark))
        self.held_before = self.gate.hold_positions(self.cursor.holds)
        self.files = self.gate.select_files()
        rows = sum(f.rows for f in self.files)
        self.is_small = rows <= INTERPRETED_ROW_LIMIT
        # A load whose position is below all events covers none of them.
        oldest = min((f.low["commit_ts"] for f in self.files), default=0)
        self.loads = [each for each in self.cursor.loads if not each.is_reload and each.position >= oldest]
        self.spark: SparkSession = session_for(lake.spark, rows)
        self.events = self._normalize_keys(lake.change_events.read_files(self.spark, self.files))
        self.schema_sequence = _schema_sequence(lake)
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
        statements = self._select_statements(window)
        changes, late_inside = self._deduplicate(window)
        late = self._find_late(window) or late_inside
        counts = count_events(window.groups, late_inside, self._count_new_rows(), self.cursor)
        cursor = self._advance_cursor(window, statements, counts, late)
        staged = self._stage(window, statements, changes)
        self.lake.released_changes.commit(staged, cursor)
        return self._report(window, statements, counts, late, cursor, staged)

    # Classify events by the window.

    def _classify(self) -> _Window:
        """Find the holds, and count the row events by what becomes of them."""
        refused = find_type_holds(_read_refused(self.lake), self.gate, self.cursor, self.held_before)
        unloaded = find_load_holds(self.cursor, self.gate, self.held_before, lambda: self._released_tables)
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
            has_distinct_keys=self.is_small and not any(g.moved for g in taken) and have_distinct_keys(taken),
            tables=frozenset((g.database, g.table) for g in taken),
        )
        holds = self._complete_holds(holds, groups, schemas, held)
        return _Window(self.cursor.sequence + 1, groups, taken, schemas, holds, facts, held)

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
            self.held_before,
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

        if event.error is None and not any(self.feed.stops_at_ddl(*name) for name in tables):
            return None
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
        """Return whether an event would be in the window without its table's hold, and no hold has counted it. BOOLEAN."""
        in_window = [str(Part.INSIDE), str(Part.LATE)]
        is_kept = hold_position(self.gate.hold_positions(self.kept_holds)).isNotNull()
        return F.when(is_kept, self._part({}, {}).isin(in_window)).otherwise(
            self._part(self.held_before, {}).isin(in_window)
        )

    def _complete_holds(
        self, holds: list[Hold], groups: list[EventGroup], schemas: LayoutSchemas, held: HoldPositions
    ) -> list[Hold]:
        """Add to each hold the number of its events and, if a schema is missing, the first event without it."""
        counts = count_by_table(g for g in groups if g.part == Part.PENDING and g.reached)
        firsts = self._find_without_schema(schemas, held) if schemas.missing else {}
        result = []
        for hold in holds:
            name = hold.database, hold.table
            lacks_first = hold.reason == HoldReason.SCHEMA and not hold.first
            first = firsts.get(name, hold.first) if lacks_first else hold.first
            result.append(replace(hold, events=hold.events + counts.get(name, 0), first=first))
        return result

    def _find_without_schema(self, schemas: LayoutSchemas, held: HoldPositions) -> dict[QualifiedName, dict[str, Any]]:
        """Return (database, table) -> the first event whose schema is missing."""
        is_held = self._part(self.held_before, held) == str(Part.PENDING)
        is_in_window = self._part(self.held_before, {}) == str(Part.INSIDE)
        has_no_schema = F.col("layout_id").isin(*schemas.missing_layouts)
        return find_first_events(self.events, is_held & is_in_window & has_no_schema)

    def _select_statements(self, window: _Window) -> _Statements:
        """Return the DDL events in the window, each statement once."""
        inside = [
            (event.row, tables)
            for event, tables in self.statements
            if self._takes_statement(event, tables)
            and self.gate.releases_statement(event.row, tables, self.held_before, window.held)
        ]
        rows = keep_first_records(row for row, _ in inside)
        return _Statements(rows, {name for _, tables in inside for name in tables})

    def _takes_statement(self, event: DdlEvent, tables: AbstractSet[QualifiedName]) -> bool:
        """Return whether the feed takes a table that a statement names; one without a table may change any table."""
        return any(self.feed.takes(*name) for name in tables) or (not tables and event.row["table"] is None)

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
            changes, late = self._deduplicate_shared_keys(events, facts)
        return changes, late or NO_LATE_EVENTS

    def _deduplicate_shared_keys(self, events: DataFrame, facts: WindowFacts) -> tuple[DataFrame, LateEvents | None]:
        """Compare only the events that share a key with another event; the other events are one change each."""
        columns, is_keyless = self.gate.group_columns, F.size("key_columns") == 0
        shared = F.broadcast(checkpointed(find_shared_groups(events.where(~is_keyless), *columns)))
        hashed = events.withColumn("group", hash_group(*columns))
        is_compared = F.col("key_before").isNotNull() | is_keyless
        single = hashed.where(~is_compared).join(shared, on="group", how="left_anti").drop("group")
        others = hashed.join(shared.withColumn("shared", F.lit(True)), on="group", how="left")
        together = others.where(is_compared | F.col("shared")).drop("group", "shared")
        changes, late = self.gate.build_changes(together, self._read_released, facts)
        return self.gate.build_single_changes(single).unionByName(changes, allowMissingColumns=True), late

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

    def _advance_cursor(
        self, window: _Window, statements: _Statements, counts: EventCounts, late: LateEvents
    ) -> ReleaseCursor:
        """Return the cursor of the release."""
        snapshots, read = self._advance_snapshots(window)
        scans = self._advance_scans(window)
        # A read of one table can complete the snapshot of another.
        named = statements.tables | {(s.database, s.table) for s in snapshots if s.release == window.release}
        # A scan of a table that was always empty changes no history.
        scanned = {(s.database, s.table) for s in scans if s.release == window.release}
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
            snapshots=snapshots,
            scans=scans,
            **self.gate.build_cursor_fields(window.facts),
        )

    def _list_tables(self, taken: list[EventGroup], named: set[QualifiedName]) -> list[tuple[str, str, int]]:
        """Return [database, table, row events] of the release; `named`: tables that it concerns, with or without events."""
        counts = {name: 0 for name in named if self.feed.takes(*name)} | count_by_table(taken)
        return [(database, table, count) for (database, table), count in sorted(counts.items())]

    def _advance_snapshots(self, window: _Window) -> tuple[list[SourceSnapshot], list[tuple[str, str, int]]]:
        """Return `ReleaseCursor.snapshots` and `ReleaseCursor.read` after the release."""
        if not self.protocol.takes_snapshots:
            return [], []
        before = self.cursor.snapshots
        after = advance_snapshots(
            before,
            window.taken,
            window.release,
            lambda name: name not in self._released_tables,
            lambda snapshot: may_lack_reads(self.lake, snapshot),
            self.cursor.trimmed.highest,
        )
        return after if self.feed.snapshots == "whole" else keep_unended(after), list_ended_tables(before, after)

    def _advance_scans(self, window: _Window) -> list[TableScan]:
        """Return `ReleaseCursor.scans` after the release."""
        if self.feed.snapshots != "whole":
            return self.cursor.scans
        deleted, begun = self.cursor.trimmed.highest, {each.at for each in self.cursor.scans}
        notified = [s for s in parse_scans(self.new.notifications) if s.at > deleted or s.at in begun]
        inside = [g for g in window.groups if g.part == Part.INSIDE]

        def find_events(scans: list[TableScan]) -> list[ScanEvents | None]:
            part = self._part(self.held_before, window.held)
            return find_scan_events(self.lake, scans, self.new.row_files, part, deleted)

        return advance_scans(self.cursor.scans, notified, inside, window.release, find_events)

    def _stage(self, window: _Window, statements: _Statements, changes: DataFrame | None) -> Staged:
        """Write the rows of the release, without a commit: changes, statements and column layouts."""
        staged = None if changes is None else self._stage_changes(window.release, changes)
        groups = window.taken if staged is None else self._narrow_groups(window.taken, staged)
        others = [*statements.rows, *build_layout_rows(self.protocol, window.schemas, groups)]
        rest = self.lake.released_changes.stage_rows([row | {"release": window.release} for row in others])
        return rest if staged is None else rest + staged

    def _stage_changes(self, release: int, changes: DataFrame) -> Staged:
        columns = {"release": F.lit(release).cast("bigint"), "kind": F.lit(str(ReleasedKind.ROW))}
        if "kind" in changes.columns:
            columns["kind"] = F.coalesce("kind", columns["kind"])
        return self.lake.released_changes.stage(conform(changes.withColumns(columns), RELEASED_CHANGES.columns))

    def _narrow_groups(self, taken: list[EventGroup], staged: Staged) -> list[EventGroup]:
        """Return the groups that have changes, from the first commit_ts of a change to the last.

        A change has a larger commit_ts than its event if the source's clock went back, and duplicates have no change.
        """
        if not self.gate.moves_changes:
            return taken
        files = staged.in_partition(kind=str(ReleasedKind.ROW)).files
        columns = ["database", "table", "layout_id"]
        spans: dict[tuple[Any, ...], list[int]] = {}
        for part in self.lake.released_changes.fetch_parts(files, *columns, "commit_ts"):
            for r in part.group_by(columns).aggregate([("commit_ts", "min"), ("commit_ts", "max")]).to_pylist():
                spans.setdefault(tuple(r[c] for c in columns), []).extend((r["commit_ts_min"], r["commit_ts_max"]))
        with_spans = [(g, spans.get((g.database, g.table, g.layout_id))) for g in taken]
        return [replace(g, first=min(span), last=max(span)) for g, span in with_spans if span]

    def _report(
        self,
        window: _Window,
        statements: _Statements,
        counts: EventCounts,
        late: LateEvents,
        cursor: ReleaseCursor,
        staged: Staged,
    ) -> ReleaseReport:
        released, duplicate = self._count_written(staged)
        return replace(
            _report_state(self.feed, self.cursor, cursor),
            release=window.release,
            rows=counts.rows,
            window=counts.window,
            released=released,
            duplicate=duplicate,
            late_repeated=late.repeated,
            late_unseen=late.unseen,
            excluded=counts.excluded,
            covered=counts.covered,
            pending_new=counts.pending_new,
            ddl=len(statements.rows),
            tables=len(window.facts.tables),
            late_sample=late.sample,
        )

    def _count_written(self, staged: Staged) -> tuple[int, int]:
        """Return how many row events the changes in staged files stand for, and how many duplicates they dropped."""
        events = repeats = 0
        for kind in (ReleasedKind.ROW, ReleasedKind.REPEAT):
            for part in self.lake.released_changes.fetch_parts(
                staged.in_partition(kind=str(kind)).files, "events", "repeats"
            ):
                events += pc.sum(part["events"]).as_py() or 0
                repeats += pc.sum(part["repeats"]).as_py() or 0
        return events, repeats


def _select_taken(groups: list[EventGroup]) -> list[EventGroup]:
    """Return the groups in the window whose tables the feed takes."""
    return [g for g in groups if g.part == Part.INSIDE and g.taken]
