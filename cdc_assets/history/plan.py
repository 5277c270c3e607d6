"""What is to be done for each table that has news: which releases and statements, in which layouts, and in which order."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from pyspark.sql.types import StructField

from cdc_assets.config import Feed
from cdc_assets.history.contradictions import Suspicion, stated_columns, suspicions
from cdc_assets.history.evolution import SEEN, Arrive, Evolution, Op, Recover, Rekey, Seen, evolve
from cdc_assets.history.layouts import layouts_of, shapes_of
from cdc_assets.history.news import LAYOUT, News, all_of, news_of
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl
from cdc_assets.history.table_plan import LoadToApply, TablePlan
from cdc_assets.lakehouse.history import COPY, RESERVED, HistoryCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import ConnectorSnapshot, ReleasedKind
from cdc_assets.mysql_types.types import parsed
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.loaded import columns_in, is_loaded_layout, reader_of


class LoadTooOldError(Exception):
    """Changes after a load, which were applied before it and would be applied anew, have been deleted."""

    def __init__(self, name: Name, position: int, trimmed: int) -> None:
        super().__init__(
            f"{'.'.join(name)} was loaded anew at {position}, and maintenance has deleted changes up to {trimmed}: rebuild."
        )


class LinkedTableError(Exception):
    """A table's rows come from another, or go to it, and that one failed."""

    def __init__(self, other: Name, cause: Exception) -> None:
        super().__init__(
            f"A RENAME links it to {'.'.join(other)}, which failed: it goes on with the run that mends that."
        )
        self.cause = cause


def works(
    lake: Lakehouse,
    feed: Feed,
    due: Iterable[Name],
    through: int,
    failed: Callable[[Name, Exception], None],
    waiting: AbstractSet[Name] = frozenset(),
    out: Mapping[Name, Exception] = MappingProxyType({}),
) -> list[list[TablePlan]]:
    """What is to be done for the tables `due`, by name, up to a release; nothing for those without changes.

    Each list is in order: a table whose rows go to another comes before that one.

    Args:
        lake: the feed's tables.
        feed: the feed.
        due: the tables.
        through: the release.
        failed: is told of tables of which it cannot be said what is to be done.
        waiting: blocked tables. One that a RENAME links to a table that is due is tried with it: what the one gets may
            reach the other.
        out: tables that have failed before, with their errors: those that a RENAME links to them wait with them.
    """
    cursors: dict[Name, HistoryCursor] = {}
    out = dict(out)
    for name in sorted(set(due) - set(out)):
        try:
            cursors[name] = lake.history(*name).cursor() or HistoryCursor(sequence=0)
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with one table holds up that table only
            out[name] = error
            failed(name, error)
    if not cursors:
        return []
    news = news_of(lake, feed, cursors)
    units = _units(cursors, news)
    if linked := (waiting - set(cursors) - set(out)) & set[Name]().union(*units):
        # The news of before was read from where the tables that are due stand; a blocked one stands further back.
        return works(lake, feed, {*cursors, *linked}, through, failed, waiting, out)
    found = []
    for names in units:
        if gone := sorted(names & set(out)):
            for name in names & set(cursors):
                failed(name, LinkedTableError(gone[0], out[gone[0]]))
            continue
        try:
            found.append(_unit(lake, feed, names, cursors, news, through))
        except Exception as error:  # noqa: BLE001 -- as above
            for name in names & set(cursors):
                failed(name, error)
    return [parts for parts in found if parts]


def _units(cursors: Mapping[Name, HistoryCursor], news: News) -> list[set[Name]]:
    """The tables that are due, with those that a RENAME ever linked to them: what comes late to one may reach others."""
    units = {name: {name} for name in cursors}
    for ddl in (*news.known_ddls.values(), *(d for _, d in news.ddls.values())):
        for pair in ddl.moved.items():
            joined = set().union(*(units.get(name, {name}) for name in pair))
            units |= dict.fromkeys(joined, joined)
    different = {id(unit): unit for unit in units.values() if unit & set(cursors)}
    return sorted(different.values(), key=min)


