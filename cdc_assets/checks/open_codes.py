"""What Open Protocol messages say of each column's type, held against the reference table.

The reference is `ticdc-open-protocol`, sections on type codes and column flags, as `mysql_types.open_protocol` has it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import pandera.pandas as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.checks.observations import (
    NULL,
    OUTSIDE,
    PLACE,
    WHERE,
    Observed,
    Rules,
    json_type,
    seen,
    seen_of,
    value_class,
)
from cdc_assets.mysql_types.open_protocol import CODES, type_text, wrong_flags
from cdc_assets.mysql_types.reference import Range, value_range
from cdc_assets.mysql_types.types import INTEGERS, parsed
from cdc_assets.tables.change_events import Kind

_WHAT = [*WHERE, "mysql_type", "type_code", "flags", "json_type", "value_class"]
_UNSIGNED = 0x80  # the flag


def rules() -> Rules:
    """What holds for the messages of a feed."""
    return Rules(
        observe=lambda events, _: observe(events),
        codes=type_code_schema(),
        what=tuple(_WHAT),
        expected=_expected,
    )


def observe(events: DataFrame) -> list[Observed]:
    """Boil row events down to their observations, in one pass: a (table, column, code, flags, JSON type, class of value).

    In: rows of change_events. Out: `_WHAT` and `SEEN`; the value matters for integers only, for others the class is `any`.
    """
    rows = events.where(F.col("kind") == str(Kind.ROW))
    # In an UPDATE the types are those of the new row.
    parsed_rows = rows.select(
        *WHERE[:2],
        *PLACE,
        F.from_json(F.coalesce("after", "before"), "MAP<STRING, VARIANT>").alias("row"),
        F.explode(F.from_json("layout", "MAP<STRING, STRUCT<t: INT, f: INT>>")).alias("column", "type"),
    )
    valued = parsed_rows.select(
        *WHERE, *PLACE, "type.t", "type.f", F.try_element_at("row", F.col("column")).alias("value")
    )
    text = F.col("value").cast("string")
    classed = valued.select(
        *WHERE,
        F.col("t").alias("type_code"),
        F.col("f").alias("flags"),
        json_type(F.col("value")).alias("json_type"),
        value_class(text, _ranges()).alias("value_class"),
        *PLACE,
        F.substring(text, 1, 200).alias("text"),
    )
    by = [*WHERE, "type_code", "flags", "json_type", "value_class"]
    found = classed.groupBy(*by).agg(*seen(F.col("text"))).collect()
    return [{c: r[c] for c in by} | {"mysql_type": type_text(r["type_code"], r["flags"])} | seen_of(r) for r in found]


def _range(code: int, flags: int) -> Range | None:
    """The range of an integer type."""
    mysql_type = parsed(type_text(code, flags))
    return value_range(mysql_type) if mysql_type and mysql_type.base in INTEGERS else None


def _ranges() -> Column:
    """The ranges that `value_class` takes, by code and flag."""
    found = F.array().cast("array<array<string>>")
    for code in CODES:
        for flags in (0, _UNSIGNED):
            if limits := _range(code, flags):
                mine = (F.col("t") == code) & (F.col("f").bitwiseAND(_UNSIGNED) == flags)
                here = F.array(F.array(F.lit(str(limits.low)), F.lit(str(limits.high))))
                found = F.when(mine, here).otherwise(found)
    return found


def _each(frame: pd.DataFrame, fine: Callable[..., bool], *columns: str) -> pd.Series:
    return pd.Series([fine(*row) for row in zip(*(frame[c] for c in columns), strict=True)], index=frame.index)


def _json_fits(code: int, json_type: str) -> bool:
    return json_type == NULL or code not in CODES or CODES[code].json == json_type


def type_code_schema() -> pa.DataFrameSchema:
    """Every code is known, with flags that may stand beside it, and a value as the code prescribes."""
    known = pa.Check.isin(sorted(CODES), name="known_type_code", error=f"not one of the codes {sorted(CODES)}")
    checks = [
        pa.Check(
            lambda frame: _each(frame, lambda t, f: wrong_flags(t, f) is None, "type_code", "flags"),
            name="flags_fit_type",
            error="flags that the type cannot have",
        ),
        pa.Check(
            lambda frame: _each(frame, _json_fits, "type_code", "json_type"),
            name="json_type_fits_code",
            error="not the JSON type that the code prescribes",
        ),
        pa.Check(
            lambda frame: frame["value_class"] != OUTSIDE,
            name="value_in_range",
            error="outside the range of the type",
        ),
    ]
    return pa.DataFrameSchema({"type_code": pa.Column("int64", known, coerce=True)}, checks=checks)


def _expected(row: Mapping[str, Any]) -> str:
    code, flags = row["type_code"], row["flags"]
    known = CODES.get(code)
    limits = _range(code, flags)
    told = [f"JSON {known.json}" if known else "no such code", f"{limits.low}..{limits.high}" if limits else None]
    return ", ".join(t for t in (*told, wrong_flags(code, flags)) if t)
