"""Find the columns that row images lack, by their tables' schemas and by the columns of other rows.

A filter leaves a column out of every row of a table, and the history does without the column. With `binlog_row_image`
MINIMAL or NOBLOB only some rows lack the column: its value in these rows is unknown.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from cdc_assets.binlog import BinlogPlace, read_place
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC

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
        by_commit_ts: whether commit_ts orders rows and statements. If not, commit_ts is a clock that may go back, and events
            at later offsets may repeat earlier events: one event certainly precedes another only if clock and offset agree.
        statements: whether the feed gets every schema change as a statement.
        keys_in_rows: whether the keys are read from row images, and not from the keys of records.
    """

    by_commit_ts: bool
    statements: bool
    keys_in_rows: bool = True


class LogSpan(NamedTuple):
    """The part of a binlog that events come from.

    Attributes:
        servers: the ids of the servers that wrote it; 0 is a connector's snapshot.
        first: number of the log's file, and position in it, of the first event.
        last: the same of the last event.
    """

    servers: frozenset[int]
    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(frozen=True)
class Stretch:
    """The events of one layout in one partition.

    Attributes:
        topic: the topic of the records.
        partition: the partition of the topic.
        low: the lowest offset.
        high: the highest offset.
        first: the lowest commit_ts.
        last: the highest commit_ts.
        events: the number of events.
        batch: the lowest raw batch.
        keyed: whether the messages state the key of every event.
        log: where in the binlog they are; None: they do not state it.
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
    log: LogSpan | None = None


@dataclass(frozen=True)
class Image:
    """The columns of the row images of one layout.

    Attributes:
        name: database and table.
        columns: the columns of the row images, as the messages spell them.
        has_after: whether these are the rows after a change; if not, they are deleted rows.
        key: the columns of the key that the messages name.
        stretches: the events, by partition.
    """

    name: Name
    columns: Sequence[str]
    has_after: bool
    key: Sequence[str]
    stretches: Sequence[Stretch]

    @cached_property
    def present(self) -> frozenset[str]:
        """The columns in lower case, because MySQL ignores the letter case of column names."""
        return frozenset(name.lower() for name in self.columns)


@dataclass(frozen=True)
class MissingColumn:
    """A column that row images lack.

    Attributes:
        name: database and table.
        column: the column that the rows lack.
        mysql_type: its declared type; None: no statement declares it.
        needed: whether the table is blocked even if no row has the column, because the column belongs to the key.
        since: the commit_ts from which on the rows lack the column.
        offset: the lowest offset of such a row, as far as it is known.
        stretch: the events; some of them lack the column.
    """

    name: Name
    column: str
    mysql_type: str | None
    needed: bool
    since: int
    offset: int
    stretch: Stretch

    @staticmethod
    def from_stretch(image: Image, stretch: Stretch, column: str, *, needed: bool = False) -> "MissingColumn":
        """Return a column that all rows of a stretch lack."""
        return MissingColumn(image.name, column, None, needed, stretch.first, stretch.low, stretch)


@dataclass(frozen=True)
class _DeclaredSchema:
    """The schema that a table has after a statement.

    Attributes:
        at: the statement's commit_ts.
        topic: the topic of the statement's first record.
        partition: the partition of that record.
        offset: the offset of that record.
        columns: the columns by their lower-case names; empty if the table was dropped or the statement was not understood.
        key: the lower-case names of the key's columns.
        binlog_place: the statement's place in the binlog; None: its record states none.
    """

    at: int
    topic: str
    partition: int
    offset: int
    columns: Mapping[str, Mapping[str, Any]]
    key: frozenset[str]
    binlog_place: BinlogPlace | None = None

    @property
    def is_load(self) -> bool:
        """Whether this is the schema of a dump, at the dump's position."""
        return self.topic == LOAD_TOPIC

    def is_in_partition(self, stretch: Stretch) -> bool:
        """Return whether the statement came in the partition of these events."""
        return (self.topic, self.partition) == (stretch.topic, stretch.partition)

    def find_in_log(self, log: LogSpan | None) -> str | None:
        """Return where the statement lies in the binlog: before all events, inside, or after them; None: it is not known."""
        place = self.binlog_place
        if place is None or place.number is None or log is None:
            return None
        if not place.is_of_snapshot and not log.servers <= {0, place.server_id}:
            return None
        at = place.number, place.position
        # A snapshot reads the rows at the place at which it describes their table.
        is_before = at < log.first or (place.is_of_snapshot and at == log.first)
        return "before" if is_before else "inside" if at < log.last else "after"


_Rows = tuple[Image, Stretch]


