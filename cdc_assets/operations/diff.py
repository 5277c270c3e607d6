"""How the rows of a table differ between two positions or two lakehouses: counts, columns, samples.

Within one history only the versions are compared that hold at one of the positions and not at the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from cdc_assets.lakehouse.history import COPY, RESERVED, covers, source_columns
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import Engine, engine_for
from cdc_assets.operations.finality import describe_position_not_final, find_final_position
from cdc_assets.operations.formatting import format_position, format_row, format_value

Row = dict[str, Any]
DEFAULT_SAMPLES = 5
# Names that no column of a source's table can have.
_COPY, _KEY = f"{RESERVED}number", f"{RESERVED}of"


@dataclass(frozen=True)
class DiffSide:
    """The rows of one table as of one position.

    Attributes:
        lake: the feed's tables in one lakehouse.
        database: the source's database.
        table: the source's table; its history must exist.
        position: the commit_ts.
    """

    lake: Lakehouse
    database: str
    table: str
    position: int


@dataclass(frozen=True)
class SampleRow:
    """A row that differs.

    Attributes:
        op: insert: only the second side has it; delete: only the first side has it; update: both have it.
        key: its `_cdc_key`.
        before: its columns on the first side, of an update only those that differ; None: it is not there.
        after: the same for the second side.
    """

    op: str
    key: str
    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class Difference:
    """How the rows of two sides differ.

    Attributes:
        table: `database.table`.
        before: the first side's position.
        after: the second side's position.
        inserted: the number of rows that only the second side has.
        deleted: the number of rows that only the first side has.
        updated: the number of rows that both sides have, with different values.
        columns: column -> in how many of the updated rows it differs; columns that differ in none are left out.
        only_before: columns that only the first side has; they are not compared.
        only_after: columns that only the second side has; they are not compared.
        samples: some rows of each kind, by key.
        caveats: which position is not final yet, and why; a sentence each.
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
    samples: list[SampleRow]
    caveats: list[str]

    @property
    def is_equal(self) -> bool:
        """Whether both sides have the same rows."""
        return not (self.inserted or self.deleted or self.updated)


def compare_rows(before: DiffSide, after: DiffSide, samples: int = DEFAULT_SAMPLES) -> Difference:
    """Compare two sides on the columns that both have; rows are matched by key.

    In a table without a key a row is its own key, so that no row counts as updated.

    Args:
        before: the first side.
        after: the second side.
        samples: how many rows of each kind to return.
    """
    histories = [side.lake.history(side.database, side.table) for side in (before, after)]
    schemas = [history.schema() for history in histories]
    names_before, names_after = (schema.names if schema else [] for schema in schemas)
    columns_before, columns_after = source_columns(names_before), source_columns(names_after)
    common = [column for column in columns_before if column in columns_after]
    query = _DiffQuery(
        engine_for(before.lake.session, *histories),
        {"a": histories[0], "b": histories[1]},
        common,
        _join_sides(before, after, is_keyless=COPY.name in names_before or COPY.name in names_after),
    )
    counts = query.count_rows()
    return Difference(
        table=f"{after.database}.{after.table}",
        before=before.position,
        after=after.position,
        inserted=counts["inserted"],
        deleted=counts["deleted"],
        updated=counts["updated"],
        columns={column: counts[f"c{n}"] for n, column in enumerate(common) if counts[f"c{n}"]},
        only_before=[column for column in columns_before if column not in columns_after],
        only_after=[column for column in columns_after if column not in columns_before],
        samples=[row for op in ("insert", "delete", "update") for row in query.fetch_samples(op, samples)],
        caveats=[
            caveat
            for side in (before, after)
            for caveat in describe_position_not_final(
                side.position, find_final_position(side.lake, side.database, side.table)
            )
        ],
    )


def _join_sides(before: DiffSide, after: DiffSide, *, is_keyless: bool) -> str:
    """Return the SQL that joins the rows of both sides, `l` and `r`, by key."""
    in_before, in_after = covers(before.position), covers(after.position)
    if before.lake.root == after.lake.root:
        in_before, in_after = f"{in_before} AND NOT ({in_after})", f"{in_after} AND NOT ({in_before})"
    # Nothing tells equal rows apart, so they are matched in the order of their versions.
    number = "row_number() OVER (PARTITION BY _cdc_key ORDER BY _cdc_from_ts)" if is_keyless else "1"
    left, right = (
        f"(SELECT *, {number} AS {_COPY} FROM {table} WHERE {condition})"
        for table, condition in (("a", in_before), ("b", in_after))
    )
    return f"{left} l FULL OUTER JOIN {right} r ON l._cdc_key = r._cdc_key AND l.{_COPY} = r.{_COPY}"


