"""What is to be done for each table that has news: which releases and statements, in which layouts, and in which order."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql.types import DataType, StringType, StructField, StructType

from cdc_assets.feeds import Feed
from cdc_assets.history.columns import (
    Layout,
    Reading,
    SourceColumn,
    needs_scale,
    readings_of,
    target_type,
    wire_names,
)
from cdc_assets.history.evolution import (
    SEEN,
    Arrive,
    Close,
    Convert,
    Evolution,
    Fill,
    Op,
    Recover,
    Rekey,
    Seen,
    Slot,
    Step,
    evolve,
)
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl, ddls
from cdc_assets.mysql_types.casting import spark_type, widen
from cdc_assets.mysql_types.ddl import Column, TableSchema
from cdc_assets.mysql_types.types import parsed
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Protocol, WireColumn
from cdc_assets.protocols.loaded import columns_in, reader_of, tells_loaded
from cdc_assets.tables.decisions import Decision, statement_id
from cdc_assets.tables.history import COPY, RESERVED, HistoryCursor
from cdc_assets.tables.initial_load import LOAD_TOPIC
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.log import DataFile
from cdc_assets.tables.released_changes import ReleaseCursor, ReleasedKind, SourceSnapshot
from cdc_assets.tables.table import LakeTable

_STATEMENT = ["release", "commit_ts", "database", "table", "topic", "partition", "offset", "ddl_statement", "source"]
_LAYOUT = ["release", "database", "table", "layout_id", "layout", "key_columns", "commit_ts", "last_ts"]


@dataclass(frozen=True)
class Work:
    """A part of what one history table has not seen, for one commit.

    Attributes:
        after: the release that is applied.
        through: the release that is applied when the part is.
        changes: row events of these releases, about.
        last: the highest commit_ts of one; None: there is none.
        files: of released_changes, with the table's changes among others.
        layouts: of the changes, the newest last.
        keyless: whether rows of the table may have no key.
        evolution: the table's.
        base: the era of the versions that are open.
        eras: the rows of the part: from which era to which.
        among: the eras that the rows of all parts may be of.
        whole: whether the table has all of these releases after it.
        replay: a commit_ts from which on everything is applied anew, as something came late; None: nothing did.
        rewinds: whether the table is to be brought back to that first.
        statements: ids of those that the table has been through when the part is applied, in order.
        loaded: the position at which the table's history begins with a load; None: it does not.
        dumps: the positions at which the part loads the table anew from a dump, in order.
        snapshots: those of the source's connector that have all rows of the table, in order.
        planned_naming: ids of columns -> their names in the history table before the first part.
    """

    name: Name
    table: LakeTable[HistoryCursor]
    after: int
    through: int
    changes: int
    last: int | None
    files: list[DataFile]
    layouts: list[Layout]
    keyless: bool
    evolution: Evolution
    base: int
    eras: tuple[int, int]
    among: tuple[int, int]
    whole: bool
    replay: int | None
    rewinds: bool
    statements: list[str]
    loaded: int | None
    dumps: tuple[int, ...]
    snapshots: tuple[SourceSnapshot, ...]
    planned_naming: Mapping[str, str]

    @property
    def anew(self) -> tuple[int, ...]:
        """The positions at which the part is told which rows there are, and so which are gone, in order."""
        return tuple(sorted({*self.dumps, *(s.at for s in self.snapshots)}))

    @cached_property
    def _standing(self) -> LakeTable[HistoryCursor]:
        """The history table as it is when the part's turn has come."""
        return self.table.pinned()

    @cached_property
    def cursor(self) -> HistoryCursor:
        """Its cursor."""
        return self._standing.cursor() or HistoryCursor(sequence=0)

    @cached_property
    def present(self) -> StructType | None:
        """Its columns; None: there is no table."""
        return self._standing.schema()

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """Delta's properties of it."""
        there = self._standing.log()
        return there.properties if there else {}

    @property
    def naming(self) -> Mapping[str, str]:
        """Ids of columns -> their names in it."""
        return self.planned_naming if self.cursor.naming is None else self.cursor.naming

    @property
    def steps(self) -> list[Step]:
        """The statements of the part."""
        return self.evolution.steps[self.base : self.eras[1]]

    @property
    def evolves(self) -> bool:
        """Whether there are statements."""
        return bool(self.steps)

    @property
    def changes_open(self) -> bool:
        """Whether statements end open versions, or give them other values."""
        return any(isinstance(op, Close | Fill | Convert) for step in self.steps for op in step.ops)

    @property
    def arrivals(self) -> list[tuple[int, Arrive]]:
        """The tables whose rows come in: the step, and which."""
        return [
            (era, op)
            for era, step in enumerate(self.steps, start=self.base)
            for op in step.ops
            if isinstance(op, Arrive)
        ]


