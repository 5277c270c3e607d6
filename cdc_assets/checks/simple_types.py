"""What the values of Simple Protocol messages are, held against the schema that they name and the reference table.

The reference is `ticdc-simple-protocol`, sections "TableSchema definition" and "mysqlType reference table", as
`mysql_types.simple` and `mysql_types.reference` have it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import pandera.pandas as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.checks.observations import (
    NOT_NULL,
    NULL,
    OUTSIDE,
    PLACE,
    TOO_LONG,
    WHERE,
    Observed,
    Rules,
    json_type,
    range_name,
    seen,
    seen_of,
    value_class,
)
from cdc_assets.mysql_types.reference import TYPES, Family, value_range
from cdc_assets.mysql_types.simple import WIRE_TYPES, largest_length
from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets.tables.change_events import Kind
from cdc_assets.tables.schema import BIGINT, BOOLEAN, STRING, array, frame_of, struct

_WHAT = [*WHERE, "mysql_type", "nullable", "wire_type", "value_class"]


class _Limits(NamedTuple):
    """What a value of a column may be: an integer in [low, high], or a text of so many characters or bytes."""

    name: str
    type: str
    nullable: bool
    low: str | None = None
    high: str | None = None
    characters: int | None = None
    bytes: int | None = None


_COLUMN = struct(name=STRING, type=STRING, nullable=BOOLEAN, low=STRING, high=STRING, characters=BIGINT, bytes=BIGINT)
_SCHEMA = struct(database=STRING, table=STRING, schema_version=BIGINT, table_id=BIGINT, columns=array(_COLUMN))


def rules() -> Rules:
    """What holds for the messages of a feed."""
    return Rules(observe=observe, codes=value_schema(), what=tuple(_WHAT), expected=_expected)


def observe(events: DataFrame, known: Sequence[Mapping[str, Any]]) -> list[Observed]:
    """Boil row events down to their observations: a (table, column, type, NULL or not, wire type, class of value).

    In: rows of change_events, and of table_schemas. Out: `_WHAT` and `SEEN`. Rows whose schema is not known are left out:
    they wait, and are looked at when it has come. In an UPDATE the new row counts.
    """
    schemas = [
        {name: s[name] for name in ("database", "table", "schema_version", "table_id")}
        | {"columns": [limits_of(c)._asdict() for c in s["columns"]]}
        for s in known
        if s["schema_version"] is not None
    ]
    frame = frame_of(events.sparkSession, schemas, _SCHEMA)
    entries = F.collect_list(F.struct("table_id", "columns"))
    by_version = frame.groupBy("database", "table", "schema_version").agg(F.map_from_entries(entries).alias("schemas"))
    rows = events.where(F.col("kind") == str(Kind.ROW))
    joined = rows.join(F.broadcast(by_version), on=["database", "table", "schema_version"])
    values = (
        joined.withColumn("columns", _schema_of(F.col("schemas"), F.col("table_id")))
        .where(F.col("columns").isNotNull())
        .select(
            *WHERE[:2],
            *PLACE,
            F.map_from_entries(F.transform("columns", lambda c: F.struct(c["name"], c))).alias("columns"),
            F.from_json("wire_types", "MAP<STRING, STRING>").alias("branches"),
            F.explode(F.from_json(F.coalesce("after", "before"), "MAP<STRING, VARIANT>")).alias("column", "value"),
        )
    )
    name = F.col("column")
    typed = values.select(
        *WHERE,
        *PLACE,
        F.try_element_at("columns", name).alias("c"),
        F.coalesce(F.try_element_at("branches", name), json_type(F.col("value"))).alias("wire_type"),
        F.col("value").cast("string").alias("text"),
    )
    by = [*WHERE, "mysql_type", "nullable", "wire_type", "value_class"]
    classed = typed.select(
        *WHERE,
        F.col("c.type").alias("mysql_type"),
        F.col("c.nullable").alias("nullable"),
        "wire_type",
        _class().alias("value_class"),
        *PLACE,
        F.substring("text", 1, 200).alias("text"),
    )
    found = classed.groupBy(*by).agg(*seen(F.col("text"))).collect()
    return [{c: r[c] for c in by} | seen_of(r) for r in found]


def _schema_of(schemas: Column, table_id: Column) -> Column:
    """The schema of a row out of the `schemas` of its table's name and version; null when it is not known.

    As `gate.layouts` does it.
    """
    shapes = F.array_distinct(F.map_values(schemas))
    return F.coalesce(F.try_element_at(schemas, table_id), F.when(F.size(shapes) == 1, F.get(shapes, F.lit(0))))


def limits_of(column: Mapping[str, Any]) -> _Limits:
    """The limits of a column of a table schema."""
    plain = _Limits(column["name"], column["type"], column["nullable"] is not False)
    mysql_type = parsed(column["type"])
    if mysql_type is None:
        return plain
    family = TYPES[mysql_type.base].family
    if (limits := _integers(mysql_type)) is not None:
        return plain._replace(low=str(limits[0]), high=str(limits[1]))
    if family in {Family.TEXT, Family.BINARY}:
        # MySQL counts a text's bytes in a character set of its own, in which a character has one at least.
        longest = mysql_type.length or largest_length(mysql_type)
        return plain._replace(characters=longest) if family is Family.TEXT else plain._replace(bytes=longest)
    return plain


def _integers(mysql_type: MySQLType) -> tuple[int, int] | None:
    """The smallest and largest number that a value is on the wire; None for other than numbers."""
    family, labels = TYPES[mysql_type.base].family, len(mysql_type.labels or ())
    if family is Family.ENUM:
        return (0, labels) if labels else None
    if family in {Family.SET, Family.BIT}:
        width = labels if family is Family.SET else mysql_type.length
        high = (1 << (width or 64)) - 1
        return (-(1 << 63) if high >= 1 << 63 else 0, high)  # Avro has no unsigned numbers
    if family is Family.YEAR:
        return (0, 2155)
    limits = value_range(mysql_type)
    return (limits.low, limits.high) if limits else None


def _class() -> Column:
    """The `value_class` of the column `text`, by its limits `c`."""
    text, column = F.col("text"), F.col("c")
    limits = F.when(column["low"].isNotNull(), F.array(F.array(column["low"], column["high"])))
    padding = F.length(text) - F.length(F.rtrim(text, F.lit("=")))
    in_base64 = F.length(text) / 4 * 3 - padding
    too_long = F.coalesce((F.length(text) > column["characters"]) | (in_base64 > column["bytes"]), F.lit(False))
    # A column that the schema does not have is another rule's.
    return value_class(text, limits, too_long, nullable=F.coalesce(column["nullable"], F.lit(True)))


def value_schema() -> pa.DataFrameSchema:
    """Every column is one of its schema, NULL only where it may be, and every value as its type prescribes."""
    known = pa.Check(
        lambda frame: frame["mysql_type"].notna(), name="column_known", error="not a column of its schema version"
    )
    null = pa.Check(lambda frame: frame["value_class"] != NOT_NULL, name="nullable", error="NULL in a NOT NULL column")
    fits = pa.Check(
        lambda frame: ~frame["value_class"].isin([OUTSIDE, TOO_LONG]),
        name="value_fits_type",
        error="outside the range, or the length, of the type",
    )
    wire = pa.Check(
        lambda frame: pd.Series(
            [_wire_fits(t, w) for t, w in zip(frame["mysql_type"], frame["wire_type"], strict=True)], index=frame.index
        ),
        name="wire_type_fits",
        error="not the JSON type or Avro branch of the type",
    )
    return pa.DataFrameSchema({}, checks=[known, null, fits, wire])


def _allowed(text: str | None) -> tuple[str, ...]:
    mysql_type = parsed(text)
    if mysql_type is None:
        return ()
    unsigned = f"{mysql_type.base} unsigned" if mysql_type.unsigned else mysql_type.base
    return WIRE_TYPES.get(unsigned) or WIRE_TYPES.get(mysql_type.base, ())


def _wire_fits(text: str | None, wire_type: str) -> bool:
    """A type that is not known has no wire type: that is another check's."""
    return wire_type == NULL or not _allowed(text) or wire_type in _allowed(text)


def _expected(row: Mapping[str, Any]) -> str:
    mysql_type = parsed(row["mysql_type"])
    limits = mysql_type and _integers(mysql_type)
    longest = mysql_type and (mysql_type.length or largest_length(mysql_type))
    size = f"at most {longest} long" if longest and not limits else None
    told = [" or ".join(_allowed(row["mysql_type"])), range_name(*limits) if limits else size]
    return ", ".join(t for t in told if t)