@dataclass(frozen=True)
class _DiffQuery:
    """Queries over both sides.

    Attributes:
        engine: what runs them.
        tables: the histories by the names that `joined` has for them.
        columns: the columns to compare.
        joined: the SQL that joins both sides.
    """

    engine: Engine[Any]
    tables: dict[str, Any]
    columns: Sequence[str]
    joined: str

    def count_rows(self) -> dict[str, int]:
        """Return the number of rows inserted, deleted and updated; as `c0`, `c1`, ... in how many each column differs."""
        conditions = {"inserted": "insert", "deleted": "delete", "updated": "update"}
        counted = {name: self._build_condition(op) for name, op in conditions.items()}
        counted |= {f"c{n}": f"l._cdc_key = r._cdc_key AND {self._differs(c)}" for n, c in enumerate(self.columns)}
        counts = ", ".join(f"count(CASE WHEN {condition} THEN 1 END) AS {name}" for name, condition in counted.items())
        (row,) = self.engine.fetch(f"SELECT {counts} FROM {self.joined}", self.tables).to_pylist()
        return dict(row)

    def fetch_samples(self, op: str, count: int) -> list[SampleRow]:
        """Return the first rows of a kind, by key."""
        names = [(n, self.engine.name(column)) for n, column in enumerate(self.columns)]
        values = "".join(f", l.{name} AS l{n}, r.{name} AS r{n}" for n, name in names)
        sql = f"SELECT coalesce(l._cdc_key, r._cdc_key) AS {_KEY}{values} FROM {self.joined} "
        sql += f"WHERE {self._build_condition(op)} ORDER BY {_KEY} LIMIT {count}"
        return [self._build_sample(op, row) for row in self.engine.fetch(sql, self.tables).to_pylist()]

    def _build_condition(self, op: str) -> str:
        """Return the SQL condition that a joined row is an insert, a delete or an update."""
        if op == "insert":
            return "l._cdc_key IS NULL"
        if op == "delete":
            return "r._cdc_key IS NULL"
        return f"l._cdc_key = r._cdc_key AND ({' OR '.join(map(self._differs, self.columns)) or 'false'})"

    def _differs(self, column: str) -> str:
        name = self.engine.name(column)
        return f"(l.{name} IS DISTINCT FROM r.{name})"

    def _build_sample(self, op: str, row: Row) -> SampleRow:
        shown = [(n, c) for n, c in enumerate(self.columns) if op != "update" or row[f"l{n}"] != row[f"r{n}"]]
        before = None if op == "insert" else {column: row[f"l{n}"] for n, column in shown}
        after = None if op == "delete" else {column: row[f"r{n}"] for n, column in shown}
        return SampleRow(op, row[_KEY], before, after)


def format_diff_text(difference: Difference) -> str:
    """Return a difference as lines of text."""
    lines = [f"  {' '.join(cells)}" for cells in _list_details(difference)]
    return "\n".join([*_format_head(difference), *lines])


def format_diff_html(difference: Difference) -> str:
    """Return a difference as a page of HTML."""
    head = "".join(f"<p>{escape(line)}</p>" for line in _format_head(difference))
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in _list_details(difference)
    )
    style = "<style>body {font-family: sans-serif} td {padding: 0.2em 1em; border-bottom: 1px solid #ccc}</style>"
    title = f"<title>{escape(difference.table)}</title>"
    return f"<!DOCTYPE html><meta charset=utf-8>{title}{style}{head}<table>{rows}</table>"


def _format_head(difference: Difference) -> list[str]:
    positions = f"from {format_position(difference.before)} to {format_position(difference.after)}"
    counts = f"{difference.inserted} inserted, {difference.deleted} deleted, {difference.updated} updated"
    return [f"{difference.table} {positions}: rows {counts}", *difference.caveats]


def _list_details(difference: Difference) -> Iterator[tuple[str, str, str]]:
    """Yield what differs: `column` or an operation; the column or the key; how it differs."""
    yield from (("column", column, f"differs in {count} rows") for column, count in difference.columns.items())
    yield from (("column", column, "only before") for column in difference.only_before)
    yield from (("column", column, "only after") for column in difference.only_after)
    for row in difference.samples:
        if row.before and row.after:
            after = row.after
            changes = (f"{c}: {format_value(old)} -> {format_value(after[c])}" for c, old in row.before.items())
            yield row.op, row.key, ", ".join(changes)
        else:
            yield row.op, row.key, format_row(row.after or row.before or {})