class LoadTooOldError(Exception):
    """Changes after a load, which were applied before it and would be applied anew, have been deleted."""

    def __init__(self, name: Name, position: int, trimmed: int) -> None:
        super().__init__(
            f"{'.'.join(name)} was loaded anew at {position}, and maintenance has deleted changes up to {trimmed}: rebuild."
        )


@dataclass(frozen=True)
class _News:
    """What releases that a history has not seen hold.

    Attributes:
        layouts: by table, rows of released_changes.
        statements: likewise.
        counts: by table: release -> row events.
        files: with row events.
        known: rows of table_schemas.
        decided: what people have decided about statements, by id.
        loaded: the tables whose histories begin with a load, and the positions at which they do.
        anew: the tables that were loaded anew, and the positions at which they were.
        snapshots: by table: the connector's that have all its rows.
    """

    layouts: Mapping[Name, list[dict[str, Any]]]
    statements: list[dict[str, Any]]
    counts: Mapping[Name, Counter[int]]
    files: list[DataFile]
    known: list[dict[str, Any]]
    decided: Mapping[str, Decision]
    loaded: Mapping[Name, int]
    anew: Mapping[Name, frozenset[int]]
    snapshots: Mapping[Name, list[SourceSnapshot]]

    @cached_property
    def ddls(self) -> dict[str, tuple[int, Ddl]]:
        """Ids of the statements -> their releases, and what they do."""
        releases = {
            statement_id(s["commit_ts"], s["database"], s["ddl_statement"]): s["release"] for s in self.statements
        }
        return {d.id: (releases[d.id], d) for d in ddls(self.statements, self.known, self.decided)}

    @cached_property
    def known_ddls(self) -> dict[str, Ddl]:
        """Ids of the statements that were ever learnt -> what they do."""
        said = [r for r in self.known if r["ddl_statement"] is not None and r["topic"] != LOAD_TOPIC]
        return {d.id: d for d in ddls(said, self.known, self.decided)}

    @cached_property
    def known_of(self) -> dict[Name, list[dict[str, Any]]]:
        """What is known of each table."""
        found: dict[Name, list[dict[str, Any]]] = {}
        for r in self.known:
            found.setdefault((r["database"], r["table"]), []).append(r)
        return found


def works(
    lake: Lakehouse, feed: Feed, due: Iterable[Name], through: int, failed: Callable[[Name, Exception], None]
) -> list[list[Work]]:
    """What is to be done for the tables `due`, by name, up to a release; nothing for those without changes.

    Each list is in order: a table whose rows go to another comes before that one. `failed` is told of tables of which it
    cannot be said what is to be done.
    """
    cursors: dict[Name, HistoryCursor] = {}
    for name in sorted(set(due)):
        try:
            cursors[name] = lake.history(*name).cursor() or HistoryCursor(sequence=0)
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with one table holds up that table only
            failed(name, error)
    if not cursors:
        return []
    news = _news(lake, feed, cursors)
    found = []
    for names in _units(cursors, news):
        try:
            found.append(_unit(lake, feed, names, cursors, news, through))
        except Exception as error:  # noqa: BLE001 -- as above
            for name in names & set(cursors):
                failed(name, error)
    return [parts for parts in found if parts]


