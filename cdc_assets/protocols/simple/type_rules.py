"""What the values of Simple Protocol messages are, held against the schema that they name and the reference table.

The reference is `ticdc-simple-protocol`, sections "TableSchema definition" and "mysqlType reference table", as
`mysql_types.simple` and `mysql_types.reference` have it.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import CORRUPTED
from cdc_assets.mysql_types.simple import WIRE_TYPES
from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets.type_checks.declared_types import SchemaRows
from cdc_assets.type_checks.observations import (
    COLUMN_FIELDS,
    NO_SUCH_TYPE,
    LayoutGroup,
    MessageColumn,
    RowLayout,
    Rules,
    ValuesFit,
    format_range,
    group_by_layout,
    observe_values,
    select_row_events,
    with_layout_hash,
)
from cdc_assets.type_checks.row_images import Earlier, Observation, nothing_earlier
from cdc_assets.type_checks.validation import is_in_table, make_rule_table, pa
from cdc_assets.type_checks.values import LOWER, UPPER, Limits, TextForm, ValueClass, limits_of

_WHAT = (*COLUMN_FIELDS, "mysql_type", "nullable", "encoding", "wire_type", "value_class")
_ALL_COLUMNS = "*"


class _Schema(NamedTuple):
    """A numbered schema: its columns, as table_schemas has them, and the names of those of the key."""

    columns: list[Mapping[str, Any]]
    key_columns: list[str]


def rules() -> Rules:
    """What holds for the messages of a feed."""
    return Rules(observe=observe, model=WireTypes, fields=_WHAT, expected=_expected)


def observe(
    events: DataFrame,
    known: SchemaRows,
    columns: Mapping[str, str],
    earlier: Earlier = nothing_earlier,  # noqa: ARG001 -- the schema that a row names tells its columns
) -> list[Observation]:
    """Boil row events down to their observations: a (table, column, type, NULL or not, wire type, class of value).

    In: rows of change_events, and of table_schemas, and the types that the feeds file gives. Out: `_WHAT` and
    `OCCURRENCE_FIELDS`. Rows whose schema is not known are left out: they wait, and are looked at when it has come. In an
    UPDATE the new row counts.
    """
    encoding = F.when(F.col("wire_types").isNull(), "json").otherwise("avro")
    rows = with_layout_hash(
        select_row_events(events),
        table_id=F.col("table_id"),
        schema_version=F.col("schema_version"),
        encoding=encoding,
        corrupted=F.coalesce(F.col("detail") == CORRUPTED, F.lit(False)),
    )
    schemas: dict[tuple[str, str, int], dict[int, _Schema]] = defaultdict(dict)
    for s in known:
        if s["schema_version"] is not None:
            schema = _Schema(s["columns"], s["key_columns"])
            schemas[s["database"], s["table"], s["schema_version"]][s["table_id"]] = schema
    layouts = []
    found_groups = group_by_layout(rows, "table_id", "schema_version", "encoding", "corrupted")
    for group in found_groups:
        told = group.stated
        found = _schema_of(schemas[group.database, group.table, told["schema_version"]], told["table_id"])
        if found is not None:
            table_name = f"{group.database}.{group.table}"
            # In the order in which Go writes the keys of an object.
            in_order = sorted(found.columns, key=lambda c: str(c["name"]))
            each = [_told(c, told["encoding"], columns.get(f"{table_name}.{c['name']}")) for c in in_order]
            # A schema has virtual generated columns, which no row has, and those that a filter leaves out.
            layouts.append(RowLayout(group, each, frozenset(c.name for c in each).difference(found.key_columns or ())))
    return observe_values(rows, layouts, has_wire_types=True) + [
        _corrupted(g) for g in found_groups if g.stated["corrupted"]
    ]


def _corrupted(group: LayoutGroup) -> Observation:
    """What rows are whose checksum does not hold, whichever of their columns is wrong."""
    place = {"database": group.database, "table": group.table, "column": _ALL_COLUMNS, "mysql_type": None}
    # A whole row has no type of its own.
    own = {"encoding": group.stated["encoding"], "type_optional": True, "value_class": ValueClass.CORRUPTED}
    return place | own | group.occurrences


def _schema_of(schemas: Mapping[int, _Schema], table_id: int) -> _Schema | None:
    """The schema of a row out of those of its table's name and version; None when it is not known.

    As `gate.layouts` does it.
    """
    if table_id in schemas:
        return schemas[table_id]
    different = list(schemas.values())
    return different[0] if different and all(each == different[0] for each in different) else None


def _told(column: Mapping[str, Any], encoding: str, given: str | None) -> MessageColumn:
    nullable = column["nullable"] is not False
    named = parsed(column["type"])
    limits = limits_in(parsed(given) if given else named, encoding)._replace(
        null=None if nullable else ValueClass.NOT_NULL
    )
    of_scale_zero = not given and named is not None and named.base == "decimal" and named.scale == 0
    own = {"nullable": nullable, "encoding": encoding, "kind": _kind(named), "of_scale_zero": of_scale_zero}
    return MessageColumn(column["name"], column["type"], own, limits)


def limits_in(mysql_type: MySQLType | None, encoding: str) -> Limits:
    """The limits of a type in an encoding."""
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
        # Avro has no unsigned numbers: what is above a long's largest is sent as two's complement.
        return limits._replace(ranges=(-(1 << 63), limits.ranges[1], -(1 << 63), limits.ranges[3]))
    return limits


def _kind(mysql_type: MySQLType | None) -> str | None:
    """A type as the table of wire types tells types apart."""
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
    "the scale is 0; if the source's column has a scale, give the column its whole type"
)
# An unsigned BIGINT comes as a long up to where that ends, says the document, and as a string from there on.
_BRANCHES = make_rule_table({("long", LOWER), ("string", UPPER), ("UnsignedBigint", f"0..{(1 << 64) - 1}")})


class WireTypes(ValuesFit):
    """Every value is on the wire as its type prescribes."""

    encoding: object = pa.Field(nullable=True)
    kind: object = pa.Field(nullable=True)
    wire_type: object = pa.Field(nullable=True)
    of_scale_zero: object = pa.Field(coerce=True, nullable=True)

    @pa.dataframe_check(name="type_has_wire_types", error=NO_SUCH_TYPE)
    def type_has_wire_types(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805 -- pandera's form
        """Check that there is a type that the table of wire types has; a corrupted row as a whole has none."""
        return frame["kind"].isin(sorted(_KINDS)) | (frame["value_class"] == ValueClass.CORRUPTED)

    @pa.dataframe_check(name="wire_type_fits", error="not the JSON type or Avro branch of the type")
    def wire_type_fits(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check the wire type beside a type that is known; an observation of NULLs has the usual wire type."""
        return is_in_table(frame, ["encoding", "kind", "wire_type"], _WIRES) | ~frame["kind"].isin(sorted(_KINDS))

    @pa.dataframe_check(name="scale_holds_value", error=_NO_DECIMAL)
    def scale_holds_value(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Add to what is wrong with a DECIMAL of scale 0 how it came by that scale."""
        return ~(frame["of_scale_zero"].isin([True]) & (frame["value_class"] == ValueClass.OUTSIDE))

    @pa.dataframe_check(name="branch_fits_value", error="not the Avro branch of the value")
    def branch_fits_value(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check an unsigned BIGINT whose value and branch other rules let through."""
        asked = (frame["encoding"] == "avro") & (frame["kind"] == "bigint unsigned")
        asked &= ~frame["value_class"].isin(list(ValueClass)) & frame["wire_type"].isin(
            WIRE_TYPES["avro"]["bigint unsigned"]
        )
        return is_in_table(frame, ["wire_type", "value_class"], _BRANCHES) | ~asked


def _expected(row: Mapping[str, Any]) -> str:
    named = parsed(row["mysql_type"])
    if row["column"] == _ALL_COLUMNS:
        return "a checksum that holds"
    if named is None:
        return "no such type" if row["mysql_type"] else "no such column"
    limits = limits_in(named, row["encoding"])
    if limits.wires is None:
        return "no such type"
    size = f"at most {limits.length} long" if limits.length and limits.form is not TextForm.DECIMAL else None
    told = [" or ".join(limits.wires or ()), format_range(*limits.ranges[:2]) if limits.ranges else size]
    return ", ".join(t for t in told if t)
