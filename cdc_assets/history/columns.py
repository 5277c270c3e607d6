"""The columns of a history table: their names, their types, and the typed rows of released changes.

A column may be sent in one form before an ALTER TABLE and in another after it, and both may be in one run: each row is read
by its own layout, and by the types that the table had at its commit_ts.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
    """What rows are read by.

    Attributes:
        layout_id: of their messages.
        since: the commit_ts from which on statements told `declared`.
        columns: that their messages name.
        declared: column, in lower case -> type.
        era: from which on the names stand for `slots`.
        slots: column, in lower case -> the column of the history.
    """

    layout_id: int
    since: int
    columns: tuple[WireColumn, ...]
    declared: Mapping[str, str]
    era: int = 0
    slots: Mapping[str, Slot] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """What one column is in the rows of some layouts (`layouts`: their numbers)."""

    column: WireColumn
    type: MySQLType | None  # None: unknown to MySQL, or to us
    layouts: tuple[int, ...]


@dataclass(frozen=True)
class SourceColumn:
    """One column of a source table, as a run sees it.

    Attributes:
        id: of its `Slot`.
        name: on the wire, as the newest rows spell it.
        column: its name in the history table.
        readings: that of the newest rows last; none of a column that no row has.
        target: its type in the history table.
        type: its newest type in the source; None: unknown.
    """

    id: str
    name: str
    column: str
    readings: tuple[Reading, ...]
    target: DataType
    type: MySQLType | None


def readings_of(
    protocol: Reader, layouts: Sequence[Layout], overrides: Mapping[str, str]
) -> dict[Slot, tuple[Reading, ...]]:
    """Each column's readings, in the order of the newest layout's columns; then those that only older ones have.

    Args:
        protocol: of the feed.
        layouts: those of the changes, the newest last.
        overrides: column -> type, from the feeds file.
    """
    found: dict[Slot, dict[tuple[WireColumn, MySQLType | None], list[int]]] = {}
    for number, layout in enumerate(layouts):
        for column in layout.columns:
            # To MySQL, k1 and K1 are one column.
            lower = column.name.lower()
            reader = reader_of(protocol, column)
            mysql_type = reader.resolve(column, layout.declared.get(lower), overrides.get(column.name))
            each = found.setdefault(layout.slots[lower], {})
            numbers = each.pop((column, mysql_type), [])
            each[column, mysql_type] = [*numbers, number]
    last = layouts[-1] if layouts else None
    newest = {last.slots[c.name.lower()]: place for place, c in enumerate(last.columns)} if last else {}
    return {
        slot: tuple(
            Reading(column, mysql_type, tuple(numbers)) for (column, mysql_type), numbers in found[slot].items()
        )
        for slot in sorted(found, key=lambda slot: newest.get(slot, len(newest)))
    }


def wire_names(readings: Iterable[Iterable[Reading]]) -> dict[str, str]:
    """Every name of a column in messages -> as the newest of them spell it."""
    newest = {r.column.name.lower(): (r.layouts[-1], r.column.name) for each in readings for r in each}
    for each in readings:
        for r in each:
            lower = r.column.name.lower()
            newest[lower] = max(newest[lower], (r.layouts[-1], r.column.name))
    return {r.column.name: newest[r.column.name.lower()][1] for each in readings for r in each}


def needs_scale(mysql_type: MySQLType | None) -> bool:
    """Whether the type is a decimal of which neither the wire nor any DDL tells the scale."""
    return mysql_type is not None and mysql_type.base == "decimal" and mysql_type.length is None


def target_type(readings: Iterable[Reading], scale: int | None, present: DataType | None) -> DataType:
    """The history column's type: it only ever widens. Where no common type exists it stays what it is."""
    target = present
    for reading in readings:
        wanted = StringType() if reading.type is None else spark_type(reading.type, scale or 0)
        if target is None or target == wanted:
            target = wanted
        elif not (isinstance(target, DecimalType) and needs_scale(reading.type)):
            target = widen(target, wanted) or (wanted if present is None else target)
    return target or StringType()


def parse_images(
    changes: DataFrame, spelled: Mapping[str, str], image_of: str = "after", into: str = "wire"
) -> DataFrame:
    """Add `into` STRUCT<column: STRING, ...>: the row after the change, every value as the text it came as.

    Args:
        changes: the changes.
        spelled: `wire_names` of the columns that are wanted.
        image_of: `after`, or `before` for the row before the change.
        into: the name of the new column.
    """
    image = F.col(image_of)
    for other, name in spelled.items():
        if other == name:
            continue
        for before in "{,":  # within a text, a quote has a backslash before it
            found, meant = (before + json.dumps(each, ensure_ascii=False) + ":" for each in (other, name))
            image = F.replace(image, F.lit(found), F.lit(meant))
    return changes.withColumn(into, read_row(image, [*dict.fromkeys(spelled.values())]))