def _news(lake: Lakehouse, feed: Feed, cursors: Mapping[Name, HistoryCursor]) -> _News:
    after = min(c.release for c in cursors.values())
    log = lake.released_changes.log()
    files = [f for f in log.files() if f.high["release"] > after] if log else []

    def of(kind: ReleasedKind) -> list[DataFile]:
        return [f for f in files if f.partition["kind"] == kind]

    layouts: dict[Name, list[dict[str, Any]]] = {}
    for r in lake.released_changes.fetch(of(ReleasedKind.LAYOUT), *_LAYOUT).to_pylist():
        layouts.setdefault((r["database"], r["table"]), []).append(r)
    statements = lake.released_changes.fetch(of(ReleasedKind.DDL), *_STATEMENT).to_pylist()
    decided = lake.decided()
    known = lake.schema_rows() if statements else _with_linked(lake, set(cursors), decided)
    rows = [*of(ReleasedKind.ROW), *of(ReleasedKind.LOADED)]
    known = [r | {"key_columns": _sent_key(protocol_of(feed), r)} if r["key_columns"] else r for r in known]
    released = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
    anew: dict[Name, frozenset[int]] = {}
    for each in released.loads:
        if each.anew:
            name = each.database, each.table
            anew[name] = anew.get(name, frozenset()) | {each.position}
    snapshots: dict[Name, list[SourceSnapshot]] = {}
    for s in sorted((s for s in released.snapshots if s.release), key=lambda s: s.at):
        snapshots.setdefault((s.database, s.table), []).append(s)
    return _News(layouts, statements, _counts(lake, after), rows, known, decided, released.loaded_at, anew, snapshots)


def _sent_key(protocol: Protocol, row: Mapping[str, Any]) -> list[str]:
    """The key of a row of table_schemas in the order that messages have it."""
    columns = tuple(Column(c["name"], c["type"], nullable=False) for c in row["columns"])
    primary, key = tuple(row["primary_key"] or ()), tuple(row["key_columns"])
    return protocol.sent_key_columns(TableSchema(row["database"], row["table"], columns, primary, (key,)))


def _with_linked(lake: Lakehouse, names: set[Name], decided: Mapping[str, Decision]) -> list[dict[str, Any]]:
    """What is known of tables, and of those that a RENAME has ever linked to them."""
    known = lake.schema_rows(names)
    said = ddls([r for r in known if r["ddl_statement"] is not None], [], decided)
    linked = {name for ddl in said for name in _ends(ddl)}
    return known if linked <= names else _with_linked(lake, names | linked, decided)


def _ends(ddl: Ddl) -> set[Name]:
    """The tables between which a statement moves rows."""
    return {*ddl.moved, *ddl.moved.values()}


def _counts(lake: Lakehouse, after: int) -> dict[Name, Counter[int]]:
    """(database, table) -> release -> row events, of the releases after one, as their cursors tell."""
    found: dict[Name, Counter[int]] = {}
    for cursor in lake.released_changes.cursors():
        if cursor.sequence <= after:
            break
        for database, table, count in cursor.tables:
            found.setdefault((database, table), Counter())[cursor.sequence] = count
    return found


def _units(cursors: Mapping[Name, HistoryCursor], news: _News) -> list[set[Name]]:
    """The tables that are due, with those that a RENAME ever linked to them: what comes late to one may reach others."""
    units = {name: {name} for name in cursors}
    for ddl in (*news.known_ddls.values(), *(d for _, d in news.ddls.values())):
        for pair in ddl.moved.items():
            joined = set().union(*(units.get(name, {name}) for name in pair))
            units |= dict.fromkeys(joined, joined)
    different = {id(unit): unit for unit in units.values() if unit & set(cursors)}
    return sorted(different.values(), key=min)


def _unit(
    lake: Lakehouse, feed: Feed, names: set[Name], cursors: Mapping[Name, HistoryCursor], news: _News, through: int
) -> list[Work]:
    taken = sorted(name for name in names if feed.takes(*name))
    tables = [_Table(lake, feed, name, cursors.get(name), news, through) for name in taken]
    applied = {d.id: d for t in tables for d in t.applied}
    new = {d.id: d for t in tables for d in t.new if d.id not in applied}
    # Of what one clock tick has, what is applied came first.
    ordered = sorted([*applied.values(), *new.values()], key=lambda d: (d.spot.commit_ts, d.id in new, d.spot.order))
    overridden = _overrides(feed)
    before = evolve([d for d in ordered if d.id in applied], {}, overridden, news.loaded)
    for table in tables:
        table.before = before.get(table.name, Evolution(table.name))
    after = evolve(ordered, {t.name: t.seen() for t in tables}, overridden, news.loaded)
    if _replay(tables, after):
        placed = {d.id: d for d in ddls(_all_of(lake, ReleasedKind.DDL, _STATEMENT), news.known, news.decided)}
        ordered = sorted((placed.get(d.id, d) for d in ordered), key=lambda d: d.spot.order)
        after = evolve(ordered, {t.name: t.seen() for t in tables}, overridden, news.loaded)
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


