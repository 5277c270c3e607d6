"""The stage released_changes: the gate. Events below the watermark, each change once, in one commit with the watermark."""

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
from cdc_assets.initial_load.release import (
    find_due_reloads,
    is_plan_due,
    mark_covered,
    release_loads,
    release_reloads,
)
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
from cdc_assets.release.base import Facts, Gate, Group, Held, Name, Part, held_since
from cdc_assets.release.changes import group_hash, several, with_keys
from cdc_assets.release.choose import gate_for, has_watermarks
from cdc_assets.release.counts import Counts, counted
from cdc_assets.release.holds import by_loads, by_types, earliest, retried, with_statements
from cdc_assets.release.late import NO_LATE, Late, late_events
from cdc_assets.release.layouts import Known, known_layouts, layout_rows, with_known_keys
from cdc_assets.release.news import News, news_of
from cdc_assets.release.source_snapshots import advanced_snapshots, damaged, ended_with, not_ended, of_reads, read_of
from cdc_assets.release.statements import Statement, statements_of, why_held
from cdc_assets.release.table_scans import Seen, advanced_scans, looked, scans_told
from cdc_assets.release.tables import taken_tables
from cdc_assets.spark.session import INTERPRETED_ROW_LIMIT, checkpointed, session_for


@dataclass(frozen=True)
class ReleaseReport:
    """What one run of the stage did. The counts are of row events, `total` since the feed began."""

    release: int | None = None  # None: there was nothing to look at
    rows: int = 0  # row events that were new to the gate
    window: int = 0  # row events in the release window, as counted before their release
    released: int = 0
    duplicate: int = 0
    late_repeated: int = 0  # below the released watermark, and released before: harmless
    late_unseen: int = 0  # below what was released, and never seen
    excluded: int = 0  # of tables that the feeds file leaves out
    covered: int = 0  # at or below the position at which their table was loaded
    pending: int = 0  # at or above the watermark, as it stands after this run
    pending_before: int = 0
    pending_new: int = 0  # of the new ones those that are pending
    ddl: int = 0
    tables: int = 0  # tables with changes
    watermarks: TopicWatermarks = field(default_factory=dict)
    watermarks_before: TopicWatermarks = field(default_factory=dict)
    partition_watermarks: PartitionWatermarks = field(default_factory=dict)
    late_sample: list[dict[str, Any]] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    newest: int = 0  # the newest Kafka time of any record that the gate has seen, in milliseconds
    source: int = 0  # as `ReleaseCursor.source`
    loaded: list[LoadedTable] = field(default_factory=list)  # tables whose rows were released out of a dump
    total: dict[str, int] = field(default_factory=dict)
    scans: list[TableScan] = field(default_factory=list)  # as `ReleaseCursor.scans`


