"""What Debezium's messages say of each column's type, held against the reference tables.

The references are in `mysql_types.debezium`: which MySQL types a semantic type may stand for, and which JDBC code
schema-change records (`tableChanges`) have beside a type's name. A row's MySQL type is known where such a record, or a DDL
statement, of this run or of an earlier one tells it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.mysql_types.debezium import (
    BITS,
    DECIMAL,
    JDBC_TYPES,
    SEMANTICS,
    UNSTATED,
    Field,
    described_tables,
    layout,
    stands_for,
)
from cdc_assets.mysql_types.reference import value_range
from cdc_assets.mysql_types.types import INTEGERS, MySQLType, parsed
from cdc_assets.type_checks.declared_types import SchemaRows, make_schema_lookup
from cdc_assets.type_checks.observations import (
    COLUMN_FIELDS,
    LayoutGroup,
    MessageColumn,
    RowLayout,
    Rules,
    ValuesFit,
    group_by_layout,
    observe_missing_columns,
    observe_values,
    select_row_events,
    with_layout_hash,
)
from cdc_assets.type_checks.row_images import Earlier, Observation, Sending, nothing_earlier
from cdc_assets.type_checks.validation import is_in_table, make_rule_table, pa
from cdc_assets.type_checks.values import (
    ANYTHING,
    DESCRIBED,
    Limits,
    TextForm,
    ValueClass,
    integer_limits,
    limits_of,
)

_EVER = (1 << 63) - 1

_WHAT = (*COLUMN_FIELDS, "mysql_type", "jdbc_type", "semantic_type", "connect_type", "wire_type", "value_class")


def rules() -> Rules:
    """What holds for the messages of a feed."""
    return Rules(observe=observe, model=ConnectTypes, fields=_WHAT, expected=_expected)


def observe(
    events: DataFrame, known: SchemaRows, columns: Mapping[str, str], earlier: Earlier = nothing_earlier
) -> list[Observation]:
    """Boil events down to their observations.

    In: rows of change_events, and of table_schemas, and the types that the feeds file gives. Out: `_WHAT` and
    `OCCURRENCE_FIELDS`: one a (table, column, MySQL type, semantic type, JSON type, class of value) of rows; and one a
    (table, column, MySQL type, JDBC code) of schema-change records.
    """
    told = F.coalesce("layout", "table_schemas")
    kinds = F.col("kind").isin(str(Kind.ROW), str(Kind.DDL))
    # TiCDC tells no place in a binlog; and its rows have no virtual generated columns, as its schemas do.
    every = with_layout_hash(events.where(kinds & told.isNotNull()), told=told, of_ticdc=F.col("source").isNull())
    found = group_by_layout(every, "told", "of_ticdc")
    described = [_described(g) for g in found if g.kind == Kind.DDL]
    stated = make_schema_lookup([*known, *(row for rows, _ in described for row in rows)])
    # The messages of schema changes come in a topic of their own, which a feed need not read.
    sending = Sending(by_commit_ts=False, statements=False, keys_in_rows=False)
    layouts = []
    for group in (g for g in found if g.kind == Kind.ROW):
        shapes = stated(group.database, group.table, group.span)
        later = stated(group.database, group.table, (group.span[1] + 1, _EVER))
        optional = _optional(group.stated["told"])
        each = [
            _told(
                field,
                _types(field, shapes),
                _types(field, later),
                columns.get(f"{group.database}.{group.table}.{field.name}"),
                nullable=optional.get(field.name) is not False,
            )
            for field in layout(group.stated["told"])
        ]
        may_lack = (c.name for c in each if group.stated["of_ticdc"] and c.limits.null is None)
        layouts.append(RowLayout(group, each, frozenset(may_lack)))
    of_statements = [o for _, observations in described for o in observations]
    of_rows = [
        *observe_values(select_row_events(every), layouts, has_wire_types=True),
        *observe_missing_columns(layouts, known, sending, earlier),
    ]
    return of_statements + of_rows


def _described(group: LayoutGroup) -> tuple[list[dict[str, Any]], list[Observation]]:
    """The tables that a schema-change record describes: as rows of table_schemas, and what it says of their columns."""
    rows, found = [], []
    for (database, table_name), (columns, _) in described_tables(group.stated["told"]).items():
        place = {"database": database, "table": table_name}
        shape = [{"name": c.name, "type": str(c.type or c.type_name)} for c in columns]
        rows.append(place | {"commit_ts": group.span[0], "columns": shape})
        found += [
            place
            | {
                "column": c.name,
                "mysql_type": str(c.type or c.type_name),
                "jdbc_type": c.jdbc_type,
                "value_class": DESCRIBED,
            }
            | {"base": c.type.base if c.type else None, "described": True}
            | group.occurrences
            for c in columns
        ]
    return rows, found


def _optional(text: str) -> dict[str, Any]:
    """Whether a field may be null, by its name, as far as the message's schema says it."""
    fields = (e for e in json.loads(text) if isinstance(e, dict) and isinstance(e.get("field"), str))
    return {e["field"]: e.get("optional") for e in fields}


