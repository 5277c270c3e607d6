"""The columns of a history table: their names, their types, and the typed rows of released changes.

Messages may have a column in one form before an ALTER TABLE and in another form after it, and one run may see both. So each
row is decoded by its own column layout and by the types that the table had at the row's commit_ts.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StringType, StructField, StructType

from cdc_assets.expressions import compute_once, first_true
from cdc_assets.history.evolution import Slot
from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.lakehouse.schema import quoted
from cdc_assets.mysql_types.casting import decode, problem, spark_type, widen
from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.protocols.base import Reader, WireColumn
from cdc_assets.protocols.loaded import reader_of
from cdc_assets.protocols.messages import read_row
from cdc_assets.spark.session import checkpointed

_BEFORE = "wire_before"


@dataclass(frozen=True)
class Layout:
    """A column layout of messages with the declared types of a stretch of time: what rows are decoded by.

    Attributes:
        layout_id: the id of the messages' column layout.
        since: the commit_ts from which on `declared` holds.
        columns: the columns that the messages name.
        declared: column, in lower case -> declared type.
        era: the era from which on the names stand for `slots`.
        slots: column, in lower case -> slot: the column of the history.
        labelled: column, in lower case -> a type with labels, which comes before `declared`.
    """

    layout_id: int
    since: int
    columns: tuple[WireColumn, ...]
    declared: Mapping[str, str]
    era: int = 0
    slots: Mapping[str, Slot] = field(default_factory=dict)
    labelled: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """How one column is decoded in the rows of some layouts.

    Attributes:
        column: the column as messages describe it.
        type: its type; None if the type is not one that MySQL has.
        layouts: the numbers of the layouts.
    """

    column: WireColumn
    type: MySQLType | None
    layouts: tuple[int, ...]


@dataclass(frozen=True)
class SourceColumn:
    """One column of a source table in one run.

    Attributes:
        id: the id of its `Slot`.
        name: its name in messages, as the newest rows spell it.
        column: its name in the history table.
        readings: its readings, that of the newest rows last; none for a column that no row has.
        target: its type in the history table.
        type: its newest type in the source; None if that is unknown.
    """

    id: str
    name: str
    column: str
    readings: tuple[Reading, ...]
    target: DataType
    type: MySQLType | None


def collect_readings(
    protocol: Reader, layouts: Sequence[Layout], overrides: Mapping[str, str]
) -> dict[Slot, tuple[Reading, ...]]:
    """Return each column's readings, in the order of the newest layout's columns; columns of older layouts come last.

    Args:
        protocol: the feed's protocol.
        layouts: the layouts of the changes, the newest last.
        overrides: column -> type, from the feeds file.
    """
    layouts_of_slot: dict[Slot, dict[tuple[WireColumn, MySQLType | None], list[int]]] = {}
    for number, layout in enumerate(layouts):
        for column in layout.columns:
            # MySQL compares the names of columns without regard to case.
            lower = column.name.lower()
            reader = reader_of(protocol, column)
            declared = layout.labelled.get(lower, layout.declared.get(lower))
            mysql_type = reader.resolve(column, declared, overrides.get(column.name))
            each = layouts_of_slot.setdefault(layout.slots[lower], {})
            numbers = each.pop((column, mysql_type), [])
            each[column, mysql_type] = [*numbers, number]
    last = layouts[-1] if layouts else None
    newest = {last.slots[c.name.lower()]: place for place, c in enumerate(last.columns)} if last else {}
    return {
        slot: tuple(
            Reading(column, mysql_type, tuple(numbers))
            for (column, mysql_type), numbers in layouts_of_slot[slot].items()
        )
        for slot in sorted(layouts_of_slot, key=lambda slot: newest.get(slot, len(newest)))
    }


def wire_names(readings: Iterable[Iterable[Reading]]) -> dict[str, str]:
    """Return every spelling of a column's name in messages -> the spelling in the newest of them."""
    ordered = sorted((r for each in readings for r in each), key=lambda r: (r.layouts[-1], r.column.name))
    newest = {r.column.name.lower(): r.column.name for r in ordered}
    return {r.column.name: newest[r.column.name.lower()] for r in ordered}


def needs_scale(mysql_type: MySQLType | None) -> bool:
    """Return whether the type is a decimal without a scale, neither by messages nor by a DDL statement."""
    return mysql_type is not None and mysql_type.base == "decimal" and mysql_type.length is None


def target_type(readings: Iterable[Reading], scale: int | None, present: DataType | None) -> DataType:
    """Return the history column's type: the present one, widened for the readings if there is a common type.

    Args:
        readings: the column's readings.
        scale: the scale of decimals without one; None: 0.
        present: the column's type in the history table; None if it has no such column yet.
    """
    target = present
    for reading in readings:
        sent = StringType() if reading.type is None else spark_type(reading.type, scale or 0)
        if target is None or target == sent:
            target = sent
        elif not (isinstance(target, DecimalType) and needs_scale(reading.type)):
            target = widen(target, sent) or (sent if present is None else target)
    return target or StringType()