class Release:
    """Advances the watermarks, and releases what lies below them.

    The window is [previous watermark, watermark) by commit_ts over change_events; what is above stays there, pending. So
    does what a table has from the position on at which it is held; that table's window ends there, and begins there in the
    run that finds the reason gone.
    """

    name = "released_changes"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Whether there are events not looked at yet, held ones whose reason may have gone, or tables to load."""
        cursor = _cursor(lake)
        if self._news(lake, feed, cursor):
            return True
        plan = lake.loads.cursor()
        return is_plan_due(plan, cursor) or bool(find_due_reloads(lake, plan, cursor))

    def _news(self, lake: Lakehouse, feed: Feed, cursor: ReleaseCursor) -> bool:
        decoded = lake.change_events.cursor()
        return decoded is not None and (decoded.batch > cursor.batch or bool(_retried(lake, feed, cursor)))

    def run(self, lake: Lakehouse, feed: Feed) -> ReleaseReport:
        """Look at the new events, and release: one commit, whose cursor holds the watermarks that events are dropped by.

        Before it, a commit each, the tables whose histories begin with a load: what a dump has is then known to be a repeat.
        After it, those that are loaded anew and of which all is released that their dump has the outcome of.

        Raises:
            ConcurrentRunError: another run released meanwhile.
        """
        cursor, plan = _cursor(lake), lake.loads.cursor()
        loaded = []
        if plan is not None and is_plan_due(plan, cursor):
            loaded = release_loads(lake, feed, plan, cursor)
            cursor = _cursor(lake)
        news = news_of(lake, feed, cursor) if self._news(lake, feed, cursor) else None
        report = _stands(feed, cursor, cursor) if news is None else _Run(lake, feed, news).report()
        if plan is not None:
            cursor = _cursor(lake)
            if reloads := find_due_reloads(lake, plan, cursor):
                loaded += release_reloads(lake, feed, cursor, reloads)
        return replace(report, release=report.release or cursor.sequence, loaded=loaded) if loaded else report


def _cursor(lake: Lakehouse) -> ReleaseCursor:
    return lake.released_changes.cursor() or ReleaseCursor(sequence=0)


def _learnt(lake: Lakehouse) -> int:
    learnt = lake.table_schemas.cursor()
    return learnt.sequence if learnt else 0


def _settings(feed: Feed) -> str:
    """Of the settings those that tables are held by."""
    return json.dumps(feed.schema_changes)


def _refused(lake: Lakehouse) -> list[Refused]:
    judged = lake.type_observations.cursor()
    return judged.refused if judged else []


def _retried(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor) -> Sequence[Hold]:
    return retried(cursor, _learnt(lake), _settings(feed), lambda: _refused(lake)) if cursor.holds else []


def _stands(feed: Feed, before: ReleaseCursor, after: ReleaseCursor) -> ReleaseReport:
    """Where a run has left the gate, without what it did."""
    known = after.partition_watermarks
    return ReleaseReport(
        watermarks=after.watermarks,
        watermarks_before=before.watermarks,
        partition_watermarks=known if has_watermarks(feed, known) else {},
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
    """What a release takes, and what it leaves."""

    release: int  # its number
    groups: list[Group]  # all row events that it looked at
    taken: list[Group]  # of them those that it releases
    known: Known
    holds: list[Hold]
    facts: Facts
    after: Held  # where tables are held from now on


class _Run:
    """One run of the stage."""

    def __init__(self, lake: Lakehouse, feed: Feed, news: News) -> None:
        self.lake, self.feed, self.news, self.cursor = lake, feed, news, news.cursor
        self.protocol = protocol_of(feed)
        # A hold costs nothing until its reason may have gone.
        again = _retried(lake, feed, self.cursor)
        self.kept = [] if again else self.cursor.holds
        self.gate: Gate = gate_for(lake, feed, news, again, partial(session_for, lake.spark))
        self.before = self.gate.held(self.cursor.holds)
        self.files = self.gate.files()
        rows = sum(f.rows for f in self.files)
        self.small = rows <= INTERPRETED_ROW_LIMIT
        # A load from before the oldest event has the outcome of none.
        oldest = min((f.low["commit_ts"] for f in self.files), default=0)
        self.loads = [each for each in self.cursor.loads if not each.is_reload and each.position >= oldest]
        self.spark: SparkSession = session_for(lake.spark, rows)
        self.events = self._normal(lake.change_events.read_files(self.spark, self.files))
        self.schemas = _learnt(lake)
        learnt = statements_of(news.ddl, self._shapes, lake.read_decisions()) if news.ddl else []
        self.statements = [(each, frozenset(each.tables)) for each in learnt]

    @cached_property
    def _shapes(self) -> list[dict[str, Any]]:
        """What statements have made of tables: a numbered schema may be older by its number than the statement it is of."""
        return [r for r in self.lake.schema_rows() if r["ddl_statement"] is not None]

    @cached_property
    def _released_tables(self) -> set[Name]:
        return self.lake.released_tables()

    def report(self) -> ReleaseReport:
        """Release, and tell."""
        refused = by_types(_refused(self.lake), self.gate, self.cursor, self.before)
        unloaded = by_loads(self.cursor, self.gate, self.before, lambda: self._released_tables)
        holds = earliest([*self.kept, *refused, *unloaded], self.gate.axis)
        groups = self._groups(self.gate.held(holds))
        known = known_layouts(self.lake, self.protocol, [g for g in groups if g.part == Part.INSIDE and g.taken])
        without_schema = [Hold(*name, since, HoldReason.SCHEMA, 0, {}) for name, since in sorted(known.missing.items())]
        found = with_statements(
            [*holds, *without_schema],
            self.statements,
            self.feed,
            self.gate,
            self.before,
            lambda statement, tables: self._why_held(statement, tables, groups),
        )
        after = self.gate.held(found)
        if after != self.gate.held(holds):
            groups = self._groups(after)
        holds = self._told(found, groups, known, after)
        taken = [g for g in groups if g.part == Part.INSIDE and g.taken]
        facts = Facts(
            unkeyed=any(g.unkeyed for g in taken),
            placed=any(g.placed for g in taken),
            apart=self.small and not any(g.moved for g in taken) and _different(taken),
            tables=frozenset((g.database, g.table) for g in taken),
        )
        return self._commit(_Window(self.cursor.sequence + 1, groups, taken, known, holds, facts, after))

    def _why_held(self, statement: Statement, tables: set[Name], groups: list[Group]) -> str | None:
        at = statement.row["commit_ts"]

        def seen(name: Name) -> bool:
            said = any((r["database"], r["table"]) == name and r["commit_ts"] < at for r in self._shapes)
            come = any((g.database, g.table) == name and g.first < at for g in groups)
            return said or come or name in self._released_tables

        if statement.why_doubted is None and not any(self.feed.stops_at_ddl(*name) for name in tables):
            return None
        return why_held(statement, tables, self.feed, self._shapes, seen)

    def _groups(self, after: Held) -> list[Group]:
        """Count the row events: what the window has, what is behind it, what came too late."""
        if not self.files:
            return []
        columns = ["part", "taken", "new", "database", "table", "layout_id", "unkeyed", "placed", "reached"]
        snapshots = self.protocol.takes_snapshots
        judged = {
            "part": self._part(self.before, after),
            "taken": taken_tables(self.feed),
            "reached": self._reached() if after else F.lit(False),
            "hash": group_hash(*self.gate.by),
        }
        told = self.events.withColumns(judged | ({"read": read_of()} if snapshots else {})).selectExpr(
            *(["read", "detail", "record_timestamp"] if snapshots else []),
            *judged,
            f"batch > {self.cursor.batch} AS new",
            "database",
            "table",
            "layout_id",
            "key IS NULL AS unkeyed",
            "source IS NOT NULL AS placed",
            "commit_ts",
            "batch",
            "key_before",
            "struct(layout, jdbc_types, schema_version, table_id, key_columns) AS sample",
        )
        found = told.groupBy(*columns, *(["read"] if snapshots else [])).agg(
            *(of_reads() if snapshots else []),
            F.expr("count(*) AS count"),
            F.expr("min(commit_ts) AS first"),
            F.expr("max(commit_ts) AS last"),
            F.expr("min(batch) AS batch"),
            F.expr("count(key_before) AS moved"),
            F.expr("collect_list(hash) AS keys" if self.small else "CAST(array() AS ARRAY<BIGINT>) AS keys"),
            F.expr("any_value(sample) AS sample"),
        )
        return [Group(**r) for r in found.toArrow().to_pylist()]

    def _part(self, before: Held, after: Held) -> Column:
        """The `Part` of a row event, STRING."""
        return mark_covered(self.gate.part(before, after), self.loads)

    def _reached(self) -> Column:
        """Whether an event would be in the window if its table were not held, and was not counted by its hold before."""
        there = [str(Part.INSIDE), str(Part.LATE)]
        kept = held_since(self.gate.held(self.kept)).isNotNull()
        return F.when(kept, self._part({}, {}).isin(there)).otherwise(self._part(self.before, {}).isin(there))

    def _told(self, holds: list[Hold], groups: list[Group], known: Known, after: Held) -> list[Hold]:
        """The holds with how many events each has, and the first of those whose schema is missing."""
        reached = _by_table([g for g in groups if g.part == Part.PENDING and g.reached])
        firsts = self._without_schema(known, after) if known.missing else {}
        told = []
        for h in holds:
            name = h.database, h.table
            first = firsts.get(name, h.first) if h.reason == HoldReason.SCHEMA and not h.first else h.first
            told.append(replace(h, events=h.events + reached.get(name, 0), first=first))
        return told

    def _without_schema(self, known: Known, after: Held) -> dict[Name, dict[str, Any]]:
        """The first row of each table whose schema is not known."""
        missing = F.col("layout_id").isin(*known.missing_layouts)
        first = F.struct(
            "table_id",
            "schema_version",
            "topic",
            "partition",
            "offset",
            F.unix_millis("record_timestamp").alias("record_ms"),
        )
        without = self._part(self.before, {}) == str(Part.INSIDE)
        rows = (
            self.events.where((self._part(self.before, after) == str(Part.PENDING)) & without & missing)
            .groupBy("database", "table")
            .agg(F.min_by(first, "commit_ts").alias("first"))
            .collect()
        )
        return {(r["database"], r["table"]): r["first"].asDict() for r in rows}

    def _commit(self, window: _Window) -> ReleaseReport:
        inside = [
            (each.row, tables)
            for each, tables in self.statements
            if self._takes(each, tables) and self.gate.releases(each.row, tables, self.before, window.after)
        ]
        statements = _once([row for row, _ in inside])
        out, late_inside = self._changes(window)
        too_late = [g for g in window.groups if g.part == Part.LATE]
        late = self._late(too_late) if too_late else late_inside
        rows = self.news.rows if self._exact() else None
        counts = counted(window.groups, NO_LATE if too_late else late_inside, rows, self.cursor)
        named = {name for _, tables in inside for name in tables}
        cursor = self._advanced(window, named, counts, late)
        staged = None if out is None else self._staged(window.release, out)
        groups = window.taken if staged is None else self._released_groups(window.taken, staged)
        others = [*statements, *layout_rows(self.protocol, window.known, groups)]
        rest = self.lake.released_changes.stage_rows([row | {"release": window.release} for row in others])
        staged = rest if staged is None else rest + staged
        self.lake.released_changes.commit(staged, cursor)
        released, duplicate = self._written(staged)
        return replace(
            _stands(self.feed, self.cursor, cursor),
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
            ddl=len(statements),
            tables=len(window.facts.tables),
            late_sample=late.sample,
        )

    def _advanced(self, window: _Window, named: set[Name], counts: Counts, late: Late) -> ReleaseCursor:
        """The cursor of the release; `named`: the tables that its statements name."""
        snapshots, read = self._snapshots(window)
        scans = self._scans(window)
        # That of one table may be whole by what another table's reads say.
        named = named | {(each.database, each.table) for each in snapshots if each.release == window.release}
        # Of an empty table there may have been nothing ever.
        scanned = {(each.database, each.table) for each in scans if each.release == window.release}
        named |= scanned and scanned & self._released_tables
        return ReleaseCursor(
            sequence=window.release,
            batch=self.news.through,
            tables=self._tables(window.taken, named),
            pending=counts.pending,
            oldest_pending=counts.oldest_pending,
            holds=window.holds,
            schemas=self.schemas,
            settings=_settings(self.feed),
            highest=max(self.cursor.highest, self.news.highest),
            newest=max(self.cursor.newest, self.news.newest),
            source=max(self.cursor.source, self.news.source),
            totals=counts.totals(self.cursor.totals, late),
            trimmed=self.cursor.trimmed,
            loads=self.cursor.loads,
            planned=self.cursor.planned,
            refused=self.cursor.refused,
            read=read,
            snapshots=snapshots,
            scans=scans,
            **self.gate.state(window.facts),
        )

    def _staged(self, release: int, changes: DataFrame) -> Staged:
        """The changes of the release, written and not committed."""
        told = {"release": F.lit(release).cast("bigint"), "kind": F.lit(str(ReleasedKind.ROW))}
        if "kind" in changes.columns:
            told["kind"] = F.coalesce("kind", told["kind"])
        return self.lake.released_changes.stage(conform(changes.withColumns(told), RELEASED_CHANGES.columns))

    def _released_groups(self, taken: list[Group], staged: Staged) -> list[Group]:
        """The groups of which there are changes, from the first commit_ts of a change to the last.

        A change whose clock went back has a larger commit_ts than its event; repeats have none.
        """
        if not self.gate.moves_changes:
            return taken
        rows = staged.in_partition(kind=str(ReleasedKind.ROW)).files
        place = ["database", "table", "layout_id"]
        spans: dict[tuple[Any, ...], list[int]] = {}
        for part in self.lake.released_changes.fetch_parts(rows, *place, "commit_ts"):
            for r in part.group_by(place).aggregate([("commit_ts", "min"), ("commit_ts", "max")]).to_pylist():
                spans.setdefault(tuple(r[c] for c in place), []).extend((r["commit_ts_min"], r["commit_ts_max"]))
        found = [(g, spans.get((g.database, g.table, g.layout_id))) for g in taken]
        return [replace(g, first=min(span), last=max(span)) for g, span in found if span]

    def _snapshots(self, window: _Window) -> tuple[list[SourceSnapshot], list[tuple[str, str, int]]]:
        """The snapshots of a connector that count after the release, and the tables of which one has ended with it."""
        if not self.protocol.takes_snapshots:
            return [], []
        known = self.cursor.snapshots
        found = advanced_snapshots(
            known,
            window.taken,
            window.release,
            lambda name: name not in self._released_tables,
            lambda snapshot: damaged(self.lake, snapshot),
            self.cursor.trimmed.highest,
        )
        return found if self.feed.snapshots == "whole" else not_ended(found), ended_with(known, found)

    def _scans(self, window: _Window) -> list[TableScan]:
        """The tables' parts in a connector's incremental snapshots, after the release."""
        if self.feed.snapshots != "whole":
            return self.cursor.scans
        deleted, known = self.cursor.trimmed.highest, {each.at for each in self.cursor.scans}
        told = [s for s in scans_told(self.news.notifications) if s.at > deleted or s.at in known]
        inside = [g for g in window.groups if g.part == Part.INSIDE]

        def look(scans: list[TableScan]) -> list[Seen | None]:
            return looked(self.lake, scans, self.news.row_files, self._part(self.before, window.after), deleted)

        return advanced_scans(self.cursor.scans, told, inside, window.release, look)

    def _takes(self, statement: Statement, tables: AbstractSet[Name]) -> bool:
        """Whether the feed has a table that a statement names; one that names none may be about any."""
        row = statement.row
        return any(self.feed.takes(*name) for name in tables) or (not tables and row["table"] is None)

    def _tables(self, taken: list[Group], named: set[Name]) -> list[tuple[str, str, int]]:
        """The tables of the release, with how many row events each has: none where only statements name it."""
        counts = {name: 0 for name in named if self.feed.takes(*name)} | _by_table(taken)
        return [(database, table, count) for (database, table), count in sorted(counts.items())]

    def _exact(self) -> bool:
        """Whether the new files hold new events only: maintenance may have put them together with others."""
        return all(f.low["batch"] > self.cursor.batch for f in self.news.new_rows)

    def _keyed(self, rows: DataFrame, known: Known, *, unkeyed: bool) -> DataFrame:
        """Row events with `key` and `key_before` wherever their table is known to have a key."""
        if not unkeyed:
            return rows
        return self._normal(with_keys(with_known_keys(rows, known)))

    def _normal(self, rows: DataFrame) -> DataFrame:
        """Row events with their keys in the form in which they are compared."""
        normal = {c: self.protocol.normalize_key(F.col(c), F.col("layout")) for c in ("key", "key_before")}
        return rows.withColumns(normal)

    def _changes(self, window: _Window) -> tuple[DataFrame | None, Late]:
        """The changes in the window, None where it is empty. Out: columns of released_changes."""
        if not window.taken:
            return None, NO_LATE
        facts = window.facts
        inside = (self._part(self.before, window.after) == str(Part.INSIDE)) & taken_tables(self.feed)
        events = self._keyed(self.events.where(inside), window.known, unkeyed=facts.unkeyed)
        if facts.apart and not facts.unkeyed and not self.gate.judges_alone():
            changes, late = self.gate.alone(events), None
        elif self.small or self.gate.judges_alone():
            changes, late = self.gate.changes(events, self._released, facts)
        else:
            changes, late = self._apart(events, facts)
        return changes, late or NO_LATE

    def _apart(self, events: DataFrame, facts: Facts) -> tuple[DataFrame, Late | None]:
        """Many events: only those that share a key with another are looked at together."""
        by, keyless = self.gate.by, F.size("key_columns") == 0
        shared = F.broadcast(checkpointed(several(events.where(~keyless), *by)))
        hashed = events.withColumn("group", group_hash(*by))
        moved = F.col("key_before").isNotNull() | keyless
        single = hashed.where(~moved).join(shared, on="group", how="left_anti").drop("group")
        others = hashed.join(shared.withColumn("shared", F.lit(True)), on="group", how="left")
        together = others.where(moved | F.col("shared")).drop("group", "shared")
        changes, late = self.gate.changes(together, self._released, facts)
        return self.gate.alone(single).unionByName(changes, allowMissingColumns=True), late

    def _late(self, groups: list[Group]) -> Late:
        """What came after its time: of a table that has been released past it."""
        rows = self.events.where(self._part(self.before, {}) == str(Part.LATE))
        known = known_layouts(self.lake, self.protocol, groups)
        return late_events(self._keyed(rows, known, unkeyed=True), self._released(min(g.first for g in groups)))

    def _released(self, lowest: int) -> DataFrame:
        """The row changes released before, and the repeats of some, at or above a commit_ts."""
        wanted = [
            f
            for kind in (ReleasedKind.ROW, ReleasedKind.REPEAT)
            for f in self.lake.released_changes.files(kind=str(kind))
            if f.high["commit_ts"] >= lowest
        ]
        return self.lake.released_changes.read_files(self.spark, wanted).where(F.col("commit_ts") >= lowest)

    def _written(self, staged: Staged) -> tuple[int, int]:
        """How many row events a release stands for, and how many repeats it dropped, as its files have it."""
        events = repeats = 0
        for kind in (ReleasedKind.ROW, ReleasedKind.REPEAT):
            for part in self.lake.released_changes.fetch_parts(
                staged.in_partition(kind=str(kind)).files, "events", "repeats"
            ):
                events += pc.sum(part["events"]).as_py() or 0
                repeats += pc.sum(part["repeats"]).as_py() or 0
        return events, repeats


def _different(groups: list[Group]) -> bool:
    keys = [key for g in groups for key in g.keys]
    return len(set(keys)) == len(keys)


def _by_table(groups: list[Group]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for g in groups:
        found[g.database, g.table] = found.get((g.database, g.table), 0) + g.count
    return found


def _once(statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each DDL statement once, under its first record, however often and in however many partitions it came."""
    ordered = sorted(statements, key=lambda s: (s["topic"], s["partition"], s["offset"], s["index"]), reverse=True)
    first = {(s["commit_ts"], s["database"], s["table"], s["ddl_statement"]): s for s in ordered}
    return [{k: v for k, v in s.items() if k != "batch"} | {"kind": str(ReleasedKind.DDL)} for s in first.values()]