def _types(field: Field, shapes: Iterable[Mapping[str, Mapping[str, Any]]]) -> list[MySQLType]:
    return [t for shape in shapes if field.name in shape and (t := parsed(shape[field.name]["type"]))]


def _told(
    field: Field, types: list[MySQLType], later: list[MySQLType], given: str | None, *, nullable: bool
) -> MessageColumn:
    mysql_type = parsed(given) if given else _type_of(field, types, later)
    limits = _limits(field, _with_labels(mysql_type, later))._replace(null=None if nullable else ValueClass.NOT_NULL)
    own = {
        "semantic_type": field.semantic,
        "connect_type": field.connect,
        "stands_for": stands_for(mysql_type) if mysql_type else None,
    }
    # Without a schema a message names no types: what a statement says of the column is all that is known.
    untold = field.semantic == UNSTATED
    return MessageColumn(field.name, str(mysql_type) if mysql_type else None, own, limits, type_optional=untold)


def _type_of(field: Field, known: list[MySQLType], later: list[MySQLType]) -> MySQLType | None:
    """The newest type of the column that the field may stand for; else the newest; else what the field itself tells.

    Debezium 1.9 stamps statements with its own clock, and so later than the rows after them: where no type of before fits,
    the next that does counts.
    """
    fitting = [t for t in known if _fits(field.semantic, t)] or [t for t in later if _fits(field.semantic, t)][:1]
    return [field.alone, *known, *fitting][-1]


def _with_labels(mysql_type: MySQLType | None, later: list[MySQLType]) -> MySQLType | None:
    """The type with the labels, too, that a statement gives it which is stamped later than the rows after it."""
    if mysql_type is None or not mysql_type.labels:
        return mysql_type
    more = [label for t in later if t.base == mysql_type.base for label in t.labels or ()]
    return replace(mysql_type, labels=tuple(dict.fromkeys([*mysql_type.labels, *more])))


def _fits(semantic: str, known: MySQLType) -> bool:
    row = SEMANTICS.get(semantic)
    return row is None or stands_for(known) in row.types


_WIRES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    dict.fromkeys(["int8", "int16", "int32", "int64"], ("number",))
    # What is no number in JSON, such as infinity, the converter writes as text.
    | dict.fromkeys(["float", "double"], ("number", "string"))
    | {"string": ("string",), "boolean": ("boolean",), "bytes": ("string",), "struct": ("object",)}
)
_OF_LABELS = frozenset({"io.debezium.data.Enum", "io.debezium.data.EnumSet"})
_BITS_OF = MappingProxyType({"int8": 8, "int16": 16, "int32": 32, "int64": 64})
_DAY_FIRST, _DAY_LAST = -719_528, 2_932_896  # of the years 0 to 9999; of YEAR 1900 stands for 0
_SECONDS, _TIME = 86_400, 3_020_399  # 838:59:59
_SECOND_IN = MappingProxyType({"": 10**3, "Micro": 10**6, "Nano": 10**9})


def _limits(field: Field, mysql_type: MySQLType | None) -> Limits:
    """What the values of a field may be, as Connect's JSON converter writes them."""
    wires = _WIRES.get(field.connect)
    if field.semantic == DECIMAL:
        wires = ("string", "number")  # decimal.format=NUMERIC
    return _form(field, mysql_type)._replace(wires=wires)


def _form(field: Field, mysql_type: MySQLType | None) -> Limits:
    semantic = field.semantic
    if semantic == "io.debezium.data.Json" or (mysql_type and mysql_type.base == "json"):
        return Limits(TextForm.JSON)
    if semantic in _BITS_OF:
        return _integer(_BITS_OF[semantic], mysql_type)
    if semantic in {"float", "double"}:
        return Limits(TextForm.ANY if mysql_type and mysql_type.base == "decimal" else TextForm.DOUBLE)
    if semantic in {BITS, DECIMAL, "bytes"}:
        form = TextForm.UNSCALED if semantic == DECIMAL else TextForm.BASE64
        return Limits(form, length=_bytes(semantic, mysql_type))
    labels = mysql_type.labels if mysql_type and semantic in _OF_LABELS else None
    # Of labels with commas the message does not tell whether one is part of a label.
    if labels and not any("," in label for label in labels):
        return Limits(TextForm.LABELS, labels=labels)
    return limits_of(mysql_type) if semantic == "string" else _instant(semantic.rpartition(".")[2])