def _unit(
    lake: Lakehouse, feed: Feed, names: set[Name], cursors: Mapping[Name, HistoryCursor], news: News, through: int
) -> list[TablePlan]:
    taken = sorted(name for name in names if feed.takes(*name))
    tables = [_Table(lake, feed, name, cursors.get(name), news, through) for name in taken]
    applied = {d.id: d for t in tables for d in t.applied}
    new = {d.id: d for t in tables for d in t.new if d.id not in applied}
    ordered = sorted([*applied.values(), *new.values()], key=lambda d: d.spot.order)
    overridden, takes = _overrides(feed), partial(_takes, feed)
    before = evolve([d for d in ordered if d.id in applied], {}, overridden, news.loaded, takes)
    for table in tables:
        table.before = before.get(table.name, Evolution(table.name))
    after = evolve(ordered, {t.name: t.seen() for t in tables}, overridden, news.loaded, takes)
    if _replay(tables, after):
        after = evolve(ordered, {t.name: t.seen() for t in tables}, overridden, news.loaded, takes)
    else:
        # What came late, and can be applied no more where it belongs, acts on what is open.
        ordered.sort(key=lambda d: (d.spot.commit_ts, d.id in new, d.spot.order))
        after = evolve(ordered, {t.name: t.seen() for t in tables}, overridden, news.loaded, takes)
    parts = [part for t in tables for part in t.parts(after.get(t.name, Evolution(t.name)), ordered)]
    return sorted(parts, key=_turn)


def _replay(tables: list["_Table"], evolutions: Mapping[Name, Evolution]) -> bool:
    """Find out from where on tables are applied anew, and then those that their rows have gone to since."""
    evolving = {t.name: t for t in tables if t.name in evolutions}
    late = [t for t in evolving.values() if t.came_late(evolutions[t.name])]
    waiting = list(evolving.values())
    while waiting:
        table = waiting.pop()
        begin = table.begin
        since = [s for s in evolutions[table.name].steps if begin is not None and s.spot.commit_ts >= begin]
        reached = [
            evolving[new]
            for step in since
            for new, old in step.ddl.moved.items()
            if old == table.name
            and new in evolving
            and step.ddl.id in evolving[new].done
            and evolving[new].goes_back(step.spot.commit_ts)
        ]
        late, waiting = [*late, *reached], [*waiting, *reached]
    return bool(late)


def _turn(part: TablePlan) -> tuple[Any, ...]:
    """Rows come in from a table whose part with their end has begun before."""
    return part.steps[0].spot.order if part.arrivals else ()


def _takes(feed: Feed, name: Name) -> bool:
    return feed.takes(*name)


def _overrides(feed: Feed) -> Callable[[Name, str], bool]:
    """Whether the feeds file says what type a column has."""
    return lambda name, column: f"{name[0]}.{name[1]}.{column}" in feed.columns


