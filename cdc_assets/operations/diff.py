"""How the rows of a table differ between two positions, or two lakehouses: by column, with samples.

Between two positions of one history only the versions are looked at that are there at one of them and not at the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from cdc_assets.lakehouse.history import COPY, RESERVED, covers, source_columns
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import Engine, engine_for
from cdc_assets.operations.finality import final
from cdc_assets.operations.plain import row_text, value_text
from cdc_assets.tso import time_text

Row = dict[str, Any]
SAMPLES = 5
# Names that no column of a source's table can have.
_COPY, _OF = f"{RESERVED}number", f"{RESERVED}of"


@dataclass(frozen=True)
class Side:
    """The rows of one table as of one position."""

    lake: Lakehouse
    database: str
    table: str
    position: int


@dataclass(frozen=True)
class Sample:
    """A row that differs: `before` and `after` have the columns that do, or all where it is on one side only."""

    op: str  # insert, delete, update
    key: str
    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class Difference:
    """What leads from one side to the other.

    Attributes:
        table: `database.table`.
        before: the position of the first side.
        after: that of the second.
        inserted: how many rows only the second has.
        deleted: how many only the first.
        updated: how many differ.
        columns: column -> in how many of these it does; those in none are left out.
        only_before: columns that only the first has, which are not compared.
        only_after: those that only the second has.
        samples: some of each kind, by key.
        unsettled: which position is not final yet, and why.
    """

    table: str
    before: int
    after: int
    inserted: int
    deleted: int
    updated: int
    columns: dict[str, int]
    only_before: list[str]
    only_after: list[str]
    samples: list[Sample]
    unsettled: list[str]

    @property
    def equal(self) -> bool:
        """Whether the rows of both sides are the same."""
        return not (self.inserted or self.deleted or self.updated)


def diff(before: Side, after: Side, samples: int = SAMPLES) -> Difference:
    """Compare two sides, on the columns that both have; rows are told apart by their keys.

    Rows of a table without a key are the same or not: none is updated.

    Args:
        before: the first side.
        after: the second; its history has to be there, as that of the first.
        samples: so many of each kind.
    """
    histories = [side.lake.history(side.database, side.table) for side in (before, after)]
    schemas = [history.schema() for history in histories]
    names = [schema.names if schema else [] for schema in schemas]
    own = [source_columns(each) for each in names]
    common = [c for c in own[0] if c in own[1]]
    compared = _Compared(
        engine_for(before.lake.session, *histories),
        {"a": histories[0], "b": histories[1]},
        common,
        _joined(before, after, keyless=any(COPY.name in each for each in names)),
    )
    counts = compared.counts()
    return Difference(
        table=f"{after.database}.{after.table}",
        before=before.position,
        after=after.position,
        inserted=counts["inserted"],
        deleted=counts["deleted"],
        updated=counts["updated"],
        columns={c: counts[f"c{n}"] for n, c in enumerate(common) if counts[f"c{n}"]},
        only_before=[c for c in own[0] if c not in own[1]],
        only_after=[c for c in own[1] if c not in own[0]],
        samples=[s for op in ("insert", "delete", "update") for s in compared.samples(op, samples)],
        unsettled=[said for side in (before, after) for said in _unsettled(side)],
    )


def _joined(before: Side, after: Side, *, keyless: bool) -> str:
    """The rows of both sides, `l` and `r`, side by side, in SQL."""
    there, then = covers(before.position), covers(after.position)
    if before.lake.root == after.lake.root:
        there, then = f"{there} AND NOT ({then})", f"{then} AND NOT ({there})"
    # Equal rows are numbered as they come: which is which nobody can tell.
    number = "row_number() OVER (PARTITION BY _cdc_key ORDER BY _cdc_from_ts)" if keyless else "1"
    left, right = (f"(SELECT *, {number} AS {_COPY} FROM {t} WHERE {w})" for t, w in (("a", there), ("b", then)))
    return f"{left} l FULL OUTER JOIN {right} r ON l._cdc_key = r._cdc_key AND l.{_COPY} = r.{_COPY}"


@dataclass(frozen=True)
class _Compared:
    """Two sides in one query."""

    engine: Engine[Any]
    tables: dict[str, Any]
    columns: Sequence[str]
    joined: str

    def _differs(self, column: str) -> str:
        name = self.engine.name(column)
        return f"(l.{name} IS DISTINCT FROM r.{name})"

    def _is(self, op: str) -> str:
        return {
            "insert": "l._cdc_key IS NULL",
            "delete": "r._cdc_key IS NULL",
            "update": f"l._cdc_key = r._cdc_key AND ({' OR '.join(map(self._differs, self.columns)) or 'false'})",
        }[op]

    def counts(self) -> dict[str, int]:
        """How many rows of each kind, and `c0`, `c1`, ...: in how many of the updated each column differs."""
        said = {"inserted": self._is("insert"), "deleted": self._is("delete"), "updated": self._is("update")}
        said |= {f"c{n}": f"l._cdc_key = r._cdc_key AND {self._differs(c)}" for n, c in enumerate(self.columns)}
        listed = ", ".join(f"count(CASE WHEN {each} THEN 1 END) AS {name}" for name, each in said.items())
        (found,) = self.engine.fetch(f"SELECT {listed} FROM {self.joined}", self.tables).to_pylist()
        return dict(found)

    def samples(self, op: str, count: int) -> list[Sample]:
        """Some rows of a kind."""
        names = [(n, self.engine.name(c)) for n, c in enumerate(self.columns)]
        listed = ", ".join(f"l.{name} AS l{n}, r.{name} AS r{n}" for n, name in names)
        sql = f"SELECT coalesce(l._cdc_key, r._cdc_key) AS {_OF}{', ' * bool(names)}{listed} FROM {self.joined} "
        rows = self.engine.fetch(f"{sql} WHERE {self._is(op)} ORDER BY {_OF} LIMIT {count}", self.tables).to_pylist()
        return [self._sample(op, row) for row in rows]

    def _sample(self, op: str, row: Row) -> Sample:
        shown = [(n, c) for n, c in enumerate(self.columns) if op != "update" or row[f"l{n}"] != row[f"r{n}"]]
        before = None if op == "insert" else {c: row[f"l{n}"] for n, c in shown}
        after = None if op == "delete" else {c: row[f"r{n}"] for n, c in shown}
        return Sample(op, row[_OF], before, after)


def _unsettled(side: Side) -> list[str]:
    until = final(side.lake, side.database, side.table)
    if side.position <= until.position:
        return []
    return [f"{side.position} is not final yet: {until.reason}"]


def as_text(told: Difference) -> str:
    """A difference as lines of text."""
    return "\n".join([*_head(told), *(f"  {' '.join(cells)}" for cells in _lines(told))])


def as_html(told: Difference) -> str:
    """A difference as a page of HTML."""
    head = "".join(f"<p>{escape(line)}</p>" for line in _head(told))
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in _lines(told))
    style = "<style>body {font-family: sans-serif} td {padding: 0.2em 1em; border-bottom: 1px solid #ccc}</style>"
    return f"<!DOCTYPE html><meta charset=utf-8><title>{escape(told.table)}</title>{style}{head}<table>{rows}</table>"


def _head(told: Difference) -> list[str]:
    before, after = (f"{p} ({time_text(p)})" for p in (told.before, told.after))
    counts = f"{told.inserted} inserted, {told.deleted} deleted, {told.updated} updated"
    return [f"{told.table} from {before} to {after}: rows {counts}", *told.unsettled]


def _lines(told: Difference) -> Iterator[tuple[str, str, str]]:
    """What differs: the kind, in what, and how."""
    yield from (("column", column, f"differs in {count} rows") for column, count in told.columns.items())
    yield from (("column", column, "only before") for column in told.only_before)
    yield from (("column", column, "only after") for column in told.only_after)
    for s in told.samples:
        if s.before and s.after:
            changes = (f"{c}: {value_text(old)} -> {value_text(s.after[c])}" for c, old in s.before.items())
            yield s.op, s.key, ", ".join(changes)
        else:
            yield s.op, s.key, row_text(s.after or s.before or {})
