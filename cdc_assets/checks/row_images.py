"""Which columns of their table row images lack: the layouts of row events against the table's schemas and other layouts.

A filter leaves a column out of every row of a table, and the history does without it. With `binlog_row_image` MINIMAL or
NOBLOB some rows lack a column that others have: its value is not known then.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from cdc_assets.checks.values import DESCRIBED, LEFT_OUT, Class
from cdc_assets.tables.initial_load import LOAD_TOPIC

Name = tuple[str, str]  # database, table
Observation = dict[str, Any]  # a row of type_observations
# Names of tables -> the columns that rows of each had in earlier runs, in lower case, with the lowest commit_ts of one.
Earlier = Callable[[Collection[Name]], Mapping[Name, Mapping[str, int]]]


def nothing_earlier(names: Collection[Name]) -> Mapping[Name, Mapping[str, int]]:  # noqa: ARG001
    """Return no columns: no earlier run has seen rows."""
    return {}


class Sending(NamedTuple):
    """What a protocol promises of the order and the content of its row events.

    Attributes:
        by_commit_ts: whether commit_ts orders rows and statements. Else it is a clock that may go back, and of offsets later
            ones may be repeats of earlier events: what came first is sure where both say so.
        statements: whether the feed gets every schema change as a statement.
        keys_in_rows: whether keys are read from the row images, not from keys of records.
    """

    by_commit_ts: bool
    statements: bool
    keys_in_rows: bool = True


@dataclass(frozen=True)
class Stretch:
    """The events of one layout in one partition.

    Attributes:
        topic: of the records.
        partition: of the topic.
        low: the lowest offset.
        high: the highest.
        first: the lowest commit_ts.
        last: the highest.
        events: how many there are.
        batch: the lowest raw batch.
        keyed: whether the messages tell the key of every event.
    """

    topic: str
    partition: int
    low: int
    high: int
    first: int
    last: int
    events: int
    batch: int
    keyed: bool = True


@dataclass(frozen=True)
class Image:
    """The columns that the messages of one layout have.

    Attributes:
        name: database and table.
        columns: of the row images, as the messages spell them.
        changed: whether the rows are those after a change; else they are deleted rows.
        key: the key's columns that the messages name.
        stretches: the events, by partition.
    """

    name: Name
    columns: Sequence[str]
    changed: bool
    key: Sequence[str]
    stretches: Sequence[Stretch]

    @cached_property
    def present(self) -> frozenset[str]:
        """The columns in lower case: MySQL compares their names so."""
        return frozenset(name.lower() for name in self.columns)


@dataclass(frozen=True)
class Missing:
    """A column that row images lack.

    Attributes:
        name: database and table.
        column: that the rows lack.
        mysql_type: its declared type, None where no statement tells it.
        needed: whether the rows cannot do without it, even if no row of the table has it: a column of their key.
        since: the commit_ts from which on the rows lack it.
        offset: the lowest offset of such a row, as far as it is known.
        stretch: the events, some of which lack it.
    """

    name: Name
    column: str
    mysql_type: str | None
    needed: bool
    since: int
    offset: int
    stretch: Stretch

    @staticmethod
    def of(image: Image, stretch: Stretch, column: str, *, needed: bool = False) -> "Missing":
        """Return a column that all rows of a stretch lack."""
        return Missing(image.name, column, None, needed, stretch.first, stretch.low, stretch)


_Shape = Mapping[str, Mapping[str, Any]]  # the columns of a table by their lower-case names
_Statement = Mapping[str, Any]  # a row of table_schemas


def missing_columns(
    images: Sequence[Image], known: Iterable[_Statement], sending: Sending, earlier: Earlier
) -> list[Missing]:
    """Return the columns that images lack, and that their table has by its schema or had in rows before them.

    Args:
        images: the layouts of row events.
        known: rows of table_schemas.
        sending: what the protocol promises.
        earlier: the columns that earlier runs have seen in rows.
    """
    statements: dict[Name, list[_Statement]] = {}
    for row in sorted(known, key=lambda r: (r["commit_ts"], r["topic"], r["partition"], r["offset"])):
        if row["schema_version"] is None and row["table"] is not None:
            statements.setdefault((row["database"], row["table"]), []).append(row)
    by_table: dict[Name, list[Image]] = {}
    for image in images:
        by_table.setdefault(image.name, []).append(image)
    unknown = by_table.keys() - statements.keys() if sending.statements else set()
    before = earlier(unknown) if unknown else {}
    return [
        missing
        for name, of_table in by_table.items()
        for image in of_table
        for stretch in image.stretches
        for missing in _missing(image, stretch, of_table, statements.get(name, []), sending, before.get(name, {}))
    ]


def _missing(
    image: Image,
    stretch: Stretch,
    images: Sequence[Image],
    statements: Sequence[_Statement],
    sending: Sending,
    earlier: Mapping[str, int],
) -> Iterator[Missing]:
    if sending.keys_in_rows:
        lost = [name for name in image.key if name.lower() not in image.present]
        yield from (Missing.of(image, stretch, name, needed=True) for name in lost)
    if any(row["topic"] == LOAD_TOPIC and row["commit_ts"] >= stretch.last for row in statements):
        return  # a dump has the outcome of all these events
    placed = [(_place(row, stretch, sending), row) for row in statements]
    before = [row for place, row in placed if place == "before"]
    inside = [row for place, row in placed if place == "inside"]
    # The last row of the stretch comes after all statements inside it, the first row before them, but for a row that is
    # older than a statement before it, as it waited for a lock or is a repeat. Rows before a dump do not count.
    unsure = [row for row in inside if not sending.by_commit_ts and row["offset"] < stretch.low]
    first = [] if unsure or any(row["topic"] == LOAD_TOPIC for row in inside) else before[-1:]
    tables = [(row, False) for row in first if row["columns"]] + [(row, True) for row in inside[-1:] if row["columns"]]
    doubtful = [_shape(row) for place, row in placed if place == "unsure" and row["columns"]]
    if tables:
        yield from _lacking(image, stretch, tables, doubtful, sending)
    elif image.changed and not inside:
        yield from _vanished(image, stretch, images, statements, sending, earlier)


def _lacking(
    image: Image,
    stretch: Stretch,
    tables: Sequence[tuple[_Statement, bool]],
    doubtful: Sequence[_Shape],
    sending: Sending,
) -> Iterator[Missing]:
    """Yield the columns that a table has by its schemas, and rows of one partition lack.

    Args:
        image: the layout of the rows.
        stretch: the rows.
        tables: the schemas, and whether each begins with a statement between the rows.
        doubtful: schemas of which only clocks tell whether they hold for the rows.
        sending: what the protocol promises.
    """
    found: set[str] = set()
    for row, is_inside in tables:
        shape, key = _shape(row), {name.lower() for name in row["key_columns"] or ()}
        required = key if key and not image.changed else set(shape)
        since = max(stretch.first, row["commit_ts"] + 1) if is_inside else stretch.first
        offset = max(stretch.low, row["offset"] + 1) if is_inside and _same_partition(row, stretch) else stretch.low
        for name in sorted(required - image.present - found):
            column = shape.get(name)
            if column and not column.get("generated") and all(name in other for other in doubtful):
                found.add(name)
                needed = name in key and not stretch.keyed and sending.keys_in_rows
                missing = Missing.of(image, stretch, column["name"], needed=needed)
                yield replace(missing, mysql_type=column["type"], since=since, offset=offset)


def _vanished(
    image: Image,
    stretch: Stretch,
    images: Sequence[Image],
    statements: Sequence[_Statement],
    sending: Sending,
    earlier: Mapping[str, int],
) -> Iterator[Missing]:
    """Yield the columns that rows before these had, with no statement between that could have dropped them.

    Where the feed need not get statements, rows after these have to have the column, too.
    """
    others: dict[str, list[tuple[str, Stretch]]] = {}
    for other in images:
        for each in other.stretches:
            if sending.by_commit_ts or (each.topic, each.partition) == (stretch.topic, stretch.partition):
                for name in other.columns:
                    others.setdefault(name.lower(), []).append((name, each))
    for folded, seen in others.items():
        before = [(name, each) for name, each in seen if _begins_before(each, stretch, sending)]
        is_back = any(_begins_before(stretch, each, sending) for _, each in seen)
        if folded in image.present or not before or not (sending.statements or is_back):
            continue
        name, nearest = max(before, key=lambda each: each[1].last)
        if not any(_may_be_between(row, nearest, stretch) for row in statements):
            yield Missing.of(image, stretch, name)
    had = {name for name, first in earlier.items() if first < stretch.last}
    for name in sorted(had - image.present - others.keys()):
        yield Missing.of(image, stretch, name)


def _begins_before(one: Stretch, other: Stretch, sending: Sending) -> bool:
    """Tell whether a row of one stretch comes before a row of another, which may be in the same partition only."""
    return one.first < other.last and (sending.by_commit_ts or one.low < other.high)


def _may_be_between(row: _Statement, before: Stretch, after: Stretch) -> bool:
    if _same_partition(row, after):
        return bool(before.low <= row["offset"] <= after.high)
    return bool(row["commit_ts"] >= before.first)


def _same_partition(row: _Statement, stretch: Stretch) -> bool:
    return (row["topic"], row["partition"]) == (stretch.topic, stretch.partition)


def _place(row: _Statement, stretch: Stretch, sending: Sending) -> str:
    """Return where a statement stands to the rows: before all, before the last, after all, or unsure."""
    at, offset = row["commit_ts"], row["offset"]
    if sending.by_commit_ts or row["topic"] == LOAD_TOPIC:
        return "before" if at < stretch.first else "inside" if at < stretch.last else "after"
    if not _same_partition(row, stretch):
        return "before" if at < stretch.first else "unsure"
    if offset > stretch.high:
        return "after"
    if at < stretch.first and offset < stretch.low:
        return "before"
    return "inside" if at < stretch.last else "unsure"


def _shape(row: _Statement) -> _Shape:
    """Return the columns of a table after a statement; none where the table is gone or the statement was not read."""
    return {column["name"].lower(): column for column in row["columns"] or ()}


# --- what is observed of such columns

# The verdict on a column that rows lack, as long as no row of the table has it.
LEFT_OUT_OF_ALL = "ok: no row of the table has the column"
# The classes of observations of such columns, each with its verdict.
LACKING: Mapping[str, str] = MappingProxyType({LEFT_OUT: LEFT_OUT_OF_ALL, Class.NO_KEY: str(Class.NO_KEY)})
# The classes of observations that are of no value in a row.
_NO_VALUE = frozenset({*LACKING, DESCRIBED, Class.MISSING, Class.CORRUPTED})
# What a table of which such a column breaks the mapping waits for.
ADVICE = (
    "Have the source send whole rows (MySQL: binlog_row_image=FULL, for every session), and load the table anew from a dump "
    "that is taken after that; or set type_mapping: warn for the table, which takes the missing values for NULL"
)


def columns_in_rows(observations: Iterable[Observation]) -> dict[Name, dict[str, int]]:
    """Return the columns that rows had by what was observed, by table, as `Earlier` has them."""
    found: dict[Name, dict[str, int]] = {}
    for o in observations:
        if _class(o) not in _NO_VALUE:
            of_table, name, at = (
                found.setdefault((o["database"], o["table"]), {}),
                o["column"].lower(),
                o["first"]["commit_ts"],
            )
            of_table[name] = min(at, of_table.get(name, at))
    return found


def lacks_column(observation: Observation) -> bool:
    """Tell whether an observation is of a column that rows lack."""
    return _class(observation) in LACKING


def incomplete(
    found: list[Observation], known: Iterable[_Statement], before: Callable[[Iterable[Name]], list[Observation]]
) -> list[Observation]:
    """Refuse the columns that some rows of a table lack and others have.

    Args:
        found: what a run observes.
        known: rows of table_schemas.
        before: the names of tables -> what earlier runs have observed of them.

    Returns:
        The observations, with the verdict on such columns; those of earlier runs once more, without events, where rows of
        this run have the column.
    """
    present = before({(o["database"], o["table"]) for o in found})
    names = {(o["database"], o["table"]) for o in (*found, *present) if _class(o) == LEFT_OUT}
    if not names:
        return found
    loaded = {(r["database"], r["table"]): r["commit_ts"] for r in known if r["topic"] == LOAD_TOPIC}
    in_rows = {
        (o["database"], o["table"], o["column"].lower()) for o in (*found, *present) if _class(o) not in _NO_VALUE
    }

    def is_incomplete(o: Observation) -> bool:
        # A dump has the outcome of the events until its position.
        has_value = (o["database"], o["table"], o["column"].lower()) in in_rows
        return (
            _class(o) == LEFT_OUT and has_value and o["last"]["commit_ts"] > loaded.get((o["database"], o["table"]), -1)
        )

    def refused(o: Observation) -> Observation:
        since = o["first"]["commit_ts"]
        return o | {
            "code_verdict": f"not in the row, though other rows of the table have it, from commit_ts {since} on"
        }

    again = [refused(o) | {"events": 0} for o in present if is_incomplete(o)]
    return [refused(o) if is_incomplete(o) else o for o in found] + again


def _class(observation: Observation) -> Any:  # noqa: ANN401 -- JSON
    return json.loads(observation["told"]).get("value_class")
