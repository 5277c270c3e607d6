"""What Canal-JSON messages say of each column's type, held against the reference table.

The reference is `ticdc-canal-json`, sections "MySQL Type", "SQL Type" and "integer types", as `mysql_types.reference` has
it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pandera.pandas as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.checks.observations import (
    ANY,
    NULL,
    OUTSIDE,
    PLACE,
    WHERE,
    Observed,
    Rules,
    added,
    range_name,
    seen,
    seen_of,
    value_class,
)
from cdc_assets.mysql_types.reference import JDBC, JdbcRow, Source, jdbc_rows
from cdc_assets.mysql_types.types import parsed
from cdc_assets.tables.change_events import Kind
from cdc_assets.tables.schema import STRING, array, frame_of, struct

_WHAT = [*WHERE, "mysql_type", "jdbc_code", "value_class"]


@dataclass(frozen=True)
class _Ranged:
    """A column whose code depends on its value, or on whether it is NULL: the classes are the ranges in the reference."""

    database: str
    table: str
    column: str
    mysql_type: str
    ranges: tuple[tuple[int, int], ...]


def rules(sources: frozenset[Source]) -> Rules:
    """What holds for the messages of these sources."""

    def expected(row: Mapping[str, Any]) -> str:
        codes = expected_codes(row["mysql_type"], row["value_class"], sources)
        return ", ".join(map(str, codes)) if codes else "no such type"

    return Rules(
        observe=lambda events, _: observe(events, sources),
        codes=jdbc_type_schema(sources),
        what=tuple(_WHAT),
        expected=expected,
    )


def observe(events: DataFrame, sources: frozenset[Source]) -> list[Observed]:
    """Boil row events down to their observations: one row a (table, column, type, code, class of value).

    In: rows of change_events. Out: `_WHAT` and `SEEN`. The value matters for the types only whose code depends on it
    (unsigned integers, Canal's SET); else its class is `any`.
    """
    rows = events.where(F.col("kind") == str(Kind.ROW))
    layouts = rows.groupBy("database", "table", "layout", "jdbc_types").agg(*seen()).collect()
    found: dict[tuple[Any, ...], Observed] = {}
    ranged: dict[tuple[str, str, str, str], _Ranged] = {}
    for layout in layouts:
        codes = json.loads(layout["jdbc_types"])
        for column, text in json.loads(layout["layout"])["types"].items():
            where = (layout["database"], layout["table"], column, text)
            ranges = _ranges(text, sources)
            if ranges is not None:
                ranged[where] = _Ranged(*where, ranges)
                continue
            what = (*where, codes.get(column), ANY)
            found[what] = added(found.get(what), seen_of(layout))
    for r in _by_value(rows, ranged.values()):
        what = tuple(r[name] for name in _WHAT)
        found[what] = added(found.get(what), seen_of(r))
    return [dict(zip(_WHAT, what, strict=True)) | of for what, of in found.items()]


def _ranges(text: str, sources: frozenset[Source]) -> tuple[tuple[int, int], ...] | None:
    """The value ranges with a code of their own, none where only NULL has one; None: the value does not matter."""
    mysql_type = parsed(text)
    if mysql_type is None:
        return None
    limits = [r.values for r in jdbc_rows(mysql_type, sources) if r.values]
    return tuple(sorted({(low, high) for low, high in limits if low <= high})) if limits else None


def _by_value(rows: DataFrame, ranged: Iterable[_Ranged]) -> list[Any]:
    """Count the values of the columns `ranged` by code and class, in one pass whatever the number of tables."""
    by_table: dict[tuple[str, str], list[_Ranged]] = {}
    for each in ranged:
        by_table.setdefault((each.database, each.table), []).append(each)
    if not by_table:
        return []
    column = struct(column=STRING, mysql_type=STRING, ranges=array(array(STRING)))
    schema = struct(database=STRING, table=STRING, wanted=array(column))
    wanted = frame_of(
        rows.sparkSession,
        [
            {"database": d, "table": t, "wanted": [_looked_at(c) for c in columns]}
            for (d, t), columns in by_table.items()
        ],
        schema,
    )
    # In an UPDATE the code goes by the new value.
    parsed = rows.join(F.broadcast(wanted), on=["database", "table"]).select(
        "database",
        "table",
        *PLACE,
        "wanted",
        F.from_json(F.coalesce("after", "before"), "MAP<STRING, STRING>").alias("row"),
        F.from_json("jdbc_types", "MAP<STRING, INT>").alias("codes"),
        F.from_json("layout", "types MAP<STRING, STRING>")["types"].alias("types"),
    )
    one = parsed.select("*", F.inline("wanted")).where(
        F.try_element_at("types", F.col("column")) == F.col("mysql_type")
    )
    valued = one.where(F.map_contains_key("row", F.col("column"))).select(
        "database",
        "table",
        "column",
        "mysql_type",
        F.try_element_at("codes", F.col("column")).alias("jdbc_code"),
        F.try_element_at("row", F.col("column")).alias("value"),
        "ranges",
        *PLACE,
    )
    classed = valued.withColumn("value_class", value_class(F.col("value"), F.col("ranges")))
    return classed.groupBy(*_WHAT).agg(*seen(F.substring("value", 1, 200))).collect()


def _looked_at(column: _Ranged) -> dict[str, Any]:
    ranges = [[str(low), str(high)] for low, high in column.ranges]
    return {"column": column.column, "mysql_type": column.mysql_type, "ranges": ranges}


def expected_codes(text: str, value_class: str, sources: frozenset[Source]) -> list[int]:
    """The codes that the reference allows beside a type and a class of values; none for an unknown type."""
    mysql_type = parsed(text)
    if mysql_type is None:
        return []
    return sorted({r.code for r in jdbc_rows(mysql_type, sources) if _applies(r, value_class)})


def _applies(row: JdbcRow, value_class: str) -> bool:
    if value_class == NULL:
        return row.null
    if row.values is None:
        return value_class != OUTSIDE
    return range_name(*row.values) == value_class


def jdbc_type_schema(sources: frozenset[Source]) -> pa.DataFrameSchema:
    """Every code is known, and one that the reference has for the column's type and value."""

    def pair(frame: pd.DataFrame) -> pd.Series:
        return pd.Series(
            [
                parsed(t) is None or (not pd.isna(code) and int(code) in expected_codes(t, value, sources))
                for t, code, value in zip(frame["mysql_type"], frame["jdbc_code"], frame["value_class"], strict=True)
            ],
            index=frame.index,
        )

    codes = sorted({row.code for row in JDBC})
    known = pa.Check.isin(codes, name="known_jdbc_code", error=f"not one of the codes {codes}")
    fits = pa.Check(pair, name="code_fits_type_and_value", error="not the code of this type and value")
    return pa.DataFrameSchema({"jdbc_code": pa.Column("Int64", known, coerce=True)}, checks=fits)
