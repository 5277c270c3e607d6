"""Whether a history is what the source has: as of a position, against the source's own rows.

Rows fall into chunks by a checksum of their keys, so that no order of texts matters, which each collation has its own of.
Of equal chunks only checksums travel; of those that differ, the rows' digests; of the rows that are shown, the values.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import pyarrow as pa

from cdc_assets.feeds import Feed
from cdc_assets.mysql_types.canonical import Form, form_of
from cdc_assets.operations.diff import SAMPLES
from cdc_assets.operations.explain import Explanation, explain
from cdc_assets.operations.explained import in_brief
from cdc_assets.operations.finality import final
from cdc_assets.operations.keys import key_columns, key_of, row_key
from cdc_assets.operations.plain import row_text, value_text
from cdc_assets.sources.mysql import Address, Snapshot, SourceError, snapshot, table_name, text_of
from cdc_assets.tables.history import covers, history_name, source_columns
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.query import engine_for
from cdc_assets.tables.schema import quoted
from cdc_assets.tso import time_text

Texts = dict[str, str | None]
Values = tuple[bytes | None, ...]

_ROWS = 1000  # of a chunk, about
_MOST = 1 << 16  # chunks
_LISTED = 1000  # chunks that one statement asks for
_HEX = 15  # digits of a row's digest: 60 bits, of which sums are exact everywhere
KINDS = ("missing", "extra", "changed")


@dataclass(frozen=True)
class Found:
    """A row that differs.

    Attributes:
        kind: missing: the history lacks it; extra: only the history has it; changed.
        key: the key's values, or of a table without a key the row's.
        history: the columns that differ, as the history has them; None: it has no such row.
        source: the same, of the source.
        why: the row's life, as far as the lakehouse knows it.
    """

    kind: str
    key: Texts
    history: Texts | None
    source: Texts | None
    why: Explanation


@dataclass(frozen=True)
class Verified:
    """What came out.

    Attributes:
        table: `database.table`.
        position: as of which the history was compared.
        source: which server, and as of when.
        rows: how many the history has.
        source_rows: how many the source has.
        chunks: how many there were.
        differing: how many of them differ.
        counts: kind -> how many rows differ so.
        samples: some of each kind.
        compared: the columns that were compared.
        not_compared: column -> why not.
        unsettled: what may have changed one side only.
    """

    table: str
    position: int
    source: str
    rows: int
    source_rows: int
    chunks: int
    differing: int
    counts: dict[str, int]
    samples: list[Found]
    compared: list[str]
    not_compared: dict[str, str]
    unsettled: list[str]

    @property
    def equal(self) -> bool:
        """Whether no row differs."""
        return not any(self.counts.values())


@dataclass(frozen=True)
class _Column:
    """A column that is compared: its name in the source and in the history."""

    name: str
    held_as: str
    form: Form

    @property
    def value(self) -> str:
        """Its canonical bytes, in the source's SQL."""
        return f"CAST({self.form.sql.format(quoted(self.name))} AS BINARY)"

    def part(self, *, whole: bool) -> str:
        """What it adds to the text of a row, or of its key, which has values whole; in the source's SQL."""
        said = f"MD5({self.value})" if self.form.long and not whole else self.value
        return f"COALESCE(CONCAT(LENGTH({said}), ':', {said}), 'N')"

    def part_of(self, value: bytes | None, *, whole: bool) -> bytes:
        """The same of a value."""
        if value is None:
            return b"N"
        said = _md5(value).encode() if self.form.long and not whole else value
        return b"%d:%s" % (len(said), said)

    def shown(self, value: bytes | None) -> str | None:
        """A value for people: bytes as 0x and hex digits."""
        if value is None:
            return None
        return f"0x{value.hex()}" if self.form.sql == "{0}" else value.decode(errors="replace")


def verify(
    lake: Lakehouse, feed: Feed, names: tuple[str, str], address: Address, position: int, samples: int = SAMPLES
) -> Verified:
    """Compare a history as of a position with the source's own rows.

    Args:
        lake: the feed's tables.
        feed: the feed.
        names: database and table; its history has to be there.
        address: of the source.
        position: a commit_ts. TiDB is asked as of it; MySQL and MariaDB have their present only.
        samples: so many rows of each kind are shown.

    Raises:
        SourceError: the source does not answer, or has no such table, or its key cannot be compared.
    """
    with snapshot(address, position) as source:
        it = _Comparison(lake, feed, names, position, source)
        it.narrow()
        return Verified(
            table=".".join(names),
            position=position,
            source=source.told,
            rows=len(it.digests),
            source_rows=it.source_rows,
            chunks=it.chunks,
            differing=len(it.differing),
            counts={kind: len(it.found[kind]) for kind in KINDS},
            samples=[told for kind in KINDS for told in it.told(kind, samples)],
            compared=[c.name for c in it.columns],
            not_compared=it.not_compared,
            unsettled=it.unsettled(),
        )


