"""The columns of a history table: their names, their types, and the typed rows of released changes."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StringType, StructField, StructType

from cdc_assets.mysql_types.casting import decode, problem, spark_type, widen
from cdc_assets.mysql_types.open_protocol import type_text
from cdc_assets.mysql_types.types import MySQLType, UnknownType, parse_type
from cdc_assets.quarantine import Reason

RESERVED = "_cdc_"


@dataclass(frozen=True)
class SourceColumn:
    """One column of a source table, as a run sees it."""

    name: str  # on the wire
    type: MySQLType | None  # None: unknown to MySQL, or to us
    target: DataType  # in the history table

    @property
    def column(self) -> str:
        """Its name in the history table."""
        return history_name(self.name)


def history_name(name: str) -> str:
    """The name of a source column in the history table: its own, unless it would hide one of ours."""
    return f"_source{name}" if name.lower().startswith(RESERVED) else name


def wire_types(observed: Iterable[tuple[int, str, str | None]]) -> dict[str, str]:
    """Column -> type text, out of the `mysql_types` and `jdbc_types` of a table's changes.

    Args:
        observed: (commit_ts, mysql_types JSON, jdbc_types JSON) of each combination seen; the latest type wins.
            The columns come in the order of `jdbc_types`, which is the table's (`mysql_types` has none).
    """
    latest: dict[str, str] = {}
    order: dict[str, None] = {}
    for _, types, codes in sorted(observed, key=lambda o: o[0]):
        said = {name: _type_text(wire) for name, wire in json.loads(types).items()}
        found = {name: text for name, text in said.items() if text is not None}
        latest |= found
        for name in [*json.loads(codes or "{}"), *found]:
            order.setdefault(name)
    return {name: latest[name] for name in order if name in latest}


def _type_text(wire: str | dict[str, int] | None) -> str | None:
    """A column's type as text; the Open Protocol has a code and flags in its place."""
    return type_text(wire["t"], wire["f"]) if isinstance(wire, dict) else wire


def resolve_type(wire: str, declared: str | None, override: str | None) -> MySQLType | None:
    """The type of a column: what the feeds file says, else the wire's, with the parameters of the declared type.

    TiCDC sends `decimal` for decimal(12,2) and `enum` for enum('a','b'); the CREATE TABLE has the rest.
    """
    if override:
        return parse_type(override)
    try:
        on_wire = parse_type(wire)
        known = parse_type(declared) if declared else None
    except UnknownType:
        return None
    bare = on_wire.length is None and on_wire.labels is None
    same = known is not None and (known.base, known.unsigned) == (on_wire.base, on_wire.unsigned)
    return known if bare and same else on_wire


def needs_scale(mysql_type: MySQLType | None) -> bool:
    """Whether the type is a decimal of which neither the wire nor any DDL tells the scale."""
    return mysql_type is not None and mysql_type.base == "decimal" and mysql_type.length is None


def target_type(mysql_type: MySQLType | None, scale: int | None, present: DataType | None) -> DataType:
    """The history column's type: it only ever widens. Where no common type exists it stays what it is."""
    wanted = StringType() if mysql_type is None else spark_type(mysql_type, scale or 0)
    if present is None or present == wanted:
        return wanted
    if isinstance(present, DecimalType) and needs_scale(mysql_type):
        return present
    return widen(present, wanted) or present


def parse_images(changes: DataFrame, columns: Iterable[SourceColumn]) -> DataFrame:
    """Add `wire` STRUCT<column: STRING, ...>: the row after the change, every value as the text it came as."""
    schema = StructType([StructField(c.name, StringType()) for c in columns])
    return changes.withColumn("wire", F.from_json("after", schema))


def type_rows(parsed: DataFrame, columns: list[SourceColumn], wire: str, time_zone: str) -> DataFrame:
    """Add `row`, the typed STRUCT under the history's names, and `has_problem` BOOLEAN: a value was lost in typing.

    In: `parse_images`. A value that does not fit its type is NULL in `row`; `problems` tells which.
    """
    typed = F.struct(*[_decoded(c, wire, time_zone).alias(c.column) for c in columns])
    lost = F.lit(False)
    for c in columns:
        lost = lost | (F.col("wire").getField(c.name).isNotNull() & F.col("row").getField(c.column).isNull())
    return parsed.withColumn("row", typed).withColumn("has_problem", lost)


def _decoded(column: SourceColumn, wire: str, time_zone: str) -> Column:
    value = F.col("wire").getField(column.name)
    if column.type is None:
        return F.lit(None).cast(column.target)
    return decode(value, column.type, wire, time_zone, column.target)


def problems(typed: DataFrame, columns: list[SourceColumn]) -> DataFrame:
    """One row for each value that was lost in typing.

    In: `type_rows`. Out: release AS batch, topic, partition, offset, index, database, table, `column` STRING, `reason`
    STRING, `value` BINARY (its text on the wire).
    """

    def each(c: SourceColumn) -> Column:
        value, typed_value = F.col("wire").getField(c.name), F.col("row").getField(c.column)
        unknown = F.when(value.isNotNull(), str(Reason.UNKNOWN_COLUMN_TYPE))
        reason = unknown if c.type is None else problem(value, typed_value, c.type)
        return F.struct(F.lit(c.name).alias("column"), reason.alias("reason"), value.cast("binary").alias("value"))

    found = F.filter(F.array(*[each(c) for c in columns]), lambda p: p["reason"].isNotNull())
    place = [F.col(c) for c in ("topic", "partition", "offset", "index", "database", "table")]
    return typed.where("has_problem").select(F.col("release").alias("batch"), *place, F.inline(found))


def scales_seen(parsed: DataFrame, names: list[str]) -> Mapping[str, int]:
    """Column -> the most digits after the point that its values show. One job; only for decimals of unknown scale."""
    digits = [F.max(F.length(F.substring_index(F.col("wire").getField(n), ".", -1))) for n in names]
    dotted = [F.max(F.col("wire").getField(n).contains(".")) for n in names]
    found = parsed.agg(*digits, *dotted).head()
    if found is None:
        return dict.fromkeys(names, 0)
    return {n: (found[i] or 0) if found[len(names) + i] else 0 for i, n in enumerate(names)}
