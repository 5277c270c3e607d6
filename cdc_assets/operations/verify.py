"""Whether a history is what the source has: as of a position, against the source's own rows.

Rows fall into chunks by a checksum of their keys, so that no order of texts matters, which each collation has its own of.
Of equal chunks only checksums travel; of those that differ, the rows' digests; of the rows that are shown, the values.
The history is read as often as the source, a few thousand rows at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config import Feed
from cdc_assets.lakehouse.history import covers, history_name, source_columns
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import Tables, engine_for
from cdc_assets.mysql_types.canonical import canonical_form
from cdc_assets.operations.diff import SAMPLES
from cdc_assets.operations.digests import ID, Column, Digests, chunk_of
from cdc_assets.operations.explain import Explanation, explain
from cdc_assets.operations.explained import in_brief
from cdc_assets.operations.finality import final
from cdc_assets.operations.keys import key_columns, key_of, row_key
from cdc_assets.operations.plain import row_text, value_text
from cdc_assets.sources.mysql import Address, Snapshot, SourceError, snapshot, table_name, text_of
from cdc_assets.tso import time_text

Texts = dict[str, str | None]
Values = dict[str, bytes | None]  # column -> canonical value

_ROWS = 1000  # of a chunk, about
_MOST = 1 << 16  # chunks
_HELD = 1_000_000  # rows of differing chunks whose digests are held at once
_FETCHED = 10_000  # rows that are taken from the source at once
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
        differing = it.differing()
        found = it.narrowed(differing, samples)
        return Verified(
            table=".".join(names),
            position=position,
            source=source.told,
            rows=it.rows,
            source_rows=it.source_rows,
            chunks=it.chunks,
            differing=len(differing),
            counts=found.counts,
            samples=list(it.told(found.ids)),
            compared=[c.name for c in it.columns],
            not_compared=it.not_compared,
            unsettled=it.unsettled(),
        )


@dataclass(frozen=True)
class _Differing:
    """Rows that differ, by kind: how many, and the ids of some, the lowest."""

    counts: dict[str, int]
    ids: dict[str, list[bytes]]


class _Comparison:
    """The two sides. Of neither are all rows ever in memory."""

    def __init__(self, lake: Lakehouse, feed: Feed, names: tuple[str, str], position: int, source: Snapshot) -> None:
        self._lake, self._feed, self._names, self._position, self._source = lake, feed, names, position, source
        self._history = lake.history(*names)
        self._engine = engine_for(lake.session, self._history)
        self.columns: list[Column] = []
        self.not_compared: dict[str, str] = {}
        self._choose_columns()
        wanted = [c.lower() for c in key_columns(lake, *names) or ()]
        mine = {c.name.lower(): c for c in self.columns}
        if absent := [c for c in wanted if c not in mine]:
            raise SourceError(
                f"{'.'.join(names)}: its rows cannot be told apart without {', '.join(absent)} of the key"
            )
        if not mine:
            raise SourceError(f"{'.'.join(names)}: it has no column that can be compared")
        self._digests = Digests(self.columns, [mine[c] for c in wanted])
        (row,) = self._engine.fetch(f"SELECT count(*) AS n FROM h WHERE {covers(position)}", self._tables).to_pylist()
        ((source_rows,),) = source.rows(f"SELECT COUNT(*) FROM {self._from}")
        self.rows, self.source_rows = int(row["n"]), int(source_rows)
        self.chunks = min(_MOST, max(self.rows, self.source_rows) // _ROWS + 1)

    def _choose_columns(self) -> None:
        rows = self._engine.fetch("SELECT * FROM h LIMIT 0", self._tables)
        held = {c.lower(): c for c in source_columns(rows.column_names)}
        for column in self._source.columns(*self._names):
            held_as = held.pop(history_name(column.name).lower(), None)
            if held_as is None:
                self.not_compared[column.name] = "only the source has it"
                continue
            form = canonical_form(column.type, rows.schema.field(held_as).type)
            if isinstance(form, str):
                self.not_compared[column.name] = form
            else:
                self.columns.append(Column(column.name, held_as, form))
        self.not_compared |= dict.fromkeys(held.values(), "only the history has it")

    @property
    def _tables(self) -> Tables:
        return {"h": self._history}

    @property
    def _from(self) -> str:
        return table_name(*self._names)

    def _read(self) -> Iterator[tuple[pa.Array, dict[str, pa.Array]]]:
        """The history's rows as of the position, some at a time: `_cdc_key`, and their canonical values."""
        listed = ", ".join(map(self._engine.name, ["_cdc_key", *(c.held_as for c in self.columns)]))
        sql = f"SELECT {listed} FROM h WHERE {covers(self._position)}"
        for batch in self._engine.batches(sql, self._tables):
            yield batch["_cdc_key"], self._digests.canonical(batch)

    def differing(self) -> list[tuple[int, int]]:
        """The chunks that differ: number, and how many rows the larger side has in it."""
        counts, sums = (np.zeros((2, self.chunks), np.uint64) for _ in range(2))
        for _, values in self._read():
            at = chunk_of(self._digests.ids(values), self.chunks)
            np.add.at(counts[0], at, 1)
            np.add.at(sums[0], at, self._digests.values(values))
        rows = f"SELECT {self._digests.chunk_sql(self.chunks)} AS c, {self._digests.value_sql} AS d FROM {self._from}"
        for chunk, count, total in self._source.rows(f"SELECT c, COUNT(*), SUM(d) FROM ({rows}) AS t GROUP BY c"):
            # What numbers of 64 bits hold of a sum: those of the history wrap around.
            counts[1, int(chunk)], sums[1, int(chunk)] = int(count), int(total) % (1 << 64)
        different = np.flatnonzero((counts[0] != counts[1]) | (sums[0] != sums[1]))
        return [(int(chunk), int(counts[:, chunk].max())) for chunk in different]

    def narrowed(self, differing: Sequence[tuple[int, int]], samples: int) -> _Differing:
        """The rows that differ in these chunks, of which so many ids of each kind are kept."""
        found = _Differing(dict.fromkeys(KINDS, 0), {kind: [] for kind in KINDS})
        for chunks in _listed(differing):
            net = pa.concat_tables([*self._mine(chunks), *self._theirs(chunks)])
            net = net.group_by(["id", "digest"]).aggregate([("n", "sum")]).filter(pc.field("n_sum") != 0)
            by_id = net.group_by("id").aggregate([("n_sum", "min"), ("n_sum", "max"), ("n_sum", "sum")])
            low, high = pc.field("n_sum_min"), pc.field("n_sum_max")
            for kind, which in zip(KINDS, (high < 0, low > 0, (low < 0) & (high > 0)), strict=True):
                these = by_id.filter(which)
                rows = these.num_rows if kind == "changed" else abs(pc.sum(these["n_sum_sum"]).as_py() or 0)
                found.counts[kind] += rows
                lowest = these.sort_by("id")["id"].slice(0, samples).to_pylist()
                found.ids[kind][:] = sorted([*found.ids[kind], *lowest])[:samples]
        return found

    def _mine(self, chunks: Sequence[int]) -> Iterator[pa.Table]:
        """The rows of the history in some chunks: BINARY(16) id, UINT64 digest, and 1."""
        wanted = np.zeros(self.chunks, bool)
        wanted[chunks] = True
        for _, values in self._read():
            ids = self._digests.ids(values)
            there = pa.array(wanted[chunk_of(ids, self.chunks)])
            within = {name: column.filter(there) for name, column in values.items()}
            yield _counted(ids.filter(there), pa.array(self._digests.values(within)), 1)

    def _theirs(self, chunks: Sequence[int]) -> Iterator[pa.Table]:
        """Those of the source, and -1."""
        within = f"{self._digests.chunk_sql(self.chunks)} IN ({', '.join(map(str, chunks))})"
        sql = f"SELECT {self._digests.id_sql}, {self._digests.value_sql} FROM {self._from} WHERE {within}"
        rows = self._source.rows(sql)
        while some := list(islice(rows, _FETCHED)):
            ids = pa.array([bytes.fromhex(text_of(told)) for told, _ in some], ID)
            yield _counted(ids, pa.array([int(digest) for _, digest in some], pa.uint64()), -1)

    def told(self, ids: Mapping[str, Sequence[bytes]]) -> Iterator[Found]:
        """Rows of each kind, with their lives."""
        keys, mine = self._held([*ids["extra"], *ids["changed"]])
        theirs = self._fetched([*ids["missing"], *ids["changed"]])
        for kind, told in [(each, told) for each in KINDS for told in ids[each]]:
            here, there = mine.get(told), theirs.get(told)
            row = here or there
            if row is None:
                continue  # a run has changed the history meanwhile
            differ = [c for c in self.columns if here is None or there is None or here[c.name] != there[c.name]]
            key = {c.name: c.shown(row[c.name]) for c in self._digests.key or self.columns}
            given = [keys[told]] if here is not None else self._given(key)
            yield Found(
                kind,
                key,
                _shown(here, differ),
                _shown(there, differ),
                explain(self._lake, self._feed, ".".join(self._names), given),
            )

    def _given(self, key: Texts) -> list[str]:
        """A key that only the source has, in the one form that is taken for nothing else."""
        return [key_of(list(key.values())) if self._digests.key else row_key(key)]

    def _held(self, ids: Sequence[bytes]) -> tuple[dict[bytes, str], dict[bytes, Values]]:
        """The keys of some rows of the history, and their canonical values."""
        keys: dict[bytes, str] = {}
        rows: dict[bytes, Values] = {}
        wanted = pa.array(ids, ID)
        for held, values in self._read() if ids else ():
            told = self._digests.ids(values)
            within = pc.is_in(told, value_set=wanted)
            found = told.filter(within).to_pylist()
            keys |= zip(found, held.filter(within).to_pylist(), strict=True)
            rows |= zip(found, pa.table(values).filter(within).to_pylist(), strict=True)
        return keys, rows

    def _fetched(self, ids: Sequence[bytes]) -> dict[bytes, Values]:
        """The canonical values of some rows of the source."""
        if not ids:
            return {}
        listed = ", ".join(f"'{told.hex()}'" for told in ids)
        columns = ", ".join([self._digests.id_sql, *(c.value for c in self.columns)])
        rows = self._source.rows(f"SELECT {columns} FROM {self._from} WHERE {self._digests.id_sql} IN ({listed})")
        names = [c.name for c in self.columns]
        return {bytes.fromhex(text_of(row[0])): dict(zip(names, row[1:], strict=True)) for row in rows}

    def unsettled(self) -> list[str]:
        """What may have changed one side only."""
        until = final(self._lake, *self._names)
        said = [] if self._position <= until.position else [f"{self._position} is not final yet: {until.reason}"]
        if not self._source.exact:
            said.append(
                "the source is read as it is now: what it did after that position shows as a difference, "
                "and a difference that it has undone since does not show"
            )
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


def _shown(row: Values | None, columns: Sequence[Column]) -> Texts | None:
    return None if row is None else {c.name: c.shown(row[c.name]) for c in columns}


def _counted(ids: pa.Array, digests: pa.Array, each: int) -> pa.Table:
    return pa.table({"id": ids, "digest": digests, "n": pa.array(np.full(len(ids), each, np.int64))})


def _listed(differing: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Chunks that are looked at together, so that the digests of their rows are few enough to hold."""
    some: list[int] = []
    held = 0
    for chunk, rows in differing:
        if some and held + rows > _HELD:
            yield some
            some, held = [], 0
        some.append(chunk)
        held += rows
    if some:
        yield some
