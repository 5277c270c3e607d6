"""How a table differs between two positions or two lakehouses: counts, columns, samples.

Rows are compared as of a position. Within one history only the versions are compared that hold at one of the positions and
not at the other. Two histories of one table can also be compared version by version.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from cdc_assets.lakehouse.history import COPY, RESERVED, HistoryCursor, covers, source_columns
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import Engine, engine_for
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.operations.finality import describe_position_not_final
from cdc_assets.operations.formatting import format_position, format_row, format_value

Row = dict[str, Any]
DEFAULT_SAMPLES = 5
# Names that no column of a source's table can have.
_COPY, _KEY = f"{RESERVED}number", f"{RESERVED}of"
# The columns of a version that its end sets, and those that keep apart versions of one key and commit_ts.
_ENDING = ("_cdc_to_ts", "_cdc_valid_to", "_cdc_is_current", "_cdc_closed_by")
_VERSION_ORDER = ("_cdc_topic", "_cdc_partition", "_cdc_offset", COPY.name, "_cdc_to_ts")


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
class DifferenceCounts:
    """How the rows, or the versions, of two sides differ.

    Attributes:
        table: `database.table`.
        inserted: the number of rows that only the second side has.
        deleted: the number of rows that only the first side has.
        updated: the number of rows that both sides have, with different values.
        columns: column -> in how many of the updated rows it differs; columns that differ in none are left out.
        only_before: columns that only the first side has; they are not compared.
        only_after: columns that only the second side has; they are not compared.
        samples: some rows of each kind, by key; the key of a version names the commit_ts at which it begins, too.
    """

    table: str
    inserted: int
    deleted: int
    updated: int
    columns: dict[str, int]
    only_before: list[str]
    only_after: list[str]
    samples: list[SampleRow]


@dataclass(frozen=True)
class Difference(DifferenceCounts):
    """How the rows of two sides differ.

    Attributes:
        before: the first side's position.
        after: the second side's position.
        caveats: which position is not final yet, and why; a sentence each.
    """

    before: int
    after: int
    caveats: list[str]

    @property
    def is_equal(self) -> bool:
        """Whether both sides have the same rows."""
        return not (self.inserted or self.deleted or self.updated)


@dataclass(frozen=True)
class VersionDifference(DifferenceCounts):
    """How the versions of one table differ between two histories of it.

    Attributes:
        earliest: the lowest commit_ts at which the histories differ; 0 if they have different columns; None if they are
            equal.
    """

    earliest: int | None

    @property
    def is_equal(self) -> bool:
        """Whether both histories have the same columns and versions."""
        return self.earliest is None


def compare_rows(before: DiffSide, after: DiffSide, samples: int = DEFAULT_SAMPLES) -> Difference:
    """Compare two sides on the columns that both have; rows are matched by key.

    In a table without a key a row is its own key, so that no row counts as updated.

    Args:
        before: the first side.
        after: the second side.
        samples: how many rows of each kind to return.
    """
    histories = [side.lake.history(side.database, side.table) for side in (before, after)]
    names_before, names_after = map(_list_columns, histories)
    query = _DiffQuery(
        engine_for(before.lake.session, *histories),
        dict(zip("ab", histories, strict=True)),
        source_columns(names_before),
        source_columns(names_after),
        _join_sides(before, after, is_keyless=COPY.name in {*names_before, *names_after}),
    )
    return Difference(
        **query.count_differences(f"{after.database}.{after.table}", samples),
        before=before.position,
        after=after.position,
        caveats=[
            caveat
            for side in (before, after)
            for caveat in describe_position_not_final(side.lake, side.database, side.table, side.position)
        ],
    )


def compare_versions(
    before: Lakehouse, after: Lakehouse, database: str, table: str, samples: int = DEFAULT_SAMPLES
) -> VersionDifference:
    """Compare the histories of a table in two lakehouses, version by version, on all columns that both have.

    Versions are matched by their key and the commit_ts at which they begin.

    Args:
        before: the first lakehouse.
        after: the second lakehouse.
        database: the source's database.
        table: the source's table; both lakehouses must have its history.
        samples: how many versions of each kind to return.
    """
    histories = [lake.history(database, table) for lake in (before, after)]
    names_before, names_after = map(_list_columns, histories)
    query = _DiffQuery(
        engine_for(before.session, *histories),
        dict(zip("ab", histories, strict=True)),
        names_before,
        names_after,
        _join_versions({*names_before} & {*names_after}),
        "coalesce(l._cdc_key, r._cdc_key) || ' from ' || CAST(coalesce(l._cdc_from_ts, r._cdc_from_ts) AS STRING)",
    )
    have_same_columns = {*names_before} == {*names_after}
    return VersionDifference(
        **query.count_differences(f"{database}.{table}", samples),
        earliest=query.find_earliest() if have_same_columns else 0,
    )


def _list_columns(history: LakeTable[HistoryCursor]) -> list[str]:
    schema = history.schema()
    return list(schema.names) if schema else []


def _join_versions(columns: Container[str]) -> str:
    """Return the SQL that joins the versions of both histories, `l` and `r`, by key and begin."""
    order = ", ".join(column for column in _VERSION_ORDER if column in columns)
    number = f"row_number() OVER (PARTITION BY _cdc_key, _cdc_from_ts ORDER BY {order})"
    left, right = (f"(SELECT *, {number} AS {_COPY} FROM {table})" for table in ("a", "b"))
    matched = " AND ".join(f"l.{column} = r.{column}" for column in ("_cdc_key", "_cdc_from_ts", _COPY))
    return f"{left} l FULL OUTER JOIN {right} r ON {matched}"


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
        columns_before: the first side's columns.
        columns_after: the second side's columns.
        joined: the SQL that joins both sides.
        identity: the SQL of the text that names a joined row.
    """

    engine: Engine[Any]
    tables: dict[str, Any]
    columns_before: Sequence[str]
    columns_after: Sequence[str]
    joined: str
    identity: str = "coalesce(l._cdc_key, r._cdc_key)"

    @cached_property
    def columns(self) -> list[str]:
        """The columns to compare."""
        return [column for column in self.columns_before if column in self.columns_after]

    @cached_property
    def conditions(self) -> dict[str, str]:
        """Kind of difference -> the SQL condition that a joined row is one."""
        return {
            "insert": "l._cdc_key IS NULL",
            "delete": "r._cdc_key IS NULL",
            "update": f"l._cdc_key = r._cdc_key AND {self._differs_in_any(self.columns)}",
        }

    def count_differences(self, table: str, samples: int) -> dict[str, Any]:
        """Return the attributes of `DifferenceCounts`; `samples`: how many rows of each kind."""
        counted = self.conditions | {
            f"c{n}": f"l._cdc_key = r._cdc_key AND {self._differs(column)}" for n, column in enumerate(self.columns)
        }
        selected = ", ".join(
            f"count(CASE WHEN {condition} THEN 1 END) AS n_{name}" for name, condition in counted.items()
        )
        (counts,) = self.engine.fetch(f"SELECT {selected} FROM {self.joined}", self.tables).to_pylist()
        return {
            "table": table,
            "inserted": counts["n_insert"],
            "deleted": counts["n_delete"],
            "updated": counts["n_update"],
            "columns": {column: counts[f"n_c{n}"] for n, column in enumerate(self.columns) if counts[f"n_c{n}"]},
            "only_before": [column for column in self.columns_before if column not in self.columns],
            "only_after": [column for column in self.columns_after if column not in self.columns],
            "samples": [row for op in self.conditions for row in self._fetch_samples(op, samples)],
        }

    def _fetch_samples(self, op: str, count: int) -> list[SampleRow]:
        """Return the first rows of a kind, by key."""
        names = [(n, self.engine.name(column)) for n, column in enumerate(self.columns)]
        values = "".join(f", l.{name} AS l{n}, r.{name} AS r{n}" for n, name in names)
        sql = f"SELECT {self.identity} AS {_KEY}{values} FROM {self.joined} "
        sql += f"WHERE {self.conditions[op]} ORDER BY {_KEY} LIMIT {count}"
        return [self._build_sample(op, row) for row in self.engine.fetch(sql, self.tables).to_pylist()]

    def find_earliest(self) -> int | None:
        """Return the lowest commit_ts at which joined versions differ; None if they are equal.

        Versions that differ in their ends only are equal up to the earlier end.
        """
        opening = [column for column in self.columns if column not in _ENDING]
        ending = [column for column in self.columns if column in _ENDING]
        first_end = "CASE WHEN l._cdc_to_ts < r._cdc_to_ts THEN l._cdc_to_ts ELSE r._cdc_to_ts END"
        sql = (
            "SELECT min(CASE WHEN l._cdc_key IS NULL THEN r._cdc_from_ts "
            f"WHEN r._cdc_key IS NULL OR {self._differs_in_any(opening)} THEN l._cdc_from_ts "
            f"WHEN {self._differs_in_any(ending)} THEN coalesce({first_end}, l._cdc_to_ts, l._cdc_from_ts) END) AS earliest "
            f"FROM {self.joined}"
        )
        (row,) = self.engine.fetch(sql, self.tables).to_pylist()
        earliest: int | None = row["earliest"]
        return earliest

    def _differs_in_any(self, columns: Sequence[str]) -> str:
        return f"({' OR '.join(map(self._differs, columns)) or 'false'})"

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
    return "\n".join([*_format_head(difference), *_format_details(difference)])


def format_versions_text(difference: VersionDifference) -> str:
    """Return a difference between two histories as lines of text."""
    since = f"; they differ from {format_position(difference.earliest)} on" if difference.earliest else ""
    head = f"{difference.table}: versions {_format_counts(difference)}{since}"
    return "\n".join([head, *_format_details(difference)])


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
    return [f"{difference.table} {positions}: rows {_format_counts(difference)}", *difference.caveats]


def _format_counts(difference: DifferenceCounts) -> str:
    return f"{difference.inserted} inserted, {difference.deleted} deleted, {difference.updated} updated"


def _format_details(difference: DifferenceCounts) -> list[str]:
    return [f"  {' '.join(cells)}" for cells in _list_details(difference)]


def _list_details(difference: DifferenceCounts) -> Iterator[tuple[str, str, str]]:
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
