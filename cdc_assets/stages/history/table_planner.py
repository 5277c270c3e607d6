"""Plan what a run does for one history table: a replay if something came late, and the parts, one commit each.

This module is long because every part of a plan depends on the same statements, layouts and cursor of the table.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql.types import StructField

from cdc_assets.config import Feed
from cdc_assets.history.contradictions import (
    KeySuspicion,
    Suspicion,
    collect_stated_columns,
    collect_undeclared_columns,
    find_key_suspicions,
    find_suspicions,
)
from cdc_assets.history.effects import UnappliedStatement
from cdc_assets.history.evolution import SEEN, Arrive, Close, Evolution, Recover, Rekey, SeenColumns, StepOp
from cdc_assets.history.evolving_table import NamedTypes
from cdc_assets.history.layouts import plan_layouts
from cdc_assets.history.message_keys import (
    may_change_unstated_key,
    report_key_column,
    report_other_key,
    report_other_texts,
)
from cdc_assets.history.planned_columns import type_overrides
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl
from cdc_assets.history.table_plan import LoadToApply, TablePlan
from cdc_assets.lakehouse.decisions import identify_statement
from cdc_assets.lakehouse.history import COPY, RESERVED, HistoryCursor, unprefixed_name
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import ConnectorSnapshot, ReleasedKind
from cdc_assets.mysql_types.types import parsed
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.protocols.loaded import columns_in, is_loaded_layout, reader_of
from cdc_assets.stages.history.new_releases import LAYOUT, NewReleases, fetch_released


class LoadTooOldError(Exception):
    """A replay from a reload on would need changes that maintenance has deleted."""

    def __init__(self, name: Name, position: int, trimmed: int) -> None:
        super().__init__(
            f"{'.'.join(name)} was reloaded at {position}, but maintenance has deleted changes up to {trimmed}, which the "
            "history needs again: run the job rebuild."
        )


class TablePlanner:
    """Plans one table of a unit of linked tables.

    Attributes:
        name: the table.
        before: the table's evolution by the statements that it has applied.
        replay: the commit_ts from which on the table is applied again; None if it is not.
    """

    def __init__(
        self, lake: Lakehouse, feed: Feed, name: Name, cursor: HistoryCursor | None, releases: NewReleases, through: int
    ) -> None:
        self.name = name
        self.before = Evolution(name)
        self.replay: int | None = None
        self._lake, self._feed, self._releases, self._through = lake, feed, releases, through
        self._has_exact_order = protocol_of(feed).watermarks(feed) is Watermarks.ALWAYS
        self._table = lake.history(*name)
        self._cursor = cursor or self._table.cursor() or HistoryCursor(sequence=0)
        self._present = self._table.schema()

    def _is_new(self, release: int) -> bool:
        """Return whether a release is one of those that this run applies to the table."""
        return self._cursor.release < release <= self._through

    # --- What the table has applied, and what this run applies to it.

    @cached_property
    def new_statements(self) -> list[Ddl]:
        """The statements that this run applies; a load has the result of statements up to its position."""
        loaded_at = self._releases.loaded.get(self.name, -1)
        return [
            d
            for release, d in self._releases.new_ddls.values()
            if self._is_new(release) and d.may_change(self.name) and d.spot.commit_ts > loaded_at
        ]

    @cached_property
    def applied_statements(self) -> list[Ddl]:
        """The statements that the history table has applied, in order."""
        statements = self._releases.all_ddls
        return [statements[i] for i in self._cursor.statements if i in statements]

    @cached_property
    def applied_ids(self) -> set[str]:
        """The ids of `applied_statements`."""
        return {d.id for d in self.applied_statements}

    @cached_property
    def _layouts(self) -> list[dict[str, Any]]:
        """The layouts of the rows to apply: rows of released_changes."""
        return [r for r in self._releases.layouts.get(self.name, []) if self._is_new(r["release"])]

    @property
    def first_position(self) -> int | None:
        """The lowest commit_ts of the rows to apply; None if there are none."""
        return min((r["commit_ts"] for r in self._layouts), default=None) if self.replay is None else self.replay

    @property
    def _dumps(self) -> list[int]:
        """The positions of the reloads to apply, in order."""
        reloads = self._releases.reloads.get(self.name, set())
        return sorted({r["commit_ts"] for r in self._layouts if is_loaded_layout(r["layout"])} & reloads)

    @property
    def _snapshots(self) -> list[ConnectorSnapshot]:
        """The connector's snapshots to apply that have all rows of the table, in order."""
        return [s for s in self._claimed_snapshots if s.is_complete and self._is_applied_now(s)]

    @property
    def _claimed_snapshots(self) -> list[ConnectorSnapshot]:
        """The snapshots that claim to have all rows; a wrong claim makes the table replay without the snapshot."""
        return [s for s in self._releases.snapshots.get(self.name, []) if s.release <= self._through]

    def _is_applied_now(self, snapshot: ConnectorSnapshot) -> bool:
        """Return whether this run applies the snapshot, as a new one or in a replay."""
        return self._is_new(snapshot.release) or (self.replay is not None and snapshot.since >= self.replay)

    @property
    def _reload_positions(self) -> list[int]:
        """The positions from which on rows were applied before it was known which rows the table had."""
        return sorted([*self._dumps, *(s.since for s in self._claimed_snapshots if self._is_applied_now(s))])

    @property
    def _trimmed(self) -> int:
        """The commit_ts up to which maintenance may have deleted released changes."""
        released = self._lake.released_changes.cursor()
        return released.trimmed.highest if released else -1

    # --- What the table has beside what statements say.

    @property
    def is_keyed_by_messages(self) -> bool:
        """Whether the history's rows and all new ones have a key by their messages."""
        has_keys = self._present is None or COPY.name not in self._present.names
        return has_keys and all(r["key_columns"] for r in self._layouts)

    def list_seen_columns(self) -> list[SeenColumns]:
        """Return the columns of the history table that no statement created, then those that new rows show."""
        slot_ids = {s.id for s in self.before.slots}
        types = {f.name: parsed(f.metadata.get("comment", "")) for f in self._source_fields}
        # A column that a killed run created for a statement is left out: the statement comes again and creates it.
        from_rows = [(i, n) for i, n in self._naming.items() if i.startswith(f"{SEEN}:") and i not in slot_ids]
        of_history = [(i.removeprefix(f"{SEEN}:"), types.get(column)) for i, column in from_rows]
        seen = [SeenColumns(self._last_position_of_columns, of_history)]
        has_places = any(d.spot.place is not None for d in self.new_statements)
        seen += [
            SeenColumns(None if has_places else r["commit_ts"], self._types_of(r["layout"])) for r in self._layouts
        ]
        return seen

    def _types_of(self, layout: str) -> NamedTypes:
        """Return the columns of a layout and the types that messages state."""
        protocol = protocol_of(self._feed)
        return [(c.name, reader_of(protocol, c).resolve(c, None, None)) for c in columns_in(protocol, layout)]

    @property
    def _last_position_of_columns(self) -> int:
        """The last commit_ts at which the table certainly had the columns that only rows have shown."""
        removals = (Close("drop"), Close("rename"))
        removed = max((s.spot.commit_ts for s in self.before.steps if any(op in removals for op in s.ops)), default=-1)
        if self._cursor.newest <= removed:
            return removed - 1  # No row has come since, so the statement has removed the columns.
        return max((step.spot.commit_ts for step in self.before.steps), default=-1)

    @cached_property
    def _naming(self) -> dict[str, str]:
        """Ids of columns -> their names in the history table."""
        if self._cursor.naming is not None:
            return self._cursor.naming
        fields = {f.name.lower(): f.name for f in self._source_fields}
        naming = {s.id: fields.pop(s.column.lower()) for s in self.before.slots if s.column.lower() in fields}
        return naming | {f"{SEEN}:{unprefixed_name(name).lower()}": name for name in fields.values()}

    @property
    def _source_fields(self) -> list[StructField]:
        """The source's columns in the history table."""
        return [f for f in self._present or () if not f.name.startswith(RESERVED)]

    # --- Replays.

    def plan_replay(self, evolution: Evolution) -> bool:
        """Set `replay` if a statement came after rows above its position, or rows came after a statement above theirs.

        Returns:
            Whether the table is replayed.

        Raises:
            LoadTooOldError: the changes that the replay of a reload needs have been deleted.
        """
        begin = None
        if self._cursor.partly is not None:
            begin = self._cursor.partly[2] if self._cursor.partly[2] >= 0 else None
        elif self._present is not None:
            begin = self._find_replay_position(evolution)
        if begin is None:
            return False
        if lost := [at for at in self._reload_positions if at <= min(self._trimmed, self._cursor.newest)]:
            raise LoadTooOldError(self.name, lost[0], self._trimmed)
        return self.extend_replay(begin)

    def _find_replay_position(self, evolution: Evolution) -> int | None:
        """Return the lowest position at which something came late; None if nothing did."""
        newest, first = self._cursor.newest, self.first_position
        applied = [s for s in evolution.steps if s.ddl.id in self.applied_ids and s.changes_rows]
        last = max((d.spot.order for d in self.applied_statements), default=(-1, -1))
        new = [s.spot for s in evolution.steps if s.ddl.id not in self.applied_ids]
        late = [spot.commit_ts for spot in new if spot.commit_ts < newest or spot.order < last]
        late += [at for at in self._reload_positions if at <= newest]
        if first is not None:
            # A change during a snapshot may have a lower commit_ts than the rows that the snapshot closed.
            applied_snapshots = [s for s in self._claimed_snapshots if not self._is_new(s.release)]
            late += [min(first, s.since) for s in applied_snapshots if first < s.at]
            # A version that continues in a replacing table ends after all if its key changes at the statement's position.
            replacing = [s.spot.commit_ts for s in applied if s.replaces_table]
            if applied and (first < applied[-1].spot.commit_ts or first in replacing):
                late.append(first)
        # New rows below the late position are applied, too.
        return min(late if first is None or not late else [*late, first], default=None)

    def extend_replay(self, begin: int) -> bool:
        """Replay the table from a commit_ts on, if its changes still exist and this extends the replay.

        Returns:
            Whether the replay was extended.
        """
        for s in reversed(self._claimed_snapshots):  # a replay has all rows of a snapshot, or none
            begin = s.since if s.since < begin <= s.at else begin
        if begin <= self._trimmed or (self.replay is not None and self.replay <= begin):
            return False
        self.replay = begin
        if self._present is not None:
            rows = fetch_released(self._lake, ReleasedKind.LAYOUT, LAYOUT)
            of_table = [r for r in rows if (r["database"], r["table"]) == self.name]
            self._layouts = [r for r in of_table if r["release"] <= self._through and r["last_ts"] >= begin]
        return True

    # --- Parts.

    def plan_parts(self, evolution: Evolution, ordered: Sequence[Ddl]) -> list[TablePlan]:
        """Return the parts of the table, one commit each: a new part begins with each statement that brings rows.

        Args:
            evolution: the table's evolution by all statements.
            ordered: the statements of the unit, in order.
        """
        rows, steps = self._layouts, evolution.steps
        base = self._base_era(evolution)
        incoming = [n for n, step in enumerate(steps) if n >= base and self._brings_rows(step.ops)]
        # The snapshot of a table that has become empty has no rows, but closes those of the history.
        only_closes = self._present is not None and self._snapshots
        has_input = rows or incoming or only_closes or self._left_out
        if not has_input and (self._present is None or base == len(steps)):
            return []
        cuts = [base, *(n for n in incoming if n > base), len(steps)]
        statements = [d for d in ordered if d.may_change(self.name)]
        return [self._plan_part(evolution, start, end, statements) for start, end in itertools.pairwise(cuts)]

    def _brings_rows(self, ops: Iterable[StepOp]) -> bool:
        """Return whether a step opens rows that an earlier part has closed, in this table or another."""
        return any(
            isinstance(op, Recover | Rekey) or (isinstance(op, Arrive) and self._feed.takes(*op.origin)) for op in ops
        )

    def _plan_part(self, evolution: Evolution, start: int, end: int, statements: list[Ddl]) -> TablePlan:
        """Return the part with the steps `evolution.steps[start:end]`.

        Args:
            evolution: the table's evolution.
            start: the first step.
            end: the end of the steps.
            statements: all statements of the table, in order.
        """
        rows, cursor = self._layouts, self._cursor
        is_first, is_last = start == self._base_era(evolution), end == len(evolution.steps)
        schema_rows = self._releases.schema_rows_by_table.get(self.name, [])
        begins_with_rows = start < end and self._brings_rows(evolution.steps[start].ops)
        keyless = self._may_lack_key(evolution)
        files, typed = self._list_files(), self._find_typed_rows()
        eras = self._possible_eras(evolution)
        applied = [*(d.id for d in self.applied_statements), *(s.ddl.id for s in evolution.steps[:end])]
        return TablePlan(
            name=self.name,
            table=self._table,
            after=cursor.release,
            through=self._through,
            changes=self._count_changes(files) + (typed.load.typed if typed else 0),
            last=max((r["last_ts"] for r in rows), default=None),
            files=files if rows else [],
            layouts=plan_layouts(self._feed, rows, schema_rows, evolution, None if self._has_exact_order else eras),
            keyless=keyless,
            evolution=evolution,
            base=start,
            among=eras,
            eras=(0 if is_first and not (begins_with_rows or cursor.partly) else start + 1, end),
            is_last_part=is_last,
            replay=self.replay,
            statements=[d.id for d in statements] if is_last else applied,
            rewinds=is_first and self.replay is not None and cursor.partly is None,
            loaded=self._releases.loaded.get(self.name),
            typed=typed,
            dumps=tuple(self._dumps),
            snapshots=() if keyless else tuple(self._snapshots),
            read=tuple(at for release, at in self._releases.read.get(self.name, {}).items() if self._is_new(release)),
            planned_naming=self._naming,
            suspicions=self._find_suspicions(statements),
            unreported_changes=self._list_unreported_changes(evolution, statements) if is_last else (),
            has_exact_order=self._has_exact_order,
        )

    def _list_files(self) -> list[DataFile]:
        """Return the files of released_changes that may have row events to apply."""
        if self.replay is None:
            return [f for f in self._releases.files if f.high["release"] > self._cursor.release]
        return [
            f
            for kind in (ReleasedKind.ROW, ReleasedKind.LOADED)
            for f in self._lake.released_changes.files(kind=str(kind))
            if f.high["commit_ts"] >= self.replay
        ]

    def _count_changes(self, files: Iterable[DataFile]) -> int:
        """Return about how many row events there are to apply."""
        if self.replay is not None:
            return sum(f.rows for f in files)
        counts = self._releases.counts.get(self.name, Counter())
        return sum(n for release, n in counts.items() if release > self._cursor.release)

    def _find_suspicions(self, statements: Sequence[Ddl]) -> tuple[Suspicion | KeySuspicion, ...]:
        """Return which rows may contradict a statement."""
        protocol, overrides = protocol_of(self._feed), type_overrides(self._feed, self.name)
        last: dict[int, int] = {}
        for r in self._layouts:
            last[r["layout_id"]] = max(r["last_ts"], last.get(r["layout_id"], 0))
        texts = {r["layout_id"]: r["layout"] for r in self._layouts if not is_loaded_layout(r["layout"])}
        layouts = {each: (columns_in(protocol, text), last[each]) for each, text in texts.items()}
        stated = [] if protocol.carries_schemas else collect_stated_columns(self.name, statements)
        of_keys: list[KeySuspicion] = []
        if not self._has_decisions():
            undeclared = collect_undeclared_columns(self.name, statements, [columns for columns, _ in layouts.values()])
            given = {name.lower() for name in overrides}
            stated += [each for each in undeclared if each.name not in given]
            rows = [r for r in self._layouts if r["layout_id"] in texts]
            of_keys = find_key_suspicions(self.name, statements, rows)
        return (*find_suspicions(layouts, stated, lambda column: column in overrides), *of_keys)

    def _list_unreported_changes(
        self, evolution: Evolution, statements: Sequence[Ddl]
    ) -> tuple[UnappliedStatement, ...]:
        """Return what changes the table, and neither a statement nor a row event says what becomes of open rows."""
        of_keys = (*self._list_key_changes(statements), *self._list_text_changes(evolution))
        return (*of_keys, *self._left_out)

    def _list_key_changes(self, statements: Sequence[Ddl]) -> tuple[UnappliedStatement, ...]:
        """Return what changes keys that only messages state: new rows of another key than before, or a new statement."""
        is_keyed = self._present is None or COPY.name not in self._present.names
        has_other_key = any(bool(r["key_columns"]) is not is_keyed for r in self._layouts)
        new_statements = [d for d in self.new_statements if may_change_unstated_key(self.name, d)]
        if not has_other_key and not new_statements:
            return ()
        rows = fetch_released(self._lake, ReleasedKind.LAYOUT, LAYOUT)
        of_table = [r for r in rows if (r["database"], r["table"]) == self.name and r["release"] <= self._through]
        reports = [r for d in new_statements for r in report_key_column(self.name, d, of_table, self._types_of)]
        return (*reports, *(report_other_key(of_table, statements, self._is_new) if has_other_key else ()))

    @property
    def _left_out(self) -> tuple[UnappliedStatement, ...]:
        """The changes that the feed's settings left out before releases that this run applies."""
        rejoined = self._releases.rejoined.get(self.name, {})
        why = "tables: in the feeds file left the table out: the history lacks {} row events and statements up to here"
        return tuple(
            {"commit_ts": each.last, "statement": "", "why": why.format(each.events), "reload": True}
            for release, each in sorted(rejoined.items())
            if self._is_new(release)
        )

    def _list_text_changes(self, evolution: Evolution) -> list[UnappliedStatement]:
        """Return the new statements after which rows without a key are not found."""
        first = min((r["commit_ts"] for r in self._layouts if not r["key_columns"]), default=None)
        if self._present is not None and COPY.name in self._present.names:
            first = -1
        new = (step for step in evolution.steps if step.ddl.id not in self.applied_ids)
        return report_other_texts(self.name, new, first)

    def _has_decisions(self) -> bool:
        """Return whether somebody has decided what a statement about the table does, so that the source may differ."""
        rows = self._releases.schema_rows_by_table.get(self.name, [])
        ids = {identify_statement(r) for r in rows if r["ddl_statement"]}
        return not ids.isdisjoint(self._releases.decided)

    def _find_typed_rows(self) -> LoadToApply | None:
        """Return the typed rows of a load to apply; None if there are none, or if the table began with them."""
        load = self._releases.typed.get(self.name)
        if load is None or self._cursor.adopted == load.position:
            return None
        loaded = [r for r in self._layouts if r["commit_ts"] == load.position and is_loaded_layout(r["layout"])]
        return LoadToApply(load, loaded[0]["release"], loaded[0]["layout_id"]) if loaded else None

    def _possible_eras(self, evolution: Evolution) -> tuple[int, int]:
        """Return the first and the last era that the rows to apply may be of."""
        if not self._layouts:
            return self._base_era(evolution), self._base_era(evolution)
        if not self._has_exact_order:
            # The statements that are applied came before these rows.
            return self._base_era(evolution), len(evolution.steps)
        first, last = min(r["commit_ts"] for r in self._layouts), max(r["last_ts"] for r in self._layouts)
        return evolution.eras_between(first, last)

    def _base_era(self, evolution: Evolution) -> int:
        """Return how many statements the table has applied, or will have applied once it is back at the replay position."""
        if self._cursor.partly is not None:
            return self._cursor.partly[1]
        if self.replay is not None:
            return evolution.eras_between(self.replay, self.replay)[0]
        return next(
            (n for n, s in enumerate(evolution.steps) if s.ddl.id not in self.applied_ids), len(evolution.steps)
        )

    def _may_lack_key(self, evolution: Evolution) -> bool:
        """Return whether rows of the table may have no key, now or at any earlier time."""
        if self._present is not None and COPY.name in self._present.names:
            return True
        return any(step.by_row for step in evolution.steps) or not all(r["key_columns"] for r in self._layouts)