def find_missing_columns(
    images: Sequence[Image], schema_rows: Iterable[Mapping[str, Any]], sending: Sending, earlier: Earlier
) -> list[MissingColumn]:
    """Return the columns that row images lack although the table's schema or earlier rows have them.

    Args:
        images: the layouts of row events.
        schema_rows: rows of table_schemas.
        sending: what the protocol promises.
        earlier: the columns that rows had in earlier runs.

    Returns:
        Each column of a table once, for the first rows that lack it; and once more for the first rows that need it.
    """
    by_table: dict[Name, list[Image]] = {}
    for image in images:
        by_table.setdefault(image.name, []).append(image)
    schemas = _read_schemas(schema_rows, by_table)
    without_schema = by_table.keys() - schemas.keys() if sending.statements else set()
    before = earlier(without_schema) if without_schema else {}
    first_missing: dict[tuple[Name, str, bool], MissingColumn] = {}
    for name, of_table in by_table.items():
        for missing in _find_in_table(of_table, schemas.get(name, []), sending, before.get(name, {})):
            key = name, missing.column.lower(), missing.needed
            first_missing[key] = min(first_missing.get(key, missing), missing, key=lambda m: (m.since, m.offset))
    return list(first_missing.values())


def _read_schemas(
    schema_rows: Iterable[Mapping[str, Any]], names: Collection[Name]
) -> dict[Name, list[_DeclaredSchema]]:
    """Return the schemas of these tables in their order; schemas by number (Simple Protocol) are left out."""
    schemas: dict[Name, list[_DeclaredSchema]] = {}
    of_statements = [row for row in schema_rows if row["schema_version"] is None]
    for row in sorted(of_statements, key=lambda r: (r["commit_ts"], r["sequence"])):
        name = row["database"], row["table"]
        if name in names:
            columns = {column["name"].lower(): column for column in row["columns"] or ()}
            key = frozenset(column.lower() for column in row["key_columns"] or ())
            place = row["commit_ts"], row["topic"], row["partition"], row["offset"]
            schema = _DeclaredSchema(*place, columns, key, read_place(row["source"]))
            schemas.setdefault(name, []).append(schema)
    return schemas


def _find_in_table(
    images: Sequence[Image], schemas: Sequence[_DeclaredSchema], sending: Sending, earlier: Mapping[str, int]
) -> Iterator[MissingColumn]:
    """Yield the columns that row images of one table lack; `earlier`: the columns that its rows had in earlier runs."""
    dump_position = max((each.at for each in schemas if each.is_load), default=-1)
    without_schema: list[_Rows] = []
    for image in images:
        for stretch in image.stretches:
            if sending.keys_in_rows:
                lost = [name for name in image.key if name.lower() not in image.present]
                yield from (MissingColumn.from_stretch(image, stretch, name, needed=True) for name in lost)
            # A dump contains the outcome of all events until its position.
            if stretch.last > dump_position:
                of_rows = _schemas_of_rows(stretch, schemas, sending)
                if of_rows.certain:
                    yield from _find_by_schema(image, stretch, of_rows, sending)
                elif (image.has_after or not image.key) and not of_rows.has_change_inside:
                    without_schema.append((image, stretch))
    yield from _find_by_other_rows(without_schema, images, schemas, sending, earlier)


class _RowSchemas(NamedTuple):
    """The schemas that the rows of a stretch have.

    Attributes:
        certain: schemas that some of the rows certainly have, each with whether it begins between the rows.
        possible: schemas that some of the rows may have, because clocks and offsets do not agree.
        has_change_inside: whether a statement lies between the rows.
    """

    certain: Sequence[tuple[_DeclaredSchema, bool]]
    possible: Sequence[_DeclaredSchema]
    has_change_inside: bool


def _schemas_of_rows(stretch: Stretch, schemas: Sequence[_DeclaredSchema], sending: Sending) -> _RowSchemas:
    placed = [(_place_schema(each, stretch, sending), each) for each in schemas]
    before = [each for place, each in placed if place == "before"]
    inside = [each for place, each in placed if place == "inside"]
    # The last row comes after all statements inside the stretch. The first row comes before them, unless the row is older
    # than a statement before the stretch, because the row waited for a lock or is a repeat. Rows before a dump do not count.
    is_first_unsure = any(each.is_load or _may_precede_first(each, stretch, sending) for each in inside)
    of_first_row = [] if is_first_unsure else before[-1:]
    certain = [(each, False) for each in of_first_row] + [(each, True) for each in inside[-1:]]
    possible = [each for place, each in placed if place == "unsure" and each.columns]
    return _RowSchemas([(each, within) for each, within in certain if each.columns], possible, bool(inside))


def _may_precede_first(schema: _DeclaredSchema, stretch: Stretch, sending: Sending) -> bool:
    """Return whether a statement that is older than the last row of a stretch may come before its first row."""
    return not sending.by_commit_ts and schema.find_in_log(stretch.log) is None and schema.offset < stretch.low