class _Table:
    """One table of a unit."""

    def __init__(
        self, lake: Lakehouse, feed: Feed, name: Name, cursor: HistoryCursor | None, news: News, through: int
    ) -> None:
        self.lake, self.feed, self.name, self.news, self.through = lake, feed, name, news, through
        self.table = lake.history(*name)
        self.cursor = cursor or self.table.cursor() or HistoryCursor(sequence=0)
        self.present = self.table.schema()
        self.before = Evolution(name)
        self.replay: int | None = None

    def _new(self, release: int) -> bool:
        return self.cursor.release < release <= self.through

    @cached_property
    def new(self) -> list[Ddl]:
        """The statements of releases that the history has not seen; none of which a load has the outcome."""
        loaded = self.news.loaded.get(self.name, -1)
        return [
            d
            for release, d in self.news.ddls.values()
            if self._new(release) and d.touches(self.name) and d.spot.commit_ts > loaded
        ]

    @cached_property
    def applied(self) -> list[Ddl]:
        """The statements that the history table has been through."""
        return [self.news.known_ddls[i] for i in self.cursor.statements if i in self.news.known_ddls]

    @cached_property
    def done(self) -> set[str]:
        """Their ids."""
        return {d.id for d in self.applied}

    @property
    def placed(self) -> bool:
        """Whether statements tell their place in the binlog."""
        return any(d.spot.place is not None for d in self.new)

    @cached_property
    def naming(self) -> dict[str, str]:
        """Ids of columns -> their names in the history table."""
        if self.cursor.naming is not None:
            return self.cursor.naming
        there = {f.name.lower(): f.name for f in self._own}
        named = {s.id: there.pop(s.column.lower()) for s in self.before.slots if s.column.lower() in there}
        return named | {f"{SEEN}:{lower}": own for lower, own in there.items()}

    @property
    def _own(self) -> list[StructField]:
        return [f for f in self.present or () if not f.name.startswith(RESERVED)]

    def seen(self) -> list[Seen]:
        """The columns that the history has beside those of statements, then those that rows name."""
        known = {s.id for s in self.before.slots}
        types = {f.name: parsed(f.metadata.get("comment", "")) for f in self._own}
        # What a run that was killed had made for a statement is that statement's, which comes yet.
        mine = [(i, n) for i, n in self.naming.items() if i.startswith(f"{SEEN}:") and i not in known]
        rest = [(i.removeprefix(f"{SEEN}:"), n) for i, n in mine]
        last = max((step.spot.commit_ts for step in self.before.steps), default=-1)
        found = [Seen(last, [(source, types.get(column)) for source, column in rest])]
        protocol = protocol_of(self.feed)
        for r in self.layouts:
            told = columns_in(protocol, r["layout"])
            columns = [(c.name, reader_of(protocol, c).resolve(c, None, None)) for c in told]
            found.append(Seen(None if self.placed else r["commit_ts"], columns))
        return found

    @cached_property
    def layouts(self) -> list[dict[str, Any]]:
        """The layouts of rows that are to be applied."""
        return [r for r in self.news.layouts.get(self.name, []) if self._new(r["release"])]

    @property
    def snapshots(self) -> list[ConnectorSnapshot]:
        """The connector's snapshots of the table that are to be applied, in order."""
        return [s for s in self._told_snapshots if s.is_complete and (self._new(s.release) or self._again(s))]

    @property
    def _told_snapshots(self) -> list[ConnectorSnapshot]:
        """Those of which it was said that they have all rows; where it was said wrongly, all is applied anew without."""
        return [s for s in self.news.snapshots.get(self.name, []) if s.release <= self.through]

    def _again(self, snapshot: ConnectorSnapshot) -> bool:
        return self.replay is not None and snapshot.since >= self.replay

    @property
    def _told_anew(self) -> list[int]:
        """From where on everything is applied anew, where it was applied without knowing which rows there are."""
        return sorted([*self.dumps, *(s.since for s in self._told_snapshots if self._new(s.release) or self._again(s))])

    @property
    def dumps(self) -> list[int]:
        """The positions at which the table is loaded anew by what is to be applied, in order."""
        mine = self.news.anew.get(self.name, frozenset())
        return sorted({r["commit_ts"] for r in self.layouts if is_loaded_layout(r["layout"])} & mine)

    @property
    def begin(self) -> int | None:
        """The lowest commit_ts of what is to be applied; None: nothing is."""
        return min((r["commit_ts"] for r in self.layouts), default=None) if self.replay is None else self.replay

    def came_late(self, evolution: Evolution) -> bool:
        """Whether a statement came after rows that lie behind it, or rows after a statement: then see to a replay."""
        if self.cursor.partly is not None:
            self.replay = self.cursor.partly[2] if self.cursor.partly[2] >= 0 else None
        elif self.present is not None:
            told = [s for s in evolution.steps if s.ddl.id in self.done and s.ops]
            begin = self.begin
            last = max((d.spot.order for d in self.applied), default=(-1, -1))
            new = [s.spot for s in evolution.steps if s.ddl.id not in self.done]
            late = [spot.commit_ts for spot in new if spot.commit_ts < self.cursor.newest or spot.order < last]
            late += [at for at in self._told_anew if at <= self.cursor.newest]
            if begin is not None:
                # What changed while the connector took a snapshot may be stamped earlier than what that made end.
                done = [s for s in self._told_snapshots if not self._new(s.release)]
                late += [min(begin, s.since) for s in done if begin < s.at]
            # A version that went on ends all the same if its key changes at the position of the statement.
            again = [s.spot.commit_ts for s in told if s.replaces_table]
            if begin is not None and told and (begin < told[-1].spot.commit_ts or begin in again):
                late.append(begin)
            # What is new, and lies before that, is applied as well.
            self.replay = min(late if begin is None or not late else [*late, begin], default=None)
        begin, self.replay = self.replay, None
        if (
            lost := [at for at in self._told_anew if at <= min(self._trimmed, self.cursor.newest)]
        ) and begin is not None:
            raise LoadTooOldError(self.name, lost[0], self._trimmed)
        return begin is not None and self.goes_back(begin)

    def goes_back(self, begin: int) -> bool:
        """Apply everything from a commit_ts on anew, if it is there still, and more than until now."""
        for s in reversed(self._told_snapshots):  # which are told of as a whole, or not at all
            begin = s.since if s.since < begin <= s.at else begin
        if begin <= self._trimmed or (self.replay is not None and self.replay <= begin):
            return False
        self.replay = begin
        if self.present is not None:
            mine = [
                r for r in all_of(self.lake, ReleasedKind.LAYOUT, LAYOUT) if (r["database"], r["table"]) == self.name
            ]
            self.layouts = [r for r in mine if r["release"] <= self.through and r["last_ts"] >= begin]
        return True

    @property
    def _trimmed(self) -> int:
        """Up to which commit_ts released changes may have been deleted."""
        released = self.lake.released_changes.cursor()
        return released.trimmed.highest if released else -1

    def parts(self, evolution: Evolution, ordered: Sequence[Ddl]) -> list[TablePlan]:
        """What is to be done, a commit each; `ordered`: the statements of the evolution."""
        mine, steps = self.layouts, evolution.steps
        base = self._base(evolution)
        incoming = [n for n, s in enumerate(steps) if n >= base and any(self._comes(op) for op in s.ops)]
        # A snapshot of an empty table has no row either.
        only_gone = self.present is not None and self.snapshots
        if not mine and not incoming and not only_gone and (self.present is None or base == len(steps)):
            return []
        cuts = [base, *(n for n in incoming if n > base), len(steps)]
        spans = list(itertools.pairwise(cuts))
        every = [d for d in ordered if d.touches(self.name)]
        return [
            self._part(evolution, mine, start, end, first=n == 0, whole=n == len(spans) - 1, every=every)
            for n, (start, end) in enumerate(spans)
        ]

    def _suspicions(self, rows: list[dict[str, Any]], every: Sequence[Ddl]) -> tuple[Suspicion, ...]:
        """The rows that may contradict a statement; none where messages carry schemas: the type check compares those."""
        protocol = protocol_of(self.feed)
        if protocol.carries_schemas:
            return ()
        last: dict[int, int] = {}
        for r in rows:
            last[r["layout_id"]] = max(r["last_ts"], last.get(r["layout_id"], 0))
        texts = {r["layout_id"]: r["layout"] for r in rows if not is_loaded_layout(r["layout"])}
        layouts = {each: (columns_in(protocol, text), last[each]) for each, text in texts.items()}
        overridden = partial(_overrides(self.feed), self.name)
        return tuple(suspicions(layouts, stated_columns(self.name, every), overridden))

    def _comes(self, op: Op) -> bool:
        """Whether rows come in that a part before this one has ended."""
        return isinstance(op, Recover | Rekey) or (isinstance(op, Arrive) and self.feed.takes(*op.origin))

    def _part(
        self,
        evolution: Evolution,
        rows: list[dict[str, Any]],
        start: int,
        end: int,
        *,
        first: bool,
        whole: bool,
        every: list[Ddl],
    ) -> TablePlan:
        cursor, counts = self.cursor, self.news.counts.get(self.name, Counter())
        begins = any(self._comes(op) for op in evolution.steps[start].ops) if start < end else False
        keyless = self._keyless(rows, evolution)
        files = [f for f in self.news.files if f.high["release"] > cursor.release]
        if self.replay is not None:
            files = [
                f
                for kind in (ReleasedKind.ROW, ReleasedKind.LOADED)
                for f in self.lake.released_changes.files(kind=str(kind))
                if f.high["commit_ts"] >= self.replay
            ]
        typed = self._typed(rows)
        changes = sum(n for release, n in counts.items() if release > cursor.release)
        return TablePlan(
            name=self.name,
            table=self.table,
            after=cursor.release,
            through=self.through,
            changes=(changes if self.replay is None else sum(f.rows for f in files))
            + (typed.load.typed if typed else 0),
            last=max((r["last_ts"] for r in rows), default=None),
            files=files if rows else [],
            layouts=layouts_of(
                self.feed,
                rows,
                shapes_of(self.news.known_of.get(self.name, [])),
                evolution,
                self._among(evolution, rows) if evolution.placed else None,
            ),
            keyless=keyless,
            evolution=evolution,
            base=start,
            among=self._among(evolution, rows),
            eras=(0 if first and not (begins or cursor.partly) else start + 1, end),
            is_last_part=whole,
            replay=self.replay,
            statements=[d.id for d in every]
            if whole
            else [*(d.id for d in self.applied), *(s.ddl.id for s in evolution.steps[:end])],
            rewinds=first and self.replay is not None and cursor.partly is None,
            loaded=self.news.loaded.get(self.name),
            typed=typed,
            dumps=tuple(self.dumps),
            snapshots=() if keyless else tuple(self.snapshots),
            read=tuple(until for release, until in self.news.read.get(self.name, {}).items() if self._new(release)),
            planned_naming=self.naming,
            suspicions=self._suspicions(rows, every),
        )

    def _typed(self, rows: list[dict[str, Any]]) -> LoadToApply | None:
        """The typed rows of a load that is among what is to be applied, unless the table has begun with them."""
        load = self.news.typed.get(self.name)
        if load is None or self.cursor.adopted == load.position:
            return None
        mine = [r for r in rows if r["commit_ts"] == load.position and is_loaded_layout(r["layout"])]
        return LoadToApply(load, mine[0]["release"], mine[0]["layout_id"]) if mine else None

    def _among(self, evolution: Evolution, rows: list[dict[str, Any]]) -> tuple[int, int]:
        """The eras that rows may be of. Where statements tell their place, those that are applied came before them."""
        if not rows:
            return self._base(evolution), self._base(evolution)
        if evolution.placed:
            return self._base(evolution), len(evolution.steps)
        return evolution.between(min(r["commit_ts"] for r in rows), max(r["last_ts"] for r in rows))

    def _base(self, evolution: Evolution) -> int:
        """How many statements the table has been through, as it is or as it will go back to."""
        if self.cursor.partly is not None:
            return self.cursor.partly[1]
        if self.replay is not None:
            return evolution.between(self.replay, self.replay)[0]
        return next((n for n, s in enumerate(evolution.steps) if s.ddl.id not in self.done), len(evolution.steps))

    def _keyless(self, rows: list[dict[str, Any]], evolution: Evolution) -> bool:
        if self.present is not None and COPY.name in self.present.names:
            return True
        return any(step.by_row for step in evolution.steps) or not all(r["key_columns"] for r in rows)
