"""The type rules of the Simple Protocol: its values, compared with the schemas that rows name and the reference table.

The reference is `ticdc-simple-protocol`, sections "TableSchema definition" and "mysqlType reference table";
`wire_types` and `mysql_types.descriptors` hold it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import CORRUPTED
from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets.protocols.simple.wire_types import WIRE_TYPES
from cdc_assets.type_checks.declared_types import SchemaRows
from cdc_assets.type_checks.observations import COLUMN_FIELDS, LayoutGroup, MessageColumn, RowLayout, format_range
from cdc_assets.type_checks.row_images import Observation
from cdc_assets.type_checks.rules import NO_SUCH_TYPE, Rules, ValuesFit
from cdc_assets.type_checks.validation import is_in_table, make_rule_table, pa
from cdc_assets.type_checks.values import LOWER, UPPER, Limits, TextForm, ValueClass, limits_of

_ALL_COLUMNS = "*"


def _make_layout(
    group: LayoutGroup, schemas: Mapping[tuple[str, str, int], SchemaRows], given_types: Mapping[str, str]
) -> RowLayout | None:
    """Return the columns of a group of row events, by the schema that the rows name; None if it has not come.

    Args:
        group: the events.
        schemas: database, table and schema version -> rows of table_schemas.
        given_types: `database.table.column` -> the type that the feeds file gives.
    """
    version, table_id, encoding = (group.stated[name] for name in ("schema_version", "table_id", "encoding"))
    schema = _find_schema(schemas.get((group.database, group.table, version), ()), table_id)
    if schema is None:
        return None
    # Go writes the keys of an object in this order.
    in_order = sorted(schema["columns"], key=lambda column: str(column["name"]))
    columns = [
        _make_column(column, encoding, given_types.get(f"{group.database}.{group.table}.{column['name']}"))
        for column in in_order
    ]
    # A schema includes virtual generated columns, which no row has, and columns that a filter leaves out.
    may_lack = frozenset(column.name for column in columns).difference(schema["key_columns"] or ())
    return RowLayout(group, columns, may_lack)


def _observe_corrupted(group: LayoutGroup) -> Observation:
    """Return the observation of rows whose checksum is wrong."""
    place = {"database": group.database, "table": group.table, "column": _ALL_COLUMNS, "mysql_type": None}
    # All columns together have no type.
    own = {"encoding": group.stated["encoding"], "type_optional": True, "value_class": ValueClass.CORRUPTED}
    return place | own | group.occurrences


def _find_schema(schemas: SchemaRows, table_id: int) -> Mapping[str, Any] | None:
    """Return the schema of a row; None if it has not come.

    `release.layouts` has the same rule.

    Args:
        schemas: rows of table_schemas, of the row's table name and schema version.
        table_id: the table id of the row.
    """
    by_id = {schema["table_id"]: schema for schema in schemas}
    if table_id in by_id or not by_id:
        return by_id.get(table_id)
    first, *others = by_id.values()
    are_equal = all(other[name] == first[name] for other in others for name in ("columns", "key_columns"))
    return first if are_equal else None


def _make_column(column: Mapping[str, Any], encoding: str, given: str | None) -> MessageColumn:
    """Return a column of a schema with what its values may be; `given`: its type in the feeds file."""
    nullable = column["nullable"] is not False
    declared = parsed(column["type"])
    limits = limits_in(parsed(given) if given else declared, encoding)._replace(
        null=None if nullable else ValueClass.NOT_NULL
    )
    of_scale_zero = not given and declared is not None and declared.base == "decimal" and declared.scale == 0
    own = {"nullable": nullable, "encoding": encoding, "kind": _kind(declared), "of_scale_zero": of_scale_zero}
    return MessageColumn(column["name"], column["type"], own, limits)


def limits_in(mysql_type: MySQLType | None, encoding: str) -> Limits:
    """Return what the values of a type may be in an encoding, `json` or `avro`."""
    limits = limits_of(mysql_type, binary=TextForm.BASE64)
    wires = WIRE_TYPES[encoding].get(_kind(mysql_type) or "")
    limits = limits._replace(wires=wires)
    if (
        encoding == "avro"
        and limits.ranges
        and limits.ranges[3] >= 1 << 63
        and mysql_type
        and mysql_type.base != "bigint"
    ):
        # Avro has no unsigned numbers: TiCDC sends numbers above the largest long as two's complement.
        return limits._replace(ranges=(-(1 << 63), limits.ranges[1], -(1 << 63), limits.ranges[3]))
    return limits


def _kind(mysql_type: MySQLType | None) -> str | None:
    """Return the name that a type has in the table of wire types."""
    if mysql_type is None:
        return None
    return "bigint unsigned" if mysql_type.base == "bigint" and mysql_type.unsigned else mysql_type.base


_WIRES = make_rule_table(
    {
        (encoding, kind, wire)
        for encoding, kinds in WIRE_TYPES.items()
        for kind, wires in kinds.items()
        for wire in wires
    }
)

_KINDS = frozenset(kind for kinds in WIRE_TYPES.values() for kind in kinds)
_NO_DECIMAL = (
    "the schema message gives the DECIMAL no digits after the point, as TiCDC leaves `decimal` out of its dataType where "
    "the scale is 0; if the source's column has a scale, give the column its type with the scale under columns:"
)
# By the document an unsigned BIGINT comes as a long if a long holds it, and else as a string.
_BRANCHES = make_rule_table({("long", LOWER), ("string", UPPER), ("UnsignedBigint", f"0..{(1 << 64) - 1}")})


class WireTypes(ValuesFit):
    """The rule that every value has the wire type that the reference prescribes for its MySQL type."""

    encoding: object = pa.Field(nullable=True)
    kind: object = pa.Field(nullable=True)
    wire_type: object = pa.Field(nullable=True)
    of_scale_zero: object = pa.Field(coerce=True, nullable=True)

    @pa.dataframe_check(name="type_has_wire_types", error=NO_SUCH_TYPE)
    def type_has_wire_types(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805 -- pandera's form
        """Check that the table of wire types has the column's type; the observation of a corrupted row has no type."""
        return frame["kind"].isin(sorted(_KINDS)) | (frame["value_class"] == ValueClass.CORRUPTED)

    @pa.dataframe_check(name="wire_type_fits", error="not the JSON type or Avro branch of the type")
    def wire_type_fits(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check the wire type of the reference's types; an observation of NULLs has the usual wire type."""
        return is_in_table(frame, ["encoding", "kind", "wire_type"], _WIRES) | ~frame["kind"].isin(sorted(_KINDS))

    @pa.dataframe_check(name="scale_holds_value", error=_NO_DECIMAL)
    def scale_holds_value(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Explain a DECIMAL of scale 0 whose value has digits after the point."""
        return ~(frame["of_scale_zero"].isin([True]) & (frame["value_class"] == ValueClass.OUTSIDE))

    @pa.dataframe_check(name="branch_fits_value", error="not the Avro branch of the value")
    def branch_fits_value(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check an unsigned BIGINT in Avro whose value and branch break no other rule."""
        is_checked = (frame["encoding"] == "avro") & (frame["kind"] == "bigint unsigned")
        is_checked &= ~frame["value_class"].isin(list(ValueClass)) & frame["wire_type"].isin(
            WIRE_TYPES["avro"]["bigint unsigned"]
        )
        return is_in_table(frame, ["wire_type", "value_class"], _BRANCHES) | ~is_checked


class SimpleRules(Rules):
    """The type rules of the Simple Protocol. The schema that a row names has all columns of the row."""

    model = WireTypes
    fields = (*COLUMN_FIELDS, "mysql_type", "nullable", "encoding", "wire_type", "value_class")

    def state_columns(self) -> dict[str, Column]:
        """Return which schema a row names, its encoding, and whether its checksum is wrong."""
        return {
            "table_id": F.col("table_id"),
            "schema_version": F.col("schema_version"),
            "encoding": F.when(F.col("wire_types").isNull(), "json").otherwise("avro"),
            "corrupted": F.coalesce(F.col("detail") == CORRUPTED, F.lit(False)),
        }

    def make_layouts(
        self, groups: Sequence[LayoutGroup], schemas: SchemaRows, given_types: Mapping[str, str]
    ) -> list[RowLayout]:
        """Return the columns of groups of row events, by the schemas that the rows name.

        Rows whose schema has not come are left out: the gate holds them, and a later run observes them.
        """
        numbered: dict[tuple[str, str, int], list[Mapping[str, Any]]] = defaultdict(list)
        for row in schemas:
            if row["schema_version"] is not None:
                numbered[row["database"], row["table"], row["schema_version"]].append(row)
        layouts = (_make_layout(group, numbered, given_types) for group in groups)
        return [layout for layout in layouts if layout is not None]

    def observe_groups(self, groups: Sequence[LayoutGroup]) -> list[Observation]:
        """Return the observations of rows whose checksum is wrong; the checksum does not say which column is."""
        return [_observe_corrupted(group) for group in groups if group.stated["corrupted"]]

    def expected(self, row: Mapping[str, Any]) -> str:
        """Return the wire types and the size that an observation's type prescribes, for people."""
        mysql_type = parsed(row["mysql_type"])
        if row["column"] == _ALL_COLUMNS:
            return "a checksum that holds"
        if mysql_type is None:
            return "no such type" if row["mysql_type"] else "no such column"
        limits = limits_in(mysql_type, row["encoding"])
        if limits.wires is None:
            return "no such type"
        size = f"at most {limits.length} long" if limits.length and limits.form is not TextForm.DECIMAL else None
        parts = [" or ".join(limits.wires or ()), format_range(*limits.ranges[:2]) if limits.ranges else size]
        return ", ".join(part for part in parts if part)