class _Comparison:
    """The two sides, and what was found so far."""

    def __init__(self, lake: Lakehouse, feed: Feed, names: tuple[str, str], position: int, source: Snapshot) -> None:
        self._lake, self._feed, self._names, self._position, self._source = lake, feed, names, position, source
        self.columns: list[_Column] = []
        self.not_compared: dict[str, str] = {}
        self.rows = self._read()
        wanted = [c.lower() for c in key_columns(lake, *names) or ()]
        mine = {c.name.lower(): c for c in self.columns}
        if absent := [c for c in wanted if c not in mine]:
            raise SourceError(
                f"{'.'.join(names)}: its rows cannot be told apart without {', '.join(absent)} of the key"
            )
        self.keyless = not wanted
        self._key = [mine[c] for c in wanted] or self.columns
        self.found: dict[str, list[str]] = {kind: [] for kind in KINDS}
        self.source_rows = 0
        self.differing: list[int] = []

    def _read(self) -> pa.Table:
        """The history's rows as of the position, and which columns are compared."""
        history = self._lake.history(*self._names)
        engine = engine_for(self._lake.session, history)
        rows = engine.fetch(f"SELECT * FROM h WHERE {covers(self._position)}", {"h": history})
        held = {c.lower(): c for c in source_columns(rows.column_names)}
        for column in self._source.columns(*self._names):
            held_as = held.pop(history_name(column.name).lower(), None)
            if held_as is None:
                self.not_compared[column.name] = "only the source has it"
                continue
            form = form_of(column.type, rows.schema.field(held_as).type)
            if isinstance(form, str):
                self.not_compared[column.name] = form
            else:
                self.columns.append(_Column(column.name, held_as, form))
        self.not_compared |= dict.fromkeys(held.values(), "only the history has it")
        return rows

    def _id(self) -> str:
        """What tells a row from others, in the source's SQL: of a table without a key all of it."""
        return f"MD5(CONCAT({', '.join(c.part(whole=not self.keyless) for c in self._key)}))"

    def _chunk(self) -> str:
        return f"CAST(CONV(LEFT({self._id()}, 8), 16, 10) AS UNSIGNED) % {self.chunks}"

    def _digest(self) -> str:
        parts = ", ".join(c.part(whole=False) for c in self.columns)
        return f"CAST(CONV(LEFT(MD5(CONCAT({parts})), {_HEX}), 16, 10) AS UNSIGNED)"

    @property
    def _from(self) -> str:
        return table_name(*self._names)

    @cached_property
    def chunks(self) -> int:
        """How many there are: by the history's rows, as the source's are not counted yet."""
        return min(_MOST, len(self.rows) // _ROWS + 1)

    @cached_property
    def values(self) -> list[Values]:
        """The canonical values of the history's rows, as the columns that are compared."""
        columns = [c.form.text(self.rows[c.held_as]) for c in self.columns]
        return list(zip(*columns, strict=True))

    @cached_property
    def ids(self) -> list[str]:
        """What tells each row of the history from others."""
        key = [(c, self.columns.index(c)) for c in self._key]
        parts = ([c.part_of(row[n], whole=not self.keyless) for c, n in key] for row in self.values)
        return [_md5(b"".join(each)) for each in parts]

    @cached_property
    def digests(self) -> list[int]:
        """What each row of the history comes to."""
        parts = ([c.part_of(v, whole=False) for c, v in zip(self.columns, row, strict=True)] for row in self.values)
        return [int(_md5(b"".join(each))[:_HEX], 16) for each in parts]

    def narrow(self) -> None:
        """Find the chunks that differ, and the rows that do."""
        mine: dict[int, list[int]] = defaultdict(list)
        for row, told in enumerate(self.ids):
            mine[int(told[:8], 16) % self.chunks].append(row)
        sums = {chunk: (len(rows), sum(self.digests[r] for r in rows)) for chunk, rows in mine.items()}
        rows_of = f"SELECT {self._chunk()} AS c, {self._digest()} AS d FROM {self._from}"
        sql = f"SELECT c, COUNT(*), SUM(d) FROM ({rows_of}) AS t GROUP BY c"
        theirs = {int(c): (int(count), int(total)) for c, count, total in self._source.rows(sql)}
        self.source_rows = sum(count for count, _ in theirs.values())
        self.differing = sorted(c for c in {*sums, *theirs} if sums.get(c) != theirs.get(c))
        for chunks in _listed(self.differing):
            self._compare([row for c in chunks for row in mine[c]], chunks)

    def _compare(self, rows: Sequence[int], chunks: Sequence[int]) -> None:
        """Compare the rows of some chunks."""
        mine = Counter((self.ids[r], self.digests[r]) for r in rows)
        within = ", ".join(map(str, chunks))
        sql = f"SELECT {self._id()}, {self._digest()} FROM {self._from} WHERE {self._chunk()} IN ({within})"
        theirs = Counter((text_of(told), int(digest)) for told, digest in self._source.rows(sql))
        missing = [told for told, _ in (theirs - mine).elements()]
        extra = [told for told, _ in (mine - theirs).elements()]
        changed = set() if self.keyless else {*missing} & {*extra}
        self.found["missing"] += [told for told in missing if told not in changed]
        self.found["extra"] += [told for told in extra if told not in changed]
        self.found["changed"] += changed

    def told(self, kind: str, count: int) -> Iterator[Found]:
        """Some rows of a kind, with their lives."""
        wanted = sorted({*self.found[kind]})[:count]
        rows = {told: row for row, told in enumerate(self.ids) if told in wanted} if kind != "missing" else {}
        theirs = self._fetched(wanted) if kind != "extra" else {}
        for told in wanted:
            mine, other = (self.values[rows[told]] if rows else None), theirs.get(told)
            differ = [n for n in range(len(self.columns)) if mine is None or other is None or mine[n] != other[n]]
            has = mine or other or ()
            key = {c.name: c.shown(has[self.columns.index(c)]) for c in self._key}
            given = self.rows["_cdc_key"][rows[told]].as_py() if rows else self._given(key)
            yield Found(
                kind,
                key,
                self._shown(mine, differ),
                self._shown(other, differ),
                explain(self._lake, self._feed, ".".join(self._names), given if isinstance(given, list) else [given]),
            )

    def _given(self, key: Texts) -> str | list[str]:
        """A key that only the source has, as a person would give it."""
        if self.keyless:
            return row_key(key)
        values = list(key.values())
        return [v for v in values if v is not None] if None not in values else key_of(values)

    def _shown(self, row: Values | None, columns: Iterable[int]) -> Texts | None:
        return None if row is None else {self.columns[n].name: self.columns[n].shown(row[n]) for n in columns}

    def _fetched(self, wanted: Sequence[str]) -> Mapping[str, Values]:
        """The source's canonical values of some rows."""
        if not wanted:
            return {}
        listed = ", ".join(f"'{told}'" for told in wanted)
        columns = ", ".join([self._id(), *(c.value for c in self.columns)])
        rows = self._source.rows(f"SELECT {columns} FROM {self._from} WHERE {self._id()} IN ({listed})")
        return {text_of(row[0]): tuple(row[1:]) for row in rows}

    def unsettled(self) -> list[str]:
        """What may have changed one side only."""
        until = final(self._lake, *self._names)
        said = [] if self._position <= until.position else [f"{self._position} is not final yet: {until.reason}"]
        if not self._source.exact:
            said.append("what the source did after that position, up to now, differs")
        return said


def as_text(told: Verified) -> str:
    """As lines: the verdict, what was not compared, and each row with its life in brief."""
    counts = ", ".join(f"{count} {kind}" for kind, count in told.counts.items())
    lines = [
        f"{told.table} as of {told.position} ({time_text(told.position)}) against {told.source}: "
        + ("equal" if told.equal else f"rows {counts}"),
        f"{told.rows} rows here, {told.source_rows} there; {told.differing} of {told.chunks} chunks differ",
        *told.unsettled,
        *(f"  column {column} is not compared: {why}" for column, why in told.not_compared.items()),
    ]
    for each in told.samples:
        lines.append(f"  {each.kind} {row_text(each.key)}: {_values(each)}")
        lines += [f"    {line}" for line in in_brief(each.why)]
    return "\n".join(lines)


def _values(found: Found) -> str:
    if found.history is None or found.source is None:
        return row_text(found.history or found.source or {})
    return ", ".join(
        f"{c}: {value_text(v)} here, {value_text(found.source[c])} there" for c, v in found.history.items()
    )


def _md5(value: bytes) -> str:
    return hashlib.md5(value, usedforsecurity=False).hexdigest()


def _listed(chunks: Sequence[int]) -> Iterator[list[int]]:
    rest = iter(chunks)
    while some := list(islice(rest, _LISTED)):
        yield some
