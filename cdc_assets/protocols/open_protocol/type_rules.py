"""What Open Protocol messages say of each column's type, held against the reference table.

The reference is `ticdc-open-protocol`, sections on type codes and column flags, as `mysql_types.open_protocol` has it.
"""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.mysql_types.open_protocol import CODES, ColumnFlag, JsonType, type_text, wrong_flags
from cdc_assets.mysql_types.types import parsed
from cdc_assets.type_checks.declared_types import SchemaRows, complete_decimal, make_schema_lookup
from cdc_assets.type_checks.observations import (
    COLUMN_FIELDS,
    MessageColumn,
    RowLayout,
    Rules,
    ValuesFit,
    format_range,
    group_by_layout,
    observe_missing_columns,
    observe_values,
    select_row_events,
    with_layout_hash,
)
from cdc_assets.type_checks.row_images import Earlier, Observation, Sending, nothing_earlier
from cdc_assets.type_checks.validation import is_in_table, make_rule_table, pa
from cdc_assets.type_checks.values import TextForm, ValueClass, limits_of

_WHAT = (*COLUMN_FIELDS, "mysql_type", "type_code", "flags", "wire_type", "value_class")
_ALL_FLAGS = sum(ColumnFlag)


def rules() -> Rules:
    """What holds for the messages of a feed."""
    return Rules(observe=observe, model=TypeCodes, fields=_WHAT, expected=_expected)


def observe(
    events: DataFrame, known: SchemaRows, columns: Mapping[str, str], earlier: Earlier = nothing_earlier
) -> list[Observation]:
    """Boil row events down to their observations: one a (table, column, code, flags, JSON type, class of value).

    In: rows of change_events, and of table_schemas, the types that the feeds file gives, and the columns that rows of
    earlier runs have had. Out: `_WHAT` and `OCCURRENCE_FIELDS`. In an UPDATE the types and values are those of the new row.
    """
    rows = with_layout_hash(select_row_events(events), layout=F.col("layout"))
    stated = make_schema_lookup(known)
    layouts = []
    for group in group_by_layout(rows, "layout"):
        shapes = stated(group.database, group.table, group.span)
        told = []
        for name, each in json.loads(group.stated["layout"]).items():
            given = columns.get(f"{group.database}.{group.table}.{name}")
            others = [t for shape in shapes if name in shape and (t := parsed(shape[name]["type"]))]
            told.append(_told(name, each["t"], each["f"], given, others))
        layouts.append(RowLayout(group, told))
    sending = Sending(by_commit_ts=True, statements=True)
    return [
        *observe_values(rows, layouts, has_wire_types=True),
        *observe_missing_columns(layouts, known, sending, earlier),
    ]


def _told(name: str, code: int, flags: int, given: str | None, others: list[Any]) -> MessageColumn:
    text = type_text(code, flags)
    mysql_type = parsed(given) if given else complete_decimal(parsed(text), others)
    # Texts of blobs are in base64, and so are TEXTs; of the others those that are bytes have Go's escapes.
    encoded = code in {249, 250, 251, 252}
    limits = limits_of(mysql_type, binary=TextForm.BASE64 if encoded else TextForm.ANY)
    if encoded:
        limits = limits._replace(form=TextForm.BASE64)
    row = CODES.get(code)
    if row is not None:
        limits = limits._replace(wires=(str(row.json),))
        # Without any flag nothing is said of the column, as in the document's examples.
        if flags and not flags & ColumnFlag.NULLABLE and row.json is not JsonType.NONE:
            limits = limits._replace(null=ValueClass.NOT_NULL)
    # A column of type NULL is always NULL, says the document: it has no other type.
    always_null = row is not None and row.json is JsonType.NONE
    return MessageColumn(name, text, {"type_code": code, "flags": flags}, limits, type_optional=always_null)


_FLAGS = make_rule_table(
    {(code, flags) for code in CODES for flags in range(_ALL_FLAGS + 1) if wrong_flags(code, flags) is None}
)
_WIRES = make_rule_table({(code, str(row.json)) for code, row in CODES.items()})


class TypeCodes(ValuesFit):
    """Every code is known, with flags that may stand beside it, and a value of the JSON type that it prescribes."""

    type_code: pd.Int64Dtype = pa.Field(coerce=True)
    flags: pd.Int64Dtype = pa.Field(coerce=True)
    wire_type: object = pa.Field(nullable=True)

    @pa.check("type_code", name="known_type_code", error=f"not one of the codes {sorted(CODES)}")
    def known_type_code(cls, codes: pd.Series) -> pd.Series:  # noqa: N805 -- pandera's form
        """Check the code of any column; that there is none breaks the column's own rule, not to be null."""
        return codes.isin(sorted(CODES))

    @pa.dataframe_check(name="flags_fit_type", error="flags that the type cannot have")
    def flags_fit_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check flags beside a code that is known; a code that is not, and missing flags, break rules of their own."""
        judged_elsewhere = ~frame["type_code"].isin(sorted(CODES)) | frame["flags"].isna()
        return is_in_table(frame, ["type_code", "flags"], _FLAGS) | judged_elsewhere

    @pa.dataframe_check(name="json_type_fits_code", error="not the JSON type that the code prescribes")
    def json_type_fits_code(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check the JSON type beside a code that is known; an observation of NULLs has the usual JSON type."""
        return is_in_table(frame, ["type_code", "wire_type"], _WIRES) | ~frame["type_code"].isin(sorted(CODES))


def _expected(row: Mapping[str, Any]) -> str:
    code, flags = row.get("type_code"), row.get("flags")
    if code is None or flags is None:
        return "no such column"
    known, limits = CODES.get(code), limits_of(parsed(type_text(code, flags))).ranges
    told = [f"JSON {known.json}" if known else "no such code", format_range(*limits[2:]) if limits else None]
    return ", ".join(t for t in (*told, wrong_flags(code, flags)) if t)
