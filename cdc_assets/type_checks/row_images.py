"""Which columns of their table row images lack: the layouts of row events against the table's schemas and other layouts.

A filter leaves a column out of every row of a table, and the history does without it. With `binlog_row_image` MINIMAL or
NOBLOB some rows lack a column that others have: its value is not known then.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.type_checks.values import DESCRIBED, LEFT_OUT, ValueClass

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


@dataclass(frozen=True)
class _Statement:
    """A table from a statement on.

    Attributes:
        at: the statement's commit_ts.
        topic: of its first record.
        partition: of the topic.
        offset: the record's.
        columns: by their lower-case names; empty where the table is gone or the statement was not read.
        key: the lower-case names of the key's columns.
    """

    at: int
    topic: str
    partition: int
    offset: int
    columns: Mapping[str, Mapping[str, Any]]
    key: frozenset[str]

    @property
    def is_load(self) -> bool:
        """Whether it is the table as a dump has it, at the dump's position."""
        return self.topic == LOAD_TOPIC

    def is_in_partition(self, stretch: Stretch) -> bool:
        """Tell whether it came in the partition of these events."""
        return (self.topic, self.partition) == (stretch.topic, stretch.partition)


_Rows = tuple[Image, Stretch]


def missing_columns(
    images: Sequence[Image], known: Iterable[Mapping[str, Any]], sending: Sending, earlier: Earlier
) -> list[Missing]:
    """Return the columns that images lack, and that their table has by its schema or had in rows before them.

    Args:
        images: the layouts of row events.
        known: rows of table_schemas.
        sending: what the protocol promises.
        earlier: the columns that earlier runs have seen in rows.

    Returns:
        Each column of a table once, from the first rows on that lack it, and where it is needed, once more.
    """
    by_table: dict[Name, list[Image]] = {}
    for image in images:
        by_table.setdefault(image.name, []).append(image)
    statements = _statements(known, by_table)
    unknown = by_table.keys() - statements.keys() if sending.statements else set()
    before = earlier(unknown) if unknown else {}
    found: dict[tuple[Name, str, bool], Missing] = {}
    for name, of_table in by_table.items():
        for missing in _of_table(of_table, statements.get(name, []), sending, before.get(name, {})):
            key = name, missing.column.lower(), missing.needed
            found[key] = min(found.get(key, missing), missing, key=lambda m: (m.since, m.offset))
    return list(found.values())


def _statements(known: Iterable[Mapping[str, Any]], names: Collection[Name]) -> dict[Name, list[_Statement]]:
    found: dict[Name, list[_Statement]] = {}
    for row in sorted(known, key=lambda r: (r["commit_ts"], r["topic"], r["partition"], r["offset"])):
        name = row["database"], row["table"]
        if row["schema_version"] is None and name in names:
            columns = {column["name"].lower(): column for column in row["columns"] or ()}
            key = frozenset(column.lower() for column in row["key_columns"] or ())
            place = row["commit_ts"], row["topic"], row["partition"], row["offset"]
            found.setdefault(name, []).append(_Statement(*place, columns, key))
    return found


def _of_table(
    images: Sequence[Image], statements: Sequence[_Statement], sending: Sending, earlier: Mapping[str, int]
) -> Iterator[Missing]:
    loaded = max((each.at for each in statements if each.is_load), default=-1)
    without_schema: list[_Rows] = []
    for image in images:
        for stretch in image.stretches:
            if sending.keys_in_rows:
                lost = [name for name in image.key if name.lower() not in image.present]
                yield from (Missing.of(image, stretch, name, needed=True) for name in lost)
            # A dump has the outcome of all events until its position.
            if stretch.last > loaded:
                schemas = _schemas(stretch, statements, sending)
                if schemas.known:
                    yield from _lacking(image, stretch, schemas, sending)
                elif image.changed and not schemas.changes:
                    without_schema.append((image, stretch))
    yield from _vanished(without_schema, images, statements, sending, earlier)


class _Schemas(NamedTuple):
    """The schemas of rows.

    Attributes:
        known: those that some of the rows certainly have, and whether each begins with a statement between the rows.
        doubtful: those that they may have, as far as clocks tell.
        changes: whether a statement is between the rows.
    """

    known: Sequence[tuple[_Statement, bool]]
    doubtful: Sequence[_Statement]
    changes: bool


def _schemas(stretch: Stretch, statements: Sequence[_Statement], sending: Sending) -> _Schemas:
    placed = [(_place(each, stretch, sending), each) for each in statements]
    before = [each for place, each in placed if place == "before"]
    inside = [each for place, each in placed if place == "inside"]
    # The last row comes after all statements inside, the first row before them, but for a row that is older than a
    # statement before it, as it waited for a lock or is a repeat. Rows before a dump do not count.
    unsure = any(each.is_load or (not sending.by_commit_ts and each.offset < stretch.low) for each in inside)
    known = [(each, False) for each in ([] if unsure else before[-1:])] + [(each, True) for each in inside[-1:]]
    doubtful = [each for place, each in placed if place == "unsure" and each.columns]
    return _Schemas([(each, within) for each, within in known if each.columns], doubtful, bool(inside))


