"""What the type rules of all protocols share: counting what events state about their columns' types.

There are few different observations, however many events there are. Events of one column layout state the same types, so
they are counted once a layout. A second pass looks at their values, and returns only those that are not as usual.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.binlog import file_number
from cdc_assets.type_checks.declared_types import SchemaRows
from cdc_assets.type_checks.occurrences import (
    OCCURRENCE_FIELDS,
    PLACE_COLUMNS,
    PLACE_NUMBER,
    merge_occurrences,
    occurrence_aggregates,
    read_occurrences,
)
from cdc_assets.type_checks.row_images import (
    Earlier,
    Image,
    LogSpan,
    Observation,
    Sending,
    Stretch,
    find_missing_columns,
)
from cdc_assets.type_checks.values import (
    ABSENT,
    ANY,
    ANYTHING,
    LEFT_OUT,
    Limits,
    TextForm,
    ValueClass,
    class_of,
    find_remarks,
)

# An `Observation` has these fields, `mysql_type`, `OCCURRENCE_FIELDS`, and fields of the protocol's own.
COLUMN_FIELDS = ["database", "table", "column"]


@dataclass(frozen=True)
class MessageColumn:
    """A column as the messages of one layout state it.

    Attributes:
        name: the column's name.
        mysql_type: the text of its type; None: the messages state none.
        own: the protocol's own fields of the observation.
        limits: what its values may be.
        type_optional: whether the protocol documents that messages may state no type for such a column.
    """

    name: str
    mysql_type: str | None
    own: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = ANYTHING
    type_optional: bool = False

    @property
    def usual_class(self) -> str:
        """The class of the values within the limits: the usual reading, of other whole numbers their range, else `ANY`."""
        if self.limits.usual:
            return self.limits.usual
        is_number = self.limits.form in {TextForm.INTEGER, TextForm.LABEL}
        return format_range(*self.limits.ranges[:2]) if is_number and self.limits.ranges else ANY

    @property
    def usual_wire_type(self) -> str | None:
        """The wire type that most values have; None: the protocol has no wire types."""
        return self.limits.wires[0] if self.limits.wires else None


def format_range(low: int, high: int) -> str:
    """Return the class of the values from `low` to `high`."""
    return f"{low}..{high}"


# --- layouts


@dataclass(frozen=True)
class LayoutGroup:
    """The events of one table and column layout.

    Attributes:
        layout_hash: tells the group from others.
        kind: of the events.
        database: of the table.
        table: its name.
        stated: what the messages state of the columns, in the protocol's form.
        occurrences: `OCCURRENCE_FIELDS`.
        has_after: whether the events have a row after the change; else they have a deleted row only.
        key: the key's columns that the messages name.
        stretches: the events by partition.
    """

    layout_hash: int
    kind: str
    database: str
    table: str
    stated: Mapping[str, Any]
    occurrences: Observation
    has_after: bool = True
    key: Sequence[str] = ()
    stretches: Sequence[Stretch] = ()

    @property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest commit_ts."""
        return self.occurrences["first"]["commit_ts"], self.occurrences["last"]["commit_ts"]


def with_layout_hash(events: DataFrame, **stated: Column) -> DataFrame:
    """Add to events the columns `stated`, `has_after` BOOLEAN, and `layout_hash` BIGINT over both and the table.

    Args:
        events: rows of change_events.
        stated: what the messages state of their columns.
    """
    with_stated = events.withColumns({"has_after": F.col("after").isNotNull(), **stated})
    return with_stated.withColumn("layout_hash", F.xxhash64("kind", "database", "table", "has_after", *stated))


def _stretch_aggregates() -> list[Column]:
    """Return the aggregates over the events of one layout and partition that `_read_stretch` reads."""
    offsets = [F.min("offset").alias("low"), F.max("offset").alias("high")]
    has_place = file_number().isNotNull() & F.col("source.position").isNotNull()
    place = F.when(has_place, F.array(file_number(), F.col("source.position")))
    log = [F.collect_set("source.server_id").alias("servers"), F.min(place).alias("begin"), F.max(place).alias("end")]
    return [*offsets, *log, F.any_value("key_columns").alias("key_columns"), F.count("key").alias("keyed")]