def _all_of(lake: Lakehouse, kind: ReleasedKind, columns: list[str]) -> list[dict[str, Any]]:
    """All rows of released_changes of a kind, of which there are few."""
    files = lake.released_changes.files(kind=str(kind))
    rows: list[dict[str, Any]] = lake.released_changes.fetch(files, *columns).to_pylist()
    return rows


def _turn(part: Work) -> tuple[Any, ...]:
    """Rows come in from a table whose part with their end has begun before."""
    return part.steps[0].spot.order if part.arrivals else ()


def _overrides(feed: Feed) -> Callable[[Name, str], bool]:
    """Whether the feeds file says what type a column has."""
    return lambda name, column: f"{name[0]}.{name[1]}.{column}" in feed.columns


class _Table:
    """One table of a unit."""

    def __init__(
        self, lake: Lakehouse, feed: Feed, name: Name, cursor: HistoryCursor | None, news: _News, through: int
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
        if self.cursor.statements is not None:
            return [self.news.known_ddls[i] for i in self.cursor.statements if i in self.news.known_ddls]
        if self.present is None:
            return []
        # Its writer noted none, and acted on none: what it made of them stays.
        new = {d.id for d in self.new}
        return [d for d in self.news.known_ddls.values() if d.touches(self.name) and d.id not in new]

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
    def snapshots(self) -> list[SourceSnapshot]:
        """The connector's snapshots of the table that are to be applied, in order."""
        return [s for s in self._whole_snapshots if self._new(s.release) or self._again(s)]

    @property
    def _whole_snapshots(self) -> list[SourceSnapshot]:
        return [s for s in self.news.snapshots.get(self.name, []) if s.release <= self.through]

    def _again(self, snapshot: SourceSnapshot) -> bool:
        return self.replay is not None and snapshot.since >= self.replay

    @property
    def _told_anew(self) -> list[int]:
        """From where on everything is applied anew, where it was applied without knowing which rows there are."""
        return sorted([*self.dumps, *(s.since for s in self.snapshots)])

    @property
    def dumps(self) -> list[int]:
        """The positions at which the table is loaded anew by what is to be applied, in order."""
        mine = self.news.anew.get(self.name, frozenset())
        return sorted({r["commit_ts"] for r in self.layouts if tells_loaded(r["layout"])} & mine)

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
            late = [s.spot.commit_ts for s in evolution.steps if s.ddl.id not in self.done]
            late = [ts for ts in late if ts < self.cursor.newest]
            late += [at for at in self._told_anew if at <= self.cursor.newest]
            if begin is not None:
                # What changed while the connector took a snapshot may be stamped earlier than what that made end.
                done = [s for s in self._whole_snapshots if not self._new(s.release)]
                late += [min(begin, s.since) for s in done if begin < s.at]
            if begin is not None and told and begin < told[-1].spot.commit_ts:
                late.append(begin)
            self.replay = min(late, default=None)
        begin, self.replay = self.replay, None
        if (
            lost := [at for at in self._told_anew if at <= min(self._trimmed, self.cursor.newest)]
        ) and begin is not None:
            raise LoadTooOldError(self.name, lost[0], self._trimmed)
        return begin is not None and self.goes_back(begin)

    def goes_back(self, begin: int) -> bool:
        """Apply everything from a commit_ts on anew, if it is there still, and more than until now."""
        for s in reversed(self._whole_snapshots):  # which are told of as a whole, or not at all
            begin = s.since if s.since < begin <= s.at else begin
        if begin <= self._trimmed or (self.replay is not None and self.replay <= begin):
            return False
        self.replay = begin
        if self.present is not None:
            mine = [
                r for r in _all_of(self.lake, ReleasedKind.LAYOUT, _LAYOUT) if (r["database"], r["table"]) == self.name
            ]
            self.layouts = [r for r in mine if r["release"] <= self.through and r["last_ts"] >= begin]
        return True

    @property
    def _trimmed(self) -> int:
        """Up to which commit_ts released changes may have been deleted."""
        released = self.lake.released_changes.cursor()
        return released.trimmed.highest if released else -1

    def parts(self, evolution: Evolution, ordered: Sequence[Ddl]) -> list[Work]:
        """What is to be done, a commit each; `ordered`: the statements of the evolution."""
        mine, steps = self.layouts, evolution.steps
        base = self._base(evolution)
        incoming = [n for n, s in enumerate(steps) if n >= base and any(self._comes(op) for op in s.ops)]
        if not mine and not incoming and (self.present is None or base == len(steps)):
            return []
        cuts = [base, *(n for n in incoming if n > base), len(steps)]
        spans = list(itertools.pairwise(cuts))
        every = [d.id for d in ordered if d.touches(self.name)]
        return [
            self._part(evolution, mine, start, end, first=n == 0, whole=n == len(spans) - 1, every=every)
            for n, (start, end) in enumerate(spans)
        ]

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
        every: list[str],
    ) -> Work:
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
        return Work(
            name=self.name,
            table=self.table,
            after=cursor.release,
            through=self.through,
            changes=sum(n for release, n in counts.items() if release > cursor.release)
            if self.replay is None
            else sum(f.rows for f in files),
            last=max((r["last_ts"] for r in rows), default=None),
            files=files if rows else [],
            layouts=_layouts(
                self.feed,
                rows,
                _shapes(self.news.known_of.get(self.name, [])),
                evolution,
                self._among(evolution, rows) if evolution.placed else None,
            ),
            keyless=keyless,
            evolution=evolution,
            base=start,
            among=self._among(evolution, rows),
            eras=(0 if first and not (begins or cursor.partly) else start + 1, end),
            whole=whole,
            replay=self.replay,
            statements=every if whole else [*(d.id for d in self.applied), *(s.ddl.id for s in evolution.steps[:end])],
            rewinds=first and self.replay is not None and cursor.partly is None,
            loaded=self.news.loaded.get(self.name),
            dumps=tuple(self.dumps),
            snapshots=() if keyless else tuple(self.snapshots),
            planned_naming=self.naming,
        )

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


