"""Compare histories with the model: the rows at every position (the as-of law), and the versions.

A column of the model may be any column of the history that design.md allows: the one with its newest name, or a
`<name>__until_<commit_ts>`. But it must be the same column for all rows at all positions at which it had one type.
The cases in `test_evolution` state the exact names.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from decimal import InvalidOperation
from typing import Any

from cdc_assets_tests.laws.mysql_model import Column, Model, Name, RowChange, Statement, TableState, Unknown, Watermark
from cdc_assets_tests.laws.text_of_mysql import same
from cdc_assets_tests.support import Chain

History = list[dict[str, Any]]
_UNTIL = re.compile(r"__until_\d+(_\d+)?$")


def history_of(chain: Chain, name: Name) -> History:
    """Return the rows of a history; no rows if the table does not exist."""
    database, table = name
    return chain.history(table, database) if chain.lake.history(database, table).log() else []


def columns_of(chain: Chain, name: Name) -> dict[str, str]:
    """Return the source's columns of a history, with their Spark types."""
    database, table = name
    schema = chain.lake.history(database, table).schema()
    return {f.name: f.dataType.simpleString() for f in schema or () if not f.name.startswith("_cdc_")}


def as_of(rows: History, position: int) -> History:
    """Return the rows that a reader gets at a position."""
    return [
        r for r in rows if r["_cdc_from_ts"] <= position and (r["_cdc_to_ts"] is None or position < r["_cdc_to_ts"])
    ]


def released_below(model: Model, *, gated: bool) -> int:
    """Return the last watermark; in a feed without watermarks, a position above all events."""
    marks = [e.ts for e in model.log if isinstance(e, Watermark)]
    return max(marks) if gated else model.states[-1][0] + 1_000_000


def positions_of(model: Model, below: int) -> list[int]:
    """Return the positions just before, at and after every change below a watermark, and the last position below it."""
    changes = {e.ts for e in model.log if isinstance(e, RowChange | Statement)}
    near = {p for ts in changes for p in (ts - 1, ts, ts + 1)} | {below - 1}
    return sorted(p for p in near if p < below)