def group_by_layout(events: DataFrame, *stated: str) -> list[LayoutGroup]:
    """Return the groups of the events that `with_layout_hash` returns; `stated`: the names of its columns."""
    groups: dict[int, LayoutGroup] = {}
    keys = ["layout_hash", "kind", "database", "table", "has_after", *stated, "topic", "partition"]
    counts = events.groupBy(*keys).agg(*occurrence_aggregates(), *_stretch_aggregates())
    for row in counts.toArrow().to_pylist():
        other_partitions, occurrences = groups.get(row["layout_hash"]), read_occurrences(row)
        stretches = [*(other_partitions.stretches if other_partitions else ()), _read_stretch(row, occurrences)]
        groups[row["layout_hash"]] = LayoutGroup(
            row["layout_hash"],
            row["kind"],
            row["database"],
            row["table"],
            {name: row[name] for name in stated},
            merge_occurrences(other_partitions.occurrences, occurrences) if other_partitions else occurrences,
            row["has_after"],
            row["key_columns"] or (),
            stretches,
        )
    return list(groups.values())


def _read_stretch(row: Mapping[str, Any], occurrences: Observation) -> Stretch:
    first, last = occurrences["first"]["commit_ts"], occurrences["last"]["commit_ts"]
    place = row["topic"], row["partition"], row["low"], row["high"]
    log = LogSpan(frozenset(row["servers"]), *map(tuple, (row["begin"], row["end"]))) if row["begin"] else None
    return Stretch(*place, first, last, row["events"], row["first_batch"], row["keyed"] == row["events"], log)


@dataclass(frozen=True)
class RowLayout:
    """The columns of a group of row events, in the messages' order.

    Attributes:
        group: the events.
        columns: the columns that the messages list.
        may_lack: the names of columns that a row need not have.
    """

    group: LayoutGroup
    columns: Sequence[MessageColumn]
    may_lack: frozenset[str] = frozenset()


def observe_missing_columns(
    layouts: Sequence[RowLayout], schemas: SchemaRows, sending: Sending, earlier: Earlier
) -> list[Observation]:
    """Return an observation for each column that rows of these layouts lack and their table has.

    `row_images.find_missing_columns` finds these columns.
    """
    images = [
        Image(
            (layout.group.database, layout.group.table),
            [column.name for column in layout.columns],
            layout.group.has_after,
            layout.group.key,
            layout.group.stretches,
        )
        for layout in layouts
    ]
    observations = []
    for missing in find_missing_columns(images, schemas, sending, earlier):
        (database, table), stretch = missing.name, missing.stretch
        column = {"database": database, "table": table, "column": missing.column, "mysql_type": missing.mysql_type}
        place = {"commit_ts": missing.since, "topic": stretch.topic, "partition": stretch.partition}
        observations.append(
            column
            | {"type_optional": True, "value_class": ValueClass.NO_KEY if missing.needed else LEFT_OUT}
            | {"events": stretch.events, "first_batch": stretch.batch, "sample_value": None}
            | {"first": place | {"offset": missing.offset}}
            | {"last": place | {"commit_ts": stretch.last, "offset": stretch.high}}
        )
    return observations


def observe_values(rows: DataFrame, layouts: Sequence[RowLayout], *, has_wire_types: bool) -> list[Observation]:
    """Return the observations of the columns of row events, by their values.

    The row after the change is looked at; of a DELETE, the row before it. A column's values within their limits are one
    observation, whose first and last event are those of the layout. Each other class and wire type of values is an
    observation of its own, with its own first and last event.

    Args:
        rows: row events with the columns of `with_layout_hash`.
        layouts: of these events.
        has_wire_types: whether the protocol prescribes the types that values have on the wire.
    """
    if not layouts:
        return []
    # A message may name a column twice.
    layouts = [replace(each, columns=list({c.name: c for c in each.columns}.values())) for each in layouts]
    by_hash = {layout.group.layout_hash: layout for layout in layouts}
    unusual_events: dict[tuple[int, str], int] = defaultdict(int)
    observations: list[Observation] = []
    counted = (_count_remarks(rows, part, has_wire_types=has_wire_types) for part in _split_layouts(layouts))
    for remark in chain.from_iterable(counted):
        unusual_events[remark["layout_hash"], remark["name"]] += remark["events"]
        observations += _observe_remark(by_hash[remark["layout_hash"]], remark)
    for layout in layouts:
        for column in layout.columns:
            events = layout.group.occurrences["events"] - unusual_events[layout.group.layout_hash, column.name]
            if events > 0:
                occurrences = layout.group.occurrences | {"events": events}
                observations.append(_observe(layout, column, column.usual_class, column.usual_wire_type, occurrences))
    return _merge_observations(observations)


