"""What the rules of all protocols share: how events are boiled down to the few different observations that they make.

Events of one layout say the same of their columns' types: they are counted once a layout. Their values are looked at in one
pass, which gives back only what is not as usual.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets.type_checks.occurrences import merged_occurrences
from cdc_assets.type_checks.row_images import Earlier, Image, Sending, Stretch, missing_columns
from cdc_assets.type_checks.validation import CASE, pa
from cdc_assets.type_checks.values import (
    ABSENT,
    ANY,
    ANYTHING,
    LEFT_OUT,
    Class,
    Form,
    Limits,
    class_of,
    remarks,
)

# Of every observation: what it is about; in how many events and where it was seen, with the first's value as a sample.
WHERE = ["database", "table", "column"]
SEEN = ["events", "first_batch", "first", "last", "sample_value"]
Observed = dict[str, Any]  # `WHERE`, `mysql_type`, columns of the protocol's own, `SEEN`
Known = Sequence[Mapping[str, Any]]  # rows of table_schemas


class Rules(NamedTuple):
    """What a protocol prescribes.

    Attributes:
        observe: change events, rows of table_schemas, the types that the feeds file gives, and what columns rows of earlier
            runs have had -> observations.
        model: what they keep to, beside the MySQL types.
        what: the columns that make up an observation.
        expected: an observation -> what is shown beside it: what the reference has.
    """

    observe: Callable[[DataFrame, Known, Mapping[str, str], Earlier], list[Observed]]
    model: type[pa.DataFrameModel]
    what: tuple[str, ...]
    expected: Callable[[Mapping[str, Any]], str]


# What the rules say of a column whose messages name no type for it, and of one whose type no reference table has.
NO_TYPE, NO_SUCH_TYPE = "the message names no type of the column", "no type that the reference has"


class MySQLTypes(pa.DataFrameModel):
    """Every column has a type, and it is one that MySQL has."""

    mysql_type: object = pa.Field(nullable=True)
    type_optional: object = pa.Field(coerce=True, nullable=True)
    value_class: object = pa.Field()

    @pa.dataframe_check(name="known_mysql_type", error="not a MySQL type")
    def known_mysql_type(cls, frame: Any) -> Any:  # noqa: ANN401, N805 -- pandera's form
        """Check the type's text; that there is none is what `names_type` and `has_type` judge."""
        texts = frame["mysql_type"]
        return texts.isna() | texts.isin([t for t in texts.dropna().unique() if parsed(t) is not None])

    @pa.dataframe_check(name="names_type", error=NO_TYPE)
    def names_type(cls, frame: Any) -> Any:  # noqa: ANN401, N805
        """Check that there is a type, where the protocol does not document that it may be missing.

        A column of the row that messages do not list at all is what `has_type` judges.
        """
        may_lack = frame["type_optional"].isin([True]) | (frame["value_class"] == Class.UNTYPED)
        return frame["mysql_type"].notna() | may_lack

    @pa.dataframe_check(name="has_type", error=str(Class.UNTYPED))
    def has_type(cls, frame: Any) -> Any:  # noqa: ANN401, N805
        """Of a column that rows have."""
        return frame["value_class"] != Class.UNTYPED


class ValuesFit(pa.DataFrameModel):
    """Every value is one that its type holds. The base of each protocol's own model."""

    value_class: object = pa.Field()

    @pa.check("value_class", name="value_fits_type", error=CASE)
    def value_fits_type(cls, classes: Any) -> Any:  # noqa: ANN401, N805 -- pandera's form
        """That a column has no type is the other check's."""
        return ~classes.isin([c for c in Class if c is not Class.UNTYPED])


@dataclass(frozen=True)
class Told:
    """A column as messages of one layout have it.

    Attributes:
        name: the column's.
        mysql_type: its type's text; None: the messages do not tell one.
        own: the columns of the protocol's own of the observation.
        limits: what its values may be.
        type_optional: whether the protocol documents that messages may name no type of such a column.
    """

    name: str
    mysql_type: str | None
    own: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = ANYTHING
    type_optional: bool = False

    @property
    def usual(self) -> str:
        """The class of the values within the limits: their range, if they are whole numbers."""
        of_numbers = self.limits.form in {Form.WHOLE, Form.LABEL} and self.limits.ranges
        return range_name(*of_numbers[:2]) if of_numbers else ANY


def range_name(low: int, high: int) -> str:
    """The class of the values from `low` to `high`."""
    return f"{low}..{high}"


# --- where, and how often

# A place as one number, so that Spark finds the lowest and highest without sorting: both parts have 19 digits at most.
_OFFSETS = 10**19
_AT = f"CAST(CAST(commit_ts AS DECIMAL(19,0)) * CAST('{_OFFSETS}' AS DECIMAL(20,0)) + offset AS DECIMAL(38,0))"
# What is needed of an event.
_PLACE = ["topic", "partition", "offset", "commit_ts", "batch"]