def wrong_seconds(model: Model, name: Name, rows: History) -> list[str]:
    """Return what `wrong_states` returns, comparing only the end of each second: the source's clock has seconds."""
    first, last = (model.states[n][0] >> 18 for n in (0, -1))
    wrong = []
    comparison = _Comparison(model, name, rows)
    for second in range(first // 1000, last // 1000 + 1):
        at, end = second * 1000 << 18, (second * 1000 + 1000 << 18) - 1
        wrong += comparison.compare(end, as_of(rows, at))
    return wrong


def names_of(model: Model) -> set[Name]:
    """Return every name that a table ever had."""
    return {name for _, state in model.states for name in state}


def problems(model: Model, chain: Chain, names: Iterable[Name], below: int) -> list[str]:
    """Return what is wrong with the histories of some tables, as texts; an empty list if they are right."""
    wrong: list[str] = []
    for name in sorted(names):
        rows = history_of(chain, name)
        wrong += wrong_states(model, name, rows, positions_of(model, below))
        wrong += wrong_versions(model, name, rows, below)
    return wrong


# --- states


def wrong_states(model: Model, name: Name, rows: History, positions: Iterable[int]) -> list[str]:
    """Return the positions at which the history's rows differ from the table's rows."""
    comparison = _Comparison(model, name, rows)
    return [problem for position in positions for problem in comparison.compare(position, as_of(rows, position))]


class _Comparison:
    """Compares the history of one table with the model."""

    def __init__(self, model: Model, name: Name, rows: History) -> None:
        self.model, self.name, self.rows = model, name, rows
        self.physical = [c for c in (rows[0] if rows else {}) if not c.startswith("_cdc_")]
        self.names: dict[int, set[str]] = defaultdict(set)
        for _, state in model.states:
            if name in state:
                for column in state[name].shape.columns:
                    self.names[column.uid].add(column.name.casefold())
        self.left: dict[tuple[int, int], list[str]] = {}  # by uid and epoch: columns that have been right so far

    def compare(self, position: int, rows: History) -> list[str]:
        """Return what is wrong with the rows of the history at a position."""
        state = self.model.state_at(position).get(self.name)
        expected = state.rows if state else ()
        if len(rows) != len(expected):
            return [f"{self._at(position)}: {len(rows)} rows instead of {len(expected)}"]
        wrong = self._compare(state, rows) if state and expected else []
        return [f"{self._at(position)}: {problem}" for problem in wrong]

    def _at(self, position: int) -> str:
        logged = [e for e in self.model.log if isinstance(e, RowChange | Statement) and e.ts <= position]
        last = logged[-1] if logged else None
        what = last.mysql_sql if isinstance(last, Statement) else f"{last.op} {last.shape.table}" if last else "nothing"
        return f"{'.'.join(self.name)} at {position} ({f'{position - last.ts:+} from {what}' if last else what})"

    def _candidates(self, column: Column) -> list[str]:
        """Return the columns of the history that may hold a column of the model."""
        return [p for p in self.physical if _UNTIL.sub("", p).casefold() in self.names[column.uid]]

    def _compare(self, state: TableState, rows: History) -> list[str]:
        shape = state.shape
        keys = [shape[k] for k in shape.key]
        for choice in itertools.product(*(self._candidates(k) for k in keys)):
            pairs = self._paired(state, keys, choice, rows)
            if pairs:
                return self._compare_pairs(state, pairs)
        held = [{c: r[c] for c in self.physical} for r in rows]
        expected_keys = [{c.name: r[c.uid] for c in shape.columns} for r in state.rows]
        return [f"other keys: {held} instead of {expected_keys}"]

    @staticmethod
    def _paired(
        state: TableState, keys: list[Column], choice: tuple[str, ...], rows: History
    ) -> list[tuple[dict[int, str | None], dict[str, Any]]]:
        """Return each row of the model with the history's row of its key; an empty list if the keys differ."""
        pairs, left = [], list(rows)
        for row in state.rows:
            fits = (h for h in left if all(_same(row[k.uid], k, h[p]) for k, p in zip(keys, choice, strict=True)))
            hit = next(fits, None)
            if hit is None:
                return []
            left.remove(hit)
            pairs.append((row, hit))
        return pairs

    def _compare_pairs(self, state: TableState, pairs: list[tuple[dict[int, str | None], dict[str, Any]]]) -> list[str]:
        wrong = []
        for column in state.shape.columns:
            place = column.uid, column.epoch
            before = self.left.get(place, self._candidates(column))
            if not before and all(row[column.uid] is None for row, _ in pairs):
                continue
            self.left[place] = [p for p in before if all(_same(r[column.uid], column, h[p]) for r, h in pairs)]
            if not self.left[place]:
                held = {p: [h[p] for _, h in pairs] for p in self._candidates(column)}
                expected_values = [r[column.uid] for r, _ in pairs]
                wrong.append(f"{column.name} {column.type.sql} is {held} instead of {expected_values}")
                del self.left[place]
        return wrong


def _same(text: str | None, column: Column, value: Any) -> bool:
    """Return whether a value of the history is the model's; a value that only the source has may be NULL."""
    if isinstance(text, Unknown) and value is None:
        return True
    # A number is not the same as its text: the history keeps another column for another type.
    if text is not None and (column.type.is_integer or column.type.base == "decimal") and isinstance(value, str):
        return False
    try:
        return same(text, column.type.sql.lower(), value)
    except (InvalidOperation, TypeError, ValueError, AttributeError):
        return False  # of another type altogether


# --- versions


def wrong_versions(model: Model, name: Name, rows: History, below: int) -> list[str]:
    """Return the versions that are missing, extra, or opened or closed by another operation."""
    expected: dict[tuple[int, int | None], list[tuple[str | None, str | None]]] = defaultdict(list)
    for version in model.versions:
        if version.name == name and version.from_ts < below and version.from_ts != version.to_ts:
            closed = version.to_ts is not None and version.to_ts < below
            place = version.from_ts, version.to_ts if closed else None
            expected[place].append((version.op, version.closed_by if closed else ""))
    actual: dict[tuple[int, int | None], list[tuple[str | None, str | None]]] = defaultdict(list)
    for row in rows:
        # A version that was over within one tick of the source's clock is seen by no as-of query.
        if row["_cdc_from_ts"] != row["_cdc_to_ts"]:
            actual[row["_cdc_from_ts"], row["_cdc_to_ts"]].append((row["_cdc_op"], row["_cdc_closed_by"] or ""))
    wrong = []
    for place in sorted(set(expected) | set(actual), key=str):
        prefix = f"{'.'.join(name)}, versions from {place[0]} to {place[1]}: "
        if len(expected[place]) != len(actual[place]):
            wrong.append(
                f"{prefix}{len(actual[place])} {actual[place]} instead of {len(expected[place])} {expected[place]}"
            )
        elif not any(None in pair for pair in expected[place]) and Counter(expected[place]) != Counter(actual[place]):
            wrong.append(f"{prefix}{actual[place]} instead of {expected[place]}")
    return wrong
