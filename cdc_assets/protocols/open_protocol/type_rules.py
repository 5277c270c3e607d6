"""The type rules of Open Protocol: what its messages state of columns' types, compared with the reference table.

The reference is `ticdc-open-protocol`, sections on type codes and column flags; `codes` holds it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets.protocols.open_protocol.codes import CODES, ColumnFlag, type_text, wrong_flags
from cdc_assets.type_checks.declared_types import SchemaLookup, complete_decimal
from cdc_assets.type_checks.observations import COLUMN_FIELDS, LayoutGroup, MessageColumn, RowLayout, format_range
from cdc_assets.type_checks.row_images import Sending
from cdc_assets.type_checks.rules import LayoutRules, ValuesFit
from cdc_assets.type_checks.validation import is_in_table, make_rule_table, pa
from cdc_assets.type_checks.values import TextForm, ValueClass, limits_of

_ALL_FLAGS = sum(ColumnFlag)


def _make_column(
    name: str, code: int, flags: int, given: str | None, declared_types: Sequence[MySQLType]
) -> MessageColumn:
    """Return a column with what its values may be.

    Args:
        name: the column's name.
        code: its type code.
        flags: its flags.
        given: its type in the feeds file.
        declared_types: its types in the table's schemas at that time.
    """
    text = type_text(code, flags)
    mysql_type = parsed(given) if given else complete_decimal(parsed(text), declared_types)
    # BLOB and TEXT share these codes, and their values come in base64; other bytes come with Go's escapes.
    encoded = code in {249, 250, 251, 252}
    limits = limits_of(mysql_type, binary=TextForm.BASE64 if encoded else TextForm.ANY)
    if encoded:
        limits = limits._replace(form=TextForm.BASE64)
    row = CODES.get(code)
    if row is not None:
        limits = limits._replace(wires=(row.json,))
        # The document's examples have columns without any flag: then the flags do not exclude NULL.
        if flags and not flags & ColumnFlag.NULLABLE and row.json != "none":
            limits = limits._replace(null=ValueClass.NOT_NULL)
    # By the document the value of a column of type NULL is always NULL, so messages state no MySQL type for it.
    always_null = row is not None and row.json == "none"
    return MessageColumn(name, text, {"type_code": code, "flags": flags}, limits, type_optional=always_null)


_FLAGS = make_rule_table(
    {(code, flags) for code in CODES for flags in range(_ALL_FLAGS + 1) if wrong_flags(code, flags) is None}
)
_WIRES = make_rule_table({(code, row.json) for code, row in CODES.items()})


class TypeCodes(ValuesFit):
    """The rule that the reference has every code, permits its flags, and prescribes the JSON type of its values."""

    type_code: pd.Int64Dtype = pa.Field(coerce=True)
    flags: pd.Int64Dtype = pa.Field(coerce=True)
    wire_type: object = pa.Field(nullable=True)

    @pa.check("type_code", name="is_type_code", error=f"not one of the codes {sorted(CODES)}")
    def is_type_code(cls, codes: pd.Series) -> pd.Series:  # noqa: N805 -- pandera's form
        """Check that the reference has the code; a missing code breaks the rule that `type_code` is not null."""
        return codes.isin(sorted(CODES))

    @pa.dataframe_check(name="flags_fit_type", error="flags that the type cannot have")
    def flags_fit_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check the flags of the reference's codes; other codes, and missing flags, break other rules."""
        judged_elsewhere = ~frame["type_code"].isin(sorted(CODES)) | frame["flags"].isna()
        return is_in_table(frame, ["type_code", "flags"], _FLAGS) | judged_elsewhere

    @pa.dataframe_check(name="json_type_fits_code", error="not the JSON type that the code prescribes")
    def json_type_fits_code(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check the JSON type of the reference's codes; an observation of NULLs has the usual JSON type."""
        return is_in_table(frame, ["type_code", "wire_type"], _WIRES) | ~frame["type_code"].isin(sorted(CODES))


class OpenProtocolRules(LayoutRules):
    """The type rules of Open Protocol."""

    model = TypeCodes
    fields = (*COLUMN_FIELDS, "mysql_type", "type_code", "flags", "wire_type", "value_class")
    sending = Sending(by_commit_ts=True, statements=True)

    def state_columns(self) -> dict[str, Column]:
        """Return the codes and flags."""
        return {"layout": F.col("layout")}

    def make_layout(self, group: LayoutGroup, find_schemas: SchemaLookup, given_types: Mapping[str, str]) -> RowLayout:
        """Return the columns of a group of row events."""
        declared = find_schemas(group.database, group.table, group.span)
        columns = []
        for name, each in json.loads(group.stated["layout"]).items():
            given = given_types.get(f"{group.database}.{group.table}.{name}")
            declared_types = [t for schema in declared if name in schema and (t := parsed(schema[name]["type"]))]
            columns.append(_make_column(name, each["t"], each["f"], given, declared_types))
        return RowLayout(group, columns)

    def expected(self, row: Mapping[str, Any]) -> str:
        """Return the JSON type and the range of an observation's code, and what is wrong with its flags, for people."""
        code, flags = row.get("type_code"), row.get("flags")
        if code is None or flags is None:
            return "no such column"
        reference_row, limits = CODES.get(code), limits_of(parsed(type_text(code, flags))).ranges
        json_type = f"JSON {reference_row.json}" if reference_row else "no such code"
        parts = [json_type, format_range(*limits[2:]) if limits else None, wrong_flags(code, flags)]
        return ", ".join(part for part in parts if part)