def _counted() -> list[Column]:
    """What is kept of the events of an observation in one partition, as aggregates."""
    events, batch = F.count("*").alias("events"), F.min("batch").alias("first_batch")
    return [events, batch, F.min(F.expr(_AT)).alias("lowest"), F.max(F.expr(_AT)).alias("highest")]


def _whole_rows() -> list[Column]:
    """What tells more of the events of a layout in one partition, as aggregates."""
    offsets = [F.min("offset").alias("low"), F.max("offset").alias("high")]
    return [*offsets, F.any_value("key_columns").alias("key_columns"), F.count("key").alias("keyed")]


def _place(at: Decimal, row: Mapping[str, Any]) -> dict[str, Any]:
    commit_ts, offset = divmod(int(at), _OFFSETS)
    return {"commit_ts": commit_ts, "topic": row["topic"], "partition": row["partition"], "offset": offset}


def _seen(row: Mapping[str, Any], sample: str | None = None) -> Observed:
    """`SEEN`, out of a row of these aggregates."""
    places = {"first": _place(row["lowest"], row), "last": _place(row["highest"], row)}
    return {"events": row["events"], "first_batch": row["first_batch"], **places, "sample_value": sample}


# --- layouts


@dataclass(frozen=True)
class Group:
    """Events of one table and layout.

    Attributes:
        shape: a hash of what tells it from others.
        kind: of the events.
        database: of the table.
        table: its name.
        told: what the messages say of the columns, in the protocol's form.
        seen: `SEEN`.
        changed: whether the events have a row after the change, else only the deleted one.
        key: the columns of the key, as far as the messages name them.
        stretches: the events by partition.
    """

    shape: int
    kind: str
    database: str
    table: str
    told: Mapping[str, Any]
    seen: Observed
    changed: bool = True
    key: Sequence[str] = ()
    stretches: Sequence[Stretch] = ()

    @property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest commit_ts."""
        return self.seen["first"]["commit_ts"], self.seen["last"]["commit_ts"]


def shaped(events: DataFrame, **told: Column) -> DataFrame:
    """Events with the columns `told`, of what their messages say of the columns, and `shape`, a hash of that.

    Deleted rows have shapes of their own, by the column `changed`.
    """
    with_told = events.withColumns({"changed": F.col("after").isNotNull(), **told})
    return with_told.withColumn("shape", F.xxhash64("kind", "database", "table", "changed", *told))


def groups(events: DataFrame, *told: str) -> list[Group]:
    """The different layouts among events, which `shaped` has been given."""
    found: dict[int, Group] = {}
    by = ["shape", "kind", "database", "table", "changed", *told, "topic", "partition"]
    counted = events.groupBy(*by).agg(*_counted(), *_whole_rows())
    for r in counted.toArrow().to_pylist():
        before, seen = found.get(r["shape"]), _seen(r)
        stretches = [*(before.stretches if before else ()), _stretch(r, seen)]
        found[r["shape"]] = Group(
            r["shape"],
            r["kind"],
            r["database"],
            r["table"],
            {name: r[name] for name in told},
            merged_occurrences(before.seen, seen) if before else seen,
            r["changed"],
            r["key_columns"] or (),
            stretches,
        )
    return list(found.values())


def _stretch(row: Mapping[str, Any], seen: Observed) -> Stretch:
    first, last = seen["first"]["commit_ts"], seen["last"]["commit_ts"]
    place = row["topic"], row["partition"], row["low"], row["high"]
    return Stretch(*place, first, last, row["events"], row["first_batch"], row["keyed"] == row["events"])


@dataclass(frozen=True)
class Layout:
    """The columns of a group of row events, in the order in which messages have them.

    Attributes:
        group: the events.
        columns: that have a type.
        may_lack: those of them that a row need not have.
    """

    group: Group
    columns: Sequence[Told]
    may_lack: frozenset[str] = frozenset()


def left_out(layouts: Sequence[Layout], known: Known, sending: Sending, earlier: Earlier) -> list[Observed]:
    """Observe the columns that rows of these layouts lack, and that their table has: `row_images` says which."""
    images = [
        Image(
            (layout.group.database, layout.group.table),
            [column.name for column in layout.columns],
            layout.group.changed,
            layout.group.key,
            layout.group.stretches,
        )
        for layout in layouts
    ]
    found = []
    for missing in missing_columns(images, known, sending, earlier):
        (database, table), stretch = missing.name, missing.stretch
        what = {"database": database, "table": table, "column": missing.column, "mysql_type": missing.mysql_type}
        place = {"commit_ts": missing.since, "topic": stretch.topic, "partition": stretch.partition}
        found.append(
            what
            | {"type_optional": True, "value_class": Class.NO_KEY if missing.needed else LEFT_OUT}
            | {"events": stretch.events, "first_batch": stretch.batch, "sample_value": None}
            | {"first": place | {"offset": missing.offset}}
            | {"last": place | {"commit_ts": stretch.last, "offset": stretch.high}}
        )
    return found


def observed(rows: DataFrame, layouts: Sequence[Layout], *, wired: bool) -> list[Observed]:
    """What row events of these layouts make for observations; `wired`: what a value is on the wire tells anything.

    Looked at is the new row, else the deleted one. Of a column's events those whose values are as usual are one observation,
    with the layout's first and last event as its own; what is not as usual is another, with its own.
    """
    # A message may name a column twice.
    layouts = [replace(each, columns=list({c.name: c for c in each.columns}.values())) for each in layouts]
    by_shape = {layout.group.shape: layout for layout in layouts}
    if not by_shape:
        return []
    found: dict[tuple[Any, ...], Observed] = {}

    def add(layout: Layout, told: Told, value_class: str, wire: str | None, seen: Observed) -> None:
        group = layout.group
        what = {"database": group.database, "table": group.table, "column": told.name, "mysql_type": told.mysql_type}
        what |= dict(told.own) | {"type_optional": told.type_optional, "value_class": value_class}
        what |= {"wire_type": wire} if told.limits.wires else {}
        key = tuple(what.items())
        found[key] = what | (merged_occurrences(found[key], seen) if key in found else seen)

    odd: dict[tuple[int, str], int] = defaultdict(int)
    for r in (r for some in _slices(layouts) for r in _remarks(rows, some, wired=wired)):
        layout = by_shape[r["shape"]]
        told = next((c for c in layout.columns if c.name == r["name"]), None) or Told(r["name"], None)
        odd[r["shape"], r["name"]] += r["events"]
        value_class = class_of(r["class"])
        if value_class == ABSENT:
            if not layout.group.changed:
                continue
            value_class = LEFT_OUT
        wire = r["wire"] or (told.limits.wires or (None,))[0]
        add(layout, told, value_class or told.usual, wire, _seen(r, r["sample"]))
    for layout in layouts:
        for told in layout.columns:
            usual = layout.group.seen["events"] - odd[layout.group.shape, told.name]
            if usual > 0:
                add(layout, told, told.usual, (told.limits.wires or (None,))[0], layout.group.seen | {"events": usual})
    return list(found.values())


# The limits of so many columns at most are a literal of one plan: a hostile stream may have as many layouts as messages.
_MOST_COLUMNS = 20_000


def _slices(layouts: Sequence[Layout]) -> Iterator[list[Layout]]:
    """The layouts, so many at a time as one plan holds."""
    some: list[Layout] = []
    size = 0
    for layout in layouts:
        size += len(layout.columns)
        if some and size > _MOST_COLUMNS:
            yield some
            some, size = [], len(layout.columns)
        some.append(layout)
    yield some


def _remarks(rows: DataFrame, layouts: Sequence[Layout], *, wired: bool) -> list[dict[str, Any]]:
    """What is not as usual, counted by layout, column, wire type and class, with the first's value."""
    told = {
        layout.group.shape: (
            [(c.name, c.limits) for c in layout.columns],
            [c.name for c in layout.columns if c.name not in layout.may_lack],
        )
        for layout in layouts
    }
    images = rows.select(
        *_PLACE, "shape", F.coalesce("after", "before").alias("image"), F.col("wire_types").alias("branches")
    )
    looked = images.select(*_PLACE, "shape", F.inline(remarks(told, wired=wired)))
    by = ["shape", "name", "wire", "class", "topic", "partition"]
    counted = looked.groupBy(*by).agg(*_counted(), F.min_by("text", F.expr(_AT)).alias("sample"))
    found: list[dict[str, Any]] = counted.toArrow().to_pylist()
    return found