@dataclass(frozen=True)
class _Shape:
    """The types of a table's columns, by name in lower case, from a commit_ts on, and the statement that made it so."""

    since: int
    types: dict[str, str]
    id: str | None


def _shapes(known: Iterable[Mapping[str, Any]]) -> list[_Shape]:
    """The shapes that statements gave to a table, in order; `known`: its rows of table_schemas."""
    return [
        _Shape(
            r["commit_ts"],
            {c["name"].lower(): c["type"] for c in r["columns"]},
            statement_id(r["commit_ts"], r["default_database"], r["ddl_statement"]) if r["ddl_statement"] else None,
        )
        for r in sorted(known, key=lambda r: r["commit_ts"])
        if r["columns"] is not None
    ]


def _layouts(
    feed: Feed,
    rows: Sequence[Mapping[str, Any]],
    shapes: list[_Shape],
    evolution: Evolution,
    among: tuple[int, int] | None,
) -> list[Layout]:
    """What each row of a table is read by: its message's own layout, and the shape that the table had then."""
    protocol, texts = protocol_of(feed), {r["layout_id"]: r["layout"] for r in rows}
    spans: dict[int, tuple[int, int]] = {}
    for r in rows:
        first, last = spans.get(r["layout_id"], (r["commit_ts"], r["last_ts"]))
        spans[r["layout_id"]] = min(first, r["commit_ts"]), max(last, r["last_ts"])
    layouts = []
    for layout_id, (first, last) in sorted(spans.items(), key=lambda span: span[1][1]):
        columns = tuple(columns_in(protocol, texts[layout_id]))
        low, high = among or evolution.between(first, last)
        layouts += [
            Layout(layout_id, since, columns, types, era, _slots(evolution, era, columns))
            for era in range(low, high + 1)
            for since, types in _of_era(shapes, evolution, era, first)
        ]
    return layouts