def parse_images(
    changes: DataFrame, spelled: Mapping[str, str], image_of: str = "after", into: str = "wire"
) -> DataFrame:
    """Add `into` STRUCT<column: STRING, ...>: the row image, with every value as the text in its message.

    Args:
        changes: the changes.
        spelled: `wire_names` of the columns to read.
        image_of: `after`, or `before` for the row before the change.
        into: the name of the new column.
    """
    image = F.col(image_of)
    for other, name in spelled.items():
        if other == name:
            continue
        for before in "{,":  # a quote within a JSON string follows a backslash, so this matches names only
            old, new = (before + json.dumps(each, ensure_ascii=False) + ":" for each in (other, name))
            image = F.replace(image, F.lit(old), F.lit(new))
    return changes.withColumn(into, read_row(image, [*dict.fromkeys(spelled.values())]))


def measure_scales(parsed: DataFrame, names: Mapping[str, str]) -> dict[str, int]:
    """Return the largest number of digits after the point in the values of decimals of unknown scale. Runs a query.

    Args:
        parsed: changes with the columns of `parse_images`.
        names: ids of columns -> their names in `wire`.

    Returns:
        Ids of columns -> digits.
    """
    digits = [F.max(F.length(F.substring_index(F.col("wire").getField(n), ".", -1))) for n in names.values()]
    dotted = [F.max(F.col("wire").getField(n).contains(".")) for n in names.values()]
    values = [column[0].as_py() for column in parsed.agg(*digits, *dotted).toArrow().columns]
    return {each: (values[i] or 0) if values[len(names) + i] else 0 for i, each in enumerate(names)}