def _integer(bits: int, mysql_type: MySQLType | None) -> Limits:
    """What an integer of so many bits may be, of a column that may have fewer; what is above an int64 has wrapped."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    limits = value_range(mysql_type) if mysql_type and mysql_type.base in INTEGERS else None
    return (
        integer_limits(low, high)
        if limits is None or limits.high > high
        else integer_limits(max(low, limits.low), limits.high)
    )


def _instant(name: str) -> Limits:
    """The limits of a semantic type of days, times and years by its name; of others none."""
    seconds = (_DAY_FIRST * _SECONDS, (_DAY_LAST + 1) * _SECONDS)
    of_names = {
        "Date": integer_limits(_DAY_FIRST, _DAY_LAST),
        "Year": integer_limits(1900, 2155),
        "ZonedTimestamp": Limits(TextForm.ZONED),
    }
    for size, unit in _SECOND_IN.items():
        of_names[f"{size}Timestamp"] = integer_limits(seconds[0] * unit, seconds[1] * unit - 1)
        of_names[f"{size}Time"] = integer_limits(-_TIME * unit, _TIME * unit)
    return of_names.get(name, ANYTHING)


def _bytes(semantic: str, mysql_type: MySQLType | None) -> int | None:
    """How many bytes a value may have."""
    if mysql_type is None:
        return None
    if semantic == BITS:
        return ((mysql_type.length or 64) + 7) // 8
    if semantic == DECIMAL:
        digits = mysql_type.length or 65 if mysql_type.base == "decimal" else 20
        return len(f"{10**digits:x}") // 2 + 1
    return limits_of(mysql_type).length


_KNOWN = sorted([*SEMANTICS, UNSTATED])
_CONNECT = make_rule_table({(semantic, row.connect) for semantic, row in SEMANTICS.items()})
_STANDS_FOR = make_rule_table({(semantic, kind) for semantic, row in SEMANTICS.items() for kind in row.types})
_JDBC = make_rule_table({(base, code) for base, codes in JDBC_TYPES.items() for code in codes})
_JSON = make_rule_table(
    {(connect, wire) for connect, wires in _WIRES.items() for wire in wires} | {("bytes", "number")}
)


class ConnectTypes(ValuesFit):
    """Every semantic type is known, stands on its Connect type and for the column's MySQL type; values are of its JSON type.

    And every JDBC code is one that the connector gives to the MySQL type.
    """

    semantic_type: object = pa.Field(nullable=True)
    connect_type: object = pa.Field(nullable=True)
    stands_for: object = pa.Field(nullable=True)
    wire_type: object = pa.Field(nullable=True)
    base: object = pa.Field(nullable=True)
    jdbc_type: pd.Int64Dtype = pa.Field(coerce=True, nullable=True)
    described: object = pa.Field(coerce=True, nullable=True)

    @pa.dataframe_check(name="known_semantic_type", error="not a type of Debezium's for MySQL")
    def known_semantic_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805 -- pandera's form
        """Check every field of a row; what schema-change records describe has no semantic type."""
        return frame["semantic_type"].isin(_KNOWN) | _described_by_statement(frame)

    @pa.dataframe_check(name="connect_type_of_semantic_type", error="not the Connect type of this semantic type")
    def connect_type_of_semantic_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check the Connect type beside a semantic type that is known."""
        return is_in_table(frame, ["semantic_type", "connect_type"], _CONNECT) | ~_semantic(frame)

    @pa.dataframe_check(name="semantic_type_fits_mysql_type", error="not a semantic type of this MySQL type")
    def semantic_type_fits_mysql_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check the MySQL type beside a semantic type that is known, and so tells one."""
        return is_in_table(frame, ["semantic_type", "stands_for"], _STANDS_FOR) | ~_semantic(frame)

    @pa.dataframe_check(name="json_type_of_connect_type", error="not the JSON type of this Connect type")
    def json_type_of_connect_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check the JSON type beside a Connect type that is known; a number where bytes are to be is a decimal's only.

        An observation of NULLs has the usual JSON type; a Connect type that is not known breaks another rule.
        """
        number = (frame["wire_type"] == "number") & (frame["connect_type"] == "bytes")
        fits = is_in_table(frame, ["connect_type", "wire_type"], _JSON) & (
            ~number | (frame["semantic_type"] == DECIMAL)
        )
        return fits | ~frame["connect_type"].isin(sorted(_WIRES))

    @pa.dataframe_check(name="jdbc_type_of_mysql_type", error="not the JDBC code of this MySQL type")
    def jdbc_type_of_mysql_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check every column that a schema-change record describes; the fields of rows have no JDBC code."""
        return is_in_table(frame, ["base", "jdbc_type"], _JDBC) | ~_described_by_statement(frame)


def _described_by_statement(frame: pd.DataFrame) -> pd.Series:
    return frame["described"].isin([True])


def _semantic(frame: pd.DataFrame) -> pd.Series:
    return frame["semantic_type"].isin(list(SEMANTICS))


def _expected(row: Mapping[str, Any]) -> str:
    if row.get("described"):
        known = parsed(row["mysql_type"])
        codes: Iterable[int] = sorted(JDBC_TYPES[known.base]) if known else ()
        return f"JDBC code {', '.join(map(str, codes))}" if known else "no such type"
    if row.get("semantic_type") == UNSTATED:
        return "any: the message has no schema"
    semantic = SEMANTICS.get(row.get("semantic_type") or "")
    return f"{semantic.connect}: {', '.join(sorted(semantic.types))}" if semantic else "no such type"
