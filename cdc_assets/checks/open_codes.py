"""What Open Protocol messages say of each column's type, held against the reference table.

The reference is `ticdc-open-protocol`, sections on type codes and column flags, as `mysql_types.open_protocol` has it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import pandera.pandas as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.checks.observations import ANY, NULL, OUTSIDE, SEEN, WHERE, Rules, parsed, range_name
from cdc_assets.mysql_types.open_protocol import CODES, JsonType, type_text, wrong_flags
from cdc_assets.mysql_types.reference import Range, value_range
from cdc_assets.mysql_types.types import INTEGERS
from cdc_assets.protocols.events import Kind

_WHAT = [*WHERE, "mysql_type", "type_code", "flags", "json_type", "value_class"]
_OTHER = "other"


def observe(events: DataFrame) -> pd.DataFrame:
    """Boil row events down to their observations, in one pass: a (table, column, code, flags, JSON type, class of value).

    In: rows of change_events. Out: `_WHAT` and `SEEN`; the value matters for integers only, for others the class is `any`.
    """
    rows = events.where(F.col("kind") == str(Kind.ROW))
    # In an UPDATE the types are those of the new row.
    parsed_rows = rows.select(
        *WHERE[:2],
        *SEEN[1:4],
        F.from_json(F.coalesce("after", "before"), "MAP<STRING, VARIANT>").alias("row"),
        F.explode(F.from_json("mysql_types", "MAP<STRING, STRUCT<t: INT, f: INT>>")).alias("column", "type"),
    )
    valued = parsed_rows.select(
        *WHERE, *SEEN[1:4], "type.t", "type.f", F.try_element_at("row", F.col("column")).alias("value")
    )
    text = F.col("value").cast("string")
    classed = valued.select(
        *WHERE,
        F.col("t").alias("type_code"),
        F.col("f").alias("flags"),
        _json_type(F.col("value")).alias("json_type"),
        _value_class(text).alias("value_class"),
        F.struct(*SEEN[1:4], F.substring(text, 1, 200).alias("sample_value")).alias("at"),
    )
    by = [*WHERE, "type_code", "flags", "json_type", "value_class"]
    found = classed.groupBy(*by).agg(F.count("*").alias("events"), F.min("at").alias("at")).collect()
    observations = [
        {c: r[c] for c in by}
        | {"mysql_type": type_text(r["type_code"], r["flags"]), "events": r["events"]}
        | r["at"].asDict()
        for r in found
    ]
    return pd.DataFrame(observations, columns=[*_WHAT, *SEEN])


def _json_type(value: Column) -> Column:
    schema = F.schema_of_variant(value)
    numbers = schema.isin("BIGINT", "DOUBLE", "FLOAT") | schema.startswith("DECIMAL")
    return (
        F.when(value.isNull() | (schema == "VOID"), NULL)
        .when(schema == "STRING", str(JsonType.STRING))
        .when(numbers, str(JsonType.NUMBER))
        .otherwise(_OTHER)
    )


def _range(code: int, flags: int) -> Range | None:
    """The range of an integer type."""
    mysql_type = parsed(type_text(code, flags))
    return value_range(mysql_type) if mysql_type and mysql_type.base in INTEGERS else None


def _value_class(text: Column) -> Column:
    number = F.when(text.rlike(r"^-?[0-9]+\z"), text.try_cast("decimal(38,0)"))
    found = F.lit(ANY)
    for code in CODES:
        for flags in (0, 0x80):
            if limits := _range(code, flags):
                low, high = (F.lit(str(limit)).cast("decimal(38,0)") for limit in limits)
                mine = (F.col("t") == code) & (F.col("f").bitwiseAND(0x80) == flags)
                inside = F.coalesce(number.between(low, high), F.lit(False))
                found = F.when(mine, F.when(inside, range_name(*limits)).otherwise(OUTSIDE)).otherwise(found)
    return F.when(text.isNull(), NULL).otherwise(found)


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


def _expected(row: Mapping[str, Any]) -> dict[str, Any]:
    code, flags = row["type_code"], row["flags"]
    known = CODES.get(code)
    limits = _range(code, flags)
    told = [f"JSON {known.json}" if known else "no such code", f"{limits.low}..{limits.high}" if limits else None]
    return {"expected": ", ".join(t for t in (*told, wrong_flags(code, flags)) if t)}


RULES = Rules(observe=observe, codes=type_code_schema(), called="type code", what=tuple(_WHAT), expected=_expected)