def _find_by_schema(image: Image, stretch: Stretch, schemas: _RowSchemas, sending: Sending) -> Iterator[MissingColumn]:
    """Yield the columns that the schemas of rows have and the rows lack."""
    for each, within in schemas.certain:
        required = each.key if each.key and not image.has_after else each.columns.keys()
        since = max(stretch.first, each.at + 1) if within else stretch.first
        offset = max(stretch.low, each.offset + 1) if within and each.is_in_partition(stretch) else stretch.low
        for name in sorted(required - image.present):
            column = each.columns.get(name)
            if column and not column.get("generated") and all(name in other.columns for other in schemas.possible):
                needed = name in each.key and not stretch.keyed and sending.keys_in_rows
                missing = MissingColumn.from_stretch(image, stretch, column["name"], needed=needed)
                yield replace(missing, mysql_type=column["type"], since=since, offset=offset)


def _find_by_other_rows(
    rows: Sequence[_Rows],
    images: Sequence[Image],
    schemas: Sequence[_DeclaredSchema],
    sending: Sending,
    earlier: Mapping[str, int],
) -> Iterator[MissingColumn]:
    """Yield the columns that rows lack and earlier rows had, with no statement between that could have dropped them.

    If the feed may not get statements, later rows must have the column, too.
    """
    ordered = sorted(rows, key=lambda each: each[1].first)
    begins = [stretch.first for _, stretch in ordered]
    straddling = [each for each in ordered if each[1].first < each[1].last]

    def find_rows_without(column: str, at: int) -> Iterator[_Rows]:
        """Yield the rows that lack a column and may come after a commit_ts, in their order."""
        later = chain(
            (each for each in straddling if each[1].first < at < each[1].last), ordered[bisect_left(begins, at) :]
        )
        return (each for each in later if column not in each[0].present)

    spans = _find_column_spans(images, sending) if rows else {}
    for (_, column), (name, earliest, latest) in spans.items():
        for image, stretch in find_rows_without(column, earliest.first):
            if not sending.statements and stretch.first >= latest.last:
                break
            is_between = _begins_before(earliest, stretch, sending)
            is_between &= sending.statements or _begins_before(stretch, latest, sending)
            if is_between and not any(_may_be_between(each, earliest, stretch) for each in schemas):
                yield MissingColumn.from_stretch(image, stretch, name)
                break
    for column in earlier.keys() - {column for _, column in spans}:
        for image, stretch in find_rows_without(column, earlier[column]):
            yield MissingColumn.from_stretch(image, stretch, column)
            break


def _find_column_spans(
    images: Sequence[Image], sending: Sending
) -> dict[tuple[tuple[str, int] | None, str], tuple[str, Stretch, Stretch]]:
    """Return the first and the last stretch whose rows have a column.

    Returns:
        (topic and partition, lower-case name) -> name, first stretch, last stretch. If commit_ts orders rows, None stands
        for topic and partition, and all partitions count as one.
    """
    spans: dict[tuple[tuple[str, int] | None, str], tuple[str, Stretch, Stretch]] = {}
    for image in images:
        for stretch in image.stretches:
            scope = None if sending.by_commit_ts else (stretch.topic, stretch.partition)
            for name in image.columns:
                spelled, first, last = spans.get((scope, name.lower()), (name, stretch, stretch))
                first = stretch if _bounds(stretch, sending)[0] < _bounds(first, sending)[0] else first
                last = stretch if _bounds(stretch, sending)[1] > _bounds(last, sending)[1] else last
                spans[scope, name.lower()] = spelled, first, last
    return spans


def _bounds(stretch: Stretch, sending: Sending) -> tuple[int, int]:
    """Return the first and the last position of a stretch, on the axis that orders its rows."""
    return (stretch.first, stretch.last) if sending.by_commit_ts else (stretch.low, stretch.high)


def _begins_before(one: Stretch, other: Stretch, sending: Sending) -> bool:
    """Return whether a row of one stretch certainly comes before a row of the other."""
    if sending.by_commit_ts:
        return one.first < other.last
    is_same_partition = (one.topic, one.partition) == (other.topic, other.partition)
    return is_same_partition and one.first < other.last and one.low < other.high


def _may_be_between(schema: _DeclaredSchema, before: Stretch, after: Stretch) -> bool:
    """Return whether a statement may lie between the rows of two stretches."""
    in_log = schema.find_in_log(before.log), schema.find_in_log(after.log)
    if None not in in_log:
        return in_log[0] != "before" and in_log[1] != "after"
    if schema.is_in_partition(after):
        return before.low <= schema.offset <= after.high
    return schema.at >= before.first


def _place_schema(schema: _DeclaredSchema, stretch: Stretch, sending: Sending) -> str:
    """Return where a statement lies: before all rows of a stretch, inside (before the last row), after them, or unsure."""
    at = schema.at
    if sending.by_commit_ts or schema.is_load:
        return "before" if at < stretch.first else "inside" if at < stretch.last else "after"
    if in_log := schema.find_in_log(stretch.log):
        return in_log
    if not schema.is_in_partition(stretch):
        return "before" if at < stretch.first else "unsure"
    if schema.offset > stretch.high:
        return "after"
    if at < stretch.first and schema.offset < stretch.low:
        return "before"
    return "inside" if at < stretch.last else "unsure"