def _lacking(image: Image, stretch: Stretch, schemas: _Schemas, sending: Sending) -> Iterator[Missing]:
    """Yield the columns that a table has by its schemas, and rows lack."""
    for each, within in schemas.known:
        required = each.key if each.key and not image.changed else each.columns.keys()
        since = max(stretch.first, each.at + 1) if within else stretch.first
        offset = max(stretch.low, each.offset + 1) if within and each.is_in_partition(stretch) else stretch.low
        for name in sorted(required - image.present):
            column = each.columns.get(name)
            if column and not column.get("generated") and all(name in other.columns for other in schemas.doubtful):
                needed = name in each.key and not stretch.keyed and sending.keys_in_rows
                missing = Missing.of(image, stretch, column["name"], needed=needed)
                yield replace(missing, mysql_type=column["type"], since=since, offset=offset)


def _vanished(
    rows: Sequence[_Rows],
    images: Sequence[Image],
    statements: Sequence[_Statement],
    sending: Sending,
    earlier: Mapping[str, int],
) -> Iterator[Missing]:
    """Yield the columns that rows before these had, with no statement between that could have dropped them.

    Where the feed need not get statements, rows after these have to have the column, too.
    """
    ordered = sorted(rows, key=lambda each: each[1].first)
    begins = [stretch.first for _, stretch in ordered]
    straddling = [each for each in ordered if each[1].first < each[1].last]

    def without(column: str, at: int) -> Iterator[_Rows]:
        """Yield the rows that lack a column, and of which some may come after a commit_ts, the first first."""
        later = chain(
            (each for each in straddling if each[1].first < at < each[1].last), ordered[bisect_left(begins, at) :]
        )
        return (each for each in later if column not in each[0].present)

    seen = _seen(images, sending) if rows else {}
    for (_, folded), (name, earliest, latest) in seen.items():
        for image, stretch in without(folded, earliest.first):
            if not sending.statements and stretch.first >= latest.last:
                break
            is_between = _begins_before(earliest, stretch, sending)
            is_between &= sending.statements or _begins_before(stretch, latest, sending)
            if is_between and not any(_may_be_between(each, earliest, stretch) for each in statements):
                yield Missing.of(image, stretch, name)
                break
    for name in earlier.keys() - {folded for _, folded in seen}:
        for image, stretch in without(name, earlier[name]):
            yield Missing.of(image, stretch, name)
            break


def _seen(
    images: Sequence[Image], sending: Sending
) -> dict[tuple[tuple[str, int] | None, str], tuple[str, Stretch, Stretch]]:
    """Return where rows have each column: by partition, and by its lower-case name, its name and the outer stretches.

    Where commit_ts orders rows, all partitions are one.
    """
    found: dict[tuple[tuple[str, int] | None, str], tuple[str, Stretch, Stretch]] = {}
    for image in images:
        for stretch in image.stretches:
            scope = None if sending.by_commit_ts else (stretch.topic, stretch.partition)
            for name in image.columns:
                spelled, first, last = found.get((scope, name.lower()), (name, stretch, stretch))
                first = stretch if _order(stretch, sending)[0] < _order(first, sending)[0] else first
                last = stretch if _order(stretch, sending)[1] > _order(last, sending)[1] else last
                found[scope, name.lower()] = spelled, first, last
    return found


def _order(stretch: Stretch, sending: Sending) -> tuple[int, int]:
    return (stretch.first, stretch.last) if sending.by_commit_ts else (stretch.low, stretch.high)


def _begins_before(one: Stretch, other: Stretch, sending: Sending) -> bool:
    """Tell whether a row of one stretch comes before a row of another."""
    if sending.by_commit_ts:
        return one.first < other.last
    is_alike = (one.topic, one.partition) == (other.topic, other.partition)
    return is_alike and one.first < other.last and one.low < other.high


def _may_be_between(statement: _Statement, before: Stretch, after: Stretch) -> bool:
    if statement.is_in_partition(after):
        return before.low <= statement.offset <= after.high
    return statement.at >= before.first


def _place(statement: _Statement, stretch: Stretch, sending: Sending) -> str:
    """Return where a statement stands to the rows: before all, before the last, after all, or unsure."""
    at = statement.at
    if sending.by_commit_ts or statement.is_load:
        return "before" if at < stretch.first else "inside" if at < stretch.last else "after"
    if not statement.is_in_partition(stretch):
        return "before" if at < stretch.first else "unsure"
    if statement.offset > stretch.high:
        return "after"
    if at < stretch.first and statement.offset < stretch.low:
        return "before"
    return "inside" if at < stretch.last else "unsure"


# --- what is observed of such columns

# The verdict on a column that rows lack, as long as no row of the table has it.
LEFT_OUT_OF_ALL = "ok: no row of the table has the column"
# The classes of observations of such columns, each with its verdict.
LACKING: Mapping[str, str] = MappingProxyType({LEFT_OUT: LEFT_OUT_OF_ALL, ValueClass.NO_KEY: str(ValueClass.NO_KEY)})
# The classes of observations that are of no value in a row.
_NO_VALUE = frozenset({*LACKING, DESCRIBED, ValueClass.MISSING, ValueClass.CORRUPTED})
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
    found: list[Observation], known: Iterable[Mapping[str, Any]], before: Callable[[Iterable[Name]], list[Observation]]
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