# --- what is known of a table beside its messages


def declared(known: Known) -> Callable[[str, str, tuple[int, int]], list[Mapping[str, Mapping[str, Any]]]]:
    """Tables as statements have them: (database, table, lowest and highest commit_ts) -> their columns by name.

    Those of the table before the first of such events, and those until the last.
    """
    shapes: dict[tuple[str, str], list[tuple[int, dict[str, Mapping[str, Any]]]]] = defaultdict(list)
    for r in known:
        if r["columns"] is not None:
            shapes[r["database"], r["table"]].append((r["commit_ts"], {c["name"]: c for c in r["columns"]}))

    def between(database: str, table: str, span: tuple[int, int]) -> list[Mapping[str, Mapping[str, Any]]]:
        ordered = sorted(shapes[database, table], key=lambda shape: shape[0])
        before = [columns for since, columns in ordered if since < span[0]]
        return before[-1:] + [columns for since, columns in ordered if span[0] <= since <= span[1]]

    return between


def exact(mysql_type: MySQLType | None, others: Sequence[MySQLType]) -> MySQLType | None:
    """A decimal without parameters with those that statements give it, the widest; any other type as it is."""
    if mysql_type is None or mysql_type.base != "decimal" or mysql_type.length is not None:
        return mysql_type
    told = [(t.length - (t.scale or 0), t.scale or 0) for t in others if t.base == "decimal" and t.length is not None]
    if not told:
        return mysql_type
    scale = max(scale for _, scale in told)
    return replace(mysql_type, length=max(whole for whole, _ in told) + scale, scale=scale)


def row_events(events: DataFrame) -> DataFrame:
    """Those of kind row."""
    return events.where(F.col("kind") == str(Kind.ROW))