def _of_era(shapes: Sequence[_Shape], evolution: Evolution, era: int, first: int) -> list[tuple[int, dict[str, str]]]:
    """The types of an era's rows, in order, each from a commit_ts on."""
    steps = {step.ddl.id for step in evolution.steps}
    begin, end = evolution.span(era)
    mine = [s for s in shapes if s.id not in steps and begin <= s.since < end]
    # One that leaves the table as it is may be told without its shape.
    made = [s.types for step in evolution.steps[:era] for s in shapes if s.id == step.ddl.id]
    # Statements may be stamped a little later than the rows before which they ran: the first shape known counts.
    known = [s.types for s in shapes if s.since < first] or [s.types for s in shapes[:1]] or [{}]
    before = [*made[-1:], *(s.types for s in mine if s.since < first)] or known
    within = [(s.since, s.types) for s in mine if s.since >= first]
    told: list[tuple[int, dict[str, str]]] = []
    for since, types in [(0, before[-1]), *within]:
        if not told or told[-1][1] != types:  # a connector describes a table again and again
            told.append((since, types))
    return told


def _slots(evolution: Evolution, era: int, columns: Sequence[WireColumn]) -> dict[str, Slot]:
    found = {c.name.lower(): evolution.slot(era, c.name) for c in columns}
    return {lower: slot for lower, slot in found.items() if slot is not None}


@dataclass(frozen=True)
class Readable:
    """The columns of a run before their types are settled."""

    readings: dict[Slot, tuple[Reading, ...]]
    names: dict[Slot, str]  # in messages, as the newest spell them
    unknown_scale: list[Slot]  # decimals of which only the values tell the digits


def readable(feed: Feed, work: Work) -> Readable:
    """The source's columns in this part, in the table's order."""
    place = f"{'.'.join(work.name)}."
    overrides = {path.removeprefix(place): told for path, told in feed.columns.items() if path.startswith(place)}
    readings = readings_of(protocol_of(feed), work.layouts, overrides)
    spelled = wire_names(readings.values())
    names = {slot: spelled[each[-1].column.name] for slot, each in readings.items()}
    order = {name: n for n, name in enumerate(work.layouts[-1].declared)} if work.layouts else {}
    slots = sorted(readings, key=lambda slot: order.get(names[slot].lower(), len(order)))
    if work.evolves:
        slots += [s for s in _columns_without_rows(work) if s not in readings]
    unknown = [s for s in readings if needs_scale(readings[s][-1].type) and s.id not in work.naming]
    return Readable({slot: readings.get(slot, ()) for slot in slots}, names, unknown)


def _columns_without_rows(work: Work) -> list[Slot]:
    """The columns that rows of before have, or get by a statement; and those that an ALTER TABLE adds."""
    eras = range(work.base, work.eras[1] + 1)
    live = [slot for era in eras for slot in work.evolution.live(era).values()]
    added = {slot for slot in live if slot.added}
    made = {op.slot for step in work.steps for op in step.ops if isinstance(op, Fill | Convert)}
    come = [slot for _, op in work.arrivals for slot in op.columns]
    wanted = {s for s in live if s.id in work.naming} | added | made | set(come)
    return [s for s in dict.fromkeys([*live, *come]) if s in wanted and not s.virtual]


def columns_of(work: Work, read: Readable, scales: Mapping[str, int]) -> list[SourceColumn]:
    """The source's columns, each with the type that its history column is to have."""
    present = {f.name: f.dataType for f in work.present or ()}
    columns = []
    for slot, readings in read.readings.items():
        there = work.naming.get(slot.id)
        held = present.get(there) if there else None
        target = target_type(readings, scales.get(slot.id), held)
        if not readings or work.evolves:
            target = _declared(slot, target if readings or held else None)
        mysql_type = readings[-1].type if readings else slot.type
        own = slot.column if there is None or there.lower() != slot.column.lower() else there
        columns.append(SourceColumn(slot.id, read.names.get(slot, slot.name), own, readings, target, mysql_type))
    return columns


def _declared(slot: Slot, target: DataType | None) -> DataType:
    """What statements say of the type widens it, too."""
    if slot.type is None or needs_scale(slot.type):
        return target or StringType()
    wanted = spark_type(slot.type)
    return wanted if target is None else (widen(target, wanted) or target)