def scales_seen(parsed: DataFrame, names: Mapping[str, str]) -> dict[str, int]:
    """The most digits after the point that columns' values show. A query; only for decimals of unknown scale.

    In: `parse_images`; ids of columns -> their names in it. Out: ids -> digits.
    """
    digits = [F.max(F.length(F.substring_index(F.col("wire").getField(n), ".", -1))) for n in names.values()]
    dotted = [F.max(F.col("wire").getField(n).contains(".")) for n in names.values()]
    found = [column[0].as_py() for column in parsed.agg(*digits, *dotted).toArrow().columns]
    return {each: (found[i] or 0) if found[len(names) + i] else 0 for i, each in enumerate(names)}


class Typing:
    """How the rows of one table become typed rows."""

    def __init__(
        self, protocol: Reader, time_zone: str, layouts: Sequence[Layout], columns: Sequence[SourceColumn]
    ) -> None:
        self._protocol, self._time_zone, self._layouts, self.columns = protocol, time_zone, layouts, columns
        self.schema = StructType([StructField(c.column, c.target) for c in columns])
        self._spelled = wire_names([c.readings for c in columns])
        names = [{self._spelled[r.column.name] for r in c.readings} for c in columns]
        # Where names have passed from one column to another, `wire` has the history's names instead.
        plain = all(len(each) == 1 for each in names) and len(set().union(*names)) == len(names)
        self._fields = {c.column: min(each) if plain else c.column for c, each in zip(columns, names, strict=True)}
        self._plain = plain

    def typed(self, changes: DataFrame) -> DataFrame:
        """Add the typed rows of changes.

        Columns of one type share one expression over an array of their values, so Spark plans a wide table fast.

        Out: `wire`; `row` STRUCT: typed, under the history's names; `before_row` STRUCT: the row before the change, typed in
        the same way, NULL where the change has none; `lost` BOOLEAN: a value did not fit its type.
        """
        parsed = parse_images(changes, self._spelled)
        return self.typed_texts(parse_images(parsed, self._spelled, "before", _BEFORE))

    def typed_texts(self, parsed: DataFrame) -> DataFrame:
        """As `typed`, of rows that have `wire` already; `before_row` only where they have `wire_before`, too."""
        with_before = _BEFORE in parsed.columns
        wires = ["wire", _BEFORE] if with_before else ["wire"]
        if not self._plain or any(len(c.readings) > 1 for c in self.columns):
            parsed = parsed.withColumn("layout", self._number())
        if not self._plain:
            named = {wire: [self._text(c, wire).alias(c.column) for c in self.columns] for wire in wires}
            parsed = parsed.withColumns({wire: F.struct(*texts) for wire, texts in named.items()})
        groups: dict[object, list[SourceColumn]] = {}
        for c in self.columns:
            groups.setdefault(self._likeness(c), []).append(c)
        texts = [
            f"array({', '.join(f'{wire}.{quoted(self._fields[c.column])}' for wire in wires for c in group)}) AS _t{n}"
            for n, group in enumerate(groups.values())
        ]
        arrays = parsed.selectExpr("*", *texts)
        decoded = {f"_v{n}": self._array(n, group[0]) for n, group in enumerate(groups.values())}
        place = {c.column: (n, i) for n, group in enumerate(groups.values()) for i, c in enumerate(group)}
        sizes = [len(group) for group in groups.values()]

        def row(of: int) -> str:
            """The typed values of one of `wires`."""
            values = [(c.column, *place[c.column]) for c in self.columns]
            return ", ".join(f"_v{n}[{of * sizes[n] + i}] AS {quoted(column)}" for column, n, i in values)

        def count(array: str, size: int) -> str:
            return f"array_size(array_compact({f'slice({array}, 1, {size})' if with_before else array}))"

        # A value that is there on the wire and not in the row has been lost.
        losses = (f"{count(f'_t{n}', size)} > {count(f'_v{n}', size)}" for n, size in enumerate(sizes))
        lost = " OR ".join(losses) or "false"  # a table that is made and dropped again has no column
        kept = [quoted(c) for c in parsed.columns if c != _BEFORE]
        before = [f"CASE WHEN before IS NOT NULL THEN struct({row(1)}) END AS before_row"] if with_before else []
        return arrays.withColumns(decoded).selectExpr(*kept, f"struct({row(0)}) AS row", *before, f"{lost} AS lost")

    def _text(self, column: SourceColumn, wire: str) -> Column:
        """A column's value, under whichever name the row's layout has it."""
        told = [
            (F.col("layout").isin(*r.layouts), F.col(wire).getField(self._spelled[r.column.name]))
            for r in column.readings
        ]
        if not told:
            return F.lit(None).cast("string")
        return told[0][1] if len(told) == 1 and self._everywhere(column) else first_true(*told)

    def _everywhere(self, column: SourceColumn) -> bool:
        return {n for r in column.readings for n in r.layouts} == set(range(len(self._layouts)))

    def _wire(self, column: SourceColumn) -> Column:
        return F.col("wire").getField(self._fields[column.column])

    def problems(self, typed: DataFrame) -> DataFrame:
        """One row for each value that was lost in typing.

        In: `typed`. Out: release AS batch, topic, partition, offset, index, database, table, `column` STRING, `reason`
        STRING, `value` BINARY (its text on the wire).
        """

        def each(c: SourceColumn) -> Column:
            value, typed_value = self._wire(c), F.col("row").getField(c.column)
            unknown = F.when(value.isNotNull(), str(Reason.UNKNOWN_COLUMN_TYPE))
            reason = self._by_reading(
                c, lambda r: unknown if r.type is None else self._problem(value, typed_value, r, r.type)
            )
            return F.struct(F.lit(c.name).alias("column"), reason.alias("reason"), value.cast("binary").alias("value"))

        lost = checkpointed(typed.where("lost"), eager=False)
        columns = self._losing(lost)
        found = F.filter(F.array(*[each(c) for c in columns]), lambda p: p["reason"].isNotNull())
        place = [F.col(c) for c in ("topic", "partition", "offset", "index", "database", "table")]
        return lost.select(F.col("release").alias("batch"), *place, F.inline(found))

    def _losing(self, lost: DataFrame) -> list[SourceColumn]:
        """The columns that lost a value: most lose none, and to say why takes a large expression of each."""
        gone = [
            f"max(wire.{quoted(self._fields[c.column])} IS NOT NULL AND row.{quoted(c.column)} IS NULL) AS _{n}"
            for n, c in enumerate(self.columns)
        ]
        found = lost.selectExpr(*gone).toArrow().columns
        return [c for c, any_lost in zip(self.columns, found, strict=True) if any_lost[0].as_py() and c.readings]

    def _problem(self, value: Column, typed: Column, reading: Reading, mysql_type: MySQLType) -> Column:
        reader = reader_of(self._protocol, reading.column)
        return compute_once(reader.text(value, reading.column, mysql_type), lambda t: problem(t, typed, mysql_type))

    def _number(self) -> Column:
        """Which layout a row has: the last of those that it may have."""
        if not self._layouts:
            return F.lit(None).cast("int")  # there are no rows
        numbered = reversed(list(enumerate(self._layouts)))
        return first_true(*((self._has(each), n) for n, each in numbered))

    def _has(self, layout: Layout) -> Column:
        mine = (F.col("layout_id") == layout.layout_id) & (F.col("commit_ts") >= layout.since)
        return mine & (F.col("era") >= layout.era) if layout.era else mine

    def _by_reading(self, column: SourceColumn, of: Callable[[Reading], Column]) -> Column:
        """What a row has under the type that its layout gives the column; where it gives none, the newest."""
        if not column.readings:
            return F.lit(None).cast(column.target)
        *older, newest = column.readings
        if not older:
            return of(newest)
        return first_true(*((F.col("layout").isin(*r.layouts), of(r)) for r in older)).otherwise(of(newest))

    def _likeness(self, column: SourceColumn) -> object:
        """Equal for columns that one expression serves."""
        if any(r.column.is_guessed for r in column.readings):
            return column.column
        readings = tuple((r.column.wire_type, r.type, r.layouts) for r in column.readings)
        return readings, column.target.simpleString()

    def _array(self, number: int, column: SourceColumn) -> Column:
        """The typed values of an array `_t<number>` of texts."""
        return F.transform(f"_t{number}", lambda value: self._decoded(value, column))

    def _decoded(self, value: Column, column: SourceColumn) -> Column:
        return self._by_reading(column, lambda reading: self._read(value, reading, column.target))

    def _read(self, value: Column, reading: Reading, target: DataType) -> Column:
        """A typed value."""
        column, mysql_type = reading.column, reading.type
        if mysql_type is None:
            return F.lit(None).cast(target)
        reader = reader_of(self._protocol, column)
        text = reader.text(value, column, mysql_type)
        if text is value:
            return decode(value, mysql_type, reader.dialect, self._time_zone, target)
        # Within each other, two expressions that use their argument several times take minutes to plan.
        return compute_once(text, lambda t: decode(t, mysql_type, reader.dialect, self._time_zone, target))