class Typing:
    """Turns the rows of one table into typed rows, with the names and types of its history table."""

    def __init__(
        self, protocol: Reader, time_zone: str, layouts: Sequence[Layout], columns: Sequence[SourceColumn]
    ) -> None:
        self._protocol, self._time_zone, self._layouts, self.columns = protocol, time_zone, layouts, columns
        self.schema = StructType([StructField(c.column, c.target) for c in columns])
        self._spelled = wire_names([c.readings for c in columns])
        names = [{self._spelled[r.column.name] for r in c.readings} for c in columns]
        # Where a RENAME has given a column's name to another column, the fields of `wire` get the history's names.
        plain = all(len(each) == 1 for each in names) and len(set().union(*names)) == len(names)
        self._fields = {c.column: min(each) if plain else c.column for c, each in zip(columns, names, strict=True)}
        self._plain = plain

    def type_rows(self, changes: DataFrame) -> DataFrame:
        """Add the typed rows of changes.

        Columns of one type share one expression over an array of their values, so Spark plans a wide table fast.

        Out: `wire`; `row` STRUCT: typed, under the history's names; `before_row` STRUCT: the row before the change, typed in
        the same way, NULL if the change has none; `lost` BOOLEAN: whether a value did not fit its type.
        """
        parsed = parse_images(changes, self._spelled)
        return self.type_texts(parse_images(parsed, self._spelled, "before", _BEFORE))

    def type_texts(self, parsed: DataFrame) -> DataFrame:
        """Add the columns of `type_rows` to rows with `wire`; `before_row` only if they have `wire_before`, too."""
        with_before = _BEFORE in parsed.columns
        wires = ["wire", _BEFORE] if with_before else ["wire"]
        if not self._plain or any(len(c.readings) > 1 for c in self.columns):
            parsed = parsed.withColumn("layout", self._layout_number())
        if not self._plain:
            named = {wire: [self._text(c, wire).alias(c.column) for c in self.columns] for wire in wires}
            parsed = parsed.withColumns({wire: F.struct(*texts) for wire, texts in named.items()})
        groups: dict[object, list[SourceColumn]] = {}
        for c in self.columns:
            groups.setdefault(self._group_key(c), []).append(c)
        texts = [
            f"array({', '.join(f'{wire}.{quoted(self._fields[c.column])}' for wire in wires for c in group)}) AS _t{n}"
            for n, group in enumerate(groups.values())
        ]
        arrays = parsed.selectExpr("*", *texts)
        decoded = {
            f"_v{n}": F.transform(f"_t{n}", partial(self._decode, group[0])) for n, group in enumerate(groups.values())
        }
        place = {c.column: (n, i) for n, group in enumerate(groups.values()) for i, c in enumerate(group)}
        sizes = [len(group) for group in groups.values()]

        def row(of: int) -> str:
            """Return the SQL of the typed values of one of `wires`, by its index."""
            values = [(c.column, *place[c.column]) for c in self.columns]
            return ", ".join(f"_v{n}[{of * sizes[n] + i}] AS {quoted(column)}" for column, n, i in values)

        def count(array: str, size: int) -> str:
            return f"array_size(array_compact({f'slice({array}, 1, {size})' if with_before else array}))"

        # A value that the message has and the typed row lacks did not fit its type.
        losses = (f"{count(f'_t{n}', size)} > {count(f'_v{n}', size)}" for n, size in enumerate(sizes))
        lost = " OR ".join(losses) or "false"  # a table that one run creates and drops has no column
        kept = [quoted(c) for c in parsed.columns if c != _BEFORE]
        before = [f"CASE WHEN before IS NOT NULL THEN struct({row(1)}) END AS before_row"] if with_before else []
        return arrays.withColumns(decoded).selectExpr(*kept, f"struct({row(0)}) AS row", *before, f"{lost} AS lost")

    def _text(self, column: SourceColumn, wire: str) -> Column:
        """Return a column's text, under the name that the row's layout has for it. STRING."""
        texts = [
            (F.col("layout").isin(*r.layouts), F.col(wire).getField(self._spelled[r.column.name]))
            for r in column.readings
        ]
        if not texts:
            return F.lit(None).cast("string")
        return texts[0][1] if len(texts) == 1 and self._is_in_all_layouts(column) else first_true(*texts)

    def _is_in_all_layouts(self, column: SourceColumn) -> bool:
        return {n for r in column.readings for n in r.layouts} == set(range(len(self._layouts)))

    def find_problems(self, typed: DataFrame) -> DataFrame:
        """Return one row for each value that did not fit its type.

        In: `type_rows`. Out: release AS batch, topic, partition, offset, index, database, table, `column` STRING, `reason`
        STRING, `value` BINARY: its text in the message.
        """

        def each(c: SourceColumn) -> Column:
            value, typed_value = F.col("wire").getField(self._fields[c.column]), F.col("row").getField(c.column)
            unknown = F.when(value.isNotNull(), str(Reason.UNKNOWN_COLUMN_TYPE))
            reason = self._by_reading(
                c, lambda r: unknown if r.type is None else self._problem(value, typed_value, r, r.type)
            )
            return F.struct(F.lit(c.name).alias("column"), reason.alias("reason"), value.cast("binary").alias("value"))

        lost = checkpointed(typed.where("lost"), eager=False)
        columns = self._losing_columns(lost)
        problems = F.filter(F.array(*[each(c) for c in columns]), lambda p: p["reason"].isNotNull())
        place = [F.col(c) for c in ("topic", "partition", "offset", "index", "database", "table")]
        return lost.select(F.col("release").alias("batch"), *place, F.inline(problems))

    def _losing_columns(self, lost: DataFrame) -> list[SourceColumn]:
        """Return the columns with a value that did not fit. Most have none, and the reason is a large expression each."""
        is_lost = [
            f"max(wire.{quoted(self._fields[c.column])} IS NOT NULL AND row.{quoted(c.column)} IS NULL) AS _{n}"
            for n, c in enumerate(self.columns)
        ]
        results = lost.selectExpr(*is_lost).toArrow().columns
        return [c for c, any_lost in zip(self.columns, results, strict=True) if any_lost[0].as_py() and c.readings]

    def _problem(self, value: Column, typed: Column, reading: Reading, mysql_type: MySQLType) -> Column:
        reader = reader_of(self._protocol, reading.column)
        return compute_once(reader.text(value, reading.column, mysql_type), lambda t: problem(t, typed, mysql_type))

    def _layout_number(self) -> Column:
        """Return the number of a row's layout: the last one that matches the row. INT."""
        if not self._layouts:
            return F.lit(None).cast("int")  # there are no rows
        numbered = reversed(list(enumerate(self._layouts)))
        return first_true(*((self._matches(each), n) for n, each in numbered))

    def _matches(self, layout: Layout) -> Column:
        """Return whether a row has this layout or one that came after it. BOOLEAN."""
        is_match = (F.col("layout_id") == layout.layout_id) & (F.col("commit_ts") >= layout.since)
        return is_match & (F.col("era") >= layout.era) if layout.era else is_match

    def _by_reading(self, column: SourceColumn, of: Callable[[Reading], Column]) -> Column:
        """Return `of` for the reading of the row's layout; for the newest reading if the layout lacks the column."""
        if not column.readings:
            return F.lit(None).cast(column.target)
        *older, newest = column.readings
        if not older:
            return of(newest)
        return first_true(*((F.col("layout").isin(*r.layouts), of(r)) for r in older)).otherwise(of(newest))

    def _group_key(self, column: SourceColumn) -> object:
        """Return a key that is equal for the columns that one expression can decode."""
        if any(r.column.is_guessed for r in column.readings):
            return column.column
        readings = tuple((r.column.wire_type, r.type, r.layouts) for r in column.readings)
        return readings, column.target.simpleString()

    def _decode(self, column: SourceColumn, value: Column) -> Column:
        """Return the typed value of a column's text. The column's type."""
        return self._by_reading(column, lambda reading: self._read(value, reading, column.target))

    def _read(self, value: Column, reading: Reading, target: DataType) -> Column:
        """Return the typed value of a text. The column's type."""
        column, mysql_type = reading.column, reading.type
        if mysql_type is None:
            return F.lit(None).cast(target)
        reader = reader_of(self._protocol, column)
        text = reader.text(value, column, mysql_type)
        if text is value:
            return decode(value, mysql_type, reader.dialect, self._time_zone, target)
        # Two nested expressions that each repeat their argument make plans that grow with the product of the repetitions.
        return compute_once(text, lambda t: decode(t, mysql_type, reader.dialect, self._time_zone, target))