def _observe_remark(layout: RowLayout, remark: Mapping[str, Any]) -> list[Observation]:
    """Return the observation of a counted remark; none of a column that a deleted row may lack."""
    column = next((c for c in layout.columns if c.name == remark["name"]), None) or MessageColumn(remark["name"], None)
    value_class = class_of(remark["class"])
    if value_class == ABSENT:
        if not layout.group.has_after:
            return []
        value_class = LEFT_OUT
    wire = remark["wire"] or column.usual_wire_type
    occurrences = read_occurrences(remark, remark["sample"])
    return [_observe(layout, column, value_class or column.usual_class, wire, occurrences)]


def _observe(
    layout: RowLayout, column: MessageColumn, value_class: str, wire: str | None, occurrences: Observation
) -> Observation:
    return {
        "database": layout.group.database,
        "table": layout.group.table,
        "column": column.name,
        "mysql_type": column.mysql_type,
        **column.own,
        "type_optional": column.type_optional,
        "value_class": value_class,
        **({"wire_type": wire} if column.limits.wires else {}),
        **occurrences,
    }


def _merge_observations(observations: Sequence[Observation]) -> list[Observation]:
    """Merge observations that differ only in their occurrences."""
    merged: dict[tuple[Any, ...], Observation] = {}
    for observation in observations:
        identity = tuple(item for item in observation.items() if item[0] not in OCCURRENCE_FIELDS)
        other = merged.get(identity)
        merged[identity] = observation | merge_occurrences(other, observation) if other else observation
    return list(merged.values())


# The limits of the columns are a literal in the plan. Bound its size: a hostile stream may have a layout a message.
_MOST_COLUMNS = 20_000


def _split_layouts(layouts: Sequence[RowLayout]) -> Iterator[list[RowLayout]]:
    """Split layouts into parts of at most `_MOST_COLUMNS` columns, or of one layout."""
    part: list[RowLayout] = []
    size = 0
    for layout in layouts:
        size += len(layout.columns)
        if part and size > _MOST_COLUMNS:
            yield part
            part, size = [], len(layout.columns)
        part.append(layout)
    yield part


def _count_remarks(rows: DataFrame, layouts: Sequence[RowLayout], *, has_wire_types: bool) -> list[dict[str, Any]]:
    """Return the remarks on rows of some layouts, counted by layout, column, wire type, class and partition.

    Returns:
        Rows of `find_remarks`, of `occurrence_aggregates`, and `sample`, the beginning of the first value.
    """
    columns_by_hash = {
        layout.group.layout_hash: (
            [(c.name, c.limits) for c in layout.columns],
            [c.name for c in layout.columns if c.name not in layout.may_lack],
        )
        for layout in layouts
    }
    image = F.coalesce("after", "before")
    images = rows.select(*PLACE_COLUMNS, "layout_hash", image.alias("image"), "wire_types")
    remarks = images.select(
        *PLACE_COLUMNS, "layout_hash", F.inline(find_remarks(columns_by_hash, has_wire_types=has_wire_types))
    )
    keys = ["layout_hash", "name", "wire", "class", "topic", "partition"]
    sample = F.min_by("text", F.expr(PLACE_NUMBER)).alias("sample")
    counts: list[dict[str, Any]] = remarks.groupBy(*keys).agg(*occurrence_aggregates(), sample).toArrow().to_pylist()
    return counts
